//! One connection from greeting to end: authentication, command loop, dispatch.
//!
//! ```text
//! greeting -> login -> (authentication switch) -> open session -> commands -> close session
//! ```
//!
//! The loop handles every complete packet that has arrived, then writes all answers at once, then waits for more
//! input, for the idle time-out or for KILL. Bytes that do not parse as a command are answered with an error; bytes
//! that break the framing end the connection, because nothing behind them can be trusted.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use apus_types::collate::Charset;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    Engine, Output,
    duplex::{Duplex, Left},
    limits,
    listener::Shared,
    metered::Metered,
    output::write_bounded,
    registry::Slot,
    statements::Statements,
    tls::{TlsSession, Transport},
};
use crate::wire::{
    SqlError,
    auth::{AuthPlugin, SCRAMBLE_BYTES, Scramble},
    capability,
    characters::{self, read_text},
    command::{Command, decode_command},
    compressed::{self, Compression},
    handshake::{Attributes, ClientHello, CompressionAsked, Login, Offer, decode_client_hello, write_greeting},
    packet::{Packet, PacketBuffer, PacketReader},
    params::split_attributes,
    result::{ResultState, write_error},
    status,
};

/// Why a connection ends without further words.
pub(super) struct Gone;

/// What the command loop does after a command.
#[derive(Debug, PartialEq, Eq)]
enum Flow {
    Continue,
    Quit,
    ChangeUser,
}

/// What ended a wait for input.
enum Waited {
    Bytes,
    Closed,
    Killed,
    TimedOut,
    /// What came is no compressed packet.
    Refused,
}

/// A login with its texts copied out of the input buffer.
pub(super) struct Credentials {
    pub capabilities: u32,
    pub charset: u16,
    pub user: String,
    pub response: Vec<u8>,
    pub plugin: Option<AuthPlugin>,
    pub database: Option<String>,
    pub attributes: Vec<(String, String)>,
    pub compression: CompressionAsked,
    /// Of CHANGE_USER.
    pub is_change: bool,
}

pub(super) struct Connection<E: Engine> {
    pub(super) shared: Arc<Shared>,
    pub(super) engine: Rc<E>,
    pub(super) slot: Slot,
    pub(super) scramble: Scramble,
    pub(super) input: PacketReader,
    pub(super) output: PacketBuffer,
    pub(super) state: ResultState,
    pub(super) statements: Statements,
    pub(super) capabilities: u32,
    pub(super) tls: Option<TlsSession>,
    pub(super) compression: Compression,
}

impl<E: Engine> Connection<E> {
    pub fn new(shared: Arc<Shared>, engine: Rc<E>, slot: Slot) -> Connection<E> {
        let statements = Statements::new(shared.held.clone());
        Connection {
            shared,
            engine,
            slot,
            scramble: Scramble::from_random([0; SCRAMBLE_BYTES]),
            input: PacketReader::new(limits::HANDSHAKE_PACKET_MAX),
            output: PacketBuffer::new(),
            state: ResultState::new(0),
            statements,
            capabilities: 0,
            tls: None,
            compression: Compression::None,
        }
    }

