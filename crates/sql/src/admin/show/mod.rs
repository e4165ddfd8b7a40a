//! SHOW, and DESCRIBE of tables.

mod engine;
pub mod events;
pub mod expressions;
pub(crate) mod filter;
pub(crate) mod heading;
pub mod routines;
pub mod triggers;

use self::filter::Filter;
use super::{explain, processlist, table_sizes::Size};
use crate::{
    accounts::Privileges,
    catalog::{
        Catalog, Table, foreign_key, full_text, key_parts,
        view::{self, View},
        visibility,
    },
    ddl::create_view,
    errors::{self, Result},
    parse::{
        charset::is_said,
        token::{Token, Tokens},
        view_text::{self, quoted},
    },
    plan::{rules::functional::is_part, text::plan_text},
    server::Output,
    session::{ERROR, Session, Warning, authorize::shown_privileges, engine::SqlEngine},
    value::{float_digits, number_format},
    wire::ColumnDef,
};
use std::rc::Rc;

use apus_types::{
    ColumnType, IndexDef, IndexNo, IndexState,
    collate::{Charset, Collation},
    schema::DefaultValue,
};

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

/// The column's type as SHOW prints it.
pub fn type_of(column: &apus_types::Column) -> String {
    number_format::shown(column)
        .or_else(|| float_digits::type_name(column))
        .unwrap_or_else(|| type_name(column.ty, &column.declared))
}

fn type_name(ty: ColumnType, declared: &str) -> String {
    let fraction = |name: &str, n: u8| if n == 0 { name.to_owned() } else { format!("{name}({n})") };
    match ty {
        ColumnType::Int { bits, unsigned } => {
            if declared.starts_with("tinyint(1)") && !unsigned {
                return "tinyint(1)".into();
            }
            let name = match bits {
                8 => "tinyint",
                16 => "smallint",
                24 => "mediumint",
                32 => "int",
                _ => "bigint",
            };
            format!("{name}{}", if unsigned { " unsigned" } else { "" })
        }
        ColumnType::Decimal { precision, scale, unsigned } => {
            format!("decimal({precision},{scale}){}", if unsigned { " unsigned" } else { "" })
        }
        ColumnType::Float => "float".into(),
        ColumnType::Double => "double".into(),
        ColumnType::Char { length, .. } => format!("char({length})"),
        ColumnType::VarChar { length, .. } => format!("varchar({length})"),
        ColumnType::Binary { length } => format!("binary({length})"),
        ColumnType::VarBinary { length } => format!("varbinary({length})"),
        ColumnType::Text { length, .. } => format!("{}text", size_prefix(length)),
        ColumnType::Blob { length } => format!("{}blob", size_prefix(length)),
        ColumnType::Date => "date".into(),
        ColumnType::DateTime { decimals } => fraction("datetime", decimals),
        ColumnType::Timestamp { decimals } => fraction("timestamp", decimals),
        ColumnType::Time { decimals } => fraction("time", decimals),
        ColumnType::Year => "year".into(),
        ColumnType::Json => "json".into(),
        ColumnType::Bit { length } => format!("bit({length})"),
        ColumnType::Label { is_set, labels, .. } => {
            let list: Vec<String> = labels.0.0.iter().map(|l| format!("'{}'", l.replace('\'', "''"))).collect();
            format!("{}({})", if is_set { "set" } else { "enum" }, list.join(","))
        }
    }
}

fn size_prefix(length: u32) -> &'static str {
    const LONGEST: u32 = apus_types::limits::ROW_BYTES_MAX as u32;
    match length {
        0..=255 => "tiny",
        256..=65_535 => "",
        LONGEST => "long",
        _ => "medium",
    }
}

/// The function with the column's digits: MySQL takes no others.
fn current_timestamp(c: &apus_types::Column) -> String {
    match crate::value::datum::decimals_of(c.ty) {
        0 => "CURRENT_TIMESTAMP".to_owned(),
        digits => format!("CURRENT_TIMESTAMP({digits})"),
    }
}

