//! The front end on a real socket, spoken to by hand-written client bytes: login, commands, pipelining, limits,
//! failures of the engine.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use apus_sql::accounts::{Account, AccountName, Auth, Requires, Secret, password};
use apus_sql::wire::auth::{AuthPlugin, SCRAMBLE_BYTES, Scramble, respond};
use apus_sql::{
    server::{Accounts, ConnectionInfo, Engine, Output, PreparedInfo, Server, ServerConfig, limits, status},
    wire::{ColumnDef, ColumnType, ParamValue, SqlError, capability},
};
use tokio_rustls::rustls::pki_types::pem::PemObject;

/// Echoes what it is given.
struct Echo {
    worker: usize,
}

struct Session {
    info: ConnectionInfo,
    status: u16,
    statements: u32,
}

fn one_value(out: &mut Output<'_>, column_type: ColumnType, status: u16, cell: impl FnOnce(&mut Output<'_>)) {
    out.begin_rows(&[ColumnDef::expression("v", column_type, 20)]);
    out.row_start();
    cell(out);
    out.row_end();
    out.end_rows(0, status);
}

impl Engine for Echo {
    type Session = Session;

    async fn open(&self, info: ConnectionInfo) -> Result<Session, SqlError> {
        if info.database.as_deref() == Some("missing") {
            return Err(SqlError::new(1049, b"42000", "Unknown database 'missing'"));
        }
        if info.database.as_deref() == Some("asleep") {
            std::future::pending::<()>().await;
        }
        Ok(Session { info, status: status::AUTOCOMMIT, statements: 0 })
    }

    async fn kill(&self, session: &mut Session, id: u32) -> Result<(), SqlError> {
        let is_there = session.info.registry.kill(id);
        is_there.then_some(()).ok_or_else(|| SqlError::new(1094, b"HY000", format!("Unknown thread id: {id}")))
    }

    async fn query(&self, session: &mut Session, sql: &[u8], out: &mut Output<'_>) -> Result<(), SqlError> {
        match sql {
            b"begin" => {
                session.status |= status::IN_TRANS;
                out.set_status(session.status);
                out.ok(0, 0, 0, "");
            }
            b"user" => one_value(out, ColumnType::VarString, session.status, |o| o.bytes(session.info.user.as_bytes())),
            b"worker" => one_value(out, ColumnType::LongLong, session.status, |o| o.uint(self.worker as u64)),
            b"two" => {
                out.set_more_results(true);
                one_value(out, ColumnType::Long, session.status, |o| o.int(1));
                out.set_more_results(false);
                out.ok(7, 0, 0, "");
            }
            b"long" => {
                out.begin_rows(&[ColumnDef::expression("v", ColumnType::LongLong, 20)]);
                for n in 0..500_000 {
                    out.row_start();
                    out.int(n);
                    out.row_end();
                    out.flush_if_full().await?;
                }
                out.end_rows(0, session.status);
            }
            b"panic" => panic!("a planted panic"),
            b"silent" => {}
            b"half" => {
                out.begin_rows(&[ColumnDef::expression("v", ColumnType::Long, 20)]);
                out.row_start();
                return Err(SqlError::new(1205, b"HY000", "Lock wait timeout exceeded; try restarting transaction"));
            }
            _ => return Err(SqlError::new(1064, b"42000", "You have an error in your SQL syntax")),
        }
        Ok(())
    }

    async fn prepare(&self, session: &mut Session, sql: &[u8]) -> Result<PreparedInfo, SqlError> {
        session.statements += 1;
        let params = sql.iter().filter(|&&b| b == b'?').count();
        let columns = vec![ColumnDef::expression("v", ColumnType::VarString, 20)];
        Ok(PreparedInfo { id: session.statements, params: vec![ColumnDef::parameter(); params], columns, warnings: 0 })
    }