    /// Serves the connection until either side ends it.
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut self, stream: S) {
        let mut stream = Transport::Plain(Metered::new(stream, self.slot.meter.clone()));
        let mut random = [0; SCRAMBLE_BYTES];
        if getrandom::fill(&mut random).is_err() {
            return; // Without entropy nobody can be authenticated.
        }
        self.scramble = Scramble::from_random(random);
        let limit = self.shared.config.handshake_timeout;
        let kill = self.slot.kill.clone();
        let logged_in = {
            let mut killed = pin!(kill.notified());
            // A login is larger than any command, and its room is given back.
            let mut log_in = Box::pin(timeout(limit, self.log_in(&mut stream)));
            poll_fn(|cx| match killed.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => log_in.as_mut().poll(cx).map(|done| done.ok().and_then(Result::ok)),
            })
            .await
        };
        let Some(mut session) = logged_in else { return };
        self.input.set_max_allowed_packet(self.shared.config.max_allowed_packet);
        let mut open = Some(&mut session);
        while let Some(current) = open.take() {
            if self.commands(&mut stream, current).await == Flow::ChangeUser
                && let Ok(Ok(next)) = Box::pin(timeout(limit, self.change_user(&mut stream))).await
            {
                let previous = std::mem::replace(current, next);
                self.engine.close(previous).await;
                open = Some(current);
            }
        }
        self.engine.close(session).await;
        // A client that is encrypted is told that this is the end, if it can be told at once.
        let _ = poll_fn(|cx| Poll::Ready(Pin::new(&mut stream).poll_shutdown(cx).is_ready())).await;
    }

    /// The command loop. The input holds complete packets or parts of them, the output is empty.
    async fn commands<S>(&mut self, stream: &mut S, session: &mut E::Session) -> Flow
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let kill = self.slot.kill.clone();
        let mut killed = pin!(kill.notified());
        let default_timeout = self.shared.config.wait_timeout;
        let mut idle = pin!(sleep_until(Instant::now() + default_timeout));
        loop {
            loop {
                let packet = match self.input.next_packet() {
                    Ok(Some(packet)) => packet,
                    Ok(None) => break,
                    Err(error) => {
                        self.output.set_sequence(1);
                        self.last_words(stream, &error.into()).await;
                        return Flow::Quit;
                    }
                };
                let flow = pin!(self.dispatch(stream, session, &packet)).await;
                match flow {
                    Flow::Continue => {}
                    Flow::Quit => {
                        let _ = self.flush(stream).await;
                        return Flow::Quit;
                    }
                    Flow::ChangeUser => return Flow::ChangeUser,
                }
                if self.output.pending() >= limits::OUTPUT_FLUSH_BYTES && self.flush(stream).await.is_err() {
                    return Flow::Quit;
                }
            }
            if self.flush(stream).await.is_err() {
                return Flow::Quit;
            }
            self.output.rest();
            if let Some(took) = self.slot.activity.rests(self.engine.database(session)) {
                self.engine.note_time(session, took);
            }
            let deadline = Instant::now() + self.engine.wait_timeout(session).unwrap_or(default_timeout);
            if deadline < idle.deadline() {
                idle.as_mut().reset(deadline);
            }
            let waited = wait_for_input(&mut self.input, stream, |cx| {
                if killed.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Waited::Killed);
                }
                // The timer is moved only when it fires early, not with every command.
                while idle.as_mut().poll(cx).is_ready() {
                    if Instant::now() >= deadline {
                        return Poll::Ready(Waited::TimedOut);
                    }
                    idle.as_mut().reset(deadline);
                }
                Poll::Pending
            })
            .await;
            let error = match waited {
                Waited::Bytes => continue,
                Waited::Closed => return Flow::Quit,
                Waited::Refused => compressed::refused(),
                Waited::Killed => SqlError::new(1927, b"70100", "Connection was killed"),
                Waited::TimedOut => SqlError::new(
                    4031,
                    b"HY000",
                    "The client was disconnected by the server because of inactivity. See wait_timeout.",
                ),
            };
            self.output.set_sequence(0);
            self.last_words(stream, &error).await;
            return Flow::Quit;
        }
    }

    /// Executes one command and appends its answer to the output.
    async fn dispatch<S>(&mut self, stream: &mut S, session: &mut E::Session, packet: &Packet) -> Flow
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let Connection { engine, input, output, state, statements, slot, capabilities, .. } = self;
        output.set_sequence(packet.sequence.wrapping_add(1));
        let command = decode_command(input.payload(packet));
        let (client, results) = engine.charsets(session);
        if let Ok(command) = &command {
            let prepared = match command {
                Command::Execute { statement, .. } => engine.prepared_text(session, *statement),
                _ => b"",
            };
            slot.activity.begins(command, prepared, (*capabilities, client));
        }
        state.start_command(matches!(command, Ok(Command::Execute { .. })), engine.status(session));
        state.speak(results);
        let mut out = Output::new(output, state, Duplex::new(stream, &slot.interrupt, input.rest()));
        let done = match command {
            Ok(Command::Execute { statement, flags, params }) => {
                let counted = *capabilities & capability::QUERY_ATTRIBUTES != 0;
                pin!(statements.execute(&**engine, session, (statement, flags, counted), params, &mut out)).await
            }
            Ok(Command::Query(body)) if *capabilities & capability::QUERY_ATTRIBUTES != 0 => {
                pin!(query_with_attributes::<E>(engine, session, body, &mut out)).await
            }
            Ok(Command::Query(sql)) => pin!(engine.query(session, sql, &mut out)).await,
            Ok(Command::Fetch { statement, rows }) => Box::pin(statements.fetch(statement, rows, &mut out)).await,
            Ok(Command::Prepare(sql)) => statements.prepare(&**engine, session, sql, &mut out).await,
            Ok(Command::CloseStatement(id)) => {
                if statements.close(id) {
                    engine.close_statement(session, id);
                }
                return Flow::Continue;
            }
            Ok(Command::SendLongData { statement, param, data }) => {
                statements.send_long_data(statement, param, data);
                return Flow::Continue;
            }
            Ok(Command::ResetStatement(id)) => statements.reset(id).map(|()| answer_ok::<E>(engine, session, &mut out)),
            Ok(Command::Quit) => {
                self.slot.meter.quits();
                return Flow::Quit;
            }
            Ok(Command::ChangeUser(_)) => return Flow::ChangeUser,
            Ok(other) => rare::<E>(engine, session, statements, (other, client), &mut out).await,
            Err(error) => Err(error.into()),
        };
        if let Err(error) = done {
            engine.note_failure(session, &error);
            out.error(error.errno, &error.sqlstate, &error.message);
        } else if !out.is_answered() {
            out.error(1105, b"HY000", "Internal error: the statement ended without a complete answer");
        }
        let Some(Left { input: behind, is_lost }) = out.into_client().map(Duplex::left) else { return Flow::Continue };
        if let Some(bytes) = behind {
            input.replace_rest(&bytes);
        }
        if is_lost { Flow::Quit } else { Flow::Continue }
    }

    async fn log_in<S>(&mut self, stream: &mut Transport<S>) -> Result<E::Session, Gone>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let shared = self.shared.clone();
        let tls = shared.config.tls.as_ref();
        self.output.set_sequence(0);
        let plugin = shared.accounts.greeting_plugin();
        let offer = Offer { tls: tls.is_some(), compression: self.engine.compression() };
        write_greeting(&mut self.output, self.slot.id, &self.scramble, plugin, offer);
        self.flush(stream).await?;
        let mut packet = self.receive(stream).await?;
        if let Some(tls) = tls
            && decode_client_hello(self.input.payload(&packet)) == Ok(ClientHello::TlsRequest)
        {
            stream.encrypt(tls, self.input.take_rest()).await.map_err(|_| Gone)?;
            packet = self.receive(stream).await?;
        }
        self.tls = stream.session();
        let hello = decode_client_hello(self.input.payload(&packet)).map_err(|_| SqlError::handshake());
        let credentials = hello.and_then(|hello| match hello {
            ClientHello::TlsRequest => Err(SqlError::new(
                1043,
                b"08S01",
                "Bad handshake: this server does not offer TLS; connect with TLS disabled",
            )),
            ClientHello::Login(_) if self.tls.is_none() && tls.is_some_and(|tls| tls.required) => Err(SqlError::new(
                3159,
                b"HY000",
                "Connections using insecure transport are prohibited while --require_secure_transport=ON.",
            )),
            ClientHello::Login(login) => Credentials::copy(&login),
        });
        let agreed = credentials.and_then(|credentials| {
            let CompressionAsked { zlib, zstd, level } = credentials.compression;
            offer.compression.choose(zlib, zstd, level).map(|how| (credentials, how))
        });
        let (credentials, how) = match agreed {
            Ok(agreed) => agreed,
            Err(error) => {
                self.last_words(stream, &error).await;
                return Err(Gone);
            }
        };
        self.compression = how;
        let session = self.authenticate(stream, credentials).await?;
        if how != Compression::None {
            stream.compress(how, self.input.take_rest());
        }
        Ok(session)
    }

    /// The next packet of the opening conversation.
    pub(super) async fn receive<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S) -> Result<Packet, Gone> {
        loop {
            match self.input.next_packet() {
                Ok(Some(packet)) => {
                    self.output.set_sequence(packet.sequence.wrapping_add(1));
                    return Ok(packet);
                }
                Ok(None) => {}
                Err(error) => {
                    self.last_words(stream, &error.into()).await;
                    return Err(Gone);
                }
            }
            let waited = wait_for_input(&mut self.input, stream, |_| Poll::Pending).await;
            if !matches!(waited, Waited::Bytes) {
                return Err(Gone);
            }
        }
    }

    /// Sends an error behind whatever waits in the output; the connection ends next.
    pub(super) async fn last_words<S: AsyncWrite + Unpin>(&mut self, stream: &mut S, error: &SqlError) {
        self.output.abandon();
        write_error(&mut self.output, error.errno, Some(&error.sqlstate), error.message.as_bytes());
        let _ = self.flush(stream).await;
    }

    pub(super) async fn flush<S: AsyncWrite + Unpin>(&mut self, stream: &mut S) -> Result<(), Gone> {
        if self.output.pending() == 0 {
            return Ok(());
        }
        let written = write_bounded(stream, self.output.complete()).await;
        self.output.clear();
        written.map_err(|_| Gone)
    }
}

