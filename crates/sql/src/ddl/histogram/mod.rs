//! ANALYZE TABLE ... UPDATE | DROP HISTOGRAM carried out, and what becomes of histograms when their tables change.

pub mod clause;
pub(crate) mod renew;

use std::{collections::BTreeMap, time::SystemTime};

use apus_client::Losses;
use apus_signal::{
    dict::{Change as Sent, TableName},
    schema::TableMessage,
};
use apus_types::{Column, ColumnType, ErrorCode, TableSchema, time::pack_datetime};

use self::clause::{Change, Clause};
use super::statement::Ddl;
use crate::{
    catalog::{
        Catalog, Table,
        histogram::{
            DEFINITION_BYTES_MAX, Definition, Histogram, Kept, TEXT_CHARS, build, change_of, check, described, kept_as,
            key, of_table, table,
        },
    },
    errors::{self, Result},
    expr::json::{of_datum, parsed},
    parse::{token::Name, view_text::quoted},
    plan::into,
    server::Output,
    session::{
        Session,
        buffers::Scratch,
        engine::{ATTEMPTS_MAX, SqlEngine},
    },
    value::{datum::Datum, json::Json, temporal::timestamp_to_civil, zone::Zone},
    variables::NO_LIMIT,
};

/// Kind and text of a row of the answer.
type Said = (&'static str, String);

/// Attempts of a change that another one gets in the way of.
const CHANGES_MAX: u32 = 20;

impl SqlEngine {
    /// Carries a clause out; what is to be said of the table.
    pub(crate) async fn change_histograms(
        &self,
        session: &mut Session,
        (database, name): (&str, &str),
        clause: &Clause,
        out: &mut Output<'_>,
    ) -> Result<Vec<Said>> {
        let error = |text: &str| Ok(vec![("Error", text.to_owned())]);
        let catalog = self.catalog().await?;
        if database == crate::catalog::grant_tables::DATABASE {
            return error("Histograms are not supported on the MySQL system schema.");
        }
        if session.temporary.find(database, name).is_some() {
            return error("Cannot create histogram statistics for a temporary table.");
        }
        if catalog.view(database, name).is_some() {
            return error("Cannot create histogram statistics for a view.");
        }
        let found = match catalog.table(database, name) {
            Ok(found) => found,
            Err(e) => return error(&e.message),
        };
        if matches!(clause.change, Change::Given(_)) && clause.columns.len() > 1 {
            return error("Only one column can be specified while modifying histogram statistics with JSON data.");
        }
        let mut said: BTreeMap<String, Vec<Said>> = BTreeMap::new();
        for column in &clause.columns {
            let told = self.change_histogram(session, &found, column, &clause.change, out).await?;
            said.insert(column.to_lowercase(), told);
        }
        // What was done comes before what was not.
        let (done, failed): (Vec<Said>, Vec<Said>) =
            said.into_values().flatten().partition(|(kind, _)| *kind == "status");
        self.fetch_catalog().await?;
        Ok(done.into_iter().chain(failed).collect())
    }

    async fn change_histogram(
        &self,
        session: &mut Session,
        table: &Table,
        name: &str,
        change: &Change,
        out: &mut Output<'_>,
    ) -> Result<Vec<Said>> {
        let schema = &table.schema;
        let error = |text: String| Ok(vec![("Error", text)]);
        let column = table.visible_columns().find(|c| schema.columns[usize::from(*c)].name.eq_ignore_ascii_case(name));
        let Some(number) = column else { return error(format!("The column '{name}' does not exist.")) };
        let column = &schema.columns[usize::from(number)];
        let name = &column.name;
        if *change == Change::Drop {
            return match self.drop_histogram(schema, name).await? {
                true => Ok(vec![("status", format!("Histogram statistics removed for column '{name}'."))]),
                false => error(format!("No histogram statistics found for column '{name}'.")),
            };
        }
        if described(column.ty).is_none() {
            return error(format!("The column '{name}' has an unsupported data type."));
        }
        if is_unique(schema, number) {
            return error(format!("The column '{name}' is covered by a single-part unique index."));
        }
        let made = match change {
            Change::Given(document) => match given(document, column) {
                Ok(mut histogram) => {
                    histogram.updated = now();
                    histogram
                }
                Err(texts) => {
                    let (first, own) = texts.split_at(texts.len() - 1);
                    let unable = format!(
                        "Unable to build histogram statistics for column '{name}' in table '{}'.'{}'",
                        schema.database, schema.name
                    );
                    return Ok(first
                        .iter()
                        .cloned()
                        .chain([unable])
                        .chain(own.iter().cloned())
                        .map(|t| ("Error", t))
                        .collect());
                }
            },
            Change::Update { buckets, is_automatic } => {
                let wanted = (*buckets, *is_automatic);
                match self.counted(session, schema, column, wanted, out).await {
                    Ok(histogram) => histogram,
                    Err(e) => return error(e.message),
                }
            }
            Change::Drop => return Err(errors::internal("a histogram that is dropped")),
        };
        let definition = Definition { table: schema.name.clone(), column: name.clone(), histogram: made };
        if definition.encode().len() > DEFINITION_BYTES_MAX {
            return error(format!(
                "The histogram of column '{name}' is longer than {DEFINITION_BYTES_MAX} bytes; use fewer buckets."
            ));
        }
        self.put_histogram(&schema.database, &definition).await?;
        Ok(vec![("status", format!("Histogram statistics created for column '{name}'."))])
    }

    /// Counts the values of a column.
    async fn counted(
        &self,
        session: &mut Session,
        schema: &TableSchema,
        column: &Column,
        (wanted, is_automatic): (u64, bool),
        out: &mut Output<'_>,
    ) -> Result<Histogram> {
        let (data_type, collation) = described(column.ty).ok_or_else(|| errors::internal("a column without values"))?;
        let name = quoted(&column.name);
        let is_text = data_type == "string";
        let value = match column.ty {
            _ if is_text => format!("LEFT({name}, {TEXT_CHARS})"),
            ColumnType::Label { .. } | ColumnType::Bit { .. } => format!("{name} + 0"),
            _ => name,
        };
        let from = format!("{}.{}", quoted(&schema.database), quoted(&schema.name));
        let text = format!("SELECT {value} AS v, COUNT(*) FROM {from} GROUP BY v ORDER BY v");
        let (mut values, mut nulls) = (Vec::new(), 0);
        for row in self.collected(session, &text, out).await? {
            let [value, count] = row.as_slice() else { return Err(errors::internal("a value without a count")) };
            let count = count.number().map_or(0, |n| n.to_i128() as u64);
            match value {
                Datum::Null => nulls = count,
                Datum::Text(bytes) | Datum::Bytes(bytes) if is_text => {
                    values.push((Json::Opaque(254, bytes.to_vec()), count));
                }
                Datum::Double(x) if data_type != "double" => values.push((Json::Int(*x as i64), count)),
                other => values.push((of_datum(other), count)),
            }
        }
        let about = Histogram {
            is_singleton: true,
            buckets: Vec::new(),
            data_type,
            collation,
            nulls: 0.0,
            sampling_rate: 1.0,
            is_automatic,
            updated: now(),
            wanted,
            rows: nulls + values.iter().map(|(_, count)| count).sum::<u64>(),
        };
        Ok(build::histogram(values, nulls, about))
    }

    /// The rows of a query of our own.
    async fn collected(
        &self,
        session: &mut Session,
        text: &str,
        out: &mut Output<'_>,
    ) -> Result<Vec<Vec<Datum<'static>>>> {
        let (mut attempt, mut losses) = (0, Losses::new(&self.client));
        loop {
            attempt += 1;
            let catalog = self.catalog().await?;
            let plan = Box::pin(self.plan_measured(&catalog, &session.env, text, Vec::new(), NO_LIMIT)).await?;
            let (plan, mut s, start) = (into::collecting(plan), Scratch::default(), out.mark());
            let done = Box::pin(self.run(session, &mut s, &catalog, &plan, &[], 1, out, &mut losses)).await;
            match done {
                Ok(()) => {
                    assert!(out.take_back(start), "an OK was sent before its statement had ended");
                    return Ok(std::mem::take(&mut session.collected));
                }
                Err((e, true)) if attempt < ATTEMPTS_MAX => {
                    self.may_try_again(&mut losses, text.as_bytes()).await?;
                    self.learn_definitions(&e, attempt).await?;
                }
                Err((e, _)) => return Err(e),
            }
        }
    }

    /// Makes those of a table anew that say AUTO UPDATE.
    pub(crate) async fn renew_histograms(
        &self,
        session: &mut Session,
        table: &Table,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let catalog = self.catalog().await?;
        let schema = &table.schema;
        for kept in of_table(&catalog.histograms, schema).filter(|kept| kept.definition.histogram.is_automatic) {
            let name = &kept.definition.column;
            let Some(column) = schema.columns.iter().find(|c| c.name == *name) else { continue };
            let wanted = (kept.definition.histogram.wanted, true);
            let histogram = self.counted(session, schema, column, wanted, out).await?;
            let definition = Definition { histogram, ..kept.definition.clone() };
            self.put_histogram(&schema.database, &definition).await?;
        }
        self.fetch_catalog().await.map(|_| ())
    }

    async fn put_histogram(&self, database: &str, definition: &Definition) -> Result<()> {
        for _ in 0..CHANGES_MAX {
            let catalog = self.fetch_catalog().await?;
            let before = catalog.histograms.get(&key(database, &definition.table, &definition.column));
            let change = before.and_then(|kept| change_of(&kept.kept_as)).map_or(0, |last| last + 1);
            let name = kept_as(&definition.table, &definition.column, change);
            match self.change(Sent::CreateTable(TableMessage::from(&table(database, &name, definition)))).await? {
                None => {
                    if let Some(before) = before {
                        self.forget(before).await?;
                    }
                    return Ok(());
                }
                Some(ErrorCode::TableExists) => {}
                Some(code) => return Err(errors::from_code(code, &definition.table)),
            }
        }
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, &definition.table))
    }

    async fn drop_histogram(&self, schema: &TableSchema, column: &str) -> Result<bool> {
        let catalog = self.fetch_catalog().await?;
        let Some(kept) = catalog.histograms.get(&key(&schema.database, &schema.name, column)) else { return Ok(false) };
        self.forget(kept).await?;
        Ok(true)
    }

    /// Drops a histogram and what was before it, which must not count again.
    async fn forget(&self, kept: &Kept) -> Result<()> {
        for name in kept.older.iter().chain([&kept.kept_as]) {
            let name = TableName { database: kept.database.clone(), table: name.clone(), version: 0 };
            self.change(Sent::DropTable(name)).await?;
        }
        Ok(())
    }

    /// Behind a definition statement: histograms go with their tables and columns.
    pub(crate) async fn settle_histograms(&self, before: &Catalog, follows: &Follows) -> Result<()> {
        for (from, to) in &follows.renamed {
            let catalog = self.fetch_catalog().await?;
            for kept in catalog.histograms.values().filter(|kept| kept.is_of(from)) {
                let definition = Definition { table: to.1.clone(), ..kept.definition.clone() };
                self.put_histogram(&to.0, &definition).await?;
                self.forget(kept).await?;
            }
        }
        let catalog = self.fetch_catalog().await?;
        for kept in catalog.histograms.values() {
            let (database, Definition { table, column, .. }) = (&kept.database, &kept.definition);
            let is_gone = follows.gone.as_ref().is_some_and(|(table, columns)| {
                kept.is_of(table) && columns.iter().any(|c| c.eq_ignore_ascii_case(column))
            });
            let stays = catalog.find(database, table).is_some_and(|now| {
                let (database, table) = follows.before((database.clone(), table.clone()));
                let was = before.find(&database, &table);
                stays(was.as_ref().map(|t| &t.schema), &now.schema, column)
            });
            if is_gone || !stays {
                self.forget(kept).await?;
            }
        }
        self.fetch_catalog().await.map(|_| ())
    }
}

