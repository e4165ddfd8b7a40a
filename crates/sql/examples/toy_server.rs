//! The front end over a toy engine, to try clients by hand and to measure the ceiling of the protocol path:
//! `toy_server [address] [threads]`. It answers point selects with a made-up row and anything else with OK.

use apus_sql::{
    server::{Accounts, ConnectionInfo, Engine, Output, PreparedInfo, Server, ServerConfig, status},
    wire::{ColumnDef, ColumnType, ParamValue, SqlError},
};

struct Toy;

struct Session {
    next_statement: u32,
    columns: Vec<ColumnDef>,
    info: ConnectionInfo,
}

fn is_select(sql: &[u8]) -> bool {
    sql.get(..6).is_some_and(|word| word.eq_ignore_ascii_case(b"select"))
}

fn row(columns: &[ColumnDef], text: &[u8], out: &mut Output<'_>) {
    out.begin_rows(columns);
    out.row_start();
    out.bytes(text);
    out.row_end();
    out.end_rows(0, status::AUTOCOMMIT);
}

impl Engine for Toy {
    type Session = Session;

    async fn open(&self, info: ConnectionInfo) -> Result<Session, SqlError> {
        let mut column = ColumnDef::expression("c", ColumnType::VarString, 480);
        column.table = "sbtest1".into();
        column.schema = "sbtest".into();
        Ok(Session { next_statement: 0, columns: vec![column], info })
    }

    async fn kill(&self, session: &mut Session, id: u32) -> Result<(), SqlError> {
        let is_there = session.info.registry.kill(id);
        is_there.then_some(()).ok_or_else(|| SqlError::new(1094, b"HY000", format!("Unknown thread id: {id}")))
    }

    async fn query(&self, session: &mut Session, sql: &[u8], out: &mut Output<'_>) -> Result<(), SqlError> {
        if sql.eq_ignore_ascii_case(b"select connection_id()") {
            row(&session.columns, session.info.id.to_string().as_bytes(), out);
        } else if sql.eq_ignore_ascii_case(b"select million") {
            out.begin_rows(&[ColumnDef::expression("n", ColumnType::LongLong, 20)]);
            for n in 0..1_000_000 {
                out.row_start();
                out.int(n);
                out.row_end();
                out.flush_if_full().await?;
            }
            out.end_rows(0, status::AUTOCOMMIT);
        } else if sql.eq_ignore_ascii_case(b"select fail") {
            return Err(SqlError::new(1146, b"42S02", "Table 'sbtest.fail' doesn't exist"));
        } else if is_select(sql) {
            row(&session.columns, &[b'x'; 119], out);
        } else {
            out.ok(0, 0, 0, "");
        }
        Ok(())
    }

    async fn prepare(&self, session: &mut Session, sql: &[u8]) -> Result<PreparedInfo, SqlError> {
        session.next_statement += 1;
        let params = sql.iter().filter(|&&b| b == b'?').count();
        Ok(PreparedInfo {
            id: session.next_statement,
            params: vec![ColumnDef::parameter(); params],
            columns: if is_select(sql) { session.columns.clone() } else { Vec::new() },
            warnings: 0,
        })
    }

    async fn execute(
        &self,
        session: &mut Session,
        _id: u32,
        _params: &[ParamValue<'_>],
        out: &mut Output<'_>,
    ) -> Result<(), SqlError> {
        row(&session.columns, &[b'x'; 119], out);
        Ok(())
    }

    fn close_statement(&self, _session: &mut Session, _id: u32) {}

    async fn init_db(&self, _session: &mut Session, _database: &str) -> Result<(), SqlError> {
        Ok(())
    }

    async fn field_list(&self, session: &mut Session, _: &str, _: &str) -> Result<Vec<ColumnDef>, SqlError> {
        Ok(session.columns.clone())
    }

    async fn reset_connection(&self, _session: &mut Session) -> Result<(), SqlError> {
        Ok(())
    }

    async fn ping(&self, _session: &mut Session) -> Result<(), SqlError> {
        Ok(())
    }

    fn set_multi_statements(&self, _session: &mut Session, _on: bool) {}

    fn statistics(&self, _session: &Session) -> String {
        "Uptime: 0".into()
    }

    fn status(&self, _session: &Session) -> u16 {
        status::AUTOCOMMIT
    }

    async fn close(&self, _session: Session) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:3307".into()).parse()?;
    let threads = args.next().map_or(Ok(2), |text| text.parse())?;
    let mut accounts = Accounts::root_without_password();
    accounts.add("native", "secret", apus_sql::wire::auth::AuthPlugin::NativePassword);
    accounts.add("sha2", "secret", apus_sql::wire::auth::AuthPlugin::CachingSha2Password);
    let server = Server::start(ServerConfig::new(address, threads), accounts, async |_worker| Ok(Toy))?;
    println!("listening on {}", server.address());
    loop {
        std::thread::park();
    }
}
