//! Batches of new rows of which no two have the same primary or unique key, so that they may be stored in any order.

use std::ops::Range;

use apus_signal::tc::{ALLOW_DUPLICATE, OpKind};
use apus_types::{ErrorCode, IndexDef, TableSchema, key, list::KeyList};

use crate::{
    catalog::Table,
    session::buffers::Scratch,
    spill::byte_strings::{StringSet, Strings},
};

/// Bytes of the rows of a batch, if it has several.
const BATCH_BYTES_MAX: usize = 4 << 20;

/// Makes the operations of the rows from the front of `range` on, up to one that has a key of another or bytes are enough; where that is.
pub fn gather(s: &mut Scratch, table: &Table, images: &Strings, range: Range<usize>) -> Result<usize, ErrorCode> {
    let schema = &table.schema;
    s.ops.clear();
    s.batch_keys.clear();
    for i in range.clone() {
        let image = images.get(i).unwrap_or(&[]);
        s.key.clear();
        key::encode_from_row(schema, &schema.primary_key, image, &mut s.key)?;
        let is_full = i > range.start && s.ops.byte_len() + image.len() > BATCH_BYTES_MAX;
        if is_full || !add_keys(&mut s.batch_keys, schema, &s.key, image)? {
            return Ok(i);
        }
        s.ops.push(schema, OpKind::Insert, ALLOW_DUPLICATE, &s.key, image)?;
    }
    Ok(range.end)
}

/// False: another row has one of these keys.
fn add_keys(known: &mut StringSet, schema: &TableSchema, primary: &[u8], image: &[u8]) -> Result<bool, ErrorCode> {
    let mut is_new = known.insert_with(|out| {
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(primary);
        Ok::<(), ErrorCode>(())
    })?;
    for index in schema.indexes.iter().filter(|index| index.unique) {
        if let Some(column) = index.list_column() {
            is_new.1 &= add_list(known, schema, (index, column), primary.len(), image)?;
            continue;
        }
        if index.columns.iter().any(|&c| schema.layout().is_null(image, c)) {
            continue;
        }
        let is_other = known.insert_with(|out| {
            out.extend_from_slice(&index.no.0.to_be_bytes());
            key::encode_unique(schema, index, image, out).map(|_| ())
        })?;
        is_new.1 &= is_other.1;
    }
    Ok(is_new.1)
}

/// [`add_keys`] of an index of lists.
fn add_list(
    known: &mut StringSet,
    schema: &TableSchema,
    (index, column): (&IndexDef, u16),
    primary: usize,
    image: &[u8],
) -> Result<bool, ErrorCode> {
    let list = KeyList::read(schema.layout().raw(image, column), primary)?;
    let mut is_new = true;
    for key in list.keys().filter(|_| !list.is_shared) {
        let added = known.insert_with(|out| {
            out.extend_from_slice(&index.no.0.to_be_bytes());
            out.extend_from_slice(key);
            Ok::<(), ErrorCode>(())
        })?;
        is_new &= added.1;
    }
    Ok(is_new)
}
