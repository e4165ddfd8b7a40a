//! PREPARE, EXECUTE and DEALLOCATE PREPARE: prepared statements that a client names in SQL.
//!
//! They are the session's like those of the binary protocol, are planned by the same code and die with the connection (or its
//! reset). At most [`NAMED_MAX`] at a time, beyond that error 1461. Statements that prepare or execute others cannot be
//! prepared (1295).

use crate::{
    errors::{self, Result},
    parse::{
        digest::{Digest, Form, has_statement},
        token::{Token, Tokens},
    },
    server::{Engine, Output},
    session::{Session, buffers::Scratch, engine::SqlEngine},
    value::datum::Datum,
    wire::SqlError,
};

/// Named statements of one session.
pub const NAMED_MAX: usize = 1024;

impl SqlEngine {
    /// `PREPARE name FROM 'text' | @variable`, behind the first word.
    pub(crate) async fn prepare_named(&self, session: &mut Session, t: &mut Tokens) -> Result<()> {
        let name = t.identifier()?.to_lowercase();
        t.expect("from")?;
        let text = match t.peek() {
            Some(Token::Text(text)) => text.clone(),
            Some(Token::Word(word)) if word.starts_with('@') && !word.starts_with("@@") => {
                variable(session, word).as_string()
            }
            _ => return Err(t.error()),
        };
        t.skip();
        t.end()?;
        // The old statement of the name is gone even when the new one is refused.
        if let Some(old) = session.named_statements.remove(&name) {
            self.close_statement(session, old);
        }
        if session.named_statements.len() >= NAMED_MAX {
            let text =
                format!("Can't create more than max_prepared_stmt_count statements (current value: {NAMED_MAX})");
            return Err(SqlError::new(1461, b"42000", text));
        }
        let mut plain = Digest::default();
        // What has other statements in it has their ends, too.
        let whole = self.statement_with_body(session, text.as_bytes())?.map(|(_, end)| end);
        let end = plain.scan(text.as_bytes(), Form::Plain, session.env.variables.syntax)?;
        let tail = text.as_bytes().get(whole.unwrap_or(end)..).unwrap_or(&[]);
        if has_statement(tail) {
            return Err(errors::syntax(&String::from_utf8_lossy(tail)));
        }
        let first = Tokens::new(&String::from_utf8_lossy(&plain.text));
        let nested = ["prepare", "execute", "deallocate"].iter().any(|word| first.peek_word(word));
        if nested || first.peek_word("drop") && first.second_word("prepare") {
            return Err(errors::not_preparable());
        }
        let prepared = self.prepare_text(session, text.as_bytes()).await?;
        session.named_statements.insert(name, prepared.id);
        Ok(())
    }

    /// `EXECUTE name [USING @a, @b]`, behind the first word.
    pub(crate) async fn execute_named(
        &self,
        session: &mut Session,
        s: &mut Scratch,
        t: &mut Tokens,
        out: &mut Output<'_>,
    ) -> Result<()> {
        let name = t.identifier()?;
        let mut values: Vec<Datum<'static>> = Vec::new();
        let mut names = Vec::new();
        if t.word("using") {
            loop {
                match t.peek() {
                    Some(Token::Word(word)) if word.starts_with('@') && !word.starts_with("@@") => {
                        values.push(variable(session, word));
                        names.push(lower_name(word));
                    }
                    _ => return Err(t.error()),
                }
                t.skip();
                if !t.symbol(',') {
                    break;
                }
            }
        }
        t.end()?;
        let id = session.named_statements.get(&name.to_lowercase()).copied();
        let id = id.ok_or_else(|| errors::unknown_prepared(&name, "EXECUTE"))?;
        if session.prepared.get(&id).is_none_or(|p| p.parameters != values.len()) {
            return Err(errors::wrong_arguments("EXECUTE"));
        }
        let outer = session.given_out.replace(Vec::new());
        let is_hinted = session.has_hinted && self.begin_prepared_hints(session, id);
        let done = Box::pin(self.execute_prepared(session, s, id, &values, out)).await;
        if is_hinted {
            self.end_hints(session);
        }
        let given_out = std::mem::replace(&mut session.given_out, outer);
        done?;
        for (number, value) in given_out.into_iter().flatten() {
            session.env.assign(&names[number], value)?;
        }
        session.env.keep_assigned();
        Ok(())
    }

    /// `DEALLOCATE PREPARE name`, behind these words.
    pub(crate) fn deallocate_named(&self, session: &mut Session, t: &mut Tokens) -> Result<()> {
        let name = t.identifier()?;
        t.end()?;
        let id = session.named_statements.remove(&name.to_lowercase());
        let id = id.ok_or_else(|| errors::unknown_prepared(&name, "DEALLOCATE PREPARE"))?;
        self.close_statement(session, id);
        Ok(())
    }
}

/// Of `@Name`.
fn lower_name(word: &str) -> String {
    word.trim_start_matches('@').to_ascii_lowercase()
}

fn variable(session: &Session, word: &str) -> Datum<'static> {
    session.env.user_variables.get(&lower_name(word)).cloned().unwrap_or(Datum::Null)
}
