//! Killing data nodes and starting them again.

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use apus_signal::{mgmt::StatusConf, view::NodeState};

use crate::{
    discover::{self, Access},
    status,
};

const POLL: Duration = Duration::from_millis(20);

/// Who kills and restarts.
pub enum Executioner {
    /// By process id, and through the control socket, of the running `apus dev`.
    Dev,
    /// By shell commands in which `{node}` stands for the node's id.
    Commands { kill: String, restart: String },
}

impl Executioner {
    /// # Errors
    /// Only one of the commands is given, or none and the cluster is not that of the running `apus dev`.
    pub fn new(kill: Option<String>, restart: Option<String>, mgmt: &Access) -> Result<Executioner, String> {
        match (kill, restart) {
            (Some(kill), Some(restart)) => Ok(Executioner::Commands { kill, restart }),
            (None, None) if discover::find_dev()?.mgmt().as_deref() == Some(mgmt.mgmt.as_str()) => Ok(Executioner::Dev),
            (None, None) => Err(format!(
                "{} is not the running `apus dev`: say how to kill with --kill-command and --restart-command",
                mgmt.mgmt
            )),
            _ => Err("--kill-command and --restart-command belong together".to_owned()),
        }
    }

    /// Kills without warning (SIGKILL).
    ///
    /// # Errors
    /// There is no such process, or the command fails.
    pub fn kill(&self, node: u16) -> Result<(), String> {
        let command = match self {
            Executioner::Commands { kill, .. } => return shell(kill, node),
            Executioner::Dev => discover::find_dev()?,
        };
        let pid = command.data_nodes().into_iter().find(|&(id, _)| id == node).map(|(_, pid)| pid);
        let pid = pid.and_then(rustix::process::Pid::from_raw).ok_or_else(|| format!("no process of node {node}"))?;
        rustix::process::kill_process(pid, rustix::process::Signal::KILL)
            .map_err(|e| format!("cannot kill process {pid:?} of node {node}: {e}"))
    }

    /// # Errors
    /// `apus dev` refuses, or the command fails.
    pub fn restart(&self, node: u16) -> Result<(), String> {
        match self {
            Executioner::Commands { restart, .. } => shell(restart, node),
            Executioner::Dev => discover::restart_node(&node.to_string()).map(drop),
        }
    }
}

fn shell(command: &str, node: u16) -> Result<(), String> {
    let command = command.replace("{node}", &node.to_string());
    let status = Command::new("sh").arg("-c").arg(&command).status();
    match status.map_err(|e| format!("cannot run sh: {e}"))? {
        status if status.success() => Ok(()),
        status => Err(format!("{command:?} failed: {status}")),
    }
}

fn is_up(status: &StatusConf, node: u16) -> bool {
    status.nodes.iter().any(|n| n.id == u32::from(node) && n.state == NodeState::Up as u32)
}

/// Ids of all data nodes, if all of them are full members and each row has a second replica.
///
/// # Errors
/// Otherwise: killing one would lose data or stop the cluster.
pub fn all_up(mgmt: &Access) -> Result<Vec<u16>, String> {
    let status = status::ask(mgmt)?;
    if status.replicas < 2 {
        return Err("with one replica a kill loses data".to_owned());
    }
    let ids: Vec<u16> = status.nodes.iter().filter_map(|n| u16::try_from(n.id).ok()).collect();
    match ids.iter().find(|&&id| !is_up(&status, id)) {
        Some(id) => Err(format!("node {id} is not up: a kill now could stop the cluster")),
        None => Ok(ids),
    }
}

/// Waits until all are up, as [`all_up`] says; zero if they were at once.
///
/// # Errors
/// It took longer than `timeout`.
pub fn wait_all_up(mgmt: &Access, timeout: Duration, mut meanwhile: impl FnMut()) -> Result<Duration, String> {
    let begin = Instant::now();
    let mut waited = Duration::ZERO;
    while let Err(reason) = all_up(mgmt) {
        waited = begin.elapsed();
        if waited > timeout {
            return Err(reason);
        }
        meanwhile();
        thread::sleep(POLL);
    }
    Ok(waited)
}

/// Waits until the management node says that `node` is a full member, or that it is not. The time it took.
///
/// # Errors
/// It took longer than `timeout`.
pub fn wait_for(
    mgmt: &Access,
    node: u16,
    up: bool,
    timeout: Duration,
    mut meanwhile: impl FnMut(),
) -> Result<Duration, String> {
    let begin = Instant::now();
    loop {
        // A management node that does not answer just now is asked again.
        if status::ask(mgmt).is_ok_and(|s| is_up(&s, node) == up) {
            return Ok(begin.elapsed());
        }
        if begin.elapsed() > timeout {
            let what = if up { "is not up again" } else { "is still taken for up" };
            return Err(format!("node {node} {what} after {} s", timeout.as_secs()));
        }
        meanwhile();
        thread::sleep(POLL);
    }
}
