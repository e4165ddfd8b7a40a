//! Groups and distinct rows that data nodes make beside the data ([`apus_eval::grouping`]), so that few rows cross the network.
//!
//! A data node puts rows together whose columns are stored alike, one page of a scan at a time. What comes is a group's first row and what its aggregates have so far; the sink computes the key of that row as of any other and
//! adds what came to the group that has this key. So texts that a collation has for equal, and parts of a group from other pages and other nodes, meet where they always did. Aggregates of distinct values take them from first
//! rows: their arguments' columns tell groups apart as well.
//!
//! Not pushed: what a scan's filter does not decide, WITH ROLLUP, keys that are computed, aggregates of doubles (their sum depends on the order) and of texts, arithmetic without a DECIMAL (whose overflow is an error of BIGINT).
//! Nor what would have as many groups as rows, as far as a unique key says so. A value that does not fit 128 bits ends the scan; the rows are read then, and evaluation says what becomes of it. The same
//! where groups need more memory than the statement has: only rows can be in files.

use std::rc::Rc;

use apus_eval::{
    fixed::{self, Program},
    grouping::{self, KEYS_MAX, PROGRAMS_MAX, SLOTS_MAX, Slot},
};
use apus_types::{
    RowLayout,
    schema::{ColumnType, TableSchema},
};

use super::{
    bind::{Aggregate, AggregateKind},
    select::Group,
};
use crate::expr::{
    Context, Env, Expr,
    exact::{Exact, Face},
};

/// Which groups there are, and how each aggregate is computed.
#[derive(Debug)]
pub struct PushedGroup {
    /// Columns of the table that tell groups apart.
    keys: Vec<u16>,
    parts: Vec<Part>,
    /// What is sent, and what comes, where no parameter has a say.
    prepared: Option<(Vec<u8>, Rc<Partials>)>,
}

/// How an aggregate is computed of partial groups.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Part {
    /// Of the first row of each: only distinct values count.
    FirstRow,
    Rows,
    /// Values that are not NULL of a column of the table.
    Values(u16),
    Sum,
    Least,
    Greatest,
}

/// What comes of a partial group.
#[derive(Clone, Debug, Default)]
pub struct Partials {
    pub slots: Vec<Slot>,
    /// Of each aggregate: its slot, and what the number there is; `None`: the first row is its only one.
    pub of: Vec<Option<(usize, Face)>>,
}

impl PushedGroup {
    /// Of a block over one table; columns are still those of the table.
    pub fn of_groups(schema: &TableSchema, group: &Group) -> Option<PushedGroup> {
        if group.each_row || group.rollup || !group.groupings.is_empty() {
            return None;
        }
        let mut keys = Vec::new();
        for key in &group.keys {
            match &key.expr {
                Expr::Column(c) => keys.push(c.slot),
                _ => return None,
            }
        }
        let parts: Vec<Part> = group.aggregates.iter().map(part_of).collect::<Option<_>>()?;
        for (part, aggregate) in parts.iter().zip(&group.aggregates) {
            if let (Part::FirstRow, Some(Expr::Column(c))) = (part, &aggregate.argument) {
                keys.push(c.slot);
            }
        }
        PushedGroup::of(schema, keys, parts)
    }

    /// The distinct rows of these columns.
    pub fn of_distinct(schema: &TableSchema, columns: &[u16]) -> Option<PushedGroup> {
        let pushed = PushedGroup::of(schema, columns.to_vec(), Vec::new())?;
        let mut bytes = Vec::new();
        grouping::encode(&pushed.keys, &[], &[], &mut bytes);
        Some(PushedGroup { prepared: Some((bytes, Rc::default())), ..pushed })
    }

    fn of(schema: &TableSchema, mut keys: Vec<u16>, parts: Vec<Part>) -> Option<PushedGroup> {
        keys.sort_unstable();
        keys.dedup();
        let is_key = |c: &u16| schema.columns.get(usize::from(*c)).is_some_and(|c| grouping::is_key(c.ty));
        let may = keys.len() <= KEYS_MAX && parts.len() <= SLOTS_MAX && keys.iter().all(is_key);
        (may && !is_unique(schema, &keys)).then_some(PushedGroup { keys, parts, prepared: None })
    }

    /// Does once what [`bind`](PushedGroup::bind) would do each time, where no parameter has a say; false: an argument has no program. `columns` are those of the table that its rows have.
    pub fn prepare(&mut self, group: &Group, columns: &[u16], layout: &RowLayout, env: &Env) -> bool {
        let mut arguments = group.aggregates.iter().filter_map(|a| a.argument.as_ref());
        if arguments.any(Expr::has_param) {
            return true;
        }
        let cx = Context { layout, row: &[], new_row: None, params: &[], aggregates: &[], given: &[], env };
        let mut bytes = Vec::new();
        self.prepared = self.compile(group, columns, &cx, &mut bytes).map(|partials| (bytes, Rc::new(partials)));
        self.prepared.is_some()
    }