/// A text as SHOW CREATE TABLE writes it.
fn literal(text: &str) -> String {
    let mut out = String::from("'");
    for c in text.chars() {
        match c {
            '\0' => out.push_str("\\0"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("''"),
            c => out.push(c),
        }
    }
    out + "'"
}

/// The default as SHOW COLUMNS tells it; of bytes, as in MySQL, what stands before the first zero.
pub fn default_text(c: &apus_types::Column) -> Option<String> {
    match &c.default {
        DefaultValue::Literal(t) if matches!(c.ty, ColumnType::Binary { .. } | ColumnType::VarBinary { .. }) => {
            let shown = t.bytes().take_while(|b| *b != 0);
            let prefix = if t.is_empty() { "" } else { "0x" };
            Some(shown.fold(prefix.to_owned(), |hex, b| hex + &format!("{b:02X}")))
        }
        DefaultValue::Literal(t) => Some(t.clone()),
        DefaultValue::CurrentTimestamp => Some(current_timestamp(c)),
        DefaultValue::Expression(text) => Some(crate::parse::view_text::escaped(text)),
        DefaultValue::None | DefaultValue::Null => None,
    }
}

/// The column's part in keys, as SHOW COLUMNS says it.
pub fn key_kind(s: &apus_types::TableSchema, column: u16) -> &'static str {
    let of_beginnings = s.indexes.first().filter(|i| i.name == key_parts::PRIMARY);
    if !s.hidden_key && s.primary_key.contains(&column) || of_beginnings.is_some_and(|i| i.columns.contains(&column)) {
        "PRI"
    } else if s.indexes.iter().any(|i| i.unique && i.columns == [column]) {
        "UNI"
    } else if full_text::begins_any_index(s, column) {
        "MUL"
    } else {
        ""
    }
}

/// What else SHOW COLUMNS says of a column.
pub fn extra(c: &apus_types::Column) -> String {
    let mut extra = String::new();
    if c.auto_increment {
        extra.push_str("auto_increment");
    }
    extra.push_str(expressions::extra(c));
    if c.on_update_now {
        extra += &format!(" on update {}", current_timestamp(c));
    }
    if c.invisible {
        extra += " INVISIBLE";
    }
    extra.trim().to_owned()
}

/// The engine as SHOW ENGINES describes it.
pub const ENGINE: [&str; 6] = ["InnoDB", "DEFAULT", "Apus: in memory, replicated, sharded", "YES", "NO", "YES"];
/// Indexes as SHOW lists them: unique ones first, and of those the ones that may not be NULL.
fn in_order(s: &apus_types::TableSchema) -> Vec<&apus_types::IndexDef> {
    let mut list: Vec<&apus_types::IndexDef> = s.indexes.iter().collect();
    let may_be_null = |i: &apus_types::IndexDef| i.columns.iter().any(|&c| s.columns[usize::from(c)].nullable);
    list.sort_by_key(|i| (i.name != key_parts::PRIMARY, !i.unique, i.unique && may_be_null(i)));
    list
}

/// The statement that makes a table again; `next`: of its AUTO_INCREMENT column.
pub fn create_table(t: &Table, next: Option<u64>) -> String {
    let s = &t.schema;
    let quote = |n: &str| format!("`{}`", n.replace('`', "``"));
    let mut lines = Vec::new();
    for c in t.visible_columns() {
        let c = &s.columns[usize::from(c)];
        let mut line = format!("  {} {}", quote(&c.name), type_of(c));
        if let Some(collation) = c.ty.collation() {
            if collation != s.collation {
                line += &format!(" CHARACTER SET {} COLLATE {}", collation.charset().name(), collation.name());
            } else if !collation.is_default_of_charset() {
                line += &format!(" COLLATE {}", collation.name());
            }
        }
        let generated = expressions::generated(c);
        line += generated.as_deref().unwrap_or("");
        if !c.nullable {
            line += " NOT NULL";
        } else if matches!(c.ty, ColumnType::Timestamp { .. }) {
            line += " NULL";
        }
        match &c.default {
            DefaultValue::Literal(t) if matches!(c.ty, ColumnType::Bit { .. }) => line += &format!(" DEFAULT {t}"),
            DefaultValue::Literal(t) => line += &format!(" DEFAULT {}", literal(t)),
            DefaultValue::CurrentTimestamp => line += &format!(" DEFAULT {}", current_timestamp(c)),
            DefaultValue::Expression(text) => line += &format!(" DEFAULT ({text})"),
            _ if c.nullable
                && generated.is_none()
                && !matches!(c.ty, ColumnType::Text { .. } | ColumnType::Blob { .. }) =>
            {
                line += " DEFAULT NULL"
            }
            _ => {}
        }
        if c.on_update_now {
            line += &format!(" ON UPDATE {}", current_timestamp(c));
        }
        if c.auto_increment {
            line += " AUTO_INCREMENT";
        }
        line += visibility::shown_column(c);
        if !c.comment.is_empty() {
            line += &format!(" COMMENT {}", literal(&c.comment));
        }
        lines.push(line);
    }
    if !s.hidden_key {
        lines.push(format!("  PRIMARY KEY ({})", key_parts::written_primary(s)));
    }
    for i in in_order(s) {
        let parts = key_parts::written(s, i);
        let (unique, end) = (if i.unique { "UNIQUE " } else { "" }, visibility::shown_index(s, i));
        lines.push(match i.name == key_parts::PRIMARY {
            true => format!("  PRIMARY KEY ({parts})"),
            false => format!("  {unique}KEY {} ({parts}){end}", quote(&i.name)),
        });
    }
    lines.extend(full_text::shown(s));
    let engine = if s.engine.is_empty() { "InnoDB" } else { &s.engine };
    for key in foreign_key::by_name(s) {
        let unchecked = if key.unchecked { " /* apus: rows from before are not looked at */" } else { "" };
        lines.push(format!("  {}{unchecked}", foreign_key::definition(s, key)));
    }
    lines.extend(expressions::checks(s));
    let comment = if s.comment.is_empty() { String::new() } else { format!(" COMMENT={}", literal(&s.comment)) };
    let body = lines.join(",\n");
    let collate = if is_said(s.collation) { format!(" COLLATE={}", s.collation.name()) } else { String::new() };
    let counted = next.filter(|n| *n > 1).map_or_else(String::new, |n| format!(" AUTO_INCREMENT={n}"));
    format!(
        "CREATE TABLE {} (\n{body}\n) ENGINE={engine}{counted} DEFAULT CHARSET={}{collate}{comment}",
        quote(&s.name),
        s.collation.charset().name()
    )
}

