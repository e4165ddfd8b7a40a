//! The control socket of `apus dev`: one line per request, see [`crate::discover::CONTROL_SOCKET`].

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use super::{Nodes, lock};
use crate::discover;

/// Longest request in bytes.
const REQUEST_BYTES_MAX: u64 = 256;

pub fn listen(dir: &Path, nodes: Arc<Mutex<Nodes>>, ready_file: Option<PathBuf>) -> Result<(), String> {
    let path = dir.join(discover::CONTROL_SOCKET);
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).map_err(|e| format!("cannot listen on {}: {e}", path.display()))?;
    let serve = move || {
        for stream in listener.incoming().flatten() {
            let _ = answer(stream, &nodes, ready_file.as_deref());
        }
    };
    std::thread::Builder::new().name("control".to_owned()).spawn(serve).map_err(|e| e.to_string())?;
    Ok(())
}

fn answer(mut stream: UnixStream, nodes: &Mutex<Nodes>, ready_file: Option<&Path>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    let mut line = String::new();
    BufReader::new(stream.try_clone()?.take(REQUEST_BYTES_MAX)).read_line(&mut line)?;
    let result = match line.trim_end().split_once(' ') {
        Some(("restart", name)) => restart(nodes, name, ready_file),
        _ => Err("the only request is: restart ID, restart mgmt-ID or restart sql-ID".to_owned()),
    };
    match result {
        Ok(pid) => writeln!(stream, "ok {pid}"),
        Err(reason) => writeln!(stream, "error {reason}"),
    }
}

fn restart(nodes: &Mutex<Nodes>, name: &str, ready_file: Option<&Path>) -> Result<u32, String> {
    end_data_node(nodes, name)?;
    let mut nodes = lock(nodes);
    let pid = nodes.restart(name)?;
    nodes.write_state(ready_file)?;
    println!("node {name} started again, process {pid}");
    Ok(pid)
}

/// A data node that runs is told to leave. The lock is free while it does: others are watched meanwhile.
fn end_data_node(nodes: &Mutex<Nodes>, name: &str) -> Result<(), String> {
    let Ok(id) = name.parse() else { return Ok(()) };
    let deadline = Instant::now() + discover::LEAVE_TIMEOUT;
    if !lock(nodes).ask_to_end(id) {
        return Ok(());
    }
    while let Some(log) = lock(nodes).log_if_running(id) {
        if Instant::now() > deadline {
            let why = "it may hold the last full copy of its node group";
            return Err(format!(
                "data node {id} was told to end and did not: {why}; its log, {}, says more",
                log.display()
            ));
        }
        std::thread::sleep(Duration::from_millis(5)); // polls a child
    }
    Ok(())
}
