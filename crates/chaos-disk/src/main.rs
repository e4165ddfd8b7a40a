//! `apus-chaos-disk DIR`: a file system in memory at DIR, for tests, that can lose power, be full, fail or fall silent. No node uses it.
//!
//! What a program wrote and did not sync is lost, or kept, or half of each, when the power goes: see [`volume`]. `kill -9` alone leaves everything in the
//! kernel's cache and shows none of that.
//!
//! Commands are lines on standard input; each is answered by one line, `ok ...` or `error ...`, on standard output; the first line says that the
//! volume is there. Its end ends the program and takes the volume away.
//!
//! ```text
//! power SEED        everything that was not synced is lost or kept, as the seed has it; no file may be open
//! capacity BYTES    there is room for so much, 0: without limit; what is there stays
//! used              bytes that have a place
//! syncs fail|work   every sync fails with an input/output error, and what was dirty is never written
//! stall | go        writes, syncs and changes of names wait, and go on
//! flip PATH AT      the byte at this place of a file is another one
//! ```
//!
//! It needs `/dev/fuse` and the right to mount. Limits: all of it is memory; 64 commands of 4 KiB wait; links, devices and renames between directories are refused.

mod mount;
mod volume;

use std::{io::BufRead, process::ExitCode, sync::Arc};

use fuser::{Config, MountOption};

use self::{
    mount::{Door, Shared, resolve},
    volume::PAGE,
};

fn main() -> ExitCode {
    let Some(directory) = std::env::args().nth(1) else {
        eprintln!("usage: apus-chaos-disk DIR; commands come on standard input, see the source");
        return ExitCode::FAILURE;
    };
    let shared = Arc::new(Shared::new());
    let mut config = Config::default();
    config.mount_options = vec![MountOption::FSName("apus-chaos-disk".into()), MountOption::NoDev, MountOption::NoSuid];
    // A write that waits must not keep reads from being answered.
    config.n_threads = Some(4);
    let session = match fuser::spawn_mount(Door(Arc::clone(&shared)), &directory, &config) {
        Ok(session) => session,
        Err(error) => {
            eprintln!("apus-chaos-disk: cannot mount at {directory}: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("ok {directory}");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match execute(&shared, &line) {
            Ok(text) => println!("{}", format!("ok {text}").trim_end()),
            Err(reason) => println!("error {reason}"),
        }
    }
    shared.set_stalls(false);
    match session.umount_and_join() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("apus-chaos-disk: cannot take {directory} away: {error}");
            ExitCode::FAILURE
        }
    }
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

fn execute(shared: &Shared, line: &str) -> Result<String, String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["power", seed] => {
            let loss = shared.volume().lose_power(number(seed)?);
            let (kept, lost, names) = (loss.sectors_kept, loss.sectors_lost, loss.names_lost);
            return Ok(format!("{kept} sectors kept, {lost} lost, {names} changes of names lost"));
        }
        ["capacity", bytes] => {
            let pages = number(bytes)? / PAGE;
            shared.volume().capacity = if pages == 0 { u64::MAX } else { pages };
        }
        ["used"] => return Ok((shared.volume().used() * PAGE).to_string()),
        ["syncs", "fail"] => shared.volume().syncs_fail = true,
        ["syncs", "work"] => shared.volume().syncs_fail = false,
        ["stall"] => shared.set_stalls(true),
        ["go"] => shared.set_stalls(false),
        ["flip", path, at] => {
            let (mut volume, at) = (shared.volume(), number(at)?);
            let told = |error| format!("{path}: {error:?}");
            let inode = resolve(&mut volume, path).map_err(told)?;
            let bytes = volume.read(inode, at, 1).map_err(told)?;
            let byte = bytes.first().ok_or_else(|| format!("{path} has no byte {at}"))?;
            volume.write(inode, at, &[byte ^ 0x10]).and_then(|()| volume.sync(inode)).map_err(told)?;
        }
        _ => return Err(format!("{line:?} is no command")),
    }
    Ok(String::new())
}
