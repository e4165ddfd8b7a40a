//! What SET GLOBAL has set: the values that sessions begin with, at this SQL node and until it ends.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Variables,
    branch_names::Names,
    definitions::{Scope, Type, find},
    kind_of, persisted, switch,
};
use crate::{
    accounts::policy::Reuse,
    errors::{self, Result},
    files::Places,
    monitor::{
        digests::{Digests, SIZE_DEFAULT},
        slow::{Outputs, SlowLog},
        status::Status,
    },
    parse::digest::literal,
    spill::Space,
    value::datum::Datum,
    wire::{SqlError, compressed::Algorithms},
};

const LOCAL_INFILE: &str = "local_infile";
const EVENT_SCHEDULER: &str = "event_scheduler";
const LOG_OUTPUT: &str = "log_output";
const SLOW_FILE: &str = "slow_query_log_file";
const COMPRESSION: &str = "protocol_compression_algorithms";

#[derive(Clone, Copy, Debug)]
pub(crate) struct PasswordDefaults {
    /// Days; 0: for ever.
    pub lifetime: u16,
    pub reuse: Reuse,
    pub requires_current: bool,
}

#[derive(Debug, Default)]
pub struct Globals {
    values: Mutex<BTreeMap<&'static str, String>>,
    /// The SQL port offers TLS, and refuses who does without.
    pub(super) tls: bool,
    pub(super) tls_required: bool,
    /// `secure_file_priv`.
    pub(super) places: Places,
    pub(crate) status: Status,
    pub(crate) slow: SlowLog,
    pub(crate) digests: Arc<Digests>,
    pub(super) spill: Arc<Space>,
    /// Of SET PERSIST, as they are kept; `None`: they were not read yet.
    persisted: Mutex<Option<Vec<u8>>>,
    pub(crate) branches: Arc<Names>,
}

impl Globals {
    /// Of a SQL node that offers TLS, and perhaps requires it.
    pub fn with_tls(tls: bool, tls_required: bool) -> Globals {
        Globals { tls, tls_required, ..Globals::default() }
    }

    /// With this value of `local_infile`.
    #[must_use]
    pub fn with_local_infile(self, on: bool) -> Globals {
        self.values().insert(LOCAL_INFILE, u8::from(on).to_string());
        self
    }

    /// Statements may write and read the files of these places.
    #[must_use]
    pub fn with_files_in(mut self, places: Places) -> Globals {
        self.places = places;
        self
    }

    /// Whose slow log is this file, until it is told otherwise.
    #[must_use]
    pub fn with_slow_log_file(self, file: &Path) -> Globals {
        self.slow.set_file(file);
        self
    }

    /// Puts the variables in force that are of the SQL node.
    fn put_in_force(&self, values: &BTreeMap<&'static str, String>) {
        let of = |name: &str| values.get(name).map(String::as_str);
        self.slow.set_on(of("slow_query_log") == Some("1"));
        self.slow.set_unindexed(of("log_queries_not_using_indexes") == Some("1"));
        let outputs = of(LOG_OUTPUT).and_then(Outputs::parse);
        self.slow.set_outputs(outputs.map_or(Outputs { file: true, table: false }, |(outputs, _)| outputs));
        let size = of("performance_schema_digests_size").and_then(|text| text.parse().ok());
        self.digests.set_size(size.unwrap_or(SIZE_DEFAULT));
        if let Some(file) = of(SLOW_FILE) {
            self.slow.set_file(Path::new(file));
        }
    }

    /// With this place for rows that memory has no room for.
    #[must_use]
    pub fn with_spill(self, space: Space) -> Globals {
        Globals { spill: Arc::new(space), ..self }
    }

    fn values(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.values().get(name).cloned()
    }

