//! No allocation per operation in steady state (DESIGN section 13): data nodes, native client and key plans of the SQL engine, driven
//! for real on one thread while a counting allocator watches.
//!
//! Each kind of operation is warmed up until buffers, pools and row memory have their size. Then [`OPS`] of them may allocate
//! [`SLACK`] times altogether, which leaves room for what the clock brings (a heartbeat, an epoch) and for a pool that grows once
//! more, but not for one allocation in ten operations. `APUS_TRACE=20 cargo test -p apus-runtime --test allocations -- --nocapture`
//! shows where allocations come from.
#![expect(unsafe_code, reason = "a global allocator is an unsafe trait")]

mod cluster;
mod counting;
mod sql;

use apus_client::{Client, ClientError, ExecOptions, KeyList, OpBatch, ReadBatch, Results, Rows, ScanRequest};
use apus_signal::{
    dict::{Change, DatabaseMessage},
    schema::TableMessage,
    tc::OpKind,
};
use apus_types::{
    Column, ColumnType, IndexDef, IndexNo, IndexState, TableSchema, TransId, Value, collate::Collation, key, update,
};
use std::ops::Bound;

use cluster::Cluster;

/// Every row is changed in two epochs, so that the memory for versions kept for snapshots is there.
pub const WARM_UP: usize = 2 * ROWS as usize;
pub const OPS: usize = 5_000;
pub const SLACK: u64 = 50;
/// The clock's step per round while operations are counted: ticks come by, but do not hide what operations do.
const STEP_NS: u64 = 100;
/// A step by which an operation sees a new epoch.
const EPOCH_STEP_NS: u64 = 1_000_000;
/// The last operations of the warm-up see several epochs pass: what is to be freed of the others is freed then.
const SETTLING: usize = 8;
const ROWS: u64 = 4_000;
const LOCK_WAIT_MS: u32 = 1_000;

/// Warms `op` up, then counts the allocations of [`OPS`] of them.
pub fn allocations(cluster: &mut Cluster, mut op: impl AsyncFnMut(usize)) -> u64 {
    for i in 0..WARM_UP {
        let epochs_pass = i % ROWS as usize == 0 || i + SETTLING >= WARM_UP;
        cluster.step_ns = if epochs_pass { EPOCH_STEP_NS } else { STEP_NS };
        cluster.run(op(i));
    }
    cluster.step_ns = STEP_NS;
    let traces = std::env::var("APUS_TRACE").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    counting::trace(traces);
    let before = counting::total();
    for i in WARM_UP..WARM_UP + OPS {
        cluster.run(op(i));
    }
    counting::trace(0);
    counting::total() - before
}

/// What was measured; all kinds are before one of them fails the test.
#[derive(Default)]
pub struct Ledger {
    too_many: Vec<String>,
}

impl Ledger {
    /// An operation that must not allocate in steady state.
    pub fn expect_none(&mut self, cluster: &mut Cluster, what: &str, op: impl AsyncFnMut(usize)) {
        self.expect_at_most(SLACK, cluster, what, op);
    }
    /// An operation of which [`OPS`] may allocate so often altogether.
    pub fn expect_at_most(&mut self, most: u64, cluster: &mut Cluster, what: &str, op: impl AsyncFnMut(usize)) {
        let found = allocations(cluster, op);
        let line = format!("{what}: {found} allocations in {OPS} operations");
        println!("{line}");
        if found > most {
            self.too_many.push(line);
        }
    }
    pub fn close(self) {
        assert!(self.too_many.is_empty(), "{:#?}", self.too_many);
    }
}

/// `t (id bigint unsigned primary key, k int, c varchar(120), key (k))`
fn schema() -> TableSchema {
    let column = |name: &str, ty| Column { nullable: false, ..Column::new(name, ty) };
    let columns = vec![
        column("id", ColumnType::Int { bits: 64, unsigned: true }),
        column("k", ColumnType::Int { bits: 32, unsigned: false }),
        column("c", ColumnType::VarChar { length: 120, collation: Collation::default() }),
    ];
    let mut table = TableSchema::new("d", "t", columns, vec![0]);
    table.indexes.push(IndexDef {
        no: IndexNo(1),
        name: "k".to_owned(),
        columns: vec![1],
        list: None,
        unique: false,
        hidden_table: None,
        prefixes: Vec::new(),
        state: IndexState::Ready,
    });
    table
}