/// A query whose text has attributes before it, mostly none.
async fn query_with_attributes<E: Engine>(
    engine: &E,
    session: &mut E::Session,
    body: &[u8],
    out: &mut Output<'_>,
) -> Result<(), SqlError> {
    let mut attributes = Vec::new();
    let sql = split_attributes(body, &mut attributes)?;
    if attributes.is_empty() {
        return pin!(engine.query(session, sql, out)).await;
    }
    engine.set_attributes(session, &attributes);
    let done = Box::pin(engine.query(session, sql, out)).await;
    engine.set_attributes(session, &[]);
    done
}

/// Commands outside of the hot path.
async fn rare<E: Engine>(
    engine: &E,
    session: &mut E::Session,
    statements: &mut Statements,
    (command, client): (Command<'_>, Charset),
    out: &mut Output<'_>,
) -> Result<(), SqlError> {
    match command {
        Command::Ping => engine.ping(session).await?,
        Command::InitDb(database) => engine.init_db(session, &read_text(client, database)?).await?,
        Command::ResetConnection => {
            engine.reset_connection(session).await?;
            statements.clear();
        }
        Command::FieldList { table, wildcard } => {
            let columns = engine.field_list(session, &read_text(client, table)?, &read_text(client, wildcard)?).await?;
            out.field_list(&columns);
            return Ok(());
        }
        Command::Statistics => {
            let text = engine.statistics(session);
            out.text(&text);
            return Ok(());
        }
        Command::SetOption(option @ (0 | 1)) => {
            engine.set_multi_statements(session, option == 0);
            out.end_of_data(0);
            return Ok(());
        }
        Command::ProcessKill(id) => {
            Box::pin(engine.kill(session, id)).await?;
        }
        _ => return Err(SqlError::unknown_command()),
    }
    answer_ok(engine, session, out);
    Ok(())
}

fn answer_ok<E: Engine>(engine: &E, session: &mut E::Session, out: &mut Output<'_>) {
    engine.tell_changes(session, out);
    out.set_status(engine.status(session) & !status::MORE_RESULTS_EXISTS);
    out.ok(0, 0, 0, "");
}

impl Credentials {
    pub fn copy(login: &Login<'_>) -> Result<Credentials, SqlError> {
        let client = characters::greeted(login.charset).charset();
        let owned = |bytes: &[u8]| read_text(client, bytes).map(Cow::into_owned).map_err(|_| SqlError::handshake());
        let kept = login.attributes.get(..limits::CONNECT_ATTRS_BYTES_MAX).unwrap_or(login.attributes);
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Credentials {
            capabilities: login.capabilities,
            charset: login.charset,
            user: owned(login.user)?,
            response: login.auth_response.to_vec(),
            plugin: AuthPlugin::from_name(login.plugin),
            database: login.database.map(owned).transpose()?,
            attributes: Attributes::new(kept).map(|(name, value)| (lossy(name), lossy(value))).collect(),
            compression: login.compression,
            is_change: false,
        })
    }
}

/// Reads once into the input buffer, or stops when `otherwise` has a reason; input is looked at first.
async fn wait_for_input<S: AsyncRead + Unpin>(
    input: &mut PacketReader,
    stream: &mut S,
    mut otherwise: impl FnMut(&mut std::task::Context<'_>) -> Poll<Waited>,
) -> Waited {
    poll_fn(|cx| {
        let mut space = ReadBuf::new(input.space());
        match Pin::new(&mut *stream).poll_read(cx, &mut space) {
            Poll::Ready(Ok(())) => {
                let count = space.filled().len();
                input.filled(count);
                Poll::Ready(if count > 0 { Waited::Bytes } else { Waited::Closed })
            }
            Poll::Ready(Err(error)) => Poll::Ready(match error.get_ref().is_some_and(|e| e.is::<SqlError>()) {
                true => Waited::Refused,
                false => Waited::Closed,
            }),
            Poll::Pending => otherwise(cx),
        }
    })
    .await
}
