//! What an operator asks for: settings go to all members; what ends or forces something is passed on to the processes that are named, as long as they are what the operator has seen.

use std::collections::BTreeMap;

use apus_kernel::Context;
use apus_signal::{
    BlockId, BlockRef, Kind,
    mgmt::Setting,
    operator::{ClusterStop, EndOrder, Resume, ResumeAnswer},
    qmgr::{Incarnation, encode},
    speeds::Speeds,
    tc::RequestRef,
};
use apus_types::{ErrorCode, NodeId};

use crate::Management;

/// Most questions of operators that wait for an answer.
const ASKED_MAX: usize = 16;

/// Operators that wait for a data node's answer: the link, and the number of their request; by our own number.
#[derive(Default)]
pub(crate) struct Asked {
    waiting: BTreeMap<u64, (BlockRef, u64)>,
    last: u64,
}

impl Management {
    fn qmgr_of(node: u32) -> BlockRef {
        BlockRef::new(NodeId(node as u16), BlockId::Qmgr, BlockRef::CONTROL)
    }

    fn is_linked(&self, process: &Incarnation) -> bool {
        self.links.get(&NodeId(process.node as u16)) == Some(&process.incarnation)
    }

    /// Every member hears of it, and the acting president makes a view.
    pub(crate) fn on_setting_req(&self, from: BlockRef, setting: Setting, ctx: &mut Context<'_>) {
        if !setting.is_legal() {
            return refuse(from, setting.request, ErrorCode::ProtocolViolation, ctx);
        }
        let Setting { silence_ms, eject_slow_ms, durability, gcp_interval_ms, checkpoint_speeds, .. } = setting;
        let speeds = checkpoint_speeds.unwrap_or_default().values().map(|v| (v != 0).then_some(v));
        let settings = [
            ("silence_ms", silence_ms),
            ("eject_slow_ms", eject_slow_ms),
            ("durability", durability),
            ("gcp_interval", gcp_interval_ms),
        ];
        let settings = settings.into_iter().chain(Speeds::NAMES.into_iter().zip(speeds));
        for (name, value) in settings.filter_map(|(n, v)| Some((n, v?))) {
            ctx.log(format_args!("{name} is to be {value}"));
        }
        for node in self.links.keys().filter(|n| n.is_data()) {
            let to = BlockRef::new(*node, BlockId::Qmgr, BlockRef::CONTROL);
            ctx.send(to, Kind::SettingOrd, |b| encode(&setting, b));
        }
        ctx.send(from, Kind::SettingConf, |b| encode(&setting, b));
    }

    pub(crate) fn on_stop_req(&mut self, from: BlockRef, req: ClusterStop, ctx: &mut Context<'_>) {
        if req.cluster != self.config.cluster {
            return refuse(from, req.request, ErrorCode::WrongCluster, ctx);
        }
        let mut told = req.clone();
        told.processes.retain(|process| process.node <= NodeId::DATA_MAX.into() && self.is_linked(process));
        for process in &told.processes {
            let order = EndOrder { incarnation: process.incarnation, ..EndOrder::default() };
            ctx.send(Self::qmgr_of(process.node), Kind::EndOrd, |b| encode(&order, b));
        }
        let is_told = |node: u32, incarnation: u64| told.processes.contains(&Incarnation { node, incarnation });
        // What is on disks is not given up: the nodes go on with it when they are started again.
        told.durable = self.heard.values().any(|h| h.durable);
        let all_told = self.view.as_ref().is_some_and(|v| v.living().all(|n| is_told(n.id, n.incarnation)));
        told.given_up = all_told && !told.durable;
        if told.given_up {
            self.arbitrator.give_up();
            self.write_down(ctx);
        }
        let list: Vec<u32> = told.processes.iter().map(|p| p.node).collect();
        ctx.log(format_args!("an operator ends data nodes {list:?}"));
        ctx.send(from, Kind::ClusterStopConf, |b| encode(&told, b));
    }

    pub(crate) fn on_resume_req(&mut self, from: BlockRef, req: &Resume, ctx: &mut Context<'_>) {
        let leader = req.leader.filter(|leader| self.is_linked(leader));
        let Some(leader) = leader.filter(|_| req.cluster == self.config.cluster) else {
            let reason = "this management node has no link to the process that leads the frozen side".to_owned();
            let answer = ResumeAnswer { request: req.request, error: ErrorCode::NoNodeAvailable as u32, reason };
            ctx.send(from, Kind::ResumeConf, |b| encode(&answer, b));
            return;
        };
        self.asked.last += 1;
        let number = self.asked.last;
        if self.asked.waiting.len() >= ASKED_MAX {
            self.asked.waiting.pop_first();
        }
        self.asked.waiting.insert(number, (from, req.request));
        let abandoned: Vec<u32> = req.abandons.iter().map(|a| a.node).collect();
        ctx.log(format_args!("an operator makes the side of data node {} go on without {abandoned:?}", leader.node));
        let order = Resume { request: number, ..req.clone() };
        ctx.send(Self::qmgr_of(leader.node), Kind::ResumeOrd, |b| encode(&order, b));
    }

    pub(crate) fn on_resume_rep(&mut self, answer: ResumeAnswer, ctx: &mut Context<'_>) {
        if let Some((operator, request)) = self.asked.waiting.remove(&answer.request) {
            let answer = ResumeAnswer { request, ..answer };
            ctx.send(operator, Kind::ResumeConf, |b| encode(&answer, b));
        }
    }
}

fn refuse(to: BlockRef, request: u64, code: ErrorCode, ctx: &mut Context<'_>) {
    let refusal = RequestRef::new(request, code);
    ctx.send(to, Kind::RequestRef, |b| refusal.encode(b));
}
