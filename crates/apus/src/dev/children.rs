//! Child processes of `apus dev`: started with a log file and a ready file, ended by pid.

use std::{
    fs::File,
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// How long children get between SIGTERM and SIGKILL.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// How long data nodes get to leave a cluster that ends as a whole, before they are told a second time.
const ORDERLY: Duration = Duration::from_millis(50);
/// Who waits longer than this wants to know what for.
const PATIENCE: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(5);

/// Tells whoever waits for a start that takes long what the nodes say.
pub struct Patience {
    since: Instant,
    /// Names, logs, and the last lines that were told of them.
    logs: Vec<(String, PathBuf, String)>,
}

impl Patience {
    pub fn new<'a>(nodes: impl Iterator<Item = &'a Child>) -> Patience {
        let logs = nodes.map(|node| (node.name.clone(), node.log.clone(), String::new())).collect();
        Patience { since: Instant::now(), logs }
    }
    pub fn tell(&mut self) {
        if self.since.elapsed() < PATIENCE {
            return;
        }
        self.since = Instant::now();
        for (name, log, told) in &mut self.logs {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            if let Some(last) = text.lines().last().filter(|last| *last != told) {
                println!("not ready yet; the log of {name} ends with: {last}");
                *told = last.to_owned();
            }
        }
    }
}

pub struct Spawner {
    program: PathBuf,
    dir: PathBuf,
    count: u32,
}

impl Spawner {
    pub fn new(dir: PathBuf) -> Result<Spawner, String> {
        let program = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
        Ok(Spawner { program, dir, count: 0 })
    }
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts this program with other arguments; output goes to `NAME.log`.
    pub fn spawn(&mut self, name: &str, args: &[String]) -> Result<Child, String> {
        self.count += 1;
        let ready = self.dir.join(format!("{name}-{}.ready", self.count));
        let log = self.dir.join(format!("{name}.log"));
        let failed = |e: std::io::Error| format!("cannot start {name}: {e}");
        let out = File::options().create(true).append(true).open(&log).map_err(failed)?;
        let err = out.try_clone().map_err(failed)?;
        let process = Command::new(&self.program)
            .args(args)
            .arg("--die-with-parent")
            .arg(format!("--ready-file={}", ready.display()))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            // A terminal's Ctrl-C goes to all of its group: it is for us alone, who end the others in order.
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        Ok(Child {
            name: name.to_owned(),
            process,
            ended: None,
            ready,
            log,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
        })
    }
}

pub struct Child {
    name: String,
    process: std::process::Child,
    ended: Option<ExitStatus>,
    ready: PathBuf,
    pub log: PathBuf,
    /// Known once it is ready.
    pub address: SocketAddr,
}

impl Child {
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// How the process ended, if it did.
    pub fn exited(&mut self) -> Option<String> {
        if self.ended.is_none() {
            self.ended = self.process.try_wait().ok().flatten();
        }
        self.ended.map(|status| status.to_string())
    }

    /// Waits for the ready file.
    /// `meanwhile` is called over and over.
    pub fn wait_ready(
        &mut self,
        deadline: Instant,
        stop: &AtomicBool,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), String> {
        loop {
            meanwhile();
            if let Ok(text) = std::fs::read_to_string(&self.ready) {
                let _ = std::fs::remove_file(&self.ready);
                return self.note_ready(&text);
            }
            if let Some(how) = self.exited() {
                let log = std::fs::read_to_string(&self.log).unwrap_or_default();
                let last: Vec<&str> = log.lines().rev().take(10).collect();
                let last: Vec<&str> = last.into_iter().rev().collect();
                return Err(format!("{} ended while starting ({how}):\n{}", self.name, last.join("\n")));
            }
            if stop.load(Relaxed) {
                return Err("stopped while starting".to_owned());
            }
            if Instant::now() > deadline {
                return Err(format!("{} is not ready in time; its log: {}", self.name, self.log.display()));
            }
            std::thread::sleep(POLL);
        }
    }

    fn note_ready(&mut self, text: &str) -> Result<(), String> {
        let value: serde_json::Value = serde_json::from_str(text).map_err(|e| format!("{}: {e}", self.name))?;
        let address = format!("{}:{}", value["host"].as_str().unwrap_or("127.0.0.1"), value["port"]);
        self.address = address.parse().map_err(|e| format!("{} is ready at {address:?}: {e}", self.name))?;
        Ok(())
    }

    pub fn ask_to_end(&self) {
        self.signal(Signal::TERM);
    }

    fn signal(&self, signal: Signal) {
        if self.ended.is_none()
            && let Some(pid) = i32::try_from(self.pid()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Child {
    /// A cluster that fails to start leaves nobody behind.
    fn drop(&mut self) {
        if self.exited().is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// SIGTERM to all, twice, SIGKILL to who is left after a while; returns when all are gone.
pub fn end_all(children: &mut [&mut Child]) {
    for child in children.iter_mut() {
        let _ = child.exited();
        child.signal(Signal::TERM);
    }
    let (again, deadline) = (Instant::now() + ORDERLY, Instant::now() + END_TIMEOUT);
    let mut is_told = false;
    while children.iter_mut().any(|c| c.exited().is_none()) {
        if Instant::now() > deadline {
            children.iter().for_each(|c| c.signal(Signal::KILL));
        } else if Instant::now() > again && !std::mem::replace(&mut is_told, true) {
            // All go: who holds a last full copy is meant, too.
            children.iter().for_each(|c| c.signal(Signal::TERM));
        }
        std::thread::sleep(POLL);
    }
}
