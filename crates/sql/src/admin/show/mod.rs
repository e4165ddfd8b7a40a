//! SHOW, and DESCRIBE of tables.

pub mod definitions;
mod engine;
pub mod events;
pub mod expressions;
pub(crate) mod filter;
pub(crate) mod heading;
pub mod routines;
mod tables;
pub mod triggers;

use self::{
    definitions::{create_database, create_table, create_view},
    filter::Filter,
    tables::{INDEX_COLUMNS, TABLE_STATUS, index_rows, seen, show_virtual_tables, table_status},
};
use super::{explain, processlist};
use crate::{
    accounts::Privileges,
    catalog::{Catalog, Table, view},
    errors::{self, Result},
    parse::{
        token::{Token, Tokens},
        view_text::quoted,
    },
    plan::text::plan_text,
    server::Output,
    session::{
        Session,
        engine::SqlEngine,
        warnings::{ERROR, Warning},
    },
    wire::ColumnDef,
};
use std::rc::Rc;

use apus_types::collate::{Charset, Collation};

pub type Rows = Vec<Vec<Option<String>>>;

/// Writes a result of texts, and of numbers in decimal digits.
pub fn table(session: &mut Session, out: &mut Output<'_>, names: &[&str], rows: &[Vec<Option<String>>]) {
    warned_table(session, out, names, rows, 0);
}

pub fn warned_table(
    session: &mut Session,
    out: &mut Output<'_>,
    names: &[&str],
    rows: &[Vec<Option<String>>],
    warnings: u16,
) {
    let first = names.first().copied().unwrap_or("");
    let defs: Vec<ColumnDef> = names.iter().map(|name| heading::def(first, name)).collect();
    out.begin_rows(&defs);
    for row in rows {
        out.row_start();
        for (name, cell) in names.iter().zip(row) {
            match cell {
                Some(text) if heading::is_number(first, name) => out.int(text.parse().unwrap_or(0)),
                Some(text) => out.bytes(text.as_bytes()),
                None => out.null(),
            }
        }
        out.row_end();
    }
    session.env.row_count = -1;
    session.env.found_rows = rows.len() as u64;
    out.end_rows(warnings, session.status());
}

/// SHOW WARNINGS and SHOW ERRORS, and how many there are.
fn show_told(session: &mut Session, t: &mut Tokens, out: &mut Output<'_>) -> Result<()> {
    let is_counted = t.word("count");
    if is_counted {
        for symbol in ['(', '*', ')'] {
            t.expect_symbol(symbol)?;
        }
    }
    let errors_only = t.word("errors");
    if !errors_only {
        t.expect("warnings")?;
    }
    if is_counted {
        t.end()?;
        let (name, count) = match errors_only {
            true => ("@@session.error_count", session.errors_given()),
            false => ("@@session.warning_count", session.warnings_given()),
        };
        table(session, out, &[name], &[vec![text(count.to_string())]]);
        return Ok(());
    }
    let (skip, most) = if t.word("limit") { limit(t)? } else { (0, usize::MAX) };
    t.end()?;
    let told = session.warnings.iter().filter(|w| !errors_only || w.level == ERROR);
    let row = |w: &Warning| vec![text(w.level), text(w.code.to_string()), text(w.message.clone())];
    let rows: Rows = told.skip(skip).take(most).map(row).collect();
    table(session, out, &["Level", "Code", "Message"], &rows);
    Ok(())
}

/// What follows LIMIT: rows to leave out, and most rows.
fn limit(t: &mut Tokens) -> Result<(usize, usize)> {
    let number = |t: &mut Tokens| t.number()?.parse().map_err(|_| t.error());
    let first = number(t)?;
    Ok(if t.symbol(',') {
        (first, number(t)?)
    } else if t.word("offset") {
        (number(t)?, first)
    } else {
        (0, first)
    })
}

fn text(s: impl Into<String>) -> Option<String> {
    Some(s.into())
}

