//! A failed invariant ends the process at once, with a crash report that names it. The node runs in a child process: this test
//! program itself, started again with an environment variable.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use apus_auth::{Connector, Progress, Secret};
use apus_kernel::{Block, Context, WorkerConfig, ensure, jam};
use apus_runtime::{Bound, DataNodeConfig};
use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    envelope::{decode_frame, frame_length},
    hello::{Hello, Role},
    tc::LastWords,
};
use apus_types::{Epoch, NodeId};

const CHILD: &str = "APUS_CRASH_TEST_DIR";

struct Broken(BlockRef);

impl Block for Broken {
    fn block_ref(&self) -> BlockRef {
        self.0
    }
    fn receive(&mut self, _: &Envelope, _: &[u8], _: &mut Context<'_>) -> Result<(), DecodeError> {
        Ok(())
    }
    fn tick(&mut self, ctx: &mut Context<'_>) {
        jam!(ctx);
        let swallows = std::hint::black_box(1);
        ensure!(ctx, swallows == 2, "two swallows make a summer, here is {swallows}");
    }
    fn dump(&self, out: &mut String) {
        out.push_str("the block's own words\n");
    }
}

/// Stays in one turn for ever.
struct Spinning(BlockRef);

impl Block for Spinning {
    fn block_ref(&self) -> BlockRef {
        self.0
    }
    fn receive(&mut self, _: &Envelope, _: &[u8], _: &mut Context<'_>) -> Result<(), DecodeError> {
        Ok(())
    }
    fn tick(&mut self, ctx: &mut Context<'_>) {
        jam!(ctx);
        while std::hint::black_box(true) {
            std::hint::spin_loop();
        }
    }
    fn dump(&self, _: &mut String) {}
}

/// Stands in for QMGR: ends the node at the first word of the watchdog.
struct Watching(BlockRef);

impl Block for Watching {
    fn block_ref(&self) -> BlockRef {
        self.0
    }
    fn receive(&mut self, envelope: &Envelope, body: &[u8], ctx: &mut Context<'_>) -> Result<(), DecodeError> {
        assert_eq!(envelope.kind, Kind::WorkerStuckRep);
        ctx.stop_for_stuck(body[0], "a worker does not turn");
        Ok(())
    }
    fn tick(&mut self, _: &mut Context<'_>) {}
    fn dump(&self, _: &mut String) {}
}

fn run_child(dir: &Path, build: impl Fn(&WorkerConfig) -> Box<dyn Block> + Send + 'static) {
    let config = DataNodeConfig {
        node: NodeId(7),
        listen: "127.0.0.1:0".to_owned(),
        mgmt: Vec::new(),
        workers: 1,
        dir: dir.to_owned(),
        build: "crash-test build".to_owned(),
        keys: Default::default(),
    };
    let node = Bound::new(config).and_then(|b| b.start(move |who| vec![build(who)]));
    node.expect("the node starts").wait();
}

/// Runs `test` of this program in a child process, with a stderr that nobody reads, and returns its only crash report.
fn report_of_child(test: &str) -> String {
    let dir = std::env::temp_dir().join(format!("apus-{test}-{}", std::process::id()));
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test])
        .env(CHILD, &dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("the node lives on");
        }
        std::thread::sleep(Duration::from_millis(5)); // polls, until the deadline above
    };
    assert!(!status.success(), "the process ended as if nothing had happened");
    let reports: Vec<_> = std::fs::read_dir(&dir).expect("a directory of reports").flatten().collect();
    assert_eq!(reports.len(), 1, "one crash, one report");
    let text = std::fs::read_to_string(reports[0].path()).expect("the report");
    std::fs::remove_dir_all(&dir).expect("the directory goes");
    text
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

#[test]
fn a_failed_invariant_leaves_a_report_and_ends_the_process() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return run_child(Path::new(&dir), |who| {
            let me = BlockRef::new(who.node, BlockId::Qmgr, who.instance());
            if who.is_control() { Box::new(Broken(me)) } else { Box::new(Watching(me)) }
        });
    }
    let text = report_of_child("a_failed_invariant_leaves_a_report_and_ends_the_process");
    assert_has(
        &text,
        &["two swallows make a summer, here is 1", "crash-test build", "crash.rs", "the block's own words"],
    );
}

