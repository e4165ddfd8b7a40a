//! The log's memory.

use apus_kernel::{Worker, WorkerConfig};
use apus_types::{PartitionId, TableId};

use super::*;

/// A disk takes nothing for a while: changes are refused when the region of the log is full, long before the buffer's own limit, and not any more when it has taken what waits.
#[test]
fn changes_are_refused_while_there_is_no_memory_for_the_log() {
    const MIB: usize = 1 << 20;
    let (node, memory) = (NodeId(1), MemoryManager::new(40 * MIB as u64));
    let config = WorkerConfig { node, worker: 0, instances: 1, control: false, incarnation: 1, seed: 1 };
    let mut worker = Worker::new(config);
    let mut redo = Redo::new(node, 0, &OnDisk { segment_bytes: 64 * MIB as u64, ..OnDisk::default() });
    redo.writer = Some(Writer::new(&redo.control));
    let me = redo.me;
    let mut follow = |redo: &mut Redo| worker.with_context(me, |ctx| redo.follow_memory(&memory, ctx));
    let rows = vec![0; MIB];
    let copied = Entry::Copied { partition: PartitionId(0), table: TableId(10), count: 1, rows: &rows };
    let appended = (1..BUFFER_MAX / MIB).find(|_| {
        redo.append(&copied);
        follow(&mut redo);
        redo.refusal().is_some()
    });
    assert!(appended.is_some_and(|mib| (9..=11).contains(&mib)), "{appended:?}: a quarter of 40 MiB");
    assert_eq!(redo.refusal(), Some(ErrorCode::LogFull));
    redo.append(&copied); // the ends of what was begun
    follow(&mut redo);
    let log = || memory.usage().find(|u| u.region == Region::Log).expect("it is there");
    assert!(log().refused > 0 && log().used <= log().maximum);
    let writer = redo.writer.as_mut().expect("it was made");
    writer.add_segment(1, None);
    while writer.take(Epoch(1), Vec::new()).is_some() {}
    follow(&mut redo);
    assert_eq!((redo.refusal(), log().used), (None, 0));
}
