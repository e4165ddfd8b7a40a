//! What may happen to a simulated cluster, and how it is written.
//!
//! A [`Schedule`] is a list of rounds. A round is a list of faults, each at its time after the beginning of the round, and the time
//! at which all of it ends: links are made whole, what was paused or slow goes on, and, unless the round says `core`, whatever does not
//! run is started again. The text form is for people and for the command line; it says everything, so it can be read back:
//!
//! ```text
//! 60ms crash n1 30ms, 81ms pause n2 700ms, 900ms core / 163ms split n1+m1 1310ms, 1500ms heal
//! ```
//!
//! Times are whole microseconds. `n1` is a data node, `m1` a management node, `p` the president of the moment, `c0` a client, which only
//! faults of links know.

use std::{fmt, str::FromStr};

use apus_signal::{mgmt::Setting, speeds::Speeds};
use apus_types::NodeId;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// A schedule is written by hand or by a seed: more rounds or faults are a mistake.
const PARTS_MAX: usize = 1000;

/// A node that a fault is aimed at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who {
    Node(NodeId),
    /// Whoever is president when the time comes.
    President,
    /// The client with this number or the one that came in its place; links only.
    Client(u64),
}

/// Times are in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The process dies and is started again so much later (or at the end of the round, if that comes first).
    Crash { who: Who, down: u64 },
    /// The process is asked to end, and started again so much later, whether it has left by then or not.
    Leave { who: Who, down: u64 },
    /// An operator restarts all data nodes in order, beginning with this one, each when all are full members again.
    Roll { first: NodeId },
    /// As a crash, with the machine: what the node's files have not synced may be lost.
    Power { who: Who, down: u64 },
    /// The process makes no turn for so long; its links stay, bytes queue.
    Pause { who: Who, lasts: u64 },
    /// A guest whose clocks all stop with it: it makes no turn for so long, and then does not know that time has passed.
    Freeze { who: Who, lasts: u64 },
    /// One worker of the node makes no turn for so long; the others do.
    Stick { who: Who, worker: u8, lasts: u64 },
    /// Each turn of the node, or of its data workers alone, costs so many times what it should.
    Slow { who: Who, factor: u64, lasts: u64, data_only: bool },
    /// Two nodes lose their links and do not get them back for so long.
    Cut { a: Who, b: Who, lasts: u64 },
    /// Nothing that one node sends reaches the other; their links stay up. What was held back arrives afterwards, or the link turns
    /// out to be dead.
    Mute { from: Who, to: Who, lasts: u64, lost: bool },
    /// These nodes and all others do not hear each other: links die at once, or stay up and silent.
    Split { side: Vec<NodeId>, lasts: u64, silent: bool },
    /// A split across which one node still hears everybody.
    Bridge { side: Vec<NodeId>, bridge: NodeId, lasts: u64, silent: bool },
    /// Nothing arrives between any two of these nodes (`None`: of all, management nodes too); their links stay up, nobody's clock or tick is
    /// late, and afterwards everything arrives. That is a starved kernel on a machine with several nodes, or a switch.
    Stall { side: Option<Vec<NodeId>>, lasts: u64 },
    /// A link goes down and up so many times.
    Flap { a: Who, b: Who, period: u64, times: u64 },
    /// The connections of two nodes (or of one pair of their workers) are reset and may be made again at once.
    Reset { a: Who, b: Who, worker: Option<u8> },
    /// All connections of a node to data nodes are reset, so many times.
    Storm { who: Who, period: u64, times: u64 },
    /// An operator changes a setting of the cluster, through every management node.
    Set { knob: Knob, value: u32 },
    /// A client's process dies; another comes in its place.
    Client { number: u64 },
    /// A node does not read from a client for `deaf`; then the client loses its link to it, and `late` after that the node reads what it
    /// was sent.
    Unlink { number: u64, who: Who, deaf: u64, late: u64 },
    /// A fault point of the node's blocks answers yes once, after so many passes.
    Arm { who: Who, point: String, skip: u64 },
    /// The same, and the process dies `after` that; [`FILE_POINT`]: after it has asked for its file to be written. If that happens in the
    /// round at all.
    Doom { who: Who, point: String, skip: u64, after: u64, down: u64 },
    /// The node's disk is slow, fails, is full or hangs.
    Disk { who: Who, ailment: Ailment, lasts: u64 },
}

/// What a node passes when it asks for its file to be written.
pub const FILE_POINT: &str = "file";

