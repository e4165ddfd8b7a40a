//! A connection's prepared statements as the protocol sees them: parameter counts, bound types, data sent ahead.
//! What a statement means stays with the engine.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use super::{
    Engine, Output,
    cursors::{Held, OpenCursor},
    limits,
};
use crate::wire::{
    SqlError,
    constants::execute_flag,
    params::{ParamType, ParamValue, decode_counted_params, decode_params},
};

#[derive(Debug, Default)]
struct Statement {
    params: usize,
    /// Types bound by the last EXECUTE that bound any.
    types: Vec<ParamType>,
    /// Values sent ahead of the next EXECUTE, by parameter; empty when there are none.
    long_data: Vec<Option<Vec<u8>>>,
    /// SEND_LONG_DATA is not answered: its error is reported by the next EXECUTE.
    deferred: Option<SqlError>,
    cursor: Option<Box<OpenCursor>>,
}

#[derive(Debug)]
pub(super) struct Statements {
    by_id: BTreeMap<u32, Statement>,
    /// Bytes held in `long_data` of all statements.
    long_data_bytes: usize,
    /// Reused for the parameters of each EXECUTE; empty in between.
    spare: Vec<ParamValue<'static>>,
    /// By the cursors of all connections.
    held: Arc<Held>,
}

impl Statements {
    pub fn new(held: Arc<Held>) -> Statements {
        Statements { by_id: BTreeMap::new(), long_data_bytes: 0, spare: Vec::new(), held }
    }

    /// The session begins anew.
    pub fn clear(&mut self) {
        *self = Statements::new(self.held.clone());
    }

    pub async fn prepare<E: Engine>(
        &mut self,
        engine: &E,
        session: &mut E::Session,
        sql: &[u8],
        out: &mut Output<'_>,
    ) -> Result<(), SqlError> {
        if self.by_id.len() >= limits::STATEMENTS_MAX {
            let text = format!(
                "Can't create more than max_prepared_stmt_count statements (current value: {})",
                limits::STATEMENTS_MAX
            );
            return Err(SqlError::new(1461, b"42000", text));
        }
        let info = engine.prepare(session, sql).await?;
        if info.params.len() > limits::PARAMS_MAX || info.columns.len() > limits::PARAMS_MAX {
            engine.close_statement(session, info.id);
            return Err(SqlError::new(1390, b"HY000", "Prepared statement contains too many placeholders"));
        }
        self.close(info.id);
        self.by_id.insert(info.id, Statement { params: info.params.len(), ..Statement::default() });
        out.set_status(engine.status(session));
        out.prepared(info.id, &info.params, &info.columns, info.warnings);
        Ok(())
    }

    /// `counted`: the client knows attributes, so it says how many values it sends.
    #[inline]
    pub async fn execute<E: Engine>(
        &mut self,
        engine: &E,
        session: &mut E::Session,
        (id, flags, counted): (u32, u8, bool),
        body: &[u8],
        out: &mut Output<'_>,
    ) -> Result<(), SqlError> {
        let Some(statement) = self.by_id.get_mut(&id) else { return Err(SqlError::unknown_statement(id)) };
        if let Some(error) = statement.deferred.take() {
            self.drop_long_data(id);
            return Err(error);
        }
        let mut params: Vec<ParamValue<'_>> = std::mem::take(&mut self.spare);
        let Statement { types, long_data, cursor, .. } = statement;
        *cursor = None;
        let mut attributes = Vec::new();
        let count = statement.params;
        let decoded = match counted && (count > 0 || flags & execute_flag::PARAMETER_COUNT != 0) {
            false => decode_params(body, count, types, long_data, &mut params),
            true => decode_counted_params(body, count, types, long_data, (&mut params, &mut attributes)),
        };
        if !attributes.is_empty() {
            engine.set_attributes(session, &attributes);
        }
        let done = match decoded {
            Ok(()) if flags & execute_flag::CURSOR_READ_ONLY != 0 => {
                let opened = OpenCursor::open(engine, session, (id, &params), self.held.clone(), out);
                Box::pin(opened).await.map(|opened| *cursor = opened.map(Box::new))
            }
            Ok(()) => pin!(engine.execute(session, id, &params, out)).await,
            Err(_) => Err(SqlError::new(1210, b"HY000", "Incorrect arguments to COM_STMT_EXECUTE")),
        };
        if !attributes.is_empty() {
            engine.set_attributes(session, &[]);
        }
        let has_long_data = !long_data.is_empty();
        params.clear();
        // Collecting an emptied vector in place keeps its allocation and changes the lifetime.
        self.spare = params.into_iter().map(|_| ParamValue::Null).collect();
        if has_long_data {
            self.drop_long_data(id);
        }
        done
    }

    /// Appends to a parameter's value; errors wait for the next EXECUTE.
    pub fn send_long_data(&mut self, id: u32, param: u16, data: &[u8]) {
        let Some(statement) = self.by_id.get_mut(&id) else { return };
        if statement.deferred.is_some() {
            return;
        }
        let param = usize::from(param);
        if param >= statement.params {
            statement.deferred =
                Some(SqlError::new(1210, b"HY000", "Incorrect arguments to mysqld_stmt_send_long_data"));
            return;
        }
        if self.long_data_bytes + data.len() > limits::LONG_DATA_BYTES_MAX {
            statement.deferred = Some(SqlError::packet_too_large());
            return;
        }
        statement.long_data.resize(statement.params, None);
        if let Some(value) = statement.long_data.get_mut(param) {
            value.get_or_insert_default().extend_from_slice(data);
            self.long_data_bytes += data.len();
        }
    }

    /// COM_STMT_FETCH.
    pub async fn fetch(&mut self, id: u32, rows: u32, out: &mut Output<'_>) -> Result<(), SqlError> {
        let Some(statement) = self.by_id.get_mut(&id) else { return Err(SqlError::unknown_statement(id)) };
        let Some(cursor) = &mut statement.cursor else { return Err(SqlError::no_open_cursor(id)) };
        if !cursor.fetch(rows, out).await? {
            statement.cursor = None;
        }
        Ok(())
    }

    /// COM_STMT_RESET: forgets data sent ahead and the cursor.
    pub fn reset(&mut self, id: u32) -> Result<(), SqlError> {
        let Some(statement) = self.by_id.get_mut(&id) else { return Err(SqlError::unknown_statement(id)) };
        statement.cursor = None;
        self.drop_long_data(id);
        Ok(())
    }

    /// Forgets a statement; false if there was none of this id.
    pub fn close(&mut self, id: u32) -> bool {
        self.drop_long_data(id);
        self.by_id.remove(&id).is_some()
    }

    fn drop_long_data(&mut self, id: u32) {
        if let Some(statement) = self.by_id.get_mut(&id) {
            let held: usize = statement.long_data.iter().flatten().map(Vec::len).sum();
            self.long_data_bytes -= held;
            statement.long_data.clear();
            statement.deferred = None;
        }
    }
}