    async fn execute(
        &self,
        session: &mut Session,
        _id: u32,
        params: &[ParamValue<'_>],
        out: &mut Output<'_>,
    ) -> Result<(), SqlError> {
        let text = format!("{params:?}");
        one_value(out, ColumnType::VarString, session.status, |o| o.bytes(text.as_bytes()));
        Ok(())
    }

    fn close_statement(&self, _session: &mut Session, _id: u32) {}

    async fn init_db(&self, session: &mut Session, database: &str) -> Result<(), SqlError> {
        session.info.database = Some(database.to_owned());
        Ok(())
    }

    async fn field_list(&self, _: &mut Session, table: &str, _: &str) -> Result<Vec<ColumnDef>, SqlError> {
        Ok(vec![ColumnDef::expression(table, ColumnType::Long, 11)])
    }

    async fn reset_connection(&self, session: &mut Session) -> Result<(), SqlError> {
        session.status = status::AUTOCOMMIT;
        Ok(())
    }

    async fn ping(&self, _: &mut Session) -> Result<(), SqlError> {
        Ok(())
    }

    fn set_multi_statements(&self, _: &mut Session, _: bool) {}

    fn statistics(&self, _: &Session) -> String {
        "Uptime: 1".into()
    }

    fn status(&self, session: &Session) -> u16 {
        session.status
    }

    async fn close(&self, _: Session) {}
}

fn server(change: impl FnOnce(&mut ServerConfig)) -> Server {
    let mut accounts = Accounts::root_without_password();
    accounts.add("native", "secret", AuthPlugin::NativePassword);
    accounts.add("sha2", "secret", AuthPlugin::CachingSha2Password);
    server_of(accounts, change)
}

fn server_of(accounts: Accounts, change: impl FnOnce(&mut ServerConfig)) -> Server {
    let mut config = ServerConfig::new("127.0.0.1:0".parse().unwrap(), 2);
    change(&mut config);
    Server::start(config, accounts, async |worker| Ok(Echo { worker })).unwrap()
}

struct Client {
    stream: TcpStream,
    scramble: Scramble,
    last_sequence: u8,
}

impl Client {
    fn connect(server: &Server) -> Client {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut client = Client { stream, scramble: Scramble::from_random([0; SCRAMBLE_BYTES]), last_sequence: 0 };
        let greeting = client.packet();
        if greeting[0] == 10 {
            let at = greeting.iter().position(|&b| b == 0).unwrap() + 5;
            let mut scramble = [0; SCRAMBLE_BYTES];
            scramble[..8].copy_from_slice(&greeting[at..at + 8]);
            scramble[8..].copy_from_slice(&greeting[at + 27..at + 39]);
            client.scramble = Scramble::from_random(scramble);
        } else {
            assert_eq!(greeting[0], 0xff);
        }
        client
    }

    fn root(server: &Server) -> Client {
        let mut client = Client::connect(server);
        client.log_in("root", "", AuthPlugin::CachingSha2Password, None);
        assert_eq!(client.packet()[0], 0);
        client
    }

    fn log_in(&mut self, user: &str, password: &str, plugin: AuthPlugin, database: Option<&str>) {
        let mut capabilities = capability::SERVER & !(capability::CONNECT_ATTRS | capability::QUERY_ATTRIBUTES);
        if database.is_none() {
            capabilities &= !capability::CONNECT_WITH_DB;
        }
        let mut p = capabilities.to_le_bytes().to_vec();
        p.extend([0, 0, 0, 1, 45]);
        p.extend([0; 23]);
        p.extend(user.as_bytes());
        p.push(0);
        let response = respond(plugin, &self.scramble, password);
        p.push(response.len() as u8);
        p.extend(response);
        if let Some(database) = database {
            p.extend(database.as_bytes());
            p.push(0);
        }
        p.extend(plugin.name().as_bytes());
        p.push(0);
        self.send(1, &p);
    }

    fn send(&mut self, sequence: u8, payload: &[u8]) {
        let mut bytes = (payload.len() as u32).to_le_bytes();
        bytes[3] = sequence;
        self.stream.write_all(&[&bytes[..], payload].concat()).unwrap();
    }

