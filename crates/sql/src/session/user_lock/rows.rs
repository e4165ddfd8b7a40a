//! The rows of user locks and of leases, and the transactions on them.

use std::rc::Rc;

use apus_client::{Client, ClientError, OpBatch, Results};
use apus_signal::tc::{ALLOW_MISSING, OpKind, OpStatus};
use apus_types::{Column, ColumnType, ErrorCode, TableSchema, Value, schema::Durability};

use crate::{
    catalog::{Catalog, SYSTEM_DATABASE, Table},
    errors::{self, Result},
    session::system_rows::{ROW_WAIT_MS, Rows, encoded_key, is_passing, numbers},
};

const LOCKS: &str = "user_locks";
const LEASES: &str = "user_lock_owners";
/// Bytes of a name: 64 characters.
const NAME_BYTES: u16 = 256;

/// What a session of a SQL node puts into a lock's row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub name: String,
    /// The lease.
    pub owner: u64,
    pub session: u64,
}

/// Who has a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    pub owner: u64,
    pub session: u64,
    /// As SHOW PROCESSLIST of its SQL node numbers it.
    pub connection: u64,
}

/// The tables; their rows end with the data nodes, for no session outlives those.
#[derive(Clone)]
pub struct Tables {
    locks: Rc<Table>,
    leases: Rc<Table>,
}

impl Tables {
    pub fn of(catalog: &Catalog) -> Option<Tables> {
        let find = |name| catalog.find(SYSTEM_DATABASE, name);
        Some(Tables { locks: find(LOCKS)?, leases: find(LEASES)? })
    }

    pub fn definitions() -> [TableSchema; 2] {
        let column = |name: &str, ty| Column { nullable: false, ..Column::new(name, ty) };
        let number = |name: &str| column(name, ColumnType::Int { bits: 64, unsigned: true });
        let name = column("name", ColumnType::VarBinary { length: NAME_BYTES });
        let table = |table: &str, columns| {
            let mut schema = TableSchema::new(SYSTEM_DATABASE, table, columns, vec![0]);
            schema.durability = Durability::None;
            schema
        };
        [
            table(LOCKS, vec![name, number("owner"), number("session"), number("connection")]),
            table(LEASES, vec![number("owner"), number("beat")]),
        ]
    }

    /// Takes a lock that is free; otherwise who has it.
    pub async fn take(&self, client: &Client, place: &Place, connection: u32) -> Result<Option<Holder>> {
        let name = Value::Bytes(place.name.as_bytes());
        loop {
            let mut rows = Rows::begin(client);
            rows.put(OpKind::Insert, &self.locks.schema, &name, &[place.owner, place.session, connection.into()])
                .map_err(|code| errors::from_client(&code.into()))?;
            match rows.run(true).await {
                Ok(()) => return Ok(None),
                Err(e) if e.code == ErrorCode::DuplicateKey || is_passing(&e) => {}
                Err(e) => return Err(errors::from_client(&e)),
            }
            drop(rows);
            match self.holder(client, &place.name).await? {
                // An attempt before, whose outcome was not told.
                Some(holder) if (holder.owner, holder.session) == (place.owner, place.session) => return Ok(None),
                Some(holder) => return Ok(Some(holder)),
                None => {}
            }
        }
    }

    async fn read(&self, client: &Client, table: &TableSchema, value: &Value<'_>) -> Result<Option<Vec<u64>>> {
        let (mut ops, mut results) = (OpBatch::new(), Results::new());
        let read = async {
            ops.push_read(table, false, ALLOW_MISSING, &encoded_key(table, value)?, None)?;
            client.run_autocommit(&ops, ROW_WAIT_MS, &mut results).await
        };
        read.await.map_err(|e| errors::from_client(&e))?;
        let found = results.status(0) == Some(OpStatus::Done);
        Ok(results.row(0).filter(|_| found).map(|row| numbers(table, row)))
    }

    pub async fn holder(&self, client: &Client, name: &str) -> Result<Option<Holder>> {
        let row = self.read(client, &self.locks.schema, &Value::Bytes(name.as_bytes())).await?;
        Ok(row.as_deref().and_then(holder))
    }

