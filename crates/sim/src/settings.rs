//! What a seed decides: the shape of the cluster, its network, its clients, and what happens to it.
//!
//! Everything is drawn here, before the run, so that it can be printed, changed and shrunk. Faults are drawn as the atlas allows
//! (`promise`); docs/internals/simulation.md has it in words.

use std::{collections::BTreeSet, fmt};

use apus_blocks::ldm::SLICE_ROWS;
use apus_kernel::Random;
use apus_types::{NodeId, schema::Durability};

mod rounds;

use crate::{
    clock::RATE_PPM_MAX,
    fault::{Fault, Knob, Round, Schedule, Then, parse_time, time_name},
    promise,
    vaults::Encryption,
    workload::Kind,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// One seed in so many begins with a round in which clients lose one link after the other: later, what a node has not seen since it joined is
/// answered "forgotten", and nobody runs it again.
const UNLINKS_ONE_IN: u64 = 2;
/// Of these, and without guests, one in so many has clients who are busy with few rows: what runs after its answer is seen by somebody.
const CROWDS_ONE_IN: u64 = 3;
/// One seed in so many has a guest that stands still with its clocks until the others have gone on without it, and a client that hears so late.
const GUESTS_ONE_IN: u64 = 3;
/// One seed in so many has data nodes that keep nothing in files, and of the others one in so many a round that rests on these.
const KEEPS_NOTHING_ONE_IN: u64 = 4;
/// One seed in so many has SQL nodes that may arbitrate, and of these one in so many a round in which they have to.
const SQLS_ONE_IN: u64 = 2;
const STANDS_IN_ONE_IN: u64 = 2;
/// The same, and a round in which each half of the cluster reaches arbitrators of another kind.
const TWO_COURTS_ONE_IN: u64 = 2;
/// For how long versions are kept after the last reader: mostly far shorter than real nodes do, so that it begins anew all the time.
const LINGERS_NS: [u64; 8] = [0, 3_000_000, 40_000_000, 0, 3_000_000, 0, 3_000_000, apus_blocks::dih::LINGER_NS];
const ORPHANS_ONE_IN: u64 = 3;
/// Seeds with several groups and a round in which these are parted.
const PARTED_ONE_IN: u64 = 3;
/// Banks with so many accounts that one transaction over all of them has more rows at one LDM, in one chain, than a slice may take.
const LARGE_ONE_IN: u64 = 2;
const LARGE_ACCOUNTS: u64 = 2_400;
/// One seed in so many changes the schema.
const CHURN_ONE_IN: u64 = 3;
/// Of the seeds whose nodes keep files, all but one in so many have disks for logs, commits of class `disk`, and machines that all lose power at once.
const REPLICATED_ONE_IN: u64 = 6;
/// One seed in so many has a round in which what a removed node has said arrives late, and one in so many three
/// in which both halves ask the arbitrator.
const LATE_ONE_IN: u64 = 2;
/// One seed in so many of those with three data nodes or more has two rounds in which a node dies while what others pass on for it is held up.
const RELAYED_ONE_IN: u64 = 2;
const HALVES_ONE_IN: u64 = 3;
/// One seed in so many has a round in which an operator restarts all data nodes, one after the other.
const ROLLS_ONE_IN: u64 = 4;
/// One seed in so many of those with replicas has a round in which a node that is slow leaves, as a setting wants it.
const EJECTS_ONE_IN: u64 = 6;
/// One seed in so many of those with replicas has a round after which an operator may have to make the rest go on.
const FORCES_ONE_IN: u64 = 3;
/// One seed in so many has operators who change settings amid faults.
const SETS_ONE_IN: u64 = 3;
/// One seed in so many ends with more than is promised to be lived through.
const RUINS_ONE_IN: u64 = 3;
/// Seeds with disks, after whose losses of power the processes may have another number of workers.
const CHANGES_ONE_IN: u64 = 2;
/// Seeds with disks that all hang at once.
const HANGS_ONE_IN: u64 = 3;
/// Of the seeds whose workload can, one in so many prepares transactions before it commits them.
const BRANCHES_ONE_IN: u64 = 3;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    pub seed: u64,
    pub workload: Kind,
    pub groups: u8,
    pub replicas: u8,
    pub workers: u8,
    /// Management nodes.
    pub mgmts: u8,
    /// SQL nodes that may arbitrate.
    pub sqls: u8,
    pub clients: u64,
    pub tellers_per_client: u64,
    pub accounts: u64,
    /// A restarted node has the address that it had before.
    pub fixed_addresses: bool,
    /// Longest time on a link and between two workers of a node, ns.
    pub link_delay_max_ns: u64,
    pub ring_delay_max_ns: u64,
    /// One message in so many takes up to so much longer, ns.
    pub link_spike_ns: (u64, u64),
    pub link_bytes_per_ms: Option<u64>,
    /// Each machine's clock began by up to so much earlier than virtual time, ns, and is wrong by so many parts per million.
    pub clock_offset_ns: u64,
    pub clock_rate_ppm: u64,
    /// Each process reads the time since it began, not its machine's clock.
    pub clock_per_process: bool,
    /// What a signal costs a worker, ns; 0: nothing.
    pub signal_ns: u64,
    /// Of what rows cost at worst, so many thousandths pass.
    pub row_permille: u64,
    /// Longest pause of a teller between two transfers, ns.
    pub pause_max_ns: u64,
    /// The same for those of the first client, where they are idle; 0: as all others.
    pub idle_max_ns: u64,
    /// Somebody makes and drops tables and indexes beside the workload.
    pub churn: bool,
    /// Rows of a slice in which transactions end, and the pause between two slices, ns.
    pub slice_rows: u32,
    pub slice_pause_ns: u64,
    /// How long versions are kept after the last reader at an epoch, ns.
    pub linger_ns: u64,
    /// Data nodes keep their views in files.
    pub keeps_views: bool,
    /// They write logs, and commits are of class `disk`.
    pub durable: bool,
    /// The tables of the workload are of class `disk`, and the cluster is not.
    pub by_table: bool,
    /// Bytes of a log's segment.
    pub segment_bytes: u64,
    /// A log that has grown by so much begins a checkpoint.
    pub checkpoint_bytes: u64,
    /// From one look at all files to the next; 0: never.
    pub scrub_ns: u64,
    /// Some transactions are prepared before they are committed.
    pub branches: bool,
    /// How the number of workers changes where no process of a data node is left; 0: never.
    pub change: u64,
    /// Which of their files are encrypted.
    pub encryption: Encryption,
    pub schedule: Schedule,
}

