//! SHOW CREATE and SHOW STATUS of procedures and functions, and the tables of INFORMATION_SCHEMA about them.

use super::{filter::Filter, heading};
use crate::{
    accounts::Privileges,
    admin::{information_schema::type_cells, show, unsupported::ROUTINES},
    catalog::Catalog,
    errors::{self, Result},
    expr::Env,
    parse::{token::Tokens, view_text::quoted},
    program::routine::{Definition, Kind, Routine},
    server::Output,
    session::{Session, engine::SqlEngine},
    value::{
        datum::{Datum, Row},
        temporal::whole_seconds,
        zone::Zone,
    },
};
use apus_types::{Column, ColumnType, Value};

/// Whether the account may know of a routine, and whether it may read it.
fn sees(env: &Env, routine: &Routine) -> (bool, bool) {
    let Some(me) = &env.me else { return (true, true) };
    let name = &me.account.name;
    let definer = &routine.definition.definer;
    let reads = (&name.user, &name.host) == (&definer.0, &definer.1) || me.rights.global.contains(Privileges::SELECT);
    let one_of = Privileges::EXECUTE.union(Privileges::CREATE_ROUTINE).union(Privileges::ALTER_ROUTINE);
    let held = me.rights.on_routine(routine.definition.kind, &routine.database, &routine.definition.name);
    (reads || held.intersects(one_of), reads)
}

/// The type that a function returns; `None`: of a procedure.
fn returned(routine: &Routine) -> Option<Column> {
    let program = routine.program().ok()?;
    program.variables.get(program.returns?)?.column.clone()
}

/// With its character set.
fn type_returned(column: &Column) -> String {
    let Some(collation) = column.ty.collation().filter(|_| column.ty != ColumnType::Json) else {
        return show::definitions::type_of(column);
    };
    let charset = collation.charset();
    let of_own =
        if collation == charset.default_collation() { String::new() } else { format!(" COLLATE {}", collation.name()) };
    format!("{} CHARSET {}{of_own}", show::definitions::type_of(column), charset.name())
}

/// `CREATE DEFINER=... PROCEDURE ...`, as MySQL writes it.
fn create(routine: &Routine) -> String {
    let d = &routine.definition;
    let is_ansi = d.sql_mode.split(',').any(|mode| mode == "ANSI_QUOTES");
    let name = |name: &str| if is_ansi { format!("\"{}\"", name.replace('"', "\"\"")) } else { quoted(name) };
    let (user, host) = (name(&d.definer.0), name(&d.definer.1));
    let returns = returned(routine).map_or_else(String::new, |column| format!(" RETURNS {}", type_returned(&column)));
    let (kind, name) = (d.kind.name(), name(&d.name));
    let mut text = format!("CREATE DEFINER={user}@{host} {kind} {name}({}){returns}\n", d.parameters);
    let mut line = |what: &str| text.push_str(&format!("    {what}\n"));
    if d.access != crate::program::routine::Access::ContainsSql {
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
    Datum::from_value(Value::Timestamp(whole_seconds(micros)), false, zone, 0).as_string()
}

fn security(d: &Definition) -> &'static str {
    if d.invoker { "INVOKER" } else { "DEFINER" }
}

fn definer(d: &Definition) -> String {
    format!("{}@{}", d.definer.0, d.definer.1)
}

impl SqlEngine {
    /// SHOW CREATE of a routine, behind the second word; `false`: of something else.
    pub(crate) async fn show_create_routine(
        &self,
        session: &mut Session,
        t: &mut Tokens,
        out: &mut Output<'_>,
    ) -> Result<bool> {
        let Some(kind) = Kind::ALL.into_iter().find(|kind| t.word(kind.name())) else { return Ok(false) };
        let (database, name) = t.name()?;
        t.end()?;
        let database = database.or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
        self.identity(session).await?;
        let mut catalog = self.catalog().await?;
        let unknown = errors::unknown_routine(kind.name(), &name);
        if catalog.routine(kind, &database, &name).is_none() && self.has_news(&unknown).await {
            catalog = self.catalog().await?;
        }
        let found = catalog.routine(kind, &database, &name).filter(|routine| sees(&session.env, routine).0);
        let routine = found.ok_or(unknown)?;
        let d = &routine.definition;
        let text = sees(&session.env, routine).1.then(|| create(routine));
        let row = [
            Some(d.name.clone()),
            Some(d.sql_mode.clone()),
            text,
            Some(d.charset.clone()),
            Some(d.collation.clone()),
            Some(d.database_collation.clone()),
        ];
        let (of, statement) = match kind {
            Kind::Procedure => ("Procedure", "Create Procedure"),
            Kind::Function => ("Function", "Create Function"),
        };
        let names = [of, "sql_mode", statement, "character_set_client", "collation_connection", "Database Collation"];
        super::table(session, out, &names, &[row.to_vec()]);
        Ok(true)
    }

    /// SHOW PROCEDURE STATUS and SHOW FUNCTION STATUS, behind the first word.
    pub(crate) async fn show_routines(
        &self,
        session: &mut Session,
        t: &mut Tokens,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let kind = if t.peek_word("function") { Kind::Function } else { Kind::Procedure };
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
                d.kind.name().to_owned(),
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
        let rows: Vec<_> = catalog
            .routines()
            .filter(|r| r.definition.kind == kind && sees(&session.env, r).0)
            .map(|r| row(r))
            .collect();
        heading::answer(session, out, ROUTINES, rows, &filter)
    }
}

fn text(s: impl Into<String>) -> Datum<'static> {
    Datum::text(s.into())
}

pub fn routine_rows(catalog: &Catalog, env: &Env) -> Vec<Row> {
    let row = |routine: &Routine| {
        let d = &routine.definition;
        let mut row = vec![text(d.name.clone()), text("def"), text(routine.database.clone()), text(d.name.clone())];
        row.push(text(d.kind.name()));
        match returned(routine) {
            Some(column) => row.extend(type_cells(&column)),
            None => {
                row.push(text(""));
                row.extend(std::iter::repeat_n(Datum::Null, 8));
            }
        }
        row.push(text("SQL"));
        row.push(if sees(env, routine).1 { text(d.body.clone()) } else { Datum::Null });
        row.extend([Datum::Null, text("SQL"), text("SQL")]);
        row.push(text(if d.deterministic { "YES" } else { "NO" }));
        row.extend([text(d.access.name()), Datum::Null, text(security(d))]);
        row.extend([d.created, d.modified].map(|micros| Datum::Int(whole_seconds(micros))));
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
        let kind = text(routine.definition.kind.name());
        let head = || vec![text("def"), text(routine.database.clone()), text(routine.definition.name.clone())];
        if let Some(column) = returned(routine) {
            let mut row = head();
            row.extend([Datum::Int(0), Datum::Null, Datum::Null]);
            row.extend(type_cells(&column));
            row.push(kind.clone());
            rows.push(row);
        }
        for (i, parameter) in program.parameters.iter().enumerate() {
            let mut row = head();
            row.push(Datum::Int(i as i64 + 1));
            row.extend([text(parameter.mode.name()), text(parameter.column.name.clone())]);
            row.extend(type_cells(&parameter.column));
            row.push(kind.clone());
            rows.push(row);
        }
    }
    rows
}
