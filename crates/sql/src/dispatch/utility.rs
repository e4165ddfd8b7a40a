//! Transaction control, USE, SHOW and the statements that are accepted without effect.

use crate::{
    accounts::Privileges,
    admin::{account::random, set::split_assignments, table_locks, unsupported},
    ddl::{histogram::clause, statement},
    errors::{self, Result},
    exec::{self, next_savepoint},
    monitor::status::Counter,
    parse::{
        account,
        digest::{Form, Syntax},
        token::{Name, Tokens},
        view_text::quoted,
    },
    plan::text::plan_text,
    program::{event, routine, trigger},
    server::{Engine, Output},
    session::{
        self, Scratch, Session, authorize::database_denied, characteristics::access_mode, engine::SqlEngine, ok,
        ok_with,
    },
    value::datum::Datum,
    variables::Isolation,
    wire::SqlError,
};
use apus_types::collate::Collation;

impl SqlEngine {
    /// Runs the plain forms of BEGIN, COMMIT and ROLLBACK, which come with every transaction; `false`: it is none of them.
    pub(crate) async fn transaction_control(
        &self,
        session: &mut Session,
        text: &[u8],
        out: &mut Output<'_>,
    ) -> Result<bool> {
        let is = |word: &str| text.eq_ignore_ascii_case(word.as_bytes());
        let begins = is("begin") || is("start transaction");
        if !begins && !is("commit") && !is("rollback") {
            return Ok(false);
        }
        session.clear_warnings();
        session.check_no_branch()?;
        let ended = if is("commit") { Counter::Commit } else { Counter::Rollback };
        self.count(session, if begins { Counter::Begin } else { ended });
        match begins {
            true => self.begin(session, None).await?,
            false => {
                self.end_transaction(session, is("commit")).await?;
                session.forget_next();
            }
        }
        ok(session, out)?;
        Ok(true)
    }

