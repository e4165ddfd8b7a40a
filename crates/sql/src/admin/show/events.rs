//! SHOW EVENTS, SHOW CREATE EVENT, and INFORMATION_SCHEMA.EVENTS.

use std::collections::BTreeMap;

use apus_types::Value;

use super::{
    filter::Filter,
    heading::{self, Headings, Told},
};
use crate::{
    accounts::Privileges,
    catalog::{Catalog, information_schema::DATABASE},
    errors::{self, Result},
    expr::Env,
    parse::{token::Tokens, view_text::quoted},
    program::{
        event::{Definition, Event, Status, failures, schedule::Schedule},
        routine::{define::full, failures::bad_name},
    },
    server::Output,
    session::{Session, authorize::database_denied, engine::SqlEngine},
    value::{
        datum::{Datum, Row},
        temporal::whole_seconds,
        zone::Zone,
    },
};

const EVENTS: Headings = &[
    ("Db", Told::Text),
    ("Name", Told::Text),
    ("Definer", Told::Text),
    ("Time zone", Told::Text),
    ("Type", Told::Text),
    ("Execute at", Told::DateTime),
    ("Interval value", Told::Text),
    ("Interval field", Told::Enum),
    ("Starts", Told::DateTime),
    ("Ends", Told::DateTime),
    ("Status", Told::Text),
    ("Originator", Told::UInt),
    ("character_set_client", Told::Text),
    ("collation_connection", Told::Text),
    ("Database Collation", Told::Text),
];

/// The server_id of a MySQL that has none set.
const ORIGINATOR: i64 = 1;

/// Whether the account may know of an event.
fn sees(env: &Env, event: &Event) -> bool {
    env.me.as_ref().is_none_or(|me| me.rights.on_database(&event.database).contains(Privileges::EVENT))
}

/// A moment as the clocks of a zone show it, in whole seconds.
fn moment(micros: i64, zone: Zone) -> String {
    Datum::from_value(Value::Timestamp(whole_seconds(micros)), false, zone, 0).as_string()
}

/// What columns say of a schedule.
struct Columns {
    kind: &'static str,
    at: Option<String>,
    count: Option<String>,
    unit: Option<&'static str>,
    starts: Option<String>,
    ends: Option<String>,
}

fn told(d: &Definition) -> Columns {
    let zone = d.zone();
    match d.schedule {
        Schedule::At(at) => {
            let at = Some(moment(at, zone));
            Columns { kind: "ONE TIME", at, count: None, unit: None, starts: None, ends: None }
        }
        Schedule::Every { unit, count, starts, ends } => Columns {
            kind: "RECURRING",
            at: None,
            count: Some(interval(unit.written(count), unit.is_compound())),
            unit: Some(unit.name),
            starts: Some(moment(starts, zone)),
            ends: ends.map(|ends| moment(ends, zone)),
        },
    }
}

/// Of several fields it is in quotes.
fn interval(written: String, is_compound: bool) -> String {
    if is_compound { format!("'{written}'") } else { written }
}

/// `CREATE DEFINER=... EVENT ...`, as MySQL writes it for a session in whose mode names are in double quotes or not.
fn create(d: &Definition, is_ansi: bool) -> String {
    let name = |name: &str| if is_ansi { format!("\"{}\"", name.replace('"', "\"\"")) } else { quoted(name) };
    let (user, host, event) = (name(&d.definer.0), name(&d.definer.1), name(&d.name));
    let told = told(d);
    let mut text = format!("CREATE DEFINER={user}@{host} EVENT {event} ON SCHEDULE ");
    match (told.at, told.count, told.unit) {
        (Some(at), ..) => text.push_str(&format!("AT '{at}'")),
        (None, count, unit) => {
            text.push_str(&format!("EVERY {} {}", count.unwrap_or_default(), unit.unwrap_or_default()));
            told.starts.iter().for_each(|starts| text.push_str(&format!(" STARTS '{starts}'")));
            told.ends.iter().for_each(|ends| text.push_str(&format!(" ENDS '{ends}'")));
        }
    }
    text.push_str(if d.is_kept { " ON COMPLETION PRESERVE" } else { " ON COMPLETION NOT PRESERVE" });
    text.push_str(match d.status {
        Status::Enabled => " ENABLE",
        Status::Disabled => " DISABLE",
        Status::DisabledOnReplica => " DISABLE ON REPLICA",
    });
    if !d.comment.is_empty() {
        let comment = d.comment.replace('\\', "\\\\").replace('\'', "''").replace('\n', "\\n");
        text.push_str(&format!(" COMMENT '{comment}'"));
    }
    format!("{text} DO {}", d.body)
}

