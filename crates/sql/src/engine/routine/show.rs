//! SHOW CREATE PROCEDURE, SHOW PROCEDURE STATUS, and the tables of INFORMATION_SCHEMA about procedures.

use super::{Definition, Routine};
use crate::{
    accounts::Privileges,
    engine::{
        absent::ROUTINES,
        catalog::Catalog,
        dispatch::SqlEngine,
        errors::{self, Result},
        expr::{Datum, Env, zone::Zone},
        information_schema::{Row, type_cells},
        session::Session,
        show_filter::Filter,
        show_heading,
        token::Tokens,
        view_text::quoted,
    },
    server::Output,
    wire::ColumnDef,
};
use apus_types::Value;

/// Whether the account may know of a procedure, and whether it may read it.
fn sees(env: &Env, routine: &Routine) -> (bool, bool) {
    let Some(me) = &env.me else { return (true, true) };
    let name = &me.account.name;
    let definer = &routine.definition.definer;
    let reads = (&name.user, &name.host) == (&definer.0, &definer.1) || me.rights.global.contains(Privileges::SELECT);
    let one_of = Privileges::EXECUTE.union(Privileges::CREATE_ROUTINE).union(Privileges::ALTER_ROUTINE);
    (reads || me.rights.on_procedure(&routine.database, &routine.definition.name).intersects(one_of), reads)
}

/// `CREATE DEFINER=... PROCEDURE ...`, as MySQL writes it.
fn create(d: &Definition) -> String {
    let is_ansi = d.sql_mode.split(',').any(|mode| mode == "ANSI_QUOTES");
    let name = |name: &str| if is_ansi { format!("\"{}\"", name.replace('"', "\"\"")) } else { quoted(name) };
    let (user, host) = (name(&d.definer.0), name(&d.definer.1));
    let mut text = format!("CREATE DEFINER={user}@{host} PROCEDURE {}({})\n", name(&d.name), d.parameters);
    let mut line = |what: &str| text.push_str(&format!("    {what}\n"));
    if d.access != super::Access::ContainsSql {
        line(d.access.name());
    }
    if d.deterministic {
        line("DETERMINISTIC");
    }
    if d.invoker {
        line("SQL SECURITY INVOKER");
    }
    if !d.comment.is_empty() {
        line(&format!("COMMENT '{}'", d.comment.replace('\\', "\\\\").replace('\'', "''").replace('\n', "\\n")));
    }
    text.push_str(&d.body);
    text
}

/// A moment as the session shows it, in whole seconds.
fn moment(micros: i64, zone: Zone) -> String {
    const SECOND: i64 = 1_000_000;
    let whole = micros.div_euclid(SECOND) * SECOND;
    Datum::from_value(Value::Timestamp(whole), false, zone, 0).as_string()
}

fn security(d: &Definition) -> &'static str {
    if d.invoker { "INVOKER" } else { "DEFINER" }
}

fn definer(d: &Definition) -> String {
    format!("{}@{}", d.definer.0, d.definer.1)
}

impl SqlEngine {
    /// SHOW CREATE PROCEDURE, behind the second word; `false`: of something else.
    pub(in crate::engine) async fn show_create_routine(
        &self,
        session: &mut Session,
        t: &mut Tokens,
        out: &mut Output<'_>,
    ) -> Result<bool> {
        if !t.word("procedure") {
            return Ok(false);
        }
        let (database, name) = t.name()?;
        t.end()?;
        let database = database.or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
        self.identity(session).await?;
        let mut catalog = self.catalog().await?;
        let unknown = errors::unknown_routine("PROCEDURE", &name);
        if catalog.routine(&database, &name).is_none() && self.has_news(&unknown).await {
            catalog = self.catalog().await?;
        }
        let found = catalog.routine(&database, &name).filter(|routine| sees(&session.env, routine).0);
        let routine = found.ok_or(unknown)?;
        let d = &routine.definition;
        let text = sees(&session.env, routine).1.then(|| create(d));
        let row = [
            Some(d.name.clone()),
            Some(d.sql_mode.clone()),
            text,
            Some(d.charset.clone()),
            Some(d.collation.clone()),
            Some(d.database_collation.clone()),
        ];
        let names = [
            "Procedure",
            "sql_mode",
            "Create Procedure",
            "character_set_client",
            "collation_connection",
            "Database Collation",
        ];
        crate::engine::show::table(session, out, &names, &[row.to_vec()]);
        Ok(true)
    }

