//! `apus bench bank`: proof that nothing acknowledged is lost and nothing is done twice, while data nodes are killed.
//!
//! Workers ([`teller`]) move money between accounts and write a record of each transfer in the same transaction. With `--kills` the
//! data nodes are killed in turn, each when traffic runs: the node dies by SIGKILL, commits must go on, the node is started again and
//! must become a full member again. Then the workers stop at a gate and everything is read, once with each node as the preferred
//! one, so that every replica is looked at, and held against what was acknowledged ([`apus_workload::bank::audit`]). The table of records is never
//! emptied: what was acknowledged before the first kill must still be there after the last.
//!
//! The exit code is 0 only if every audit was right and nothing happened that should not have.

mod nodes;
mod teller;

use std::{
    process::ExitCode,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use apus_client::Client;
use apus_types::Epoch;
use apus_workload::bank::{self, Tables, Terms};

use self::{
    nodes::Executioner,
    teller::{Floor, Gate, LOCK_WAIT_MS},
};
use super::{
    cluster::{DATABASE, connect, create_table, exit_code, on_this_thread},
    numbers::{grouped, per_second},
};
use crate::discover::ClusterArgs;

/// How long commits may stay away, workers may take to finish a transfer, and a node may take to be noticed as dead.
const PATIENCE: Duration = Duration::from_secs(180);
/// Traffic after a node is up again, before the audit.
const AFTER: Duration = Duration::from_millis(500);

#[derive(clap::Args, Clone, Debug)]
pub struct BankArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(2..=10_000_000))]
    accounts: u64,
    /// Of each account at the beginning
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(i64).range(0..=1_000_000_000))]
    balance: i64,
    /// Transfers under way at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    workers: u64,
    /// Threads of the operating system, each with its own client
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=256))]
    threads: u64,
    /// How many times to kill a data node, the nodes in turn
    #[arg(long, default_value_t = 0)]
    kills: u32,
    /// Traffic before each kill, or altogether without kills
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How long a restarted node may take to be a full member again, in seconds
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    restart_timeout: u64,
    /// Shell command that kills node {node}, instead of killing the process of the running `apus dev`
    #[arg(long, value_name = "COMMAND")]
    kill_command: Option<String>,
    /// Shell command that starts node {node} again
    #[arg(long, value_name = "COMMAND")]
    restart_command: Option<String>,
    /// Which transfers are made follows from this; default: random
    #[arg(long)]
    seed: Option<u64>,
}

/// # Errors
/// No cluster was found, it could not be prepared, or it stopped serving for minutes.
pub fn run(args: BankArgs) -> Result<ExitCode, String> {
    let mgmt = args.cluster.find()?;
    let executioner = match args.kills {
        0 => None,
        _ => Some(Executioner::new(args.kill_command.clone(), args.restart_command.clone(), &mgmt)?),
    };
    let seed = args.seed.map_or_else(crate::random_id, Ok)?;
    let terms = Terms { seed, accounts: args.accounts, balance: args.balance };
    let tables = on_this_thread(async { open(&connect(&mgmt, 0).await?, &terms).await })??;
    let workers = args.workers.max(args.threads);
    let floor = Arc::new(Floor::new(mgmt, terms, tables, workers));
    let mut bank = Bank::open(floor, args)?;
    let done = bank.run_all(executioner.as_ref());
    bank.close();
    done?;
    Ok(exit_code(bank.report()))
}

/// Makes the tables anew and opens the accounts.
async fn open(client: &Client, terms: &Terms) -> Result<Tables, String> {
    let [accounts, transfers, _] = bank::definitions(DATABASE);
    let accounts = create_table(client, &accounts).await?;
    let transfers = create_table(client, &transfers).await?;
    let done = bank::open_accounts(client, &accounts, terms, LOCK_WAIT_MS).await;
    done.map_err(|e| format!("cannot open the accounts: {e}"))?;
    Ok(Tables { accounts, transfers, latest: None })
}

