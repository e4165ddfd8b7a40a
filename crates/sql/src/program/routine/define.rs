//! CREATE, ALTER and DROP of routines, CALL, and the statements of bodies that stand alone: SIGNAL, RESIGNAL, GET DIAGNOSTICS.

use std::rc::Rc;

use apus_signal::{
    dict::{Change as Sent, TableName},
    schema::TableMessage,
};
use apus_types::ErrorCode;

use super::{
    DEFINITION_BYTES_MAX, Definition, Kind, Routine,
    clause::{Change, Clause, Made, To, may_begin},
    code::{Program, Step, Target},
    compile::Compiler,
    failures, kept_as, key, number,
    run::frame::Frame,
    table,
};
use crate::{
    accounts::Privileges,
    errors::{self, Result},
    parse::{
        digest::Syntax,
        token::{Name, Token, Tokens},
    },
    plan::bind,
    server::Output,
    session::{self, Session, engine::SqlEngine},
    value::{datum::Datum, zone::clock},
};

/// Longest name in characters.
const NAME_CHARS_MAX: usize = 64;

impl SqlEngine {
    /// CREATE of a routine, trigger or event, or ALTER of an event, at the beginning of a text, and the length of what was read of it; `None`: another statement.
    ///
    /// # Errors
    /// As [`Made::parse`].
    pub(crate) fn statement_with_body(&self, session: &Session, sql: &[u8]) -> Result<Option<(Made, usize)>> {
        if !may_begin(sql) {
            return Ok(None);
        }
        match std::str::from_utf8(sql) {
            Ok(text) => Made::parse(text, session.env.variables.syntax, Default::default()),
            Err(_) => Ok(None),
        }
    }

    /// Runs such a statement as a statement of a client.
    pub(crate) async fn make_with_body(&self, session: &mut Session, made: &Made, out: &mut Output<'_>) -> Result<()> {
        self.begin_statement(session)?;
        self.admit(session, b"create")?;
        let start = out.mark();
        session.clear_warnings();
        let done = self.carry_out(session, made).await.and_then(|()| session::ok(session, out));
        self.end_statement(session, done, start, out).await
    }

    pub(crate) async fn carry_out(&self, session: &mut Session, made: &Made) -> Result<()> {
        match made {
            Made::Routine(clause) => self.create_routine(session, clause).await,
            Made::Trigger(clause) => self.create_trigger(session, clause).await,
            Made::Event(clause) => self.create_event(session, clause).await,
            Made::EventChange(clause) => self.alter_event(session, clause).await,
        }
    }

    async fn create_routine(&self, session: &mut Session, clause: &Clause) -> Result<()> {
        let kind = clause.kind;
        let (database, name) = full(session, &clause.name)?;
        if name.chars().count() > NAME_CHARS_MAX {
            return Err(failures::too_long(&name));
        }
        self.require_on_database(session, &database, Privileges::CREATE_ROUTINE).await?;
        self.check_definer(session, clause.definer.as_ref()).await?;
        session.check_no_locked_tables()?;
        self.end_transaction(session, true).await?;
        session.check_may_define()?;
        self.wait_to_define(session).await?;
        let catalog = self.fetch_catalog().await?;
        if database == crate::catalog::information_schema::DATABASE {
            return Err(errors::virtual_table_write(&database));
        }
        let Some(collation) = catalog.databases.get(&database) else { return Err(errors::unknown_database(&database)) };
        let definition = definition(session, clause, name.clone(), collation.name())?;
        if kind == Kind::Function && bind::function::is_native(&name) {
            let e = failures::native_name(&name);
            session.warn("Note", e.errno, e.message);
        }
        let exists = failures::exists(kind.name(), &name);
        let sent = match catalog.routine(kind, &database, &name) {
            Some(_) => Some(ErrorCode::TableExists),
            None => {
                let table = table(&database, &kept_as(kind, &name, 0), &definition);
                self.change(Sent::CreateTable(TableMessage::from(&table))).await?
            }
        };
        match sent {
            None => {}
            Some(ErrorCode::TableExists) if clause.if_not_exists => session.warn("Note", exists.errno, exists.message),
            Some(ErrorCode::TableExists) => return Err(exists),
            Some(ErrorCode::DatabaseNotFound) => return Err(errors::unknown_database(&database)),
            Some(code) => return Err(errors::from_code(code, &name)),
        }
        self.fetch_catalog().await?;
        if sent.is_none() {
            self.grant_own(session, key(kind, &database, &name)).await?;
        }
        Ok(())
    }

