//! The choice among the paths to a table's rows, from what its conditions say of its columns.

use apus_types::{
    IndexNo,
    collate::Collation,
    schema::{ColumnType, TableSchema},
};

use super::{
    Access, Interval, POINTS_MAX, Path,
    listed::{self, Listed},
};
use crate::{
    catalog::Table,
    expr::{CastType, CompareOp, Expr, Kind},
    plan::{
        hint::Uses,
        pushed_condition::Pushed,
        rules::{functional, lists},
    },
};

/// Conditions on one column with constants.
#[derive(Default, Clone)]
pub(super) struct OnColumn {
    pub(super) equal: Option<(Vec<Expr>, usize)>,
    pub(super) low: Option<(Expr, bool, usize)>,
    pub(super) high: Option<(Expr, bool, usize)>,
}

pub(crate) fn fits(ty: ColumnType, collation: Collation) -> bool {
    ty.collation().is_none_or(|c| c == collation)
}

/// Its keys are in another order than what they stand for.
fn is_label(ty: ColumnType) -> bool {
    matches!(ty, ColumnType::Label { .. })
}

/// Whether a value may be made a key of a column: it is constant, and where it comes from another column it is of the same kind, so that comparing keys is
/// comparing values.
pub(crate) fn is_key(ty: ColumnType, value: &Expr, params: &[Kind]) -> bool {
    use Kind::*;
    // Whether several constants beside a year are numbers shows when they are there.
    if !value.is_constant() || matches!(value, Expr::Cast(_, CastType::Year { alone: false })) {
        return false;
    }
    if !is_of_outer_row(value) {
        return true;
    }
    matches!(
        (Kind::of(ty), value.kind(params)),
        (Int | UInt | Decimal(_) | Bit(_), Int | UInt | Decimal(_) | Bit(_))
            | (Double, Int | UInt | Decimal(_) | Double | Bit(_))
            | (Text, Text | Label)
            | (Label, Text | Label | Int | UInt)
            | (Bytes, Bytes)
            | (Date | DateTime(_), Date | DateTime(_))
            | (Time(_), Time(_))
    )
}

/// What is a constant for one row of another table.
fn is_of_outer_row(value: &Expr) -> bool {
    value.any(|e| matches!(e, Expr::Outer(_) | Expr::Given(..)))
}

fn gather(table: &TableSchema, conjuncts: &[Expr], params: &[Kind]) -> Vec<OnColumn> {
    let mut found = vec![OnColumn::default(); table.columns.len()];
    for (i, conjunct) in conjuncts.iter().enumerate() {
        match conjunct {
            Expr::Compare(op, a, b, collation) => {
                let (column, value, op) = match (&**a, &**b) {
                    (Expr::Column(c), value) if is_key(c.ty, value, params) => (c, value, *op),
                    (value, Expr::Column(c)) if is_key(c.ty, value, params) => (c, value, op.flipped()),
                    _ => continue,
                };
                let Some(on) = found.get_mut(usize::from(column.slot)).filter(|_| fits(column.ty, *collation)) else {
                    continue;
                };
                match op {
                    CompareOp::Eq if on.equal.as_ref().is_none_or(|(list, _)| list.len() > 1) => {
                        on.equal = Some((vec![value.clone()], i));
                    }
                    _ if is_label(column.ty) => {}
                    CompareOp::Gt | CompareOp::GtEq if on.low.is_none() => {
                        on.low = Some((value.clone(), op == CompareOp::GtEq, i))
                    }
                    CompareOp::Lt | CompareOp::LtEq if on.high.is_none() => {
                        on.high = Some((value.clone(), op == CompareOp::LtEq, i))
                    }
                    _ => {}
                }
            }
            Expr::In { expr, list, negated: false, collation } => {
                if let Expr::Column(c) = &**expr
                    && list.iter().all(|e| is_key(c.ty, e, params))
                    && fits(c.ty, *collation)
                    && let Some(on) = found.get_mut(usize::from(c.slot)).filter(|on| on.equal.is_none())
                {
                    on.equal = Some((list.clone(), i));
                }
            }
            Expr::Between { expr, low, high, negated: false, collation } => {
                if let Expr::Column(c) = &**expr
                    && is_key(c.ty, low, params)
                    && is_key(c.ty, high, params)
                    && !is_label(c.ty)
                    && fits(c.ty, *collation)
                    && let Some(on) =
                        found.get_mut(usize::from(c.slot)).filter(|on| on.low.is_none() && on.high.is_none())
                {
                    on.low = Some(((**low).clone(), true, i));
                    on.high = Some(((**high).clone(), true, i));
                }
            }
            _ => {}
        }
    }
    found
}

