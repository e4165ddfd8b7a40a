//! Data files of simulated nodes: what was answered is there after the end of a process, what was synced after that of a machine.

use std::{cell::RefCell, rc::Rc};

use apus_kernel::{Block, Context, DataFile, DiskOp, WorkerConfig};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    file::{DiskConf, DiskRef},
};
use apus_sim::{
    Cluster, SimConfig,
    disk::{DiskConfig, Faults},
};
use apus_types::NodeId;

const NODE: NodeId = NodeId(1);
/// A record is its number, again and again; no multiple of a sector.
const RECORD: usize = 720;
const UNDER_WAY: usize = 12;
const SYNC_EVERY: u64 = 5;
/// Token of a sync: this and the records before it.
const SYNC: u64 = 1 << 32;
const READ: u64 = u64::MAX;

/// Records asked to be written, answered, and synced, by number; what the last process found.
#[derive(Default, Debug)]
struct Truth {
    asked: u64,
    answered: u64,
    synced: u64,
    refused: u64,
    found: Option<u64>,
    file: u32,
}

struct Recorder {
    me: BlockRef,
    truth: Rc<RefCell<Truth>>,
    has_asked: bool,
}

fn record(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(RECORD / 8)
}

impl Recorder {
    fn write_more(&self, ctx: &mut Context<'_>) {
        let mut truth = self.truth.borrow_mut();
        while ctx.disk_under_way().0 < UNDER_WAY {
            let (number, file) = (truth.asked + 1, DataFile::redo(0, truth.file));
            let mut bytes = ctx.disk_buffer();
            assert!(bytes.is_empty());
            bytes.extend_from_slice(&record(number));
            ctx.disk(file, DiskOp::Write { at: truth.asked * RECORD as u64, bytes }, number);
            if number.is_multiple_of(SYNC_EVERY) {
                ctx.disk(file, DiskOp::Sync, SYNC + number);
            }
            truth.asked = number;
        }
    }
    fn found(&self, bytes: &[u8]) {
        let numbers = (1..).zip(bytes.chunks(RECORD));
        let found = numbers.take_while(|(number, bytes)| *bytes == record(*number)).count() as u64;
        self.truth.borrow_mut().found = Some(found);
    }
}

impl Block for Recorder {
    fn block_ref(&self) -> BlockRef {
        self.me
    }
    fn receive(&mut self, envelope: &Envelope, body: &[u8], _: &mut Context<'_>) -> Result<(), DecodeError> {
        if envelope.kind == Kind::DiskRef {
            assert!(!DiskRef::decode(body)?.reason.is_empty());
            self.truth.borrow_mut().refused += 1;
            return Ok(());
        }
        let done = DiskConf::decode(body)?;
        match done.token {
            READ => self.found(done.bytes),
            token => {
                let mut truth = self.truth.borrow_mut();
                let last = if token > SYNC { &mut truth.synced } else { &mut truth.answered };
                assert!(*last < token % SYNC, "in the order of asking");
                *last = token % SYNC;
            }
        }
        Ok(())
    }
    fn tick(&mut self, ctx: &mut Context<'_>) {
        assert!(ctx.has_disk());
        let file = DataFile::redo(0, self.truth.borrow().file);
        if !self.has_asked {
            self.has_asked = true;
            ctx.disk(file, DiskOp::Read { at: 0, count: 1 << 20 }, READ);
        } else if self.truth.borrow().found.is_some() {
            self.write_more(ctx);
        }
    }
    fn dump(&self, _: &mut String) {}
}

fn cluster(seed: u64, faults: Faults, truth: &Rc<RefCell<Truth>>) -> Cluster {
    let disk = DiskConfig { faults, ..DiskConfig::default() };
    let config = SimConfig { disk, ..SimConfig::new(&[(NODE, 1)]) };
    let truth = Rc::clone(truth);
    Cluster::new(seed, config, move |who: &WorkerConfig| {
        let me = BlockRef::new(who.node, BlockId::Ldm, 0);
        let is_here = who.instance() == 0;
        let block = Recorder { me, truth: Rc::clone(&truth), has_asked: false };
        is_here.then(|| Box::new(block) as Box<dyn Block>).into_iter().collect()
    })
}

#[test]
fn what_was_answered_outlives_the_process_and_what_was_synced_the_machine() {
    let (mut lost, mut done_unanswered, mut not_done) = (0, 0, 0);
    for seed in 830_000_000..830_000_150 {
        let truth = Rc::<RefCell<Truth>>::default();
        let mut c = cluster(seed, Faults::default(), &truth);
        for life in 0..6 {
            let until = c.now() + 20_000_000 + (seed ^ life) % 7 * 13_000_000;
            c.run_until(|_| false, until);
            let with_machine = (seed + life) % 3 == 0;
            if with_machine {
                c.crash_machine(NODE)
            } else {
                c.crash(NODE)
            }
            let before = truth.take();
            truth.borrow_mut().file = before.file;
            c.start(NODE);
            assert!(c.run_until(|_| truth.borrow().found.is_some(), c.now() + 1_000_000_000));
            let found = truth.borrow().found.expect("as waited for");
            let least = if with_machine { before.synced } else { before.answered };
            assert!((least..=before.asked).contains(&found), "seed {seed}: found {found} of {before:?}");
            lost += u64::from(found < before.answered);
            done_unanswered += u64::from(!with_machine && found > before.answered);
            not_done += u64::from(!with_machine && found < before.asked);
            *truth.borrow_mut() = Truth {
                asked: found,
                answered: found,
                synced: if with_machine { found } else { before.synced },
                file: before.file,
                found: Some(found),
                ..Truth::default()
            };
        }
    }
    assert!(lost > 20 && done_unanswered > 20 && not_done > 20, "{lost} {done_unanswered} {not_done}");
}

#[test]
fn a_disk_that_fails_says_so() {
    let truth = Rc::<RefCell<Truth>>::default();
    let mut c = cluster(830_001_000, Faults { write_error: 4, sync_error: 4, ..Faults::default() }, &truth);
    c.run_until(|_| false, 500_000_000);
    let truth = truth.borrow();
    assert!(truth.refused > 20 && truth.answered > 20 && truth.synced > 20, "{truth:?}");
}
