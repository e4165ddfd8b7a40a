//! A MySQL connection as an application has one: blocking, one statement at a time, with a deadline.
//!
//! It logs in, sends text statements and reads answers to their end, rows as text. That is all the benchmarks need; the codec
//! is the server's own ([`apus_sql::wire`]).
//!
//! Of caching_sha2_password it knows the fast path only, as there is no TLS and no RSA here: a MySQL server must have the password in its cache, or the account
//! has none, or uses mysql_native_password.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use apus_sql::wire::{
    auth::{AuthPlugin, SCRAMBLE_BYTES, Scramble, respond},
    capability,
    cursor::Cursor,
    packet::{PacketBuffer, PacketReader},
};

/// Largest packet accepted.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Number that MySQL clients give a connection that could not be made.
pub const CANNOT_CONNECT: u16 = 2003;
/// Number that MySQL clients give a connection that broke, or stayed silent, during a statement.
pub const CONNECTION_LOST: u16 = 2013;

const CLIENT: u32 = capability::LONG_PASSWORD
    | capability::PROTOCOL_41
    | capability::TRANSACTIONS
    | capability::SECURE_CONNECTION
    | capability::PLUGIN_AUTH;
const COM_QUERY: u8 = 3;
const UTF8MB4: u8 = 255;

/// Why there is no good answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The server answered with an error; the connection is usable.
    Refused { errno: u16, message: String },
    /// The connection is of no use any more, and nobody said what became of the statement.
    Lost(String),
}

impl Failure {
    /// The number a MySQL client reports.
    pub fn errno(&self) -> u16 {
        match self {
            Failure::Refused { errno, .. } => *errno,
            Failure::Lost(_) => CONNECTION_LOST,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Refused { errno, message } => write!(f, "error {errno}: {message}"),
            Failure::Lost(reason) => write!(f, "connection lost: {reason}"),
        }
    }
}

/// Values of a row, as text.
pub type Row = Vec<Option<String>>;

/// Who logs in.
#[derive(Clone, Copy)]
pub struct Account<'a> {
    pub user: &'a str,
    pub password: &'a str,
}

fn lost(reason: impl ToString) -> Failure {
    Failure::Lost(reason.to_string())
}

pub struct Connection {
    stream: TcpStream,
    reader: PacketReader,
    out: PacketBuffer,
}

impl Connection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// The server is not there, does not answer in time, or refuses.
    pub fn open(address: SocketAddr, account: Account<'_>, deadline: Duration) -> Result<Connection, Failure> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        stream.set_write_timeout(Some(deadline)).map_err(lost)?;
        stream.set_read_timeout(Some(CONNECT_TIMEOUT)).map_err(lost)?;
        let mut connection =
            Connection { stream, reader: PacketReader::new(ANSWER_BYTES_MAX), out: PacketBuffer::new() };
        connection.login(account)?;
        connection.stream.set_read_timeout(Some(deadline)).map_err(lost)?;
        Ok(connection)
    }

    /// Whether the server ended the connection meanwhile; pools of connections look before they hand one out.
    pub fn is_stale(&self) -> bool {
        let mut byte = [0];
        if self.stream.set_nonblocking(true).is_err() {
            return true;
        }
        let seen = self.stream.peek(&mut byte);
        let silent = matches!(&seen, Err(e) if e.kind() == ErrorKind::WouldBlock);
        self.stream.set_nonblocking(false).is_err() || !silent
    }

    fn login(&mut self, Account { user, password }: Account<'_>) -> Result<(), Failure> {
        let greeting = self.packet()?;
        check_error(&greeting)?;
        let scramble = scramble_of(&greeting).ok_or_else(|| lost("the server's greeting holds no challenge"))?;
        self.out.set_sequence(1);
        let payload = self.out.begin();
        payload.extend_from_slice(&CLIENT.to_le_bytes());
        payload.extend_from_slice(&(ANSWER_BYTES_MAX as u32).to_le_bytes());
        payload.push(UTF8MB4);
        payload.extend_from_slice(&[0; 23]);
        payload.extend_from_slice(user.as_bytes());
        payload.push(0);
        let answer = respond(AuthPlugin::CachingSha2Password, &scramble, password);
        payload.push(answer.len() as u8); // 0 without a password
        payload.extend_from_slice(&answer);
        payload.extend_from_slice(b"caching_sha2_password\0");
        self.send()?;
        loop {
            let answer = self.packet()?;
            check_error(&answer)?;
            match answer.as_slice() {
                [0, ..] => return Ok(()),
                [1, 4, ..] => {
                    return Err(lost("the server wants the password over TLS or RSA, which this client has not"));
                }
                [1, ..] => {} // fast authentication succeeded; OK follows
                [0xfe, asked @ ..] => {
                    let mut asked = asked.splitn(2, |&byte| byte == 0);
                    let plugin = asked.next().and_then(AuthPlugin::from_name);
                    let challenge: Option<[u8; SCRAMBLE_BYTES]> =
                        asked.next().and_then(|c| c.get(..SCRAMBLE_BYTES)?.try_into().ok());
                    let answer = match (plugin, challenge) {
                        _ if password.is_empty() => Vec::new(),
                        (Some(plugin), Some(bytes)) => respond(plugin, &Scramble::from_random(bytes), password),
                        _ => return Err(lost("the server wants to be answered in a way that is not known here")),
                    };
                    self.out.set_sequence(3);
                    self.out.begin().extend_from_slice(&answer);
                    self.send()?;
                }
                _ => return Err(lost("the server does not speak MySQL's protocol")),
            }
        }
    }

    /// Executes a statement and reads its answer to the end; how many rows it changed.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn execute(&mut self, sql: &str) -> Result<u64, Failure> {
        self.ask(sql, |_| Ok(()))
    }

    /// The rows of a statement's answer.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn query(&mut self, sql: &str) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        self.ask(sql, |packet| {
            rows.push(row_of(packet)?);
            Ok(())
        })?;
        Ok(rows)
    }

    /// The number of rows changed; of an answer with rows each of them is given to `take`.
    fn ask(&mut self, sql: &str, mut take: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<u64, Failure> {
        self.out.set_sequence(0);
        let payload = self.out.begin();
        payload.push(COM_QUERY);
        payload.extend_from_slice(sql.as_bytes());
        self.send()?;
        let answer = self.packet()?;
        check_error(&answer)?;
        if answer.first() == Some(&0) {
            return Cursor::new(&answer[1..]).lenenc().map_err(|e| lost(format!("{e:?}")));
        }
        // Columns and rows, each list ended by EOF.
        for is_row in [false, true] {
            loop {
                let packet = self.packet()?;
                check_error(&packet)?;
                if packet.first() == Some(&0xfe) && packet.len() < 9 {
                    break;
                }
                if is_row {
                    take(&packet)?;
                }
            }
        }
        Ok(0)
    }

    fn send(&mut self) -> Result<(), Failure> {
        self.out.end();
        let done = self.stream.write_all(self.out.complete());
        self.out.clear();
        done.map_err(lost)
    }

    fn packet(&mut self) -> Result<Vec<u8>, Failure> {
        loop {
            if let Some(packet) = self.reader.next_packet().map_err(|e| lost(format!("{e:?}")))? {
                return Ok(self.reader.payload(&packet).to_vec());
            }
            match self.stream.read(self.reader.space()).map_err(lost)? {
                0 => return Err(lost("the server closed the connection")),
                count => self.reader.filled(count),
            }
        }
    }
}

