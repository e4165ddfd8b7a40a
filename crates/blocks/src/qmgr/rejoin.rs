//! Node restart: a node that comes back to a cluster that lives puts back what is on its own disk first, and joins with that.
//!
//! ```text
//! process: asks to join --JoinConf(point of the view)--> is the disk of this lineage? --RestoreReq--> a look at the president's dictionary, then own checkpoints and logs up to R
//!          --RestoreConf of all--> asks again --JoinConf--> copies the president's dictionary --JoinReq(R, lineage)--> Recovering in a view that names R
//! ```
//!
//! **R** is the least epoch that all of its logs have a mark of, as for a restart of the cluster. An epoch is complete before it is saved: each commit at or below it is executed on every
//! living replica, and no other will follow. So within one lineage every later view's members have exactly what this node has up to R. What its log has above R may have been undone by those who went on, and
//! is void from here on. Views of a lineage follow one another, a cluster that was forced to go on or that began from the disks is another one.
//!
//! **The president's dictionary first.** Rows of a table may be in the log, and below R, while this node has only prepared the change that made it. The change was finished
//! before the president answers. Looking holds up no schema change; what changes while the files are read comes with the copy of before the join.
//!
//! **Of no use** is a disk that is damaged, of another lineage, of a later view than the cluster knows, without a mark, or not complete at R. Then the node says why, and joins with nothing.
//!
//! **What dies with whom.** A node that dies while it reads has changed nothing. While it is filled its control files say `base`: it begins again at R, whatever it got meanwhile, until its first mark as a
//! full member. If the president dies, the next one is asked; R stands in the view, so a primary that takes over goes on from there. If the lineage ends before the node is admitted, the view names
//! no R, and its LDMs give up what they had. If the cluster dies, the process starts anew and takes part in the start from the disks.

use apus_kernel::{Context, jam};
use apus_signal::{
    BlockId, BlockRef, Kind,
    qmgr::{JoinAnswer, encode},
    restart::{RedoFound, Restore},
};

use super::{
    Membership,
    restart::{EPOCH_GAP, Work},
};

/// Up to which epoch the logs can be put back, for a cluster at this point (lineage, generation).
///
/// # Errors
/// For people: they cannot.
fn usable<'a>(found: impl Iterator<Item = &'a RedoFound> + Clone, point: (u64, u64)) -> Result<u64, String> {
    let is_base = |f: &RedoFound| !f.complete && f.base > 0;
    let saved = |f: &RedoFound| if is_base(f) { f.base } else { f.saved };
    let Some(restored) = found.clone().map(saved).min().filter(|epoch| *epoch > 0) else {
        return Err("nothing on its disk was ever saved by the whole cluster".to_owned());
    };
    for f in found {
        let (lineage, generation) =
            if is_base(f) { (f.base_lineage, 0) } else { (f.saved_lineage, f.saved_generation) };
        if lineage != point.0 || generation > point.1 {
            return Err("what is on its disk is of another life of the cluster".to_owned());
        }
        let is_whole = if is_base(f) { f.base == restored } else { f.complete && f.complete_from <= restored };
        if !is_whole {
            return Err(format!("the log of worker {} was not filled when its process ended", f.instance));
        }
    }
    Ok(restored)
}

