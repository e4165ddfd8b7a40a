//! CREATE, ALTER and DROP EVENT: each is one change of the dictionary.

use apus_signal::{
    dict::{Change as Sent, TableName},
    schema::TableMessage,
};
use apus_types::ErrorCode;

use super::{
    Definition, Event, Status, change_of,
    clause::{Alter, Change, Create, When},
    failures, kept_as,
    runs::draw,
    schedule::{Schedule, Unit},
    table,
};
use crate::{
    accounts::Privileges,
    admin::set::value_of,
    catalog::SYSTEM_DATABASE,
    errors::{self, Result},
    expr::func::clock::compound_interval,
    program::routine::{self, DEFINITION_BYTES_MAX, define::full},
    session::{Session, authorize::database_denied, engine::SqlEngine},
    value::{
        datum::{Datum, text_to_f64},
        temporal::{Dates, MICROS_PER_SECOND, is_valid, read_datetime, whole_seconds},
        zone::clock,
    },
};

/// Longest name in characters.
const NAME_CHARS_MAX: usize = 64;
/// The last moment of a schedule, 3001-01-18 23:59:59, as in MySQL. The first is one second after the beginning of 1970.
const LATEST: i64 = 32_536_771_199 * MICROS_PER_SECOND;

impl SqlEngine {
    pub(crate) async fn create_event(&self, session: &mut Session, clause: &Create) -> Result<()> {
        let (database, name) = full(session, &clause.name)?;
        check_name(&name)?;
        self.begin_definition(session).await?;
        self.require_definer(session, clause.definer.as_ref()).await?;
        let Some(when) = &clause.parts.when else { return Err(errors::internal("an event without a schedule")) };
        let schedule = schedule(session, when)?;
        self.require_for_events(session, &database).await?;
        let is_kept = clause.parts.is_kept.unwrap_or(false);
        let mut status = clause.parts.status.unwrap_or_default();
        if is_past(session, &schedule) {
            if !is_kept {
                note(session, failures::past_and_dropped());
                return Ok(());
            }
            disable(session, &mut status);
        }
        let catalog = self.fetch_catalog().await?;
        let Some(collation) = catalog.databases.get(&database) else { return Err(errors::unknown_database(&database)) };
        let now = session.env.now();
        let mut definition = Definition {
            number: draw()?,
            name: name.clone(),
            schedule,
            zone: text_of(session, "time_zone")?,
            status,
            is_kept,
            comment: clause.parts.comment.clone().unwrap_or_default(),
            sql_mode: text_of(session, "sql_mode")?,
            created: now,
            modified: now,
            since: clock(),
            body: clause.parts.body.clone().unwrap_or_default(),
            ..Definition::default()
        };
        take_surroundings(session, &mut definition, clause.definer.as_ref(), collation.name())?;
        let exists = failures::exists(&name);
        let is_known = catalog.event(&database, &name).is_some();
        let sent =
            if is_known { Some(ErrorCode::TableExists) } else { self.put_event(&database, 0, &definition).await? };
        match sent {
            None => {}
            Some(ErrorCode::TableExists) if clause.if_not_exists => note(session, exists),
            Some(ErrorCode::TableExists) => return Err(exists),
            Some(ErrorCode::DatabaseNotFound) => return Err(errors::unknown_database(&database)),
            Some(code) => return Err(errors::from_code(code, &name)),
        }
        self.fetch_catalog().await.map(|_| ())
    }

    /// Carries out ALTER or DROP EVENT.
    pub(crate) async fn change_event(&self, session: &mut Session, change: &Change) -> Result<()> {
        match change {
            Change::Altered(alter) => self.alter_event(session, alter).await,
            Change::Dropped { name, if_exists } => {
                let (database, name) = full(session, name)?;
                self.begin_definition(session).await?;
                self.require_for_events(session, &database).await?;
                match self.fetch_catalog().await?.event(&database, &name).cloned() {
                    Some(event) => {
                        self.require_rank(session, &event.definition.definer).await?;
                        self.drop_event(&event).await.map(|_| ())
                    }
                    None if *if_exists => {
                        note(session, failures::does_not_exist(&name));
                        Ok(())
                    }
                    None => Err(failures::unknown(&name)),
                }
            }
        }
    }

