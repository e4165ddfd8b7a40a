//! Statements that are no queries: each goes to the room that carries it out. USE, DO and what is accepted without effect is done here.

mod maintenance;
mod transactions;

use crate::{
    accounts::Privileges,
    admin::{
        account::random,
        set::{self, split_assignments},
        table_locks, unsupported,
    },
    ddl::statement,
    errors::{self, Result},
    exec::{self, next_savepoint},
    monitor::status::Counter,
    parse::{
        account,
        digest::{Form, Syntax},
        token::Tokens,
    },
    plan::text::plan_text,
    program::{event, routine, trigger},
    server::{Engine, Output},
    session::{Session, buffers::Scratch, characteristics::access_mode, engine::SqlEngine, ok, ok_with},
    value::datum::Datum,
};
use apus_types::collate::Collation;

impl SqlEngine {
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
            self.end_by_statement(session, commit).await?;
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
            if t.at_end() {
                return Err(t.error());
            }
            let id = set::value_of(session, &t.slice(t.offset(), None))?;
            // Of longer numbers MySQL takes 32 bits, too.
            let id = id.number().map_or(0, |id| id.to_i128() as u32);
            self.identity(session).await?;
            Box::pin(self.kill_connection(session, id, query)).await?;
            session.env.may_go_on()?;
        } else if t.peek_word("analyze") || t.peek_word("optimize") || t.peek_word("check") || t.peek_word("repair") {
            return self.maintain(session, &mut t, out).await;
        } else {
            return Err(t.error());
        }
        ok(session, out)
    }

    /// DO: a SELECT without a table whose values nobody sees. However long they are, whether they are NULL is short.
    async fn evaluate_for_effects(&self, session: &mut Session, text: &str, out: &mut Output<'_>) -> Result<()> {
        let catalog = self.catalog_of(session).await?;
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
}
