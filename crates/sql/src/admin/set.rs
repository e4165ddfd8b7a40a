//! SET: all its values are evaluated, and all assignments looked at, before the first is in force. So a statement that is refused has changed nothing, and no value
//! sees what another assignment of its statement sets, as in MySQL.

use apus_types::collate::Collation;

use crate::{
    accounts::Privileges,
    errors::{self, Result},
    expr::{Context, Expr},
    parse::{
        charset::{self, client_named, collation_named},
        token::{Token, Tokens},
    },
    plan::{self, bind::Builder},
    program::routine::code,
    server::Output,
    session::{
        Session,
        characteristics::{ISOLATION, Of, READ_ONLY, is_transaction},
        engine::SqlEngine,
        tracking,
    },
    value::datum::Datum,
    variables::check_name,
};

/// What is to be set, its value known.
enum Assignment {
    /// SET NAMES.
    Names(Collation),
    /// SET CHARACTER SET: of the client, and of the connection.
    Characters(Collation, Collation),
    User(String, Datum<'static>),
    /// `None`: DEFAULT.
    System(Scope, String, Option<Datum<'static>>),
}

/// Whose value of a variable is set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Session,
    /// `@@transaction_isolation` without a scope.
    Next,
    Global,
    /// Of the SQL node, and of those that begin from now on.
    Persist,
    /// Of these alone.
    PersistOnly,
}

impl SqlEngine {
    pub(crate) async fn set(&self, session: &mut Session, text: &str, out: &mut Output<'_>) -> Result<()> {
        let list = text.get(3..).unwrap_or("");
        if is_transaction(list) {
            return self.set_transaction(session, list).await;
        }
        let (mut assignments, mut scope) = (Vec::new(), Scope::Session);
        for one in split_assignments(list) {
            assignments.push(self.assignment(session, one.trim(), &mut scope, out).await?);
        }
        check(session, &assignments)?;
        for assignment in assignments {
            let tells = session.env.variables.track_state;
            self.put_in_force(session, assignment).await?;
            out.speak(session.env.variables.charsets().1);
            if tells {
                session.note_state();
            }
        }
        Ok(())
    }

    /// SET [GLOBAL | SESSION] TRANSACTION.
    async fn set_transaction(&self, session: &mut Session, text: &str) -> Result<()> {
        let mut t = Tokens::new(text);
        let of = if t.word("global") {
            Of::Global
        } else if t.word("session") || t.word("local") {
            Of::Session
        } else {
            Of::Next
        };
        t.expect("transaction")?;
        self.set_characteristics(session, of, &mut t).await
    }

    /// One of the list; `scope`: what the last GLOBAL or SESSION before it says.
    async fn assignment(
        &self,
        session: &mut Session,
        text: &str,
        scope: &mut Scope,
        out: &mut Output<'_>,
    ) -> Result<Assignment> {
        let mut t = Tokens::new(text);
        if t.word("names") {
            let mut collation = Collation::DEFAULT;
            if !t.word("default") {
                let charset = client_named(&t.identifier()?)?;
                collation = charset.default_collation();
                if t.word("collate") {
                    collation = collation_named(&t.identifier()?)?;
                    charset::check(collation, charset)?;
                }
            }
            t.end()?;
            return Ok(Assignment::Names(collation));
        }
        if t.word("character") || t.word("charset") {
            t.word("set");
            let client = match t.word("default") {
                true => Collation::DEFAULT,
                false => client_named(&t.identifier()?)?.default_collation(),
            };
            t.end()?;
            let catalog = self.catalog().await?;
            let database = session.env.database.as_ref().and_then(|name| catalog.databases.get(name));
            return Ok(Assignment::Characters(client, database.copied().unwrap_or_default()));
        }
        if t.word("transaction") {
            return Err(t.error()); // not in a list
        }
        let (target, value) = text.split_once('=').ok_or_else(|| errors::syntax(text))?;
        let target = target.trim().trim_end_matches(':').trim();
        if target.is_empty() {
            return Err(t.error());
        }
        if let Some(name) = target.strip_prefix('@').filter(|n| !n.starts_with('@')) {
            let name = name.trim_matches(['`', '\'', '"']).to_ascii_lowercase();
            let value = self.assigned_value(session, value, out).await?.unwrap_or(Datum::Null);
            return Ok(Assignment::User(name, value));
        }
        let lower = target.to_ascii_lowercase();
        let (of, name) = scope_of(&lower, scope)?;
        check_name(name)?;
        let value = self.assigned_value(session, value, out).await?;
        if matches!(of, Scope::Global | Scope::Persist | Scope::PersistOnly) {
            let one_of = Privileges::SUPER.union(Privileges::SYSTEM_VARIABLES_ADMIN);
            self.require(session, one_of, "SUPER or SYSTEM_VARIABLES_ADMIN").await?;
        }
        Ok(Assignment::System(of, name.to_owned(), value))
    }