    /// The server asks for the password itself, which goes encrypted by its public key.
    fn send_password(&mut self, password: &str) {
        use aws_lc_rs::rsa::{OAEP_SHA1_MGF1SHA1, OaepPublicEncryptingKey, PublicEncryptingKey};
        assert_eq!(self.packet(), [1, 4]);
        self.send(self.last_sequence + 1, &[2]);
        let pem = self.packet();
        assert_eq!(pem[0], 1);
        let der = tokio_rustls::rustls::pki_types::SubjectPublicKeyInfoDer::from_pem_slice(&pem[1..]).unwrap();
        let key = OaepPublicEncryptingKey::new(PublicEncryptingKey::from_der(&der).unwrap()).unwrap();
        let mask = self.scramble.as_bytes().iter().cycle();
        let masked: Vec<u8> = password.bytes().chain([0]).zip(mask).map(|(a, b)| a ^ b).collect();
        let mut space = vec![0; key.ciphertext_size()];
        let sent = key.encrypt(&OAEP_SHA1_MGF1SHA1, &masked, &mut space, None).unwrap().to_vec();
        self.send(self.last_sequence + 1, &sent);
    }

    fn command(&mut self, code: u8, body: &[u8]) {
        self.send(0, &[&[code][..], body].concat());
    }

    fn packet(&mut self) -> Vec<u8> {
        self.try_packet().expect("a packet")
    }

    /// None at the end of the connection.
    fn try_packet(&mut self) -> Option<Vec<u8>> {
        let mut header = [0; 4];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => return None,
            Err(e) => panic!("{e}"),
        }
        self.last_sequence = header[3];
        let mut payload = vec![0; u32::from_le_bytes([header[0], header[1], header[2], 0]) as usize];
        self.stream.read_exact(&mut payload).unwrap();
        Some(payload)
    }

    /// One column, one row: returns the cell and the status of the end packet.
    fn single(&mut self, binary: bool) -> (Vec<u8>, u16) {
        assert_eq!(self.packet(), [1]);
        self.packet();
        let row = self.packet();
        let end = self.packet();
        assert_eq!(end[0], 0xfe);
        let cell = if binary { row[3..].to_vec() } else { row[1..].to_vec() };
        (cell, u16::from_le_bytes([end[3], end[4]]))
    }

    fn query(&mut self, sql: &str) -> String {
        self.command(3, sql.as_bytes());
        String::from_utf8(self.single(false).0).unwrap()
    }

    fn expect_error(&mut self, errno: u16) {
        let packet = self.packet();
        assert_eq!(packet[0], 0xff, "{packet:?}");
        assert_eq!(u16::from_le_bytes([packet[1], packet[2]]), errno, "{}", String::from_utf8_lossy(&packet[3..]));
    }

    fn expect_ok(&mut self) {
        let packet = self.packet();
        assert_eq!(packet[0], 0, "{}", String::from_utf8_lossy(&packet));
    }
}

#[test]
fn logins_of_both_plugins_with_and_without_switch() {
    let server = server(|_| {});
    for (user, plugin) in [("native", AuthPlugin::NativePassword), ("sha2", AuthPlugin::CachingSha2Password)] {
        for asked in [AuthPlugin::NativePassword, AuthPlugin::CachingSha2Password] {
            for (password, right) in [("secret", true), ("wrong", false)] {
                let mut client = Client::connect(&server);
                client.log_in(user, password, asked, None);
                if asked != plugin {
                    let switch = client.packet();
                    assert_eq!(switch[0], 0xfe);
                    assert!(switch[1..].starts_with(plugin.name().as_bytes()));
                    let answer = respond(plugin, &client.scramble, password);
                    client.send(client.last_sequence + 1, &answer);
                }
                if !right {
                    if plugin == AuthPlugin::CachingSha2Password {
                        client.send_password(password);
                    }
                    client.expect_error(1045);
                    assert!(client.try_packet().is_none());
                    continue;
                }
                if plugin == AuthPlugin::CachingSha2Password {
                    assert_eq!(client.packet(), [1, 3]);
                }
                client.expect_ok();
                assert_eq!(client.query("user"), user);
            }
        }
    }
    for (user, password, plugin) in
        [("nobody", "", AuthPlugin::CachingSha2Password), ("root", "x", AuthPlugin::NativePassword)]
    {
        let mut client = Client::connect(&server);
        client.log_in(user, password, plugin, None);
        client.expect_error(1045);
    }
    let mut client = Client::connect(&server);
    client.log_in("nobody", "x", AuthPlugin::CachingSha2Password, None);
    client.send_password("x"); // as of a user that is there
    client.expect_error(1045);
    let mut client = Client::connect(&server);
    client.log_in("root", "", AuthPlugin::CachingSha2Password, Some("missing"));
    client.expect_error(1049);
}