fn encode_key(id: u64, out: &mut Vec<u8>) {
    out.clear();
    key::encode_part(ColumnType::Int { bits: 64, unsigned: true }, false, &Value::UInt(id), out).expect("a key");
}

fn encode_row(table: &TableSchema, id: u64, out: &mut Vec<u8>) {
    out.clear();
    let text = [b'a' + (id % 26) as u8; 100];
    let values = [Value::UInt(id), Value::Int((id * 7 % ROWS) as i64), Value::Bytes(&text)];
    table.layout().encode(&values, out).expect("a row");
}

async fn open(client: &Client) -> Result<TableSchema, ClientError> {
    let new = schema();
    let database = DatabaseMessage { name: "d".to_owned(), collation: u32::from(new.collation.id()) };
    client.schema_change(Change::CreateDatabase(database)).await?;
    client.schema_change(Change::CreateTable(TableMessage::from(&new))).await?;
    let dictionary = client.dictionary(0).await?.unwrap_or_default();
    let found = dictionary.tables.iter().find(|t| t.name == "t" && t.base_table == 0).expect("the new table");
    let table = TableSchema::try_from(found)?;
    let (mut ops, mut results, mut key, mut row) = (OpBatch::new(), Results::new(), Vec::new(), Vec::new());
    for first in (0..ROWS).step_by(500) {
        ops.clear();
        for id in first..first + 500 {
            encode_key(id, &mut key);
            encode_row(&table, id, &mut row);
            ops.push(&table, OpKind::Insert, 0, &key, &row)?;
        }
        client.run_autocommit(&ops, LOCK_WAIT_MS, &mut results).await?;
    }
    Ok(table)
}

/// Somewhere among the rows.
fn row_number(i: usize) -> u64 {
    i as u64 * 2_654_435_761 % ROWS
}

fn with_table() -> (Cluster, Client, TableSchema) {
    let (mut cluster, client) = Cluster::new();
    let table = cluster.run(open(&client)).expect("a table with rows");
    (cluster, client, table)
}

#[test]
fn reads_allocate_nothing() {
    let (mut cluster, client, table) = with_table();
    let mut ledger = Ledger::default();
    let (mut keys, mut rows, mut key) = (KeyList::new(), Rows::new(), Vec::new());
    for (what, count, columns) in
        [("a committed read", 1, None), ("64 reads", 64, None), ("64 reads of columns", 64, Some(&[2, 0][..]))]
    {
        ledger.expect_none(&mut cluster, what, async |i| {
            keys.clear();
            for n in 0..count {
                encode_key(row_number(i * count + n), &mut key);
                keys.push(&table, &key).expect("a key");
            }
            let request = ReadBatch {
                trans: TransId::NONE,
                snapshot: Default::default(),
                table: table.id,
                schema_version: table.version,
                columns,
                keys: &keys,
            };
            client.read(&request, &mut rows).await.expect("rows");
            assert!(rows.iter().all(|row| row.is_some()));
        });
    }
    let (mut low, mut high) = (Vec::new(), Vec::new());
    for (what, index, ordered) in
        [("a range of the primary key", 0, false), ("an ordered range", 0, true), ("a range of an index", 1, true)]
    {
        ledger.expect_none(&mut cluster, what, async |i| {
            let first = row_number(i) % (ROWS - 100);
            low.clear();
            high.clear();
            if index == 0 {
                encode_key(first, &mut low);
                encode_key(first + 99, &mut high);
            } else {
                let ty = ColumnType::Int { bits: 32, unsigned: false };
                key::encode_part(ty, false, &Value::Int(first as i64), &mut low).expect("a key");
                key::encode_part(ty, false, &Value::Int(first as i64 + 100), &mut high).expect("a key");
            }
            let request = ScanRequest {
                index: IndexNo(index),
                ordered,
                low: Bound::Included(&low),
                high: if index == 0 { Bound::Included(&high) } else { Bound::Excluded(&high) },
                ..ScanRequest::all(table.id, table.version)
            };
            let mut cursor = client.scan(&request);
            let mut found = 0;
            // A bound over whole entries of the primary key names one, over an index all with that prefix.
            while cursor.next_batch(&mut rows).await.expect("rows") {
                found += rows.len();
            }
            assert!((99..=101).contains(&found), "{found} rows");
        });
    }
    ledger.close();
}

