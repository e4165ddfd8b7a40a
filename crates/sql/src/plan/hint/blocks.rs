//! The hints of a statement by the blocks and tables that they are for, and what is told of those that count for nothing.
//!
//! Of hints that say the same or the contrary the first counts, the others are told (3126); so are blocks that nobody named (3127), and tables and indexes that a block does not have
//! (3128), when its FROM is bound.

use apus_types::IndexNo;
use std::rc::Rc;

use super::{Told, set_var};
use crate::{
    catalog::Table,
    parse::hint::{
        grammar::{self, Hint, Named},
        place::Placed,
        words::Kind,
    },
    wire::SqlError,
};

/// Of one table in a block.
#[derive(Default, Debug)]
pub struct OfTable {
    name: String,
    /// In the order in which they were given; with the indexes that they name.
    list: Vec<(Kind, &'static str, bool, Vec<String>)>,
}

impl OfTable {
    fn has(&self, is: impl Fn(Kind) -> bool) -> bool {
        self.list.iter().any(|(kind, ..)| is(*kind))
    }
    pub fn switch(&self, kind: Kind) -> Option<bool> {
        self.list.iter().find(|(known, ..)| *known == kind).map(|(_, _, on, _)| *on)
    }
    /// The first hint of some kinds about indexes: whether it switches on, and the indexes.
    pub fn indexes(&self, kinds: &[Kind]) -> Option<(bool, &[String])> {
        let found = self.list.iter().find(|(kind, ..)| kinds.contains(kind));
        found.map(|(_, _, on, indexes)| (*on, indexes.as_slice()))
    }
}

/// Of one query block.
#[derive(Default, Debug)]
pub struct OfBlock {
    pub number: usize,
    name: Option<String>,
    switches: Vec<(Kind, bool)>,
    tables: Vec<OfTable>,
    /// JOIN_ORDER, JOIN_PREFIX and JOIN_SUFFIX.
    pub orders: Vec<(Kind, Vec<Named>)>,
    subquery: Option<(Kind, bool)>,
    is_checked: bool,
}

impl OfBlock {
    pub fn shown(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("select#{}", self.number))
    }
    pub fn table(&self, name: &str) -> Option<&OfTable> {
        self.tables.iter().find(|t| t.name == name)
    }
    pub fn switch(&self, kind: Kind) -> Option<bool> {
        self.switches.iter().find(|(known, _)| *known == kind).map(|(_, on)| *on)
    }
    /// It is to stay a subquery rather than become a join.
    pub fn stays_subquery(&self) -> bool {
        matches!(self.subquery, Some((Kind::Subquery, _) | (Kind::SemiJoin, false)))
    }
    fn table_mut(&mut self, name: &str) -> &mut OfTable {
        let at = self.tables.iter().position(|t| t.name == name).unwrap_or_else(|| {
            self.tables.push(OfTable { name: name.to_owned(), list: Vec::new() });
            self.tables.len() - 1
        });
        &mut self.tables[at]
    }
}

/// Of a statement.
#[derive(Default, Debug)]
pub struct Blocks {
    list: Vec<OfBlock>,
    /// Milliseconds of MAX_EXECUTION_TIME.
    pub longest_ms: Option<u64>,
    variables: Vec<String>,
    told: Told,
    is_select: bool,
    /// So many blocks the statement has.
    count: usize,
}

fn warning(code: u16, text: String) -> SqlError {
    SqlError::new(code, b"HY000", text)
}
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}
/// A table or nothing, and its block, as a warning names them.
fn place(table: &str, block: Option<&str>) -> String {
    let table = if table.is_empty() { String::new() } else { quoted(table) };
    table + &block.map_or_else(String::new, |block| format!("@{}", quoted(block)))
}
fn one_too_many(hint: &Hint, arguments: &str) -> SqlError {
    warning(3126, format!("Hint {}({arguments}) is ignored as conflicting/duplicated", hint.word))
}
fn unresolved(what: &str, word: &str) -> SqlError {
    warning(3128, format!("Unresolved name {what} for {word} hint"))
}

impl Blocks {
    /// `is_select`: MAX_EXECUTION_TIME is for such statements.
    pub fn new(placed: &[Placed], ansi_quotes: bool, is_select: bool, count: usize) -> Blocks {
        let mut blocks = Blocks { is_select, count, ..Blocks::default() };
        for Placed { number, text } in placed {
            let (hints, _) = grammar::hints(text, ansi_quotes);
            // MySQL knows a block by the first name that it is given.
            blocks.block(*number);
            hints.iter().for_each(|hint| blocks.take(*number, hint));
        }
        blocks
    }

