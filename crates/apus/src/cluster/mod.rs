//! `apus cluster`: what an operator changes of a running cluster. All of it needs the node secret: a client's reads and changes rows.

mod resume;
mod stop;

pub use self::stop::end_durably;

use std::{
    io::Write,
    process::ExitCode,
    time::{Duration, Instant},
};

use apus_signal::{
    Kind, gcp,
    mgmt::{EJECT_SLOW_MS, SILENCE_MS, Setting, StatusConf},
    speeds::{SPEED_MIB, Speeds},
};
use prost::Message;

use crate::{discover::Access, status};

#[derive(clap::Args)]
pub struct ClusterArgs {
    #[command(flatten)]
    cluster: crate::discover::OperatorArgs,
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Change a setting of the whole cluster, now. `durability=disk`: commits are acknowledged when they are on the disks of all replicas
    /// (`replicated`, the default: in the memory of all; sessions and tables may ask for more). `gcp_interval=N`: every so many milliseconds, 10 to 10000,
    /// by default 100, what was written is made durable on all nodes. `checkpoint_min_speed=N`, `checkpoint_max_speed=N`,
    /// `checkpoint_max_speed_other_restart=N` and `checkpoint_max_speed_own_restart=N`: MiB per second between which each data node writes checkpoints (1 to
    /// 100000; by default 20 and 200, at most 100 while another node starts, 400 after its own start until its first checkpoint): slower while its workers are busy or its disk is late. `silence_ms=N`: the shortest silence in milliseconds for which a node is held for failed (80
    /// to 1000; hosts that pause for 200 ms want 400). `eject_slow_ms=N`: a data node leaves when its workers have been four times slower than
    /// the others', and slower than this, for 5 s (20 to 60000; 0, the default: never)
    Set {
        /// NAME=VALUE
        setting: String,
    },
    /// End all data nodes, with everything on their disks; where data is in memory only, all rows are lost
    Stop(stop::StopArgs),
    /// Make a frozen side, or a cluster that waits for lost disks at its start, go on without the nodes that it waits for, with what it holds
    Resume(resume::ResumeArgs),
}

/// A view with the setting must come within this time.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(args: ClusterArgs) -> Result<ExitCode, String> {
    let access = args.cluster.find()?;
    match args.action {
        Action::Set { setting } => set(&access, &setting),
        Action::Stop(args) => stop::run(&access, &args),
        Action::Resume(args) => resume::run(&access, &args),
    }
}

/// What cannot be taken back is done when its phrase was typed, or given.
fn confirm(given: Option<&str>, phrase: &str) -> Result<(), String> {
    let typed = match given {
        Some(text) => text.to_owned(),
        None => {
            print!("Type \"{phrase}\" to go on (or give it with --confirm): ");
            let mut line = String::new();
            let read = std::io::stdout().flush().and_then(|()| std::io::stdin().read_line(&mut line));
            read.map_err(|e| format!("nothing was done: {e}"))?;
            line
        }
    };
    if typed.trim() == phrase {
        Ok(())
    } else {
        Err(format!("nothing was done: {:?} is not \"{phrase}\"", typed.trim()))
    }
}

/// Numbers for people.
fn list(nodes: impl IntoIterator<Item = u32>) -> String {
    let nodes: Vec<String> = nodes.into_iter().map(|n| n.to_string()).collect();
    format!("{} {}", if nodes.len() == 1 { "data node" } else { "data nodes" }, nodes.join(" "))
}

/// What each management node that answers says, with its address.
///
/// # Errors
/// None answers.
fn ask_all(access: &Access) -> Result<Vec<(String, StatusConf)>, String> {
    let mut errors = Vec::new();
    let mut answers = Vec::new();
    for address in crate::discover::each(&access.mgmt) {
        match status::ask_one(&address, access) {
            Ok(status) => answers.push((address, status)),
            Err(error) => errors.push(error),
        }
    }
    if answers.is_empty() { Err(errors.join("\n")) } else { Ok(answers) }
}

/// Of commits that ask for none, by `View::durability`.
pub const CLASSES: [&str; 2] = ["replicated", "disk"];

