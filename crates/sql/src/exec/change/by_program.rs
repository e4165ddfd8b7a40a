//! UPDATE by steps that data nodes execute on the rows they hold.

use std::pin::pin;

use apus_signal::tc::{ALLOW_MISSING, OpKind, OpStatus};
use apus_types::{ErrorCode, TableSchema, Value, row::encode_fixed, update};

use super::{context, info, run, updated};
use crate::{
    errors,
    exec::{Changed, Cluster, duplicate, lock, locked_rows},
    expr::assign::{self, Assign},
    plan::{Update, dml::Step},
    session::{Done, Fail, Session, buffers::Scratch},
    value::datum::Datum,
};

/// Appends the stored form of a value to `out`.
pub(super) fn raw(ty: apus_types::ColumnType, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
    match (ty.fixed_bytes(), value) {
        (Some(width), value) => {
            let start = out.len();
            out.resize(start + width, 0);
            encode_fixed(ty, &value, &mut out[start..])
        }
        (None, Value::Bytes(bytes)) => {
            out.extend_from_slice(bytes);
            Ok(())
        }
        _ => Err(ErrorCode::ValueOutOfRange),
    }
}

/// One round trip, nothing locked before; `None` when the path could not be bound exactly.
pub(super) async fn update_by_program(
    cluster: Cluster<'_>,
    session: &mut Session,
    s: &mut Scratch,
    plan: &Update,
    steps: &[Step],
    params: &[Datum<'_>],
) -> Done<Option<Changed>> {
    let schema = &plan.table.schema;
    // What a column refuses is warned of by the path that looks at the row.
    let assign = Assign::of(&session.env, &schema.name, 1, true);
    s.program.clear();
    {
        let cx = context(session, schema, &[], params);
        plan.access.path.bind(&plan.table, &cx, &mut s.bound)?;
        lock::refuse_fault(&session.env, session.env.variables.strict)?;
        if s.bound.fallback || !s.bound.exact {
            return Ok(None);
        }
        for step in steps {
            match step {
                Step::Set(column, e) => {
                    let c = &schema.columns[usize::from(*column)];
                    // A value that the column refuses is an error only if there is a row to change.
                    let Ok(value) = e.eval(&cx).and_then(|value| assign::assign(c, value, assign)) else {
                        return Ok(None);
                    };
                    if value.is_null() {
                        if !c.nullable {
                            return Ok(None);
                        }
                        update::push_set_null(&mut s.program, *column);
                        continue;
                    }
                    s.row.clear();
                    raw(c.ty, assign::stored(c.ty, &value), &mut s.row)?;
                    update::push_set(&mut s.program, *column, &s.row);
                }
                // A sum that the column refuses is warned of, too.
                Step::Add(..) if !session.env.variables.strict => return Ok(None),
                Step::Add(column, e, minus) => {
                    let delta = match e.eval(&cx)? {
                        Datum::Int(n) => {
                            if *minus {
                                n.checked_neg()
                            } else {
                                Some(n)
                            }
                        }
                        _ => None, // computed here, on the locked row
                    };
                    let Some(delta) = delta else { return Ok(None) };
                    update::push_add(&mut s.program, *column, delta);
                }
            }
        }
    }
    if session.env.has_notes() {
        return Ok(None); // an error, or a warning, only if there is a row to change
    }
    if s.bound.points.is_empty() {
        return Ok(Some(Changed { info: info(0, 0), ..Changed::default() }));
    }
    s.ops.clear();
    for point in s.bound.points.iter() {
        s.ops.push(schema, OpKind::Update, ALLOW_MISSING, point, &s.program)?;
    }
    let own = if session.own.has_rows() { locked_rows::update(session, s, schema) } else { Ok(None) };
    let sent = match own {
        Ok(Some((matched, changed))) => return Ok(Some(updated(session, matched, changed))),
        Ok(None) => pin!(run(cluster, session, s)).await,
        Err(code) => Err(code.into()),
    };
    if let Err(Fail::Client(e)) = &sent {
        if e.code == ErrorCode::DuplicateKey {
            return Err(duplicate(&session.env, &plan.table, e.index, None).into());
        }
        if e.code == ErrorCode::ValueOutOfRange {
            let column =
                steps.iter().find_map(|step| if let Step::Add(c, ..) = step { Some(*c) } else { None }).unwrap_or(0);
            return Err(errors::out_of_range(&schema.columns[usize::from(column)].name, 1).into());
        }
    }
    sent?;
    session.remember(schema);
    if s.results.lost() {
        let affected = s.ops.len() as u64;
        return Ok(Some(Changed { affected, info: info(affected, affected), ..Changed::default() }));
    }
    let (mut matched, mut changed) = (0, 0);
    for (status, _) in s.results.iter() {
        matched += u64::from(matches!(status, OpStatus::Done | OpStatus::Unchanged));
        changed += u64::from(status == OpStatus::Done);
    }
    note_missing(cluster, s, schema);
    Ok(Some(updated(session, matched, changed)))
}

/// Keys of `s.bound` without a row, as `s.results` says.
pub(super) fn note_missing(cluster: Cluster<'_>, s: &Scratch, schema: &TableSchema) {
    if cluster.reads.are_kept() {
        let all = s.bound.points.iter().zip(s.results.iter());
        all.filter(|(_, (status, _))| *status == OpStatus::NotFound)
            .for_each(|(key, _)| cluster.reads.missing(schema, key));
    }
}
