//! ALTER TABLE ... ADD of columns whose values are computed from the others: the rows that are there get theirs.
//!
//! The column comes under a name that nobody sees ([`MARK`]). From then on every SQL node computes it for what it writes. Then each row that is there is locked and written
//! with its value, some hundred at a time, and the column gets its name, by which all see it at once. What cannot be computed takes the column back. Should this SQL node die in
//! between, the hidden column stays until the next ALTER TABLE that adds one of its name, or changes columns.

use std::cell::{Cell, RefCell};

use apus_signal::{
    dict::{Change, ColumnsChange, TableName},
    schema::{SourceMessage, column_to_wire},
    tc::OpKind,
};
use apus_types::{Column, ErrorCode, TableSchema, form::Source, rules::CheckDef, schema::DefaultValue, update};

use super::{
    alter::{self, CheckStep, Work},
    rows::{Looked, Stop},
};
use crate::{
    errors::{self, Result},
    exec::change::{self, Storing},
    expr::Expr,
    plan::rules::{
        bind,
        failures::{self, Place},
        read::{examine, names},
    },
    session::{Fail, Session, engine::SqlEngine},
};

/// What the name of a column begins with whose rows are being filled.
const MARK: &str = "#new#";
/// Attempts of a change that meets another.
const ATTEMPTS_MAX: u32 = 50;

/// Whether rows that are there need a value of their own in this column when it is added.
///
/// # Errors
/// Its expression cannot be read.
pub fn needs_rows(column: &Column) -> Result<bool> {
    match (&column.generated, &column.default) {
        (Some(_), _) => Ok(true),
        (None, DefaultValue::Expression(text)) => Ok(!names(text)?.is_empty()),
        _ => Ok(false),
    }
}

/// The default that all rows that are there get of a column that is added.
///
/// # Errors
/// What may not stand in a default, and 1674: each row would get another.
pub fn one_for_all(table: &TableSchema, column: &Column) -> Result<Option<Expr>> {
    const OTHERS: [&str; 7] = ["rand", "uuid", "uuid_short", "sysdate", "user", "current_user", "random_bytes"];
    let DefaultValue::Expression(text) = &column.default else { return Ok(None) };
    let examined = examine(table, text, Place::Default(&column.name))?;
    if examined.functions.iter().any(|name| OTHERS.contains(&name.as_str())) {
        return Err(failures::unsafe_function());
    }
    bind(table, &examined.text, "default value expression").map(Some)
}

/// The column under a name that nobody sees.
pub fn hidden(column: Column) -> Column {
    Column { name: format!("{MARK}{}", column.name), ..column }
}

/// A column that is being filled, or was when its SQL node died.
pub fn is_unfinished(column: &Column) -> bool {
    column.name.starts_with(MARK)
}

/// New columns that are filled do not read each other.
///
/// # Errors
/// 1235.
pub fn check_apart(added: &[&Column]) -> Result<()> {
    for column in added {
        let text = match (&column.generated, &column.default) {
            (Some(generated), _) => &generated.text,
            (None, DefaultValue::Expression(text)) => text,
            _ => continue,
        };
        let read = names(text)?;
        if added.iter().any(|other| read.iter().any(|name| name.eq_ignore_ascii_case(&other.name))) {
            return Err(errors::not_supported(
                "ALTER TABLE ... ADD of a column whose expression reads one that comes with it",
            ));
        }
    }
    Ok(())
}

type Columns = Vec<(Column, Source)>;

