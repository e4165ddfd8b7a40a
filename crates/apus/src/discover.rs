//! Finding a running `apus dev`, and asking it to restart a node.
//!
//! `apus dev` keeps `cluster.json` (see [`DevCluster`]) and a control socket in its directory, and a link to that directory in
//! [`registry`]. A link whose process is gone is ignored. Where several run, the environment variable APUS_DEV_DIR says which is meant.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use apus_auth::{Secret, SecretKind};
use apus_signal::hello::Role;
use serde_json::Value;

/// Where running `apus dev` processes register: one file per process id that holds the path of its directory.
pub fn registry() -> PathBuf {
    let user = rustix::process::getuid().as_raw();
    std::env::temp_dir().join(format!("apus-dev-{user}"))
}

/// Name of the state file in the directory of an `apus dev`.
pub const STATE_FILE: &str = "cluster.json";
/// Name of the control socket there. Requests and answers are lines: `restart 2` -> `ok 12345` or `error ...`.
pub const CONTROL_SOCKET: &str = "control.sock";

/// Names of the secrets' files there.
pub const NODE_SECRET_FILE: &str = "node.secret";
pub const CLIENT_SECRET_FILE: &str = "client.secret";

/// A running `apus dev` as its state file tells.
pub struct DevCluster {
    pub dir: PathBuf,
    pub state: Value,
}

impl DevCluster {
    /// `host:port` of each management node, with commas between them.
    pub fn mgmt(&self) -> Option<String> {
        let address = |m: &Value| Some(format!("{}:{}", m["host"].as_str()?, m["port"].as_u64()?));
        let all: Option<Vec<String>> = self.state["mgmts"].as_array()?.iter().map(address).collect();
        all.filter(|all| !all.is_empty()).map(|all| all.join(","))
    }
    /// (id, pid) of the data nodes as started last.
    pub fn data_nodes(&self) -> Vec<(u16, i32)> {
        let list = self.state["data"].as_array().map_or(&[][..], Vec::as_slice);
        let pair = |n: &Value| Some((u16::try_from(n["id"].as_u64()?).ok()?, i32::try_from(n["pid"].as_u64()?).ok()?));
        list.iter().filter_map(pair).collect()
    }
}

pub fn is_alive(pid: i32) -> bool {
    rustix::process::Pid::from_raw(pid).is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

fn load(dir: &Path) -> Option<DevCluster> {
    let text = std::fs::read_to_string(dir.join(STATE_FILE)).ok()?;
    Some(DevCluster { dir: dir.to_owned(), state: serde_json::from_str(&text).ok()? })
}

/// Names the directory of the `apus dev` that is meant, where several run.
pub const DIR_VARIABLE: &str = "APUS_DEV_DIR";

/// The running `apus dev` that [`DIR_VARIABLE`] names, or else the one that started last.
///
/// # Errors
/// There is none; the text says what to do.
pub fn find_dev() -> Result<DevCluster, String> {
    if let Some(dir) = std::env::var_os(DIR_VARIABLE) {
        let dir = PathBuf::from(dir);
        return load(&dir).ok_or_else(|| format!("no `apus dev` runs in {} ({DIR_VARIABLE})", dir.display()));
    }
    let mut found: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(registry()).into_iter().flatten().flatten() {
        let alive = entry.file_name().to_str().and_then(|n| n.parse().ok()).is_some_and(is_alive);
        if let (true, Ok(dir), Ok(meta)) = (alive, std::fs::read_to_string(entry.path()), entry.metadata()) {
            found.push((meta.modified().unwrap_or(std::time::UNIX_EPOCH), PathBuf::from(dir)));
        }
    }
    found.sort();
    found
        .iter()
        .rev()
        .find_map(|(_, dir)| load(dir))
        .ok_or_else(|| "no running `apus dev` found; start one, or name the cluster with --mgmt HOST:PORT".to_owned())
}

/// The addresses of a list with commas.
pub fn each(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|a| !a.is_empty()).map(str::to_owned).collect()
}