#[test]
fn writes_allocate_nothing() {
    let (mut cluster, client, table) = with_table();
    let mut ledger = Ledger::default();
    let (mut ops, mut results) = (OpBatch::new(), Results::new());
    let (mut key, mut row, mut program) = (Vec::new(), Vec::new(), Vec::new());
    for (what, column) in [("an update", 2), ("an update of an indexed column", 1)] {
        ledger.expect_none(&mut cluster, what, async |i| {
            encode_key(row_number(i), &mut key);
            program.clear();
            match column {
                1 => update::push_add(&mut program, 1, if i % 2 == 0 { 1 } else { -1 }),
                _ => update::push_set(&mut program, 2, &[b'a' + (i % 25) as u8; 100]),
            }
            ops.clear();
            ops.push(&table, OpKind::Update, 0, &key, &program).expect("an operation");
            client.run_autocommit(&ops, LOCK_WAIT_MS, &mut results).await.expect("an update");
        });
    }
    ledger.expect_none(&mut cluster, "an insert or a delete", async |i| {
        let id = ROWS + i as u64 / 2;
        encode_key(id, &mut key);
        encode_row(&table, id, &mut row);
        ops.clear();
        match i % 2 {
            0 => ops.push(&table, OpKind::Insert, 0, &key, &row).expect("an operation"),
            _ => ops.push(&table, OpKind::Delete, 0, &key, b"").expect("an operation"),
        }
        client.run_autocommit(&ops, LOCK_WAIT_MS, &mut results).await.expect("a change");
    });
    ledger.expect_none(&mut cluster, "a transaction of four updates and a commit", async |i| {
        let mut transaction = client.begin();
        for n in 0..4 {
            encode_key(row_number(4 * i + n), &mut key);
            program.clear();
            update::push_add(&mut program, 1, if i % 2 == 0 { 1 } else { -1 });
            ops.clear();
            ops.push(&table, OpKind::Update, 0, &key, &program).expect("an operation");
            let options = ExecOptions { savepoint: n as u32 + 1, ..ExecOptions::default() };
            transaction.execute(&ops, options, &mut results).await.expect("an update");
        }
        transaction.commit().await.expect("a commit");
    });
    ledger.expect_none(&mut cluster, "a batch of 64 updates over all partitions", async |i| {
        ops.clear();
        for n in 0..64 {
            encode_key(row_number(64 * i + n), &mut key);
            program.clear();
            update::push_add(&mut program, 1, if i % 2 == 0 { 1 } else { -1 });
            ops.push(&table, OpKind::Update, 0, &key, &program).expect("an operation");
        }
        client.run_autocommit(&ops, LOCK_WAIT_MS, &mut results).await.expect("updates");
    });
    ledger.expect_none(&mut cluster, "a locking read and a rollback", async |i| {
        let mut transaction = client.begin();
        encode_key(row_number(i), &mut key);
        ops.clear();
        ops.push_read(&table, true, 0, &key, None).expect("an operation");
        transaction.execute(&ops, ExecOptions::default(), &mut results).await.expect("a locked row");
        transaction.rollback().await.expect("a rollback");
    });
    ledger.close();
}

/// New rows need memory for themselves, taken in pages and index nodes: far less than one allocation per row.
#[test]
fn new_rows_take_pages() {
    let (mut cluster, client, table) = with_table();
    let (mut ops, mut results, mut key, mut row) = (OpBatch::new(), Results::new(), Vec::new(), Vec::new());
    let found = allocations(&mut cluster, async |i| {
        let id = ROWS + i as u64;
        encode_key(id, &mut key);
        encode_row(&table, id, &mut row);
        ops.clear();
        ops.push(&table, OpKind::Insert, 0, &key, &row).expect("an operation");
        client.run_autocommit(&ops, LOCK_WAIT_MS, &mut results).await.expect("an insert");
    });
    println!("an insert that stays: {found} allocations in {OPS} operations, on two replicas");
    assert!(found <= OPS as u64 / 4, "{found} allocations for {OPS} new rows on two replicas");
}

/// What the clock alone brings: heartbeats, epochs, maintenance.
#[test]
fn an_idle_second_allocates_little() {
    let (mut cluster, _client, _) = with_table();
    cluster.step_ns = 1_000_000;
    let before = counting::total();
    for _ in 0..1_000 {
        cluster.round();
    }
    let found = counting::total() - before;
    println!("an idle second: {found} allocations in all nodes");
    assert!(found < 10_000, "{found} allocations in an idle second");
}