fn parse(setting: &str) -> Result<Setting, String> {
    let known = "the settings are: durability=disk|replicated, gcp_interval=N, checkpoint_min_speed=N, checkpoint_max_speed=N, checkpoint_max_speed_other_restart=N, checkpoint_max_speed_own_restart=N, silence_ms=N, eject_slow_ms=N";
    let (name, value) = setting.split_once('=').ok_or(known)?;
    let (name, value) = (name.trim(), value.trim());
    if name == "durability" {
        let class = CLASSES.iter().position(|class| *class == value);
        let class = class.ok_or_else(|| format!("durability is `disk` or `replicated`, not {value:?}"))?;
        return Ok(Setting { durability: Some(class as u32), ..Setting::default() });
    }
    let number = value.parse::<u32>().ok();
    if let Some(speed) = Speeds::NAMES.iter().position(|known| *known == name) {
        let mut values = [0; 4];
        values[speed] = number.unwrap_or(0);
        let wish = Setting { checkpoint_speeds: Some(Speeds::from_values(values)), ..Setting::default() };
        let (least, most) = (SPEED_MIB.start(), SPEED_MIB.end());
        let wrong = || format!("{name} is a number of MiB per second, {least} to {most}, not {value:?}");
        return Some(wish).filter(Setting::is_legal).ok_or_else(wrong);
    }
    let (setting, range) = match name {
        "silence_ms" => (Setting { silence_ms: number, ..Setting::default() }, SILENCE_MS),
        "eject_slow_ms" => (Setting { eject_slow_ms: number, ..Setting::default() }, EJECT_SLOW_MS),
        "gcp_interval" => (Setting { gcp_interval_ms: number, ..Setting::default() }, gcp::INTERVAL_MS),
        _ => return Err(format!("no setting {name:?}; {known}")),
    };
    let wrong = || {
        let zero = if name == "eject_slow_ms" { ", or 0 for never" } else { "" };
        format!("{name} is a number of milliseconds, {} to {}{zero}, not {value:?}", range.start(), range.end())
    };
    Some(setting).filter(Setting::is_legal).ok_or_else(wrong)
}

fn is_done(wanted: &Setting, now: &StatusConf) -> bool {
    wanted.silence_ms.is_none_or(|ms| ms == now.silence_ms)
        && wanted.eject_slow_ms.is_none_or(|ms| ms == now.eject_slow_ms)
        && wanted.durability.is_none_or(|class| class == now.durability)
        && wanted.gcp_interval_ms.is_none_or(|ms| ms == now.gcp_interval_ms)
        && wanted.checkpoint_speeds.is_none_or(|wish| Some(wish.or(&speeds_of(now))) == now.checkpoint_speeds)
}

fn speeds_of(now: &StatusConf) -> Speeds {
    now.checkpoint_speeds.unwrap_or_default()
}

/// Every management node is told, since each reaches members of its own; then the view is awaited.
fn set(access: &Access, text: &str) -> Result<ExitCode, String> {
    let wanted = parse(text)?;
    let order = Setting { request: 1, ..wanted }.encode_to_vec();
    let tell = |address: String| status::converse(&address, access, Kind::SettingReq, &order, Kind::SettingConf);
    let told: Vec<Result<Vec<u8>, String>> = crate::discover::each(&access.mgmt).into_iter().map(tell).collect();
    if told.iter().all(Result::is_err) {
        return Err(told.into_iter().filter_map(Result::err).collect::<Vec<_>>().join("\n"));
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = status::ask(access)?;
        if is_done(&wanted, &now) {
            println!("{text} from view {} on", now.generation);
            return Ok(ExitCode::SUCCESS);
        }
        if Instant::now() > deadline {
            return Err(format!(
                "{text} has not come to be within {} s: the president may have failed meanwhile, or nobody can change the view; see `apus \
                 status` and try again",
                PATIENCE.as_secs()
            ));
        }
        std::thread::sleep(Duration::from_millis(50)); // asks again until the deadline above
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_an_effect_is_accepted() {
        let silence = |text| parse(text).map(|s| s.silence_ms);
        assert_eq!((silence("silence_ms=80"), silence("silence_ms = 1000")), (Ok(Some(80)), Ok(Some(1000))));
        assert_eq!(parse("durability=disk").map(|s| s.durability), Ok(Some(1)));
        assert_eq!(parse("gcp_interval=10").map(|s| s.gcp_interval_ms), Ok(Some(10)));
        assert_eq!(parse("eject_slow_ms=0").map(|s| s.eject_slow_ms), Ok(Some(0)));
        let speed = parse("checkpoint_max_speed=50").map(|s| s.checkpoint_speeds);
        assert_eq!(speed, Ok(Some(Speeds { max: 50, ..Speeds::default() })));
        for wrong in [
            "silence_ms",
            "silence=100",
            "silence_ms=79",
            "silence_ms=1001",
            "silence_ms=1s",
            "durability=maybe",
            "eject_slow_ms=19",
            "gcp_interval=9",
            "gcp_interval=10001",
            "gcp_interval=0",
            "checkpoint_min_speed=0",
            "checkpoint_max_speed=100001",
            "checkpoint_speed=50",
            "=",
            "",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
