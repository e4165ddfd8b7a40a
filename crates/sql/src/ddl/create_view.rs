//! CREATE, ALTER and DROP of views.

use std::rc::Rc;

use apus_signal::{
    dict::{Change, TableName},
    schema::TableMessage,
};
use apus_types::{Column, ColumnType, ErrorCode, TableId, schema::DefaultValue};
use sqlparser::ast::{self, SetExpr, Statement, TableFactor, TableWithJoins};

use crate::{
    accounts::Privileges,
    catalog::{
        Catalog, Table,
        view::{self, Algorithm, Check, DEFINITION_BYTES_MAX, Definition, View},
    },
    errors::{self, Result},
    parse::{
        account::account,
        token::{Name, Token, Tokens},
        view_text,
    },
    plan::{self, Plan, Planner, Select, Unplanned, needs::Needs, select::Output},
    session::{Session, engine::SqlEngine},
};

/// Attempts of a definition that others change at the same time.
const ATTEMPTS_MAX: u32 = 20;
/// Longest name of a column in characters.
const NAME_CHARS_MAX: usize = 64;

/// CREATE VIEW or ALTER VIEW.
#[derive(Debug)]
pub struct ViewClause {
    pub name: Name,
    columns: Vec<String>,
    alters: bool,
    or_replace: bool,
    if_not_exists: bool,
    algorithm: Algorithm,
    /// `None`: who makes it.
    definer: Option<(String, String)>,
    invoker: bool,
    check: Check,
    /// Its SELECT.
    text: String,
}

impl ViewClause {
    /// The definer that it names.
    pub fn definer(&self) -> Option<&(String, String)> {
        self.definer.as_ref()
    }
    /// Privileges on its name that it needs.
    pub fn needed(&self) -> Privileges {
        let replaces = if self.or_replace || self.alters { Privileges::DROP } else { Privileges::NONE };
        Privileges::CREATE_VIEW.union(replaces)
    }

    /// Behind CREATE or ALTER; `None` where no view is meant.
    pub fn parse(t: &mut Tokens, text: &str, alters: bool) -> Result<Option<ViewClause>> {
        let start = t.position();
        let or_replace = !alters && t.word("or");
        if or_replace {
            t.expect("replace")?;
        }
        let mut algorithm = Algorithm::default();
        if t.word("algorithm") {
            t.expect_symbol('=')?;
            let at = t.position();
            let word = t.identifier()?;
            algorithm = Algorithm::of(&word).ok_or_else(|| {
                t.rewind(at);
                t.error()
            })?;
        }
        let mut definer = None;
        if t.word("definer") {
            t.expect_symbol('=')?;
            definer = account(t)?;
        }
        let mut invoker = false;
        if t.word("sql") {
            t.expect("security")?;
            invoker = t.word("invoker");
            if !invoker {
                t.expect("definer")?;
            }
        }
        if !t.word("view") {
            t.rewind(start);
            return Ok(None);
        }
        let if_not_exists = !alters && t.word("if");
        if if_not_exists {
            t.expect("not")?;
            t.expect("exists")?;
        }
        let name = t.name()?;
        let mut columns = Vec::new();
        if t.symbol('(') {
            loop {
                columns.push(t.identifier()?);
                if !t.symbol(',') {
                    break;
                }
            }
            t.expect_symbol(')')?;
        }
        t.expect("as")?;
        let begin = t.offset().ok_or_else(|| t.error())?;
        if t.rest().iter().any(|token| matches!(token, Token::Word(w) if w.eq_ignore_ascii_case("into"))) {
            return Err(errors::view_with_clause("INTO"));
        }
        let is_variable = |t: &Token| *t == Token::Symbol('?') || matches!(t, Token::Word(w) if w.starts_with('@'));
        if t.rest().iter().any(is_variable) {
            return Err(errors::view_with_variable());
        }
        let endings = [
            (&["with", "cascaded", "check", "option"][..], Check::Cascaded),
            (&["with", "local", "check", "option"], Check::Local),
            (&["with", "check", "option"], Check::Cascaded),
        ];
        let found = endings.iter().find_map(|(words, check)| Some((t.ending(words)?, *check)));
        let (end, check) = found.unwrap_or((text.len(), Check::None));
        t.skip_all();
        let text = text.get(begin..end).unwrap_or("").trim().to_owned();
        Ok(Some(ViewClause {
            name,
            columns,
            alters,
            or_replace,
            if_not_exists,
            algorithm,
            definer,
            invoker,
            check,
            text,
        }))
    }
}

/// A definition as it goes into the dictionary.
struct Made {
    definition: Definition,
    columns: Vec<Column>,
}