    /// SHOW PROCEDURE STATUS, behind the first word.
    pub(in crate::engine) async fn show_routines(
        &self,
        session: &mut Session,
        t: &mut Tokens,
        out: &mut Output<'_>,
    ) -> Result<()> {
        t.skip();
        t.skip();
        let filter = Filter::parse(t)?.by("Name");
        self.identity(session).await?;
        let catalog = self.catalog().await?;
        let zone = session.env.zone();
        let row = |routine: &Routine| {
            let d = &routine.definition;
            let cells: [String; 12] = [
                routine.database.clone(),
                d.name.clone(),
                "PROCEDURE".to_owned(),
                "SQL".to_owned(),
                definer(d),
                moment(d.modified, zone),
                moment(d.created, zone),
                security(d).to_owned(),
                d.comment.clone(),
                d.charset.clone(),
                d.collation.clone(),
                d.database_collation.clone(),
            ];
            cells.map(Some).to_vec()
        };
        let mut rows: Vec<_> =
            catalog.routines().filter(|routine| sees(&session.env, routine).0).map(|routine| row(routine)).collect();
        let names: Vec<&str> = ROUTINES.iter().map(|(name, _)| *name).collect();
        filter.apply(&names, &mut rows)?;
        let defs: Vec<ColumnDef> = ROUTINES.iter().map(|(name, told)| show_heading::def_of(*told, name)).collect();
        out.begin_rows(&defs);
        for row in &rows {
            out.row_start();
            row.iter().for_each(|cell| out.bytes(cell.as_deref().unwrap_or("").as_bytes()));
            out.row_end();
        }
        (session.env.row_count, session.env.found_rows) = (-1, rows.len() as u64);
        out.end_rows(session.warning_count(), session.status());
        Ok(())
    }
}

fn text(s: impl Into<String>) -> Datum<'static> {
    Datum::text(s.into())
}

pub fn routine_rows(catalog: &Catalog, env: &Env) -> Vec<Row> {
    let row = |routine: &Routine| {
        let d = &routine.definition;
        let mut row = vec![text(d.name.clone()), text("def"), text(routine.database.clone()), text(d.name.clone())];
        row.extend([text("PROCEDURE"), text("")]);
        row.extend(std::iter::repeat_n(Datum::Null, 8));
        row.push(text("SQL"));
        row.push(if sees(env, routine).1 { text(d.body.clone()) } else { Datum::Null });
        row.extend([Datum::Null, text("SQL"), text("SQL")]);
        row.push(text(if d.deterministic { "YES" } else { "NO" }));
        row.extend([text(d.access.name()), Datum::Null, text(security(d))]);
        row.extend([text(moment(d.created, env.zone())), text(moment(d.modified, env.zone()))]);
        row.extend([text(d.sql_mode.clone()), text(d.comment.clone()), text(definer(d))]);
        row.extend([text(d.charset.clone()), text(d.collation.clone()), text(d.database_collation.clone())]);
        row
    };
    catalog.routines().filter(|routine| sees(env, routine).0).map(|routine| row(routine)).collect()
}

pub fn parameter_rows(catalog: &Catalog, env: &Env) -> Vec<Row> {
    let mut rows = Vec::new();
    for routine in catalog.routines().filter(|routine| sees(env, routine).0) {
        let Ok(program) = routine.program() else { continue };
        for (i, parameter) in program.parameters.iter().enumerate() {
            let mut row = vec![text("def"), text(routine.database.clone()), text(routine.definition.name.clone())];
            row.push(Datum::Int(i as i64 + 1));
            row.extend([text(parameter.mode.name()), text(parameter.column.name.clone())]);
            row.extend(type_cells(&parameter.column));
            row.push(text("PROCEDURE"));
            rows.push(row);
        }
    }
    rows
}
