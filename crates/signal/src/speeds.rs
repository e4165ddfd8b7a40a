//! How fast data nodes write checkpoints: settings of the cluster, a part of the view. A node steers between them (`ldm::checkpoint_speed` of the blocks).

use prost::Message;

/// What a speed may be, in MiB per second and node.
pub const SPEED_MIB: std::ops::RangeInclusive<u32> = 1..=100_000;

/// `View::checkpoint_speeds`, `Setting::checkpoint_speeds`: MiB per second and node, shared by its workers. 0: not set; of a setting: stays as it is.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Speeds {
    /// Below this no load brakes.
    #[prost(uint32, tag = "1")]
    pub min: u32,
    #[prost(uint32, tag = "2")]
    pub max: u32,
    /// The most while another node starts.
    #[prost(uint32, tag = "3")]
    pub max_other_restart: u32,
    /// The most from a node's own start until its first checkpoint counts.
    #[prost(uint32, tag = "4")]
    pub max_own_restart: u32,
}

impl Speeds {
    pub const DEFAULT: Speeds = Speeds { min: 20, max: 200, max_other_restart: 100, max_own_restart: 400 };

    /// As operators write them.
    pub const NAMES: [&'static str; 4] = [
        "checkpoint_min_speed",
        "checkpoint_max_speed",
        "checkpoint_max_speed_other_restart",
        "checkpoint_max_speed_own_restart",
    ];

    /// In the order of [`Speeds::NAMES`].
    pub fn values(&self) -> [u32; 4] {
        [self.min, self.max, self.max_other_restart, self.max_own_restart]
    }
    pub fn from_values([min, max, max_other_restart, max_own_restart]: [u32; 4]) -> Speeds {
        Speeds { min, max, max_other_restart, max_own_restart }
    }
    /// Of both the one that is set, first of all in `self`.
    #[must_use]
    pub fn or(&self, other: &Speeds) -> Speeds {
        let (own, other) = (self.values(), other.values());
        Speeds::from_values(std::array::from_fn(|i| if own[i] == 0 { other[i] } else { own[i] }))
    }
    /// Something is set, and all that is may be so.
    pub fn is_legal(&self) -> bool {
        let values = self.values();
        values.iter().any(|v| *v != 0) && values.iter().all(|v| *v == 0 || SPEED_MIB.contains(v))
    }
}

#[cfg(test)]
mod tests {
    use super::Speeds;

    #[test]
    fn what_is_not_set_stays() {
        let wish = Speeds { max: 50, ..Speeds::default() };
        assert_eq!(wish.or(&Speeds::DEFAULT), Speeds { max: 50, ..Speeds::DEFAULT });
        assert_eq!(wish.or(&Speeds { max: 70, min: 5, ..Speeds::default() }).values(), [5, 50, 0, 0]);
        assert!(wish.is_legal() && !Speeds::default().is_legal());
        assert!(!Speeds { min: 100_001, ..wish }.is_legal());
    }
}