impl SqlEngine {
    pub(crate) async fn create_view(&self, session: &mut Session, clause: &ViewClause) -> Result<()> {
        let database =
            clause.name.0.clone().or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
        let name = TableName { database, table: clause.name.1.clone(), version: 0 };
        for _ in 0..ATTEMPTS_MAX {
            let catalog = self.fetch_catalog_of(session).await?;
            let Some(existing) = check_name(session, catalog.permanent(), clause, &name)? else { return Ok(()) };
            let (made, needs) = made(session, &catalog, clause, &name)?;
            self.authorize(session, &needs).await?;
            let sent = match &existing {
                Some(view) => self.replace_view(view, &made).await?,
                None => {
                    let table = view::table(&name.database, &name.table, &made.definition, made.columns);
                    self.change(Change::CreateTable(TableMessage::from(&table))).await?
                }
            };
            match sent {
                None => return Ok(()),
                // Somebody else was there first.
                Some(ErrorCode::TableExists) => session.clear_warnings(),
                Some(ErrorCode::DatabaseNotFound) => return Err(errors::unknown_database(&name.database)),
                Some(code) => return Err(errors::from_code(code, &name.table)),
            }
        }
        Err(errors::from_code(ErrorCode::SchemaBusy, &name.table))
    }

    /// Puts another definition in place of the view's.
    async fn replace_view(&self, view: &View, made: &Made) -> Result<Option<ErrorCode>> {
        let (id, number) = kept(view);
        let table =
            view::table(view.database(), &view::replacement(id, number + 1), &made.definition, made.columns.clone());
        let sent = self.change(Change::CreateTable(TableMessage::from(&table))).await?;
        if sent.is_none() && number > 0 {
            self.drop_definition(view).await?;
        }
        Ok(sent)
    }

    /// Drops the table of a replaced definition. It may be gone already.
    async fn drop_definition(&self, view: &View) -> Result<()> {
        let name = TableName { database: view.database().to_owned(), table: view.kept_as.clone(), version: 0 };
        self.change(Change::DropTable(name)).await.map(|_| ())
    }

    pub(crate) async fn drop_views(&self, session: &mut Session, names: &[TableName], if_exists: bool) -> Result<()> {
        let catalog = self.fetch_catalog().await?;
        let (mut views, mut unknown): (Vec<Rc<View>>, Vec<String>) = Default::default();
        for name in names {
            let (database, table) = (name.database.as_str(), name.table.as_str());
            match catalog.view(database, table) {
                Some(view) => views.push(view.clone()),
                None if catalog.find(database, table).is_some() => {
                    let e = errors::wrong_object(database, table, "VIEW");
                    if !if_exists {
                        return Err(e);
                    }
                    session.warn("Note", e.errno, e.message);
                }
                None => unknown.push(format!("{database}.{table}")),
            }
        }
        if !unknown.is_empty() {
            let e = errors::drop_unknown_table(&unknown.join(","));
            if !if_exists {
                return Err(e);
            }
            session.warn("Note", e.errno, e.message);
        }
        for view in views {
            let name = TableName { database: view.database().to_owned(), table: view.name().to_owned(), version: 0 };
            let shown = format!("{}.{}", name.database, name.table);
            match self.change(Change::DropTable(name)).await? {
                None | Some(ErrorCode::TableNotFound) => {}
                Some(code) => return Err(errors::from_code(code, &shown)),
            }
            if view.kept_as != view.name() {
                self.drop_definition(&view).await?;
            }
        }
        Ok(())
    }
}

/// Id of a view in the dictionary, and the number of its definition.
fn kept(view: &View) -> (TableId, u64) {
    view::replaces(&view.kept_as).unwrap_or((view.table.schema.id, 0))
}

/// The view that is there and may be replaced; the outer `None`: there is nothing to do.
fn check_name(
    session: &mut Session,
    catalog: &Catalog,
    clause: &ViewClause,
    name: &TableName,
) -> Result<Option<Option<Rc<View>>>> {
    let (database, table) = (name.database.as_str(), name.table.as_str());
    if database == crate::catalog::information_schema::DATABASE {
        return Err(errors::virtual_table_write(database));
    }
    if !catalog.databases.contains_key(database) {
        return Err(errors::unknown_database(database));
    }
    let existing = catalog.view(database, table).cloned();
    let is_table = catalog.find(database, table).is_some();
    let may_replace = clause.or_replace || clause.alters;
    if is_table && may_replace {
        return Err(errors::wrong_object(database, table, "VIEW"));
    }
    if clause.alters && existing.is_none() {
        return Err(errors::unknown_table(database, table));
    }
    if (is_table || existing.is_some()) && !may_replace {
        let e = errors::table_exists(table);
        if !clause.if_not_exists {
            return Err(e);
        }
        session.warn("Note", e.errno, e.message);
        return Ok(None);
    }
    Ok(Some(existing))
}

