//! ALTER TABLE ... ADD and DROP of foreign keys, and CREATE TABLE with some.
//!
//! Keys that go go first, keys that come come last, when their columns and indexes are there; each is one change of the dictionary. A statement whose new
//! keys are refused takes back what it has made, and puts back the keys that it has dropped.

use apus_signal::{
    dict::{Change, TableName},
    foreign_key::{ForeignKeyMessage, ForeignKeysChange},
    schema::TableMessage,
};
use apus_types::{ErrorCode, TableSchema};

use super::clause::Clause;
use crate::{
    ddl::{
        alter::{self, alter_clause::AlterClause},
        foreign_key,
    },
    errors::{self, Result},
    session::{Session, engine::SqlEngine},
};

/// Attempts of a change that meets another change of the same tables.
const ATTEMPTS_MAX: u32 = 20;

impl SqlEngine {
    /// What an ALTER TABLE does with keys before all else.
    pub(crate) async fn prepare_keys(
        &self,
        session: &mut Session,
        name: &TableName,
        clause: &mut AlterClause,
    ) -> Result<()> {
        if clause.foreign_keys.is_empty() && clause.drop_keys.is_empty() {
            return Ok(());
        }
        let catalog = self.fetch_catalog().await?;
        let table = catalog.table(&name.database, &name.table)?;
        let schema = &table.schema;
        clause.foreign_keys.iter().try_for_each(Clause::check)?;
        let mut left = schema.clone();
        for (key, is_constraint) in &clause.drop_keys {
            let at = left.foreign_keys.iter().position(|known| known.name.eq_ignore_ascii_case(key));
            match at {
                Some(at) => _ = left.foreign_keys.remove(at),
                None if *is_constraint => return Err(errors::no_constraint(key)),
                None => return Err(errors::cannot_drop_foreign_key(key)),
            }
        }
        if clause.has_columns_of_keys(schema) {
            foreign_key::new_keys(&catalog, &left, &clause.foreign_keys, session.env.variables.foreign_key_checks)?;
        }
        clause.make_indexes(schema);
        if clause.drop_keys.is_empty() {
            return Ok(());
        }
        // What is refused of the rest is refused before they go.
        let read_again = clause.read_again(schema)?;
        let read = read_again.as_ref().unwrap_or(clause);
        read.check_loss(&catalog, schema, false)?;
        alter::change(session, name, &left, read)?;
        let drop = clause.drop_keys.iter().map(|(key, _)| key.clone()).collect();
        let (id, version) = (schema.id.0, schema.version);
        let change = ForeignKeysChange { table: Some(name.clone()), id, version, drop, add: Vec::new() };
        match self.change(Change::ChangeForeignKeys(change)).await? {
            None => Ok(()),
            Some(code) => Err(errors::from_code(code, &name.table)),
        }
    }

    /// What it does with them at the end; how many rows were looked at.
    pub(crate) async fn add_foreign_keys(
        &self,
        session: &mut Session,
        name: &TableName,
        clause: &AlterClause,
    ) -> Result<u64> {
        if clause.foreign_keys.is_empty() {
            return Ok(0);
        }
        let checks = session.env.variables.foreign_key_checks;
        let made = self.define_keys(name, &clause.foreign_keys, checks).await?;
        let mut rows = 0;
        for key in made.iter().filter(|_| checks) {
            match self.validate_foreign_key(session, name, &key.name).await {
                Ok(count) => rows = count,
                Err(refused) => {
                    self.drop_keys(name, &made).await?;
                    return Err(refused);
                }
            }
        }
        Ok(rows)
    }

    async fn define_keys(&self, name: &TableName, clauses: &[Clause], checks: bool) -> Result<Vec<ForeignKeyMessage>> {
        for _ in 0..ATTEMPTS_MAX {
            let catalog = self.fetch_catalog().await?;
            let table = catalog.table(&name.database, &name.table)?;
            let (id, version) = (table.schema.id.0, table.schema.version);
            let mut add = foreign_key::new_keys(&catalog, &table.schema, clauses, checks)?;
            add.iter_mut().for_each(|key| key.unchecked = checks);
            let made = add.clone();
            let change = ForeignKeysChange { table: Some(name.clone()), id, version, drop: Vec::new(), add };
            match self.change(Change::ChangeForeignKeys(change)).await? {
                None => return Ok(made),
                // Somebody else has changed a table since.
                Some(ErrorCode::SchemaVersionChanged | ErrorCode::IndexExists) => {}
                Some(code) => return Err(errors::from_code(code, &name.table)),
            }
        }
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, &name.table))
    }

    async fn drop_keys(&self, name: &TableName, keys: &[ForeignKeyMessage]) -> Result<()> {
        for _ in 0..ATTEMPTS_MAX {
            let table = self.fetch_catalog().await?.table(&name.database, &name.table)?;
            let (id, version) = (table.schema.id.0, table.schema.version);
            let is_there = |key: &&ForeignKeyMessage| table.schema.foreign_keys.iter().any(|k| k.name == key.name);
            let drop = keys.iter().filter(is_there).map(|key| key.name.clone()).collect();
            let change = ForeignKeysChange { table: Some(name.clone()), id, version, drop, add: Vec::new() };
            match self.change(Change::ChangeForeignKeys(change)).await? {
                None => return Ok(()),
                Some(ErrorCode::SchemaVersionChanged) => {}
                Some(code) => return Err(errors::from_code(code, &name.table)),
            }
        }
        Err(errors::from_code(ErrorCode::SchemaVersionChanged, &name.table))
    }

    /// A new table with its foreign keys; what the dictionary says.
    pub(crate) async fn create_with_keys(
        &self,
        session: &Session,
        table: &TableSchema,
        clauses: &[Clause],
    ) -> Result<Option<ErrorCode>> {
        let checks = session.env.variables.foreign_key_checks;
        for _ in 0..ATTEMPTS_MAX {
            let mut message = TableMessage::from(table);
            let catalog = if clauses.is_empty() { self.catalog().await? } else { self.fetch_catalog().await? };
            let is_new =
                catalog.databases.contains_key(&table.database) && catalog.find(&table.database, &table.name).is_none();
            if is_new {
                foreign_key::check_new_table(&catalog, table, checks)?;
                message.foreign_keys = foreign_key::new_keys(&catalog, table, clauses, checks)?;
            }
            match self.change(Change::CreateTable(message)).await? {
                Some(ErrorCode::SchemaVersionChanged) => {}
                Some(ErrorCode::IndexExists) if is_new && !clauses.is_empty() => {}
                done => return Ok(done),
            }
        }
        Ok(Some(ErrorCode::SchemaVersionChanged))
    }
}
