//! What the definition of a table says in expressions: CHECK constraints, defaults and generated columns.
//!
//! The dictionary keeps their texts as MySQL writes them (`apus_types::rules`), so SHOW CREATE TABLE prints what is kept and reads what it prints ([`crate::ddl::rules`]). A text is parsed and bound once
//! for each version of a table, when the first statement needs it ([`Kept`]). A table without any has [`Table::rules`] empty and costs a look at that.
//!
//! Rows are completed and looked at in the SQL node, before they are sent ([`crate::exec::rules`]): first the columns that the statement names, then in the order of the table the defaults that read
//! other columns and the generated columns, then the conditions. Virtual columns are stored as the others are, so indexes and reads know nothing of them. An UPDATE that would run as a program
//! in the data nodes is one only if no expression reads what it assigns ([`Rules::reads`]).
//!
//! A constraint that comes to rows that are there holds for new rows at once; then all rows are looked at under locks, some hundred at a time, and it is published or taken back
//! ([`crate::ddl::rules::rows`]). A column that is added is filled in the same way before it is seen ([`crate::ddl::rules::fill`]).

pub mod failures;
pub mod functional;
pub mod lists;
pub mod read;

use std::cell::OnceCell;

use apus_types::{TableSchema, rules::Enforced, schema::DefaultValue};

use self::{functional::Keyed, lists::ListKeys};
use super::{bind::Builder, dml::default_expr};
use crate::{
    catalog::Table,
    errors::Result,
    expr::{CastType, Expr},
    value::datum::Datum,
    wire::SqlError,
};

/// A condition that rows must not make false.
#[derive(Debug)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) condition: Expr,
}

/// Computes a column of a row from the others.
#[derive(Debug)]
pub(crate) struct Computed {
    pub(crate) column: u16,
    pub(crate) expr: Expr,
    /// A default that reads other columns; otherwise a generated column.
    pub(crate) is_default: bool,
    /// It has the keys of a multi-valued index.
    pub(crate) list: Option<ListKeys>,
}

/// The expressions of a table, bound to its columns.
#[derive(Debug)]
pub struct Rules {
    /// In the order of their names.
    pub(crate) checks: Vec<Check>,
    /// In the order of the columns.
    computed: Vec<Computed>,
    /// Defaults that read no column.
    defaults: Vec<(u16, Expr)>,
    /// Columns that checks and generated columns read.
    read: Vec<u16>,
    /// What stands in indexes as a generated column.
    keyed: Vec<Keyed>,
}

/// The rules of a table as soon as they were asked for.
#[derive(Default, Debug)]
pub struct Kept(OnceCell<std::result::Result<Option<Box<Rules>>, SqlError>>);

impl PartialEq for Kept {
    /// What follows from the definition is no part of it.
    fn eq(&self, _: &Kept) -> bool {
        true
    }
}

impl Kept {
    pub fn of(&self, schema: &TableSchema) -> Result<Option<&Rules>> {
        match self.0.get_or_init(|| Rules::new(schema)) {
            Ok(rules) => Ok(rules.as_deref()),
            Err(e) => Err(e.clone()),
        }
    }
}

/// An expression over rows of the table.
pub(crate) fn bind(schema: &TableSchema, text: &str, clause: &'static str) -> Result<Expr> {
    let mut builder = Builder::new(Some(schema), &schema.name, &schema.database);
    (builder.clause, builder.of_definition) = (clause, true);
    let tree = read::parse(text)?;
    match functional::array(&tree) {
        Some((document, element)) => {
            let ty = lists::element_type(element)?;
            Ok(Expr::Cast(Box::new(builder.build(document)?), CastType::Array(ty)))
        }
        None => builder.build(&tree),
    }
}

fn columns_of(e: &Expr) -> Vec<u16> {
    let mut columns = Vec::new();
    e.columns(&mut columns);
    columns
}

