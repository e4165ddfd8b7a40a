//! `apus cluster`: what an operator changes of a running cluster.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use apus_signal::{
    Kind,
    mgmt::{SILENCE_MS, Setting},
};
use prost::Message;

use crate::{discover::Access, status};

#[derive(clap::Args)]
pub struct ClusterArgs {
    #[command(flatten)]
    cluster: crate::discover::ClusterArgs,
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Change a setting of the whole cluster, now: `silence_ms=N`, the shortest silence in milliseconds for which a node is held for failed (80
    /// to 1000; hosts that pause for 200 ms want 400)
    Set {
        /// NAME=VALUE
        setting: String,
    },
}

/// A view with the setting must come within this time.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(args: ClusterArgs) -> Result<ExitCode, String> {
    let access = args.cluster.find()?;
    match args.action {
        Action::Set { setting } => set(&access, parse(&setting)?),
    }
}

fn parse(setting: &str) -> Result<u32, String> {
    let known = "the setting there is: silence_ms=N";
    let (name, value) = setting.split_once('=').ok_or(known)?;
    if name.trim() != "silence_ms" {
        return Err(format!("no setting {name:?}; {known}"));
    }
    let (least, most) = (SILENCE_MS.start(), SILENCE_MS.end());
    let ms = value.trim().parse().ok().filter(|ms| SILENCE_MS.contains(ms));
    ms.ok_or_else(|| format!("silence_ms is a number of milliseconds, {least} to {most}, not {value:?}"))
}

/// Every management node is told, since each reaches members of its own; then the view is awaited.
fn set(access: &Access, silence_ms: u32) -> Result<ExitCode, String> {
    let order = Setting { request: 1, silence_ms }.encode_to_vec();
    let tell =
        |address: String| status::converse(&address, &access.secret, Kind::SettingReq, &order, Kind::SettingConf);
    let told: Vec<Result<Vec<u8>, String>> = crate::discover::each(&access.mgmt).into_iter().map(tell).collect();
    if told.iter().all(Result::is_err) {
        return Err(told.into_iter().filter_map(Result::err).collect::<Vec<_>>().join("\n"));
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = status::ask(access)?;
        if now.silence_ms == silence_ms {
            println!("silence_ms is {silence_ms} from view {} on", now.generation);
            return Ok(ExitCode::SUCCESS);
        }
        if Instant::now() > deadline {
            return Err(format!(
                "silence_ms is still {} after {} s: the president may have failed meanwhile, or nobody can change the view; see `apus \
                 status` and try again",
                now.silence_ms,
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
        assert_eq!((parse("silence_ms=80"), parse("silence_ms = 1000")), (Ok(80), Ok(1000)));
        for wrong in ["silence_ms", "silence=100", "silence_ms=79", "silence_ms=1001", "silence_ms=1s", "=", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