    /// What stands behind the `=`; `None` for DEFAULT. A query is run as a statement, into a variable that is as before afterwards.
    async fn assigned_value(
        &self,
        session: &mut Session,
        text: &str,
        out: &mut Output<'_>,
    ) -> Result<Option<Datum<'static>>> {
        const ANSWER: &str = "the answer of a query in set";
        if !has_subquery(text) && !code::Text::new(text.to_owned(), &Default::default()).may_call() {
            return evaluate(session, text);
        }
        expression(text)?;
        session.env.keep_assigned(); // whoever runs a query again forgets what it has assigned
        let before = session.env.user_variables.get(ANSWER).cloned();
        let ran = self.run_unseen(session, &format!("SELECT {text} INTO @`{ANSWER}`"), out).await;
        session.env.keep_assigned();
        let answer = session.env.user_variables.remove(ANSWER);
        session.env.user_variables.extend(before.map(|value| (ANSWER.to_owned(), value)));
        ran.map(|()| Some(answer.unwrap_or(Datum::Null)))
    }

    async fn put_in_force(&self, session: &mut Session, assignment: Assignment) -> Result<()> {
        let (of, name, value) = match assignment {
            Assignment::Names(collation) => {
                session.env.variables.set_names(collation);
                NAMES.iter().for_each(|name| session.note_variable(name));
                return Ok(());
            }
            Assignment::Characters(client, connection) => {
                session.env.variables.set_names(client);
                session.env.variables.set_connection(connection);
                NAMES.iter().for_each(|name| session.note_variable(name));
                return Ok(());
            }
            Assignment::User(name, value) => return session.env.assign(&name, value),
            Assignment::System(of, name, value) => (of, name, value),
        };
        let was = session.env.variables.autocommit;
        let warning = match of {
            Scope::Global => session.env.variables.set_global(&name, value.as_ref())?,
            Scope::Persist => {
                Box::pin(self.persist(session, &name, value.as_ref())).await?;
                session.env.variables.set_global(&name, value.as_ref())?
            }
            Scope::PersistOnly => {
                Box::pin(self.persist(session, &name, value.as_ref())).await?;
                None
            }
            Scope::Next => session.set_next(&name, value.as_ref())?,
            Scope::Session => session.env.variables.set(&name, value.as_ref())?,
        };
        warning.iter().for_each(|w| session.warn_error(w));
        if of != Scope::Session {
            return Ok(());
        }
        if name == TRACKED {
            tracking::check(&tracked(value.as_ref()))?.iter().for_each(|unknown| session.warn_error(unknown));
        }
        if ["identity", "last_insert_id"].contains(&name.as_str())
            && let Some(id) = session.env.variables.get(&name, false)?.number()
        {
            session.env.last_insert_id.set(u64::try_from(id.to_i128()).unwrap_or(0));
        }
        session.forget_next_of(&name);
        session.note_variable(&name);
        if !was && session.env.variables.autocommit {
            if let Err(e) = session.check_no_branch() {
                session.env.variables.set(&name, Some(&Datum::Int(0)))?;
                return Err(e);
            }
            self.end_transaction(session, true).await?;
        }
        Ok(())
    }
}

const TRACKED: &str = "session_track_system_variables";

fn tracked(value: Option<&Datum<'_>>) -> String {
    value.filter(|value| !value.is_null()).map_or_else(String::new, Datum::as_string)
}