impl Membership {
    /// A cluster lives that would have this node. `true`: its disk comes first, and is read.
    pub(super) fn puts_back(&mut self, answer: &JoinAnswer, ctx: &mut Context<'_>) -> bool {
        let dict = BlockRef::new(self.me, BlockId::Dict, 0);
        if let Some(work) = &mut self.restart.work {
            if work.missing.is_none() && work.order.dictionary_from != answer.president {
                ctx.probe("qmgr: the dictionary of the next president is asked for");
                work.order.dictionary_from = answer.president;
                ctx.send(dict, Kind::RestoreReq, |b| encode(&work.order, b));
            }
            return !work.missing.as_ref().is_some_and(|missing| missing.is_empty());
        }
        if self.restart.useless.is_some() {
            return false;
        }
        let Some(holding) = self.holding() else { return false };
        let found = self.restart.found.values();
        let usable = match holding.damage.is_empty() {
            true => usable(found, (answer.lineage, answer.generation)),
            false => Err(holding.damage),
        };
        let restored = match usable {
            Ok(restored) => restored,
            Err(why) => {
                ctx.probe("qmgr: a node joins without what is on its disk");
                ctx.log(format_args!("joins with nothing, and gets all rows as copies: {why}"));
                self.restart.useless = Some(why);
                return false;
            }
        };
        assert!(answer.lineage != 0, "0 is the lineage of a cluster that begins from the disks");
        ctx.probe("qmgr: a node puts back what is on its disk");
        ctx.log(format_args!("puts back what is on its own disk, up to epoch {restored}"));
        let order = Restore {
            founder: Some(self.own()),
            restored,
            begins: holding.highest.max(restored) + EPOCH_GAP,
            dictionary_from: answer.president,
            dictionary: u64::MAX, // whatever the president's is
            lineage: answer.lineage,
            ..Restore::default()
        };
        ctx.send(dict, Kind::RestoreReq, |b| encode(&order, b));
        self.restart.work = Some(Work { order, founder: self.me, missing: None });
        true
    }

    /// All of it is in memory.
    pub(super) fn has_put_back(&mut self, ctx: &mut Context<'_>) {
        jam!(ctx);
        assert!(self.view.is_none(), "a member has put back its disk under its rows");
        self.ask_to_join(ctx);
    }

    /// Epoch and lineage of what this node has put back; zeros: nothing.
    pub(super) fn put_back(&self) -> (u64, u64) {
        let is_done = |work: &&Work| work.missing.as_ref().is_some_and(|missing| missing.is_empty());
        self.restart.work.as_ref().filter(is_done).map_or((0, 0), |work| match work.order.lineage {
            0 => (0, 0),
            lineage => (work.order.restored, lineage),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: (u64, u64) = (3, 20);

    fn log(saved: u64) -> RedoFound {
        RedoFound {
            exists: true,
            saved,
            saved_lineage: HERE.0,
            saved_generation: HERE.1,
            complete: true,
            ..RedoFound::default()
        }
    }
    fn of(logs: &[RedoFound]) -> Result<u64, String> {
        usable(logs.iter(), HERE)
    }

    #[test]
    fn what_all_logs_have_counts() {
        assert_eq!(of(&[log(50), log(40)]), Ok(40));
        assert!(of(&[log(50), log(0)]).is_err_and(|why| why.contains("ever saved")));
        assert!(of(&[]).is_err());
    }

    #[test]
    fn a_log_of_another_life_or_that_begins_above_is_of_no_use() {
        let other = [
            RedoFound { saved_lineage: HERE.0 + 1, ..log(50) },
            RedoFound { saved_lineage: HERE.0 - 1, ..log(50) },
            RedoFound { saved_generation: HERE.1 + 1, ..log(50) },
        ];
        for found in other {
            assert!(of(&[log(40), found.clone()]).is_err_and(|why| why.contains("another life")), "{found:?}");
        }
        assert_eq!(of(&[RedoFound { complete_from: 40, ..log(50) }, log(40)]), Ok(40));
        for found in [RedoFound { complete_from: 41, ..log(50) }, RedoFound { complete: false, ..log(50) }] {
            assert!(of(&[found.clone(), log(40)]).is_err_and(|why| why.contains("not filled")), "{found:?}");
        }
    }

    /// What was fetched before the process died lies above it.
    #[test]
    fn a_log_that_was_being_filled_counts_up_to_where_that_began() {
        let base = |epoch| RedoFound { complete: false, base: epoch, base_lineage: HERE.0, ..log(90) };
        assert_eq!(of(&[base(30), base(30)]), Ok(30));
        assert_eq!(of(&[base(30), log(40)]), Ok(30));
        assert!(of(&[base(50), log(40)]).is_err_and(|why| why.contains("not filled")), "its log has nothing of 40");
        let of_another = RedoFound { base_lineage: HERE.0 + 1, ..base(30) };
        assert!(of(&[of_another, log(40)]).is_err_and(|why| why.contains("another life")));
    }
}
