//! The rows that SQL nodes have for each other, and the transactions on them: `apus.sql_nodes`, one for each, and `apus.sql_connections`, what each has told of its connections last.

use apus_client::{
    Client, ClientError, ExecOptions, KeyList, OpBatch, ReadBatch, Results, Rows, ScanRequest, Transaction,
};
use apus_signal::{
    schema::TableMessage,
    tc::{ALLOW_MISSING, OpKind, OpStatus},
};
use apus_types::{Column, ColumnType, ErrorCode, TableSchema, Value, schema::Durability};
use prost::Message as _;

use super::message::{Answer, Outcomes};
use crate::{
    catalog::SYSTEM_DATABASE,
    session::system_rows::{ROW_WAIT_MS, encoded_key},
};

const NODES: &str = "sql_nodes";
const CONNECTIONS: &str = "sql_connections";
/// Bytes of a SQL node's name, which is an address.
pub const NAME_BYTES_MAX: usize = 300;
/// Bytes of what has become of kills: each has a number of eight bytes in ten, and what it is.
pub const OUTCOMES_BYTES: u16 = 2048;

type Done<T> = std::result::Result<T, ClientError>;

/// A SQL node, as its row has it.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    pub number: u32,
    /// The process, by chance.
    pub owner: u64,
    /// Which question for its connections it has answered last.
    pub answered: u64,
    /// Where it listens.
    pub name: String,
    pub outcomes: Outcomes,
}

/// The tables. What is told of connections ends with the data nodes; the SQL nodes are still known after a start from the disks, or write their rows again.
pub struct Tables {
    nodes: TableSchema,
    connections: TableSchema,
}

/// What a row has become by the time that it was to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    Yes,
    /// There is none.
    Gone,
    /// It is another process's.
    Other,
}

impl Tables {
    /// Both as somebody who looks for tables finds them.
    pub fn of(mut find: impl FnMut(&str, &str) -> Option<TableSchema>) -> Option<Tables> {
        let mut find = |name| find(SYSTEM_DATABASE, name);
        Some(Tables { nodes: find(NODES)?, connections: find(CONNECTIONS)? })
    }

    pub fn of_messages(tables: &[TableMessage]) -> Option<Tables> {
        Tables::of(|database, name| {
            let message = tables.iter().find(|table| table.database == database && table.name == name);
            message.and_then(|message| TableSchema::try_from(message).ok())
        })
    }

    pub fn definitions() -> [TableSchema; 2] {
        let column = |name: &str, ty| Column { nullable: false, ..Column::new(name, ty) };
        let number = |name: &str| column(name, ColumnType::Int { bits: 64, unsigned: true });
        let bytes = |name: &str, length| column(name, ColumnType::VarBinary { length });
        let table = |table: &str, columns, durability| {
            let mut schema = TableSchema::new(SYSTEM_DATABASE, table, columns, vec![0]);
            schema.durability = durability;
            schema
        };
        let (name, outcomes) = (bytes("name", NAME_BYTES_MAX as u16), bytes("outcomes", OUTCOMES_BYTES));
        [
            table(
                NODES,
                vec![number("number"), number("owner"), number("answered"), name, outcomes],
                Durability::Replicated,
            ),
            table(
                CONNECTIONS,
                vec![number("number"), column("body", ColumnType::Blob { length: (1 << 24) - 1 })],
                Durability::None,
            ),
        ]
    }

    fn node_of(&self, row: &[u8]) -> Node {
        let layout = self.nodes.layout();
        let number = |column| match layout.value(row, column) {
            Value::UInt(n) => n,
            _ => 0,
        };
        let bytes = |column| match layout.value(row, column) {
            Value::Bytes(bytes) => bytes,
            _ => &[],
        };
        Node {
            number: u32::try_from(number(0)).unwrap_or(0),
            owner: number(1),
            answered: number(2),
            name: String::from_utf8_lossy(bytes(3)).into_owned(),
            outcomes: Outcomes::decode(bytes(4)).unwrap_or_default(),
        }
    }

    fn push_node(&self, ops: &mut OpBatch, kind: OpKind, node: &Node) -> Result<(), ErrorCode> {
        let (number, outcomes) = (Value::UInt(node.number.into()), node.outcomes.encode_to_vec());
        let mut row = Vec::new();
        let values = [
            number,
            Value::UInt(node.owner),
            Value::UInt(node.answered),
            Value::Bytes(node.name.as_bytes()),
            Value::Bytes(&outcomes),
        ];
        self.nodes.layout().encode(&values, &mut row)?;
        ops.push(&self.nodes, kind, 0, &encoded_key(&self.nodes, &number)?, &row)
    }

    /// All SQL nodes by their numbers.
    pub async fn nodes(&self, client: &Client) -> Done<Vec<Node>> {
        let mut rows = Rows::new();
        client.scan_all(&ScanRequest::all(self.nodes.id, self.nodes.version), &mut rows).await?;
        let mut nodes: Vec<Node> = rows.iter().flatten().map(|row| self.node_of(row)).collect();
        nodes.sort_by_key(|node| node.number);
        Ok(nodes)
    }