impl SqlEngine {
    /// Gives each row its values of the columns that are hidden now, and the columns their names, which are `names`; how many rows there are.
    pub(crate) async fn fill_columns(
        &self,
        session: &mut Session,
        name: &TableName,
        names: &[String],
        checks: &[&CheckStep],
    ) -> Result<u64> {
        let filled = self.fill_rows(session, name, names).await;
        let Ok(looked) = filled else {
            let drop = |columns: &mut Columns, _: &TableSchema| {
                columns.retain(|(c, _)| !names.iter().any(|name| c.name == format!("{MARK}{name}")));
                Ok(None)
            };
            self.replace_columns(name, None, drop).await?;
            return filled.map(|looked| looked.rows);
        };
        let publish = |columns: &mut Columns, table: &TableSchema| {
            for (column, _) in columns.iter_mut() {
                if let Some(name) = names.iter().find(|name| column.name == format!("{MARK}{name}")) {
                    column.name.clone_from(name);
                }
            }
            Work::new(table, checks.iter().copied())?.finish(table, columns)
        };
        self.replace_columns(name, Some(looked.lineage), publish).await?;
        Ok(looked.rows)
    }

    async fn fill_rows(&self, session: &mut Session, name: &TableName, names: &[String]) -> Result<Looked> {
        let strict = session.env.variables.strict;
        let (count, warnings) = (Cell::new(0usize), RefCell::new(Vec::new()));
        let filled = self
            .all_rows(session, name, true, |session, table, key, row, changes| {
                count.set(count.get() + 1);
                let schema = &table.schema;
                let (mut row, mut program, mut refused) = (row.to_vec(), Vec::new(), Vec::new());
                for name in names {
                    let column = schema.column_no(&format!("{MARK}{name}"));
                    let computed = column.and_then(|c| Some((c, table.rules().ok()??.computed(c)?)));
                    let Some((column, computed)) = computed else {
                        return Err(Stop::Sql(errors::from_code(ErrorCode::SchemaVersionChanged, &schema.name)));
                    };
                    let mut storing = Storing {
                        row: count.get(),
                        lenient: !strict,
                        takes_null: !strict,
                        keeps_null: false,
                        refused: &mut refused,
                    };
                    let source = (column, &computed.expr);
                    row = change::with_column(session, schema, &row, source, None, &[], &mut storing).map_err(
                        |fail| match fail {
                            Fail::Sql(e) => Stop::Sql(e),
                            Fail::Client(e) => Stop::Client(e),
                        },
                    )?;
                    if schema.layout().is_null(&row, column) {
                        update::push_set_null(&mut program, column);
                    } else {
                        update::push_set(&mut program, column, schema.layout().raw(&row, column));
                    }
                }
                warnings.borrow_mut().append(&mut refused);
                changes.push(schema, OpKind::Update, 0, key, &program)?;
                Ok(())
            })
            .await;
        warnings.into_inner().iter().for_each(|e| session.warn_error(e));
        filled
    }

    /// Changes the columns as they are in the dictionary, until nobody comes between. `lineage`: by which all rows have their values.
    async fn replace_columns(
        &self,
        name: &TableName,
        lineage: Option<u64>,
        mut change: impl FnMut(&mut Columns, &TableSchema) -> Result<Option<Vec<CheckDef>>>,
    ) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let catalog = self.fetch_catalog().await?;
            if lineage.is_some_and(|lineage| lineage != catalog.lineage) {
                // The cluster has started from the disks meanwhile, perhaps with rows of before.
                return Err(errors::from_code(ErrorCode::TransactionAborted, &name.table));
            }
            let table = catalog.table(&name.database, &name.table)?;
            let schema = &table.schema;
            let mut columns: Columns = schema.columns.iter().cloned().zip((0..).map(Source::Kept)).collect();
            let checks = change(&mut columns, schema)?;
            let change = ColumnsChange {
                table: Some(name.clone()),
                id: schema.id.0,
                version: schema.version,
                columns: columns.iter().map(|(column, _)| column_to_wire(column)).collect(),
                sources: columns.iter().map(|(_, source)| SourceMessage::from(source)).collect(),
                checks: checks.as_deref().map(alter::to_wire),
                lineage,
                ..ColumnsChange::default()
            };
            match self.change(Change::ChangeColumns(change)).await? {
                None => return Ok(()),
                Some(ErrorCode::SchemaVersionChanged) => {}
                Some(code) => return Err(errors::from_code(code, &name.table)),
            }
        }
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, &name.table))
    }
}
