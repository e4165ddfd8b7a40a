//! Every limit of a worker, with its reason.

/// Blocks are ticked about this often, in nanoseconds: fine enough for the shortest time-out, cheap enough to forget.
pub const TICK_NS: u64 = 10_000_000;
/// A data worker that has begun no round for so many ticks of the control worker is stuck: 5 s in which the process ran. The longest legal
/// turn is a slice of some tens of milliseconds.
pub const STUCK_TICKS: u32 = 500;
/// After so many its node begins to say so.
pub const STUCK_WARN_TICKS: u32 = STUCK_TICKS / 2;
/// What the signals of a round may cost at worst, as their blocks say it ([`crate::Context::spend`]), before the executor looks at sockets, disks and the clock again. Work in
/// slices asks for its next slice by a signal to itself: without this a round would do as many slices as it may execute signals, which is seconds. A quarter of the shortest silence; a
/// single signal may cost as much, so a round may cost twice that.
pub const ROUND_SPENT_NS: u64 = 20_000_000;
/// Ticks in which a worker has waited for a commit of an epoch that is to end, after which it says so, again and again: 1 s. After
/// [`STUCK_TICKS`] the node that does not answer ends. The longest legal wait is that of a slice, and of links that are full.
pub const EPOCH_LATE_TICKS: u32 = 100;
/// Most workers (LDM and TC instances) of a node: the instance of a block address is a byte.
pub const INSTANCES_MAX: u8 = 128;
/// While a worker has more bytes of unexecuted signals than this, its executor stops reading from clients.
pub const JOB_BYTES_SOFT: usize = 4 << 20;
/// While a worker has so many bytes of signals of its own blocks to execute, or so many unsent to another node, blocks refuse what would
/// add answers to them (`Overload`): many small requests may ask for much.
pub const JOB_BYTES_FULL: usize = 64 << 20;
/// While a worker's blocks have set aside more bytes than this until a view comes, it reads neither from clients nor from the data links of
/// members. Membership has links of its own.
pub const DEFERRED_BYTES_SOFT: usize = 8 << 20;
/// More unexecuted bytes than this can only be a loop between blocks: the node stops and its replica takes over.
pub const JOB_BYTES_MAX: usize = 1 << 30;
/// A job, ring or link buffer that has grown beyond this gives its memory back once it is empty.
pub const BUFFER_BYTES_KEPT: usize = 4 << 20;
/// While a client leaves more bytes unread than this, its requests are not read either.
pub const CLIENT_UNSENT_SOFT: usize = 1 << 20;
/// A client that leaves more bytes unread than this is cut off: answers in flight may exceed the soft limit, not run away.
pub const CLIENT_UNSENT_MAX: usize = 128 << 20;
/// A member that leaves more bytes unread than this has failed: heartbeats would say the same a little later.
pub const MEMBER_UNSENT_MAX: usize = 1 << 30;
/// Whoever has executed so many bytes of another data node says so: what the sender keeps is this and what is on its way.
pub const LINK_ACK_BYTES: u64 = 16 << 10;
/// Bytes for a data node that are written and not acknowledged; of more the oldest are forgotten. Several times what sockets hold.
pub const LINK_UNACKED_MAX: usize = 64 << 20;
/// Acknowledged bytes that a buffer keeps before it moves what follows to its start.
pub const LINK_KEPT_MIN: usize = 32 << 10;
/// Most client links of one node: ids from `NodeId::CLIENT_BASE` to the end of 16 bits.
pub const CLIENTS_MAX: usize = 0x8000;
/// Most delayed signals of one worker. Each use in the blocks keeps at most one on its way, over a queue of its own: in LDM the ends of large
/// transactions, a new view, copying and the checkpoint, in TC a take-over, in DIH the next epoch. So there are six, and no load comes near.
pub const TIMERS_MAX: usize = 1 << 10;
/// A timer slot keeps at most this many bytes for its next user.
pub const TIMER_BYTES_KEPT: usize = 4096;
/// Longest content of a file that a block has written as a whole: the dictionary, which also fits into a signal.
pub const FILE_BYTES_MAX: usize = apus_types::limits::SIGNAL_BYTES_MAX;
/// Most requests of a worker to its data files that are not answered.
pub const DISK_REQUESTS_MAX: usize = 64;
/// Most bytes that they write and read together.
pub const DISK_BYTES_MAX: usize = 16 << 20;
/// Most bytes of one of them.
pub const DISK_PIECE_MAX: usize = 1 << 20;
/// Buffers of finished writes that a worker keeps for its next ones, and their capacity together.
pub const DISK_BUFFERS_KEPT: usize = 64;
pub const DISK_BUFFER_BYTES_KEPT: usize = 16 << 20;
/// Signals remembered for the crash report, per worker; a power of two.
pub const SIGNAL_RING: usize = 4096;
/// Body bytes remembered of each.
pub const SIGNAL_RING_BODY: usize = 64;
/// Code points remembered for the crash report, per worker; a power of two.
pub const JAM_RING: usize = 4096;
/// Log lines kept until the executor takes them; more are counted and lost.
pub const LOG_LINES_MAX: usize = 1024;
/// A node id from a peer may not push our epoch further ahead than this at once: two years at a thousand epochs a second.
pub const EPOCH_LEAP_MAX: u64 = 1 << 36;

const _: () = assert!(DISK_PIECE_MAX + 64 < apus_types::limits::SIGNAL_BYTES_MAX && DISK_PIECE_MAX <= DISK_BYTES_MAX);
const _: () = assert!(SIGNAL_RING.is_power_of_two() && JAM_RING.is_power_of_two());
// What may still come after blocks refuse: an answer in the making, and what members' links bring until they are not read.
const _: () = assert!(JOB_BYTES_FULL + apus_types::limits::SIGNAL_BYTES_MAX < JOB_BYTES_MAX / 4);
// What is read of one frame is not acknowledged before the frame is whole.
const _: () = assert!(LINK_UNACKED_MAX > 2 * apus_types::limits::SIGNAL_BYTES_MAX + LINK_ACK_BYTES as usize);
const _: () = assert!(JOB_BYTES_MAX > 4 * apus_types::limits::SIGNAL_BYTES_MAX);
