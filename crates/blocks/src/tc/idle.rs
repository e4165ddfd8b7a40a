//! Transactions that hold up others and do nothing.
//!
//! A session may sleep amid a transaction for hours, with rows locked. Whoever waits for such a lock has its own time-out, but the recovery of a node has none:
//! it needs each row decided once, and without the node the next failure may cost more than one transaction. So a primary of which only locked rows
//! are left to be copied asks the holders' coordinators (`ldm::copy_out`). A transaction that has been asked for nothing by its client
//! for [`IDLE_NS`] since the first such question is rolled back. Its client hears that it is not there any more with its next request.

use apus_kernel::{Context, jam};
use apus_types::ErrorCode;

use super::{
    TransactionCoordinator,
    record::{Asked, State},
};

/// So long a transaction may do nothing while somebody is held up by it.
const IDLE_NS: u64 = 5_000_000_000;

impl TransactionCoordinator {
    /// A recovery waits for the transaction's end.
    #[cold]
    pub(super) fn end_if_idle(&mut self, at: u32, ctx: &mut Context<'_>) {
        let trans = self.transactions.get_mut(at);
        if trans.state != State::Active || trans.request.outstanding > 0 {
            trans.held_up = None;
            return;
        }
        jam!(ctx);
        let (now, last) = (ctx.now(), trans.request.id);
        let first = match trans.held_up {
            Some((request, first)) if request == last => first,
            _ => now,
        };
        trans.held_up = Some((last, first));
        if now - first < IDLE_NS {
            return;
        }
        ctx.probe("tc: an idle transaction ends because a recovery waits for it");
        trans.request.asked = Asked::Nothing; // that is answered
        let (id, seconds) = (trans.id, (now - trans.since) / 1_000_000_000);
        ctx.log(format_args!(
            "rolls back transaction {id}, open for {seconds} s and idle: a recovering node waits for its rows"
        ));
        self.start_abort(at, ErrorCode::TransactionTimeout, ctx);
    }
}