/// Accounts as the cluster keeps them.
fn kept() -> Vec<Account> {
    let account =
        |user: &str, host: &str, plugin, secret| Account::new(AccountName::new(user, host), Auth { plugin, secret });
    let sha2 = AuthPlugin::CachingSha2Password;
    vec![
        account("sha", "%", sha2, password::sha2("pass word", [7; 20])),
        account("old", "localhost", AuthPlugin::NativePassword, password::native("old")),
        account("far", "10.%", sha2, Secret::Empty),
        Account { is_locked: true, ..account("locked", "%", sha2, Secret::Empty) },
        Account { requires: Requires::Encryption, ..account("tls", "%", sha2, Secret::Empty) },
        Account { max_user_connections: 1, ..account("one", "%", sha2, Secret::Empty) },
    ]
}

#[test]
fn a_password_is_sent_once_and_proved_from_then_on() {
    let accounts = Accounts::root_without_password();
    accounts.install(1, kept());
    let server = server_of(accounts.clone(), |_| {});
    for (password, right) in [("wrong", false), ("pass word", true)] {
        let mut client = Client::connect(&server);
        client.log_in("sha", password, AuthPlugin::CachingSha2Password, None);
        client.send_password(password);
        if right {
            client.expect_ok();
        } else {
            client.expect_error(1045);
        }
    }
    for _ in 0..2 {
        let mut client = Client::connect(&server);
        client.log_in("sha", "pass word", AuthPlugin::CachingSha2Password, None);
        assert_eq!(client.packet(), [1, 3]);
        client.expect_ok();
    }
    let mut client = Client::connect(&server);
    client.log_in("old", "old", AuthPlugin::NativePassword, None);
    client.expect_ok();
    // What is no password encrypted by the key is refused.
    for junk in [&b""[..], &[2, 2], &[0; 256]] {
        let mut client = Client::connect(&server);
        client.log_in("sha", "other", AuthPlugin::CachingSha2Password, None);
        assert_eq!(client.packet(), [1, 4]);
        client.send(client.last_sequence + 1, junk);
        client.expect_error(1045);
    }
    // Another password: what was remembered is forgotten.
    let mut other = kept();
    other[0].auth.secret = password::sha2("new", [8; 20]);
    accounts.install(2, other);
    let mut client = Client::connect(&server);
    client.log_in("sha", "pass word", AuthPlugin::CachingSha2Password, None);
    client.send_password("pass word");
    client.expect_error(1045);
}

#[test]
fn accounts_that_may_not_log_in_are_refused() {
    let accounts = Accounts::root_without_password();
    accounts.install(1, kept());
    let server = server_of(accounts, |_| {});
    let mut open = Vec::new();
    for (user, errno) in [("far", 1045), ("locked", 3118), ("tls", 1045), ("one", 0), ("one", 1226)] {
        let mut client = Client::connect(&server);
        client.log_in(user, "", AuthPlugin::CachingSha2Password, None);
        if errno > 0 {
            client.expect_error(errno);
        } else {
            client.expect_ok();
            open.push(client);
        }
    }
}

#[test]
fn a_tls_request_and_garbage_get_a_clean_error() {
    let server = server(|_| {});
    let mut client = Client::connect(&server);
    let mut p = (capability::SERVER | capability::SSL).to_le_bytes().to_vec();
    p.extend([0; 28]);
    client.send(1, &p);
    client.expect_error(1043);
    let mut client = Client::connect(&server);
    client.send(1, b"GET / HTTP/1.1\r\n");
    client.expect_error(1043);
    let mut client = Client::connect(&server);
    client.stream.write_all(&[0xff; 4]).unwrap();
    client.expect_error(1153);
}

