//! SELECT ... INTO @a, @b: the one row of a query as the values of variables.

use super::{Changed, Cluster, Info, query};
use crate::engine::{
    errors,
    expr::Datum,
    plan::into::Into,
    session::{Done, Session},
};

pub async fn select(cluster: Cluster<'_>, session: &mut Session, plan: &Into, params: &[Datum<'_>]) -> Done<Changed> {
    let query = &plan.query;
    if query.lock.is_some() || query.locked.is_some() {
        return Err(errors::not_supported("SELECT ... INTO with locks").into());
    }
    let snapshot = session.reading_at(cluster.client).await?;
    let rows = query::collect_at(cluster, session, query, params, snapshot).await?;
    if rows.len() > 1 {
        return Err(errors::several_rows().into());
    }
    if rows.is_empty() {
        session.env.note(errors::no_data());
    }
    let affected = rows.len() as u64;
    for (name, value) in rows.into_iter().flat_map(|row| plan.names.iter().zip(row)) {
        session.env.assign(name, value)?;
    }
    Ok(Changed { affected, last_insert_id: 0, info: Info::None })
}