    /// Carries out ALTER or DROP of a routine.
    pub(crate) async fn change_routine(&self, session: &mut Session, change: Change) -> Result<()> {
        session.check_no_locked_tables()?;
        let Change { kind, name, to } = change;
        let (database, name) = full(session, &name)?;
        let key = key(kind, &database, &name);
        let found = self.fetch_catalog().await?.routine(kind, &database, &name).cloned();
        let Some(routine) = found else {
            let e = errors::unknown_routine(kind.name(), &format!("{database}.{name}"));
            let needed = Privileges::ALTER_ROUTINE;
            self.require_for_unknown(session, kind, (&database, &name), needed, "alter routine").await?;
            self.end_transaction(session, true).await?;
            if !matches!(to, To::Dropped { if_exists: true }) {
                return Err(e);
            }
            session.warn("Note", e.errno, e.message);
            return Ok(());
        };
        self.require_on_routine(session, &routine, Privileges::ALTER_ROUTINE, "alter routine").await?;
        self.require_rank(session, &routine.definition.definer).await?;
        self.end_transaction(session, true).await?;
        session.check_may_define()?;
        self.wait_to_define(session).await?;
        let drops = matches!(to, To::Dropped { .. });
        if let To::Altered(new) = to {
            let mut definition = routine.definition.clone();
            definition.modified = clock();
            new.comment.into_iter().for_each(|comment| definition.comment = comment);
            new.access.into_iter().for_each(|access| definition.access = access);
            new.invoker.into_iter().for_each(|invoker| definition.invoker = invoker);
            let number = number(&routine.kept_as).unwrap_or(0);
            let table = table(&database, &kept_as(kind, &name, number + 1), &definition);
            if let Some(code) = self.change(Sent::CreateTable(TableMessage::from(&table))).await? {
                return Err(errors::from_code(code, &name));
            }
        }
        for kept_as in routine.all_kept_as() {
            let dropped = TableName { database: database.clone(), table: kept_as.clone(), version: 0 };
            match self.change(Sent::DropTable(dropped)).await? {
                None | Some(ErrorCode::TableNotFound) => {}
                Some(code) => return Err(errors::from_code(code, &name)),
            }
        }
        if drops {
            self.revoke_gone(&key).await?;
        }
        self.fetch_catalog().await.map(|_| ())
    }

    /// # Errors
    /// 1046, 1305.
    pub(crate) async fn routine_named(&self, session: &Session, kind: Kind, name: &Name) -> Result<Rc<Routine>> {
        let (database, name) = full(session, name)?;
        let unknown = errors::unknown_routine(kind.name(), &format!("{database}.{name}"));
        let mut catalog = self.catalog().await?;
        if catalog.routine(kind, &database, &name).is_none() && Box::pin(self.has_news(&unknown)).await {
            catalog = self.catalog().await?;
        }
        catalog.routine(kind, &database, &name).cloned().ok_or(unknown)
    }

    /// The procedure of this name, which the session may call.
    ///
    /// # Errors
    /// 1046, 1305, 1370.
    pub(crate) async fn callable(
        &self,
        session: &mut Session,
        database: Option<&str>,
        name: &str,
    ) -> Result<Rc<Routine>> {
        let name = (database.map(str::to_owned), name.to_owned());
        let kind = Kind::Procedure;
        let found = match self.routine_named(session, kind, &name).await {
            Ok(found) => found,
            Err(unknown) => {
                let (database, name) = full(session, &name)?;
                self.require_for_unknown(session, kind, (&database, &name), Privileges::EXECUTE, "execute").await?;
                return Err(unknown);
            }
        };
        self.require_on_routine(session, &found, Privileges::EXECUTE, "execute").await?;
        Ok(found)
    }

    /// Whoever may not do it does not learn that there is no procedure of this name.
    async fn require_for_unknown(
        &self,
        session: &mut Session,
        kind: Kind,
        (database, name): (&str, &str),
        needed: Privileges,
        command: &str,
    ) -> Result<()> {
        match self.identity(session).await? {
            Some(me) if !me.rights.on_routine(kind, database, name).contains(needed) => {
                let name = format!("{database}.{name}");
                Err(failures::denied(command, &session.env.user, &session.env.host, &name))
            }
            _ => Ok(()),
        }
    }

    pub(crate) async fn require_on_routine(
        &self,
        session: &mut Session,
        routine: &Routine,
        needed: Privileges,
        command: &str,
    ) -> Result<()> {
        let Some(me) = self.identity(session).await? else { return Ok(()) };
        let definition = &routine.definition;
        if me.rights.on_routine(definition.kind, &routine.database, &definition.name).contains(needed) {
            return Ok(());
        }
        Err(failures::denied(command, &session.env.user, &session.env.host, &routine.full_name()))
    }

