//! SHOW TRIGGERS, SHOW CREATE TRIGGER, and INFORMATION_SCHEMA.TRIGGERS.

use super::{filter::Filter, heading};
use crate::{
    accounts::Privileges,
    admin::unsupported::TRIGGERS,
    catalog::{Catalog, Table, information_schema::DATABASE},
    errors::{self, Result},
    expr::Env,
    parse::{token::Tokens, view_text::quoted},
    plan::needs::privilege_missing,
    program::{
        routine::define::full,
        trigger::{Definition, define::find, definitions},
    },
    server::Output,
    session::{Session, engine::SqlEngine},
    value::{
        datum::{Datum, Row},
        zone::Zone,
    },
};
use apus_types::Value;

/// Whether the account may know of the triggers of a table.
fn sees(env: &Env, table: &Table) -> bool {
    let schema = &table.schema;
    env.me.as_ref().is_none_or(|me| me.rights.on_table(&schema.database, &schema.name).contains(Privileges::TRIGGER))
}

/// `CREATE DEFINER=... TRIGGER ...`, as MySQL writes it.
fn create(d: &Definition, table: &Table) -> String {
    let is_ansi = d.sql_mode.split(',').any(|mode| mode == "ANSI_QUOTES");
    let name = |name: &str| if is_ansi { format!("\"{}\"", name.replace('"', "\"\"")) } else { quoted(name) };
    let (user, host) = (name(&d.definer.0), name(&d.definer.1));
    let (trigger, table) = (name(&d.name), name(&table.schema.name));
    let (timing, event) = (d.timing(), d.event.name());
    format!("CREATE DEFINER={user}@{host} TRIGGER {trigger} {timing} {event} ON {table} FOR EACH ROW {}", d.body)
}

/// A moment as the session shows it, in hundredths of a second.
fn moment(micros: i64, zone: Zone) -> String {
    Datum::from_value(Value::Timestamp(hundredths(micros)), false, zone, 2).as_string()
}

fn hundredths(micros: i64) -> i64 {
    const HUNDREDTH: i64 = 10_000;
    micros.div_euclid(HUNDREDTH) * HUNDREDTH
}

/// Those of one table are numbered by event and time.
fn numbered(table: &Table) -> Result<Vec<(usize, Definition)>> {
    let list = definitions(&table.schema)?;
    let number = |at: usize| {
        let same = |d: &&Definition| (d.event, d.is_before) == (list[at].event, list[at].is_before);
        list[..=at].iter().filter(same).count()
    };
    Ok((0..list.len()).map(|at| (number(at), list[at].clone())).collect())
}

/// As SHOW has them: by table, and within one BEFORE and AFTER each event.
fn sorted(table: &Table) -> Result<Vec<(usize, Definition)>> {
    let mut list = numbered(table)?;
    list.sort_by_key(|(number, d)| (d.event, !d.is_before, *number));
    Ok(list)
}

impl SqlEngine {
    /// SHOW CREATE TRIGGER, behind the second word; `false`: of something else.
    pub(crate) async fn show_create_trigger(
        &self,
        session: &mut Session,
        t: &mut Tokens,
        out: &mut Output<'_>,
    ) -> Result<bool> {
        if !t.word("trigger") {
            return Ok(false);
        }
        let (database, name) = full(session, &t.name()?)?;
        t.end()?;
        self.identity(session).await?;
        if !self.catalog().await?.databases.contains_key(&database) {
            return Err(errors::unknown_database(&database));
        }
        let mut found = find(&*self.catalog().await?, &database, &name);
        if found.is_none() {
            found = find(&*self.fetch_catalog().await?, &database, &name);
        }
        let (def, table) = found.ok_or_else(errors::unknown_trigger)?;
        if !sees(&session.env, &table) {
            return Err(privilege_missing("TRIGGER"));
        }
        let d = Definition::from_def(&def).ok_or_else(errors::unknown_trigger)?;
        let row = vec![
            Some(d.name.clone()),
            Some(d.sql_mode.clone()),
            Some(create(&d, &table)),
            Some(d.charset.clone()),
            Some(d.collation.clone()),
            Some(d.database_collation.clone()),
            Some(moment(d.created, session.env.zone())),
        ];
        let names = [
            "Trigger",
            "sql_mode",
            "SQL Original Statement",
            "character_set_client",
            "collation_connection",
            "Database Collation",
            "Created",
        ];
        super::table(session, out, &names, &[row]);
        Ok(true)
    }

    /// SHOW TRIGGERS, behind the first word.
    pub(crate) async fn show_triggers(
        &self,
        session: &mut Session,
        t: &mut Tokens,
        out: &mut Output<'_>,
    ) -> Result<()> {
        t.skip();
        let named = t.word("from") || t.word("in");
        let database = if named { Some(t.identifier()?) } else { session.env.database.clone() };
        let database = database.ok_or_else(errors::no_database)?;
        let filter = Filter::parse(t)?.by("Table");
        self.identity(session).await?;
        let catalog = self.catalog().await?;
        let is_virtual = database.eq_ignore_ascii_case(DATABASE) || catalog.virtual_tables(&database).is_some();
        if !catalog.databases.contains_key(&database) && !is_virtual {
            return Err(errors::unknown_database(&database));
        }
        self.require_database(session, &database).await?;
        let zone = session.env.zone();
        let mut rows = Vec::new();
        for table in catalog.tables_of(&database).filter(|table| sees(&session.env, table)) {
            for (_, d) in sorted(table)? {
                let cells: [String; 11] = [
                    d.name.clone(),
                    d.event.name().to_owned(),
                    table.schema.name.clone(),
                    d.body.clone(),
                    d.timing().to_owned(),
                    moment(d.created, zone),
                    d.sql_mode.clone(),
                    format!("{}@{}", d.definer.0, d.definer.1),
                    d.charset.clone(),
                    d.collation.clone(),
                    d.database_collation.clone(),
                ];
                rows.push(cells.map(Some).to_vec());
            }
        }
        heading::answer(session, out, TRIGGERS, rows, &filter)
    }
}

fn text(s: impl Into<String>) -> Datum<'static> {
    Datum::text(s.into())
}

pub fn rows(catalog: &Catalog, env: &Env) -> Vec<Row> {
    let mut rows = Vec::new();
    for table in catalog.tables().filter(|table| !table.schema.triggers.is_empty() && sees(env, table)) {
        let schema = &table.schema;
        for (number, d) in sorted(table).unwrap_or_default() {
            let mut row = vec![text("def"), text(schema.database.clone()), text(d.name.clone()), text(d.event.name())];
            row.extend([text("def"), text(schema.database.clone()), text(schema.name.clone())]);
            row.extend([Datum::Int(number as i64), Datum::Null, text(d.body.clone()), text("ROW"), text(d.timing())]);
            row.extend([Datum::Null, Datum::Null, text("OLD"), text("NEW")]);
            row.extend([Datum::Int(hundredths(d.created)), text(d.sql_mode.clone())]);
            row.push(text(format!("{}@{}", d.definer.0, d.definer.1)));
            row.extend([text(d.charset.clone()), text(d.collation.clone()), text(d.database_collation.clone())]);
            rows.push(row);
        }
    }
    rows
}