/// What is wrong with a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ailment {
    /// Every request takes up to 400 ms.
    Slow,
    /// Requests fail, a part of them.
    Fails,
    /// No file grows.
    Full,
    /// No request is answered.
    Hangs,
    /// Of what is read some bits have changed, for good.
    Rots,
}

impl Ailment {
    pub const ALL: &[Ailment] = &[Ailment::Slow, Ailment::Fails, Ailment::Full, Ailment::Hangs, Ailment::Rots];
    /// Those that seeds draw: what rots on two disks of a group is lost, and nobody promises otherwise.
    pub const DRAWN: &[Ailment] = &[Ailment::Slow, Ailment::Fails, Ailment::Full, Ailment::Hangs];
    /// The word by which it is written.
    pub fn name(self) -> &'static str {
        match self {
            Ailment::Slow => "slow",
            Ailment::Fails => "fails",
            Ailment::Full => "full",
            Ailment::Hangs => "hangs",
            Ailment::Rots => "rots",
        }
    }
}

/// How long a fault goes on, ns.
pub enum Span<'f> {
    /// It is over at once.
    Moment,
    /// What may be made longer and shorter.
    Lasts(&'f mut u64),
    /// It comes so many times, one period after the other.
    Repeats { period: &'f mut u64, times: u64 },
    /// One after the other.
    Both(u64, u64),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Round {
    /// Time after the beginning of the round.
    pub faults: Vec<(u64, Fault)>,
    /// When the faults end.
    pub end: u64,
    pub then: Then,
}

/// What comes at the end of a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// Everything is undone.
    Heal,
    /// The nodes that are down stay down until the others have shown that they serve.
    Core,
    /// Every fault that would last longer goes on until those who must serve have shown that they do.
    Hold,
    /// Everything is undone. The faults are more than is promised to be lived through: if the cluster is whole again it has all, and if it is not
    /// the run ends.
    Ruin,
    /// All machines lose power at once, amid what the faults have set off, and are started again: of a cluster with disks nothing is lost. Faults whose time
    /// is after the end of the round come so long after that, amid the restart.
    Dark,
    /// When everything is undone an operator ends the cluster, and starts it again: of a cluster with disks nothing is lost.
    Stop,
    /// The nodes that are down stay down. If the others cannot go on without them an operator has them do it (`apus cluster resume --force`), and they show
    /// that they serve; then the others join them. Nothing is lost, for whoever is down did not go on without the rest.
    Force,
}

/// A setting that an operator may change while the cluster runs: [`apus_signal::mgmt::Setting`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Knob {
    /// Floor of the silence limit, ms.
    Silence,
    /// A node that is slow by so many ms leaves the cluster; 0: none does.
    Eject,
    /// Time between two global checkpoints, ms.
    Checkpoints,
    /// Class of commits: 0 replicated, 1 disk.
    Class,
    /// Most MiB per second that a node writes of a checkpoint.
    Speed,
}

impl Knob {
    pub const ALL: &[Knob] = &[Knob::Silence, Knob::Eject, Knob::Checkpoints, Knob::Class, Knob::Speed];
    /// As operators write it.
    pub fn name(self) -> &'static str {
        match self {
            Knob::Silence => "silence_ms",
            Knob::Eject => "eject_slow_ms",
            Knob::Checkpoints => "gcp_interval",
            Knob::Class => "durability",
            Knob::Speed => Speeds::NAMES[1],
        }
    }
    pub fn setting(self, value: u32) -> Setting {
        match self {
            Knob::Silence => Setting { silence_ms: Some(value), ..Setting::default() },
            Knob::Eject => Setting { eject_slow_ms: Some(value), ..Setting::default() },
            Knob::Checkpoints => Setting { gcp_interval_ms: Some(value), ..Setting::default() },
            Knob::Class => Setting { durability: Some(value), ..Setting::default() },
            Knob::Speed => {
                let speeds = Speeds { min: 1, max: value, max_other_restart: value, max_own_restart: value };
                Setting { checkpoint_speeds: Some(speeds), ..Setting::default() }
            }
        }
    }
}

