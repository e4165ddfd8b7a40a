//! CREATE and DROP TRIGGER: one change of the table's definition, which no writer can overlook.

use std::rc::Rc;

use apus_signal::{
    dict::{Change, ColumnsChange, TableName, TriggersChange},
    schema::{SourceMessage, TriggerMessage, column_to_wire},
};
use apus_types::{ErrorCode, TableSchema, form::Source, rules::TriggerDef};

use super::{
    DEFINITION_BYTES_MAX, Definition, TRIGGERS_MAX,
    clause::{Clause, Drop},
    definitions, failures,
};
use crate::{
    accounts::Privileges,
    catalog::{Catalog, SYSTEM_DATABASE, Table},
    errors::{self, Result},
    program::routine::{self, define::full},
    session::{Session, engine::SqlEngine},
};

/// Longest name in characters.
const NAME_CHARS_MAX: usize = 64;
/// Attempts of a change that meets another.
const ATTEMPTS_MAX: u32 = 50;

impl SqlEngine {
    pub(crate) async fn create_trigger(&self, session: &mut Session, clause: &Clause) -> Result<()> {
        let (database, name) = full(session, &clause.name)?;
        let table = (clause.table.0.clone().unwrap_or_else(|| database.clone()), clause.table.1.clone());
        if name.chars().count() > NAME_CHARS_MAX {
            return Err(routine::failures::too_long(&name));
        }
        if [&database, &table.0]
            .into_iter()
            .any(|name| *name == crate::catalog::grant_tables::DATABASE || name == SYSTEM_DATABASE)
        {
            return Err(failures::on_system_table());
        }
        for name in [&database, &table.0] {
            let name = name.as_str();
            if name.eq_ignore_ascii_case(crate::catalog::information_schema::DATABASE)
                || name == crate::catalog::performance_schema::DATABASE
            {
                return Err(errors::virtual_table_write(name));
            }
            if !self.catalog().await?.databases.contains_key(name)
                && !self.fetch_catalog().await?.databases.contains_key(name)
            {
                return Err(errors::unknown_database(name));
            }
        }
        if table.0 != database {
            return Err(failures::other_database());
        }
        self.require_on_table(session, (&table.0, &table.1), Privileges::TRIGGER).await?;
        if session.temporary.find(&table.0, &table.1).is_some() {
            return Err(errors::with_trigger(&table.1));
        }
        self.check_definer(session, clause.definer.as_ref()).await?;
        self.end_transaction(session, true).await?;
        session.check_may_define()?;
        self.wait_to_define_on(session, &table.0, &table.1).await?;
        if clause.definer.as_ref().is_some_and(|(user, host)| self.lacks_definer(session, user, host)) {
            let (user, host) = clause.definer.as_ref().map_or(("", ""), |(user, host)| (user, host));
            let e = errors::no_such_definer(user, host);
            session.warn("Note", e.errno, e.message);
        }
        for _ in 0..ATTEMPTS_MAX {
            let catalog = self.fetch_catalog().await?;
            let table = catalog.table(&table.0, &table.1)?;
            if let Some((known, owner)) = find(&catalog, &database, &name) {
                if !clause.if_not_exists {
                    return Err(failures::exists());
                }
                if !Rc::ptr_eq(&owner, &table) {
                    return Err(failures::exists_elsewhere(&known.name, &database));
                }
                let e = failures::exists_on(&known.name, &database, &table.schema.name);
                session.warn("Note", e.errno, e.message);
                return Ok(());
            }
            let definition = definition(session, &catalog, clause, &name)?;
            definition.compile(&table.schema)?;
            let list = with(&table.schema, definition, clause.beside.as_ref())?;
            if self.change_triggers(&table.schema, &list).await? {
                return self.fetch_catalog().await.map(|_| ());
            }
        }
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, &table.1))
    }

    pub(crate) async fn drop_trigger(&self, session: &mut Session, drop: &Drop) -> Result<()> {
        let (database, name) = full(session, &drop.name)?;
        self.end_transaction(session, true).await?;
        session.check_may_define()?;
        self.wait_to_define(session).await?;
        for _ in 0..ATTEMPTS_MAX {
            let catalog = self.fetch_catalog().await?;
            let is_known = catalog.databases.contains_key(&database);
            let found = find(&catalog, &database, &name).filter(|_| is_known);
            let Some((known, table)) = found else {
                let e = if is_known { errors::unknown_trigger() } else { errors::unknown_database(&database) };
                if !drop.if_exists {
                    return Err(e);
                }
                session.warn("Note", e.errno, e.message);
                return Ok(());
            };
            self.require_on_table(session, (&database, &table.schema.name), Privileges::TRIGGER).await?;
            let list: Vec<TriggerDef> =
                table.schema.triggers.iter().filter(|def| def.name != known.name).cloned().collect();
            if self.change_triggers(&table.schema, &list).await? {
                return self.fetch_catalog().await.map(|_| ());
            }
        }
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, &name))
    }

    /// `false`: somebody else has changed the table since.
    async fn change_triggers(&self, table: &TableSchema, list: &[TriggerDef]) -> Result<bool> {
        let sources = (0..table.columns.len() as u16).map(|c| SourceMessage::from(&Source::Kept(c)));
        let change = ColumnsChange {
            table: Some(TableName { database: table.database.clone(), table: table.name.clone(), version: 0 }),
            id: table.id.0,
            version: table.version,
            columns: table.columns.iter().map(column_to_wire).collect(),
            sources: sources.collect(),
            triggers: Some(TriggersChange { triggers: list.iter().map(TriggerMessage::from).collect() }),
            ..ColumnsChange::default()
        };
        match self.change(Change::ChangeColumns(change)).await? {
            None => Ok(true),
            Some(ErrorCode::SchemaVersionChanged) => Ok(false),
            Some(code) => Err(errors::from_code(code, &table.name)),
        }
    }

    fn lacks_definer(&self, session: &Session, user: &str, host: &str) -> bool {
        session.env.me.as_ref().is_some_and(|me| !me.has_account(user, host))
    }
}

