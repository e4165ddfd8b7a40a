//! What a worker counts, always.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Totals since the worker was made.
        #[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
        pub struct Counters { $($(#[$doc])* pub $name: u64,)* }
        impl Counters {
            /// Names and values, for status and reports.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Signals executed by blocks of this worker.
    executed,
    /// Frames that came over links.
    received_link,
    /// Frames that came from other workers of the node.
    received_ring,
    /// Frames put into link buffers.
    sent_link,
    /// Frames put into rings to other workers.
    sent_ring,
    /// Data-plane signals from or to nodes that are not members (any more).
    dropped_not_member,
    /// Signals to a node or client without a link.
    dropped_no_link,
    /// Signals from members that no member may send (inside-only kinds, a client's address, another node's mail).
    dropped_forbidden,
    /// Signals to a block or instance that this node does not have.
    dropped_no_block,
    /// Client requests answered with a refusal by the worker itself.
    refused,
    /// Frames or bodies that did not decode.
    violations,
    /// Links cut because their peer left too much unread.
    overflows,
    /// Links between data nodes that went on over another connection.
    links_resumed,
    /// Log lines lost because nobody took them.
    log_lines_lost,
}