/// The values of a row of the text protocol.
fn row_of(packet: &[u8]) -> Result<Row, Failure> {
    const NULL: u8 = 0xfb;
    let mut row = Row::new();
    let mut left = packet;
    while let Some(&first) = left.first() {
        if first == NULL {
            row.push(None);
            left = &left[1..];
            continue;
        }
        let mut cursor = Cursor::new(left);
        let bytes = cursor.lenenc_bytes().map_err(|e| lost(format!("{e:?}")))?;
        row.push(Some(String::from_utf8_lossy(bytes).into_owned()));
        left = cursor.rest();
    }
    Ok(row)
}

/// The challenge of a greeting: 8 bytes behind version and connection id, 12 more behind flags and 10 reserved bytes.
fn scramble_of(greeting: &[u8]) -> Option<Scramble> {
    let version = greeting.get(1..)?.iter().position(|&byte| byte == 0)?;
    let at = 1 + version + 1 + 4;
    let mut bytes = [0; SCRAMBLE_BYTES];
    bytes[..8].copy_from_slice(greeting.get(at..at + 8)?);
    bytes[8..].copy_from_slice(greeting.get(at + 27..at + 39)?);
    Some(Scramble::from_random(bytes))
}

fn check_error(packet: &[u8]) -> Result<(), Failure> {
    if packet.first() != Some(&0xff) {
        return Ok(());
    }
    let mut cursor = Cursor::new(&packet[1..]);
    let errno = cursor.u16().map_err(|e| lost(format!("{e:?}")))?;
    let text = String::from_utf8_lossy(cursor.rest());
    // '#' and five bytes of state come first once a client has authenticated.
    let message = text.strip_prefix('#').and_then(|t| t.get(5..)).unwrap_or(&text).to_owned();
    Err(Failure::Refused { errno, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_text_is_taken_apart() {
        let wanted = vec![Some("ab".to_owned()), None, Some(String::new())];
        assert_eq!(row_of(b"\x02ab\xfb\x00"), Ok(wanted));
        assert!(matches!(row_of(b"\x05ab"), Err(Failure::Lost(_))));
    }

    #[test]
    fn an_error_packet_is_told_apart() {
        assert_eq!(check_error(&[0, 1, 2]), Ok(()));
        let refused = Failure::Refused { errno: 1213, message: "again".to_owned() };
        assert_eq!(refused.errno(), 1213);
        assert_eq!(check_error(b"\xff\xbd\x04#40001again"), Err(refused));
        assert!(matches!(check_error(&[0xff, 1]), Err(Failure::Lost(_))));
    }
}