struct Bank {
    args: BankArgs,
    floor: Arc<Floor>,
    threads: Vec<thread::JoinHandle<()>>,
    told: (Instant, u64),
    audits: u32,
    kills: u32,
    longest_gap: Duration,
    acknowledged: usize,
    unresolved: usize,
    missing: usize,
    good: bool,
    /// Time with the gate open.
    traffic: Duration,
    opened: Instant,
}

impl Bank {
    /// Starts the threads; the gate is shut.
    fn open(floor: Arc<Floor>, args: BankArgs) -> Result<Bank, String> {
        let (ready, results) = mpsc::channel();
        let mut threads = Vec::new();
        for number in 0..args.threads {
            let share = |n| floor.workers * n / args.threads;
            let (floor, ready, workers) = (floor.clone(), ready.clone(), share(number)..share(number + 1));
            let thread = thread::Builder::new()
                .name(format!("bank-{number}"))
                .spawn(move || teller::run_thread(&floor, number, workers, &ready));
            threads.push(thread.map_err(|e| format!("cannot start a thread: {e}"))?);
        }
        for _ in &threads {
            results.recv().map_err(|_| "a load thread ended".to_owned())??;
        }
        let now = Instant::now();
        Ok(Bank {
            args,
            floor,
            threads,
            told: (now, 0),
            audits: 0,
            kills: 0,
            longest_gap: Duration::ZERO,
            acknowledged: 0,
            unresolved: 0,
            missing: 0,
            good: true,
            traffic: Duration::ZERO,
            opened: now,
        })
    }

    fn run_all(&mut self, executioner: Option<&Executioner>) -> Result<(), String> {
        let Some(executioner) = executioner else {
            self.open_gate();
            self.traffic_for(Duration::from_secs(self.args.seconds));
            let gap = self.floor.take_gap();
            self.longest_gap = gap;
            return self.audit(&format!("longest gap {}", ms(gap)));
        };
        for number in 1..=self.args.kills {
            let nodes = nodes::all_up(&self.floor.mgmt)?;
            let node = nodes[(number as usize - 1) % nodes.len()];
            self.open_gate();
            self.traffic_for(Duration::from_secs(self.args.seconds));
            let text = self.kill_and_restart(executioner, node)?;
            self.kills = number;
            self.audit(&format!("kill {number:>2}/{} node {node}: {text}", self.args.kills))?;
        }
        Ok(())
    }

    /// One node dies and comes back under traffic; what is to be told of it.
    fn kill_and_restart(&mut self, executioner: &Executioner, node: u16) -> Result<String, String> {
        let mgmt = self.floor.mgmt.clone();
        let timeout = Duration::from_secs(self.args.restart_timeout);
        // A node may have been removed for nothing, and be on its way back: a kill now would be one too many.
        let waited = nodes::wait_all_up(&mgmt, timeout, || self.progress())?;
        if !waited.is_zero() {
            println!("a node was removed that nobody had killed; all up again after {:.1} s", waited.as_secs_f64());
        }
        self.floor.take_gap();
        let before = self.floor.commits();
        executioner.kill(node)?;
        // Each worker may have had one commit under way; one more was begun after the kill.
        let enough = before + self.floor.workers + 1;
        self.wait("no transfer was committed after the kill", |floor| floor.commits() >= enough)?;
        nodes::wait_for(&mgmt, node, false, PATIENCE, || self.progress())?;
        self.traffic_for(AFTER);
        let at_kill = self.floor.take_gap();
        executioner.restart(node)?;
        let up_after = nodes::wait_for(&mgmt, node, true, timeout, || self.progress())?;
        let enough = self.floor.commits() + self.floor.workers + 1;
        self.wait("no transfer was committed after the restart", |floor| floor.commits() >= enough)?;
        self.traffic_for(AFTER);
        let at_join = self.floor.take_gap();
        self.longest_gap = self.longest_gap.max(at_kill).max(at_join);
        Ok(format!(
            "longest gap {}, up again after {:.1} s with longest gap {}",
            ms(at_kill),
            up_after.as_secs_f64(),
            ms(at_join)
        ))
    }