impl Settings {
    /// A cluster of one group of two nodes mostly, with two or three rounds of faults.
    pub fn from_seed(seed: u64) -> Settings {
        let mut random = Random::new(seed ^ 0x6261_6e6b);
        // Small clusters are the most likely to be run, and the fastest.
        let (groups, replicas) =
            [(1, 2), (1, 2), (1, 2), (2, 2), (1, 3), (1, 1), (1, 4), (3, 2), (2, 3), (4, 2)][random.below(10) as usize];
        let workers = if random.one_in(8) { 3 } else { 1 + random.below(2) as u8 };
        let clients = 1 + random.below(3);
        let ends = ends(seed);
        let mut settings = Settings {
            seed,
            workload: Kind::from_seed(seed),
            groups,
            replicas,
            workers,
            mgmts: 1 + u8::from(random.one_in(3)),
            sqls: sqls(seed),
            clients,
            tellers_per_client: 1 + random.below(4),
            accounts: if random.one_in(6) { 1000 } else { 4 + random.below(60) },
            fixed_addresses: random.one_in(2),
            link_delay_max_ns: [300_000, 300_000, 3 * MS, 10 * MS, 10 * MS][random.below(5) as usize],
            ring_delay_max_ns: [20_000, 20_000, 500_000, 5 * MS][random.below(4) as usize],
            link_spike_ns: if random.one_in(2) { (20 + random.below(500), random.below(60 * MS)) } else { (0, 0) },
            link_bytes_per_ms: random.one_in(5).then(|| [2_000, 20_000, 200_000][random.below(3) as usize]),
            clock_offset_ns: 0,
            clock_rate_ppm: 0,
            clock_per_process: Random::new(seed ^ 0x0062_6f72_6e00).one_in(2),
            signal_ns: 0,
            row_permille: [0, 10, 30, 100][(seed / 8 % 4) as usize],
            pause_max_ns: 4 * MS,
            idle_max_ns: 0,
            churn: false,
            slice_rows: ends.0,
            slice_pause_ns: ends.1,
            linger_ns: LINGERS_NS[(seed / 4 % 8) as usize],
            keeps_views: !seed.is_multiple_of(KEEPS_NOTHING_ONE_IN),
            durable: false,
            by_table: false,
            segment_bytes: 4 << 20,
            checkpoint_bytes: 1 << 20,
            scrub_ns: 0,
            branches: false,
            change: 0,
            encryption: Encryption::Never,
            schedule: Schedule::default(),
        };
        if settings.workload == Kind::Bank && Random::new(seed ^ 0x6c_6172_6765).one_in(LARGE_ONE_IN) {
            settings.accounts = LARGE_ACCOUNTS;
            settings.workers = 1;
        } else if settings.workload == Kind::Bank && settings.linger_ns <= LINGERS_NS[1] {
            // Much changes while versions begin to be kept, and some nodes hear of it later than others.
            (settings.accounts, settings.tellers_per_client, settings.pause_max_ns) = (4 + seed % 8, 4, MS);
            settings.link_delay_max_ns = [300_000, 3 * MS, 10 * MS, 10 * MS][(seed / 5 % 4) as usize];
        }
        if settings.workload == Kind::Set {
            // Its reads show everything that was ever inserted, so its judge takes the square of what is done.
            settings.tellers_per_client = settings.tellers_per_client.min(2);
            settings.pause_max_ns = 40 * MS;
        }
        settings.clock_offset_ns = [0, 3_600_000 * MS, 8_640_000_000 * MS][random.below(3) as usize];
        settings.clock_rate_ppm = [0, 100, 1_000, RATE_PPM_MAX][random.below(4) as usize];
        settings.signal_ns = [0, 0, 500, 2_000][random.below(4) as usize];
        let rounds = 2 + random.below(3);
        for _ in 0..rounds {
            let round = settings.round(&mut random);
            settings.schedule.0.push(round);
        }
        settings.churn = random.one_in(CHURN_ONE_IN);
        // With two nodes the president's death leaves nobody who could have missed what the other has.
        let halves = if settings.churn && settings.data_nodes().len() > 2 { random.below(5) } else { 0 };
        for _ in 0..halves {
            let round = settings.half_change(&mut random);
            settings.schedule.0.extend(Some(round).filter(|round| promise::refusal(&settings, round).is_none()));
        }
        let mut guests = Random::new(seed ^ 0x0067_7565_7374);
        let is_large = settings.accounts == LARGE_ACCOUNTS;
        if !is_large && guests.one_in(GUESTS_ONE_IN) {
            settings.add_guests(&mut guests);
        }
        if random.one_in(UNLINKS_ONE_IN) {
            if !is_large && settings.idle_max_ns == 0 && guests.one_in(CROWDS_ONE_IN) {
                settings.crowd();
            }
            let round = settings.unlinks(&mut random);
            settings.schedule.0.insert(0, round);
        }
        let mut random = Random::new(seed ^ 0x6b65_7074);
        if random.one_in(ORPHANS_ONE_IN) {
            let round = settings.orphans(&mut random);
            let is_promised = promise::refusal(&settings, &round).is_none();
            settings.schedule.0.extend(Some(round).filter(|_| is_promised));
        }
        if settings.groups > 1 && random.one_in(PARTED_ONE_IN) {
            let round = settings.parted(&mut random);
            settings.schedule.0.push(round);
        }
        let mut random = Random::new(seed ^ 0x7374_616e_6473);
        if settings.sqls > 0 && settings.data_nodes().len() > 1 && random.one_in(STANDS_IN_ONE_IN) {
            let round = settings.stands_in(&mut random);
            let is_promised = promise::refusal(&settings, &round).is_none();
            settings.schedule.0.extend(Some(round).filter(|_| is_promised));
        }
        if settings.sqls > 0 && settings.data_nodes().len().is_multiple_of(2) && random.one_in(TWO_COURTS_ONE_IN) {
            let round = settings.two_courts(&mut random);
            let is_promised = promise::refusal(&settings, &round).is_none();
            settings.schedule.0.extend(Some(round).filter(|_| is_promised));
        }
        let mut random = Random::new(seed ^ 0x6c61_7465);
        if settings.data_nodes().len() > 1 && random.one_in(LATE_ONE_IN) {
            let round = settings.late(&mut random);
            let is_promised = promise::refusal(&settings, &round).is_none();
            settings.schedule.0.extend(Some(round).filter(|_| is_promised));
        }
        if settings.data_nodes().len() > 1 && settings.mgmts == 1 && random.one_in(HALVES_ONE_IN) {
            settings.clients = settings.clients.max(2);
            for _ in 0..3 {
                let round = settings.halves(&mut random);
                let is_promised = promise::refusal(&settings, &round).is_none();
                settings.schedule.0.extend(Some(round).filter(|_| is_promised));
            }
        }
        let mut random = Random::new(seed ^ 0x7265_6c61);
        if settings.data_nodes().len() > 2 && random.one_in(RELAYED_ONE_IN) {
            for _ in 0..2 {
                let round = settings.relayed(&mut random);
                let is_promised = promise::refusal(&settings, &round).is_none();
                settings.schedule.0.extend(Some(round).filter(|_| is_promised));
            }
        }
        let mut random = Random::new(seed ^ 0x726f_6c6c);
        if settings.replicas > 1 && random.one_in(ROLLS_ONE_IN) {
            let first = settings.any_data(&mut random);
            let begin = US * (1 + random.below(50_000));
            settings.schedule.0.push(Round {
                faults: vec![(begin, Fault::Roll { first })],
                end: begin + MS,
                then: Then::Heal,
            });
        }
        let mut random = Random::new(seed ^ 0x656a_6563);
        if settings.replicas > 1 && random.one_in(EJECTS_ONE_IN) {
            let round = settings.ejected(&mut random);
            let is_promised = promise::refusal(&settings, &round).is_none();
            settings.schedule.0.extend(Some(round).filter(|_| is_promised));
        }
        let mut disks = Random::new(seed ^ 0x6469_736b);
        // The judges of the others take what was read for what has happened, and a change may be read before it is on disk.
        let is_judged = matches!(settings.workload, Kind::Bank | Kind::Register | Kind::Unique);
        // What a guest answers shows in reads only.
        let is_for_reads = settings.idle_max_ns > 0 && disks.one_in(2);
        if settings.keeps_views && is_judged && !is_for_reads && !disks.one_in(REPLICATED_ONE_IN) {
            settings.durable = true;
            settings.by_table = Random::new(seed ^ 0x636c_6173).one_in(3);
            let mut checkpoints = Random::new(seed ^ 0x6c63_7073);
            settings.checkpoint_bytes = [16 << 10, 64 << 10, 256 << 10, 1 << 20][checkpoints.below(4) as usize];
            settings.scrub_ns =
                [0, 200 * MS, 1_000 * MS, 5_000 * MS][Random::new(seed ^ 0x7363_7262).below(4) as usize];
            settings.encryption = match Random::new(seed ^ 0x656e_6372).below(4) {
                0 => Encryption::Always,
                1 => Encryption::Mixed,
                _ => Encryption::Never,
            };
            settings.segment_bytes = [1 << 20, 4 << 20][disks.below(2) as usize];
            for _ in 0..2 + disks.below(3) {
                let rounds = match disks.below(5) {
                    0 => vec![rounds::stopped(&mut disks)],
                    1 | 2 => vec![settings.dark_twice(&mut disks)],
                    3 if settings.replicas > 1 => settings.dark_after_return(&mut disks),
                    _ => vec![settings.dark(&mut disks)],
                };
                if rounds.len() > 1 && checkpoints.one_in(2) {
                    // What the second loss of power is to find is still in the log.
                    settings.checkpoint_bytes = 1 << 20;
                }
                let at = disks.below(settings.schedule.0.len() as u64 + 1) as usize;
                settings.schedule.0.splice(at..at, rounds);
            }
            let mut groups = Random::new(seed ^ 0x6772_6f75);
            if groups.one_in(2) {
                let round = settings.group_dies(&mut groups);
                let at = groups.below(settings.schedule.0.len() as u64 + 1) as usize;
                settings.schedule.0.insert(at, round);
            }
        }
        let mut random = Random::new(seed ^ 0x6665_6e63);
        for _ in 0..2 {
            if !settings.durable || settings.replicas == 1 || random.one_in(3) {
                continue;
            }
            let are_halves = settings.replicas.is_multiple_of(2) && random.below(3) > 0;
            let round = if are_halves { settings.fenced(&mut random) } else { settings.outlived(&mut random) };
            let at = random.below(settings.schedule.0.len() as u64 + 1) as usize;
            settings.schedule.0.insert(at, round);
        }
        let mut random = Random::new(seed ^ 0x776f_726b);
        if settings.durable && random.one_in(CHANGES_ONE_IN) {
            settings.change = 1 + random.below(1 << 32);
        }
        settings.branches = matches!(settings.workload, Kind::Bank | Kind::Unique)
            && Random::new(seed ^ 0x6272_616e).one_in(BRANCHES_ONE_IN);
        let mut random = Random::new(seed ^ 0x666f_7263);
        if settings.replicas > 1 && random.one_in(FORCES_ONE_IN) {
            let round = settings.forced(&mut random);
            let at = random.below(settings.schedule.0.len() as u64 + 1) as usize;
            settings.schedule.0.insert(at, round);
        }
        let mut random = Random::new(seed ^ 0x756e_7772);
        if !settings.durable && settings.data_nodes().len() == 2 && settings.keeps_views && random.one_in(2) {
            let round = settings.unwritten(&mut random);
            settings.schedule.0.push(round);
        }
        let mut random = Random::new(seed ^ 0x6875_6e67);
        if settings.keeps_views && settings.data_nodes().len() > 1 && random.one_in(HANGS_ONE_IN) {
            let round = settings.hung(&mut random);
            let at = random.below(settings.schedule.0.len() as u64 + 1) as usize;
            settings.schedule.0.insert(at, round);
        }
        let mut random = Random::new(seed ^ 0x7365_7474);
        if random.one_in(SETS_ONE_IN) {
            settings.add_sets(&mut random);
        }
        let mut random = Random::new(seed ^ 0x7275_696e);
        if !settings.durable && random.one_in(RUINS_ONE_IN) {
            let forgets = settings.replicas == 2 && random.one_in(2);
            let round = if forgets { settings.forgetting(&mut random) } else { settings.ruin(&mut random) };
            settings.schedule.0.push(round);
        }
        // A run may end with these. Where rows are on disks, a cluster that is lost to memory comes back: that has rounds of its own.
        let is_durable = settings.durable;
        settings.schedule.0.retain(|round| !is_durable || round.then != Then::Ruin);
        settings.schedule.0.sort_by_key(|round| round.then == Then::Ruin);
        settings
    }
    /// In some rounds an operator changes a setting, before, amid or after what else happens.
    fn add_sets(&mut self, random: &mut Random) {
        for at in 0..self.schedule.0.len() {
            if random.one_in(2) {
                continue;
            }
            let mut round = self.schedule.0[at].clone();
            for _ in 0..1 + random.below(3) {
                let moment = US * (1 + random.below(round.end / US + 1)).min(round.end / US);
                let (knob, value) = match random.below(3) {
                    0 if self.durable => match random.below(6) as usize {
                        at @ ..4 => (Knob::Checkpoints, [20, 50, 100, 500][at]),
                        at => (Knob::Speed, [1, 50][at - 4]),
                    },
                    // Where only the tables are of class `disk` all else may be at times.
                    1 if self.by_table => (Knob::Class, random.below(2) as u32),
                    _ => (Knob::Silence, [80, 80, 120, 200, 300][random.below(5) as usize]),
                };
                round.faults.push((moment, Fault::Set { knob, value }));
            }
            if promise::refusal(self, &round).is_none() {
                self.schedule.0[at] = round;
            }
        }
    }
    /// Class of the workload's tables.
    pub fn table_class(&self) -> Durability {
        if self.durable && self.by_table { Durability::Disk } else { Durability::Replicated }
    }
    pub fn data_nodes(&self) -> Vec<NodeId> {
        (1..=u16::from(self.groups * self.replicas)).map(NodeId).collect()
    }
    pub fn mgmt_nodes(&self) -> Vec<NodeId> {
        (1..=u16::from(self.mgmts)).map(|n| NodeId(NodeId::MGMT_BASE + n)).collect()
    }
    /// Management nodes, then SQL nodes that may arbitrate.
    pub fn arbitrators(&self) -> Vec<NodeId> {
        let sqls = (1..=u16::from(self.sqls)).map(|n| NodeId(NodeId::ARBITRATOR_BASE + n));
        self.mgmt_nodes().into_iter().chain(sqls).collect()
    }
    /// What can be set by `name=value`, and its value.
    pub fn values(&self) -> Vec<(&'static str, String)> {
        let (one_in, most) = self.link_spike_ns;
        vec![
            ("workload", self.workload.name().to_owned()),
            ("groups", self.groups.to_string()),
            ("replicas", self.replicas.to_string()),
            ("workers", self.workers.to_string()),
            ("mgmts", self.mgmts.to_string()),
            ("sqls", self.sqls.to_string()),
            ("clients", self.clients.to_string()),
            ("tellers", self.tellers_per_client.to_string()),
            ("accounts", self.accounts.to_string()),
            ("fixed", u8::from(self.fixed_addresses).to_string()),
            ("link", time_name(self.link_delay_max_ns)),
            ("ring", time_name(self.ring_delay_max_ns)),
            ("spikes", one_in.to_string()),
            ("spike", time_name(most)),
            ("rate", self.link_bytes_per_ms.unwrap_or(0).to_string()),
            ("offset", time_name(self.clock_offset_ns)),
            ("drift", self.clock_rate_ppm.to_string()),
            ("born", u8::from(self.clock_per_process).to_string()),
            ("cost", self.signal_ns.to_string()),
            ("rows", self.row_permille.to_string()),
            ("pause", time_name(self.pause_max_ns)),
            ("idle", time_name(self.idle_max_ns)),
            ("churn", u8::from(self.churn).to_string()),
            ("slice", self.slice_rows.to_string()),
            ("breath", time_name(self.slice_pause_ns)),
            ("linger", time_name(self.linger_ns)),
            ("files", u8::from(self.keeps_views).to_string()),
            ("durable", u8::from(self.durable).to_string()),
            ("bytable", u8::from(self.by_table).to_string()),
            ("segment", self.segment_bytes.to_string()),
            ("checkpoint", self.checkpoint_bytes.to_string()),
            ("scrub", time_name(self.scrub_ns)),
            ("branches", u8::from(self.branches).to_string()),
            ("change", self.change.to_string()),
            ("encrypt", (self.encryption as u8).to_string()),
        ]
    }
    /// What must be set to come from `other` to this, as [`Settings::set`] reads it; nothing about the schedule.
    pub fn difference(&self, other: &Settings) -> String {
        let pairs = self.values().into_iter().zip(other.values()).filter(|(own, theirs)| own != theirs);
        pairs.map(|((name, value), _)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }
    /// Sets values given as `name=value`, separated by blanks.
    ///
    /// # Errors
    /// The first that is not understood or out of range.
    pub fn set(&mut self, text: &str) -> Result<(), String> {
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not name=value"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("`{word}`: not a number"));
            let small =
                |most: u64| number().and_then(|n| if n <= most { Ok(n) } else { Err(format!("`{word}`: too much")) });
            match name {
                "workload" => {
                    self.workload = Kind::from_name(value).ok_or_else(|| format!("`{word}`: no such workload"))?
                }
                "groups" => self.groups = small(64)?.max(1) as u8,
                "replicas" => self.replicas = small(4)?.max(1) as u8,
                "workers" => self.workers = small(16)?.max(1) as u8,
                "mgmts" => self.mgmts = small(4)?.max(1) as u8,
                "sqls" => self.sqls = small(4)? as u8,
                "clients" => self.clients = small(1000)?.max(1),
                "tellers" => self.tellers_per_client = small(1000)?.max(1),
                "accounts" => self.accounts = small(4000)?.max(2),
                "fixed" => self.fixed_addresses = number()? != 0,
                "link" => self.link_delay_max_ns = parse_time(value)?,
                "ring" => self.ring_delay_max_ns = parse_time(value)?,
                "spikes" => self.link_spike_ns.0 = number()?,
                "spike" => self.link_spike_ns.1 = parse_time(value)?,
                "rate" => self.link_bytes_per_ms = Some(number()?).filter(|rate| *rate > 0),
                "offset" => self.clock_offset_ns = parse_time(value)?,
                "drift" => self.clock_rate_ppm = small(RATE_PPM_MAX)?,
                "born" => self.clock_per_process = number()? != 0,
                "cost" => self.signal_ns = small(MS)?,
                "rows" => self.row_permille = small(1000)?,
                "pause" => self.pause_max_ns = parse_time(value)?,
                "idle" => self.idle_max_ns = parse_time(value)?,
                "churn" => self.churn = number()? != 0,
                "slice" => self.slice_rows = small(1 << 20)?.max(1) as u32,
                "breath" => self.slice_pause_ns = parse_time(value)?,
                "linger" => self.linger_ns = parse_time(value)?,
                "files" => self.keeps_views = number()? != 0,
                "durable" => self.durable = number()? != 0,
                "bytable" => self.by_table = number()? != 0,
                "checkpoint" => self.checkpoint_bytes = small(1 << 40)?.max(4 << 10),
                "scrub" => self.scrub_ns = parse_time(value)?,
                "branches" => self.branches = number()? != 0,
                "change" => self.change = number()?,
                "encrypt" => {
                    self.encryption = [Encryption::Never, Encryption::Always, Encryption::Mixed][small(2)? as usize];
                }
                "segment" => self.segment_bytes = small(1 << 30)?.max(1 << 20),
                _ => return Err(format!("`{name}` cannot be set")),
            }
        }
        if u32::from(self.groups) * u32::from(self.replicas) > u32::from(NodeId::DATA_MAX) {
            return Err(format!("{} groups of {} replicas are too many nodes", self.groups, self.replicas));
        }
        Ok(())
    }
    /// The members of each group, as the configuration lays them out.
    pub fn group_members(&self) -> Vec<BTreeSet<NodeId>> {
        self.data_nodes().chunks(usize::from(self.replicas)).map(|c| c.iter().copied().collect()).collect()
    }
}

