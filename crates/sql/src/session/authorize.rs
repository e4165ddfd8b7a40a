//! Whether the session's account may do what a statement asks.
//!
//! A plan knows the privileges that it needs ([`Needs`]): on which tables, and by whom, since what stands in a view is read by the view's definer. They are compared once for a plan, an account and a
//! version of the accounts; as long as these are the same a statement pays for two comparisons and a look at the clock. Everything else (definitions, SHOW, KILL) asks here by its name.
//!
//! A session keeps the account that it was opened by. When the accounts are others it takes the one of this name as it is now, or one without any privilege where that is gone. A session that was
//! opened while the cluster did not answer has logged in by accounts that may have been old: its first statement that needs a privilege finds that out.
//!
//! An engine without accounts ([`SqlEngine::new`]) refuses nobody anything.

use std::sync::Arc;

use apus_types::{ErrorCode, TableSchema};

use super::{Session, engine::SqlEngine};
use crate::{
    accounts::{Account, AccountName, Active, Privileges, identity::Identity},
    catalog::SYSTEM_DATABASE,
    ddl::{foreign_key::clause, statement::Ddl},
    errors::{self, Result},
    expr::env::Env,
    parse::token::Name,
    plan::needs::{Need, Needs, privilege_missing},
    wire::SqlError,
};

/// Names of several privileges, as errors list them.
pub fn listed(privileges: Privileges) -> String {
    let mut names = privileges.names();
    if privileges.contains(Privileges::GRANT_OPTION) {
        names.push("GRANT");
    }
    names.join(", ")
}

/// 1142: `command` denied on a table.
pub fn table_denied(env: &Env, command: &str, table: &str) -> SqlError {
    let (user, host) = (&env.user, &env.host);
    let text = format!("{command} command denied to user '{user}'@'{host}' for table '{table}'");
    SqlError::new(1142, b"42000", text)
}

/// 1143: of a table for which there is another privilege.
pub fn column_denied(env: &Env, command: &str, column: &str, table: &str) -> SqlError {
    let (user, host) = (&env.user, &env.host);
    let text = format!("{command} command denied to user '{user}'@'{host}' for column '{column}' in table '{table}'");
    SqlError::new(1143, b"42000", text)
}

/// 1044.
pub fn database_denied(env: &Env, database: &str) -> SqlError {
    let own = AccountName::new(&env.user, "%");
    let name = env.me.as_ref().map_or(&own, |me| &me.account.name);
    SqlError::new(1044, b"42000", format!("Access denied for user {} to database '{database}'", name.quoted()))
}

/// Who needs it: the account of the session, or the definer of a view.
fn who(me: &Identity, need: &Need) -> Result<Arc<Account>> {
    let Some(view) = &need.within else { return Ok(me.rights.clone()) };
    let (user, host) = &view.definition.definer;
    let Some(definer) = me.account_of(user, host) else {
        let text = format!("The user specified as a definer ('{user}'@'{host}') does not exist");
        return Err(SqlError::new(1449, b"HY000", text));
    };
    Ok(me.directory.rights(definer, &definer.active(&Active::Default)))
}

/// What stands in a view is refused as the view.
fn refused(need: &Need, otherwise: impl FnOnce() -> SqlError) -> SqlError {
    match need.within.as_ref().or(need.view.as_ref()) {
        Some(view) => errors::invalid_view(view.database(), view.name()),
        None => otherwise(),
    }
}

fn check_table(env: &Env, me: &Identity, need: &Need, locks: bool) -> Result<()> {
    if need.database == crate::catalog::information_schema::DATABASE {
        return Ok(());
    }
    let who = who(me, need)?;
    let has = who.on_table(&need.database, &need.table);
    let change = Privileges::UPDATE.union(Privileges::DELETE).union(Privileges::LOCK_TABLES);
    let locks = locks && need.within.is_none();
    if has.contains(need.privileges) && (!locks || has.intersects(change)) {
        return Ok(());
    }
    let has = who.on_some_column(&need.database, &need.table);
    let missing = need.privileges.without(has);
    if missing != Privileges::NONE && !has.intersects(need.instead) {
        return Err(refused(need, || table_denied(env, &listed(missing), &need.table)));
    }
    if locks && !has.intersects(change) {
        return Err(table_denied(env, "SELECT with locking clause", &need.table));
    }
    Ok(())
}

fn check_columns(env: &Env, me: &Identity, need: &Need) -> Result<()> {
    if need.columns.is_empty() || need.database == crate::catalog::information_schema::DATABASE {
        return Ok(());
    }
    let who = who(me, need)?;
    let has = who.on_table(&need.database, &need.table);
    for column in need.columns.iter().filter(|column| !has.contains(column.privileges)) {
        let missing = column.privileges.without(who.on_column(&need.database, &need.table, &column.name));
        if missing != Privileges::NONE {
            let missing = listed(missing);
            return Err(refused(need, || match column.is_of_all {
                true => table_denied(env, &missing, &need.table),
                false => column_denied(env, &missing, &column.name, &need.table),
            }));
        }
    }
    Ok(())
}