fn planned(planner: &Planner<'_>, statement: &Statement) -> Result<Select> {
    match planner.plan(statement) {
        Ok(Plan::Select(select)) => Ok(*select),
        Ok(_) => Err(errors::syntax(planner.text)),
        Err(Unplanned::Error(e)) => Err(e),
        Err(Unplanned::Structural) => Err(errors::structural()),
    }
}

fn made(session: &mut Session, catalog: &Catalog, clause: &ViewClause, name: &TableName) -> Result<(Made, Needs)> {
    let statement = plan::syntax::parse(&clause.text)?;
    let Statement::Query(query) = &statement else { return Err(errors::syntax(&clause.text)) };
    let mut planner = Planner::new(catalog, &session.env, &clause.text, Vec::new());
    planner.views.notes = Some(Default::default());
    let select = planned(&planner, &statement)?;
    if let Some(own) = select.reads.iter().find(|table| table.is_temporary()) {
        return Err(errors::in_a_view(&own.schema.name));
    }
    if select.names.views.iter().any(|v| v.schema.database == name.database && v.schema.name == name.table) {
        return Err(errors::unknown_table(&name.database, &name.table));
    }
    let headings: Vec<String> = select.outputs.iter().enumerate().map(|(i, o)| heading(i, &o.def.name)).collect();
    let names = if clause.columns.is_empty() { &headings } else { &clause.columns };
    if names.len() != headings.len() {
        return Err(errors::alias_columns());
    }
    if let Some((_, twice)) =
        names.iter().enumerate().find(|(i, n)| names[..*i].iter().any(|other| other.eq_ignore_ascii_case(n)))
    {
        return Err(errors::duplicate_column(twice));
    }
    let database = session.env.database.clone().unwrap_or_default();
    let notes = planner.views.notes.take().unwrap_or_default().into_inner();
    let written = view_text::of_new(query, &notes, &database, headings.clone())?;
    let merges = merges(query, &select) && !written.lists_subquery;
    let mut algorithm = clause.algorithm;
    if algorithm == Algorithm::Merge && !merges {
        session.warn_error(&errors::no_merge());
        algorithm = Algorithm::Undefined;
    }
    let updatable = merges && algorithm != Algorithm::Temptable && is_updatable(catalog, &database, &query.body);
    if clause.check != Check::None && !updatable {
        return Err(errors::check_not_updatable(&name.database, &name.table));
    }
    let is_unknown = |(user, host): &&(String, String)| match &session.env.me {
        Some(me) => !me.has_account(user, host),
        None => user != "root",
    };
    if let Some((user, host)) = clause.definer.as_ref().filter(is_unknown) {
        let e = errors::no_such_definer(user, host);
        session.warn("Note", e.errno, e.message);
    }
    // What is kept must mean what was said.
    let again = plan::syntax::parse(&written.out)?;
    let again = planned(&Planner::new(catalog, &session.env, &written.out, Vec::new()), &again)?;
    if again.outputs.len() != select.outputs.len() {
        return Err(errors::internal("the text of a view means something else"));
    }
    let columns = names.iter().zip(&select.outputs);
    let columns = columns.map(|(name, o)| column_of_output(catalog, name, o)).collect();
    let variable = |name: &str| {
        let value = session.env.variables.get(name, false)?;
        Ok::<String, crate::wire::SqlError>(String::from_utf8_lossy(&value.as_text()).into_owned())
    };
    let definition = Definition {
        algorithm,
        definer: clause.definer.clone().unwrap_or_else(|| session.env.definer()),
        invoker: clause.invoker,
        check: clause.check,
        merges,
        updatable,
        named: !clause.columns.is_empty(),
        database: database.clone(),
        charset: variable("character_set_client")?,
        collation: variable("collation_connection")?,
        text: written.out,
    };
    if definition.text.len() > DEFINITION_BYTES_MAX {
        return Err(errors::from_code(ErrorCode::RequestTooLarge, &name.table));
    }
    Ok((Made { definition, columns }, select.names.needs))
}

/// The name of a column that has none of its own.
fn heading(at: usize, name: &str) -> String {
    if name.chars().count() > NAME_CHARS_MAX || name.is_empty() || name.ends_with(' ') {
        format!("Name_exp_{}", at + 1)
    } else {
        name.to_owned()
    }
}

