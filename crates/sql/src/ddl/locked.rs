//! Definitions under LOCK TABLES: of tables that are locked to be written, and what becomes of their locks.

use super::statement::Ddl;
use crate::{
    errors::{self, Result},
    parse::token::Name,
    session::{Session, engine::SqlEngine},
};

/// A table by its database and name.
pub(super) type Full = (String, String);

impl SqlEngine {
    /// # Errors
    /// 1100, 1099, 1192: the session has locked tables, and not this one to write it.
    pub(super) fn check_locked_tables(&self, session: &Session, ddl: &Ddl) -> Result<()> {
        let Some(locked) = &session.locked else { return Ok(()) };
        let names = match ddl {
            Ddl::CreateDatabase { .. }
            | Ddl::AlterDatabase { .. }
            | Ddl::DropDatabase { .. }
            | Ddl::CreateView(_)
            | Ddl::DropViews { .. } => return Err(errors::locked_tables()),
            Ddl::Rename(list) => list.iter().map(|(from, _)| from.clone()).collect(),
            Ddl::RenameTable(from, _) => vec![from.clone()],
            ddl => ddl.changed_tables(),
        };
        names.iter().filter_map(|name| full(session, name)).try_for_each(|(d, t)| locked.check_definition(&d, &t))
    }

    /// Tables that will have another name then, or none.
    pub(super) fn moved_tables(&self, session: &Session, ddl: &Ddl) -> Vec<(Full, Option<Full>)> {
        let of = |name: &Name| full(session, name);
        match ddl {
            Ddl::Rename(list) => list.iter().filter_map(|(from, to)| Some((of(from)?, of(to)))).collect(),
            Ddl::RenameTable(from, to) => of(from).into_iter().map(|from| (from, of(to))).collect(),
            Ddl::DropTables { names, .. } => names.iter().filter_map(|name| Some((of(name)?, None))).collect(),
            _ => Vec::new(),
        }
    }

    /// Where the last table is gone, the locks have ended.
    pub(super) async fn move_locks(&self, session: &mut Session, moved: &[(Full, Option<Full>)]) {
        moved.iter().for_each(|(from, to)| self.move_lock(session, from, to.as_ref()));
        if session.locked.as_ref().is_some_and(|locked| locked.named.is_empty()) {
            self.end_table_locks(session).await;
        }
    }

    fn move_lock(&self, session: &mut Session, from: &Full, to: Option<&Full>) {
        let number = session.uses.number(&self.table_locks);
        if let Some(locked) = &mut session.locked {
            locked.rename(from, to);
        }
        self.table_locks.rename(number, (&from.0, &from.1), to.map(|(d, t)| (d.as_str(), t.as_str())));
    }
}

fn full(session: &Session, (database, name): &Name) -> Option<Full> {
    Some((database.clone().or_else(|| session.env.database.clone())?, name.clone()))
}