/// `unless_there`: the comment that tells versions of MySQL that know it not to mind a database that is there.
fn create_database(unless_there: &str, name: &str, collation: Collation) -> String {
    let collate = if is_said(collation) { format!(" COLLATE {}", collation.name()) } else { String::new() };
    let characters = format!("/*!40100 DEFAULT CHARACTER SET {}{collate} */", collation.charset().name());
    format!("CREATE DATABASE {unless_there}{} {characters} /*!80016 DEFAULT ENCRYPTION='N' */", quoted(name))
}

/// The statement that makes a view again.
pub fn create_view(view: &View, current: Option<&str>) -> Result<String> {
    let d = &view.definition;
    let columns: Vec<String> = view.columns().map(quoted).collect();
    let columns = if d.named { format!(" ({})", columns.join(",")) } else { String::new() };
    let check = match d.check {
        view::Check::None => String::new(),
        check => format!(" WITH {} CHECK OPTION", check.name()),
    };
    let of = if current == Some(view.database()) { String::new() } else { format!("{}.", quoted(view.database())) };
    Ok(format!(
        "CREATE ALGORITHM={} DEFINER={}@{} SQL SECURITY {} VIEW {of}{}{columns} AS {}{check}",
        d.algorithm.name(),
        quoted(&d.definer.0),
        quoted(&d.definer.1),
        if d.invoker { "INVOKER" } else { "DEFINER" },
        quoted(view.name()),
        view_text::shown(&*view.query()?, view.database(), current)?
    ))
}

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
            let tables = self.catalog.borrow().tables().count();
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
                self.require_definition(session, &found.schema).await?;
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
            let rows: Rows = processlist::list(&session.env).map(|process| process.cells(full)).collect();
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
        self.require_sight(session, (&database, &name.1), command).await?;
        self.catalog_with(&database, &name.1).await?.columns_of(&database, &name.1)
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
        self.require_sight(session, (&database, &name.1), "SHOW").await?;
        let catalog = self.catalog_with(&database, &name.1).await?;
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

    async fn show_columns(
        &self,
        session: &mut Session,
        name: crate::parse::token::Name,
        full: bool,
        filter: &Filter,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let mut found = self.named_table(session, &name, "SELECT").await?;
        let catalog = self.catalog().await?;
        if let Some(view) = catalog.view(&found.schema.database, &found.schema.name) {
            found = std::rc::Rc::new(create_view::columns_now(session, &catalog, view)?);
        }
        let s = &found.schema;
        let mut rows = Rows::new();
        for number in found.visible_columns() {
            let c = &s.columns[usize::from(number)];
            let Some(privileges) = shown_privileges(session.env.me.as_ref(), s, &c.name) else { continue };
            let (key, extra) = (key_kind(s, number), extra(c));
            let mut row = vec![text(c.name.clone()), Some(type_of(c))];
            if full {
                row.push(c.ty.collation().map(|k| k.name().to_owned()));
            }
            row.extend([text(if c.nullable { "YES" } else { "NO" }), text(key), default_text(c), text(extra)]);
            if full {
                row.extend([text(privileges), text(c.comment.clone())]);
            }
            rows.push(row);
        }
        if full {
            let names = ["Field", "Type", "Collation", "Null", "Key", "Default", "Extra", "Privileges", "Comment"];
            filtered(session, out, &names, rows, filter)
        } else {
            filtered(session, out, &["Field", "Type", "Null", "Key", "Default", "Extra"], rows, filter)
        }
    }
}