    pub async fn node(&self, client: &Client, number: u32) -> Done<Option<Node>> {
        let (mut keys, mut rows) = (KeyList::new(), Rows::new());
        keys.push(&self.nodes, &encoded_key(&self.nodes, &Value::UInt(number.into()))?)?;
        client.read(&ReadBatch::newest(&self.nodes, &keys), &mut rows).await?;
        Ok(rows.row(0).map(|row| self.node_of(row)))
    }

    /// What these have told of their connections.
    pub async fn answers(&self, client: &Client, nodes: &[&Node]) -> Done<Vec<Answer>> {
        let mut answers = Vec::new();
        // One by one: each may be megabytes.
        for node in nodes {
            let (mut keys, mut rows) = (KeyList::new(), Rows::new());
            keys.push(&self.connections, &encoded_key(&self.connections, &Value::UInt(node.number.into()))?)?;
            client.read(&ReadBatch::newest(&self.connections, &keys), &mut rows).await?;
            let body = rows.row(0).map(|row| match self.connections.layout().value(row, 1) {
                Value::Bytes(bytes) => bytes,
                _ => &[],
            });
            answers.push(body.and_then(|body| Answer::decode(body).ok()).unwrap_or_default());
        }
        Ok(answers)
    }

    /// Whether the row of this number was free, and is this node's now.
    pub async fn register(&self, client: &Client, node: &Node) -> Done<bool> {
        let mut ops = OpBatch::new();
        self.push_node(&mut ops, OpKind::Insert, node)?;
        match client.run_autocommit(&ops, ROW_WAIT_MS, &mut Results::new()).await {
            Ok(_) => Ok(true),
            // Of an attempt before, maybe, whose outcome was not told.
            Err(e) if e.code == ErrorCode::DuplicateKey => {
                Ok(self.node(client, node.number).await?.is_some_and(|there| there.owner == node.owner))
            }
            Err(e) => Err(e),
        }
    }

    /// Locks the row of a number.
    async fn lock(&self, transaction: &mut Transaction, number: u32) -> Done<Option<Node>> {
        let (mut ops, mut results) = (OpBatch::new(), Results::new());
        let key = encoded_key(&self.nodes, &Value::UInt(number.into()))?;
        ops.push_read(&self.nodes, true, ALLOW_MISSING, &key, None)?;
        let options = ExecOptions { commit: false, savepoint: 1, lock_wait_ms: ROW_WAIT_MS };
        transaction.execute(&ops, options, &mut results).await?;
        let row = results.row(0).filter(|_| results.status(0) == Some(OpStatus::Done));
        Ok(row.map(|row| self.node_of(row)))
    }

    /// Writes a node's row, if it is still its own, and with it what it tells of its connections.
    pub async fn tell(&self, client: &Client, node: &Node, answer: Option<&Answer>) -> Done<Written> {
        let mut transaction = client.begin();
        match self.lock(&mut transaction, node.number).await? {
            Some(there) if there.owner == node.owner => {}
            other => {
                let _ = transaction.rollback().await;
                return Ok(if other.is_some() { Written::Other } else { Written::Gone });
            }
        }
        let mut ops = OpBatch::new();
        self.push_node(&mut ops, OpKind::Write, node)?;
        if let Some(answer) = answer {
            let (number, body, mut row) = (Value::UInt(node.number.into()), answer.encode_to_vec(), Vec::new());
            self.connections.layout().encode(&[number, Value::Bytes(&body)], &mut row)?;
            ops.push(&self.connections, OpKind::Write, 0, &encoded_key(&self.connections, &number)?, &row)?;
        }
        commit(&mut transaction, &ops).await?;
        Ok(Written::Yes)
    }

    /// Takes the rows of a node out, if it has not answered since it was looked at. Its number is free then.
    pub async fn remove(&self, client: &Client, node: &Node) -> Done<()> {
        let mut transaction = client.begin();
        let there = self.lock(&mut transaction, node.number).await?;
        if there.is_none_or(|there| (there.owner, there.answered) != (node.owner, node.answered)) {
            return transaction.rollback().await;
        }
        let mut ops = OpBatch::new();
        let number = Value::UInt(node.number.into());
        ops.push(&self.nodes, OpKind::Delete, 0, &encoded_key(&self.nodes, &number)?, &[])?;
        ops.push(&self.connections, OpKind::Delete, ALLOW_MISSING, &encoded_key(&self.connections, &number)?, &[])?;
        commit(&mut transaction, &ops).await
    }
}

async fn commit(transaction: &mut Transaction, ops: &OpBatch) -> Done<()> {
    let options = ExecOptions { commit: true, savepoint: 2, lock_wait_ms: ROW_WAIT_MS };
    transaction.execute(ops, options, &mut Results::new()).await
}
