//! An audit: clients come to rest, and what must hold of a cluster in which nothing happens is looked at.

use std::collections::BTreeMap;

use apus_blocks::qmgr::SWITCH_RETRY_MAX_NS;
use apus_types::{Chain, NodeId};

use super::{Drill, Judgement, MS, PATIENCE_NS, PROGRESS_NS, Workload};
use crate::{check::schema, survey::Surveyor, workload::Kind};

/// How the second line of DICT's dump begins when it is about nothing.
const DICT_AT_REST: &str = "prepared None copying false running None queued 0 collecting None locks {}";

impl<W: Workload> Drill<'_, W> {
    pub(super) fn audit(&mut self) -> Result<(), String> {
        self.workload.shut(true);
        let end = self.cluster.now() + PATIENCE_NS;
        while let Err(what) = self.workload.at_rest() {
            if self.cluster.now() >= end {
                return Err(format!("clients do not come to rest: {what}"));
            }
            self.pass(MS)?;
        }
        while let Err(what) = self.check_quiet() {
            self.pass(MS)?;
            if self.cluster.now() >= end + PATIENCE_NS {
                return Err(format!("not quiet: {what}"));
            }
        }
        self.cluster.verify()?;
        self.wait_even()?;
        if self.settings.churn {
            self.survey()?;
        }
        self.check_replicas()?;
        self.workload.read();
        let end = self.cluster.now() + PATIENCE_NS;
        while !self.workload.is_read() {
            if self.cluster.now() >= end {
                return Err("clients do not end reading".to_owned());
            }
            self.pass(MS)?;
        }
        match self.workload.judge()? {
            Judgement::Good => self.report.histories += u64::from(self.settings.workload != Kind::Bank),
            Judgement::Undecided(what) => self.report.undecided.push(what),
        }
        self.report.audits += 1;
        self.workload.shut(false);
        Ok(())
    }

    /// No worker holds anything of a transaction.
    fn check_quiet(&self) -> Result<(), String> {
        for worker in self.workers() {
            let mut dump = String::new();
            worker.dump(&mut dump);
            let is_busy = |line: &&str| {
                let number = |what| number_before(line, what);
                (line.starts_with("TC ") && (number("transactions") > 0 || !line.contains("take-over None")))
                    || (line.starts_with("dict version ") && !line.ends_with(" forwarded 0"))
                    || (line.starts_with("prepared ") && !line.starts_with(DICT_AT_REST))
                    || (line.starts_with("LDM ")
                        && ["transactions", "entries", "waiting", "copy jobs"].iter().any(|what| number(what) > 0))
            };
            if let Some(line) = dump.lines().find(is_busy) {
                return Err(line.to_owned());
            }
        }
        Ok(())
    }

    /// Nothing is open, so nothing keeps primaries from being spread over all members of their groups.
    fn wait_even(&mut self) -> Result<(), String> {
        let end = self.cluster.now() + 2 * SWITCH_RETRY_MAX_NS;
        loop {
            let Some(client) = self.clients.first() else { return Ok(()) };
            let view = client.client.view();
            let uneven = self.settings.group_members().into_iter().find(|group| {
                let primaries = |n: &NodeId| view.chains.iter().filter(|c| Chain(**c).primary() == Some(*n)).count();
                let counts: Vec<usize> = group.iter().map(primaries).collect();
                counts.iter().max() > counts.iter().min().map(|least| least + 1).as_ref()
            });
            match uneven {
                None => return Ok(()),
                Some(group) if self.cluster.now() >= end => {
                    return Err(format!("the primaries of {group:?} are not spread: {:x?}", view.chains));
                }
                Some(_) => self.pass(MS)?,
            }
        }
    }

    /// All nodes have the same dictionary, which is what was acknowledged, and their workers have its tables.
    fn survey(&mut self) -> Result<(), String> {
        let nodes = self.settings.data_nodes();
        let (surveyor, found) = Surveyor::new(nodes.clone());
        let actor = self.cluster.attach(Box::new(surveyor));
        let end = self.cluster.now() + PROGRESS_NS;
        while found.borrow().len() < nodes.len() {
            if self.cluster.now() >= end {
                return Err("a node does not give its dictionary".to_owned());
            }
            self.pass(MS)?;
        }
        self.cluster.detach(actor);
        let found = found.take();
        let dictionary = schema::agreed(&found)?;
        let carried_out = |fragments: Vec<(NodeId, String, String)>| {
            let names: Vec<(NodeId, String)> = fragments.into_iter().map(|(node, name, _)| (node, name)).collect();
            schema::check_carried_out(dictionary, &names)
        };
        // Nobody waits until the workers have carried out a drop.
        while let Err(what) = carried_out(self.fragments()) {
            if self.cluster.now() >= end {
                return Err(what);
            }
            self.pass(MS)?;
        }
        self.workload.survey(dictionary)
    }

    /// All fragments with node, name and content, as the workers tell them.
    fn fragments(&self) -> Vec<(NodeId, String, String)> {
        let mut all = Vec::new();
        for worker in self.workers() {
            let mut dump = String::new();
            worker.dump(&mut dump);
            let lines = dump.lines().filter_map(|line| line.trim().strip_prefix("fragment ")?.split_once(": "));
            all.extend(lines.map(|(name, content)| (worker.config().node, name.to_owned(), content.to_owned())));
        }
        all
    }

    /// Every fragment has equal content on all nodes of its group.
    fn check_replicas(&self) -> Result<(), String> {
        let mut contents: BTreeMap<String, Vec<(NodeId, String)>> = BTreeMap::new();
        for (node, name, content) in self.fragments() {
            contents.entry(name).or_default().push((node, content));
        }
        let rows_and_hash = |content: &str| {
            let hash = content.rsplit("content ").next().unwrap_or_default().to_owned();
            (number_before(content, "rows"), hash)
        };
        for (name, replicas) in contents {
            let is_equal = replicas.windows(2).all(|w| rows_and_hash(&w[0].1) == rows_and_hash(&w[1].1));
            if replicas.len() != usize::from(self.settings.replicas) || !is_equal {
                return Err(format!("replicas of {name} differ: {replicas:?}"));
            }
        }
        Ok(())
    }
}

/// The number that stands right before `what`, 0 if there is none.
fn number_before(line: &str, what: &str) -> u64 {
    let before = line.split(&format!(" {what}")).next().unwrap_or_default();
    if before.len() == line.len() {
        return 0;
    }
    before.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}
