//! `apus inspect` as a user runs it: each kind of file whole, and with a byte that is another one.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use apus_blocks::qmgr::Acceptor;
use apus_mgmt::kept::Promise;
use apus_redo::{Checkpoint, Control, Entry, LogId, LogKind, Place, SEGMENT_BYTES, Writer};
use apus_signal::{copy::CopiedRow, dict::Dictionary, file::seal, ldm::PreparedRow, schema::TableMessage, view::View};
use apus_types::{Chain, Epoch, NodeId, PartitionId, TableId, TransId};
use prost::Message;

const ID: LogId = LogId { cluster: 0xabc, node: NodeId(2), instance: 3, kind: LogKind::Redo };

fn directory(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("inspect-{name}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a scratch directory");
    path
}

/// What it prints, and whether it says that all is whole.
fn inspect(arguments: &[&str], file: &Path) -> (String, bool) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
    let output = command.arg("inspect").args(arguments).arg(file).output().expect("the binary");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{text}");
    (text, output.status.success())
}

/// A log of two segments and the places of its blocks: a transaction per block.
fn log(path: &Path) -> Vec<(u32, u64)> {
    let mut control = Control::empty(ID, SEGMENT_BYTES);
    (control.segments, control.next, control.complete) = (vec![1, 2], 3, Some(Epoch(5)));
    let mut writer = Writer::new(&control);
    (1..=2).for_each(|number| writer.add_segment(number, None));
    let (mut rows, mut files) = (Vec::new(), [Vec::new(), Vec::new()]);
    let row = PreparedRow {
        partition: PartitionId(4),
        table: TableId(77),
        schema_version: 1,
        row: 9,
        key: b"\xca\xfe",
        image: Some(b"some image"),
    };
    row.encode(&mut rows);
    PreparedRow { image: None, ..row }.encode(&mut rows);
    let (chain, big) = (Chain::new(&[NodeId(2), NodeId(1)]), vec![0; 12 << 20]);
    let mut places = Vec::new();
    for seq in 0..9 {
        let trans = TransId { client: 0xdead, seq };
        if seq < 3 {
            writer.append(&Entry::Prepare { trans, chain, savepoint: 1, count: 2, rows: &rows });
            writer.append(&Entry::Commit { trans, chain, epoch: Epoch(10 + seq) });
        } else {
            // The log does not look into it: `count` is 0.
            writer.append(&Entry::Prepare { trans, chain, savepoint: 1, count: 0, rows: &big });
        }
        writer.append(&Entry::Saved { epoch: Epoch(10 + seq), lineage: 1, generation: 2 });
        while let Some(block) = writer.take(Epoch(20 + seq), Vec::new()) {
            let file: &mut Vec<u8> = &mut files[block.segment as usize - 1];
            assert_eq!(file.len() as u64, block.at);
            file.extend_from_slice(&block.bytes);
            places.push((block.segment, block.at));
            writer.synced(block.sequence);
        }
    }
    fs::write(path.join("redo-3.ctl"), control.encode()).expect("there is room");
    for (number, bytes) in (1..).zip(&files) {
        fs::write(path.join(format!("redo-3-{number}.log")), bytes).expect("there is room");
    }
    places
}

fn flip(file: &Path, at: u64) {
    let mut bytes = fs::read(file).expect("it is there");
    bytes[at as usize] ^= 4;
    fs::write(file, bytes).expect("there is room");
}

#[test]
fn segments_of_a_log() {
    let path = directory("log");
    let places = log(&path);
    let (one, two) = (path.join("redo-3-1.log"), path.join("redo-3-2.log"));
    let (text, is_whole) = inspect(&["--rows"], &one);
    assert!(is_whole, "{text}");
    for part in [
        "block 1 at byte 0: 4096 bytes",
        "  prepare dead.0 chain 2, 1 savepoint 1: 2 rows",
        "    table 77 version 1 partition 4 row 9 key cafe: 10 bytes",
        "    table 77 version 1 partition 4 row 9 key cafe: deleted",
        "  commit dead.2 chain 2, 1 epoch 12",
        "  saved: epoch 11 in view 2 of founding 1",
        "redo log 3 of node 2 in cluster abc, segment 1 of 2; whole",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.find("block 2 at byte 4096").is_some_and(|at| at < text.find("commit dead.1").expect("printed")));
    let (text, is_whole) = inspect(&["--brief"], &two);
    assert!(is_whole && text.lines().count() == 1 && text.contains("segment 2 of 2; whole"), "{text}");

    // A bit of a block in the midst, and the whole tail of the first segment.
    let (_, at) = places[1];
    flip(&one, at + 70);
    let (text, is_whole) = inspect(&[], &one);
    assert!(
        !is_whole && text.contains("DAMAGED: at byte 4096, after epoch 20: ") && text.contains("was synced"),
        "{text}"
    );
    flip(&one, at + 70);
    let last = places.iter().rfind(|(segment, _)| *segment == 1).expect("blocks").1;
    let bytes = fs::read(&one).expect("it is there");
    fs::write(&one, &bytes[..last as usize]).expect("there is room");
    let (text, is_whole) = inspect(&["--brief"], &one);
    assert!(!is_whole && text.contains(&format!("DAMAGED: at byte {last}, ")), "{text}");
    fs::write(&one, &bytes).expect("there is room");
    // A file of another number, and one that the control file does not know.
    fs::copy(&one, path.join("redo-3-4.log")).expect("there is room");
    let (text, is_whole) = inspect(&[], &path.join("redo-3-4.log"));
    assert!(is_whole && text.contains("does not list it"), "{text}");
    fs::copy(&one, &two).expect("there is room");
    let (text, _) = inspect(&["--brief"], &two);
    assert!(text.contains("0 blocks, 0 entries"), "what is the first segment's is nothing in the second: {text}");

    flip(&path.join("redo-3.ctl"), 30);
    let (text, is_whole) = inspect(&[], &path.join("redo-3.ctl"));
    assert!(!is_whole && text.contains("DAMAGED: it is damaged (its hash is wrong)"), "{text}");
    assert!(!inspect(&[], &one).1);
    fs::remove_file(path.join("redo-3.ctl")).expect("it is there");
    let (text, is_whole) = inspect(&[], &one);
    assert!(!is_whole && text.contains("without its control file"), "{text}");
}