/// Those that exist for the session's account.
fn seen<'t>(session: &Session, mut tables: Vec<&'t std::rc::Rc<Table>>) -> Vec<&'t std::rc::Rc<Table>> {
    if let Some(me) = &session.env.me {
        tables.retain(|t| me.rights.sees_table(&t.schema.database, &t.schema.name));
    }
    tables
}

fn show_virtual_tables(
    session: &mut Session,
    (database, kind): (&str, &'static str),
    names: impl Iterator<Item = &'static str>,
    full: bool,
    filter: &Filter,
    out: &mut Output<'_>,
) -> Result<()> {
    let title = format!("Tables_in_{database}");
    if full {
        let rows: Rows = names.map(|n| vec![text(n), text(kind)]).collect();
        filtered(session, out, &[&title, "Table_type"], rows, filter)
    } else {
        let rows: Rows = names.map(|n| vec![text(n)]).collect();
        filtered(session, out, &[&title], rows, filter)
    }
}

const INDEX_COLUMNS: [&str; 15] = [
    "Table",
    "Non_unique",
    "Key_name",
    "Seq_in_index",
    "Column_name",
    "Collation",
    "Cardinality",
    "Sub_part",
    "Packed",
    "Null",
    "Index_type",
    "Comment",
    "Index_comment",
    "Visible",
    "Expression",
];

fn index_rows(t: &Table) -> Rows {
    let s = &t.schema;
    let mut rows = Rows::new();
    let mut add =
        |name: &str, unique: bool, columns: &[u16], index: Option<&IndexDef>, comments: [&str; 2], visible: bool| {
            let is_full_text = full_text::has(s, name);
            for (i, &c) in columns.iter().enumerate() {
                let descends = s.descends(index.map_or(IndexNo(0), |index| index.no), i);
                let c = &s.columns[usize::from(c)];
                rows.push(vec![
                    text(s.name.clone()),
                    text(if unique { "0" } else { "1" }),
                    text(name),
                    text((i + 1).to_string()),
                    if is_part(c) { None } else { text(c.name.clone()) },
                    if is_full_text { None } else { text(if descends { "D" } else { "A" }) },
                    text("0"),
                    index.and_then(|index| index.prefix(i)).map(|n| n.to_string()),
                    None,
                    text(if c.nullable { "YES" } else { "" }),
                    text(if is_full_text { "FULLTEXT" } else { "BTREE" }),
                    text(comments[0]),
                    text(comments[1]),
                    text(if visible { "YES" } else { "NO" }),
                    is_part(c).then(|| expressions::generation(c)),
                ]);
            }
        };
    if !s.hidden_key {
        add("PRIMARY", true, &s.primary_key, None, ["", ""], true);
    }
    for i in in_order(s) {
        let comment = if i.state == IndexState::Building { "building" } else { "" };
        add(&i.name, i.unique, &i.columns, Some(i), [comment, ""], s.is_visible(i));
    }
    for i in &s.full_texts {
        add(&i.name, false, &i.columns, None, ["", &i.comment], !i.invisible);
    }
    rows
}

const TABLE_STATUS: [&str; 18] = [
    "Name",
    "Engine",
    "Version",
    "Row_format",
    "Rows",
    "Avg_row_length",
    "Data_length",
    "Max_data_length",
    "Index_length",
    "Data_free",
    "Auto_increment",
    "Create_time",
    "Update_time",
    "Check_time",
    "Collation",
    "Checksum",
    "Create_options",
    "Comment",
];

fn table_status(t: &Table, fault: Option<&str>, size: Option<&Size>) -> Vec<Option<String>> {
    let s = &t.schema;
    if view::is_view(s) {
        let mut row = vec![None; TABLE_STATUS.len()];
        row[0] = text(s.name.clone());
        row[TABLE_STATUS.len() - 1] = text(fault.unwrap_or("VIEW"));
        return row;
    }
    let engine = if s.engine.is_empty() { "InnoDB" } else { &s.engine };
    let mut row = [&s.name, engine, "10", "Dynamic"].map(text).to_vec();
    let told = size.map(|size| [size.rows, size.average, size.data, 0, size.indexes, 0].map(|n| text(n.to_string())));
    row.extend(told.unwrap_or([const { None }; 6]));
    row.push(size.and_then(|size| size.next).and_then(|next| text(next.to_string())));
    row.extend([None, None, None, text(s.collation.name()), None, text(""), text(s.comment.clone())]);
    row
}