/// The indexes of a table, and what hints say of them.
pub(super) struct Candidates<'c> {
    pub(super) table: &'c Table,
    uses: Option<&'c Uses>,
}

/// Longest OR that is looked at for an index that might be used.
const ALTERNATIVES_SHOWN_MAX: usize = 64;

/// More than any bounds are worth: a hint wants rows in the order of an index.
const FORCED: u32 = 10_000;

impl<'c> Candidates<'c> {
    /// It may lead to rows.
    pub(super) fn allows(&self, no: IndexNo) -> bool {
        self.uses.is_none_or(|uses| uses.join.allows(no))
    }
    fn may_order(&self, no: IndexNo) -> bool {
        self.uses.is_none_or(|uses| uses.order.allows(no))
    }
    fn is_to_order(&self) -> bool {
        self.uses.is_some_and(|uses| uses.order.is_forced)
    }
    /// Numbers and columns of all.
    fn known(&self) -> impl Iterator<Item = (IndexNo, &'c [u16])> {
        let secondary = self.table.ready_indexes().map(|(_, i)| (i.no, i.columns.as_slice()));
        std::iter::once((IndexNo(0), self.table.schema.primary_key.as_slice())).chain(secondary)
    }
    fn all(&self) -> impl Iterator<Item = (IndexNo, &'c [u16])> {
        self.known().filter(|(no, _)| self.allows(*no))
    }
    /// Those whose first column has conditions.
    pub(super) fn possible(&self, found: &[OnColumn], conjuncts: &[Expr]) -> Vec<IndexNo> {
        let is_short = |e: &&Expr| matches!(e, Expr::Or(list) if list.len() <= ALTERNATIVES_SHOWN_MAX);
        let unions = conjuncts.iter().filter(is_short);
        let unions: Vec<u16> = unions.filter_map(|e| alternatives_of(&self.table.schema, e)).map(|(c, _)| c).collect();
        let is_bound = |c: u16| {
            let on = &found[usize::from(c)];
            on.equal.is_some() || on.low.is_some() || on.high.is_some() || unions.contains(&c)
        };
        let of_beginnings =
            self.table.indexes_in_use().filter(|(_, i)| i.has_prefixes() && i.list.is_none() && self.allows(i.no));
        let of_beginnings = of_beginnings.map(|(_, i)| (i.no, i.columns.as_slice()));
        let first = |columns: &[u16]| columns.first().is_some_and(|c| is_bound(*c));
        self.all().chain(of_beginnings).filter(|(_, columns)| first(columns)).map(|(no, _)| no).collect()
    }
    /// Places and columns of those that have a value once; of the primary key no place.
    fn unique(&self) -> impl Iterator<Item = (Option<usize>, &'c [u16])> {
        let unique = self.table.ready_indexes().filter(|(_, i)| i.unique && self.allows(i.no));
        let primary = self.allows(IndexNo(0)).then_some((None, self.table.schema.primary_key.as_slice()));
        primary.into_iter().chain(unique.map(|(at, i)| (Some(at), i.columns.as_slice())))
    }
}