#[test]
fn every_command_is_answered() {
    let server = server(|_| {});
    let mut client = Client::root(&server);
    client.command(0x0e, b"");
    client.expect_ok();
    client.command(0x02, b"db");
    client.expect_ok();
    client.command(0x09, b"");
    assert_eq!(client.packet(), b"Uptime: 1");
    client.command(0x04, b"t\0");
    client.packet();
    assert_eq!(client.packet()[0], 0xfe);
    client.command(0x1b, &[0, 0]);
    assert_eq!(client.packet()[0], 0xfe);
    client.command(0x1b, &[9, 0]);
    client.expect_error(1047);
    client.command(0x0c, &99_999u32.to_le_bytes());
    client.expect_error(1094);
    for unknown in [0x00, 0x05, 0x0d, 0x12, 0x1d, 0x77, 0xff] {
        client.command(unknown, b"abc");
        client.expect_error(1047);
    }
    client.send(0, b"");
    client.expect_error(1835);
    client.command(3, b"begin");
    assert_eq!(client.packet(), [0, 0, 0, 3, 0, 0, 0]);
    client.command(0x1f, b"");
    assert_eq!(client.packet(), [0, 0, 0, 2, 0, 0, 0]);
    client.command(3, b"nonsense");
    client.expect_error(1064);
    client.command(3, b"silent");
    client.expect_error(1105);
    client.command(3, b"half");
    client.packet();
    client.packet();
    client.expect_error(1205);
    client.command(3, b"two");
    assert_eq!(client.single(false), (b"1".to_vec(), 10));
    assert_eq!(client.packet(), [0, 7, 0, 2, 0, 0, 0]);
    let mut body = b"native\0\x14".to_vec();
    body.extend(respond(AuthPlugin::NativePassword, &client.scramble, "secret"));
    body.extend(b"db\0\x2d\0mysql_native_password\0");
    client.command(0x11, &body);
    client.expect_ok();
    assert_eq!(client.query("user"), "native");
    client.command(0x01, b"");
    assert!(client.try_packet().is_none());
}

#[test]
fn prepared_statements() {
    let server = server(|_| {});
    let mut client = Client::root(&server);
    client.command(0x16, b"select ?, ?");
    let prepared = client.packet();
    assert_eq!(prepared, [0, 1, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0]);
    (0..3).for_each(|_| drop(client.packet()));
    let head = [1, 0, 0, 0, 0, 1, 0, 0, 0];
    let execute = [&head[..], &[0, 1, 8, 0, 253, 0], &5u64.to_le_bytes(), b"\x02ab"].concat();
    client.command(0x17, &execute);
    assert_eq!(client.single(true).0, b"[Int(5), Text([97, 98])]");
    // Types stay bound; data sent ahead replaces the second value, once.
    client.command(0x18, &[1, 0, 0, 0, 1, 0, b'x']);
    client.command(0x18, &[1, 0, 0, 0, 1, 0, b'y']);
    let short = [&head[..], &[0, 0], &6u64.to_le_bytes()].concat();
    client.command(0x17, &short);
    assert_eq!(client.single(true).0, b"[Int(6), Text([120, 121])]");
    client.command(0x17, &short);
    client.expect_error(1210);
    client.command(0x18, &[1, 0, 0, 0, 9, 0, b'x']);
    client.command(0x17, &execute);
    client.expect_error(1210);
    client.command(0x1a, &1u32.to_le_bytes());
    client.expect_ok();
    client.command(0x17, &execute);
    client.single(true);
    client.command(0x19, &1u32.to_le_bytes());
    client.command(0x17, &execute);
    client.expect_error(1243);
    client.command(0x1a, &1u32.to_le_bytes());
    client.expect_error(1243);
}

#[test]
fn prepared_statements_are_limited_per_connection() {
    let server = server(|_| {});
    let mut client = Client::root(&server);
    for _ in 0..limits::STATEMENTS_MAX {
        client.command(0x16, b"select 1");
        client.expect_ok();
        client.packet();
    }
    client.command(0x16, b"select 1");
    client.expect_error(1461);
    client.command(0x19, &77u32.to_le_bytes());
    client.command(0x16, b"select 1");
    client.expect_ok();
}

