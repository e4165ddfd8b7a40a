//! From the text of a statement to its plan.

use std::{borrow::Cow, rc::Rc};

use sqlparser::ast::Statement;

use super::{Plan, Planner, Unplanned, cache::Cached, hint::Hints};
use crate::{
    catalog::Catalog,
    errors::{self, Result},
    expr::{Kind, env::Env},
    parse::digest::Digest,
    plan,
    variables::NO_LIMIT,
};

pub fn plan_digest(catalog: &Catalog, env: &Env, digest: &Digest) -> Result<Cached> {
    let text = String::from_utf8_lossy(&digest.text);
    let (text, hints) = without_hints(&text, digest.syntax.ansi_quotes);
    let Ok((text, found)) = plan::into::split(&text, env.variables.syntax) else { return Ok(Cached::Structural) };
    let Ok(statement) = plan::syntax::parse(&text) else { return Ok(Cached::Structural) };
    let planner = Planner { from_digest: true, hints, ..Planner::new(catalog, env, &text, Vec::new()) };
    match planner.plan(&plan::syntax::limited(statement, env.variables.select_limit)) {
        Ok(plan) => match plan::into::wrap(plan, found) {
            Ok(plan) => Ok(Cached::Plan(Rc::new(plan))),
            Err(_) => Ok(Cached::Structural),
        },
        // A placeholder may only be the culprit because the literal is gone; the text decides.
        Err(Unplanned::Structural | Unplanned::Error(_)) => Ok(Cached::Structural),
    }
}

/// A text and the hints that stood in it.
fn without_hints(text: &str, ansi_quotes: bool) -> (Cow<'_, str>, Option<Hints>) {
    match Hints::of(text, ansi_quotes) {
        Some((plain, hints)) => (Cow::Owned(plain), Some(hints)),
        None => (Cow::Borrowed(text), None),
    }
}

pub fn plan_text(catalog: &Catalog, env: &Env, text: &str, param_kinds: Vec<Kind>) -> Result<Plan> {
    plan_limited(catalog, env, text, param_kinds, NO_LIMIT)
}

pub fn plan_limited(catalog: &Catalog, env: &Env, text: &str, param_kinds: Vec<Kind>, limit: u64) -> Result<Plan> {
    let (text, hints) = without_hints(text, env.variables.syntax.ansi_quotes);
    let (text, found) = plan::into::split(&text, env.variables.syntax)?;
    plan::into::check_file(env, found.as_ref())?;
    let statement: Statement = plan::syntax::limited(plan::syntax::parse(&text)?, limit);
    let planner = Planner { hints, ..Planner::new(catalog, env, &text, param_kinds) };
    let plan = planner.plan(&statement).map_err(|e| match e {
        Unplanned::Error(e) => e,
        Unplanned::Structural => errors::internal("a plan without literals"),
    })?;
    plan::into::wrap(plan, found)
}

/// Whether parameters or variables decide the types of a query's columns, or of what it sorts and groups by.
pub fn is_typed_by_values(select: &plan::Select) -> bool {
    let group = select.group.iter();
    let grouped = group.flat_map(|g| {
        let arguments = g.aggregates.iter().filter_map(|a| a.argument.as_ref());
        let windows = g.windows.iter().flat_map(|w| w.expressions());
        g.keys.iter().map(|k| &k.expr).chain(arguments).chain(windows)
    });
    select.is_typed_by_values
        || select.outputs.iter().any(|o| o.expr.has_param() || o.expr.has_user_variable())
        || select.order.iter().map(|k| &k.expr).chain(grouped).any(|e| e.has_user_variable())
}