/// The trigger of this name, and its table.
pub fn find(catalog: &Catalog, database: &str, name: &str) -> Option<(TriggerDef, Rc<Table>)> {
    let has = |table: &Rc<Table>| {
        let found = table.schema.triggers.iter().find(|def| def.name.to_lowercase() == name.to_lowercase());
        found.map(|def| (def.clone(), table.clone()))
    };
    catalog.tables_of(database).find_map(has)
}

/// The triggers of a table with one more, at its place.
fn with(table: &TableSchema, new: Definition, beside: Option<&(bool, String)>) -> Result<Vec<TriggerDef>> {
    let mut list = definitions(table)?;
    let at = match beside {
        None => list.len(),
        Some((follows, name)) => {
            let is = |d: &Definition| {
                d.name.to_lowercase() == name.to_lowercase() && d.event == new.event && d.is_before == new.is_before
            };
            let at = list.iter().position(is).ok_or_else(|| failures::no_neighbour(name))?;
            at + usize::from(*follows)
        }
    };
    list.insert(at, new);
    if list.len() > TRIGGERS_MAX {
        return Err(errors::not_supported(&format!("more than {TRIGGERS_MAX} triggers of a table")));
    }
    Ok(list.iter().map(Definition::to_def).collect())
}

fn definition(session: &Session, catalog: &Catalog, clause: &Clause, name: &str) -> Result<Definition> {
    let variable = |name: &str| session.env.variables.get(name, false).map(|value| value.as_string());
    let database = clause.name.0.as_ref().or(session.env.database.as_ref()).ok_or_else(errors::no_database)?;
    let collation = catalog.databases.get(database).copied().unwrap_or_default();
    let definition = Definition {
        name: name.to_owned(),
        event: clause.event,
        is_before: clause.is_before,
        definer: clause.definer.clone().unwrap_or_else(|| session.env.definer()),
        sql_mode: variable("sql_mode")?,
        charset: variable("character_set_client")?,
        collation: variable("collation_connection")?,
        database_collation: collation.name().to_owned(),
        created: session.env.now(),
        body: clause.body.clone(),
    };
    if definition.to_def().text.len() > DEFINITION_BYTES_MAX {
        return Err(routine::failures::too_much());
    }
    Ok(definition)
}