    /// Writes what is sent; `None` where an argument has no program.
    pub fn bind(
        &self,
        group: Option<&Group>,
        columns: &[u16],
        cx: &Context<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Rc<Partials>> {
        match (&self.prepared, group) {
            (Some((bytes, partials)), _) => {
                out.extend_from_slice(bytes);
                Some(partials.clone())
            }
            (None, Some(group)) => self.compile(group, columns, cx, out).map(Rc::new),
            (None, None) => None,
        }
    }

    fn compile(&self, group: &Group, columns: &[u16], cx: &Context<'_>, out: &mut Vec<u8>) -> Option<Partials> {
        let mut programs: Vec<Program> = Vec::new();
        let mut partials = Partials::default();
        for (part, aggregate) in self.parts.iter().zip(&group.aggregates) {
            let (slot, face) = match (part, &aggregate.argument) {
                (Part::FirstRow, _) => {
                    partials.of.push(None);
                    continue;
                }
                (Part::Rows, _) => (Slot::Rows, Face::Decimal(0)),
                (Part::Values(column), _) => (Slot::Values(*column), Face::Decimal(0)),
                (part, argument) => {
                    let (program, face) = Exact::of_table(argument.as_ref()?, cx, columns)?.into_parts();
                    let no = programs.iter().position(|known| *known == program).unwrap_or_else(|| {
                        programs.push(program);
                        programs.len() - 1
                    });
                    (slot_of(*part, no as u8), face)
                }
            };
            let at = partials.slots.iter().position(|known| *known == slot).unwrap_or_else(|| {
                partials.slots.push(slot);
                partials.slots.len() - 1
            });
            partials.of.push(Some((at, face)));
        }
        let steps: usize = programs.iter().map(|program| program.steps().len()).sum();
        if programs.len() > PROGRAMS_MAX || steps > grouping::STEPS_MAX {
            return None;
        }
        grouping::encode(&self.keys, &programs, &partials.slots, out);
        Some(partials)
    }
}

fn slot_of(part: Part, program: u8) -> Slot {
    match part {
        Part::Least => Slot::Least(program),
        Part::Greatest => Slot::Greatest(program),
        _ => Slot::Sum(program),
    }
}

/// How an aggregate is computed; `None`: of all rows, in the SQL node.
fn part_of(a: &Aggregate) -> Option<Part> {
    use AggregateKind::{Avg, Count, CountRows, Max, Min, Sum};
    let column = match &a.argument {
        Some(Expr::Column(c)) => Some(*c),
        _ => None,
    };
    let adds = column.is_none_or(|c| matches!(c.ty, ColumnType::Int { .. } | ColumnType::Decimal { .. }));
    let compares = column.is_none_or(|c| fixed::is_number(c.ty));
    // What no program is made of is found when the statement runs: constants decide.
    let may_compute = || a.argument.as_ref().is_some_and(|e| column.is_some() || is_arithmetic(e));
    match (a.function, a.distinct) {
        (CountRows, _) => Some(Part::Rows),
        (Count, true) => column.map(|_| Part::FirstRow),
        (Sum | Avg, true) => column.filter(|_| adds).map(|_| Part::FirstRow),
        (Count, false) => match column {
            Some(c) => Some(Part::Values(c.slot)),
            None => may_compute().then_some(Part::Least),
        },
        (Sum | Avg, false) => (adds && may_compute()).then_some(Part::Sum),
        (Min, _) => (compares && may_compute()).then_some(Part::Least),
        (Max, _) => (compares && may_compute()).then_some(Part::Greatest),
        _ => None,
    }
}

/// Columns and constants that are added and multiplied.
fn is_arithmetic(e: &Expr) -> bool {
    match e {
        Expr::Arith(_, a, b) => is_arithmetic(a) && is_arithmetic(b),
        Expr::Column(c) => matches!(c.ty, ColumnType::Int { .. } | ColumnType::Decimal { .. }),
        Expr::Const(_) | Expr::Param(_) => true,
        _ => false,
    }
}

/// No two rows have the same of these columns.
fn is_unique(schema: &TableSchema, columns: &[u16]) -> bool {
    let has_all = |key: &[u16]| !key.is_empty() && key.iter().all(|c| columns.contains(c));
    let is_there = |c: &u16| schema.columns.get(usize::from(*c)).is_some_and(|c| !c.nullable);
    let mut unique = schema.indexes.iter().filter(|index| index.unique && index.is_whole());
    has_all(&schema.primary_key) || unique.any(|index| has_all(&index.columns) && index.columns.iter().all(is_there))
}