/// The engine as SHOW ENGINES describes it.
pub const ENGINE: [&str; 6] = ["InnoDB", "DEFAULT", "Apus: in memory, replicated, sharded", "YES", "NO", "YES"];

/// Writes the rows that are wanted.
fn filtered(
    session: &mut Session,
    out: &mut Output<'_>,
    names: &[&str],
    mut rows: Rows,
    filter: &Filter,
) -> Result<()> {
    filter.apply(names, &mut rows)?;
    table(session, out, names, &rows);
    Ok(())
}

impl SqlEngine {
    /// The next value of a table's AUTO_INCREMENT column, if it has one.
    async fn next_of_counter(&self, table: &Table) -> Result<Option<u64>> {
        let counts = |c: &u16| table.schema.columns[usize::from(*c)].auto_increment;
        let Some(column) = table.visible_columns().find(counts) else { return Ok(None) };
        let catalog = self.catalog().await?;
        let next = self.auto_increment.shown(&self.client, catalog.counters()?, &table.schema, column);
        next.await.map(Some).map_err(|e| errors::from_client(&e))
    }

    pub(crate) async fn show(
        &self,
        session: &mut Session,
        t: &mut Tokens,
        sql: &str,
        out: &mut Output<'_>,
    ) -> Result<()> {
        if t.word("explain") || t.word("describe") || t.word("desc") {
            let unsaid = session.env.variables.get("explain_format", false)?.as_string();
            if let Some(asked) = explain::connection::parse(t, &unsaid)? {
                return Box::pin(self.explain_connection(session, &asked, out)).await;
            }
            if let Some(request) = explain::parse(t, &unsaid)? {
                let statement = sql.get(request.begin..).unwrap_or("");
                return Box::pin(self.explain(session, &request, statement, out)).await;
            }
            let name = t.name()?;
            let filter = match t.peek() {
                Some(Token::Word(_) | Token::Quoted(_) | Token::Text(_)) => Filter::Like(t.identifier()?),
                _ => Filter::All,
            };
            t.end()?;
            return self.show_columns(session, name, false, &filter, out).await;
        }
        t.expect("show")?;
        if t.peek_word("warnings") || t.peek_word("errors") || t.peek_word("count") {
            return show_told(session, t, out);
        }
        session.clear_warnings();
        let full = t.word("full");
        let global = !full && t.word("global");
        let is_scoped = global || !full && (t.word("session") || t.word("local"));
        let takes = |scoped: &[&str]| scoped.iter().any(|word| t.peek_word(word));
        if full && !takes(&["tables", "columns", "fields", "processlist", "triggers"])
            || is_scoped && !takes(&["variables", "status"])
        {
            return Err(t.error());
        }
        if (t.peek_word("procedure") || t.peek_word("function")) && t.second_word("code") {
            return Err(errors::needs_debug());
        }
        if (t.peek_word("procedure") || t.peek_word("function")) && t.second_word("status") {
            return self.show_routines(session, t, out).await;
        }
        if t.peek_word("triggers") {
            return self.show_triggers(session, t, out).await;
        }
        if t.peek_word("events") {
            return self.show_events(session, t, out).await;
        }
        if self.show_absent(session, t, out).await? {
            return Ok(());
        }
        if t.word("variables") {
            let filter = Filter::parse(t)?;
            let list = session.env.list_variables(global);
            let rows: Rows = list.into_iter().map(|(n, v)| vec![Some(n), Some(v)]).collect();
            filtered(session, out, &["Variable_name", "Value"], rows, &filter)?;
        } else if t.word("status") {
            let filter = Filter::parse(t)?;
            let tables = self.catalog.borrow().counted();
            let list = self.status_of_node().list(session, tables, global, self.globals.slow.dropped());
            let rows: Rows = list.into_iter().map(|(n, v)| vec![text(n), text(v)]).collect();
            filtered(session, out, &["Variable_name", "Value"], rows, &filter)?;
        } else if t.word("databases") || t.word("schemas") {
            let pattern = t.peek_pattern();
            let filter = Filter::parse(t)?;
            let me = self.identity(session).await?;
            let catalog = self.catalog().await?;
            let rows: Rows = {
                let own = crate::catalog::information_schema::DATABASE.to_owned();
                let is_seen = |name: &&String| me.as_ref().is_none_or(|me| me.rights.sees_database(name));
                let mut names: Vec<_> = catalog.databases.keys().filter(is_seen).chain([&own]).collect();
                names.sort_unstable();
                names.into_iter().map(|n| vec![text(n.clone())]).collect()
            };
            let title = pattern.map_or("Database".to_owned(), |pattern| format!("Database ({pattern})"));
            filtered(session, out, &[&title], rows, &filter)?;
        } else if t.word("tables") {
            let database = self.database_of(session, t)?;
            let pattern = t.peek_pattern();
            let filter = Filter::parse(t)?;
            let catalog = self.catalog().await?;
            if database.eq_ignore_ascii_case(crate::catalog::information_schema::DATABASE) {
                let names = crate::catalog::information_schema::names();
                return show_virtual_tables(
                    session,
                    (crate::catalog::information_schema::DATABASE, "SYSTEM VIEW"),
                    names,
                    full,
                    &filter,
                    out,
                );
            }
            self.require_database(session, &database).await?;
            if let Some(database) = catalog.virtual_tables(&database) {
                let of = (database, "BASE TABLE");
                return match database {
                    crate::catalog::grant_tables::DATABASE => {
                        show_virtual_tables(session, of, crate::catalog::grant_tables::names(), full, &filter, out)
                    }
                    crate::catalog::sys::DATABASE => {
                        let of = (database, "VIEW");
                        show_virtual_tables(session, of, crate::catalog::sys::names(), full, &filter, out)
                    }
                    _ => show_virtual_tables(
                        session,
                        of,
                        crate::catalog::performance_schema::names(),
                        full,
                        &filter,
                        out,
                    ),
                };
            }
            if !catalog.databases.contains_key(&database) {
                return Err(errors::unknown_database(&database));
            }
            let listed = seen(session, catalog.named_in(&database));
            let mut rows: Rows = listed.iter().map(|t| vec![text(t.schema.name.clone())]).collect();
            let title = match pattern {
                Some(pattern) => format!("Tables_in_{database} ({pattern})"),
                None => format!("Tables_in_{database}"),
            };
            if full {
                for (row, listed) in rows.iter_mut().zip(listed) {
                    row.push(text(if view::is_view(&listed.schema) { "VIEW" } else { "BASE TABLE" }));
                }
                filtered(session, out, &[&title, "Table_type"], rows, &filter)?;
            } else {
                filtered(session, out, &[&title], rows, &filter)?;
            }
        } else if t.word("table") {
            t.expect("status")?;
            let database = self.database_of(session, t)?;
            let filter = Filter::parse(t)?;
            let catalog = self.catalog().await?;
            self.require_database(session, &database).await?;
            let is_there = catalog.databases.contains_key(&database) || catalog.virtual_tables(&database).is_some();
            if !is_there && !database.eq_ignore_ascii_case(crate::catalog::information_schema::DATABASE) {
                return Err(errors::unknown_database(&database));
            }
            let listed = seen(session, catalog.named_in(&database));
            let is_table = |t: &&Table| !view::is_view(&t.schema);
            let sizes = self.sizes_of(&catalog, listed.iter().map(|t| &***t).filter(is_table)).await;
            let status = |t: &&Rc<Table>| {
                let fault = self.fault_of_view(session, &catalog, t);
                table_status(t, fault.as_deref(), sizes.get(&t.schema.id))
            };
            let rows: Rows = listed.iter().map(status).collect();
            filtered(session, out, &TABLE_STATUS, rows, &filter)?;
        } else if t.word("columns") || t.word("fields") {
            let _ = t.word("from") || t.word("in");
            let mut name = t.name()?;
            if t.word("from") || t.word("in") {
                name.0 = Some(t.identifier()?);
            }
            let filter = Filter::parse(t)?;
            return self.show_columns(session, name, full, &filter, out).await;
        } else if t.word("index") || t.word("indexes") || t.word("keys") {
            let _ = t.word("from") || t.word("in");
            let mut name = t.name()?;
            if t.word("from") || t.word("in") {
                name.0 = Some(t.identifier()?);
            }
            let filter = Filter::parse(t)?;
            let found = self.named_table(session, &name, "SELECT").await?;
            filtered(session, out, &INDEX_COLUMNS, index_rows(&found), &filter)?;
        } else if t.word("create") {
            if t.word("database") || t.word("schema") {
                let unless_there = if t.word("if") {
                    t.expect("not")?;
                    t.expect("exists")?;
                    "/*!32312 IF NOT EXISTS*/ "
                } else {
                    ""
                };
                let name = t.identifier()?;
                t.end()?;
                self.require_database(session, &name).await?;
                let catalog = self.catalog().await?;
                let collation = catalog.databases.get(&name).ok_or_else(|| errors::unknown_database(&name))?;
                let sql = create_database(unless_there, &name, *collation);
                table(session, out, &["Database", "Create Database"], &[vec![Some(name), Some(sql)]]);
            } else if t.word("user") {
                return self.show_create_user(session, t, out).await;
            } else {
                if self.show_create_routine(session, t, out).await?
                    || self.show_create_trigger(session, t, out).await?
                    || self.show_create_event(session, t, out).await?
                {
                    return Ok(());
                }
                let wants_view = t.word("view");
                if !wants_view {
                    t.expect("table")?;
                }
                let name = t.name()?;
                t.end()?;
                if self.show_create_view(session, &name, wants_view, out).await? {
                    return Ok(());
                }
                let found = self.named_table(session, &name, "SHOW").await?;
                if !found.is_temporary() {
                    self.require_definition(session, &found.schema).await?;
                }
                let next = self.next_of_counter(&found).await?;
                let row = vec![text(found.schema.name.clone()), Some(create_table(&found, next))];
                table(session, out, &["Table", "Create Table"], &[row]);
            }
        } else if t.word("engine") {
            self.show_engine(session, t, out).await?;
        } else if t.word("engines") || t.word("storage") && t.word("engines") {
            t.end()?;
            let row = ENGINE.map(text).to_vec();
            table(session, out, &["Engine", "Support", "Comment", "Transactions", "XA", "Savepoints"], &[row]);
        } else if t.word("charset") || (t.word("character") && t.word("set")) {
            let filter = Filter::parse(t)?;
            let row = |c: &Charset| {
                let longest = text(c.bytes_of_character().to_string());
                vec![text(c.name()), text(c.description()), text(c.default_collation().name()), longest]
            };
            let rows: Rows = Charset::ALL.iter().map(row).collect();
            filtered(session, out, &["Charset", "Description", "Default collation", "Maxlen"], rows, &filter)?;
        } else if t.word("collation") {
            let filter = Filter::parse(t)?;
            let mut all = Collation::ALL;
            all.sort_by_key(|c| c.name());
            let row = |c: &Collation| {
                let pads = if c.pads() { "PAD SPACE" } else { "NO PAD" };
                vec![
                    text(c.name()),
                    text(c.charset().name()),
                    text(c.id().to_string()),
                    text(if c.is_default_of_charset() { "Yes" } else { "" }),
                    text("Yes"),
                    text(c.sort_length().to_string()),
                    text(pads),
                ]
            };
            let rows: Rows = all.iter().map(row).collect();
            let names = ["Collation", "Charset", "Id", "Default", "Compiled", "Sortlen", "Pad_attribute"];
            filtered(session, out, &names, rows, &filter)?;
        } else if t.word("processlist") {
            t.end()?;
            self.identity(session).await?;
            Box::pin(self.see_processes(&session.env, false)).await;
            session.env.take_notes().iter().for_each(|e| session.warn_error(e));
            let rows: Rows = processlist::list(&session.env).map(|process| processlist::cells(process, full)).collect();
            table(session, out, &["Id", "User", "Host", "db", "Command", "Time", "State", "Info"], &rows);
        } else if t.word("grants") {
            return self.show_grants(session, t, out).await;
        } else if t.word("open") {
            // Tables are never closed, and none is locked by name.
            t.expect("tables")?;
            let one = if t.word("from") || t.word("in") { Some(t.identifier()?) } else { None };
            let filter = Filter::parse(t)?.by("Table");
            let catalog = self.catalog().await?;
            let mut rows: Rows = Vec::new();
            self.identity(session).await?;
            for database in catalog.databases.keys().filter(|d| one.as_ref().is_none_or(|o| o == *d)) {
                let zero = || text("0");
                let named =
                    seen(session, catalog.tables_of(database).collect()).into_iter().map(|t| t.schema.name.clone());
                rows.extend(named.map(|name| vec![text(database.clone()), text(name), zero(), zero()]));
            }
            filtered(session, out, &["Database", "Table", "In_use", "Name_locked"], rows, &filter)?;
        } else if t.at_end() {
            return Err(t.error());
        } else {
            return Err(errors::not_supported("this form of SHOW"));
        }
        Ok(())
    }