impl Then {
    pub const ALL: &[Then] = &[Then::Heal, Then::Core, Then::Hold, Then::Ruin, Then::Dark, Then::Stop, Then::Force];
    /// The word by which it is written.
    pub fn name(self) -> &'static str {
        match self {
            Then::Heal => "heal",
            Then::Core => "core",
            Then::Hold => "hold",
            Then::Ruin => "ruin",
            Then::Dark => "dark",
            Then::Stop => "stop",
            Then::Force => "force",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schedule(pub Vec<Round>);

impl Fault {
    /// The word by which it is written and counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Crash { .. } => "crash",
            Fault::Leave { .. } => "leave",
            Fault::Roll { .. } => "roll",
            Fault::Set { .. } => "set",
            Fault::Power { .. } => "power",
            Fault::Pause { .. } => "pause",
            Fault::Freeze { .. } => "freeze",
            Fault::Stick { .. } => "stick",
            Fault::Slow { data_only, .. } => {
                if *data_only {
                    "lag"
                } else {
                    "slow"
                }
            }
            Fault::Cut { .. } => "cut",
            Fault::Mute { lost: false, .. } => "mute",
            Fault::Mute { lost: true, .. } => "lose",
            Fault::Split { silent: false, .. } => "split",
            Fault::Split { silent: true, .. } => "hush",
            Fault::Bridge { silent: false, .. } => "bridge",
            Fault::Bridge { silent: true, .. } => "hushbridge",
            Fault::Stall { .. } => "stall",
            Fault::Flap { .. } => "flap",
            Fault::Reset { .. } => "reset",
            Fault::Storm { .. } => "storm",
            Fault::Client { .. } => "client",
            Fault::Unlink { .. } => "unlink",
            Fault::Arm { .. } => "arm",
            Fault::Doom { .. } => "doom",
            Fault::Disk { .. } => "disk",
        }
    }
    pub fn span(&mut self) -> Span<'_> {
        match self {
            Fault::Crash { down: lasts, .. }
            | Fault::Leave { down: lasts, .. }
            | Fault::Power { down: lasts, .. }
            | Fault::Pause { lasts, .. }
            | Fault::Freeze { lasts, .. }
            | Fault::Stick { lasts, .. }
            | Fault::Slow { lasts, .. }
            | Fault::Cut { lasts, .. }
            | Fault::Mute { lasts, .. }
            | Fault::Split { lasts, .. }
            | Fault::Bridge { lasts, .. }
            | Fault::Stall { lasts, .. }
            | Fault::Disk { lasts, .. } => Span::Lasts(lasts),
            Fault::Flap { period, times, .. } | Fault::Storm { period, times, .. } => {
                Span::Repeats { period, times: *times }
            }
            Fault::Unlink { deaf, late, .. } => Span::Both(*deaf, *late),
            Fault::Doom { after, down, .. } => Span::Both(*after, *down),
            Fault::Reset { .. } | Fault::Client { .. } | Fault::Arm { .. } | Fault::Roll { .. } | Fault::Set { .. } => {
                Span::Moment
            }
        }
    }
    /// How long it goes on, ns.
    pub fn lasts(&self) -> u64 {
        match self.clone().span() {
            Span::Moment => 0,
            Span::Lasts(lasts) => *lasts,
            Span::Repeats { period, times } => period.saturating_mul(times),
            Span::Both(first, second) => first.saturating_add(second),
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Node(node) => node_name(*node).fmt(f),
            Who::President => f.write_str("p"),
            Who::Client(number) => write!(f, "c{number}"),
        }
    }
}

fn node_name(node: NodeId) -> String {
    match node {
        _ if node.is_mgmt() => format!("m{}", node.0 - NodeId::MGMT_BASE),
        _ if node.is_sql_arbitrator() => format!("s{}", node.0 - NodeId::ARBITRATOR_BASE),
        _ => format!("n{}", node.0),
    }
}

fn side_name(side: &[NodeId]) -> String {
    side.iter().map(|n| node_name(*n)).collect::<Vec<_>>().join("+")
}