    /// A statement of a body that stands alone; `false`: it is none. `params`: of a prepared one.
    pub(crate) async fn statement_of_bodies(
        &self,
        session: &mut Session,
        text: &str,
        params: &[Datum<'_>],
        out: &mut Output<'_>,
    ) -> Result<bool> {
        let t = Tokens::new(text);
        let calls = t.peek_word("call");
        let reads = t.peek_word("get") && (1..3).any(|at| is_word(t.ahead(at), "diagnostics"));
        if !calls && !reads && !t.peek_word("signal") && !t.peek_word("resignal") {
            return Ok(false);
        }
        let program = Rc::new(alone(text, params.len(), session.given_out.is_some())?);
        if calls {
            session.clear_warnings();
        }
        let told = session.warnings_given();
        let mut frame = Frame::new(program, String::new());
        frame.take_arguments(session, params.iter().map(|value| value.borrowed().into_owned()).collect())?;
        Box::pin(self.run_program(session, &mut frame, out)).await?;
        if let Some(given_out) = &mut session.given_out {
            given_out.extend(frame.given_out());
        }
        let affected = if calls { u64::try_from(session.env.row_count).unwrap_or(0) } else { 0 };
        session.env.row_count = affected as i64;
        out.set_status(session.status());
        session.tell_changes(out);
        // GET DIAGNOSTICS leaves what it tells of.
        let warnings = if reads { u16::from(session.warnings_given() > told) } else { session.warning_count() };
        out.ok(affected, 0, warnings, "");
        Ok(true)
    }
}

fn is_word(token: Option<&Token>, word: &str) -> bool {
    matches!(token, Some(Token::Word(w)) if w.eq_ignore_ascii_case(word))
}

/// The program of one statement, in which `?1` and so on are variables. `takes`: somebody takes what is given out in their place.
fn alone(text: &str, parameters: usize, takes: bool) -> Result<Program> {
    // `?1` is two tokens.
    let t = Tokens::new(text);
    let is_mark = |at: Option<usize>| at.and_then(|at| t.ahead(at)) == Some(&Token::Symbol('?'));
    let named = t.with_replaced(|at, token| match token {
        Token::Symbol('?') => Some(String::new()),
        Token::Number(number) if is_mark(at.checked_sub(1)) => Some(format!("`?{number}`")),
        _ => None,
    });
    let mut t = Tokens::new(&named);
    let mut compiler = Compiler::new(&mut t, Syntax::default(), Default::default());
    compiler.unnamed((1..=parameters).map(|number| format!("?{number}")))?;
    let mut program = compiler.body()?;
    t.end()?;
    for step in program.steps.iter_mut().filter(|_| !takes) {
        if let Step::Call { arguments, .. } = step {
            let is_parameter = |target: &Target| matches!(target, Target::Variable(_));
            arguments
                .iter_mut()
                .for_each(|argument| argument.target = argument.target.take().filter(|t| !is_parameter(t)));
        }
    }
    Ok(program)
}

pub(crate) fn full(session: &Session, name: &Name) -> Result<(String, String)> {
    let database = name.0.clone().or_else(|| session.env.database.clone()).ok_or_else(errors::no_database)?;
    Ok((database, name.1.clone()))
}

fn definition(session: &mut Session, clause: &Clause, name: String, of_database: &str) -> Result<Definition> {
    let variable = |name: &str| {
        let value = session.env.variables.get(name, false)?;
        Ok::<String, crate::wire::SqlError>(String::from_utf8_lossy(&value.as_text()).into_owned())
    };
    let now = clock();
    let characteristics = &clause.characteristics;
    let definition = Definition {
        kind: clause.kind,
        name,
        definer: clause.definer.clone().unwrap_or_else(|| session.env.definer()),
        invoker: characteristics.invoker.unwrap_or(false),
        deterministic: characteristics.deterministic.unwrap_or(false),
        access: characteristics.access.unwrap_or_default(),
        comment: characteristics.comment.clone().unwrap_or_default(),
        sql_mode: variable("sql_mode")?,
        charset: variable("character_set_client")?,
        collation: variable("collation_connection")?,
        database_collation: of_database.to_owned(),
        created: now,
        modified: now,
        parameters: clause.parameters.clone(),
        returns: clause.returns.clone(),
        body: clause.body.clone(),
    };
    if definition.encode().len() > DEFINITION_BYTES_MAX {
        return Err(failures::too_much());
    }
    if let Some((user, host)) = clause.definer.as_ref()
        && session.env.me.as_ref().is_some_and(|me| !me.has_account(user, host))
    {
        let e = errors::no_such_definer(user, host);
        session.warn("Note", e.errno, e.message);
    }
    Ok(definition)
}