    /// Those that sessions have for their own.
    pub(super) fn of_sessions(&self) -> BTreeMap<&'static str, String> {
        let of_session = |name: &str| find(name).is_some_and(|d| d.scope == Scope::Both);
        self.values().iter().filter(|(name, _)| of_session(name)).map(|(name, text)| (*name, text.clone())).collect()
    }

    /// Whether clients may be asked for files.
    pub(super) fn local_infile(&self) -> bool {
        self.values().get(LOCAL_INFILE).is_some_and(|text| text == "1")
    }

    /// Whether this SQL node may run events.
    pub(crate) fn runs_events(&self) -> bool {
        self.values().get(EVENT_SCHEDULER).is_none_or(|text| text == "ON")
    }

    /// What accounts are held to that do not say it of themselves.
    pub(crate) fn of_passwords(&self) -> PasswordDefaults {
        let values = self.values();
        let number = |name: &str| values.get(name).and_then(|text| text.parse().ok()).unwrap_or(0);
        PasswordDefaults {
            lifetime: number("default_password_lifetime"),
            reuse: Reuse { history: number("password_history"), days: number("password_reuse_interval") },
            requires_current: number("password_require_current") == 1,
        }
    }

    /// What `protocol_compression_algorithms` says.
    pub fn compression(&self) -> Algorithms {
        self.values().get(COMPRESSION).and_then(|text| Algorithms::parse(text)).unwrap_or_default()
    }

    /// What SET PERSIST has kept. The first time it is put in force; a value that is none any more is left out.
    pub(crate) fn take_persisted(&self, kept: &[u8]) {
        let is_first = {
            let mut known = self.persisted.lock().unwrap_or_else(PoisonError::into_inner);
            if known.as_deref() == Some(kept) {
                return;
            }
            known.replace(kept.to_vec()).is_none()
        };
        for (name, text) in persisted::read(kept).iter().filter(|_| is_first) {
            let number = if kind_of(name).is_text() { None } else { literal::number(text.as_bytes()).ok() };
            let _ = self.set(name, Some(&number.unwrap_or_else(|| Datum::text(text.clone()))));
        }
    }

    /// As they are shown.
    pub(crate) fn persisted(&self) -> Vec<(String, String)> {
        let kept = self.persisted.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default();
        let shown = |(name, text): (String, String)| {
            let is_switch = find(&name).is_some_and(|d| matches!(d.ty, Type::Bool));
            let text = if is_switch { switch(&text).to_owned() } else { text };
            (name, text)
        };
        persisted::read(&kept).into_iter().map(shown).collect()
    }

    /// SET GLOBAL; `None`: MySQL's default again. Returns a warning where another value is taken.
    ///
    /// # Errors
    /// The variable has no such value (1231, 1232), nobody may set it (1238), or it is of sessions alone (1228).
    pub(super) fn set(&self, name: &str, value: Option<&Datum<'_>>) -> Result<Option<SqlError>> {
        let (new, warning) = self.values_of(name, value)?;
        let mut values = self.values();
        for (name, text) in new {
            match text {
                Some(text) => values.insert(name, text),
                None => values.remove(name),
            };
        }
        self.put_in_force(&values);
        Ok(warning)
    }

    /// The values that this would set (`None`: MySQL's default), perhaps of several variables, and a warning.
    pub(super) fn values_of(&self, name: &str, value: Option<&Datum<'_>>) -> Result<(Texts, Option<SqlError>)> {
        let d = find(name).ok_or_else(|| errors::unknown_variable(name))?;
        match (d.scope, value) {
            (Scope::Nobody | Scope::Told, _) => return Err(errors::read_only_variable(name)),
            (Scope::Session, _) => return Err(errors::session_variable(name)),
            (Scope::Global, None) => return Ok((Texts::from([(d.name, None)]), None)),
            (Scope::Global, Some(value)) => {
                let (mut text, warning) = d.check(value)?;
                if d.name == COMPRESSION {
                    if !matches!(value, Datum::Text(_)) {
                        return Err(errors::wrong_variable_type(name));
                    }
                    Algorithms::parse(&text).ok_or_else(|| errors::wrong_variable_value(name, &text))?;
                }
                let wrong = |text: &str| errors::wrong_variable_value(name, text);
                match d.name {
                    LOG_OUTPUT => text = Outputs::parse(&text).ok_or_else(|| wrong(&text))?.1.to_owned(),
                    SLOW_FILE => {
                        if !matches!(value, Datum::Text(_) | Datum::Null) {
                            return Err(errors::wrong_variable_type(name));
                        }
                        let file = self.slow.beside(&text).ok_or_else(|| wrong(&text))?;
                        text = file.display().to_string();
                    }
                    _ => {}
                }
                return Ok((Texts::from([(d.name, Some(text))]), warning));
            }
            (Scope::Both, _) => {}
        }
        // What a session would make of it.
        let mut session = Variables::default();
        let warning = session.set(name, value)?;
        Ok((session.set.into_iter().map(|(name, text)| (name, Some(text))).collect(), warning))
    }
}

type Texts = BTreeMap<&'static str, Option<String>>;
