//! Texts that clients send to be executed or prepared: read in their character set, and one statement after the other.

use apus_types::collate::Charset;
use std::{pin::pin, rc::Rc};

use super::{begins_with, is_of_text_protocol};
use crate::{
    catalog::Catalog,
    errors::{self, Result},
    expr::Kind,
    parse::{
        digest::{Digest, Form, has_statement, without_end},
        token::is_query,
    },
    plan::{self, Plan, cache::key_of, dml::insert::Source, text::is_typed_by_values},
    server::{Output, PreparedInfo},
    session::{
        Session,
        engine::SqlEngine,
        prepared::{KeptPlan, Prepared},
    },
    wire::{ColumnDef, characters, foreign::Quoting},
};

/// In which character set the client's statements are read, and what their quotes mean.
fn how(session: &Session) -> (Charset, Quoting) {
    (session.env.variables.charsets().0, session.env.variables.quoting())
}

impl SqlEngine {
    /// COM_QUERY.
    pub(crate) async fn query_text(&self, session: &mut Session, sql: &[u8], out: &mut Output<'_>) -> Result<()> {
        let mut rest = without_end(sql);
        let mut is_first = true;
        loop {
            let (client, quoting) = how(session);
            let text = characters::read_statement(client, quoting, rest)?;
            let Some(end) = pin!(self.statements(session, &text, &mut is_first, out)).await? else { return Ok(()) };
            rest = &rest[characters::said_for(client, quoting, rest, end)..];
            // What is left is read once more: others have their turn before.
            tokio::task::yield_now().await;
        }
    }

    /// Runs statements until there are no more, or one has changed how the next ones are read; where those begin.
    async fn statements(
        &self,
        session: &mut Session,
        text: &[u8],
        is_first: &mut bool,
        out: &mut Output<'_>,
    ) -> Result<Option<usize>> {
        let before = how(session);
        let mut at = 0;
        loop {
            let Some(end) = pin!(self.first_of(session, &text[at..], *is_first, out)).await? else { return Ok(None) };
            (at, *is_first) = (at + end, false);
            if how(session) != before {
                return Ok(Some(at));
            }
        }
    }

    /// Runs the first of some statements; where the others begin, if there are any.
    async fn first_of(
        &self,
        session: &mut Session,
        sql: &[u8],
        is_first: bool,
        out: &mut Output<'_>,
    ) -> Result<Option<usize>> {
        let with_body = self.statement_with_body(session, sql)?;
        let digest = &mut session.scratch.get_or_insert_default().digest;
        let end = match &with_body {
            Some((_, end)) => *end,
            None => digest.scan(sql, Form::Digest, session.env.variables.syntax)?,
        };
        if with_body.is_none() && digest.text.is_empty() {
            return if is_first { self.comment_alone(session, sql, out).map(|()| None) } else { Ok(None) };
        }
        let end = end.min(sql.len());
        let (one, tail) = sql.split_at(end);
        let more = has_statement(tail);
        if more && !session.multi_statements {
            return Err(errors::syntax(&String::from_utf8_lossy(tail)));
        }
        out.set_more_results(more);
        match &with_body {
            Some((made, _)) => Box::pin(self.make_with_body(session, made, out)).await?,
            None => pin!(self.statement(session, one, out)).await?,
        }
        Ok(more.then_some(end))
    }

    /// A comment is answered with OK, as MySQL's console sends it before the statement behind it; nothing at all is error 1065.
    #[cold]
    fn comment_alone(&self, session: &mut Session, text: &[u8], out: &mut Output<'_>) -> Result<()> {
        let is_blank = |b: &u8| b.is_ascii_whitespace() || *b == b';';
        let Some(start) = text.iter().position(|b| !is_blank(b)) else { return Err(errors::empty_query()) };
        let comment = &text[start..];
        if comment.starts_with(b"/*") && !comment.windows(2).any(|end| end == b"*/") {
            return Err(errors::syntax(&String::from_utf8_lossy(comment)));
        }
        session.clear_warnings();
        self.begin_statement(session)?;
        crate::session::ok(session, out)
    }

