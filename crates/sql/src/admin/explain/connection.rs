//! EXPLAIN FOR CONNECTION: the plan of what another connection of this SQL node executes.
//!
//! A plan belongs to the thread of its connection. What others can see is the statement and its database, as the process list shows them; it is planned anew, by the tables, statistics and
//! variables of this moment. That is the plan that it would get now, which is the one that it has unless something has changed since it began. Of a statement that is longer than what is kept of it
//! there is nothing to be planned ([`limits::INFO_BYTES_MAX`]).
//!
//! As in MySQL: who is not the same user needs all static privileges on everything, PROCESS alone is not enough; a connection that rests has no plan, which is no error; of what is no SELECT, INSERT,
//! UPDATE, DELETE or REPLACE of its own (EXECUTE, CALL, EXPLAIN) there is none to be told.

use super::{Form, Request};
use crate::{
    accounts::{Privileges, Secret},
    errors::{self, Result},
    parse::{
        digest::{Digest, Form as Cleaned},
        token::{Token, Tokens, is_query},
    },
    server::{ConnectionEntry, Output, limits},
    session::{self, Session, engine::SqlEngine},
};

/// Which connection, and how its plan is to be told.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    pub id: u32,
    pub form: Form,
}

/// What stands behind EXPLAIN; `None`: another statement. `unsaid`: the form where the statement names none.
///
/// # Errors
/// 1064; 1791: a form that nobody knows.
pub fn parse(t: &mut Tokens, unsaid: &str) -> Result<Option<Asked>> {
    let start = t.position();
    let mut named = None;
    if t.peek_word("format") && t.second_is('=') {
        t.skip();
        t.skip();
        named = t.identifier().ok().map(|name| name.to_ascii_uppercase());
    }
    if !(t.word("for") && t.word("connection")) {
        t.rewind(start);
        return Ok(None);
    }
    let form = match named.as_deref().unwrap_or(unsaid) {
        "TRADITIONAL" | "TRADITIONAL_STRICT" => Form::Rows,
        "TREE" => Form::Tree,
        "JSON" => Form::Json,
        other => return Err(errors::unknown_format(other)),
    };
    let id = number(t)?;
    t.end()?;
    Ok(Some(Asked { id, form }))
}

fn number(t: &mut Tokens) -> Result<u32> {
    let of_hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let hex = match (t.peek(), t.ahead(1)) {
        (Some(Token::Word(word)), Some(Token::Text(digits))) if word.eq_ignore_ascii_case("x") => {
            of_hex(digits).map(|id| (id, 2))
        }
        (Some(Token::Word(word)), _) => word.strip_prefix("0x").and_then(of_hex).map(|id| (id, 1)),
        _ => None,
    };
    let id = match hex {
        Some((id, tokens)) => {
            (0..tokens).for_each(|_| t.skip());
            id
        }
        None => {
            let text = t.number()?;
            text.parse().map_err(|_| errors::only_integers(&text))?
        }
    };
    Ok(id as u32) // the rest of it MySQL drops, too
}

impl SqlEngine {
    /// Answers EXPLAIN FOR CONNECTION.
    ///
    /// # Errors
    /// 1094: there is no such connection. 3012: it executes what has no plan. 1045: it is another user's. 1235: the statement is not known as a whole.
    pub(crate) async fn explain_connection(
        &self,
        session: &mut Session,
        asked: &Asked,
        out: &mut Output<'_>,
    ) -> Result<()> {
        session.clear_warnings();
        let mut all = session.info.registry.list().into_iter();
        let entry = all.find(|entry| entry.id == asked.id).ok_or_else(|| errors::unknown_thread(asked.id))?;
        let doing = entry.activity.look();
        if doing.is_asleep() {
            return session::ok(session, out);
        }
        let statement = doing.statement().unwrap_or_default();
        if !is_query(statement.trim_start().as_bytes()) {
            return Err(errors::not_explained());
        }
        self.check_may_explain(session, &entry).await?;
        // A cut text may have lost some bytes of its last character.
        if statement.len() + 4 > limits::INFO_BYTES_MAX {
            return Err(errors::not_supported("EXPLAIN FOR CONNECTION of a statement of 4 KiB and more"));
        }
        let mut plain = Digest::default();
        plain.scan(statement.as_bytes(), Cleaned::Plain, session.env.variables.syntax)?;
        let text = String::from_utf8_lossy(&plain.text).into_owned();
        if has_several(&text) {
            return Err(errors::not_supported("EXPLAIN FOR CONNECTION of several statements in one"));
        }
        let database = Some(doing.database).filter(|database| !database.is_empty());
        let request = Request { form: asked.form, is_analyzed: false, variable: None, database, begin: 0 };
        let own = match request.database {
            Some(_) => None,
            None => session.env.database.take(),
        };
        let told = Box::pin(self.explain(session, &request, &text, out)).await;
        if own.is_some() {
            session.env.database = own;
        }
        told
    }

    async fn check_may_explain(&self, session: &mut Session, entry: &ConnectionEntry) -> Result<()> {
        let Some(me) = self.identity(session).await? else { return Ok(()) };
        if entry.user == session.env.user || me.rights.global.contains(Privileges::ALL_STATIC) {
            return Ok(());
        }
        let has_password = me.account.auth.secret != Secret::Empty;
        Err(errors::access_denied(&session.env.user, &session.env.host, has_password))
    }
}

fn has_several(text: &str) -> bool {
    let t = Tokens::new(text);
    let end = t.rest().iter().position(|token| *token == Token::Symbol(';'));
    end.is_some_and(|end| end + 1 < t.rest().len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::token::is_explain_for_connection;

    #[test]
    fn connections_are_named_by_numbers() {
        let parsed = |text: &str| parse(&mut Tokens::new(text), "TREE").map_err(|e| e.errno);
        assert_eq!(parsed("FOR CONNECTION 7"), Ok(Some(Asked { id: 7, form: Form::Tree })));
        assert_eq!(parsed("FORMAT=json FOR CONNECTION 0x1f"), Ok(Some(Asked { id: 31, form: Form::Json })));
        assert_eq!(parsed("FOR CONNECTION x'1f'"), Ok(Some(Asked { id: 31, form: Form::Tree })));
        assert_eq!(parsed("FOR CONNECTION 4294967297"), Ok(Some(Asked { id: 1, form: Form::Tree })));
        for (text, is) in [
            ("EXPLAIN FORMAT=TREE FOR CONNECTION 1", true),
            ("DESC FOR CONNECTION 1", true),
            ("EXPLAIN FOR DATABASE d SELECT 1", false),
        ] {
            assert_eq!(is_explain_for_connection(&Tokens::new(text)), is, "{text}");
        }
        assert_eq!(parsed("FORMAT=TREE SELECT 1"), Ok(None));
        assert_eq!(parsed("FOR SCHEMA d SELECT 1"), Ok(None));
        for (text, errno) in [
            ("FOR CONNECTION", 1064),
            ("FOR CONNECTION -1", 1064),
            ("FOR CONNECTION '1'", 1064),
            ("FOR CONNECTION 1.5", 1064),
            ("FOR CONNECTION 1 2", 1064),
            ("FORMAT=x FOR CONNECTION 1", 1791),
        ] {
            assert_eq!(parsed(text), Err(errno), "{text}");
        }
        assert!(has_several("SELECT 1; SELECT 2") && !has_several("SELECT ';';"));
    }
}
