//! Errors of the front end: what a client is told, and why its bytes were refused.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use apus_types::ErrorCode;

/// An error as a MySQL client sees it: number, SQLSTATE and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlError {
    /// MySQL's error number, for example 1146.
    pub errno: u16,
    /// Five characters, for example `42S02`.
    pub sqlstate: [u8; 5],
    /// The text shown to the user.
    pub message: String,
}

impl SqlError {
    pub fn new(errno: u16, sqlstate: &[u8; 5], message: impl Into<String>) -> SqlError {
        SqlError { errno, sqlstate: *sqlstate, message: message.into() }
    }

    /// 1047: a command the server does not know or does not serve.
    pub fn unknown_command() -> SqlError {
        SqlError::new(1047, b"08S01", "Unknown command")
    }

    /// 1153: a packet longer than `max_allowed_packet`.
    pub fn packet_too_large() -> SqlError {
        SqlError::new(1153, b"08S01", "Got a packet bigger than 'max_allowed_packet' bytes")
    }

    /// 1835: a packet whose content does not parse.
    pub fn malformed_packet() -> SqlError {
        SqlError::new(1835, b"HY000", "Malformed communication packet.")
    }

    /// 1300: bytes that are no characters; the first six of them are shown.
    pub fn invalid_characters(charset: &str, text: &[u8]) -> SqlError {
        let valid = std::str::from_utf8(text).map_or_else(|e| e.valid_up_to(), str::len);
        let valid = if valid == text.len() { text.iter().position(|b| *b >= 0x80).unwrap_or(0) } else { valid };
        SqlError::no_characters(charset, &text[valid..])
    }

    /// 1300: bytes that begin with what is no character; the first six of them are shown.
    pub fn no_characters(charset: &str, text: &[u8]) -> SqlError {
        let shown: String = text.iter().take(6).map(|b| format!("{b:02X}")).collect();
        SqlError::new(1300, b"HY000", format!("Invalid {charset} character string: '{shown}'"))
    }

    /// 1043: the client's handshake does not parse.
    pub fn handshake() -> SqlError {
        SqlError::new(1043, b"08S01", "Bad handshake")
    }

    /// 1297: the data nodes have not answered for so long.
    pub fn no_answer(wait: Duration) -> SqlError {
        SqlError::new(1297, b"HY000", format!("{} (no answer for {wait:?})", ErrorCode::NoNodeAvailable))
    }

    /// 1040.
    pub fn too_many_connections() -> SqlError {
        SqlError::new(1040, b"08004", "Too many connections")
    }

    /// 1243: a statement id that names no prepared statement of this connection.
    pub fn unknown_statement(id: u32) -> SqlError {
        let text = format!("Unknown prepared statement handler ({id}) given to mysql_stmt_precheck");
        SqlError::new(1243, b"HY000", text)
    }

    /// 1421: rows are to be fetched of a statement that was not executed with a cursor, or whose rows have ended.
    pub fn no_open_cursor(id: u32) -> SqlError {
        SqlError::new(1421, b"HY000", format!("The statement ({id}) has no open cursor."))
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = String::from_utf8_lossy(&self.sqlstate);
        write!(f, "ERROR {} ({state}): {}", self.errno, self.message)
    }
}

impl std::error::Error for SqlError {}

/// Bytes that are not a valid message; names the field that did not parse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError(pub Cow<'static, str>);

impl DecodeError {
    pub const fn new(what: &'static str) -> DecodeError {
        DecodeError(Cow::Borrowed(what))
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed packet: {}", self.0)
    }
}

impl std::error::Error for DecodeError {}

impl From<DecodeError> for SqlError {
    fn from(_: DecodeError) -> SqlError {
        SqlError::malformed_packet()
    }
}
