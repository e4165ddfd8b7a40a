//! Settings that an operator changes while the cluster runs. They are part of the view, so that all members use one value and a new member
//! learns it with its first view.
//!
//! There are five: the class of commits (`durability`, see `tc::durable`), the time between two global checkpoints (`gcp_interval`, see
//! `dih::saves`), the speeds of checkpoints (`checkpoint_min_speed` and others, see `ldm::checkpoint_speed`), the floor of the silence limit (`silence_ms`, see `heartbeat`), and from when on a slow node leaves (`eject_slow_ms`, see `slow`). A management node passes the operator's wish on to all members it
//! is linked to; the acting president makes a view with it, like any other. If it dies before that the wish is lost: the operator's
//! command sees that the view does not come, and says so. Raising or lowering the floor is safe at any moment, and while members
//! know different values: a promise that was given is kept (`Peer::promised_until`), and carries its length.

use apus_kernel::{Context, jam};
use apus_signal::{
    mgmt::{SILENCE_MS, Setting},
    speeds::Speeds,
    view::View,
};

use super::{Membership, Phase, layout};

impl Membership {
    /// From a management node.
    pub(super) fn on_setting(&mut self, setting: &Setting, ctx: &mut Context<'_>) {
        if !setting.is_legal() || self.phase != Phase::Member {
            jam!(ctx);
            return;
        }
        if self.acting_president() == Some(self.me) {
            self.wanted.silence_ms = setting.silence_ms.or(self.wanted.silence_ms);
            self.wanted.eject_slow_ms = setting.eject_slow_ms.or(self.wanted.eject_slow_ms);
            self.wanted.durability = setting.durability.or(self.wanted.durability);
            self.wanted.gcp_interval_ms = setting.gcp_interval_ms.or(self.wanted.gcp_interval_ms);
            if let Some(wish) = setting.checkpoint_speeds {
                let before = self.wanted.checkpoint_speeds.unwrap_or_default();
                self.wanted.checkpoint_speeds = Some(wish.or(&before));
            }
            self.drive(ctx);
        }
    }

    /// The view with the operator's wish, if it is not there yet.
    pub(super) fn with_settings(&self, base: &View) -> Option<View> {
        let wanted = Setting {
            silence_ms: self.wanted.silence_ms.filter(|ms| *ms != silence_ms(base)),
            eject_slow_ms: self.wanted.eject_slow_ms.filter(|ms| *ms != base.eject_slow_ms),
            durability: self.wanted.durability.filter(|class| *class != base.durability),
            gcp_interval_ms: self.wanted.gcp_interval_ms.filter(|ms| *ms != base.gcp_interval_ms()),
            checkpoint_speeds: self.wanted.checkpoint_speeds.filter(|wish| changes(wish, base)),
            ..Setting::default()
        };
        (wanted != Setting::default()).then(|| layout::with_settings(base, self.me, &wanted))
    }

    /// A view is committed: a wish that another president did not hear of is not taken up again later.
    pub(super) fn settings_are(&mut self, view: &View) {
        let ours = view.president == u32::from(self.me.0);
        self.wanted.silence_ms = self.wanted.silence_ms.filter(|ms| ours && *ms != silence_ms(view));
        self.wanted.eject_slow_ms = self.wanted.eject_slow_ms.filter(|ms| ours && *ms != view.eject_slow_ms);
        self.wanted.durability = self.wanted.durability.filter(|class| ours && *class != view.durability);
        self.wanted.gcp_interval_ms = self.wanted.gcp_interval_ms.filter(|ms| ours && *ms != view.gcp_interval_ms());
        self.wanted.checkpoint_speeds = self.wanted.checkpoint_speeds.filter(|wish| ours && changes(wish, view));
    }
}

/// Other speeds than those of the view are wanted.
fn changes(wish: &Speeds, view: &View) -> bool {
    wish.or(&view.checkpoint_speeds()) != view.checkpoint_speeds()
}

/// Floor of the silence limit as the view says; a cluster that never set it has the lowest.
pub(super) fn silence_ms(view: &View) -> u32 {
    view.silence_ms.clamp(*SILENCE_MS.start(), *SILENCE_MS.end())
}