/// A time as it is written.
pub fn time_name(ns: u64) -> String {
    if ns.is_multiple_of(MS) { format!("{}ms", ns / MS) } else { format!("{}us", ns / US) }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Fault::Crash { who, down } | Fault::Leave { who, down } | Fault::Power { who, down } => {
                write!(f, "{kind} {who} {}", time_name(*down))
            }
            Fault::Roll { first } => write!(f, "{kind} {}", node_name(*first)),
            Fault::Set { knob, value } => write!(f, "{kind} {} {value}", knob.name()),
            Fault::Pause { who, lasts } | Fault::Freeze { who, lasts } => {
                write!(f, "{kind} {who} {}", time_name(*lasts))
            }
            Fault::Stick { who, worker, lasts } => write!(f, "{kind} {who} {worker} {}", time_name(*lasts)),
            Fault::Slow { who, factor, lasts, .. } => write!(f, "{kind} {who} {factor} {}", time_name(*lasts)),
            Fault::Cut { a, b, lasts } => write!(f, "{kind} {a} {b} {}", time_name(*lasts)),
            Fault::Mute { from, to, lasts, .. } => write!(f, "{kind} {from} {to} {}", time_name(*lasts)),
            Fault::Split { side, lasts, .. } => write!(f, "{kind} {} {}", side_name(side), time_name(*lasts)),
            Fault::Bridge { side, bridge, lasts, .. } => {
                write!(f, "{kind} {} {} {}", side_name(side), node_name(*bridge), time_name(*lasts))
            }
            Fault::Stall { side: None, lasts } => write!(f, "{kind} all {}", time_name(*lasts)),
            Fault::Stall { side: Some(side), lasts } => write!(f, "{kind} {} {}", side_name(side), time_name(*lasts)),
            Fault::Flap { a, b, period, times } => write!(f, "{kind} {a} {b} {} {times}", time_name(*period)),
            Fault::Reset { a, b, worker: None } => write!(f, "{kind} {a} {b}"),
            Fault::Reset { a, b, worker: Some(worker) } => write!(f, "{kind} {a} {b} {worker}"),
            Fault::Storm { who, period, times } => write!(f, "{kind} {who} {} {times}", time_name(*period)),
            Fault::Client { number } => write!(f, "{kind} {number}"),
            Fault::Unlink { number, who, deaf, late } => {
                write!(f, "{kind} {number} {who} {} {}", time_name(*deaf), time_name(*late))
            }
            Fault::Arm { who, point, skip } => write!(f, "{kind} {who} {point} {skip}"),
            Fault::Doom { who, point, skip, after, down } => {
                write!(f, "{kind} {who} {point} {skip} {} {}", time_name(*after), time_name(*down))
            }
            Fault::Disk { who, ailment, lasts } => {
                write!(f, "{kind} {who} {} {}", ailment.name(), time_name(*lasts))
            }
        }
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, fault) in &self.faults {
            write!(f, "{} {fault}, ", time_name(*at))?;
        }
        write!(f, "{} {}", time_name(self.end), self.then.name())
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds: Vec<String> = self.0.iter().map(Round::to_string).collect();
        f.write_str(&rounds.join(" / "))
    }
}

// ---- reading it back

/// The words of one fault, taken from the left.
struct Words<'t> {
    text: &'t str,
    words: std::str::SplitWhitespace<'t>,
}

impl<'t> Words<'t> {
    fn next(&mut self) -> Result<&'t str, String> {
        self.words.next().ok_or_else(|| format!("`{}` ends too early", self.text.trim()))
    }
    fn number(&mut self) -> Result<u64, String> {
        let word = self.next()?;
        word.parse().map_err(|_| format!("`{word}` in `{}` is not a number", self.text.trim()))
    }
    fn time(&mut self) -> Result<u64, String> {
        let word = self.next()?;
        parse_time(word)
    }
    fn node(&mut self) -> Result<NodeId, String> {
        let word = self.next()?;
        node(word)
    }
    fn who(&mut self) -> Result<Who, String> {
        let word = self.next()?;
        if word == "p" { Ok(Who::President) } else { Ok(Who::Node(node(word)?)) }
    }
    /// A node or a client: an end of a link.
    fn end(&mut self) -> Result<Who, String> {
        let word = self.next()?;
        match word.strip_prefix('c').map(str::parse) {
            Some(Ok(number)) => Ok(Who::Client(number)),
            _ if word == "p" => Ok(Who::President),
            _ => Ok(Who::Node(node(word)?)),
        }
    }
    fn knob(&mut self) -> Result<Knob, String> {
        let word = self.next()?;
        let known = Knob::ALL.iter().find(|knob| knob.name() == word);
        known.copied().ok_or_else(|| format!("`{word}` is no setting of a cluster"))
    }
    fn small(&mut self) -> Result<u32, String> {
        let number = self.number()?;
        u32::try_from(number).map_err(|_| format!("{number} is too large"))
    }
    fn side(&mut self) -> Result<Vec<NodeId>, String> {
        parse_side(self.next()?)
    }
}