/// Other columns of the index whose keys a column has.
fn parts_beside(schema: &TableSchema, column: u16) -> impl Iterator<Item = u16> {
    let index = schema.indexes.iter().find(|index| index.list_column() == Some(column));
    index.into_iter().flat_map(|index| index.columns.iter().copied()).filter(move |c| *c != column)
}

impl Rules {
    fn new(schema: &TableSchema) -> std::result::Result<Option<Box<Rules>>, SqlError> {
        let (checks, computed, defaults, read, keyed) = Default::default();
        let mut rules = Rules { checks, computed, defaults, read, keyed };
        for (c, column) in schema.columns.iter().zip(0u16..).map(|(c, no)| (no, c)) {
            if let Some(generated) = &column.generated {
                let expr = bind(schema, &generated.text, "generated column function")?;
                rules.read.extend(columns_of(&expr));
                rules.read.extend(parts_beside(schema, c));
                rules.keyed.extend(Keyed::of(schema, c, &expr));
                let list = ListKeys::of(schema, c, &expr);
                rules.computed.push(Computed { column: c, expr, is_default: false, list });
            } else if let DefaultValue::Expression(text) = &column.default {
                let expr = bind(schema, text, "default value expression")?;
                if columns_of(&expr).is_empty() {
                    rules.defaults.push((c, expr));
                } else {
                    rules.computed.push(Computed { column: c, expr, is_default: true, list: None });
                }
            }
        }
        for check in schema.checks.iter().filter(|check| check.enforced != Enforced::No) {
            let condition = bind(schema, &check.text, "check constraint")?;
            rules.read.extend(columns_of(&condition));
            rules.checks.push(Check { name: check.name.clone(), condition });
        }
        let is_empty = rules.checks.is_empty() && rules.computed.is_empty() && rules.defaults.is_empty();
        Ok((!is_empty).then(|| Box::new(rules)))
    }

    pub(crate) fn generated(&self) -> impl Iterator<Item = &Computed> {
        self.computed.iter().filter(|c| !c.is_default)
    }
    pub(crate) fn computed(&self, column: u16) -> Option<&Computed> {
        self.computed.iter().find(|c| c.column == column)
    }
    /// How the lists of multi-valued indexes are made.
    pub(crate) fn lists(&self) -> impl Iterator<Item = &ListKeys> {
        self.computed.iter().filter_map(|c| c.list.as_ref())
    }
    /// Whether a check or a generated column reads one of these columns.
    pub fn reads(&self, mut columns: impl Iterator<Item = u16>) -> bool {
        columns.any(|c| self.read.contains(&c))
    }
}

/// The default of a column as an expression over the row; of a generated column a value that nobody looks at.
///
/// # Errors
/// 1364: it has none.
pub fn default_of(table: &Table, column: u16) -> Result<Expr> {
    let c = &table.schema.columns[usize::from(column)];
    if c.generated.is_some() {
        return Ok(Expr::Const(Datum::Null));
    }
    let DefaultValue::Expression(_) = c.default else { return default_expr(c) };
    let rules = table.rules()?;
    let early = rules.and_then(|r| r.defaults.iter().find(|(no, _)| *no == column)).map(|(_, e)| e);
    let late = || rules.and_then(|r| r.computed(column)).map(|c| &c.expr);
    early.or_else(late).cloned().ok_or_else(|| crate::errors::internal("a default that is none"))
}

/// What an INSERT that does not name the column begins with: its default, or NULL where it is computed when the others are there ([`Rules::is_late`]).
///
/// # Errors
/// 1364: it has none.
pub fn initial(table: &Table, column: u16) -> Result<Expr> {
    if table.rules()?.is_some_and(|rules| rules.computed(column).is_some()) {
        return Ok(Expr::Const(Datum::Null));
    }
    default_of(table, column)
}

/// Refuses a value for a generated column.
///
/// # Errors
/// 3105.
pub fn refuse_value(schema: &TableSchema, column: u16) -> Result<()> {
    let c = &schema.columns[usize::from(column)];
    if c.generated.is_some() { Err(failures::value_for_generated(&c.name, &schema.name)) } else { Ok(()) }
}
