//! DELETE of rows of one table, with what refers to them.

use std::pin::pin;

use apus_signal::tc::{ALLOW_MISSING, OpKind, OpStatus};

use super::{apply_all, by_program::note_missing, context, run};
use crate::{
    catalog::foreign_key::{Rules, rules},
    exec::{
        Changed, Cluster, execute, foreign_key,
        lock::{self, Hunt, Wanted},
        locked_rows, next_savepoint,
        triggered::{self, Writing},
    },
    plan::Delete,
    program::trigger::Event,
    session::{Done, Session, buffers::Scratch},
    value::datum::Datum,
};

/// Deletes rows that others may refer to; how many.
async fn delete_referred(
    cluster: Cluster<'_>,
    session: &mut Session,
    plan: &Delete,
    rules: &Rules,
    rows: &[foreign_key::Row],
) -> Done<u64> {
    if !plan.ignore {
        return apply_all(cluster, session, &plan.table, rules, rows).await.map(|()| rows.len() as u64);
    }
    let mut affected = 0;
    for row in rows {
        match foreign_key::apply(cluster, session, &plan.table, rules, std::slice::from_ref(row)).await? {
            foreign_key::Outcome::Done => affected += 1,
            foreign_key::Outcome::Refused { error, .. } => session.warn_error(&error),
        }
    }
    Ok(affected)
}

pub async fn delete(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Delete,
    params: &[Datum<'_>],
) -> Done<Changed> {
    session.env.changes_rows.set(true);
    let schema = &plan.table.schema;
    lock::refuse_unsafe(&session.env, &plan.access.path, plan.limit.as_ref())?;
    let strict = session.env.variables.strict && !plan.ignore;
    let rules = rules(session, cluster.catalog, schema).filter(|rules| !rules.children.is_empty());
    let is_triggered = plan.table.triggers().is_some_and(|triggers| triggers.has(Event::Delete));
    let by_key = rules.is_none()
        && !is_triggered
        && matches!(&plan.access.path, crate::plan::access::Path::Points { index: None, .. })
        && plan.access.rest.is_none()
        && plan.limit.is_none();
    if by_key {
        let cx = context(session, schema, &[], params);
        plan.access.path.bind(&plan.table, &cx, &mut s.bound)?;
        lock::refuse_fault(&session.env, strict)?;
        if s.bound.exact && !s.bound.fallback {
            if s.bound.points.is_empty() {
                return Ok(Changed::default());
            }
            s.ops.clear();
            for point in s.bound.points.iter() {
                s.ops.push(schema, OpKind::Delete, ALLOW_MISSING, point, &[])?;
            }
            if let Some(affected) = locked_rows::delete(session, s, schema) {
                return Ok(Changed { affected, ..Changed::default() });
            }
            run(cluster, session, s).await?;
            session.remember(schema);
            note_missing(cluster, s, schema);
            let done = s.results.iter().filter(|(status, _)| *status == OpStatus::Done).count();
            let affected = if s.results.lost() { s.ops.len() } else { done } as u64;
            return Ok(Changed { affected, ..Changed::default() });
        }
    }
    let limit = lock::limit(session, schema.layout(), plan.limit.as_ref(), params)?;
    let Delete { table, access, order, in_order, reverse, .. } = plan;
    let wanted = Wanted { table, access, order, in_order: *in_order, reverse: *reverse, lock: None, params, strict };
    let mut hunt = Hunt::new(s, wanted, limit);
    if rules.as_ref().is_some_and(|rules| rules.is_cyclic) {
        hunt.one_by_one();
    }
    let mut affected = 0;
    loop {
        s.locked.clear();
        if !pin!(hunt.next(cluster, session, s)).await? {
            break;
        }
        s.ops.clear();
        if is_triggered {
            let locked = std::mem::take(&mut s.locked);
            let (rules, ignore) = (rules.as_deref(), plan.ignore);
            for i in 0..locked.len() {
                let writing = Writing { table, rules, check: None, params, ignore, lenient: !strict, number: i + 1 };
                let row = (locked.key(i), locked.payload(i));
                let is_gone = Box::pin(triggered::delete(cluster, session, s, &writing, row, None)).await?;
                affected += u64::from(is_gone);
            }
            s.locked = locked;
            continue;
        }
        if let Some(rules) = &rules {
            let gone = |i| foreign_key::Row::gone(s.locked.key(i), s.locked.payload(i));
            let rows: Vec<foreign_key::Row> = (0..s.locked.len()).map(gone).collect();
            affected += Box::pin(delete_referred(cluster, session, plan, rules, &rows)).await?;
            continue;
        }
        for i in 0..s.locked.len() {
            s.ops.push(schema, OpKind::Delete, 0, s.locked.key(i), &[])?;
        }
        affected += s.locked.len() as u64;
        let savepoint = next_savepoint(session);
        execute(cluster, session, &s.ops, &mut s.results, savepoint, false).await?;
    }
    session.remember(schema);
    Ok(Changed { affected, ..Changed::default() })
}
