//! What is kept of statements that have run: those that took long ([`crate::monitor::slow`]), and how often and how long each normal form ran ([`crate::monitor::digests`], whose text [`crate::monitor::digest_text`] makes).
//!
//! Both are told at the end of a command, when its answer is sent: a fast statement pays for the counters of its normal form, a slow one for an entry that a thread of its own
//! writes. No SQL thread waits for a file or for another thread: what a queue has no room for is counted and left out. Both are of one SQL node and end with it.

use std::time::Duration;

use crate::{
    monitor::{digest_text, digests::Did, slow, status::Counter},
    parse::digest::{Digest, Form},
    plan::cache::key_of,
    server::Figures,
    session::{Session, engine::SqlEngine},
    value::zone::clock,
};

impl SqlEngine {
    /// A statement begins whose normal form this is.
    pub(crate) fn begin_digest(&self, session: &mut Session, normal: &[u8], sql: &[u8]) {
        if session.digest.is_some() {
            // Another one of the same command.
            self.end_digest(session, Duration::ZERO);
        }
        session.form = key_of(normal);
        session.digest = self.digests.find(session.env.database.as_deref(), (normal, session.form), sql);
    }

    /// All normal forms were forgotten since a statement was prepared.
    #[cold]
    pub(crate) fn find_digest_again(&self, session: &mut Session, id: u32) {
        let Some(prepared) = session.prepared.get_mut(&id) else { return };
        let mut plain = Digest::default();
        if plain.scan(&prepared.sql, Form::Plain, prepared.syntax).is_ok() {
            let form = (plain.text.as_slice(), key_of(&plain.text));
            prepared.digest = self.digests.find(session.env.database.as_deref(), form, &prepared.sql);
        }
        session.digest = prepared.digest;
    }

    /// It has ended.
    fn end_digest(&self, session: &mut Session, took: Duration) {
        let Some(digest) = session.digest.take() else { return };
        self.digests.add(digest, &did(session, took));
        (session.is_failed, session.traits) = (false, 0);
    }

    /// A command has ended and its answer is sent.
    pub(crate) fn end_command(&self, session: &mut Session, took: Duration) {
        let variables = &session.env.variables;
        let is_slow = took >= variables.long_query;
        if is_slow {
            self.count(session, Counter::Slow);
        }
        if is_slow || session.traits != 0 {
            self.tell_slow(session, took, is_slow);
        }
        let Did { affected, sent, examined, warnings, is_failed, traits, .. } = did(session, took);
        let figures = Figures { affected, sent, examined, warnings, is_failed, traits };
        session.info.activity.ended(session.env.database.as_deref(), took, figures);
        self.end_digest(session, took);
    }

    #[cold]
    fn tell_slow(&self, session: &Session, took: Duration, is_slow: bool) {
        let log = &self.globals.slow;
        let did = did(session, took);
        let is_unindexed = did.traits & crate::monitor::access::NO_INDEX != 0 && log.logs_unindexed();
        if !log.is_on() || !is_slow && !is_unindexed || did.examined < session.env.variables.min_examined_rows {
            return;
        }
        let env = &session.env;
        let statement = session.info.activity.last_statement();
        let is_secret = digest_text::is_secret(statement.as_bytes());
        log.push(slow::Entry {
            ended: clock(),
            user: env.user.clone(),
            host: env.host.clone(),
            id: env.connection_id,
            database: env.database.clone().unwrap_or_default(),
            micros: did.micros,
            sent: did.sent,
            examined: did.examined,
            last_insert_id: env.last_insert_id.get(),
            statement: if is_secret { digest_text::of(&statement) } else { statement },
        });
    }
}

fn did(session: &Session, took: Duration) -> Did {
    let env = &session.env;
    // What changes rows sends none.
    let (affected, sent) = match u64::try_from(env.row_count) {
        Ok(affected) => (affected, 0),
        Err(_) => (0, if session.is_failed { 0 } else { env.found_rows }),
    };
    Did {
        micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        affected,
        sent,
        examined: env.examined.get(),
        warnings: session.warnings_given(),
        is_failed: session.is_failed,
        traits: session.traits,
    }
}