/// What a definition statement does to the histograms that are there.
#[derive(Debug, Default)]
pub struct Follows {
    /// Database and table, before and after, in the order of the statement.
    renamed: Vec<(Full, Full)>,
    /// Columns of a table that are no more what they were, whatever is called so now.
    gone: Option<(Full, Vec<String>)>,
}

type Full = (String, String);

impl Follows {
    pub fn of(ddl: &Ddl, default: Option<&str>) -> Follows {
        let full =
            |name: &Name| (name.0.clone().or_else(|| default.map(str::to_owned)).unwrap_or_default(), name.1.clone());
        match ddl {
            Ddl::RenameTable(from, to) => Follows { renamed: vec![(full(from), full(to))], gone: None },
            Ddl::Rename(list) => {
                Follows { renamed: list.iter().map(|(from, to)| (full(from), full(to))).collect(), gone: None }
            }
            Ddl::Alter(clause) => {
                let columns = clause.dropped_columns().chain(clause.changed_columns()).map(str::to_owned).collect();
                Follows { renamed: Vec::new(), gone: Some((full(&clause.table), columns)) }
            }
            _ => Follows::default(),
        }
    }
}

impl Follows {
    /// What a table was called before the statement.
    fn before(&self, name: Full) -> Full {
        self.renamed.iter().rev().fold(name, |name, (from, to)| if name == *to { from.clone() } else { name })
    }
}

