//! Character sets and collations of a session.

use apus_types::collate::{Charset, Collation};

use super::{Variables, definitions};
use crate::wire::{characters, foreign::Quoting};

impl Variables {
    /// Both variables of a pair: `_connection`, `_database` or `_server`.
    pub(super) fn set_pair(&mut self, end: &str, collation: Collation) {
        let find = |head: &str| definitions::all().iter().find(|d| d.name.strip_prefix(head) == Some(end));
        for (definition, text) in
            [(find("character_set"), collation.charset().name()), (find("collation"), collation.name())]
        {
            if let Some(d) = definition {
                self.set.insert(d.name, text.to_owned());
            }
        }
        match end {
            "_connection" => self.connection = collation,
            "_server" => self.of_databases = collation,
            _ => {}
        }
    }

    /// SET NAMES.
    pub fn set_names(&mut self, collation: Collation) {
        self.speak_as((collation.charset(), collation));
        self.results = collation.charset();
        self.set.insert("character_set_results", collation.charset().name().to_owned());
    }

    /// Texts are read in this character set, and literals have this collation; what was before.
    pub fn speak_as(&mut self, (client, connection): (Charset, Collation)) -> (Charset, Collation) {
        let before = self.spoken();
        if before != (client, connection) {
            self.client = client;
            self.set.insert("character_set_client", client.name().to_owned());
            self.set_connection(connection);
        }
        before
    }

    /// What a client asks for when it connects; of what is not there it gets utf8mb4.
    pub fn greet(&mut self, collation: u16) {
        self.set_names(characters::greeted(collation));
    }

    /// In which the client speaks, and in which it is told results.
    pub fn charsets(&self) -> (Charset, Charset) {
        (self.client, self.results)
    }

    /// In which the client speaks, and the collation of its literals.
    pub fn spoken(&self) -> (Charset, Collation) {
        (self.client, self.connection)
    }

    /// How the statements of the client are read.
    pub fn quoting(&self) -> Quoting {
        Quoting { of_names: self.syntax.ansi_quotes, no_backslash: self.syntax.no_backslash }
    }

    pub fn set_connection(&mut self, collation: Collation) {
        self.set_pair("_connection", collation);
    }

    /// The database is another; `None`: there is none.
    pub fn set_database(&mut self, collation: Option<Collation>) {
        self.set_pair("_database", collation.unwrap_or(self.of_databases));
    }

    /// `character_set_database`.
    pub fn of_database(&self) -> Charset {
        let name = self.set.get("character_set_database");
        name.and_then(|name| Charset::from_name(name)).unwrap_or(Charset::Utf8mb4)
    }

    /// The collation of literals.
    pub fn connection(&self) -> Collation {
        self.connection
    }

    /// The collation of new databases that name none.
    pub fn of_databases(&self) -> Collation {
        self.of_databases
    }
}