fn sqls(seed: u64) -> u8 {
    let mut random = Random::new(seed ^ 0x0073_716c_7300);
    if random.one_in(SQLS_ONE_IN) { 1 + u8::from(random.one_in(4)) } else { 0 }
}

/// Rows per slice and pause between two slices of a transaction's end: one seed in four is as real nodes are, where no transaction of a workload
/// has more rows than a slice; with the others each end takes several slices, some so slow that faults come between them.
fn ends(seed: u64) -> (u32, u64) {
    let mut random = Random::new(seed ^ 0x656e_6473);
    if random.one_in(4) {
        return (SLICE_ROWS, 0);
    }
    let rows = [1, 1, 1, 2, 3][random.below(5) as usize];
    let pause_most = [0, 100 * US, 2 * MS, 20 * MS][random.below(4) as usize];
    (rows, random.below(pause_most + 1))
}

/// For people: what the seed drew, then the schedule as it can be given back.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.values().into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        writeln!(f, "settings  {}", values.join(" "))?;
        for (number, round) in self.schedule.0.iter().enumerate() {
            writeln!(f, "round {:<3} {round}", number + 1)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_drawn_round_is_within_the_promise() {
        for seed in 1..500 {
            let settings = Settings::from_seed(seed);
            assert!(!settings.schedule.0.is_empty());
            for round in &settings.schedule.0 {
                assert_eq!(promise::refusal(&settings, round), None, "seed {seed}: {round}");
            }
            let text = settings.schedule.to_string();
            assert_eq!(text.parse(), Ok(settings.schedule), "seed {seed}");
        }
    }

    #[test]
    fn values_are_set_as_they_are_printed() {
        let (mut a, b) = (Settings::from_seed(1), Settings { link_bytes_per_ms: Some(7), ..Settings::from_seed(22) });
        a.set(&b.difference(&a)).expect("what was printed");
        assert_eq!(a.values(), b.values());
        assert_eq!(b.difference(&a), "");
        for text in ["clients", "clients=x", "replicas=5", "groups=64 replicas=4", "link=3", "shape=round"] {
            assert!(a.set(text).is_err(), "{text}");
        }
    }
}