/// Chooses the path. `order` names columns that the rows are wanted in order of; it decides between equal paths. `params`: kinds of the parameters.
pub fn choose(table: &Table, condition: Option<Expr>, order: &[u16], params: &[Kind], uses: Option<&Uses>) -> Access {
    let schema = &table.schema;
    let candidates = Candidates { table, uses };
    let (mut condition, mut waits_for_literals) = (condition, false);
    let lists = listed::lists(&candidates);
    if let (Some(e), false) = (&mut condition, lists.is_empty()) {
        let keys: Vec<_> = lists.iter().map(|(_, keys)| *keys).collect();
        waits_for_literals = lists::substitute(&keys, e, params);
    }
    let said = condition.clone().map(Expr::conjuncts).unwrap_or_default();
    let (conjuncts, waits) = functional::keyed(table, &said);
    waits_for_literals |= waits;
    let found = gather(schema, &conjuncts, params);
    let waits_for_kinds = conjuncts.iter().any(|e| is_of_outer_row(e) && e.any(Expr::kind_needs_params));
    let mut used = Vec::new();
    let mut path = None;
    for (index, columns) in candidates.unique() {
        let equal: Option<Vec<&(Vec<Expr>, usize)>> =
            columns.iter().map(|&c| found[usize::from(c)].equal.as_ref()).collect();
        if let Some(equal) = equal {
            let count = equal.iter().try_fold(1usize, |n, (list, _)| n.checked_mul(list.len()));
            if count.is_some_and(|n| n <= POINTS_MAX) {
                used = equal.iter().map(|(_, i)| *i).collect();
                let values = equal.iter().map(|(list, _)| list.clone()).collect();
                path = Some(Path::Points { index, columns: columns.to_vec(), values, rows: false });
                break;
            }
        }
    }
    if path.is_none()
        && let Some((points, conjuncts)) = choose_rows(&candidates, &conjuncts, &found)
    {
        (path, used) = (Some(points), conjuncts);
    }
    if path.is_none() {
        let (best, best_used) = choose_range(&candidates, &found, order);
        (path, used) = (Some(best), best_used);
        if used.is_empty()
            && let Some((union, i)) = choose_union(&candidates, &conjuncts)
        {
            (path, used) = (Some(union), vec![i]);
        } else if used.is_empty()
            && let Some((beginning, whole)) = choose_beginning(&candidates, &found)
        {
            (path, used) = (Some(beginning), whole);
        }
    }
    let mut path = path.unwrap_or_else(|| whole(schema));
    let mut possible = candidates.possible(&found, &conjuncts);
    if !lists.is_empty() {
        let (by_list, of_lists) = listed::choose(table, &lists, &conjuncts, &found);
        possible.extend(of_lists.iter().map(|at| schema.indexes[*at].no));
        let is_better = |listed: &Listed| match &path {
            Path::Range { equal, .. } => equal.len() < listed.parts(),
            Path::Union { .. } | Path::Listed(_) => true,
            Path::Points { .. } => false,
        };
        if let Some(by_list) = by_list.filter(is_better) {
            (path, used) = (Path::Listed(by_list), Vec::new());
        }
    }
    let left = |i: &usize| !used.contains(i);
    let pushed = match path {
        Path::Points { .. } | Path::Listed(_) => Pushed::default(),
        Path::Range { .. } | Path::Union { .. } => {
            Pushed::of(schema, (0..conjuncts.len()).filter(left).map(|i| &conjuncts[i]))
        }
    };
    let rest: Vec<Expr> = (0..said.len()).filter(left).map(|i| said[i].clone()).collect();
    let rest = (!rest.is_empty()).then_some(Expr::And(rest));
    Access { path, full: condition, rest, pushed, waits_for_literals, waits_for_kinds, possible, part: None }
}

/// A condition that is an OR of limits, or a list of values, on the first column of one index, and its place among the conjuncts.
fn choose_union(candidates: &Candidates<'_>, conjuncts: &[Expr]) -> Option<(Path, usize)> {
    let schema = &candidates.table.schema;
    for (i, conjunct) in conjuncts.iter().enumerate() {
        let (Expr::Or(_) | Expr::In { .. }) = conjunct else { continue };
        let Some((column, alternatives)) = alternatives_of(schema, conjunct) else { continue };
        if let Some((index, columns)) = candidates.all().find(|(_, columns)| columns.first() == Some(&column)) {
            return Some((Path::Union { index, columns: columns.to_vec(), alternatives }, i));
        }
    }
    None
}

