//! Statements that a body may not have.

use super::{compile::Compiler, failures};
use crate::{
    errors::{self, Result},
    parse::token::{self, Token, Tokens},
    program::event,
};

/// What a statement begins with, other than those that only bodies have.
const STATEMENTS: [&str; 56] = [
    "alter",
    "analyze",
    "binlog",
    "cache",
    "call",
    "change",
    "check",
    "checksum",
    "clone",
    "commit",
    "create",
    "deallocate",
    "delete",
    "desc",
    "describe",
    "do",
    "drop",
    "execute",
    "explain",
    "flush",
    "grant",
    "handler",
    "help",
    "import",
    "insert",
    "install",
    "kill",
    "load",
    "lock",
    "optimize",
    "prepare",
    "purge",
    "release",
    "rename",
    "repair",
    "replace",
    "reset",
    "restart",
    "revoke",
    "rollback",
    "savepoint",
    "select",
    "set",
    "show",
    "shutdown",
    "start",
    "stop",
    "table",
    "truncate",
    "uninstall",
    "unlock",
    "update",
    "use",
    "values",
    "with",
    "xa",
];

impl Compiler<'_> {
    /// Statements that no routine may have.
    pub(crate) fn refuse(&self) -> Result<()> {
        let t = &self.t;
        if !STATEMENTS.iter().any(|word| t.peek_word(word)) && !t.peek_symbol('(') {
            return Err(t.error());
        }
        if t.peek_word("use") {
            return Err(failures::not_allowed("USE"));
        }
        if t.peek_word("lock") || t.peek_word("unlock") {
            return Err(failures::not_allowed(if t.peek_word("lock") { "LOCK" } else { "UNLOCK" }));
        }
        if t.peek_word("load") {
            return Err(failures::not_allowed("LOAD DATA"));
        }
        if token::is_explain_for_connection(t) {
            return Err(errors::not_supported("non-standalone EXPLAIN FOR CONNECTION"));
        }
        if t.peek_word("execute") {
            let using =
                t.rest().iter().position(|token| matches!(token, Token::Word(w) if w.eq_ignore_ascii_case("using")));
            let is_user = |token: Option<&Token>| matches!(token, Some(Token::Word(w)) if w.starts_with('@'));
            if using.is_some_and(|at| !is_user(t.ahead(at + 1))) {
                return Err(t.error());
            }
        }
        if t.peek_word("alter") && t.second_word("view") {
            return Err(failures::not_allowed("ALTER VIEW"));
        }
        let is_word = |token: &Token, word: &str| matches!(token, Token::Word(w) if w.eq_ignore_ascii_case(word));
        let statement = || t.rest().iter().take_while(|token| **token != Token::Symbol(';'));
        let of_event =
            t.second_word("event") || t.second_word("definer") && statement().take(12).any(|w| is_word(w, "event"));
        if of_event && (t.peek_word("create") || t.peek_word("alter")) && statement().any(|token| is_word(token, "do"))
        {
            return Err(event::failures::recursion());
        }
        let changes = ["create", "alter", "drop"].iter().any(|word| t.peek_word(word));
        for kind in ["procedure", "function", "trigger"].into_iter().filter(|_| changes) {
            if kind == "trigger" && !t.peek_word("create") {
                continue;
            }
            let makes = t.rest().iter().take(12).any(|token| is_word(token, kind));
            if t.second_word(kind) || t.second_word("definer") && makes {
                return Err(match t.peek_word("create") {
                    true => failures::within_another(&kind.to_uppercase()),
                    false => failures::changes_another(&kind.to_uppercase()),
                });
            }
        }
        if self.of.is_within() { refuse_within(t, self.of.name()) } else { Ok(()) }
    }
}

/// Statements that what runs within another may not have; `of`: a function or a trigger.
pub fn refuse_within(t: &Tokens, of: &str) -> Result<()> {
    let is = |words: &[&str]| words.iter().any(|word| t.peek_word(word));
    if is(&["prepare", "execute", "deallocate"]) {
        return Err(failures::not_within("Dynamic SQL"));
    }
    if is(&["show", "explain", "describe", "desc", "analyze", "optimize", "repair", "checksum"]) {
        return Err(failures::returns_result(of));
    }
    let rolls_to = t.peek_word("rollback")
        && t.rest().iter().take(3).any(|token| matches!(token, Token::Word(w) if w.eq_ignore_ascii_case("to")));
    let commits = ["commit", "rollback", "start", "create", "alter", "drop", "rename", "truncate", "grant", "revoke"];
    if is(&commits) && !rolls_to && !t.second_word("temporary") || is(&["install", "uninstall", "cache"]) {
        return Err(failures::commits());
    }
    if is(&["flush"]) {
        return Err(failures::not_within("FLUSH"));
    }
    let is_named = |token: &Token, word: &str| matches!(token, Token::Word(w) if w.trim_start_matches('@').eq_ignore_ascii_case(word));
    let sets = |word: &str| t.rest().iter().take(4).any(|token| is_named(token, word));
    if is(&["set"]) && (sets("password") || sets("autocommit")) {
        return Err(failures::sets_autocommit());
    }
    Ok(())
}