#[test]
fn a_checkpoint() {
    let path = directory("checkpoint");
    let mut control = Control::empty(ID, SEGMENT_BYTES);
    let mut writer = Writer::new(&control.of_checkpoint(4));
    writer.add_segment(4, None);
    let (partition, table) = (PartitionId(4), TableId(77));
    let mut rows = Vec::new();
    CopiedRow { epoch: Epoch(8), row: 300, key: b"\xca\xfe", image: b"some image" }.encode(&mut rows);
    writer.append(&Entry::Commits { ids: &Entry::commit_id(TransId { client: 0xdead, seq: 1 }) });
    writer.append(&Entry::Fragment { partition, table, pages: 2 });
    writer.append(&Entry::Page { partition, table, page: 1 });
    writer.append(&Entry::Copied { partition, table, count: 1, rows: &rows });
    let block = writer.take(Epoch(9), Vec::new()).expect("a block");
    let Place { at: bytes, sequence, previous: checksum, .. } = writer.place();
    control.checkpoints = vec![Checkpoint { file: 4, turn: 3, epoch: Epoch(9), bytes, sequence, checksum }];
    let (control_file, file) = (path.join("redo-3.ctl"), path.join("lcp-3-4.data"));
    fs::write(&control_file, control.encode()).expect("there is room");
    fs::write(&file, &block.bytes).expect("there is room");
    let (text, is_whole) = inspect(&["--rows"], &file);
    for part in [
        "block 1 at byte 0: 4096 bytes",
        "  commits: 1",
        "  fragment: table 77 partition 4: 2 pages",
        "  page 1 of table 77 partition 4",
        "    table 77 row 300 key cafe epoch 8: 10 bytes",
        "checkpoint 4 of redo log 3 of node 2 in cluster abc, up to epoch 9; whole",
    ] {
        assert!(is_whole && text.contains(part), "{part} in {text}");
    }
    let (text, _) = inspect(&[], &control_file);
    assert!(text.contains("checkpoint 4, turn 3: up to epoch 9, 1 blocks, 4096 bytes"), "{text}");
    flip(&file, 70);
    let (text, is_whole) = inspect(&["--brief"], &file);
    assert!(!is_whole && text.contains("DAMAGED: it ends at byte 0 of 4096"), "{text}");
    flip(&file, 70);
    // A file that is not listed is none: what a process has begun.
    control.checkpoints.clear();
    fs::write(&control_file, control.encode()).expect("there is room");
    let (text, is_whole) = inspect(&[], &file);
    assert!(is_whole && text.contains("does not list it"), "{text}");
}

#[test]
fn small_files() {
    let path = directory("small");
    log(&path);
    let view = View { generation: 3, instances: 1, cluster: 0xabc, ..View::default() };
    let acceptor =
        Acceptor { node: 2, incarnation: 7, boot: "b00t".into(), committed: Some(view), ..Acceptor::default() };
    let promise = Promise { cluster: 0xabc, node: 0xff01, identity: 5, generation: 9, ..Promise::default() };
    let table = TableMessage { id: 12, database: "shop".into(), name: "orders".into(), ..TableMessage::default() };
    let dictionary = Dictionary { version: 4, tables: vec![table], ..Dictionary::default() };
    fs::write(path.join("view"), seal(*b"APUSVIW1", &acceptor.encode_to_vec())).expect("there is room");
    fs::write(path.join("arbitrator"), promise.to_bytes()).expect("there is room");
    fs::write(path.join("dictionary"), seal(apus_blocks::dict::DICTIONARY_MAGIC, &dictionary.encode_to_vec()))
        .expect("there is room");
    let expected = [
        ("view", "committed view: generation 3 of cluster abc", "view of data node 2, generation 3; whole"),
        ("arbitrator", "arbitrator 5 of cluster abc", "promises of arbitrating node 65281; whole"),
        ("dictionary", "table 12 shop.orders", "dictionary, version 4, 0 databases, 1 tables; whole"),
        (
            "redo-3.ctl",
            "complete from epoch 5",
            "control file of redo log 3 of node 2 in cluster abc, 2 segments; whole",
        ),
    ];
    for (name, within, verdict) in expected {
        let file = path.join(name);
        let (text, is_whole) = inspect(&[], &file);
        assert!(is_whole && text.contains(within) && text.contains(verdict), "{name}: {text}");
        // Under another name it is known by its content.
        fs::copy(&file, path.join("copy")).expect("there is room");
        assert!(inspect(&[], &path.join("copy")).1, "{name}");
        flip(&file, 20);
        let (text, is_whole) = inspect(&["--brief"], &file);
        assert!(!is_whole && text.contains("DAMAGED: it is damaged"), "{name}: {text}");
        flip(&file, 20);
        flip(&file, 7);
        let (text, is_whole) = inspect(&["--brief"], &file);
        assert!(!is_whole && text.contains("another kind or release"), "{name}: {text}");
    }
    let (text, is_whole) = inspect(&[], Path::new(env!("CARGO_BIN_EXE_apus")));
    assert!(!is_whole && text.contains("no file that this Apus writes"), "{text}");
    assert!(!inspect(&[], &path.join("nothing")).1);
}