impl Kept {
    fn is_of(&self, (database, table): &Full) -> bool {
        self.database == *database && self.definition.table == *table
    }
}

/// Whether what a histogram says of a column of the table before may be said of the one that it is now.
fn stays(was: Option<&TableSchema>, now: &TableSchema, name: &str) -> bool {
    let of = |schema: &TableSchema| schema.column_no(name).map(|no| schema.columns[usize::from(no)].ty);
    let is_like = |a: ColumnType, b: ColumnType| match (a, b) {
        (ColumnType::Label { is_set, labels, .. }, ColumnType::Label { is_set: other, labels: others, .. }) => {
            (is_set, labels) == (other, others)
        }
        _ => a == b,
    };
    let Some(number) = now.column_no(name) else { return false };
    let is_same = was.and_then(of).is_none_or(|was| of(now).is_some_and(|now| is_like(was, now)));
    is_same && !is_unique(now, number)
}

/// A unique index, or the primary key, has this column and no other.
fn is_unique(schema: &TableSchema, column: u16) -> bool {
    schema.primary_key == [column] || schema.indexes.iter().any(|i| i.unique && i.columns == [column])
}

/// Of the SQL node's clock, whatever a session says.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    pack_datetime(timestamp_to_civil(since.as_micros() as i64, Zone::UTC))
}

/// Of a text that should be a document; the errors are what is said of it, the last behind the column's name.
fn given(text: &str, column: &Column) -> std::result::Result<Histogram, Vec<String>> {
    match parsed(text.as_bytes(), 1, "UPDATE HISTOGRAM") {
        Ok(document) => check::given(&document, column).map_err(|text| vec![text]),
        Err(e) => Err(vec![e.message, "JSON format error.".to_owned()]),
    }
}
