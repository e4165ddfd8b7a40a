//! The tables that LOCK TABLES locks beside those that it names: of views, of what triggers use, and of foreign keys.
//!
//! What a trigger uses is found in the text of its body, and of the routines that it calls: every word that is the name of a table. So a table may be locked that is not used; none that is used is left out.

use std::collections::BTreeSet;

use apus_types::foreign_key::Action;

use crate::{
    catalog::{Catalog, foreign_key::Reference},
    errors::Result,
    expr::env::Env,
    parse::{
        token::{Token, Tokens},
        view_text::quoted,
    },
    plan::text::plan_text,
    program::routine::{
        Kind,
        code::{Program, Step},
    },
    session::table_locks::{Locked, LockedTable},
};

/// All tables to lock.
///
/// # Errors
/// A view does not fit what is there.
pub(super) fn tables(catalog: &Catalog, env: &Env, named: &[Locked]) -> Result<Vec<LockedTable>> {
    let mut implied = Implied { catalog, env, tables: Vec::new(), routines: BTreeSet::new() };
    named.iter().try_for_each(|locked| implied.add(&locked.database, &locked.name, locked.writes))?;
    Ok(implied.tables)
}

fn cascades(reference: &Reference) -> bool {
    let acts = |action| matches!(action, Action::Cascade | Action::SetNull);
    acts(reference.key.on_delete) || acts(reference.key.on_update)
}

struct Implied<'c> {
    catalog: &'c Catalog,
    env: &'c Env,
    tables: Vec<LockedTable>,
    /// Those that were looked through.
    routines: BTreeSet<String>,
}

impl Implied<'_> {
    fn add(&mut self, database: &str, name: &str, writes: bool) -> Result<()> {
        if self.catalog.view(database, name).is_some() {
            let text = format!("SELECT * FROM {}.{}", quoted(database), quoted(name));
            let plan = plan_text(self.catalog, self.env, &text, Vec::new())?;
            return plan.tables().try_for_each(|table| self.add(&table.schema.database, &table.schema.name, writes));
        }
        let Some(table) = self.catalog.find(database, name) else { return Ok(()) };
        let known = self.tables.iter_mut().find(|t| t.database == database && t.name == name);
        match known {
            Some(known) if known.writes || !writes => return Ok(()),
            Some(known) => known.writes = true,
            None => {
                let (database, name) = (database.to_owned(), name.to_owned());
                self.tables.push(LockedTable { database, name, id: table.schema.id, writes });
            }
        }
        let rules = self.catalog.rules(table.schema.id);
        for reference in rules.iter().flat_map(|rules| &rules.parents) {
            // By a cascade others would write what is locked to be read.
            if (writes || cascades(reference))
                && let Some(parent) = &reference.parent
            {
                self.add(&parent.table.schema.database, &parent.table.schema.name, false)?;
            }
        }
        if !writes {
            return Ok(());
        }
        for trigger in table.triggers().into_iter().flat_map(|triggers| triggers.iter()) {
            if let Ok(program) = trigger.program(&table.schema) {
                self.add_used(&program, database)?;
            }
        }
        for reference in rules.iter().flat_map(|rules| &rules.children) {
            let child = &reference.child.schema;
            self.add(&child.database, &child.name, cascades(reference))?;
        }
        Ok(())
    }

    fn add_used(&mut self, program: &Program, database: &str) -> Result<()> {
        for text in program.texts() {
            self.add_named(&text.sql, database)?;
        }
        for step in &program.steps {
            if let Step::Call { database: of, name, .. } = step {
                self.add_routine(Kind::Procedure, of.as_deref().unwrap_or(database), name)?;
            }
        }
        Ok(())
    }

    fn add_named(&mut self, text: &str, database: &str) -> Result<()> {
        let t = Tokens::new(text);
        let writes = ["insert", "replace", "update", "delete"].iter().any(|verb| t.peek_word(verb));
        let name_at = |at: usize| match t.ahead(at) {
            Some(Token::Word(name) | Token::Quoted(name)) => Some(name.clone()),
            _ => None,
        };
        for at in 0..t.rest().len() {
            let Some(first) = name_at(at) else { continue };
            let second = name_at(at + 2).filter(|_| t.ahead(at + 1) == Some(&Token::Symbol('.')));
            if t.ahead(at + 1) == Some(&Token::Symbol('(')) {
                self.add_routine(Kind::Function, database, &first)?;
            }
            if let Some(second) = second {
                self.add_routine(Kind::Function, &first, &second)?;
                self.add(&first, &second, writes)?;
            }
            self.add(database, &first, writes)?;
        }
        Ok(())
    }

    fn add_routine(&mut self, kind: Kind, database: &str, name: &str) -> Result<()> {
        let Some(routine) = self.catalog.routine(kind, database, name) else { return Ok(()) };
        if !self.routines.insert(format!("{} {}", kind.name(), routine.full_name())) {
            return Ok(());
        }
        match routine.program() {
            Ok(program) => self.add_used(&program, &routine.database),
            Err(_) => Ok(()),
        }
    }
}