/// Which cluster a tool talks to, and how it proves to be a client.
#[derive(clap::Args, Clone, Default, Debug)]
pub struct ClusterArgs {
    /// Management nodes, with commas between them; default: those of the running `apus dev`
    #[arg(long, value_name = "HOST:PORT")]
    mgmt: Option<String>,
    /// File with the cluster's client secret; default: that of the running `apus dev` if these are its management nodes
    #[arg(long, value_name = "FILE")]
    client_secret: Option<PathBuf>,
}

/// Which cluster an operator's tool talks to, and how it proves to be one.
#[derive(clap::Args, Clone, Default, Debug)]
pub struct OperatorArgs {
    /// Management nodes, with commas between them; default: those of the running `apus dev`
    #[arg(long, value_name = "HOST:PORT", global = true)]
    mgmt: Option<String>,
    /// File with the cluster's node secret; default: that of the running `apus dev` if these are its management nodes
    #[arg(long, value_name = "FILE", global = true)]
    node_secret: Option<PathBuf>,
}

/// A way into a cluster.
#[derive(Clone)]
pub struct Access {
    /// Addresses of the management nodes, with commas between them.
    pub mgmt: String,
    pub role: Role,
    pub secret: Secret,
}

impl Default for Access {
    fn default() -> Access {
        Access { mgmt: String::new(), role: Role::Client, secret: Secret::NONE }
    }
}

impl ClusterArgs {
    /// # Errors
    /// No cluster is named and none runs, or the secret's file is not as it must be.
    pub fn find(&self) -> Result<Access, String> {
        find(self.mgmt.as_ref(), self.client_secret.as_ref(), Role::Client)
    }
}

impl OperatorArgs {
    /// # Errors
    /// As [`ClusterArgs::find`].
    pub fn find(&self) -> Result<Access, String> {
        find(self.mgmt.as_ref(), self.node_secret.as_ref(), Role::Operator)
    }
}

fn find(mgmt: Option<&String>, secret: Option<&PathBuf>, role: Role) -> Result<Access, String> {
    let dev = if mgmt.is_some() { find_dev().ok() } else { Some(find_dev()?) };
    let of_dev = dev.as_ref().and_then(DevCluster::mgmt);
    let mgmt = mgmt.cloned().or_else(|| of_dev.clone());
    let mgmt = mgmt.ok_or_else(|| "the state file of `apus dev` names no management node".to_owned())?;
    let known = each(&of_dev.unwrap_or_default());
    let (kind, name) = match role {
        Role::Client => (SecretKind::Client, CLIENT_SECRET_FILE),
        _ => (SecretKind::Node, NODE_SECRET_FILE),
    };
    let file = match (secret, &dev) {
        (Some(file), _) => Some(file.clone()),
        (None, Some(dev)) if each(&mgmt).iter().all(|a| known.contains(a)) => Some(dev.dir.join(name)),
        (None, _) => None,
    };
    let secret = file.map_or(Ok(Secret::NONE), |file| crate::secret::load(kind, &file))?;
    Ok(Access { mgmt, role, secret })
}

/// A data node that runs leaves the cluster first, within this.
pub const LEAVE_TIMEOUT: Duration = Duration::from_secs(15);

/// Asks the running `apus dev` to restart a node (`ID`, `mgmt-ID` or `sql-ID`); the new process id.
///
/// # Errors
/// The node does not exist or does not end, or `apus dev` does not answer.
pub fn restart_node(id: &str) -> Result<i32, String> {
    let dev = find_dev()?;
    let path = dev.dir.join(CONTROL_SOCKET);
    let failed = |e: std::io::Error| format!("`apus dev` does not answer on {}: {e}", path.display());
    let mut socket = UnixStream::connect(&path).map_err(failed)?;
    socket.set_read_timeout(Some(LEAVE_TIMEOUT + Duration::from_secs(5))).map_err(failed)?;
    writeln!(socket, "restart {id}").map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(socket).read_line(&mut answer).map_err(failed)?;
    match answer.trim_end().split_once(' ') {
        Some(("ok", pid)) => pid.parse().map_err(|_| format!("`apus dev` answered {answer:?}")),
        Some(("error", reason)) => Err(reason.to_owned()),
        _ => Err(format!("`apus dev` answered {answer:?}")),
    }
}
