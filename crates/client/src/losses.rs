//! Which nodes were lost while a statement was unanswered: one that ends nodes is not brought to the next replica without end.
//!
//! A lost link says nothing yet: the node may live, and only the connection was reset. It counts when the map has no such process any more, and
//! is forgotten when the same process is linked again. A coordinator that lives and says `NodeFailed` has lost another node; which one, the
//! map tells, too. A statement that two nodes were lost with is refused by name. While a second loss is in doubt it waits.
//! A node that was told to end, and had to go before the statement was done, is not counted: a rolling restart ends no statement.

use std::rc::Rc;

use apus_signal::view::View;
use apus_types::{ErrorCode, NodeId};

use crate::{Client, ClientError, core::Core, retry::Retry};

/// Nodes that one statement may be unanswered by.
const LOSSES_MAX: usize = 2;
/// A coordinator's word that some node is gone is believed to have another reason when the map says nothing for so long, in nanoseconds.
const DOUBT_NS: u64 = 1_000_000_000;
/// The map is looked at this often while a loss is in doubt, in nanoseconds; a new one is noticed at once.
const LOOK_NS: u64 = 20_000_000;

/// A process of a node that was lost while it had a statement to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostNode {
    /// 0: some node that a living coordinator says is gone.
    node: NodeId,
    incarnation: u64,
}

impl LostNode {
    pub(crate) const SOME: LostNode = LostNode { node: NodeId(0), incarnation: 0 };
    pub(crate) fn new(node: NodeId, incarnation: u64) -> LostNode {
        LostNode { node, incarnation }
    }
    /// Of one that is no member any more.
    fn end(self, core: &Core) -> Fate {
        if core.has_left(self.node, self.incarnation) { Fate::Left(self) } else { Fate::Gone(self) }
    }
}

/// The losses of one statement over all its attempts; see the module's documentation.
#[derive(Default)]
pub struct Losses {
    gone: Vec<LostNode>,
    /// Lost, but told to end by whoever runs them.
    left: Vec<LostNode>,
    /// Lost links, and since when.
    doubtful: Vec<(LostNode, u64)>,
    /// The map when the statement began.
    base: Option<Rc<View>>,
}

#[derive(PartialEq)]
enum Fate {
    Gone(LostNode),
    Left(LostNode),
    Lives,
    Open,
}

impl Losses {
    /// Of a statement that begins now.
    pub fn new(client: &Client) -> Losses {
        let mut losses = Losses::default();
        losses.begin(&client.inner.core.borrow());
        losses
    }
    /// [`Losses::admit`] with the patience of a read.
    ///
    /// # Errors
    /// As there.
    pub async fn check(&mut self, client: &Client, what: impl Fn() -> String) -> Result<(), ClientError> {
        let deadline = Retry::for_reads(client).deadline();
        self.admit(client, deadline, what).await
    }
    /// An attempt begins.
    #[inline]
    pub(crate) fn begin(&mut self, core: &Core) {
        if self.base.is_none() {
            self.base = Some(core.view.clone());
        }
    }
    pub(crate) fn note(&mut self, lost: LostNode, now: u64) {
        let is_known = lost.node.0 != 0 && self.doubtful.iter().any(|(known, _)| *known == lost);
        if !is_known && !self.gone.contains(&lost) {
            self.doubtful.push((lost, now));
        }
    }
    /// The link to this node was lost with the statement unanswered.
    pub(crate) fn note_link(&mut self, core: &Core, node: NodeId) {
        self.note(LostNode::new(node, core.lost_incarnation(node)), core.now);
    }
    /// For who does not try again: the transaction is over with its node.
    pub(crate) fn error(&self) -> ClientError {
        let lost = self.doubtful.last().map(|(lost, _)| *lost);
        ClientError { lost, ..ClientError::new(ErrorCode::NodeFailed) }
    }
    /// What an error says; for those who run a statement of several requests again.
    pub fn note_error(&mut self, client: &Client, error: &ClientError) {
        if let Some(lost) = error.lost {
            self.note(lost, client.now());
        }
    }

    /// Waits until the statement may be tried again.
    ///
    /// # Errors
    /// `StatementEndsNodes` after the second loss; `LinkLost` when that is still in doubt at `deadline`.
    pub(crate) async fn admit(
        &mut self,
        client: &Client,
        deadline: u64,
        what: impl Fn() -> String,
    ) -> Result<(), ClientError> {
        loop {
            self.look(&client.inner.core.borrow());
            if self.gone.len() >= LOSSES_MAX {
                return Err(ClientError {
                    aborted: true,
                    ..ClientError::with_detail(ErrorCode::StatementEndsNodes, what())
                });
            }
            if self.gone.len() + self.doubtful.len() < LOSSES_MAX {
                return Ok(());
            }
            if client.now() >= deadline {
                return Err(ErrorCode::LinkLost.into());
            }
            client.change(LOOK_NS).await;
        }
    }

    fn look(&mut self, core: &Core) {
        for (lost, since) in std::mem::take(&mut self.doubtful) {
            match self.fate(core, lost, since) {
                Fate::Gone(lost) => self.gone.push(lost),
                Fate::Left(lost) => self.left.push(lost),
                Fate::Lives => {}
                Fate::Open => self.doubtful.push((lost, since)),
            }
        }
    }

    fn fate(&self, core: &Core, lost: LostNode, since: u64) -> Fate {
        if lost.node.0 == 0 {
            let base = self.base.iter().flat_map(|view| view.living());
            let missing = base
                .map(|n| LostNode::new(n.node(), n.incarnation))
                .filter(|n| is_gone(&core.view, *n) && !self.gone.contains(n) && !self.left.contains(n));
            // One that crashed, before one that left.
            return match missing.min_by_key(|n| core.has_left(n.node, n.incarnation)) {
                Some(lost) => lost.end(core),
                None if core.now.saturating_sub(since) > DOUBT_NS => Fate::Lives,
                None => Fate::Open,
            };
        }
        if self.gone.contains(&lost)
            || self.left.contains(&lost)
            || core.incarnation(lost.node) == Some(lost.incarnation)
        {
            return Fate::Lives;
        }
        if is_gone(&core.view, lost) { lost.end(core) } else { Fate::Open }
    }
}

fn is_gone(view: &View, lost: LostNode) -> bool {
    !view.is_member(lost.node, lost.incarnation)
}
