//! WITH: common table expressions, recursive ones too.

use std::{cell::Cell, rc::Rc};

use sqlparser::ast::{self, SetExpr};

use super::{Bound, What, body_is_correlated, set_operation::union_parts};
use crate::{
    errors,
    plan::{
        Planner,
        query::{Body, Derived, SetOperation},
    },
};

/// A common table expression that is in view.
#[derive(Clone, Debug)]
pub struct Common {
    pub(super) name: String,
    what: What,
    /// Of the block that defines it.
    depth: usize,
    /// Its query and the names of its columns, where it does not name itself.
    pub(super) text: Option<Rc<CommonText>>,
}

/// What a common table expression is made from.
#[derive(Debug)]
pub struct CommonText {
    pub name: String,
    pub query: ast::Query,
    pub columns: Vec<String>,
    /// So many are defined before it, and seen by it.
    pub known: usize,
}

impl Planner<'_> {
    /// The common table expression of this name; `None`: it names itself, or sees a block around.
    pub(crate) fn common_text(&self, name: &ast::ObjectName) -> Option<Rc<CommonText>> {
        let [part] = name.0.as_slice() else { return None };
        let name = part.as_ident().map_or("", |i| i.value.as_str());
        let common = self.common.borrow();
        let found = common.iter().rev().find(|c| c.name.eq_ignore_ascii_case(name))?;
        let is_alone = matches!(&found.what, What::Known(derived) if !derived.is_correlated);
        found.text.clone().filter(|_| is_alone)
    }

    /// The common table expression of this name.
    pub(crate) fn common_table(&self, name: &ast::ObjectName) -> Bound<Option<Rc<Derived>>> {
        let [part] = name.0.as_slice() else { return Ok(None) };
        let name = part.as_ident().map_or("", |i| i.value.as_str());
        let common = self.common.borrow();
        let Some(found) = common.iter().rev().find(|c| c.name.eq_ignore_ascii_case(name)) else { return Ok(None) };
        match &found.what {
            What::Known(derived) if derived.is_correlated && self.frames.depth() != found.depth => {
                Err(errors::not_supported("a common table expression that refers to a query around it, used deeper")
                    .into())
            }
            What::Known(derived) => Ok(Some(derived.clone())),
            What::NoUnion => Err(errors::recursive_union(name).into()),
            What::UnderWay(None, _) => Err(errors::recursive_first(name).into()),
            What::UnderWay(Some(table), used) => {
                used.set(used.get() + 1);
                if used.get() > 1 || self.frames.depth() != found.depth + 1 {
                    return Err(errors::recursive_once(name).into());
                }
                Ok(Some(Rc::new(Derived {
                    table: table.clone(),
                    body: Body::LastRows,
                    is_correlated: true,
                    is_subquery: false,
                    is_lateral: false,
                    text: None,
                })))
            }
        }
    }

    /// Defines the common table expressions of WITH.
    pub(crate) fn with(&self, with: &ast::With) -> Bound<()> {
        let depth = self.frames.depth();
        for (i, cte) in with.cte_tables.iter().enumerate() {
            let name = &cte.alias.name.value;
            if with.cte_tables[..i].iter().any(|c| c.alias.name.value.eq_ignore_ascii_case(name)) {
                return Err(errors::not_unique_table(name).into());
            }
            let columns: Vec<String> = cte.alias.columns.iter().map(|c| c.name.value.clone()).collect();
            let recursive = with.recursive.then(|| self.recursive(&cte.query, name, &columns)).transpose()?.flatten();
            let (derived, text) = match recursive {
                Some(recursive) => (recursive, None),
                None => {
                    let derived = self.not_recursive(with.recursive, &cte.query, name, &columns)?;
                    let (name, query, known) = (name.clone(), (*cte.query).clone(), self.common.borrow().len());
                    (derived, Some(Rc::new(CommonText { name, query, columns, known })))
                }
            };
            self.common.borrow_mut().push(Common { name: name.clone(), what: What::Known(derived), depth, text });
        }
        Ok(())
    }

    fn not_recursive(&self, may_be: bool, query: &ast::Query, name: &str, columns: &[String]) -> Bound<Rc<Derived>> {
        let known = self.common.borrow().len();
        if may_be && !matches!(&*query.body, SetExpr::SetOperation { .. }) {
            let (name, depth) = (name.to_owned(), self.frames.depth());
            self.common.borrow_mut().push(Common { name, what: What::NoUnion, depth, text: None });
        }
        let made = self.derived(query, name, columns);
        self.common.borrow_mut().truncate(known);
        made
    }

    /// `None`: the definition does not name itself.
    fn recursive(&self, query: &ast::Query, name: &str, columns: &[String]) -> Bound<Option<Rc<Derived>>> {
        let mut parts = Vec::new();
        let Some(all) = union_parts(&query.body, &mut parts) else { return Ok(None) };
        let depth = self.frames.depth();
        let used = Rc::new(Cell::new(0));
        let known = self.common.borrow().len();
        let enter = |table| {
            self.common.borrow_mut().truncate(known);
            let what = What::UnderWay(table, used.clone());
            self.common.borrow_mut().push(Common { name: name.to_owned(), what, depth, text: None });
        };
        enter(None);
        let mut first = self.part(parts[0], &Rc::default())?;
        let mut table = self.table_of(name, columns, &first, None)?;
        let mut step: Option<Body> = None;
        for part in &parts[1..] {
            enter(Some(table.clone()));
            used.set(0);
            let body = self.part(part, &Rc::default())?;
            if self.widths(&body) != table.schema.columns.len() {
                return Err(errors::set_operation_columns().into());
            }
            let join = |left, right| Body::Set {
                operation: SetOperation::Union,
                all: true,
                left: Box::new(left),
                right: Box::new(right),
            };
            match (used.get(), step.take()) {
                (0, None) => {
                    first = join(first, body);
                    table = self.table_of(name, columns, &first, None)?;
                }
                (0, Some(_)) => return Err(errors::recursive_first(name).into()),
                (_, before) => {
                    if let Body::Select(s) = &body
                        && (s.group.is_some() || s.distinct || !s.order.is_empty() || s.limit.is_some())
                    {
                        return Err(errors::recursive_aggregate(name).into());
                    }
                    step = Some(match before {
                        Some(before) => join(before, body),
                        None => body,
                    });
                }
            }
        }
        self.common.borrow_mut().truncate(known);
        let Some(step) = step else { return Ok(None) };
        if query.order_by.is_some() || query.limit_clause.is_some() || query.with.is_some() {
            return Err(errors::not_supported("ORDER BY, LIMIT or WITH in a recursive definition").into());
        }
        let is_correlated = [&first, &step].into_iter().any(body_is_correlated);
        let body = Body::Recursive { first: Box::new(first), step: Box::new(step), all };
        Ok(Some(Rc::new(Derived { table, body, is_correlated, is_subquery: false, is_lateral: false, text: None })))
    }
}