/// Tables before columns, as in MySQL.
fn check_needs(env: &Env, me: &Identity, needs: &[Need], locks: bool) -> Result<()> {
    needs.iter().try_for_each(|need| check_table(env, me, need, locks))?;
    needs.iter().try_for_each(|need| check_columns(env, me, need))
}

/// What a statement that cannot be planned is refused by in the first place: what is wrong with it must not tell of tables that do not exist for the account.
pub fn denied_before(env: &Env, needs: &[Need]) -> Option<SqlError> {
    let me = env.me.as_ref()?;
    check_needs(env, me, needs, false).err().filter(|e| matches!(e.errno, 1142 | 1143))
}

/// 1142 for a table that does not exist for the account, whether it is there or not.
pub fn unseen(env: &Env, database: &str, table: &str, text: &str) -> Option<SqlError> {
    let me = env.me.as_ref()?;
    if database.eq_ignore_ascii_case(crate::catalog::information_schema::DATABASE)
        || me.rights.sees_table(database, table)
    {
        return None;
    }
    let verb: String = text.chars().take_while(char::is_ascii_alphabetic).collect();
    let verb = match verb.to_ascii_uppercase().as_str() {
        "REPLACE" => "INSERT".to_owned(),
        verb @ ("INSERT" | "UPDATE" | "DELETE") => verb.to_owned(),
        _ => "SELECT".to_owned(),
    };
    Some(table_denied(env, &verb, table))
}

/// What the session's account may do with a column, as catalog tables list it: `select,insert`. `None`: the column does not exist for the account.
pub fn shown_privileges(me: Option<&Identity>, schema: &TableSchema, column: &str) -> Option<String> {
    let all = Privileges::ON_COLUMN;
    let has = match me {
        Some(me) if schema.database != crate::catalog::information_schema::DATABASE => {
            me.rights.on_column(&schema.database, &schema.name, column).intersection(all)
        }
        _ => all,
    };
    (has != Privileges::NONE).then(|| has.names().join(",").to_lowercase())
}

/// `has`: `None` where nobody is refused anything.
fn require(session: &Session, table: &str, needed: Privileges, has: Option<Privileges>) -> Result<()> {
    match has.map_or(Privileges::NONE, |has| needed.without(has)) {
        Privileges::NONE => Ok(()),
        missing => Err(table_denied(&session.env, &listed(missing), table)),
    }
}

impl SqlEngine {
    /// The session's account may run this plan for all that is known; false: see [`SqlEngine::authorize`].
    #[inline]
    pub(crate) fn is_granted(&self, session: &Session, needs: &Needs) -> bool {
        let (Some(store), Some(me)) = (&self.store, &session.env.me) else { return true };
        let accounts = &store.accounts;
        needs.list.is_empty()
            || me.is_sure
                && needs.granted.get() == (me.generation, me.number)
                && me.generation == accounts.generation()
                && accounts.is_fresh()
    }

    /// Compares what a plan needs with what the account has.
    ///
    /// # Errors
    /// 1142, 1356, 1449.
    pub(crate) async fn authorize(&self, session: &mut Session, needs: &Needs) -> Result<()> {
        if needs.list.is_empty() {
            return Ok(());
        }
        let Some(me) = self.identity(session).await? else { return Ok(()) };
        check_needs(&session.env, &me, &needs.list, needs.locks)?;
        needs.granted.set((me.generation, me.number));
        Ok(())
    }

    /// As [`SqlEngine::authorize`]. Where the cluster does not answer, an open transaction ends, as with any statement that does not reach it.
    ///
    /// # Errors
    /// As there; 1213.
    pub(crate) async fn authorize_in_transaction(&self, session: &mut Session, needs: &Needs) -> Result<()> {
        let e = match self.authorize(session, needs).await {
            Err(e) if !matches!(e.errno, 1045 | 1142 | 1143 | 1356 | 1449) => e,
            done => return done,
        };
        if !session.transaction.as_ref().is_some_and(|t| t.is_started()) {
            return Err(e);
        }
        self.end_transaction(session, false).await?;
        Err(errors::from_code(ErrorCode::TransactionAborted, ""))
    }

    /// Before a statement is planned: names that do not exist for the account are refused by what it is now. Where that cannot be learned, a statement that needs a privilege is refused when it is run.
    pub(crate) async fn learn_identity(&self, session: &mut Session) {
        let Some(store) = &self.store else { return };
        let is_known = |generation: u64| store.accounts.is_fresh() && generation == store.accounts.generation();
        if session.env.me.as_ref().is_some_and(|me| !is_known(me.generation)) {
            let _ = Box::pin(self.identity(session)).await;
        }
    }

