//! A MySQL connection as an application has one: blocking, one statement at a time, with a deadline.
//!
//! It logs in as `root`, sends text statements and reads answers to their end. That is all the probe needs; the codec
//! is the server's own ([`apus_sql::wire`]).

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

/// Largest answer accepted.
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
    pub fn open(address: SocketAddr, password: &str, deadline: Duration) -> Result<Connection, Failure> {
        let stream = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        stream.set_write_timeout(Some(deadline)).map_err(lost)?;
        stream.set_read_timeout(Some(CONNECT_TIMEOUT)).map_err(lost)?;
        let mut connection =
            Connection { stream, reader: PacketReader::new(ANSWER_BYTES_MAX), out: PacketBuffer::new() };
        connection.login(password)?;
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

    fn login(&mut self, password: &str) -> Result<(), Failure> {
        let greeting = self.packet()?;
        check_error(&greeting)?;
        let scramble = scramble_of(&greeting).ok_or_else(|| lost("the server's greeting holds no challenge"))?;
        self.out.set_sequence(1);
        let payload = self.out.begin();
        payload.extend_from_slice(&CLIENT.to_le_bytes());
        payload.extend_from_slice(&(ANSWER_BYTES_MAX as u32).to_le_bytes());
        payload.push(UTF8MB4);
        payload.extend_from_slice(&[0; 23]);
        payload.extend_from_slice(b"root\0");
        let answer = respond(AuthPlugin::CachingSha2Password, &scramble, password);
        payload.push(answer.len() as u8); // 0 without a password
        payload.extend_from_slice(&answer);
        payload.extend_from_slice(b"caching_sha2_password\0");
        self.send()?;
        loop {
            let answer = self.packet()?;
            check_error(&answer)?;
            match answer.first() {
                Some(0) => return Ok(()),
                Some(1) => {} // fast authentication succeeded; OK follows
                // To the plugin of an account without password, whose answer is empty.
                Some(0xfe) if password.is_empty() => {
                    self.out.set_sequence(3);
                    self.out.begin();
                    self.send()?;
                }
                _ => return Err(lost("the server does not speak MySQL's protocol")),
            }
        }
    }

    /// Executes a statement and reads its answer to the end.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn execute(&mut self, sql: &str) -> Result<(), Failure> {
        self.out.set_sequence(0);
        let payload = self.out.begin();
        payload.push(COM_QUERY);
        payload.extend_from_slice(sql.as_bytes());
        self.send()?;
        let answer = self.packet()?;
        check_error(&answer)?;
        if answer.first() == Some(&0) {
            return Ok(());
        }
        // Columns and rows, each list ended by EOF.
        for _ in 0..2 {
            loop {
                let packet = self.packet()?;
                check_error(&packet)?;
                if packet.first() == Some(&0xfe) && packet.len() < 9 {
                    break;
                }
            }
        }
        Ok(())
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
    fn an_error_packet_is_told_apart() {
        assert_eq!(check_error(&[0, 1, 2]), Ok(()));
        let refused = Failure::Refused { errno: 1213, message: "again".to_owned() };
        assert_eq!(refused.errno(), 1213);
        assert_eq!(check_error(b"\xff\xbd\x04#40001again"), Err(refused));
        assert!(matches!(check_error(&[0xff, 1]), Err(Failure::Lost(_))));
    }
}
