//! Key plans of the SQL engine: text protocol and prepared statements, without sockets.

use std::{fmt::Write, sync::Arc};

use apus_client::Client;
use apus_sql::{
    server::{Collected, ConnectionInfo, Engine, Registry},
    session::{Session, engine::SqlEngine},
    wire::{ParamValue, capability},
};

use crate::{Ledger, OPS, SLACK, cluster::Cluster};

const ROWS: usize = 2_000;

fn number(i: usize) -> i64 {
    (i * 7919 % ROWS) as i64 + 1
}

struct Connection {
    engine: SqlEngine,
    session: Session,
    answer: Collected,
    text: String,
}

impl Connection {
    async fn open(client: Client) -> Connection {
        let engine = SqlEngine::new(client, Arc::default(), Arc::default(), Arc::default(), Arc::default());
        let info = ConnectionInfo {
            id: 1,
            user: "root".to_owned(),
            host: "localhost".to_owned(),
            database: None,
            charset: 45,
            capabilities: capability::SERVER,
            attributes: Vec::new(),
            registry: Arc::new(Registry::new(1, 1, 1)),
            activity: Arc::default(),
            interrupt: Default::default(),
            tls: None,
        };
        let session = engine.open(info).await.expect("a session");
        let mut new = Connection { engine, session, answer: Collected::new(false), text: String::new() };
        new.query("CREATE DATABASE d").await;
        new.query("USE d").await;
        new.query(
            "CREATE TABLE sbtest (id INT NOT NULL AUTO_INCREMENT, k INT DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, \
             pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id), KEY k_1 (k))",
        )
        .await;
        for first in (0..ROWS).step_by(500) {
            let rows: Vec<String> = (first..first + 500)
                .map(|i| format!("({}, {}, '{:0>119}', '{:0>59}')", i + 1, i % 500, i, i))
                .collect();
            new.query(&format!("INSERT INTO sbtest (id, k, c, pad) VALUES {}", rows.join(","))).await;
        }
        new
    }
    async fn query(&mut self, sql: &str) {
        self.answer.restart(false);
        let done = self.engine.query(&mut self.session, sql.as_bytes(), &mut self.answer.output()).await;
        done.unwrap_or_else(|e| panic!("{sql}: {} {}", e.errno, e.message));
        assert!(self.answer.is_answered());
    }
    /// Runs the statement that `write` writes.
    async fn text(&mut self, write: impl FnOnce(&mut String)) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        write(&mut text);
        self.query(&text).await;
        self.text = text;
    }
    async fn prepare(&mut self, sql: &str) -> u32 {
        self.engine.prepare(&mut self.session, sql.as_bytes()).await.expect("a statement").id
    }
    async fn execute(&mut self, id: u32, params: &[ParamValue<'_>]) {
        self.answer.restart(true);
        let done = self.engine.execute(&mut self.session, id, params, &mut self.answer.output()).await;
        done.unwrap_or_else(|e| panic!("{} {}", e.errno, e.message));
        assert!(self.answer.is_answered());
    }
}

#[test]
fn key_plans_allocate_nothing() {
    let (mut cluster, client) = Cluster::new();
    let mut c = cluster.run(Connection::open(client));
    let mut ledger = Ledger::default();
    ledger.expect_none(&mut cluster, "a point select by text", async |i| {
        c.text(|sql| {
            let _ = write!(sql, "SELECT c FROM sbtest WHERE id={}", number(i));
        })
        .await;
    });
    let [select, update, range, insert, delete] = cluster.run(async {
        [
            c.prepare("SELECT c FROM sbtest WHERE id=?").await,
            c.prepare("UPDATE sbtest SET k=k+1 WHERE id=?").await,
            c.prepare("SELECT c FROM sbtest WHERE id BETWEEN ? AND ?").await,
            c.prepare("INSERT INTO sbtest (id, k, c, pad) VALUES (?, ?, ?, ?)").await,
            c.prepare("DELETE FROM sbtest WHERE id=?").await,
        ]
    });
    ledger.expect_none(&mut cluster, "a prepared point select", async |i| {
        c.execute(select, &[ParamValue::Int(number(i))]).await;
    });
    ledger.expect_none(&mut cluster, "an update by key by text", async |i| {
        c.text(|sql| {
            let _ = write!(sql, "UPDATE sbtest SET c='{:0>100}' WHERE id={}", i, number(i));
        })
        .await;
    });
    ledger.expect_none(&mut cluster, "a prepared update by key", async |i| {
        c.execute(update, &[ParamValue::Int(number(i))]).await;
    });
    ledger.expect_none(&mut cluster, "a prepared range of 100 rows", async |i| {
        let first = number(i) % (ROWS as i64 - 100);
        c.execute(range, &[ParamValue::Int(first), ParamValue::Int(first + 99)]).await;
    });
    // Every 256 explicit values move the AUTO_INCREMENT counter, in a transaction with its own buffers.
    let reservations = (OPS / 256 + 1) as u64 * 10 + SLACK;
    ledger.expect_at_most(reservations, &mut cluster, "a prepared insert and delete", async |i| {
        let id = ROWS as i64 + 1 + i as i64;
        let text = [b'x'; 60];
        let k = ParamValue::Int(i as i64 % 500);
        c.execute(insert, &[ParamValue::Int(id), k, ParamValue::Text(&text), ParamValue::Text(&text)]).await;
        c.execute(delete, &[ParamValue::Int(id)]).await;
    });
    ledger.expect_none(&mut cluster, "BEGIN, two statements, COMMIT", async |i| {
        c.query("BEGIN").await;
        c.execute(update, &[ParamValue::Int(number(i))]).await;
        c.execute(select, &[ParamValue::Int(number(i))]).await;
        c.query("COMMIT").await;
    });
    ledger.close();
}