    /// PREPARE of a text in UTF-8.
    pub(crate) async fn prepare_text(&self, session: &mut Session, sql: &[u8]) -> Result<PreparedInfo> {
        session.check_sandbox()?;
        let sql = without_end(sql);
        let (mut plain, syntax) = (Digest::default(), session.env.variables.syntax);
        plain.scan(sql, Form::Plain, syntax)?;
        if plain.text.is_empty() {
            return Err(errors::empty_query());
        }
        let mut prepared = Prepared {
            sql: sql.to_vec(),
            syntax,
            parameters: plain.parameters,
            digest: self.digests.find(session.env.database.as_deref(), (&plain.text, key_of(&plain.text)), sql),
            hints: std::mem::take(&mut plain.hints),
            plan: None,
            typed_by_params: false,
        };
        let (mut columns, mut warnings) = (Vec::new(), 0);
        if is_query(&plain.text) {
            self.learn_identity(session).await;
            let is_hinted = !prepared.hints.is_empty();
            if is_hinted {
                session.has_hinted = true;
                self.begin_hints(session, sql, &prepared.hints, true);
            }
            let planned = self.plan_prepared(session, &plain).await;
            let kept = planned.map(|(plan, catalog)| KeptPlan::new(plan, &catalog, &session.env));
            if is_hinted {
                if let Some(told) = kept.iter().find_map(|kept| kept.plan.names().hints.as_ref()) {
                    session.clear_warnings();
                    session.tell_hints(told);
                    warnings = session.warning_count();
                }
                self.end_hints(session);
            }
            let kept = kept?;
            let plan = &*kept.plan;
            let needs = &plan.names().needs;
            if !self.is_granted(session, needs) {
                self.authorize(session, needs).await?;
            }
            prepared.typed_by_params = plan.names().is_typed;
            if let Plan::Select(select) = plan {
                columns = select.defs.to_vec();
                prepared.typed_by_params |= is_typed_by_values(select);
            }
            if let Plan::Insert(i) = plan
                && let Source::Select(select) = &i.source
            {
                prepared.typed_by_params |= is_typed_by_values(select);
            }
            prepared.plan = Some(kept);
        } else if is_of_text_protocol(&plain.text) {
            return Err(errors::not_preparable());
        } else if let Some((made, _)) = self.statement_with_body(session, sql)? {
            if !made.is_of_event() {
                return Err(errors::not_preparable());
            }
        } else if plain.parameters > 0 && !begins_with(&plain.text, "call") {
            plan::syntax::parse(&String::from_utf8_lossy(&plain.text))?; // what is no statement at all is a syntax error
            return Err(errors::not_preparable());
        }
        let id = session.next_statement;
        session.next_statement = session.next_statement.wrapping_add(1).max(1);
        let params = vec![ColumnDef::parameter(); prepared.parameters];
        session.prepared.insert(id, prepared);
        Ok(PreparedInfo { id, params, columns, warnings })
    }

    async fn plan_prepared(&self, session: &Session, plain: &Digest) -> Result<(Plan, Rc<Catalog>)> {
        let catalog = self.catalog_of(session).await?;
        let kinds = vec![Kind::Text; plain.parameters];
        let text = String::from_utf8_lossy(&plain.text);
        let limit = session.env.variables.select_limit;
        match self.plan_measured(&catalog, &session.env, &text, kinds.clone(), limit).await {
            Err(e) if self.has_news(&e).await => {
                let catalog = self.catalog_of(session).await?;
                let plan = self.plan_measured(&catalog, &session.env, &text, kinds, limit).await?;
                Ok((plan, catalog))
            }
            planned => planned.map(|plan| (plan, catalog)),
        }
    }
}
