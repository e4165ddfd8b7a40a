//! What hints, and USE / FORCE / IGNORE INDEX, say of the tables of a block: which indexes lead to rows and order them, whether rows are hashed, and in which order tables are joined.

use std::rc::Rc;

use apus_types::IndexNo;
use sqlparser::ast::{TableIndexHintForClause as For, TableIndexHintType as How, TableIndexHints};

use super::blocks::{OfBlock, index_no};
use crate::{
    catalog::Table,
    errors::{self, Result},
    parse::hint::{grammar::Named, words::Kind},
};

/// Indexes that may be used for something.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Only {
    /// These and no others.
    listed: Option<Vec<IndexNo>>,
    without: Vec<IndexNo>,
    /// Rather than reading the whole table.
    pub is_forced: bool,
}

impl Only {
    pub fn allows(&self, no: IndexNo) -> bool {
        self.listed.as_ref().is_none_or(|listed| listed.contains(&no)) && !self.without.contains(&no)
    }
    fn of(on: bool, list: Vec<IndexNo>) -> Only {
        match (on, list.is_empty()) {
            (true, true) => Only { is_forced: true, ..Only::default() },
            (true, false) => Only { listed: Some(list), is_forced: true, ..Only::default() },
            (false, true) => Only { listed: Some(list), ..Only::default() },
            (false, false) => Only { without: list, ..Only::default() },
        }
    }
}

/// What is said of one table.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Uses {
    /// For finding rows.
    pub join: Only,
    /// For their order.
    pub order: Only,
    /// Its rows are not put into a hash table.
    pub no_hash: bool,
}

impl Uses {
    /// By USE, FORCE and IGNORE INDEX.
    ///
    /// # Errors
    /// 1064 of an empty list, 1176 of an index that is not there, 1221 of USE beside FORCE.
    pub fn of(table: &Table, shown: &str, hints: &[TableIndexHints]) -> Result<Uses> {
        let has = |how: How| hints.iter().any(|h| h.hint_type == how);
        if has(How::Use) && has(How::Force) {
            return Err(errors::wrong_usage("USE INDEX", "FORCE INDEX"));
        }
        let mut uses = Uses::default();
        for hint in hints {
            if hint.index_names.is_empty() && hint.hint_type != How::Use {
                return Err(errors::syntax(")"));
            }
            let no = |name: &sqlparser::ast::Ident| {
                index_no(table, &name.value).ok_or_else(|| errors::no_key_of_table(&name.value, shown))
            };
            let list = hint.index_names.iter().map(no).collect::<Result<Vec<_>>>()?;
            let (join, order) = match hint.for_clause {
                None => (true, true),
                Some(For::Join) => (true, false),
                Some(For::OrderBy) => (false, true),
                Some(For::GroupBy) => (false, false),
            };
            let meant = [(join, &mut uses.join), (order, &mut uses.order)];
            for (_, only) in meant.into_iter().filter(|(is_meant, _)| *is_meant) {
                match hint.hint_type {
                    How::Ignore => only.without.extend(&list),
                    how => {
                        only.listed.get_or_insert_default().extend(&list);
                        only.is_forced |= how == How::Force;
                    }
                }
            }
        }
        Ok(uses)
    }

    /// By the hints of a block, which stand above.
    pub fn hinted(mut self, block: &OfBlock, table: Option<&Table>, shown: &str) -> Uses {
        let of_table = block.table(shown);
        let bnl = of_table.and_then(|t| t.switch(Kind::Bnl)).or(block.switch(Kind::Bnl));
        self.no_hash = bnl == Some(false);
        let (Some(of_table), Some(table)) = (of_table, table) else { return self };
        let choice = |kinds: &[Kind]| {
            let (on, names) = of_table.indexes(kinds)?;
            let list: Vec<IndexNo> = names.iter().filter_map(|name| index_no(table, name)).collect();
            // Nothing that it names is there.
            (names.is_empty() || !list.is_empty()).then(|| Only::of(on, list))
        };
        let join = choice(&[Kind::Index, Kind::JoinIndex]);
        let order = choice(&[Kind::Index, Kind::OrderIndex]);
        if join.is_some() || order.is_some() || choice(&[Kind::GroupIndex]).is_some() {
            (self.join, self.order) = (join.unwrap_or_default(), order.unwrap_or_default());
        }
        self
    }