    /// Stops the workers and looks at every replica.
    fn audit(&mut self, text: &str) -> Result<(), String> {
        self.shut_gate()?;
        let (acknowledged, unresolved) = self.floor.account();
        let members = crate::status::ask(&self.floor.mgmt)?.nodes.len().max(1) as u64;
        (self.acknowledged, self.unresolved) = (acknowledged.len(), unresolved.len());
        let mut verdict = None;
        for preferred in 0..members {
            let floor = &self.floor;
            let holdings = on_this_thread(async {
                let client = connect(&floor.mgmt, preferred).await?;
                let all = bank::read_all(&client, &floor.tables, Epoch(0)).await;
                all.map_err(|e| format!("cannot read what the cluster holds: {e}"))
            })??;
            let findings = bank::audit(&floor.terms, &acknowledged, &unresolved, &holdings);
            if !findings.is_good() || verdict.is_none() {
                self.good &= findings.is_good();
                self.missing = self.missing.max(findings.missing.len());
                verdict = Some(findings);
            }
        }
        self.audits += 1;
        let verdict = verdict.map(|v| v.to_string()).unwrap_or_default();
        let acknowledged = grouped(self.acknowledged as u64);
        println!("{text}; {acknowledged} acknowledged, {verdict} ({members} nodes read)");
        Ok(())
    }

    /// The summary line; whether all was right.
    fn report(&self) -> bool {
        let violations = self.floor.violations();
        let good = self.good && violations.is_empty() && self.audits > 0;
        let retries: Vec<String> = self.floor.retries().iter().map(|(code, n)| format!("APUS-{code} x{n}")).collect();
        let retries = if retries.is_empty() { "none".to_owned() } else { retries.join(" ") };
        println!(
            "bank: {} kills, {} audits, {} transfers acknowledged ({}/s), {} missing, {} unresolved, longest gap {}, \
             sent again: {retries}, violations {}: {}",
            self.kills,
            self.audits,
            grouped(self.acknowledged as u64),
            grouped(per_second(self.acknowledged as u64, self.traffic)),
            self.missing,
            self.unresolved,
            ms(self.longest_gap),
            violations.len(),
            if good { "PASSED" } else { "FAILED" }
        );
        good
    }

    fn open_gate(&mut self) {
        self.opened = Instant::now();
        self.floor.set_gate(Gate::Open);
    }
    fn shut_gate(&mut self) -> Result<(), String> {
        self.floor.set_gate(Gate::Shut);
        self.wait("a transfer does not end", Floor::is_quiet)?;
        self.traffic += self.opened.elapsed();
        Ok(())
    }
    fn close(&mut self) {
        self.floor.set_gate(Gate::Closed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }

    fn traffic_for(&mut self, time: Duration) {
        let begin = Instant::now();
        while begin.elapsed() < time {
            thread::sleep(Duration::from_millis(20).min(time));
            self.progress();
        }
    }
    fn wait(&mut self, otherwise: &str, done: impl Fn(&Floor) -> bool) -> Result<(), String> {
        let begin = Instant::now();
        while !done(&self.floor) {
            if begin.elapsed() > PATIENCE {
                return Err(format!("{otherwise} within {} s", PATIENCE.as_secs()));
            }
            thread::sleep(Duration::from_millis(2));
            self.progress();
        }
        Ok(())
    }
    /// One line each second.
    fn progress(&mut self) {
        let (then, commits) = self.told;
        if then.elapsed() >= Duration::from_secs(1) {
            let now = self.floor.commits();
            eprintln!("bank   {:>12} transfers/s", grouped(per_second(now - commits, then.elapsed())));
            self.told = (Instant::now(), now);
        }
    }
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}
