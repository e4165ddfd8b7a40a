//! The simulated disk: what is durable is there, what is not may be, and what goes wrong goes wrong as announced.

use apus_sim::disk::{Answer, Disk, DiskConfig, Faults, Op, REQUEST_BYTES_MAX, SECTOR};

fn done(disk: &mut Disk, now: &mut u64, op: Op) -> Answer {
    let number = disk.submit(*now, op);
    loop {
        *now = disk.next_due().expect("the request is under way");
        if let Some((_, answer)) = disk.advance(*now).into_iter().find(|(n, _)| *n == number) {
            return answer;
        }
    }
}

fn write(file: &str, at: u64, bytes: &[u8]) -> Op {
    Op::Write { file: file.to_owned(), at, bytes: bytes.to_vec() }
}
fn read(file: &str, at: u64, count: usize) -> Op {
    Op::Read { file: file.to_owned(), at, count }
}
fn sync(file: &str) -> Op {
    Op::Sync { file: file.to_owned() }
}
fn rename(from: &str, to: &str) -> Op {
    Op::Rename { from: from.to_owned(), to: to.to_owned() }
}

#[test]
fn what_is_written_is_read() {
    let (mut disk, mut now) = (Disk::new(1, DiskConfig::default()), 0);
    assert_eq!(done(&mut disk, &mut now, read("a", 0, 9)), Answer::NotFound);
    assert_eq!(done(&mut disk, &mut now, write("a", 3, b"hello")), Answer::Done);
    assert_eq!(done(&mut disk, &mut now, read("a", 0, 99)), Answer::Bytes(b"\0\0\0hello".to_vec()));
    assert_eq!(done(&mut disk, &mut now, read("a", 7, 1)), Answer::Bytes(b"o".to_vec()));
    assert_eq!(done(&mut disk, &mut now, read("a", 99, 1)), Answer::Bytes(Vec::new()));
    assert_eq!(done(&mut disk, &mut now, rename("a", "b")), Answer::Done);
    assert_eq!(done(&mut disk, &mut now, Op::List), Answer::Names(vec!["b".to_owned()]));
    assert_eq!(done(&mut disk, &mut now, Op::Delete { file: "b".to_owned() }), Answer::Done);
    assert_eq!(done(&mut disk, &mut now, Op::Delete { file: "b".to_owned() }), Answer::NotFound);
    assert_eq!(done(&mut disk, &mut now, rename("b", "a")), Answer::NotFound);
    assert_eq!(done(&mut disk, &mut now, read("b", 0, REQUEST_BYTES_MAX + 1)), Answer::TooBig);
}