/// The limits of one column that a condition is an OR of: `k < 1 OR k BETWEEN 5 AND 7 OR k IN (9, 10)`.
pub fn alternatives_of(schema: &TableSchema, condition: &Expr) -> Option<(u16, Vec<Interval>)> {
    let mut disjuncts = Vec::new();
    flatten_or(condition, &mut disjuncts);
    let mut alternatives = Vec::new();
    let mut on: Option<u16> = None;
    for disjunct in disjuncts {
        let parts = disjunct.clone().conjuncts();
        let found = gather(schema, &parts, &[]);
        let mut limited =
            found.iter().enumerate().filter(|(_, f)| f.equal.is_some() || f.low.is_some() || f.high.is_some());
        let (column, limits) = limited.next()?;
        let column = column as u16;
        // One column, one conjunct: everything the alternative says is in its limits.
        if limited.next().is_some() || parts.len() != 1 || on.is_some_and(|c| c != column) {
            return None;
        }
        on = Some(column);
        match &limits.equal {
            Some((list, _)) => alternatives
                .extend(list.iter().map(|e| Interval { low: Some((e.clone(), true)), high: Some((e.clone(), true)) })),
            None => alternatives.push(Interval {
                low: limits.low.as_ref().map(|(e, inclusive, _)| (e.clone(), *inclusive)),
                high: limits.high.as_ref().map(|(e, inclusive, _)| (e.clone(), *inclusive)),
            }),
        }
    }
    Some((on?, alternatives))
}

/// A condition that is an OR of equalities on the same columns, `(a, b) IN ((1, 2), (3, 4))`, which with single values of other
/// columns are whole keys of a unique index; and the places of all of them among the conjuncts.
fn choose_rows(candidates: &Candidates<'_>, conjuncts: &[Expr], found: &[OnColumn]) -> Option<(Path, Vec<usize>)> {
    for (i, conjunct) in conjuncts.iter().enumerate() {
        let Expr::Or(_) = conjunct else { continue };
        let mut disjuncts = Vec::new();
        flatten_or(conjunct, &mut disjuncts);
        if disjuncts.len() > POINTS_MAX {
            continue;
        }
        let Some(rows) = disjuncts.into_iter().map(equalities).collect::<Option<Vec<_>>>() else { continue };
        let named = |row: &[(u16, &Expr)], column: u16| row.iter().position(|(c, _)| *c == column);
        for (index, columns) in candidates.unique() {
            let mut used = vec![i];
            let mut values = Vec::with_capacity(rows.len());
            for row in &rows {
                if !row.iter().all(|(c, _)| columns.contains(c)) {
                    break;
                }
                let parts =
                    columns.iter().map(|&column| match (named(row, column), &found[usize::from(column)].equal) {
                        (Some(at), _) => Some(row[at].1.clone()),
                        (None, Some((list, place))) if list.len() == 1 => {
                            used.push(*place);
                            Some(list[0].clone())
                        }
                        _ => None,
                    });
                let Some(key) = parts.collect::<Option<Vec<_>>>() else { break };
                values.push(key);
            }
            if values.len() == rows.len() {
                return Some((Path::Points { index, columns: columns.to_vec(), values, rows: true }, used));
            }
        }
    }
    None
}

/// `a = 1 AND b = 2`, each column once; `None` for any other condition.
fn equalities(condition: &Expr) -> Option<Vec<(u16, &Expr)>> {
    let single = std::slice::from_ref(condition);
    let parts = if let Expr::And(list) = condition { list.as_slice() } else { single };
    let mut out: Vec<(u16, &Expr)> = Vec::with_capacity(parts.len());
    for part in parts {
        let Expr::Compare(CompareOp::Eq, a, b, collation) = part else { return None };
        let (column, value) = match (&**a, &**b) {
            (Expr::Column(c), value) | (value, Expr::Column(c)) if is_key(c.ty, value, &[]) => (c, value),
            _ => return None,
        };
        if !fits(column.ty, *collation) || out.iter().any(|(c, _)| *c == column.slot) {
            return None;
        }
        out.push((column.slot, value));
    }
    Some(out)
}

