//! Rows of a table by keys that the rows of a batch name: all keys of a batch in one request, each key once; ranges of an index
//! some at a time.

use std::rc::Rc;

use apus_client::{KeyList, ReadBatch, Rows};
use apus_types::{IndexNo, RowLayout, TableSchema, Value, schema};

use super::{
    Run,
    pipeline::{Consumer, Found, Pipeline, State, context},
};
use crate::{
    catalog::Table,
    errors,
    exec::read::{RANGES_AT_ONCE, join_all},
    plan::{
        access::{EncodedRange, Path, binding::bounds_of},
        pushed_condition::Pushed,
    },
    session::Done,
    spill::byte_strings::{StringSet, Strings},
};

/// Ranges that are looked up for one step; with more of them the table is read as a whole, where it can be joined by a hash table.
const RANGES_MAX: usize = 2000;

pub struct Target<'t> {
    pub table: &'t Rc<Table>,
    pub columns: &'t [u16],
    pub path: &'t Path,
    /// Of the conditions on the table alone.
    pub pushed: Option<&'t Pushed>,
    /// Reading everything is a way, too.
    pub can_be_whole: bool,
}

/// Rows that the rows of the batch name; `None`: keys do not say it, or are too many.
pub async fn find<C: Consumer>(
    pipeline: &Pipeline<'_, '_, C>,
    target: Target<'_>,
    before: &RowLayout,
    batch: &Strings,
    state: &mut State,
) -> Done<Option<Found>> {
    let (run, schema) = (pipeline.run, &target.table.schema);
    let mut found = Found { rows: Vec::new(), pairs: Vec::new(), starts: Vec::with_capacity(batch.len()) };
    let mut keys = StringSet::default();
    let mut ranges: Vec<EncodedRange> = Vec::new();
    let by_point = matches!(target.path, Path::Points { .. });
    let mut key = Vec::new();
    for (i, row) in batch.iter().enumerate() {
        found.starts.push(found.pairs.len() as u32);
        let bound = &mut state.bound;
        target.path.bind(target.table, &context(run, pipeline.given, before, row), bound)?;
        if bound.fallback {
            return Ok(None);
        }
        if bound.empty {
            continue;
        }
        if by_point {
            for point in bound.points.iter() {
                let (number, _) = keys.insert(point);
                found.pairs.push((i as u32, 0, number as u32));
            }
            continue;
        }
        let single = bound.ranges.is_empty().then(|| bound.range());
        for range in single.iter().chain(&bound.ranges) {
            key.clear();
            push_range(range, &mut key);
            let (number, is_new) = keys.insert(&key);
            if is_new {
                ranges.push(range.clone());
            }
            found.pairs.push((i as u32, number as u32, u32::MAX));
        }
    }
    match target.path {
        Path::Points { index, .. } => {
            let rows = points(run, &target, *index, &keys, &mut found).await?;
            found.rows.push(rows);
        }
        // Nothing of another table is looked for in arrays.
        Path::Listed(_) => return Err(errors::internal("a lookup by a multi-valued index").into()),
        Path::Range { index, .. } | Path::Union { index, .. } => {
            state.ranges += ranges.len();
            if state.ranges > RANGES_MAX && target.can_be_whole {
                return Ok(None);
            }
            state.asked.clear();
            if let Some(pushed) = target.pushed {
                pushed.bind(schema, &context(run, pipeline.given, before, &[]), &mut state.asked)?;
            }
            found.rows = scans(run, &target, *index, &ranges, &state.asked.filter).await?;
        }
    }
    Ok(Some(found))
}

fn push_range((low, high): &EncodedRange, out: &mut Vec<u8>) {
    for bound in [low, high] {
        match bound {
            Some(key) => {
                out.extend_from_slice(&(key.len() as u32 + 1).to_le_bytes());
                out.extend_from_slice(key);
            }
            None => out.extend_from_slice(&[0; 4]),
        }
    }
}