#[test]
fn a_stuck_worker_ends_the_process_with_its_own_trail() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return run_child(Path::new(&dir), |who| {
            let me = |block| BlockRef::new(who.node, block, who.instance());
            if who.is_control() { Box::new(Watching(me(BlockId::Qmgr))) } else { Box::new(Spinning(me(BlockId::Ldm))) }
        });
    }
    let text = report_of_child("a_stuck_worker_ends_the_process_with_its_own_trail");
    assert_has(&text, &["reason: a worker does not turn", "== worker 0, which is stuck"]);
    let (_, trail) = text.split_once("== worker 0, which is stuck").expect("its trail");
    assert_has(trail, &["backtrace:", "== jams, oldest first", "crash.rs: "]);
}

/// Panics with the first read.
struct Poisoned(BlockRef);

impl Block for Poisoned {
    fn block_ref(&self) -> BlockRef {
        self.0
    }
    fn receive(&mut self, envelope: &Envelope, _: &[u8], _: &mut Context<'_>) -> Result<(), DecodeError> {
        assert!(envelope.kind != Kind::ReadReq, "a row that nobody can read");
        Ok(())
    }
    fn tick(&mut self, _: &mut Context<'_>) {}
    fn dump(&self, _: &mut String) {}
}

fn run_poisoned(dir: &Path) {
    let config = DataNodeConfig {
        node: NodeId(7),
        listen: "127.0.0.1:0".to_owned(),
        mgmt: Vec::new(),
        workers: 1,
        dir: dir.join("reports"),
        build: "crash-test build".to_owned(),
        keys: Default::default(),
    };
    let bound = Bound::new(config).expect("a free port");
    let address = bound.address().expect("bound").to_string();
    let build = |who: &WorkerConfig| -> Vec<Box<dyn Block>> {
        let me = |block| BlockRef::new(who.node, block, who.instance());
        if who.is_control() {
            vec![Box::new(Watching(me(BlockId::Qmgr)))]
        } else {
            vec![Box::new(Poisoned(me(BlockId::Ldm)))]
        }
    };
    let node = bound.start(build).expect("the node starts");
    std::fs::create_dir_all(dir).expect("a directory");
    // Whole at once: the other side reads what it finds.
    std::fs::write(dir.join("new"), address).expect("a file");
    std::fs::rename(dir.join("new"), dir.join("address")).expect("a name");
    node.wait();
}

/// One frame of a stream that has proven nothing, as none was asked for.
fn next_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    stream.read_exact(&mut bytes).expect("a length");
    let length = frame_length(&bytes).expect("sane").expect("whole");
    bytes.resize(length, 0);
    stream.read_exact(&mut bytes[4..]).expect("a frame");
    bytes
}

#[test]
fn a_client_hears_that_the_node_panics_of_its_read() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return run_poisoned(Path::new(&dir));
    }
    let dir = std::env::temp_dir().join(format!("apus-poisoned-{}", std::process::id()));
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "a_client_hears_that_the_node_panics_of_its_read"])
        .env(CHILD, &dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the child starts");
    let deadline = Instant::now() + Duration::from_secs(60);
    let address = loop {
        if let Ok(address) = std::fs::read_to_string(dir.join("address")) {
            break address;
        }
        assert!(Instant::now() < deadline, "the node does not start");
        std::thread::sleep(Duration::from_millis(5)); // polls, until the deadline above
    };
    let hello = Hello { role: Role::Client as i32, incarnation: 99, ..Hello::default() };
    let (mut connector, out) = Connector::new(hello, &Secret::NONE, [7; 32]);
    let mut stream = TcpStream::connect(address).expect("listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    stream.write_all(&out).expect("takes bytes");
    loop {
        let mut buffer = vec![0; connector.missing()];
        stream.read_exact(&mut buffer).expect("an answer");
        match connector.take(&buffer).expect("let in") {
            Progress::More => {}
            Progress::Send(out) => stream.write_all(&out).expect("takes bytes"),
            Progress::Done(_) => break,
        }
    }
    let (to, from) = (BlockRef::new(NodeId(7), BlockId::Ldm, 0), BlockRef::new(NodeId(9), BlockId::Client, 0));
    let mut out = Vec::new();
    Envelope { kind: Kind::ReadReq, to, from, epoch: Epoch(0), trace: 0, generation: 0 }
        .encode(&mut out, |b| b.extend_from_slice(&123_u64.to_le_bytes()));
    stream.write_all(&out).expect("takes bytes");
    let frame = next_frame(&mut stream);
    let (envelope, body) = decode_frame(&frame).expect("decodes");
    assert_eq!(envelope.kind, Kind::LastWordsRep);
    assert_eq!(LastWords::decode(body).map(|words| words.request), Ok(123));
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty(), "nothing comes after the last words");
    assert!(!child.wait().expect("the child ends").success());
    std::fs::remove_dir_all(&dir).expect("the directory goes");
}