    fn block(&mut self, number: usize) -> usize {
        self.list.iter().position(|b| b.number == number).unwrap_or_else(|| {
            self.list.push(OfBlock { number, ..OfBlock::default() });
            self.list.len() - 1
        })
    }

    pub fn get(&self, number: usize) -> Option<&OfBlock> {
        self.list.iter().find(|b| b.number == number)
    }

    /// The block that a hint in another one, or in itself, is for.
    fn meant(&mut self, number: usize, name: Option<&String>, hint: &Hint) -> Option<usize> {
        let Some(name) = name else { return Some(self.block(number)) };
        let by_number = name.strip_prefix("select#").and_then(|number| number.parse().ok());
        let found = match by_number.filter(|number| (1..=self.count).contains(number)) {
            Some(number) => Some(self.block(number)),
            None => self.list.iter().position(|b| b.name.as_ref() == Some(name)),
        };
        if found.is_none() {
            let text = format!("Query block name {} is not found for {} hint", quoted(name), hint.word);
            self.told.first.push(warning(3127, text));
        }
        found
    }

    fn conflict(&mut self, hint: &Hint, arguments: &str) {
        self.told.first.push(one_too_many(hint, arguments));
    }

    fn take(&mut self, number: usize, hint: &Hint) {
        use Kind::*;
        match hint.kind {
            Bka | Bnl | HashJoin | Merge | DerivedPushdown => self.of_tables(number, hint),
            Mrr | Icp | Range | IndexMerge | SkipScan | Index | JoinIndex | GroupIndex | OrderIndex => {
                self.of_indexes(number, hint);
            }
            JoinOrder | JoinPrefix | JoinSuffix | FixedOrder | SemiJoin | Subquery => self.of_block(number, hint),
            MaxExecutionTime => self.of_time(number, hint),
            Name => self.name(number, hint),
            SetVar => self.of_variable(hint),
            ResourceGroup => {
                self.told.first.push(warning(3651, format!("Resource Group '{}' does not exist.", hint.name)));
            }
        }
    }

    fn name(&mut self, number: usize, hint: &Hint) {
        let at = self.block(number);
        let is_known = self.list.iter().any(|b| b.name.as_ref() == Some(&hint.name));
        match &mut self.list[at].name {
            place @ None if !is_known => *place = Some(hint.name.clone()),
            _ => self.conflict(hint, &quoted(&hint.name)),
        }
    }

    fn of_time(&mut self, number: usize, hint: &Hint) {
        let Some(grammar::Value::Whole(ms)) = hint.value else { return };
        if number != 1 || !self.is_select {
            let text = "MAX_EXECUTION_TIME hint is supported by top-level standalone SELECT statements only";
            self.told.first.push(warning(3125, text.to_owned()));
        } else if self.longest_ms.is_some() {
            self.conflict(hint, &ms.to_string());
        } else {
            self.longest_ms = Some(ms);
        }
    }

    fn of_variable(&mut self, hint: &Hint) {
        let name = hint.name.to_ascii_lowercase();
        match set_var::check(&name) {
            Err(refused) => self.told.first.push(refused),
            Ok(()) if self.variables.contains(&name) => {
                let text = format!("Hint {}  is ignored as conflicting/duplicated", set_var::shown(hint));
                self.told.first.push(warning(3126, text));
            }
            Ok(()) => self.variables.push(name),
        }
    }

    fn of_tables(&mut self, number: usize, hint: &Hint) {
        if hint.tables.is_empty() {
            let Some(at) = self.meant(number, hint.block.as_ref(), hint) else { return };
            if self.list[at].switch(hint.kind).is_some() {
                let arguments = place("", hint.block.as_deref()) + " ";
                return self.conflict(hint, &arguments);
            }
            return self.list[at].switches.push((hint.kind, hint.on));
        }
        for table in &hint.tables {
            let block = table.block.as_ref().or(hint.block.as_ref());
            let Some(at) = self.meant(number, block, hint) else { return };
            let is_said = self.list[at].switch(hint.kind).is_some();
            let known = self.list[at].table_mut(&table.name);
            if is_said || known.has(|kind| kind == hint.kind) {
                let arguments = place(&table.name, block.map(String::as_str)) + " ";
                self.conflict(hint, &arguments);
            } else {
                known.list.push((hint.kind, hint.word, hint.on, Vec::new()));
            }
        }
    }