/// Reads a time as [`time_name`] writes it.
///
/// # Errors
/// It is no time.
pub fn parse_time(word: &str) -> Result<u64, String> {
    let units = [("us", US), ("ms", MS), ("s", 1000 * MS)];
    let parsed = units.iter().find_map(|(unit, ns)| word.strip_suffix(unit)?.parse::<u64>().ok()?.checked_mul(*ns));
    parsed.ok_or_else(|| format!("`{word}` is not a time like 20ms"))
}

fn node(word: &str) -> Result<NodeId, String> {
    let number = |text: &str, base: u16| text.parse::<u16>().ok().and_then(|n| n.checked_add(base)).map(NodeId);
    let parsed = match word.split_at_checked(1) {
        Some(("n", rest)) => number(rest, 0).filter(|n| n.is_data()),
        Some(("m", rest)) => number(rest, NodeId::MGMT_BASE).filter(|n| n.is_mgmt()),
        Some(("s", rest)) => number(rest, NodeId::ARBITRATOR_BASE).filter(|n| n.is_sql_arbitrator()),
        _ => None,
    };
    parsed.ok_or_else(|| format!("`{word}` is no node like n1, m1 or s1"))
}

fn parse_side(word: &str) -> Result<Vec<NodeId>, String> {
    word.split('+').map(node).collect()
}

fn fault(kind: &str, w: &mut Words<'_>) -> Result<Fault, String> {
    Ok(match kind {
        "crash" => Fault::Crash { who: w.who()?, down: w.time()? },
        "leave" => Fault::Leave { who: w.who()?, down: w.time()? },
        "roll" => Fault::Roll { first: w.node()? },
        "set" => Fault::Set { knob: w.knob()?, value: w.small()? },
        "power" => Fault::Power { who: w.who()?, down: w.time()? },
        "pause" => Fault::Pause { who: w.who()?, lasts: w.time()? },
        "freeze" => Fault::Freeze { who: w.who()?, lasts: w.time()? },
        "stick" => {
            let (who, worker) = (w.who()?, w.number()?);
            let worker = u8::try_from(worker).map_err(|_| format!("there is no worker {worker}"))?;
            Fault::Stick { who, worker, lasts: w.time()? }
        }
        "slow" | "lag" => {
            let (who, factor) = (w.who()?, w.number()?);
            Fault::Slow { who, factor, lasts: w.time()?, data_only: kind == "lag" }
        }
        "cut" => Fault::Cut { a: w.end()?, b: w.end()?, lasts: w.time()? },
        "mute" | "lose" => Fault::Mute { from: w.end()?, to: w.end()?, lasts: w.time()?, lost: kind == "lose" },
        "split" | "hush" => Fault::Split { side: w.side()?, lasts: w.time()?, silent: kind == "hush" },
        "bridge" | "hushbridge" => {
            Fault::Bridge { side: w.side()?, bridge: w.node()?, lasts: w.time()?, silent: kind == "hushbridge" }
        }
        "stall" => {
            let side = match w.next()? {
                "all" => None,
                word => Some(parse_side(word)?),
            };
            Fault::Stall { side, lasts: w.time()? }
        }
        "flap" => Fault::Flap { a: w.end()?, b: w.end()?, period: w.time()?, times: w.number()? },
        "reset" => {
            let (a, b) = (w.end()?, w.end()?);
            let worker = w.words.next().map(|word| word.parse().map_err(|_| format!("`{word}` is no worker")));
            Fault::Reset { a, b, worker: worker.transpose()? }
        }
        "storm" => Fault::Storm { who: w.who()?, period: w.time()?, times: w.number()? },
        "client" => Fault::Client { number: w.number()? },
        "unlink" => Fault::Unlink { number: w.number()?, who: w.who()?, deaf: w.time()?, late: w.time()? },
        "arm" => Fault::Arm { who: w.who()?, point: w.next()?.to_owned(), skip: w.number()? },
        "doom" => {
            let (who, point, skip) = (w.who()?, w.next()?.to_owned(), w.number()?);
            Fault::Doom { who, point, skip, after: w.time()?, down: w.time()? }
        }
        "disk" => {
            let (who, word) = (w.who()?, w.next()?);
            let ailment = Ailment::ALL.iter().find(|a| a.name() == word);
            let ailment =
                *ailment.ok_or_else(|| format!("a disk is slow, fails, full, hangs or rots, not `{word}`"))?;
            Fault::Disk { who, ailment, lasts: w.time()? }
        }
        _ => return Err(format!("`{kind}` is no fault")),
    })
}

