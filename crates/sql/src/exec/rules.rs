//! Rows on their way to the data nodes: completed and looked at.

use apus_types::TableSchema;

use super::{
    change::{self, Storing},
    new_row::{Given, Making},
};
use crate::{
    catalog::Table,
    errors::Result,
    expr::{Context, eval},
    plan::rules::{Check, Rules, failures},
    session::{Done, Session, buffers::Scratch},
    wire::SqlError,
};

impl Rules {
    /// The column is computed from the row when all others are there.
    pub fn is_late(&self, column: u16, given: &Given<'_>) -> bool {
        let of_default = || matches!(given, Given::Default | Given::Unnamed);
        self.computed(column).is_some_and(|c| !c.is_default || of_default())
    }

    /// The constraint that a row violates. One whose condition cannot be evaluated is violated; `strict`: also one that is only evaluated with a warning. `only`: those of
    /// these names are looked at.
    pub fn violated(
        &self,
        session: &Session,
        schema: &TableSchema,
        row: &[u8],
        strict: bool,
        only: Option<&[String]>,
    ) -> Option<SqlError> {
        let is_asked = |name: &str| only.is_none_or(|only| only.iter().any(|one| one.eq_ignore_ascii_case(name)));
        for Check { name, condition } in self.checks.iter().filter(|check| is_asked(&check.name)) {
            let cx = Context::of_row(schema.layout(), row, &session.env);
            let truth = condition.eval(&cx).map(|value| eval::truth(&cx, &value));
            let is_faulty = session.env.fault_if(strict).is_some();
            if is_faulty || !matches!(truth, Ok(None | Some(true))) {
                return Some(failures::check_violated(name));
            }
        }
        None
    }
}

/// What is wrong with a row that is written to a table.
///
/// # Errors
/// Its expressions cannot be bound.
pub fn violated(session: &Session, table: &Table, row: &[u8], strict: bool) -> Result<Option<SqlError>> {
    match table.rules()? {
        Some(rules) => Ok(rules.violated(session, &table.schema, row, strict, None)),
        None => Ok(None),
    }
}

/// Computes columns of the row that was made last, in this order.
pub fn complete(making: &Making<'_>, table: &Table, late: &[u16], many: bool, s: &mut Scratch) -> Done<()> {
    let (Some(rules), Some(last)) = (table.rules()?, s.images.len().checked_sub(1)) else { return Ok(()) };
    let mut row = s.images.get(last).unwrap_or(&[]).to_vec();
    for &column in late {
        let Some(computed) = rules.computed(column) else { continue };
        row = match &computed.list {
            Some(keys) => keys.complete(&table.schema, making.env(), &row, making.number())?,
            None => making.computed(column, &computed.expr, &row, many, &mut s.refused)?,
        };
    }
    s.images.pop();
    s.images.push(&row);
    Ok(())
}

/// The generated columns of a row whose others were changed.
pub fn recompute(session: &Session, table: &Table, mut row: Vec<u8>, mut storing: Storing<'_>) -> Done<Vec<u8>> {
    if let Some(rules) = table.rules()? {
        for computed in rules.generated() {
            if let Some(keys) = &computed.list {
                row = keys.complete(&table.schema, &session.env, &row, storing.row)?;
                continue;
            }
            let source = (computed.column, &computed.expr);
            row = change::with_column(session, &table.schema, &row, source, None, &[], &mut storing)?;
        }
    }
    Ok(row)
}

/// A row that a foreign key has changed, with its generated columns.
///
/// # Errors
/// 3819, and of the evaluation.
pub fn followed(session: &Session, table: &Table, row: Vec<u8>) -> Done<Vec<u8>> {
    let (strict, mut refused) = (session.env.variables.strict, Vec::new());
    let storing = Storing { row: 1, lenient: !strict, takes_null: !strict, keeps_null: false, refused: &mut refused };
    let row = recompute(session, table, row, storing)?;
    match violated(session, table, &row, strict)? {
        Some(e) => Err(e.into()),
        None => Ok(row),
    }
}