/// Whether all can be put in force: tried with variables that nobody uses.
fn check(session: &Session, assignments: &[Assignment]) -> Result<()> {
    let mut trial = session.env.variables.clone();
    for assignment in assignments {
        match assignment {
            Assignment::Names(collation) | Assignment::Characters(collation, _) => trial.set_names(*collation),
            Assignment::User(..) => {}
            Assignment::System(of, name, value) => {
                let value = value.as_ref();
                match of {
                    Scope::Session if name == TRACKED => drop(tracking::check(&tracked(value))?),
                    Scope::Session => drop(trial.set(name, value)?),
                    Scope::Next => drop(session.next_variables(name, value)?),
                    Scope::Global | Scope::Persist | Scope::PersistOnly => trial.check_global(name, value)?,
                }
            }
        }
    }
    Ok(())
}

/// `@@global.name`, `SESSION name` and the like, in lower case. A word with a blank behind it counts for those that follow, too.
fn scope_of<'t>(target: &'t str, last: &mut Scope) -> Result<(Scope, &'t str)> {
    let named = target.trim_start_matches("@@");
    let is_sign = named.len() < target.len();
    let words = [
        ("global", Scope::Global),
        ("session", Scope::Session),
        ("local", Scope::Session),
        ("persist_only", Scope::PersistOnly),
        ("persist", Scope::Persist),
    ];
    let behind = if is_sign { '.' } else { ' ' };
    let found =
        words.into_iter().find_map(|(word, scope)| Some((scope, named.strip_prefix(word)?.strip_prefix(behind)?)));
    let (scope, name) = match found {
        None if is_sign && [READ_ONLY, ISOLATION].contains(&named.trim()) => (Scope::Next, named),
        None if is_sign => (Scope::Session, named),
        None => (*last, named),
        Some((scope, name)) => {
            if !is_sign {
                *last = scope;
            }
            (scope, name)
        }
    };
    Ok((scope, name.trim().trim_matches('`')))
}

/// What SET NAMES and SET CHARACTER SET set.
const NAMES: [&str; 3] = ["character_set_client", "character_set_connection", "character_set_results"];

/// Value of an assignment; `None` for DEFAULT. A bare word stands for its text (`SET autocommit = ON`).
fn evaluate(session: &Session, text: &str) -> Result<Option<Datum<'static>>> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("default") {
        return Ok(None);
    }
    if !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !text.as_bytes()[0].is_ascii_digit()
    {
        return Ok(Some(match text.to_ascii_lowercase().as_str() {
            "null" => Datum::Null,
            "true" => Datum::Int(1),
            "false" => Datum::Int(0),
            _ => Datum::text(text),
        }));
    }
    value_of(session, text).map(Some)
}

/// The value of an expression that reads nothing.
pub(crate) fn value_of(session: &Session, text: &str) -> Result<Datum<'static>> {
    crate::expr::coercion::connect(&session.env.variables);
    let e = &expression(text)?;
    let mut builder = Builder::new(None, "", "");
    builder.no_backslash = session.env.variables.syntax.no_backslash;
    builder.signed_difference = session.env.variables.signed_difference;
    builder.assigns = text.contains(":=");
    let expr: Expr = builder.build(e)?;
    let layout = apus_types::RowLayout::new([]);
    let cx = Context::of_row(&layout, &[], &session.env);
    Ok(expr.eval(&cx)?.into_owned())
}

/// SELECT is a reserved word: outside of quotes it begins a query.
fn has_subquery(text: &str) -> bool {
    Tokens::new(text).rest().iter().any(|t| matches!(t, Token::Word(word) if word.eq_ignore_ascii_case("select")))
}

/// A text that is one expression.
pub(crate) fn expression(text: &str) -> Result<sqlparser::ast::Expr> {
    use sqlparser::ast::{SelectItem, SetExpr, Statement};
    let Statement::Query(query) = plan::syntax::parse(&format!("SELECT {text}"))? else {
        return Err(errors::syntax(text));
    };
    let SetExpr::Select(select) = *query.body else { return Err(errors::syntax(text)) };
    match <[SelectItem; 1]>::try_from(select.projection) {
        Ok([SelectItem::UnnamedExpr(e)]) if select.from.is_empty() => Ok(e),
        Ok([SelectItem::ExprWithAlias { alias, .. }]) => Err(errors::syntax(&alias.value)),
        _ => Err(errors::syntax(text)),
    }
}

/// Splits at commas outside of quotes and parentheses.
pub(crate) fn split_assignments(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quote) = (Vec::new(), 0, 0i32, None);
    let mut escaped = false;
    for (i, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"' | '`') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}
