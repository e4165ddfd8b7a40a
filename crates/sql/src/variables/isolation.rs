//! How much a transaction sees of others.

/// How much a transaction sees of others. READ UNCOMMITTED is taken for READ COMMITTED.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Isolation {
    /// Each statement what was committed before it.
    #[default]
    ReadCommitted,
    /// All plain reads at one snapshot.
    RepeatableRead,
    /// As if it were alone: see [`crate::exec::serializable`].
    Serializable,
}

impl Isolation {
    /// Of a name in capitals, its words joined by hyphens.
    pub fn named(name: &str) -> Option<Isolation> {
        match name {
            "READ-COMMITTED" | "READ-UNCOMMITTED" => Some(Isolation::ReadCommitted),
            "REPEATABLE-READ" => Some(Isolation::RepeatableRead),
            "SERIALIZABLE" => Some(Isolation::Serializable),
            _ => None,
        }
    }
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadCommitted => "READ-COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE-READ",
            Isolation::Serializable => "SERIALIZABLE",
        }
    }
}