    /// Runs a statement that is no query; `params`: of a prepared one.
    pub(crate) async fn other_statement(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        text: &str,
        params: &[Datum<'_>],
        out: &mut Output<'_>,
    ) -> Result<()> {
        let mut t = Tokens::new(text);
        self.count_other(session, &t);
        if t.peek_word("show") || t.peek_word("describe") || t.peek_word("desc") || t.peek_word("explain") {
            return self.show(session, &mut t, text, out).await;
        }
        if t.peek_word("execute") {
            t.skip();
            return self.execute_named(session, s, &mut t, out).await;
        }
        if self.statement_of_bodies(session, text, params, out).await? {
            return Ok(());
        }
        session.clear_warnings();
        if let Some(change) = routine::clause::Change::parse(&mut t)? {
            Box::pin(self.change_routine(session, change)).await?;
            return ok(session, out);
        }
        if let Some(drop) = trigger::clause::Drop::parse(&mut t)? {
            Box::pin(self.drop_trigger(session, &drop)).await?;
            return ok(session, out);
        }
        if t.peek_word("drop") && t.second_word("prepare") || t.peek_word("deallocate") {
            t.skip();
            t.expect("prepare")?;
            self.deallocate_named(session, &mut t)?;
            session.note_state();
            return ok(session, out);
        }
        if t.peek_word("load") {
            return Box::pin(self.load_data(session, s, text, out)).await;
        }
        if let Some(clause) = account::parse(&mut t)? {
            let made = Box::pin(self.change_accounts(session, clause)).await?;
            if !made.is_empty() {
                random::answer(session, out, &made);
                return Ok(());
            }
            return ok(session, out);
        }
        if let Some(change) = event::clause::Change::parse(&mut t)? {
            Box::pin(self.change_event(session, &change)).await?;
            return ok(session, out);
        }
        if t.peek_word("reset") && t.second_word("persist") {
            let _ = t.word("reset") && t.word("persist");
            Box::pin(self.reset_persist(session, &mut t)).await?;
            return ok(session, out);
        }
        if t.word("xa") {
            return Box::pin(self.xa(session, &mut t, out)).await;
        }
        unsupported::refuse(&t)?;
        let default = self.inherited(session, text).await?;
        if let Some(definition) = statement::parse(&mut t, text, default)? {
            let done = self.define(session, s, definition).await?;
            let mut info = String::new();
            done.info.write(session.warnings_given(), &mut info);
            session.env.row_count = done.affected as i64;
            out.set_status(session.status());
            session.tell_changes(out);
            out.ok(done.affected, done.last_insert_id, session.warning_count(), &info);
            return Ok(());
        }
        if t.word("use") {
            let name = t.identifier()?;
            t.end()?;
            self.init_db(session, &name).await?;
        } else if t.word("begin") {
            t.word("work");
            t.end()?;
            self.count(session, Counter::Begin);
            self.begin(session, None).await?;
        } else if t.word("start") {
            t.expect("transaction")?;
            let (mut mode, mut consistent) = (None, false);
            while !t.at_end() {
                if t.word("with") {
                    t.expect("consistent")?;
                    t.expect("snapshot")?;
                    consistent = true;
                } else if mode.is_none() && t.peek_word("read") {
                    mode = access_mode(&mut t)?;
                }
                if !t.symbol(',') {
                    break;
                }
            }
            t.end()?;
            self.count(session, Counter::Begin);
            self.begin(session, mode).await?;
            if consistent {
                self.begin_at_snapshot(session).await?;
            }
        } else if t.word("commit") || t.peek_word("rollback") {
            let commit = !t.word("rollback");
            t.word("work");
            if t.word("to") {
                t.word("savepoint");
                let name = t.identifier()?;
                t.end()?;
                self.rollback_to(session, &name).await?;
                return ok(session, out);
            }
            let chain = t.word("and") && {
                let no = t.word("no");
                t.expect("chain")?;
                !no
            };
            if t.word("no") {
                t.expect("release")?;
            } else if t.word("release") {
                return Err(errors::not_supported("RELEASE of a session with its transaction"));
            }
            t.end()?;
            session.check_no_branch()?;
            self.count(session, if commit { Counter::Commit } else { Counter::Rollback });
            let mode = Some(session.is_read_only()).filter(|_| session.in_transaction());
            self.end_transaction(session, commit).await?;
            session.forget_next();
            if chain {
                self.begin(session, mode).await?;
            }
        } else if t.word("savepoint") {
            let name = t.identifier()?;
            t.end()?;
            if session.in_transaction() {
                if session.own.has_waiting() {
                    exec::send_waiting(session).await?;
                }
                let at = next_savepoint(session);
                session.named.retain(|(n, _)| !n.eq_ignore_ascii_case(&name));
                session.named.push((name, at));
            }
        } else if t.word("release") {
            t.expect("savepoint")?;
            let name = t.identifier()?;
            t.end()?;
            let at = session.named.iter().position(|(n, _)| n.eq_ignore_ascii_case(&name));
            session.named.truncate(at.ok_or_else(|| errors::unknown_savepoint(&name))?);
        } else if t.word("prepare") {
            self.prepare_named(session, &mut t).await?;
            session.note_state();
            return ok_with(session, out, "Statement prepared");
        } else if t.word("set") {
            self.count(session, Counter::SetOption);
            self.set(session, text, out).await?;
        } else if t.word("unlock") {
            Box::pin(self.unlock_tables(session, &mut t)).await?;
        } else if t.word("lock") {
            Box::pin(self.lock_tables(session, &mut t)).await?;
        } else if t.word("do") {
            self.evaluate_for_effects(session, text, out).await?;
        } else if t.word("flush") {
            self.require(session, Privileges::RELOAD, "RELOAD").await?;
            let flushed = table_locks::flush(&mut t)?;
            if let Some(tables) = &flushed.tables {
                self.count(session, Counter::Flush);
                Box::pin(self.flush_tables(session, tables)).await?;
            }
            if let Some(store) = &self.store {
                if flushed.privileges {
                    store.accounts.usages().forget_failures();
                }
                if flushed.user_resources {
                    store.accounts.usages().forget_used();
                }
            }
        } else if t.word("kill") {
            let query = !t.word("connection") && t.word("query");
            let id = t.number()?.parse::<u32>().unwrap_or(0);
            t.end()?;
            self.identity(session).await?;
            self.check_kill(session, id)?;
            let registry = &session.info.registry;
            if !(if query { registry.kill_query(id) } else { registry.kill(id) }) {
                return Err(SqlError::new(1094, b"HY000", format!("Unknown thread id: {id}")));
            }
        } else if t.peek_word("analyze") || t.peek_word("optimize") || t.peek_word("check") || t.peek_word("repair") {
            return self.maintain(session, &mut t, out).await;
        } else {
            return Err(t.error());
        }
        ok(session, out)
    }

    /// DO: a SELECT without a table whose values nobody sees. However long they are, whether they are NULL is short.
    async fn evaluate_for_effects(&self, session: &mut Session, text: &str, out: &mut Output<'_>) -> Result<()> {
        let catalog = self.catalog().await?;
        let select = format!("SELECT{}", text.get(2..).unwrap_or(""));
        let crate::plan::Plan::Select(plan) = plan_text(&catalog, &session.env, &select, Vec::new())? else {
            return Err(errors::syntax(text));
        };
        if plan.table.is_some() {
            return Err(errors::syntax(text));
        }
        let short: Vec<String> =
            split_assignments(text.get(2..).unwrap_or("")).iter().map(|e| format!("({e}) IS NULL")).collect();
        self.run_unseen(session, &format!("SELECT {}", short.join(", ")), out).await
    }

    /// Runs a query of one short row, or of none, whose answer nobody sees.
    pub(crate) async fn run_unseen(&self, session: &mut Session, text: &str, out: &mut Output<'_>) -> Result<()> {
        let (start, mut s) = (out.mark(), Scratch::default());
        s.digest.scan(text.as_bytes(), Form::Digest, Syntax::default())?;
        Box::pin(self.statement_with(session, &mut s, text.as_bytes(), out)).await?;
        assert!(out.take_back(start), "a short row was sent before its statement had ended");
        Ok(())
    }

    /// `read_only`: as the statement says, if it does.
    pub(crate) async fn begin(&self, session: &mut Session, read_only: Option<bool>) -> Result<()> {
        self.end_transaction(session, true).await?;
        if session.locked.is_some() {
            Box::pin(self.end_table_locks(session)).await;
        }
        session.explicit = true;
        session.read_only = Some(read_only.unwrap_or_else(|| session.is_read_only()));
        session.next_read_only = None;
        Ok(())
    }

    /// WITH CONSISTENT SNAPSHOT: the transaction reads as of now, whatever the isolation level of the session.
    pub(crate) async fn begin_at_snapshot(&self, session: &mut Session) -> Result<()> {
        session.fix_characteristics();
        session.isolation = session.isolation.max(Some(Isolation::RepeatableRead));
        session.tables_known = Some(self.catalog().await?);
        match session.reading_at(&self.client).await {
            Ok(_) => Ok(()),
            Err(fail) => {
                session.forget_transaction();
                Err(fail.into())
            }
        }
    }

    async fn rollback_to(&self, session: &mut Session, name: &str) -> Result<()> {
        let at = session.named.iter().position(|(n, _)| n.eq_ignore_ascii_case(name));
        let at = at.ok_or_else(|| errors::unknown_savepoint(name))?;
        let number = session.named[at].1;
        session.named.truncate(at + 1);
        if session.transaction.as_ref().is_some_and(|t| t.is_started())
            && let Err(e) = session::rollback_to(session, number).await
        {
            if e.aborted {
                session.forget_transaction();
            }
            return Err(errors::from_client(&e));
        }
        Ok(())
    }

    /// The collation of a database or table that this statement makes, if it names none.
    async fn inherited(&self, session: &Session, text: &str) -> Result<Collation> {
        Ok(match statement::Inherits::of(text) {
            None => Collation::default(),
            Some(statement::Inherits::Session) => session.env.variables.of_databases(),
            Some(statement::Inherits::Database(name)) => {
                let name = name.or_else(|| session.env.database.clone());
                let catalog = self.catalog().await?;
                name.and_then(|name| catalog.databases.get(&name).copied()).unwrap_or_default()
            }
        })
    }

    /// ANALYZE measures tables; for the others there is nothing to do.
    async fn maintain(&self, session: &mut Session, t: &mut Tokens, out: &mut Output<'_>) -> Result<()> {
        let verb = t.identifier()?.to_ascii_lowercase();
        let _ = t.word("local") || t.word("no_write_to_binlog");
        t.expect("table")?;
        let at = t.position();
        if verb == "analyze"
            && let Some((tables, clause)) = clause::of_statement(t)?
        {
            return Box::pin(self.analyze_values(session, tables, &clause, out)).await;
        }
        t.rewind(at);
        let mut rows = Vec::new();
        loop {
            let (database, table) = t.name()?;
            let database = database.or_else(|| session.env.database.clone()).unwrap_or_default();
            let mut say = |kind: &str, text: String| {
                let name = format!("{database}.{table}");
                rows.push([name, verb.clone(), kind.to_owned(), text].into_iter().map(Some).collect::<Vec<_>>());
            };
            let needed = match verb.as_str() {
                "check" => Privileges::SELECT,
                _ => Privileges::SELECT.union(Privileges::INSERT),
            };
            self.require_on_table(session, (&database, &table), needed).await?;
            let catalog = self.catalog().await?;
            let failed = match catalog.table(&database, &table) {
                Ok(found) if verb == "analyze" && !crate::catalog::information_schema::is_virtual(&found.schema) => {
                    let gathered = catalog.statistics.gather(&self.client, &found, true).await;
                    match gathered {
                        Ok(()) => Box::pin(self.renew_histograms(session, &found, out)).await.err(),
                        Err(e) => Some(errors::from_client(&e)),
                    }
                }
                Ok(_) => None,
                Err(_) if verb == "check" && catalog.view(&database, &table).is_some() => {
                    let text = format!("SELECT * FROM {}.{}", quoted(&database), quoted(&table));
                    plan_text(&catalog, &session.env, &text, Vec::new()).err()
                }
                Err(e) => Some(e),
            };
            match failed {
                None => say("status", "OK".to_owned()),
                Some(e) => {
                    say("Error", e.message.clone());
                    let is_view = verb == "check" && e.errno == 1356;
                    match is_view {
                        true => say("error", "Corrupt".to_owned()),
                        false => say("status", "Operation failed".to_owned()),
                    }
                }
            }
            if !t.symbol(',') {
                break;
            }
        }
        maintenance_options(&verb, t)?;
        crate::admin::show::table(session, out, &["Table", "Op", "Msg_type", "Msg_text"], &rows);
        Ok(())
    }

    /// ANALYZE TABLE with histograms.
    async fn analyze_values(
        &self,
        session: &mut Session,
        tables: Vec<Name>,
        clause: &clause::Clause,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let default = session.env.database.clone().unwrap_or_default();
        let mut named =
            tables.into_iter().map(|(database, table)| (database.unwrap_or_else(|| default.clone()), table));
        let (database, table) = named.next().unwrap_or_default();
        let others: Vec<_> = named.collect();
        if others.contains(&(database.clone(), table.clone())) {
            return Err(errors::not_unique_table(&table));
        }
        if database.eq_ignore_ascii_case(crate::catalog::information_schema::DATABASE) {
            return Err(database_denied(&session.env, &database));
        }
        self.require_on_table(session, (&database, &table), Privileges::SELECT.union(Privileges::INSERT)).await?;
        self.end_transaction(session, true).await?;
        let (name, said) = if others.is_empty() {
            let said = self.change_histograms(session, (&database, &table), clause, out).await?;
            (format!("{database}.{table}"), said)
        } else {
            let text = "Only one table can be specified while modifying histogram statistics.";
            (String::new(), vec![("Error", text.to_owned())])
        };
        let row = |(kind, text): (&str, String)| {
            [name.clone(), "histogram".to_owned(), kind.to_owned(), text].map(Some).to_vec()
        };
        let rows: Vec<_> = said.into_iter().map(row).collect();
        crate::admin::show::table(session, out, &["Table", "Op", "Msg_type", "Msg_text"], &rows);
        Ok(())
    }
}

/// Behind the tables of ANALYZE, CHECK, OPTIMIZE and REPAIR: how thorough it is to be, which makes no difference here.
fn maintenance_options(verb: &str, t: &mut Tokens) -> Result<()> {
    let known: &[&str] = match verb {
        "check" => &["quick", "fast", "medium", "extended", "changed"],
        "repair" => &["quick", "extended", "use_frm"],
        _ => &[],
    };
    while !t.at_end() {
        if verb == "check" && t.word("for") {
            t.expect("upgrade")?;
        } else if !known.iter().any(|option| t.word(option)) {
            return Err(t.error());
        }
    }
    Ok(())
}