    /// The number of a lease; `None`: it has ended.
    pub async fn beat(&self, client: &Client, owner: u64) -> Result<Option<u64>> {
        let row = self.read(client, &self.leases.schema, &Value::UInt(owner)).await?;
        Ok(row.and_then(|numbers| numbers.first().copied()))
    }

    /// Takes a lock from one whose lease has ended, or ends now because its number still is `beat`. False: none of this is so any more.
    pub async fn take_over(
        &self,
        client: &Client,
        place: &Place,
        connection: u32,
        from: &Holder,
        beat: Option<u64>,
    ) -> Result<bool> {
        let (locks, leases) = (&self.locks.schema, &self.leases.schema);
        let (name, lease) = (Value::Bytes(place.name.as_bytes()), Value::UInt(from.owner));
        let mut rows = Rows::begin(client);
        let done = async {
            let found = rows.lock(&[(locks, &name), (leases, &lease)]).await?;
            let [lock, number] = found.as_slice() else { return Ok(false) };
            let number = number.as_ref().and_then(|numbers| numbers.first().copied());
            if lock.as_deref().and_then(holder) != Some(*from) || number.is_some() && number != beat {
                let _ = rows.transaction.rollback().await;
                return Ok(false);
            }
            rows.put(OpKind::Write, locks, &name, &[place.owner, place.session, connection.into()])?;
            if number.is_some() {
                rows.put(OpKind::Delete, leases, &lease, &[])?;
            }
            rows.run(true).await?;
            Ok(true)
        };
        match done.await {
            Err(e) if !is_passing(&e) => Err(errors::from_client(&e)),
            Err(_) => Ok(false),
            Ok(taken) => Ok(taken),
        }
    }

    /// Gives a lock back, if it is still this one's.
    pub async fn remove(&self, client: &Client, place: &Place) -> std::result::Result<(), ClientError> {
        let name = Value::Bytes(place.name.as_bytes());
        let mut rows = Rows::begin(client);
        let found = rows.lock(&[(&self.locks.schema, &name)]).await?;
        let holder = found.first().and_then(|row| row.as_deref().and_then(holder));
        if holder.is_some_and(|h| (h.owner, h.session) == (place.owner, place.session)) {
            rows.put(OpKind::Delete, &self.locks.schema, &name, &[])?;
            return rows.run(true).await;
        }
        rows.transaction.rollback().await
    }

    pub async fn begin_lease(&self, client: &Client, owner: u64) -> std::result::Result<(), ClientError> {
        let (mut ops, mut row) = (OpBatch::new(), Vec::new());
        let (table, owner) = (&self.leases.schema, Value::UInt(owner));
        table.layout().encode(&[owner, Value::UInt(1)], &mut row)?;
        ops.push(table, OpKind::Write, 0, &encoded_key(table, &owner)?, &row)?;
        client.run_autocommit(&ops, ROW_WAIT_MS, &mut Results::new()).await.map(|_| ())
    }

    /// Raises the number of a lease; false: the lease has ended.
    pub async fn raise(&self, client: &Client, owner: u64) -> std::result::Result<bool, ClientError> {
        let (table, owner) = (&self.leases.schema, Value::UInt(owner));
        let mut rows = Rows::begin(client);
        let found = rows.lock(&[(table, &owner)]).await?;
        let Some(beat) = found.first().and_then(|row| row.as_ref()?.first().copied()) else {
            let _ = rows.transaction.rollback().await;
            return Ok(false);
        };
        rows.put(OpKind::Write, table, &owner, &[beat.wrapping_add(1)])?;
        rows.run(true).await.map(|()| true)
    }

    pub async fn end_lease(&self, client: &Client, owner: u64) -> std::result::Result<(), ClientError> {
        let (table, owner) = (&self.leases.schema, Value::UInt(owner));
        let mut rows = Rows::begin(client);
        if rows.lock(&[(table, &owner)]).await?.first().is_some_and(Option::is_some) {
            rows.put(OpKind::Delete, table, &owner, &[])?;
            return rows.run(true).await;
        }
        rows.transaction.rollback().await
    }
}

fn holder(numbers: &[u64]) -> Option<Holder> {
    match *numbers {
        [owner, session, connection] => Some(Holder { owner, session, connection }),
        _ => None,
    }
}