    pub(crate) async fn alter_event(&self, session: &mut Session, alter: &Alter) -> Result<()> {
        let (database, name) = full(session, &alter.name)?;
        check_name(&name)?;
        let parts = &alter.parts;
        let target = match &parts.rename {
            Some(to) => full(session, to)?,
            None => (database.clone(), name.clone()),
        };
        check_name(&target.1)?;
        self.begin_definition(session).await?;
        self.require_definer(session, alter.definer.as_ref()).await?;
        let schedule = match &parts.when {
            Some(when) => Some(schedule(session, when)?),
            None => None,
        };
        self.require_for_events(session, &database).await?;
        let catalog = self.fetch_catalog().await?;
        if parts.rename.is_some() {
            if super::key(&database, &name) == super::key(&target.0, &target.1) {
                return Err(failures::same_name());
            }
            self.require_for_events(session, &target.0).await?;
            if catalog.event(&target.0, &target.1).is_some() {
                return Err(failures::exists(&target.1));
            }
        }
        let Some(event) = catalog.event(&database, &name).cloned() else { return Err(failures::unknown(&name)) };
        let Some(collation) = catalog.databases.get(&target.0) else { return Err(errors::unknown_database(&target.0)) };
        self.require_rank(session, &event.definition.definer).await?;
        let mut definition = event.definition.clone();
        parts.is_kept.into_iter().for_each(|is_kept| definition.is_kept = is_kept);
        parts.status.into_iter().for_each(|status| definition.status = status);
        parts.comment.iter().for_each(|comment| definition.comment.clone_from(comment));
        if let Some(schedule) = schedule {
            (definition.schedule, definition.zone) = (schedule, text_of(session, "time_zone")?);
            if is_past(session, &schedule) {
                if !definition.is_kept {
                    return Err(failures::past_and_unchanged());
                }
                // As if the statement had said ENABLE, unless it says otherwise.
                definition.status = parts.status.unwrap_or_default();
                disable(session, &mut definition.status);
            }
        }
        if let Some(body) = &parts.body {
            (definition.body, definition.sql_mode) = (body.clone(), text_of(session, "sql_mode")?);
        }
        if parts.rename.is_some() {
            definition.name.clone_from(&target.1);
        }
        definition.modified = session.env.now();
        if schedule.is_some() || parts.status.is_some() {
            definition.since = clock();
        }
        take_surroundings(session, &mut definition, alter.definer.as_ref(), collation.name())?;
        match self.replace_event(&event, &target.0, &definition).await? {
            None => self.fetch_catalog().await.map(|_| ()),
            Some(ErrorCode::TableExists) => Err(errors::definition_changed()),
            Some(code) => Err(errors::from_code(code, &name)),
        }
    }

    /// Puts a definition in the place of an event's; an error code: somebody else has changed it.
    pub(crate) async fn replace_event(
        &self,
        event: &Event,
        database: &str,
        definition: &Definition,
    ) -> Result<Option<ErrorCode>> {
        let change = change_of(&event.kept_as).unwrap_or(0) + 1;
        if let Some(code) = self.put_event(database, change, definition).await? {
            return Ok(Some(code));
        }
        // What is left here if this fails means nothing as long as the new one is there.
        self.drop_older(event).await?;
        self.change(Sent::DropTable(name_of(&event.database, &event.kept_as))).await?;
        Ok(None)
    }

    /// False: it is gone, or another one by now.
    pub(crate) async fn drop_event(&self, event: &Event) -> Result<bool> {
        self.drop_older(event).await?;
        let is_dropped = match self.change(Sent::DropTable(name_of(&event.database, &event.kept_as))).await? {
            None => true,
            Some(ErrorCode::TableNotFound) => false,
            Some(code) => return Err(errors::from_code(code, &event.definition.name)),
        };
        self.fetch_catalog().await?;
        if is_dropped {
            self.forget_runs(event.definition.number).await;
        }
        Ok(is_dropped)
    }

    async fn drop_older(&self, event: &Event) -> Result<()> {
        for (database, kept_as) in &event.older {
            self.change(Sent::DropTable(name_of(database, kept_as))).await?;
        }
        Ok(())
    }

    async fn put_event(&self, database: &str, change: u64, definition: &Definition) -> Result<Option<ErrorCode>> {
        let table = table(database, &kept_as(&definition.name, change), definition);
        self.change(Sent::CreateTable(TableMessage::from(&table))).await
    }

    async fn require_definer(&self, session: &mut Session, definer: Option<&(String, String)>) -> Result<()> {
        self.check_definer(session, definer).await?;
        match definer {
            Some(definer) => self.require_rank(session, definer).await,
            None => Ok(()),
        }
    }

    /// 1192 under LOCK TABLES; everything else commits first.
    async fn begin_definition(&self, session: &mut Session) -> Result<()> {
        session.check_no_locked_tables()?;
        self.end_transaction(session, true).await?;
        session.check_may_define()?;
        self.wait_to_define(session).await
    }

    pub(crate) async fn require_for_events(&self, session: &mut Session, database: &str) -> Result<()> {
        let is_own = database == crate::catalog::performance_schema::DATABASE || database == SYSTEM_DATABASE;
        if is_own || database.eq_ignore_ascii_case(crate::catalog::information_schema::DATABASE) {
            return Err(database_denied(&session.env, database));
        }
        self.require_on_database(session, database, Privileges::EVENT).await
    }
}

fn name_of(database: &str, kept_as: &str) -> TableName {
    TableName { database: database.to_owned(), table: kept_as.to_owned(), version: 0 }
}

fn check_name(name: &str) -> Result<()> {
    if name.chars().count() > NAME_CHARS_MAX { Err(routine::failures::too_long(name)) } else { Ok(()) }
}