    /// Nothing, if it says nothing.
    pub fn kept(self) -> Option<Rc<Uses>> {
        (self != Uses::default()).then(|| Rc::new(self))
    }
}

/// In which order the tables of a block are joined.
#[derive(Debug)]
pub struct JoinRules {
    /// As they are written.
    pub is_fixed: bool,
    orders: Vec<(Kind, Vec<Named>)>,
}

impl JoinRules {
    pub fn of(block: &OfBlock) -> Option<Rc<JoinRules>> {
        let is_fixed = block.switch(Kind::FixedOrder).is_some();
        let orders = block.orders.clone();
        (is_fixed || !orders.is_empty()).then(|| Rc::new(JoinRules { is_fixed, orders }))
    }

    /// SELECT STRAIGHT_JOIN.
    pub fn fixed() -> Rc<JoinRules> {
        Rc::new(JoinRules { is_fixed: true, orders: Vec::new() })
    }

    /// For each of some tables, given by name, the set of those that come before it; `after` is what must be so anyway. A rule that contradicts what is there says nothing.
    pub fn apply(&self, names: &[String], after: &[u64]) -> Vec<u64> {
        let mut all = after.to_vec();
        for (kind, tables) in &self.orders {
            let place = |t: &Named| names.iter().position(|name| *name == t.name);
            let Some(list) = tables.iter().map(place).collect::<Option<Vec<usize>>>() else { continue };
            let own: u64 = list.iter().fold(0, |set, at| set | 1 << at);
            let others = (0..names.len()).filter(|at| own & 1 << at == 0);
            let mut tried = all.clone();
            let mut before = 0;
            if *kind == Kind::JoinSuffix {
                before = others.clone().fold(0, |set, at| set | 1 << at);
            }
            for &at in &list {
                tried[at] |= before & !(1 << at);
                before |= 1 << at;
            }
            if *kind == Kind::JoinPrefix {
                others.for_each(|at| tried[at] |= own);
            }
            if is_possible(&tried) {
                all = tried;
            }
        }
        all
    }
}

/// There is an order in which each table comes behind those that it must.
fn is_possible(after: &[u64]) -> bool {
    let mut done = 0u64;
    while let Some(next) = (0..after.len()).find(|at| done & 1 << at == 0 && after[*at] & !done == 0) {
        done |= 1 << next;
    }
    done.count_ones() as usize == after.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_contradict_each_other_are_left_out() {
        let named = |list: &[&str]| list.iter().map(|n| Named { name: (*n).to_owned(), block: None }).collect();
        let names: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        let of =
            |orders: Vec<(Kind, Vec<Named>)>, after: &[u64]| JoinRules { is_fixed: false, orders }.apply(&names, after);
        assert_eq!(of(vec![(Kind::JoinPrefix, named(&["b", "c"]))], &[0; 3]), [0b110, 0, 0b010]);
        assert_eq!(of(vec![(Kind::JoinSuffix, named(&["a"]))], &[0; 3]), [0b110, 0, 0]);
        let both = vec![(Kind::JoinOrder, named(&["a", "b"])), (Kind::JoinOrder, named(&["b", "a"]))];
        assert_eq!(of(both, &[0; 3]), [0, 0b001, 0]);
        assert_eq!(of(vec![(Kind::JoinOrder, named(&["b", "a"]))], &[0, 0b001, 0]), [0, 0b001, 0]);
        assert_eq!(of(vec![(Kind::JoinOrder, named(&["b", "x"]))], &[0; 3]), [0; 3]);
    }
}