#[test]
fn requests_of_one_file_keep_their_order_and_the_seed_decides_the_rest() {
    let run = |seed| {
        let mut disk = Disk::new(seed, DiskConfig::default());
        let mut numbers = Vec::new();
        for i in 0..50u8 {
            numbers.push(disk.submit(0, write("a", 0, &[i])));
            disk.submit(0, write("b", 0, &[i]));
        }
        let order: Vec<u64> = disk.advance(u64::MAX).into_iter().map(|(n, _)| n).collect();
        let of_a: Vec<u64> = order.iter().copied().filter(|n| numbers.contains(n)).collect();
        assert_eq!(of_a, numbers);
        order
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn a_crash_keeps_what_was_synced_and_some_sectors_of_the_rest() {
    let (mut kept, mut lost, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let (mut disk, mut now) = (Disk::new(seed, DiskConfig::default()), 0);
        done(&mut disk, &mut now, write("a", 0, &[1; 4 * SECTOR]));
        done(&mut disk, &mut now, sync("a"));
        done(&mut disk, &mut now, Op::SyncNames);
        done(&mut disk, &mut now, write("a", 0, &[2; 4 * SECTOR]));
        disk.crash();
        let Answer::Bytes(bytes) = done(&mut disk, &mut now, read("a", 0, 9999)) else { panic!("the file is there") };
        assert_eq!(bytes.len(), 4 * SECTOR);
        let sectors: Vec<&[u8]> = bytes.chunks(SECTOR).collect();
        assert!(sectors.iter().all(|s| s.iter().all(|b| *b == s[0])), "a sector is written as a whole");
        match sectors.iter().filter(|s| s[0] == 2).count() {
            0 => lost += 1,
            4 => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(kept > 0 && lost > 0 && torn > 0, "{kept} {lost} {torn}");
}

#[test]
fn names_are_durable_when_they_were_synced() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..100 {
        let (mut disk, mut now) = (Disk::new(seed, DiskConfig::default()), 0);
        for (file, text) in [("current", b"old"), ("next", b"new")] {
            done(&mut disk, &mut now, write(file, 0, text));
            done(&mut disk, &mut now, sync(file));
            if file == "current" {
                done(&mut disk, &mut now, Op::SyncNames);
            }
        }
        done(&mut disk, &mut now, rename("next", "current"));
        disk.crash();
        // One of both, never none and never a mixture: the way in which programs replace files.
        match done(&mut disk, &mut now, read("current", 0, 9)) {
            Answer::Bytes(bytes) if bytes == b"old" => old += 1,
            Answer::Bytes(bytes) if bytes == b"new" => new += 1,
            other => panic!("seed {seed}: {other:?}"),
        }
        done(&mut disk, &mut now, Op::Delete { file: "current".to_owned() });
        done(&mut disk, &mut now, Op::SyncNames);
        disk.crash();
        assert_eq!(done(&mut disk, &mut now, read("current", 0, 9)), Answer::NotFound);
    }
    assert!(old > 0 && new > 0, "{old} {new}");
}

#[test]
fn requests_under_way_may_be_lost() {
    let mut seen = [0, 0];
    for seed in 0..50 {
        let (mut disk, mut now) = (Disk::new(seed, DiskConfig::default()), 0);
        done(&mut disk, &mut now, write("a", 0, b"1"));
        done(&mut disk, &mut now, sync("a"));
        done(&mut disk, &mut now, Op::SyncNames);
        disk.submit(now, write("a", 0, b"2"));
        disk.crash();
        assert_eq!(disk.next_due(), None);
        match done(&mut disk, &mut now, read("a", 0, 1)) {
            Answer::Bytes(bytes) => seen[usize::from(bytes == b"2")] += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

/// As Linux does it: whoever syncs again after a failure is told that all is well, and what was lost stays lost.
#[test]
fn a_failed_sync_loses_what_it_did_not_write() {
    let mut kept = [0; 2];
    for seed in 1..=40 {
        let (mut disk, mut now) = (Disk::new(seed, DiskConfig::default()), 0);
        done(&mut disk, &mut now, write("a", 0, b"1"));
        done(&mut disk, &mut now, sync("a"));
        done(&mut disk, &mut now, Op::SyncNames);
        done(&mut disk, &mut now, write("a", 0, b"2"));
        disk.set_faults(Faults { sync_error: 1, ..Faults::default() });
        assert_eq!(done(&mut disk, &mut now, sync("a")), Answer::Failed);
        disk.set_faults(Faults::default());
        assert_eq!(done(&mut disk, &mut now, sync("a")), Answer::Done);
        assert_eq!(done(&mut disk, &mut now, read("a", 0, 1)), Answer::Bytes(b"2".to_vec()), "from the cache");
        disk.crash();
        let after = done(&mut disk, &mut now, read("a", 0, 1));
        kept[usize::from(after == Answer::Bytes(b"2".to_vec()))] += 1;
        // What is written again is there.
        done(&mut disk, &mut now, write("a", 0, b"3"));
        done(&mut disk, &mut now, sync("a"));
        disk.crash();
        assert_eq!(done(&mut disk, &mut now, read("a", 0, 1)), Answer::Bytes(b"3".to_vec()));
    }
    assert!(kept[0] > 0 && kept[1] > 0, "{kept:?}");
}

#[test]
fn faults_come_as_announced() {
    let (mut disk, mut now) = (Disk::new(3, DiskConfig { capacity: 8 * SECTOR as u64, ..DiskConfig::default() }), 0);

    done(&mut disk, &mut now, write("a", 0, &[1; 6 * SECTOR]));
    done(&mut disk, &mut now, sync("a"));
    done(&mut disk, &mut now, Op::SyncNames);
    assert_eq!(done(&mut disk, &mut now, write("b", 0, &[1; 3 * SECTOR])), Answer::Full);
    assert_eq!(done(&mut disk, &mut now, read("b", 0, 1)), Answer::NotFound);
    assert_eq!(done(&mut disk, &mut now, write("a", u64::MAX, b"x")), Answer::Full);

    disk.set_faults(Faults { read_error: 1, write_error: 1, sync_error: 1, ..Faults::default() });
    assert_eq!(done(&mut disk, &mut now, read("a", 0, 1)), Answer::Failed);
    assert_eq!(done(&mut disk, &mut now, write("a", 0, b"x")), Answer::Failed);
    assert_eq!(done(&mut disk, &mut now, sync("a")), Answer::Failed);
    assert_eq!(done(&mut disk, &mut now, Op::SyncNames), Answer::Failed);

    disk.set_faults(Faults { misdirected: 1, ..Faults::default() });
    assert_eq!(done(&mut disk, &mut now, write("a", 0, &[9; SECTOR])), Answer::Done);
    disk.set_faults(Faults::default());
    assert_eq!(done(&mut disk, &mut now, read("a", 0, SECTOR)), Answer::Bytes(vec![1; SECTOR]));
    assert_eq!(done(&mut disk, &mut now, read("a", SECTOR as u64, SECTOR)), Answer::Bytes(vec![9; SECTOR]));
    done(&mut disk, &mut now, sync("a"));

    disk.set_faults(Faults { bit_rot: 1, ..Faults::default() });
    let Answer::Bytes(rotten) = done(&mut disk, &mut now, read("a", 0, SECTOR)) else { panic!("no error is shown") };
    let wrong: u32 = rotten.iter().map(|b| (b ^ 1).count_ones()).sum();
    assert_eq!(wrong, 1, "one bit");
    disk.set_faults(Faults::default());
    assert_eq!(done(&mut disk, &mut now, read("a", 0, SECTOR)), Answer::Bytes(rotten), "for good");
}