    fn of_indexes(&mut self, number: usize, hint: &Hint) {
        let Some(table) = hint.tables.first() else { return };
        let block = table.block.as_ref().or(hint.block.as_ref());
        let Some(at) = self.meant(number, block, hint) else { return };
        let known = self.list[at].table_mut(&table.name);
        let shown = place(&table.name, block.map(String::as_str));
        if hint.kind.is_compound() || hint.indexes.is_empty() {
            let is_said = match hint.kind {
                Kind::Index => known.has(is_choice),
                Kind::JoinIndex | Kind::GroupIndex | Kind::OrderIndex => {
                    known.has(|kind| kind == Kind::Index || kind == hint.kind)
                }
                of_other => known
                    .list
                    .iter()
                    .any(|(kind, _, _, i)| *kind == of_other && (hint.kind.is_compound() || i.is_empty())),
            };
            if is_said {
                let names: Vec<String> = hint.indexes.iter().map(|i| format!(" {}", quoted(i))).collect();
                return self.conflict(hint, &format!("{shown} {}", names.join(",")));
            }
            return known.list.push((hint.kind, hint.word, hint.on, hint.indexes.clone()));
        }
        for index in &hint.indexes {
            let known = self.list[at].table_mut(&table.name);
            let is_said = |(kind, _, _, indexes): &(Kind, &str, bool, Vec<String>)| {
                *kind == hint.kind && (indexes.is_empty() || indexes.iter().any(|i| i.eq_ignore_ascii_case(index)))
            };
            if known.list.iter().any(is_said) {
                self.conflict(hint, &format!("{shown} {} ", quoted(index)));
            } else {
                known.list.push((hint.kind, hint.word, hint.on, vec![index.clone()]));
            }
        }
    }

    fn of_block(&mut self, number: usize, hint: &Hint) {
        let Some(at) = self.meant(number, hint.block.as_ref(), hint) else { return };
        let block = &mut self.list[at];
        let has_order = |kind: Kind| block.orders.iter().any(|(known, _)| *known == kind);
        let is_fixed = block.switch(Kind::FixedOrder).is_some();
        let is_said = match hint.kind {
            Kind::FixedOrder => is_fixed || !block.orders.is_empty(),
            Kind::JoinOrder => is_fixed,
            Kind::JoinPrefix | Kind::JoinSuffix => is_fixed || has_order(hint.kind),
            _ => block.subquery.is_some(),
        };
        if is_said {
            let name = |t: &Named| place(&t.name, t.block.as_deref());
            let tables: Vec<String> = hint.tables.iter().map(name).collect();
            let strategies: Vec<String> = hint.strategies.iter().map(|s| format!(" {s}")).collect();
            let arguments = place("", hint.block.as_deref()) + " " + &tables.join(",") + &strategies.join(",");
            return self.conflict(hint, &arguments);
        }
        match hint.kind {
            Kind::FixedOrder => block.switches.push((Kind::FixedOrder, true)),
            Kind::SemiJoin | Kind::Subquery => block.subquery = Some((hint.kind, hint.on)),
            kind => block.orders.push((kind, hint.tables.clone())),
        }
    }

    /// Where what a block lacks is told: before what those in it lack.
    pub fn begin_check(&self) -> usize {
        self.told.tables.len()
    }

    /// A block has these tables: what it lacks is told from `at` on.
    pub fn check(&mut self, number: usize, names: &[(&str, Option<&Rc<Table>>)], at: usize) {
        let Some(block) = self.list.iter_mut().find(|b| b.number == number && !b.is_checked) else { return };
        block.is_checked = true;
        let shown = block.shown();
        let mut lacking = Vec::new();
        for table in &block.tables {
            let found = names.iter().find(|(name, _)| *name == table.name);
            let place = place(&table.name, Some(&shown));
            for (kind, word, _, indexes) in &table.list {
                let is_whole = kind.is_compound() || indexes.is_empty();
                if found.is_none() && is_whole {
                    lacking.push(unresolved(&place, word));
                }
                let is_there =
                    |index: &&String| found.is_some_and(|(_, t)| t.is_none_or(|t| index_no(t, index).is_some()));
                let missing = indexes.iter().filter(|i| !is_there(i));
                lacking.extend(missing.map(|i| unresolved(&format!("{place} {}", quoted(i)), word)));
            }
        }
        self.told.tables.splice(at..at, lacking);
        // Tables of a subquery may be joined with those around.
        for (kind, tables) in block.orders.iter().filter(|_| number == 1) {
            let is_lacking = |t: &&Named| t.block.is_none() && !names.iter().any(|(name, _)| *name == t.name);
            let word = match kind {
                Kind::JoinPrefix => "JOIN_PREFIX",
                Kind::JoinSuffix => "JOIN_SUFFIX",
                _ => "JOIN_ORDER",
            };
            self.told.orders.extend(tables.iter().find(is_lacking).map(|t| unresolved(&quoted(&t.name), word)));
        }
    }