    /// Who the session acts for, as of now; `None`: nobody is refused anything.
    ///
    /// # Errors
    /// The cluster does not answer; 1045: the account is not the one that the session has logged in by.
    pub(crate) async fn identity(&self, session: &mut Session) -> Result<Option<Identity>> {
        let (Some(store), Some(me)) = (&self.store, &mut session.env.me) else { return Ok(None) };
        if !store.accounts.is_fresh() {
            store.look().await?;
        }
        let generation = store.accounts.generation();
        if me.generation != generation {
            let directory = store.accounts.current();
            let now = directory.find(&me.account.name).cloned();
            let is_as_it_was = now.as_ref().is_some_and(|now| now.auth == me.account.auth && !now.is_locked);
            if !me.is_sure && !is_as_it_was {
                let text = format!("Access denied for user {} (using password: YES)", me.account.name.quoted());
                return Err(SqlError::new(1045, b"28000", text));
            }
            let gone = || Arc::new(Account::new(me.account.name.clone(), me.account.auth.clone()));
            me.account = now.unwrap_or_else(gone);
            (me.directory, me.generation) = (directory, generation);
            me.act(&self.next_rights);
        }
        me.is_sure = true;
        Ok(Some(me.clone()))
    }

    /// SET ROLE.
    ///
    /// # Errors
    /// 3530: a role that the account has not been granted.
    pub(crate) async fn set_role(&self, session: &mut Session, active: Active) -> Result<()> {
        self.identity(session).await?;
        let Some(me) = &mut session.env.me else { return Err(errors::not_supported("accounts")) };
        if let Active::These(roles) | Active::AllBut(roles) = &active
            && let Some(role) = roles.iter().find(|role| !me.account.roles.contains_key(role))
        {
            return Err(errors::role_not_granted(&role.in_backticks(), &me.account.name.in_backticks()));
        }
        me.active = active;
        me.act(&self.next_rights);
        Ok(())
    }

    /// # Errors
    /// 1227 unless the account has one of these privileges; `names` lists them.
    pub(crate) async fn require(&self, session: &mut Session, one_of: Privileges, names: &str) -> Result<()> {
        match self.identity(session).await? {
            Some(me) if !me.rights.global.intersects(one_of) => Err(privilege_missing(names)),
            _ => Ok(()),
        }
    }

    /// # Errors
    /// 1044 unless the account has this privilege on the database.
    pub(crate) async fn require_on_database(
        &self,
        session: &mut Session,
        database: &str,
        needed: Privileges,
    ) -> Result<()> {
        match self.identity(session).await? {
            Some(me) if !me.rights.on_database(database).contains(needed) => {
                Err(database_denied(&session.env, database))
            }
            _ => Ok(()),
        }
    }

    /// # Errors
    /// 1142 unless the account has these privileges on the table.
    pub(crate) async fn require_on_table(
        &self,
        session: &mut Session,
        (database, table): (&str, &str),
        needed: Privileges,
    ) -> Result<()> {
        let me = self.identity(session).await?;
        require(session, table, needed, me.map(|me| me.rights.on_table(database, table)))
    }

    /// # Errors
    /// 1142 unless the account has these privileges on the table, or on some column of it.
    pub(crate) async fn require_on_columns(
        &self,
        session: &mut Session,
        (database, table): (&str, &str),
        needed: Privileges,
    ) -> Result<()> {
        let me = self.identity(session).await?;
        require(session, table, needed, me.map(|me| me.rights.on_some_column(database, table)))
    }

    /// # Errors
    /// 1142 unless the account has some privilege on the whole table.
    pub(crate) async fn require_definition(&self, session: &mut Session, schema: &TableSchema) -> Result<()> {
        let Some(me) = self.identity(session).await? else { return Ok(()) };
        let has = me.rights.on_table(&schema.database, &schema.name);
        match schema.database == crate::catalog::information_schema::DATABASE || has != Privileges::NONE {
            true => Ok(()),
            false => Err(table_denied(&session.env, "SHOW", &schema.name)),
        }
    }

    /// # Errors
    /// 1142 unless the table exists for the account; `command` is what is denied.
    pub(crate) async fn require_sight(
        &self,
        session: &mut Session,
        (database, table): (&str, &str),
        command: &str,
    ) -> Result<()> {
        match self.identity(session).await? {
            Some(me)
                if database != crate::catalog::information_schema::DATABASE
                    && !me.rights.sees_table(database, table) =>
            {
                Err(table_denied(&session.env, command, table))
            }
            _ => Ok(()),
        }
    }