fn flatten_or<'e>(e: &'e Expr, out: &mut Vec<&'e Expr>) {
    match e {
        Expr::Or(list) => list.iter().for_each(|e| flatten_or(e, out)),
        other => out.push(other),
    }
}

/// An index that has the beginning of a column, and the conjuncts that it decides: those before it. What is said of the column itself is asked of the rows.
fn choose_beginning(candidates: &Candidates<'_>, found: &[OnColumn]) -> Option<(Path, Vec<usize>)> {
    let is_given = |e: &Expr| !e.any(|e| matches!(e, Expr::Outer(_)));
    let with_prefixes = candidates.table.indexes_in_use().filter(|(_, i)| i.has_prefixes() && i.list.is_none());
    for (_, index) in with_prefixes.filter(|(_, i)| candidates.allows(i.no)) {
        let cut = (0..index.columns.len()).find(|at| index.prefix(*at).is_some())?;
        let (before, column) = (&index.columns[..cut], index.columns[cut]);
        let one = |c: &u16| match &found[usize::from(*c)].equal {
            Some((list, i)) if list.len() == 1 && is_given(&list[0]) => Some((list[0].clone(), *i)),
            _ => None,
        };
        let Some(equal) = before.iter().map(one).collect::<Option<Vec<_>>>() else { continue };
        let (equal, used): (Vec<Expr>, Vec<usize>) = equal.into_iter().unzip();
        let bound = |of: &Option<(Expr, bool, usize)>| of.clone().filter(|b| is_given(&b.0)).map(|(e, ..)| (e, true));
        let on = &found[usize::from(column)];
        let (low, high) = match one(&column) {
            Some((e, _)) => (Some((e.clone(), true)), Some((e, true))),
            None => (bound(&on.low), bound(&on.high)),
        };
        if low.is_some() || high.is_some() {
            let (columns, beginning) = (index.columns[..=cut].to_vec(), index.prefix(cut));
            return Some((Path::Range { index: index.no, columns, equal, low, high, beginning }, used));
        }
    }
    None
}

/// The whole primary key index.
fn whole(schema: &TableSchema) -> Path {
    Path::Range {
        index: IndexNo(0),
        columns: schema.primary_key.clone(),
        equal: Vec::new(),
        low: None,
        high: None,
        beginning: None,
    }
}

fn choose_range(candidates: &Candidates<'_>, found: &[OnColumn], order: &[u16]) -> (Path, Vec<usize>) {
    let schema = &candidates.table.schema;
    let mut best: Option<(u32, Path, Vec<usize>)> = None;
    for (no, columns) in candidates.known() {
        let may_bound = candidates.allows(no);
        let (mut equal, mut used, mut score) = (Vec::new(), Vec::new(), 0);
        let (mut low, mut high) = (None, None);
        for &column in columns.iter().filter(|_| may_bound) {
            let on = &found[usize::from(column)];
            if let Some((list, i)) = &on.equal
                && let [one] = list.as_slice()
            {
                equal.push(one.clone());
                used.push(*i);
                score += 20;
                continue;
            }
            if let Some((e, inclusive, i)) = &on.low {
                low = Some((e.clone(), *inclusive));
                used.push(*i);
                score += 6;
            }
            if let Some((e, inclusive, i)) = &on.high {
                high = Some((e.clone(), *inclusive));
                used.push(*i);
                score += 6;
            }
            break;
        }
        // A BETWEEN is one conjunct with two bounds; both are used or none.
        let following = &columns[equal.len().min(columns.len())..];
        if !order.is_empty() && following.starts_with(order) && candidates.may_order(no) {
            score += if candidates.is_to_order() { FORCED } else { 3 };
        }
        if !may_bound && score == 0 && no != IndexNo(0) {
            continue;
        }
        if best.as_ref().is_none_or(|(s, ..)| score > *s) {
            best = Some((
                score,
                Path::Range { index: no, columns: columns.to_vec(), equal, low, high, beginning: None },
                used,
            ));
        }
    }
    match best {
        Some((_, path, used)) => (path, used),
        None => (whole(schema), Vec::new()),
    }
}
