//! Master keys for files: from a private file, or from a command that asks whoever keeps them.
//!
//! Both give the same text (`apus_vault::parse`): keys, the newest first. They are read when a node starts, and once more at each SIGHUP; then all of its small files are written
//! anew, so that nothing in its directory needs an older key.

use std::{
    fs::OpenOptions,
    io::{Read, Write},
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use apus_redo::{Vault, key_name};
use apus_runtime::{Node, log_line};
use apus_vault::{DiskKeys, MasterKey};

use crate::secret::{self, FILE_BYTES_MAX};

/// Where master keys come from.
#[derive(clap::Args, Clone, Debug)]
pub struct DiskKeyArgs {
    /// File with keys for the files in --data-dir, as `apus secret disk-key` makes it: they are encrypted from now on, under its first key; the others are for older files.
    /// After a change of it: SIGHUP
    #[arg(long, value_name = "FILE")]
    disk_key: Option<PathBuf>,
    /// Command whose output is what --disk-key has in a file; run at the start and at SIGHUP, by sh, for at most 30 seconds
    #[arg(long, value_name = "COMMAND", conflicts_with = "disk_key")]
    disk_key_command: Option<String>,
}

/// How long a command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

impl DiskKeyArgs {
    pub fn is_given(&self) -> bool {
        self.disk_key.is_some() || self.disk_key_command.is_some()
    }
    /// The same, for a child.
    pub fn arguments(&self) -> impl Iterator<Item = String> {
        let file = self.disk_key.iter().map(|file| format!("--disk-key={}", file.display()));
        file.chain(self.disk_key_command.iter().map(|command| format!("--disk-key-command={command}")))
    }
    /// Refuses a key that lies among the files that it opens.
    ///
    /// # Errors
    /// The file is in `dir`.
    pub fn check_outside(&self, dir: &Path) -> Result<(), String> {
        let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        match &self.disk_key {
            Some(file) if whole(file).starts_with(whole(dir)) => Err(format!(
                "{} lies in {}, whose files it opens: keep it elsewhere, or it is copied and stolen with them",
                file.display(),
                dir.display()
            )),
            _ => Ok(()),
        }
    }
    /// `None`: none were given.
    ///
    /// # Errors
    /// They cannot be had; the text says why, and nothing of the keys.
    pub fn load(&self) -> Result<Option<Vec<MasterKey>>, String> {
        let (text, from) = match (&self.disk_key, &self.disk_key_command) {
            (Some(file), _) => (secret::read_private(file)?, file.display().to_string()),
            (None, Some(command)) => (output(command)?, format!("the output of `{command}`")),
            (None, None) => return Ok(None),
        };
        apus_vault::parse(&text).map(Some).map_err(|why| format!("{from}: {why}"))
    }
    /// What opens files; without keys only those in the clear.
    ///
    /// # Errors
    /// As [`DiskKeyArgs::load`].
    pub fn vault(&self) -> Result<Vault, String> {
        Ok(self.load()?.map_or_else(Vault::default, |keys| DiskKeys::new(&keys, true).vault()))
    }
}

fn output(command: &str) -> Result<String, String> {
    let named = |why: String| format!("--disk-key-command `{command}` {why}");
    let mut shell = Command::new("/bin/sh");
    // A group of its own, so that what it has started ends with it.
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
    let child = shell.spawn().map_err(|e| named(format!("cannot be run: {e}")))?;
    let group = rustix::process::Pid::from_child(&child);
    let (done, outcome) = mpsc::channel();
    std::thread::spawn(move || done.send(read_all(child)));
    let outcome = outcome.recv_timeout(COMMAND_TIMEOUT);
    if outcome.is_err() {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let (text, status) = outcome
        .map_err(|_| named(format!("was ended after {} s", COMMAND_TIMEOUT.as_secs())))?
        .map_err(|e| named(format!("cannot be read: {e}")))?;
    if !status.success() {
        return Err(named(format!("failed ({status})")));
    }
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(named(format!("says more than {FILE_BYTES_MAX} bytes")));
    }
    String::from_utf8(text).map_err(|_| named("says what is no text".to_owned()))
}

fn read_all(mut child: Child) -> std::io::Result<(Vec<u8>, std::process::ExitStatus)> {
    let mut text = Vec::new();
    if let Some(out) = child.stdout.take() {
        out.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    }
    Ok((text, child.wait()?))
}

/// Writes the node's small files anew, and again with other keys at each SIGHUP: what the node's signals are to call.
pub fn follow(keys: DiskKeys, args: DiskKeyArgs, node: &Node) -> impl Fn() + Send + use<> {
    let renew = node.renewer();
    let renew_all = move |newest: u64, encrypts: bool| {
        renew(Box::new(move |outcome| match outcome {
            Ok(files) if encrypts => log_line(format!(
                "disk key {}: {files} files and all keys in them are under it, older disk keys are not needed here any more",
                key_name(newest)
            )),
            Ok(files) => log_line(format!("{files} files are written in the clear from now on")),
            Err(e) => {
                log_line(format!("disk key {}: not all files are under it, keep the older ones: {e}", key_name(newest)))
            }
        }));
    };
    renew_all(keys.newest_id(), keys.encrypts());
    move || match args.load() {
        Ok(Some(read)) => {
            keys.renew(&read);
            renew_all(keys.newest_id(), keys.encrypts());
        }
        Ok(None) => {}
        Err(why) => log_line(format!("SIGHUP: {why}; the disk keys stay as they were")),
    }
}

/// Makes a file with a new key; `rotate`: puts a new one before those of a file that is there.
///
/// # Errors
/// It is there, or is not; the operating system refuses.
pub fn make(path: &Path, rotate: bool) -> Result<(), String> {
    let old = if rotate { secret::read_private(path)? } else { String::new() };
    if rotate {
        apus_vault::parse(&old).map_err(|why| format!("{}: {why}", path.display()))?;
    }
    let (text, id) = apus_vault::add_key(&old);
    apus_vault::parse(&text).map_err(|why| format!("{}: {why}", path.display()))?;
    let failed = |e: std::io::Error| format!("cannot make {}: {e}", path.display());
    let place = if rotate { path.with_extension("new") } else { path.to_owned() };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&place).map_err(failed)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    let placed = written.and_then(|()| if rotate { std::fs::rename(&place, path) } else { Ok(()) });
    placed.and_then(|()| crate::sync_names(path)).map_err(failed)?;
    println!("disk key {} is in {}", key_name(id), path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(file: Option<&Path>, command: Option<&str>) -> DiskKeyArgs {
        DiskKeyArgs { disk_key: file.map(Path::to_owned), disk_key_command: command.map(str::to_owned) }
    }

    #[test]
    fn keys_come_from_a_private_file_or_a_command() {
        let dir = std::env::temp_dir().join(format!("apus-disk-key-{}", crate::random_id().expect("entropy")));
        std::fs::create_dir(&dir).expect("a directory");
        let path = dir.join("key");
        make(&path, false).expect("made");
        let first = args(Some(&path), None).load().expect("read").expect("given");
        assert!(make(&path, false).expect_err("it exists").contains("exists"));
        make(&path, true).expect("rotated");
        let both = args(Some(&path), None).load().expect("read").expect("given");
        assert_eq!((both.len(), &both[1..]), (2, &first[..]));
        let cat = format!("cat {}", path.display());
        assert_eq!(args(None, Some(&cat)).load(), Ok(Some(both)));
        assert!(args(None, None).load().expect("nothing to be read").is_none());
        let refused = |command: &str| args(None, Some(command)).load().expect_err("no keys");
        assert!(refused("exit 3").contains("failed (exit status: 3)"));
        assert!(refused("echo hunter2").contains("no disk key"));
        assert!(refused("yes").contains("failed") || refused("yes").contains("more than"), "{}", refused("yes"));
        assert!(args(Some(&path), None).check_outside(&dir).expect_err("it lies there").contains("elsewhere"));
        assert_eq!(args(Some(&path), None).check_outside(&dir.join("data")), Ok(()));
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).expect("own file");
        assert!(args(Some(&path), None).load().expect_err("others may").contains("chmod 600"));
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
