//! The row in which SQL nodes ask each other. It stands in the table of accounts, with which it is read ([`crate::session::account_store`]).

use apus_client::{Client, ClientError, ExecOptions, OpBatch, Results};
use apus_signal::tc::{ALLOW_MISSING, OpKind, OpStatus};
use apus_types::TableSchema;
use prost::Message as _;

use super::message::Asked;
use crate::{
    errors::{self, Result},
    session::account_store::{ASKED, ATTEMPTS_MAX, LOCK_WAIT_MS, cell, is_to_try_again, key_of, push},
};

/// Changes what is asked of all SQL nodes; what it is then. `change` may be called several times.
///
/// # Errors
/// The cluster.
pub async fn change(client: &Client, table: &TableSchema, mut change: impl FnMut(&mut Asked)) -> Result<Asked> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match try_to_change(client, table, &mut change).await {
            Err(e) if attempt < ATTEMPTS_MAX && is_to_try_again(&e) => {}
            done => return done.map_err(|e| errors::from_client(&e)),
        }
    }
}

async fn try_to_change(
    client: &Client,
    table: &TableSchema,
    change: &mut impl FnMut(&mut Asked),
) -> std::result::Result<Asked, ClientError> {
    let (mut ops, mut results, mut transaction) = (OpBatch::new(), Results::new(), client.begin());
    ops.push_read(table, true, ALLOW_MISSING, &key_of(table, ASKED)?, None)?;
    let options = ExecOptions { commit: false, savepoint: 1, lock_wait_ms: LOCK_WAIT_MS };
    transaction.execute(&ops, options, &mut results).await?;
    let row = results.row(0).filter(|_| results.status(0) == Some(OpStatus::Done));
    let before = row.map(|row| cell(table, row, 1).to_vec());
    let mut asked = before.as_deref().map_or_else(Asked::default, |body| Asked::decode(body).unwrap_or_default());
    change(&mut asked);
    ops.clear();
    let kind = if before.is_some() { OpKind::Write } else { OpKind::Insert };
    push(&mut ops, table, kind, ASKED, &asked.encode_to_vec())?;
    let options = ExecOptions { commit: true, savepoint: 2, lock_wait_ms: LOCK_WAIT_MS };
    transaction.execute(&ops, options, &mut results).await?;
    Ok(asked)
}