impl FromStr for Round {
    type Err = String;
    fn from_str(text: &str) -> Result<Round, String> {
        let mut faults = Vec::new();
        let mut end = None;
        for part in text.split(',') {
            if end.is_some() || faults.len() >= PARTS_MAX {
                return Err(format!(
                    "a round ends with `heal`, `core`, `hold`, `ruin`, `dark`, `stop` or `force`: `{}`",
                    text.trim()
                ));
            }
            let mut words = Words { text: part, words: part.split_whitespace() };
            let at = words.time()?;
            let word = words.next()?;
            match Then::ALL.iter().find(|then| then.name() == word) {
                Some(then) => end = Some((at, *then)),
                None => faults.push((at, fault(word, &mut words)?)),
            }
            if let Some(word) = words.words.next() {
                return Err(format!("`{word}` is too much in `{}`", part.trim()));
            }
        }
        let (end, then) =
            end.ok_or_else(|| format!("no `heal`, `core`, `hold` or `ruin` at the end of `{}`", text.trim()))?;
        Ok(Round { faults, end, then })
    }
}

impl FromStr for Schedule {
    type Err = String;
    /// An empty text is a schedule without faults.
    fn from_str(text: &str) -> Result<Schedule, String> {
        let rounds: Vec<&str> = text.split('/').filter(|part| !part.trim().is_empty()).collect();
        if rounds.len() > PARTS_MAX {
            return Err(format!("more than {PARTS_MAX} rounds"));
        }
        rounds.into_iter().map(Round::from_str).collect::<Result<_, _>>().map(Schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "60ms crash n1 30ms, 60ms power p 30ms, 70ms leave p 300ms, 81us pause p 700ms, 1ms freeze n1 90ms, 1ms stick n1 1 80ms, 1ms slow n2 100 1000ms, 1ms lag n2 100 1000ms, 5ms cut n1 p 3ms, \
        6ms mute n1 m1 8ms, 6ms lose m1 n2 8ms, 900ms core / 163ms split n1+m1 1310ms, 7ms hush n2 1ms, \
        8ms bridge n1 n2 4ms, 8ms hushbridge n1+n3 n2 4ms, 9ms flap n1 n2 10ms 4, 9ms stall all 30ms, 9ms stall n1+n2 20ms, 1500ms heal / \
        1ms reset n1 n2, 2ms reset n1 n2 1, 3ms storm n1 5ms 3, 3ms client 2, 3ms unlink 1 n2 5ms 70ms, 4ms arm n1 tc.x 3, 5ms cut c0 n1 9ms, \
        5ms mute n1 c1 8000ms, 5ms hold / 1ms doom p dict.drop_commit 3 2ms 30ms, 2ms doom m1 file 0 2us 3ms, 3ms disk n1 slow 9ms, \
        4ms disk m1 fails 9ms, 5ms disk n2 full 9ms, 7ms ruin / \
        1ms roll n2, 5ms heal / 1ms set silence_ms 200, 2ms set gcp_interval 20, 3ms set durability 1, 5ms stop / 1ms set eject_slow_ms 20, 2ms power n1 9ms, 5ms force";

    #[test]
    fn a_schedule_reads_as_it_is_written() {
        let schedule: Schedule = ALL.parse().expect("every kind of fault");
        assert_eq!(schedule.to_string(), ALL);
        assert_eq!(schedule.to_string().parse(), Ok(schedule));
        assert_eq!("".parse(), Ok(Schedule::default()));
    }

    #[test]
    fn what_is_no_schedule_is_refused() {
        for text in [
            "1ms crash n1 2ms",
            "1ms crash n1, 2ms heal",
            "1ms crash x1 2ms, 2ms heal",
            "1ms crash n0 2ms, 2ms heal",
            "1ms crash n999 2ms, 2ms heal",
            "1 crash n1 2ms, 2ms heal",
            "1ms heal, 2ms crash n1 1ms",
            "1ms burn n1 2ms, 2ms heal",
            "1ms crash n1 2ms 7, 2ms heal",
            "1ms crash c0 2ms, 2ms heal",
            "99999999999999999999s heal",
            "18446744073709551615s heal",
        ] {
            assert!(text.parse::<Schedule>().is_err(), "{text}");
        }
    }
}
