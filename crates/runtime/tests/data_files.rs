//! Data files of a node with real threads: a block writes, syncs, reads and removes, its buffers come back, and the next process finds the rest.

use std::{
    fs,
    path::PathBuf,
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use apus_auth::{Keys, Secret};
use apus_kernel::{Block, Context, DataFile, DiskOp, WorkerConfig};
use apus_runtime::{Bound, DataDir, DataNodeConfig, Node};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    file::{DiskConf, DiskRef},
};
use apus_types::NodeId;

const PATIENCE: Duration = Duration::from_secs(20);
const PIECE: usize = 8192;
const PIECES: u64 = 300;
const READ: u64 = 1 << 40;
const REMOVED: u64 = 1 << 41;

/// Reads its file, writes [`PIECES`] behind what it found, removes another one, and tells how long the file was, or what went wrong.
struct Logger {
    me: BlockRef,
    tell: Sender<Result<usize, String>>,
    has_asked: bool,
    found: usize,
    written: u64,
    buffers: usize,
}

impl Logger {
    fn file(&self) -> DataFile {
        DataFile::redo(self.me.instance, 1)
    }
    fn write_more(&mut self, ctx: &mut Context<'_>) {
        while self.written < PIECES && ctx.disk_under_way().0 < 8 {
            let mut bytes = ctx.disk_buffer();
            self.buffers += usize::from(bytes.capacity() == 0);
            bytes.resize(PIECE, self.written as u8);
            let at = self.found as u64 + self.written * PIECE as u64;
            ctx.disk(self.file(), DiskOp::Write { at, bytes }, self.written);
            self.written += 1;
        }
        if self.written == PIECES {
            self.written += 1;
            ctx.disk(DataFile::redo(self.me.instance, 2), DiskOp::Remove, 0);
            ctx.disk(self.file(), DiskOp::Sync, REMOVED);
        }
    }
}

impl Block for Logger {
    fn block_ref(&self) -> BlockRef {
        self.me
    }
    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        if envelope.kind == Kind::DiskRef {
            let _ = self.tell.send(Err(DiskRef::decode(body)?.reason));
            return Ok(());
        }
        let DiskConf { token, bytes } = DiskConf::decode(body)?;
        match token {
            READ if bytes.is_empty() => self.write_more(ctx),
            READ => {
                self.found += bytes.len();
                ctx.disk(self.file(), DiskOp::Read { at: self.found as u64, count: 1 << 20 }, READ);
            }
            REMOVED => {
                assert!(self.buffers <= 8, "{} buffers for eight writes at a time", self.buffers);
                let _ = self.tell.send(Ok(self.found));
            }
            _ => self.write_more(ctx),
        }
        Ok(())
    }
    fn tick(&mut self, ctx: &mut Context<'_>) {
        if !self.has_asked && self.me.instance != BlockRef::CONTROL {
            self.has_asked = true;
            assert_eq!(ctx.disk_under_way(), (0, 0));
            ctx.disk(self.file(), DiskOp::Read { at: 0, count: 1 << 20 }, READ);
        }
    }
    fn dump(&self, _out: &mut String) {}
}

fn start(dir: Option<&PathBuf>) -> (Node, Receiver<Result<usize, String>>) {
    let bound = Bound::new(DataNodeConfig {
        node: NodeId(1),
        listen: "127.0.0.1:0".into(),
        mgmt: Vec::new(),
        workers: 2,
        dir: std::env::temp_dir(),
        build: "test".into(),
        keys: Keys { node: Secret::from_bytes([1; 32]), client: Secret::from_bytes([2; 32]) },
    })
    .expect("a free port");
    let bound = match dir {
        Some(dir) => bound.with_files(DataDir::open(dir, apus_redo::Vault::default()).expect("nobody else has it").0),
        None => bound,
    };
    let (tell, told) = channel();
    let build = move |who: &WorkerConfig| -> Vec<Box<dyn Block>> {
        let me = BlockRef::new(who.node, BlockId::Qmgr, who.instance());
        let tell = tell.clone();
        vec![Box::new(Logger { me, tell, has_asked: false, found: 0, written: 0, buffers: 0 })]
    };
    (bound.start(build).expect("threads"), told)
}

#[test]
fn a_block_writes_and_the_next_process_reads() {
    let dir = std::env::temp_dir().join(format!("apus-data-files-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).expect("there is room");
    for life in 0..2 {
        fs::write(dir.join("redo-1-2.log"), b"of long ago").expect("there is room");
        let (node, told) = start(Some(&dir));
        for _ in 0..2 {
            let found = told.recv_timeout(PATIENCE).expect("it is done in time");
            assert_eq!(found, Ok(life * PIECE * PIECES as usize));
        }
        node.stop();
        node.wait();
        assert!(!dir.join("redo-1-2.log").exists());
    }
    for instance in 0..2 {
        let bytes = fs::read(dir.join(format!("redo-{instance}-1.log"))).expect("it was written");
        let each = bytes.chunks(PIECE).map(|piece| (piece.len(), piece[0], piece[PIECE - 1]));
        let meant = (0..PIECES).chain(0..PIECES).map(|n| (PIECE, n as u8, n as u8));
        assert!(each.eq(meant), "instance {instance}");
    }
    fs::remove_dir_all(&dir).expect("it is ours");
}

#[test]
fn without_a_directory_there_are_no_data_files() {
    let (node, told) = start(None);
    let failure = told.recv_timeout(PATIENCE).expect("it is answered").expect_err("there is no directory");
    assert!(failure.contains("no data directory"), "{failure}");
    node.stop();
    node.wait();
}