/// Whether the tables of a SELECT can stand in a block around it.
fn merges(query: &ast::Query, select: &Select) -> bool {
    let SetExpr::Select(body) = &*query.body else { return false };
    let has_tables = select.table.is_some() || select.join.is_some();
    query.with.is_none()
        && query.limit_clause.is_none()
        && has_tables
        && body.having.is_none()
        && !view_text::is_dual(&body.from)
        && !select.distinct
        && select.group.is_none()
}

/// Whether there is a table or a view in FROM whose rows can be changed.
fn is_updatable(catalog: &Catalog, database: &str, body: &SetExpr) -> bool {
    fn of(catalog: &Catalog, database: &str, one: &TableWithJoins) -> bool {
        let factors = std::iter::once(&one.relation).chain(one.joins.iter().map(|j| &j.relation));
        factors.into_iter().any(|factor| match factor {
            TableFactor::Table { name, .. } => {
                let parts: Vec<&str> = name.0.iter().filter_map(|p| p.as_ident()).map(|i| i.value.as_str()).collect();
                let (database, table) = match parts[..] {
                    [database, table] => (database, table),
                    [table] => (database, table),
                    _ => return false,
                };
                match catalog.view(database, table) {
                    Some(view) => view.definition.updatable,
                    None => database != crate::catalog::information_schema::DATABASE,
                }
            }
            TableFactor::NestedJoin { table_with_joins, .. } => of(catalog, database, table_with_joins),
            _ => false,
        })
    }
    matches!(body, SetExpr::Select(select) if select.from.iter().any(|one| of(catalog, database, one)))
}

/// The columns of a view as its tables are now.
///
/// # Errors
/// 1356 where they are gone.
pub fn columns_now(session: &Session, catalog: &Catalog, view: &View) -> Result<Table> {
    let of = |text: &str| planned(&Planner::new(catalog, &session.env, text, Vec::new()), &plan::syntax::parse(text)?);
    let all = format!("SELECT * FROM {}.{}", view_text::quoted(view.database()), view_text::quoted(view.name()));
    let mut select = of(&all)?;
    if !view.definition.is_merged() {
        // A derived table's columns have lost what is known of them.
        select = of(&view.definition.text)?;
    }
    let columns = view.columns().zip(&select.outputs);
    let columns = columns.map(|(name, o)| column_of_output(catalog, name, o)).collect();
    let schema = view::table(view.database(), view.name(), &Definition::default(), columns);
    Ok(Table::new(schema, Vec::new()))
}

/// The column that an output makes in a view or a table, with what is known of the table's column that it is.
pub fn column_of_output(catalog: &Catalog, name: &str, output: &Output) -> Column {
    let (def, shape) = (&output.def, output.shape);
    let table = catalog.find(&def.schema, &def.org_table).filter(|_| !def.org_table.is_empty());
    let source = table.as_ref().and_then(|t| t.schema.columns.iter().find(|c| c.name == def.org_name));
    Column {
        name: name.to_owned(),
        // A moment is kept as what it shows, but the column is one of moments.
        ty: source.map_or(shape.ty, |c| c.ty),
        nullable: shape.nullable,
        default: match source {
            Some(c) if c.auto_increment => DefaultValue::Literal("0".to_owned()),
            Some(c) => c.default.clone(),
            None if shape.nullable => DefaultValue::None,
            None => implicit_default(shape.ty),
        },
        auto_increment: false,
        on_update_now: source.is_some_and(|c| c.on_update_now),
        comment: source.map_or_else(String::new, |c| c.comment.clone()),
        declared: match (source, shape.face) {
            (Some(c), _) => c.declared.clone(),
            (None, Some(face)) => face.declared(shape.ty),
            (None, None) => String::new(),
        },
        ..Column::new("", shape.ty)
    }
}

/// The default of a computed column that is never NULL. A moment has none.
fn implicit_default(ty: ColumnType) -> DefaultValue {
    let zeros = |decimals: u8| if decimals == 0 { String::new() } else { format!(".{}", "0".repeat(decimals.into())) };
    let text = match ty {
        ColumnType::Int { .. } | ColumnType::Float | ColumnType::Double => "0".to_owned(),
        ColumnType::Decimal { scale, .. } => format!("0{}", zeros(scale)),
        ColumnType::Time { decimals } => format!("00:00:00{}", zeros(decimals)),
        ColumnType::Char { .. } | ColumnType::VarChar { .. } => String::new(),
        ColumnType::Binary { .. } | ColumnType::VarBinary { .. } => String::new(),
        _ => return DefaultValue::None,
    };
    DefaultValue::Literal(text)
}