fn note(session: &mut Session, e: crate::wire::SqlError) {
    session.warn("Note", e.errno, e.message);
}

fn text_of(session: &Session, variable: &str) -> Result<String> {
    session.env.variables.get(variable, false).map(|value| value.as_string())
}

/// What each statement sets, whatever it says: who made it, and by which characters its text is read.
fn take_surroundings(
    session: &mut Session,
    definition: &mut Definition,
    definer: Option<&(String, String)>,
    of_database: &str,
) -> Result<()> {
    definition.definer = definer.cloned().unwrap_or_else(|| session.env.definer());
    definition.charset = text_of(session, "character_set_client")?;
    definition.collation = text_of(session, "collation_connection")?;
    definition.database_collation = of_database.to_owned();
    if definition.encode().len() > DEFINITION_BYTES_MAX {
        return Err(routine::failures::too_much());
    }
    if let Some((user, host)) = definer
        && session.env.me.as_ref().is_some_and(|me| !me.has_account(user, host))
    {
        note(session, errors::no_such_definer(user, host));
    }
    Ok(())
}

/// Whether an event of this schedule would never run.
fn is_past(session: &Session, schedule: &Schedule) -> bool {
    let now = whole_seconds(session.env.now());
    match *schedule {
        Schedule::At(at) => at < now,
        Schedule::Every { ends, .. } => ends.is_some_and(|ends| ends < now),
    }
}

fn disable(session: &mut Session, status: &mut Status) {
    if *status == Status::Enabled {
        *status = Status::Disabled;
        note(session, failures::past_and_disabled());
    }
}

fn schedule(session: &mut Session, when: &When) -> Result<Schedule> {
    match when {
        When::At(text) => {
            let value = evaluated(session, text)?;
            Ok(Schedule::At(moment(session, &value).ok_or_else(|| failures::wrong_value("AT", &shown(&value)))?))
        }
        When::Every { count, unit, starts, ends } => {
            let count = evaluated(session, count)?;
            let count = interval(session, &count, *unit)?;
            let starts = match starts {
                None => whole_seconds(session.env.now()),
                Some(text) => {
                    let value = evaluated(session, text)?;
                    moment(session, &value).ok_or_else(|| failures::wrong_value("STARTS", &shown(&value)))?
                }
            };
            let ends = match ends {
                None => None,
                Some(text) => {
                    let value = evaluated(session, text)?;
                    let ends = moment(session, &value).filter(|ends| *ends > starts);
                    Some(ends.ok_or_else(failures::ends)?)
                }
            };
            Ok(Schedule::Every { unit: *unit, count, starts, ends })
        }
    }
}

fn evaluated(session: &mut Session, text: &str) -> Result<Datum<'static>> {
    if routine::code::Text::new(text.to_owned(), &Default::default()).may_call() {
        return Err(failures::no_calls());
    }
    let value = value_of(session, text);
    session.env.take_notes().iter().for_each(|e| session.warn_error(e));
    value
}

fn shown(value: &Datum<'_>) -> String {
    if value.is_null() { "NULL".to_owned() } else { value.as_string() }
}

/// In the session's time zone, in whole seconds; `None`: it is none that an event may have.
fn moment(session: &mut Session, value: &Datum<'_>) -> Option<i64> {
    let zone = session.env.zone();
    let civil = if value.is_text() {
        let text = value.as_text();
        let (civil, is_cut) = read_datetime(&text, zone, Dates::REAL)?;
        if is_cut {
            session.warn_error(&errors::truncated_value("date", &text));
        }
        Some(civil)
    } else {
        value.civil(zone)
    };
    let civil = civil.filter(is_valid)?;
    Some(whole_seconds(zone.moment(civil).micros())).filter(|at| (MICROS_PER_SECOND..=LATEST).contains(at))
}

/// How many of what the unit is counted in.
fn interval(session: &mut Session, value: &Datum<'_>, unit: Unit) -> Result<i64> {
    if value.is_null() {
        return Err(failures::wrong_value("INTERVAL", "NULL"));
    }
    let count = if unit.is_compound() {
        let fields = compound_interval(value, &unit.name.to_lowercase());
        let (months, micros) = fields.ok_or_else(|| failures::wrong_value("INTERVAL", &value.as_string()))?;
        Some(unit.count_of(months, micros))
    } else {
        let (number, is_whole) = text_to_f64(&value.as_text());
        if value.is_text() && !is_whole && number >= 1.0 {
            session.warn_error(&errors::truncated_value("INTERVAL", &value.as_text()));
        }
        let whole = if value.is_text() {
            Some(number as i64)
        } else {
            value.number().and_then(|n| i64::try_from(n.to_i128()).ok())
        };
        whole.and_then(|n| n.checked_mul(unit.each))
    };
    count.filter(|count| (1..=unit.longest()).contains(count)).ok_or_else(failures::interval)
}