    /// All that is to be told of a statement that was planned.
    pub fn told(&mut self) -> Told {
        let unchecked: Vec<usize> = self.list.iter().filter(|b| !b.is_checked).map(|b| b.number).collect();
        for number in unchecked {
            self.check(number, &[], self.told.tables.len());
        }
        self.told.longest_ms = self.longest_ms;
        std::mem::take(&mut self.told)
    }
}

/// INDEX and its parts exclude each other.
fn is_choice(kind: Kind) -> bool {
    matches!(kind, Kind::Index | Kind::JoinIndex | Kind::GroupIndex | Kind::OrderIndex)
}

/// The index of a table that has a name.
pub fn index_no(table: &Table, name: &str) -> Option<IndexNo> {
    if name.eq_ignore_ascii_case("primary") {
        return Some(IndexNo(0));
    }
    table.schema.indexes.iter().find(|i| i.name.eq_ignore_ascii_case(name)).map(|i| i.no)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::hint::place::cut;

    fn told(text: &str) -> Vec<String> {
        let (plain, placed) = cut(text);
        let mut blocks = Blocks::new(&placed, false, plain.starts_with("SELECT"), 1);
        let at = blocks.begin_check();
        blocks.check(1, &[("t1", None), ("t2", None)], at);
        let told = blocks.told();
        told.first.into_iter().chain(told.tables).chain(told.orders).map(|e| e.message).collect()
    }

    #[test]
    fn hints_that_count_for_nothing_are_told() {
        let too_many = |what: &str| format!("Hint {what} is ignored as conflicting/duplicated");
        for (hints, want) in [
            ("INDEX(t1 kb) INDEX(t1 kc)", vec![too_many("INDEX(`t1`  `kc`)")]),
            ("QB_NAME(a) QB_NAME(b) NO_BNL(t1@a) BNL(@a)", vec![too_many("QB_NAME(`b`)")]),
            ("BNL() NO_BNL(t1) NO_BNL()", vec![too_many("NO_BNL(`t1` )"), too_many("NO_BNL( )")]),
            ("JOIN_PREFIX(t1) JOIN_PREFIX(t2)", vec![too_many("JOIN_PREFIX( `t2`)")]),
            ("JOIN_FIXED_ORDER() JOIN_ORDER(t2,t1)", vec![too_many("JOIN_ORDER( `t2`,`t1`)")]),
            ("SUBQUERY(MATERIALIZATION) SEMIJOIN()", vec![too_many("SEMIJOIN( )")]),
            ("NO_MRR(t1) MRR(t1 a, b)", vec![too_many("MRR(`t1` `a` )"), too_many("MRR(`t1` `b` )")]),
            ("MAX_EXECUTION_TIME(1) MAX_EXECUTION_TIME(2)", vec![too_many("MAX_EXECUTION_TIME(2)")]),
            (
                "SET_VAR(sort_buffer_size=1) SET_VAR(sort_buffer_size='x')",
                vec![too_many("SET_VAR(sort_buffer_size='x') ")],
            ),
            ("NO_BNL(@x)", vec!["Query block name `x` is not found for NO_BNL hint".to_owned()]),
            (
                "JOIN_ORDER(t8) NO_BNL(t9) INDEX(t7 k)",
                vec![
                    "Unresolved name `t9`@`select#1` for NO_BNL hint".to_owned(),
                    "Unresolved name `t7`@`select#1` for INDEX hint".to_owned(),
                    "Unresolved name `t7`@`select#1` `k` for INDEX hint".to_owned(),
                    "Unresolved name `t8` for JOIN_ORDER hint".to_owned(),
                ],
            ),
        ] {
            assert_eq!(told(&format!("SELECT /*+ {hints} */ 1")), want, "{hints}");
        }
    }
}
