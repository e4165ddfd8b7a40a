//! `apus check-history` as a user runs it: what holds, what does not, what is no history.

use std::{
    path::PathBuf,
    process::{Command, Output},
};

fn judge(name: &str, history: &str, level: &str) -> Output {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.edn"));
    std::fs::write(&file, history).expect("a scratch file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
    command.arg("check-history").arg(&file).args(["--level", level]).output().expect("the binary")
}

/// Two transactions that read what the other wrote too late, and a read of both.
const WRITE_SKEW: &str = "\
{:index 0, :type :invoke, :process 0, :time 1, :f :txn, :value [[:r 1 nil] [:append 2 1]]}
{:index 1, :type :invoke, :process 1, :time 2, :f :txn, :value [[:r 2 nil] [:append 1 1]]}
{:index 2, :type :ok, :process 0, :time 3, :f :txn, :value [[:r 1 []] [:append 2 1]]}
{:index 3, :type :ok, :process 1, :time 4, :f :txn, :value [[:r 2 []] [:append 1 1]]}
{:index 4, :type :invoke, :process 0, :time 5, :f :txn, :value [[:r 1 nil] [:r 2 nil]]}
{:index 5, :type :ok, :process 0, :time 6, :f :txn, :value [[:r 1 [1]] [:r 2 [1]]]}
";

#[test]
fn write_skew_breaks_serializable_only() {
    let output = judge("skew-si", WRITE_SKEW, "snapshot");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("3 transactions (3 acknowledged, 0 failed, 0 unknown)"), "{text}");
    let output = judge("skew", WRITE_SKEW, "strict-serializable");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("G2-item: a cycle of 2 transactions") && text.contains("DOES NOT HOLD"), "{text}");
}

#[test]
fn what_is_no_history_is_refused() {
    let output = judge("torn", &WRITE_SKEW[..WRITE_SKEW.len() - 9], "serializable");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 6, column "), "{output:?}");
    let output = judge("level", WRITE_SKEW, "perfect");
    assert!(!output.status.success());
}