    /// # Errors
    /// 1044 unless the database exists for the account.
    pub(crate) async fn require_database(&self, session: &mut Session, database: &str) -> Result<()> {
        match self.identity(session).await? {
            Some(me)
                if !database.eq_ignore_ascii_case(crate::catalog::information_schema::DATABASE)
                    && !me.rights.sees_database(database) =>
            {
                Err(database_denied(&session.env, database))
            }
            _ => Ok(()),
        }
    }

    /// # Errors
    /// 1227 where another account is named as the definer than the session's, and it may not do that, or not of one that there is not.
    pub(crate) async fn check_definer(&self, session: &mut Session, definer: Option<&(String, String)>) -> Result<()> {
        let any = Privileges::SET_ANY_DEFINER.union(Privileges::SUPER);
        match (definer, self.identity(session).await?) {
            (Some((user, host)), Some(me))
                if me.account.name != AccountName::new(user, host) && !me.rights.global.intersects(any) =>
            {
                Err(privilege_missing("SUPER or SET_ANY_DEFINER"))
            }
            (Some((user, host)), Some(me))
                if !me.has_account(user, host) && !me.rights.global.contains(Privileges::SUPER) =>
            {
                Err(privilege_missing("SUPER or ALLOW_NONEXISTENT_DEFINER"))
            }
            _ => Ok(()),
        }
    }

    /// Whether a definition statement may be carried out.
    ///
    /// # Errors
    /// 1044, 1142, 1227.
    pub(crate) async fn authorize_definition(&self, session: &mut Session, ddl: &Ddl) -> Result<()> {
        use Privileges as P;
        let full = |session: &Session, name: &Name| -> Result<(String, String)> {
            let database = name.0.clone().or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
            Ok((database, name.1.clone()))
        };
        let mut wanted: Vec<(&Name, P)> = Vec::new();
        // What foreign keys refer to, in the database of their table where they name none.
        let parents: Vec<Name> = match ddl {
            Ddl::CreateTable { name, foreign_keys, .. } => clause::parents(name, foreign_keys),
            Ddl::Alter(alter) => clause::parents(&alter.table, &alter.foreign_keys),
            _ => Vec::new(),
        };
        // Names that are taken; a table needs CREATE for its own.
        let mut made: Vec<(&Name, P)> = Vec::new();
        match ddl {
            Ddl::CreateDatabase { name, .. } => return self.require_on_database(session, name, P::CREATE).await,
            Ddl::AlterDatabase { name, .. } => {
                let name = name.clone().or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
                return self.require_on_database(session, &name, P::ALTER).await;
            }
            Ddl::DropDatabase { name, .. } => return self.require_on_database(session, name, P::DROP).await,
            // What these need is asked where they are carried out.
            Ddl::CreateTemporary(_) | Ddl::DropTemporary { .. } => {}
            Ddl::CreateTable { name, .. } => made.push((name, P::CREATE)),
            Ddl::CreateTableLike { name, like, .. } => {
                made.push((name, P::CREATE));
                let is_own = session.temporary.find_named(session.env.database.as_deref(), like).is_some();
                wanted.extend((!is_own).then_some((like, P::SELECT)));
            }
            Ddl::CreateTableSelect(clause) => {
                made.push((&clause.name, P::CREATE.union(P::INSERT)));
            }
            Ddl::DropTables { names, .. } | Ddl::DropViews { names, .. } => {
                wanted.extend(names.iter().map(|name| (name, P::DROP)));
            }
            Ddl::Truncate(name) => wanted.push((name, P::DROP)),
            Ddl::CreateView(view) => {
                made.push((&view.name, view.needed()));
                self.check_definer(session, view.definer()).await?;
            }
            Ddl::Rename(list) => {
                for (from, to) in list {
                    wanted.push((from, P::ALTER.union(P::DROP)));
                    made.push((to, P::CREATE.union(P::INSERT)));
                }
            }
            Ddl::RenameTable(from, to) => {
                wanted.push((from, P::ALTER.union(P::DROP)));
                made.push((to, P::CREATE.union(P::INSERT)));
            }
            Ddl::AddIndexes { table, .. } => wanted.push((table, P::INDEX)),
            Ddl::Alter(clause) => wanted.push((&clause.table, P::ALTER)),
        }
        for (name, _) in &made {
            if full(session, name)?.0 == SYSTEM_DATABASE {
                return Err(database_denied(&session.env, SYSTEM_DATABASE));
            }
        }
        let parents = parents.iter().map(|name| (name, P::REFERENCES));
        for (name, needed) in wanted.into_iter().chain(made).chain(parents) {
            let (database, table) = full(session, name)?;
            self.require_on_table(session, (&database, &table), needed).await?;
        }
        Ok(())
    }
}