/// Reads keys; those of a unique index by its entries, whose numbers become those of their rows in `found`.
async fn points(
    run: &Run<'_>,
    target: &Target<'_>,
    index: Option<usize>,
    keys: &StringSet,
    found: &mut Found,
) -> Done<Rows> {
    let mut list = KeyList::new();
    let mut rows = Rows::new();
    let all = (0..keys.len()).filter_map(|n| keys.get(n));
    let Some(position) = index else {
        for key in all {
            list.push(&target.table.schema, key)?;
        }
        read(run, &target.table.schema, Some(target.columns), &list, &mut rows).await?;
        return Ok(rows);
    };
    let hidden = target.table.hidden.get(position).and_then(|h| h.as_ref());
    let hidden = hidden.ok_or_else(|| errors::internal("a unique index without its table"))?;
    for key in all {
        list.push(hidden, key)?;
    }
    read(run, hidden, None, &list, &mut rows).await?;
    list.clear();
    let mut places = vec![u32::MAX - 1; keys.len()];
    for (number, entry) in rows.iter().enumerate() {
        let Some(entry) = entry else { continue };
        let primary = hidden.layout().raw(entry, schema::HIDDEN_PK_COLUMN);
        let Value::UInt(hash) = hidden.layout().value(entry, schema::HIDDEN_HASH_COLUMN) else {
            return Err(errors::internal("a unique index row without hash").into());
        };
        places[number] = list.len() as u32;
        list.push_hashed(hash, primary)?;
    }
    for (_, _, number) in &mut found.pairs {
        *number = places.get(*number as usize).copied().unwrap_or(u32::MAX - 1);
    }
    read(run, &target.table.schema, Some(target.columns), &list, &mut rows).await?;
    Ok(rows)
}

async fn read(
    run: &Run<'_>,
    schema: &TableSchema,
    columns: Option<&[u16]>,
    keys: &KeyList,
    rows: &mut Rows,
) -> Done<()> {
    if keys.is_empty() {
        rows.clear();
        return Ok(());
    }
    let seen = run.seen(schema);
    let (trans, snapshot) = (seen.trans, seen.snapshot);
    let request = ReadBatch { trans, snapshot, table: schema.id, schema_version: schema.version, columns, keys };
    if run.tells {
        run.and_moment(Some(run.cluster.client.read_telling(&request, rows).await?));
    } else {
        run.cluster.client.read(&request, rows).await?;
        run.cluster.reads.keys(schema, keys, rows);
    }
    Ok(())
}

/// All rows of each range that pass the filter.
async fn scans(
    run: &Run<'_>,
    target: &Target<'_>,
    index: IndexNo,
    ranges: &[EncodedRange],
    filter: &[u8],
) -> Done<Vec<Rows>> {
    let schema = &target.table.schema;
    let mut request = run.seen(schema).scan(schema);
    request.one_moment = false;
    request.index = index;
    request.columns = Some(target.columns);
    request.filter = filter;
    let mut all = Vec::with_capacity(ranges.len());
    let mut bytes = 0;
    ranges.iter().for_each(|range| run.cluster.reads.range(schema, index, range));
    for some in ranges.chunks(RANGES_AT_ONCE) {
        run.env.may_go_on()?;
        let asked = some.iter().map(|(low, high)| {
            let (low, high) = bounds_of(low.as_deref(), high.as_deref());
            let request = apus_client::ScanRequest { low, high, ..request };
            Box::pin(async move {
                let mut cursor = run.cluster.client.scan(&request);
                let mut rows = Rows::new();
                let mut more = cursor.next_batch(&mut rows).await?;
                let moment = cursor.moment();
                let mut lists = vec![rows];
                while more {
                    let mut rows = Rows::new();
                    more = cursor.next_batch(&mut rows).await?;
                    if more {
                        lists.push(rows);
                    }
                }
                Ok::<_, apus_client::ClientError>((lists, moment))
            })
        });
        for answer in join_all(asked.collect()).await {
            let (mut lists, moment) = answer?;
            if run.tells {
                run.and_moment(moment.filter(|_| lists.len() == 1));
            }
            bytes += lists.iter().flat_map(Rows::iter).flatten().map(<[u8]>::len).sum::<usize>();
            run.has_room_for(bytes)?;
            all.push(if lists.len() == 1 { lists.remove(0) } else { merged(&lists)? });
        }
    }
    Ok(all)
}

fn merged(lists: &[Rows]) -> Done<Rows> {
    let mut out = Rows::new();
    for row in lists.iter().flat_map(Rows::iter).flatten() {
        out.append(row)?;
    }
    Ok(out)
}
