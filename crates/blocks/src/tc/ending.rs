//! The cluster ends, or a node is to leave that it cannot spare (`qmgr/ending`): no commit may be acknowledged behind the last global checkpoint.
//!
//! Clients are refused by then, on all workers. What this TC may still roll back it does; a commit that cannot be taken back any more is waited for. Then it answers, and its
//! answer carries its epoch, in which or before which all is that it has ever acknowledged.

use apus_kernel::Context;
use apus_signal::{BlockId, BlockRef, Kind, operator::EndOrder, qmgr::encode};
use apus_types::ErrorCode;

use super::{
    TransactionCoordinator,
    record::{Asked, State},
};

impl TransactionCoordinator {
    pub(super) fn on_end_ord(&mut self, order: EndOrder, ctx: &mut Context<'_>) {
        (self.ends, self.ending) = (!order.over, Some(order).filter(|order| !order.over));
        if order.over {
            return;
        }
        let all: Vec<u32> = self.transactions.iter().map(|(at, _)| at).collect();
        for at in all {
            self.carry_over(at, ctx);
            if !self.transactions.is_used(at) || !self.transactions.get(at).may_abort() {
                continue;
            }
            let trans = self.transactions.get_mut(at);
            if trans.state == State::Active && trans.request.outstanding == 0 {
                trans.request.asked = Asked::Nothing; // that is answered
            }
            self.start_abort(at, ErrorCode::Frozen, ctx);
        }
    }

    /// Answers once nothing is under way that could still be committed.
    #[cold]
    pub(super) fn try_end(&mut self, ctx: &mut Context<'_>) {
        let is_over = self.take_over.is_none() && self.transactions.iter().all(|(_, t)| t.state == State::Aborting);
        if let Some(order) = self.ending.take_if(|_| is_over) {
            let qmgr = BlockRef::new(self.me.node, BlockId::Qmgr, BlockRef::CONTROL);
            ctx.send(qmgr, Kind::EndReadyRep, |b| encode(&order, b));
        }
    }
}
