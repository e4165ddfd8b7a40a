//! `max_join_size`: a statement that would look at too many combinations of rows is refused before it looks at any, as `mysql --safe-updates` asks for.
//!
//! The numbers are those of EXPLAIN: row counts that are some seconds old, and sampled indexes. A table counts for [`statistics`](crate::catalog::statistics)' least size at least.

use crate::{
    admin::explain::columns,
    catalog::Catalog,
    errors::{self, Result},
    exec::lock,
    plan::{Plan, Select, bind::AggregateKind, select::Group},
    session::{Session, engine::SqlEngine},
    value::datum::Datum,
};

impl SqlEngine {
    /// Error 1104 of a plan that is over the session's limit.
    pub(crate) async fn check_join_size(
        &self,
        session: &Session,
        catalog: &Catalog,
        plan: &Plan,
        params: &[Datum<'_>],
    ) -> Result<()> {
        let Some(most) = session.env.variables.join_limit() else { return Ok(()) };
        let Some(select) = plan.reading().filter(|select| !asks_for_counts(select)) else { return Ok(()) };
        self.learn_sizes(catalog, plan).await;
        let mut all = columns::combinations(plan, &catalog.statistics);
        if stops_at_limit(select) {
            let limit = lock::limit(session, &select.layout, select.limit.as_ref(), params)?;
            let offset = lock::limit(session, &select.layout, select.offset.as_ref(), params)?;
            if let Some(limit) = limit {
                all = all.min(limit.saturating_add(offset.unwrap_or(0)) as f64);
            }
        }
        if all > most as f64 { Err(errors::join_too_big()) } else { Ok(()) }
    }

    /// Learns how large the tables of a plan are; what cannot be learned is done without.
    pub(crate) async fn learn_sizes(&self, catalog: &Catalog, plan: &Plan) {
        let statistics = &catalog.statistics;
        for table in plan.tables().filter(|table| statistics.is_stale(table)) {
            let _ = statistics.gather(&self.client, table, false).await;
        }
    }
}

/// Counts and extremes of one whole table: data nodes know them, or find them.
fn asks_for_counts(select: &Select) -> bool {
    let filters = select.access.as_ref().is_some_and(|access| access.rest.is_some());
    let is_cheap = |kind| {
        matches!(kind, AggregateKind::CountRows | AggregateKind::Count | AggregateKind::Min | AggregateKind::Max)
    };
    let all_cheap =
        |g: &Group| g.keys.is_empty() && g.windows.is_none() && g.aggregates.iter().all(|a| is_cheap(a.function));
    select.join.is_none() && !filters && select.group.as_ref().is_some_and(all_cheap)
}

/// It reads the rows of one table until it has enough.
fn stops_at_limit(select: &Select) -> bool {
    let filters = select.access.as_ref().is_some_and(|access| access.rest.is_some());
    select.join.is_none() && select.group.is_none() && select.in_order && !select.distinct && !filters
}
