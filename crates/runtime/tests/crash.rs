//! A failed invariant ends the process at once, with a crash report that names it. The node runs in a child process: this test
//! program itself, started again with an environment variable.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use apus_kernel::{Block, Context, ensure, jam};
use apus_runtime::{Bound, DataNodeConfig};
use apus_signal::{BlockId, BlockRef, DecodeError, Envelope};
use apus_types::NodeId;

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

fn run_child(dir: &Path) {
    let config = DataNodeConfig {
        node: NodeId(7),
        listen: "127.0.0.1:0".to_owned(),
        mgmt: Vec::new(),
        workers: 1,
        dir: dir.to_owned(),
        build: "crash-test build".to_owned(),
    };
    let node = Bound::new(config)
        .and_then(|b| b.start(|who| vec![Box::new(Broken(BlockRef::new(who.node, BlockId::Qmgr, who.instance())))]));
    node.expect("the node starts").wait();
}

#[test]
fn a_failed_invariant_leaves_a_report_and_ends_the_process() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return run_child(Path::new(&dir));
    }
    let dir = std::env::temp_dir().join(format!("apus-crash-test-{}", std::process::id()));
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .env(CHILD, &dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the child starts");
    let deadline = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            break status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            panic!("the node lives on with a broken invariant");
        }
        std::thread::sleep(Duration::from_millis(5)); // polls, until the deadline above
    };
    assert!(!status.success(), "the process ended as if nothing had happened");
    let reports: Vec<_> = std::fs::read_dir(&dir).expect("a directory of reports").flatten().collect();
    assert_eq!(reports.len(), 1, "one crash, one report");
    let text = std::fs::read_to_string(reports[0].path()).expect("the report");
    for part in ["two swallows make a summer, here is 1", "crash-test build", "crash.rs", "the block's own words"] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
    std::fs::remove_dir_all(&dir).expect("the directory goes");
}