impl SqlEngine {
    /// SHOW CREATE EVENT, behind the second word; `false`: of something else.
    pub(crate) async fn show_create_event(
        &self,
        session: &mut Session,
        t: &mut Tokens,
        out: &mut Output<'_>,
    ) -> Result<bool> {
        if !t.word("event") {
            return Ok(false);
        }
        let (database, name) = full(session, &t.name()?)?;
        t.end()?;
        if name.is_empty() || name.ends_with(' ') {
            return Err(bad_name(&name));
        }
        self.require_for_events(session, &database).await?;
        let mut found = self.catalog().await?.event(&database, &name).cloned();
        if found.is_none() {
            found = self.fetch_catalog().await?.event(&database, &name).cloned();
        }
        let event = found.ok_or_else(|| failures::unknown(&name))?;
        let d = &event.definition;
        let text = create(d, session.env.variables.syntax.ansi_quotes);
        let row = [&d.name, &d.sql_mode, &d.zone, &text, &d.charset, &d.collation, &d.database_collation];
        let names = [
            "Event",
            "sql_mode",
            "time_zone",
            "Create Event",
            "character_set_client",
            "collation_connection",
            "Database Collation",
        ];
        super::table(session, out, &names, &[row.map(|cell| Some(cell.clone())).to_vec()]);
        Ok(true)
    }

    /// SHOW EVENTS, behind the first word.
    pub(crate) async fn show_events(&self, session: &mut Session, t: &mut Tokens, out: &mut Output<'_>) -> Result<()> {
        t.skip();
        let named = t.word("from") || t.word("in");
        let database = if named { Some(t.identifier()?) } else { session.env.database.clone() };
        let database = database.ok_or_else(errors::no_database)?;
        let filter = Filter::parse(t)?.by("Name");
        if let Some(me) = self.identity(session).await?
            && database != DATABASE
            && !me.rights.on_database(&database).contains(Privileges::EVENT)
        {
            return Err(database_denied(&session.env, &database));
        }
        let catalog = self.catalog().await?;
        let row = |event: &Event| {
            let (d, told) = (&event.definition, told(&event.definition));
            vec![
                Some(event.database.clone()),
                Some(d.name.clone()),
                Some(format!("{}@{}", d.definer.0, d.definer.1)),
                Some(d.zone.clone()),
                Some(told.kind.to_owned()),
                told.at,
                told.count,
                told.unit.map(str::to_owned),
                told.starts,
                told.ends,
                Some(d.status.name().to_owned()),
                Some(ORIGINATOR.to_string()),
                Some(d.charset.clone()),
                Some(d.collation.clone()),
                Some(d.database_collation.clone()),
            ]
        };
        let rows: Vec<_> = catalog.events().filter(|e| e.database == database).map(|e| row(e)).collect();
        heading::answer(session, out, EVENTS, rows, &filter)
    }
}

/// Of INFORMATION_SCHEMA.EVENTS; `runs`: when the last runs began, by the events' numbers.
pub fn rows(catalog: &Catalog, env: &Env, runs: &BTreeMap<u64, i64>) -> Vec<Row> {
    let text = |s: &str| Datum::text(s.to_owned());
    let option = |s: Option<String>| s.map_or(Datum::Null, Datum::text);
    let row = |event: &Event| {
        let (d, told) = (&event.definition, told(&event.definition));
        let last = runs.get(&d.number).map(|last| moment(*last, d.zone()));
        let mut row = vec![text("def"), text(&event.database), text(&d.name)];
        row.extend([Datum::text(format!("{}@{}", d.definer.0, d.definer.1)), text(&d.zone), text("SQL")]);
        row.extend([text(&d.body), text(told.kind), option(told.at), option(told.count)]);
        row.extend([option(told.unit.map(str::to_owned)), text(&d.sql_mode), option(told.starts), option(told.ends)]);
        row.extend([text(d.status.name()), text(if d.is_kept { "PRESERVE" } else { "NOT PRESERVE" })]);
        row.extend([d.created, d.modified].map(|micros| Datum::Int(whole_seconds(micros))));
        row.push(option(last));
        row.extend([text(&d.comment), Datum::Int(ORIGINATOR)]);
        row.extend([text(&d.charset), text(&d.collation), text(&d.database_collation)]);
        row
    };
    catalog.events().filter(|event| sees(env, event)).map(|event| row(event)).collect()
}
