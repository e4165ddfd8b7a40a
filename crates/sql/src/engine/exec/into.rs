//! Queries whose rows are not for the client: SELECT ... INTO @a, @b, and what a procedure reads.

use super::{Changed, Cluster, Info, change_joined, query, read};
use crate::engine::{
    errors,
    expr::Datum,
    plan::{
        Select,
        into::{Goal, Into},
    },
    session::{Done, Scratch, Session},
};

pub async fn select(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Into,
    params: &[Datum<'_>],
) -> Done<Changed> {
    let rows = rows(cluster, session, s, &plan.query, params).await?;
    let affected = rows.len() as u64;
    let names = match &plan.goal {
        Goal::Variables(names) => names,
        Goal::Session => {
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

async fn rows(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Select,
    params: &[Datum<'_>],
) -> Done<Vec<Vec<Datum<'static>>>> {
    let mut values = query::Values::default();
    if let Some(locked) = &plan.locked {
        Box::pin(change_joined::select(cluster, session, s, plan, locked, params, &mut values)).await?;
        return Ok(values.rows);
    }
    if let (Some(_), Some(table), Some(access)) = (&plan.lock, &plan.table, &plan.access) {
        Box::pin(read::select_locked(cluster, session, s, plan, table, access, params, &mut values)).await?;
        return Ok(values.rows);
    }
    let snapshot = session.reading_at(cluster.client).await?;
    query::collect_at(cluster, session, plan, params, snapshot).await
}
