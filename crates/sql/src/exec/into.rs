//! Queries whose rows are not for the client: SELECT ... INTO @a, @b, INTO OUTFILE, and what a procedure reads.

use super::{Changed, Cluster, Info, change_joined, query, read, target::Target};
use crate::{
    errors,
    files::{clause::Clause, write::Written},
    plan::{
        Select,
        into::{Goal, Into},
    },
    session::{Done, Fail, Session, buffers::Scratch},
    value::datum::Datum,
};
use apus_types::ErrorCode;

pub async fn select(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Into,
    params: &[Datum<'_>],
) -> Done<Changed> {
    if plan.is_deprecated {
        session.env.note(errors::into_deprecated());
    }
    if let Goal::File(clause) = &plan.goal {
        return Box::pin(into_file(cluster, session, s, (&plan.query, clause), params)).await;
    }
    let mut values = query::Values::default();
    rows(cluster, session, s, &plan.query, params, &mut values).await?;
    let rows = values.rows;
    let affected = rows.len() as u64;
    let names = match &plan.goal {
        Goal::Variables(names) => names,
        Goal::Session | Goal::File(_) => {
            session.collected = rows;
            return Ok(Changed { affected, last_insert_id: 0, info: Info::None });
        }
    };
    if rows.len() > 1 {
        return Err(errors::several_rows().into());
    }
    if rows.is_empty() {
        session.env.note(errors::no_data());
    }
    for (name, value) in rows.into_iter().flat_map(|row| names.iter().zip(row)) {
        session.env.assign(name, value)?;
    }
    Ok(Changed { affected, last_insert_id: 0, info: Info::None })
}

/// Attempts of a statement that writes a file at a snapshot of its own: where a data node dies, the one that lives may not have it.
const SNAPSHOTS_MAX: u32 = 3;

/// What was written before an error stays.
async fn into_file(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    (plan, clause): (&Select, &Clause),
    params: &[Datum<'_>],
) -> Done<Changed> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut written = Written::create(session, clause, plan).await?;
        let done = rows(cluster, session, s, plan, params, &mut written).await;
        if attempt < SNAPSHOTS_MAX && !session.in_transaction() && session.snapshot.is_none() && is_too_old(&done) {
            session.env.forget_assigned();
            continue;
        }
        let affected = written.finish(session).await;
        session.env.found_rows = done?;
        return Ok(Changed { affected: affected?, last_insert_id: 0, info: Info::None });
    }
}

fn is_too_old(done: &Done<u64>) -> bool {
    matches!(done, Err(Fail::Client(e)) if e.code == ErrorCode::SnapshotTooOld)
}

/// Gives the rows of a query to somebody; how many there are without its LIMIT, if that was asked.
async fn rows<T: Target>(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Select,
    params: &[Datum<'_>],
    out: &mut T,
) -> Done<u64> {
    if let Some(locked) = &plan.locked {
        return Box::pin(change_joined::select(cluster, session, s, plan, locked, params, out)).await;
    }
    if let (Some(_), Some(table), Some(access)) = (&plan.lock, &plan.table, &plan.access) {
        return Box::pin(read::select_locked(cluster, session, s, plan, table, access, params, out)).await;
    }
    let snapshot = session.reading_at(cluster.client).await?;
    let run = query::of_session(cluster, session, params, snapshot);
    query::into(&run, plan, Default::default(), out).await
}