#[test]
fn pipelined_commands_are_answered_in_order() {
    let server = server(|_| {});
    let mut client = Client::root(&server);
    let mut bytes = Vec::new();
    for _ in 0..1000 {
        bytes.extend([5, 0, 0, 0, 3]);
        bytes.extend(b"user");
        bytes.extend([1, 0, 0, 0, 0x0e]);
    }
    client.stream.write_all(&bytes).unwrap();
    for _ in 0..1000 {
        assert_eq!(client.single(false).0, b"root");
        client.expect_ok();
    }
}

#[test]
fn a_long_result_is_streamed() {
    let server = server(|_| {});
    let mut client = Client::root(&server);
    client.command(3, b"long");
    client.packet();
    client.packet();
    for n in 0..500_000 {
        let row = client.packet();
        assert_eq!(row[1..], *n.to_string().as_bytes());
    }
    assert_eq!(client.packet()[0], 0xfe);
}

#[test]
fn packets_over_the_limit_end_the_connection() {
    let server = server(|config| config.max_allowed_packet = 1000);
    let mut client = Client::root(&server);
    client.command(3, &[b'x'; 998]);
    client.expect_error(1064);
    client.stream.write_all(&[0xe8, 3, 0, 0]).unwrap();
    client.expect_error(1153);
    assert!(client.try_packet().is_none());
}

#[test]
fn connections_are_spread_evenly_limited_and_killed() {
    let server = server(|config| config.max_connections = 16);
    let mut clients: Vec<_> = (0..16).map(|_| Client::root(&server)).collect();
    let on_first = clients.iter_mut().filter_map(|c| (c.query("worker") == "0").then_some(())).count();
    assert_eq!(on_first, 8);
    let mut refused = TcpStream::connect(server.address()).unwrap();
    let mut bytes = Vec::new();
    refused.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes[4..7], [0xff, 0x10, 0x04]);
    let victim = server.registry().list()[3].id;
    clients[0].command(0x0c, &victim.to_le_bytes());
    clients[0].expect_ok();
    let mut victim = clients.remove(3);
    victim.expect_error(1927);
    assert!(victim.try_packet().is_none());
    server.stop();
    for mut client in clients {
        client.expect_error(1927);
    }
}

#[test]
fn a_panic_ends_only_its_own_connection() {
    let server = server(|config| config.threads = 1);
    let mut witness = Client::root(&server);
    let mut victim = Client::root(&server);
    victim.command(3, b"panic");
    assert!(victim.try_packet().is_none());
    assert_eq!(witness.query("user"), "root");
    Client::root(&server);
}

#[test]
fn strangers_and_idlers_are_timed_out() {
    let server = server(|config| {
        config.handshake_timeout = Duration::from_millis(50);
        config.wait_timeout = Duration::from_millis(50);
    });
    let mut stranger = Client::connect(&server);
    assert!(stranger.try_packet().is_none());
    let mut idler = Client::root(&server);
    idler.expect_error(4031);
    assert!(idler.try_packet().is_none());
}

/// While no data node answers, who may log in is told so, and not left to a connection that ends.
#[test]
fn a_login_that_the_data_nodes_do_not_answer_is_told_so() {
    let server = server(|config| config.handshake_timeout = Duration::from_secs(2));
    let mut client = Client::connect(&server);
    client.log_in("root", "", AuthPlugin::CachingSha2Password, Some("asleep"));
    client.expect_error(1297);
    Client::root(&server);
}

#[test]
fn strangers_take_no_users_place_and_push_out_their_own() {
    let server = server(|config| (config.max_connections, config.max_strangers) = (2, 8));
    let mut strangers: Vec<_> = (0..20).map(|_| Client::connect(&server)).collect();
    let mut users = [Client::root(&server), Client::root(&server)];
    for user in &mut users {
        assert_eq!(user.query("user"), "root");
    }
    for stranger in &mut strangers[..12] {
        assert!(stranger.try_packet().is_none(), "the oldest are ended");
    }
    drop(strangers);
    let mut refused = TcpStream::connect(server.address()).unwrap();
    let mut bytes = Vec::new();
    refused.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes[4..7], [0xff, 0x10, 0x04]);
}