    fn database_of(&self, session: &Session, t: &mut Tokens) -> Result<String> {
        if t.word("from") || t.word("in") {
            return t.identifier();
        }
        session.env.database.clone().ok_or_else(errors::no_database)
    }

    /// A table or view that exists for the account; `command` is what is denied otherwise.
    async fn named_table(
        &self,
        session: &mut Session,
        name: &crate::parse::token::Name,
        command: &str,
    ) -> Result<std::rc::Rc<Table>> {
        let database = name.0.clone().or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
        if let Some(own) = session.temporary.find(&database, &name.1) {
            return Ok(own.clone());
        }
        self.require_sight(session, (&database, &name.1), command).await?;
        self.catalog_with(session, &database, &name.1).await?.columns_of(&database, &name.1)
    }

    /// SHOW CREATE of a view; `false`: it is a table.
    async fn show_create_view(
        &self,
        session: &mut Session,
        name: &crate::parse::token::Name,
        wants_view: bool,
        out: &mut Output<'_>,
    ) -> Result<bool> {
        let database = name.0.clone().or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
        if session.temporary.find(&database, &name.1).is_some() {
            return if wants_view { Err(errors::wrong_object(&database, &name.1, "VIEW")) } else { Ok(false) };
        }
        self.require_sight(session, (&database, &name.1), "SHOW").await?;
        let catalog = self.catalog_with(session, &database, &name.1).await?;
        let Some(view) = catalog.view(&database, &name.1) else {
            let is_table = wants_view && catalog.find(&database, &name.1).is_some();
            return if is_table { Err(errors::wrong_object(&database, &name.1, "VIEW")) } else { Ok(false) };
        };
        self.require_on_table(session, (&database, &name.1), Privileges::SHOW_VIEW.union(Privileges::SELECT)).await?;
        session.clear_warnings();
        if let Some(fault) = self.fault_of_view(session, &catalog, &view.table) {
            session.warn("Warning", 1356, fault);
        }
        let d = &view.definition;
        let row = vec![
            text(view.name()),
            Some(create_view(view, session.env.database.as_deref())?),
            text(d.charset.clone()),
            text(d.collation.clone()),
        ];
        let names = ["View", "Create View", "character_set_client", "collation_connection"];
        warned_table(session, out, &names, &[row], session.warning_count());
        Ok(true)
    }

    /// Why a view cannot be read.
    fn fault_of_view(&self, session: &Session, catalog: &Catalog, t: &Table) -> Option<String> {
        if !view::is_view(&t.schema) {
            return None;
        }
        let query = format!("SELECT 1 FROM {}.{}", quoted(&t.schema.database), quoted(&t.schema.name));
        let fault = plan_text(catalog, &session.env, &query, Vec::new()).err()?;
        Some(fault.message)
    }
}
