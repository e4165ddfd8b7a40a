//! Claims: locks that outlive transactions. What a prepared branch of a distributed transaction (XA) has locked and will change, as rows of two tables of the
//! cluster's own.
//!
//! `apus.branches` has a row for each prepared branch: its name, a random number, how many claims it has. `apus.claims` has a row for each row that the branch holds, **in
//! the partition of that row**: so claim and row are at one LDM instance and on one chain, a transaction that changes both has one part for both, and they change in one step. An
//! LDM lets nobody lock a row that another's committed claim names (`apus_blocks::ldm::claims`). Docs: `docs/decisions/0045-xa.md`.
//!
//! The key of a claim begins with table and hash of the row's key, for look-ups by row. An ordered index by branch finds the claims of one. An image that is longer than [`PIECE_BYTES`] is
//! in several claims with numbers that follow one another, of which all but the last say [`MORE`].

use crate::{
    Column, ColumnType, ErrorCode, IndexDef, IndexNo, IndexState, TableId, TableSchema, Value,
    hash::hash_key,
    key,
    limits::{KEY_BYTES_MAX, ROW_BYTES_MAX},
};

/// The database of the cluster's own tables, which no statement can name.
pub const SYSTEM_DATABASE: &str = "apus";
pub const CLAIMS: &str = "claims";
pub const BRANCHES: &str = "branches";
/// The ordered index of claims by branch.
pub const BY_BRANCH: IndexNo = IndexNo(1);
/// Bytes of an image in one claim.
pub const PIECE_BYTES: usize = 1 << 20;
/// Bytes of a name: format, lengths, and two identifiers of 64.
pub const NAME_BYTES_MAX: usize = 140;
/// In a claim's kind: its image goes on in the next claim.
pub const MORE: u8 = 0x80;
/// Bytes of table and hash at the beginning of a claim's key.
pub const PREFIX_BYTES: usize = 12;

const _: () = assert!(PIECE_BYTES + KEY_BYTES_MAX + 128 < ROW_BYTES_MAX);

/// What a branch holds a row for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ClaimKind {
    /// Others may share it, too.
    Shared = 0,
    /// Nothing changes.
    Exclusive = 1,
    /// The row becomes the image.
    Write = 2,
    Delete = 3,
    /// As [`ClaimKind::Write`], but the row gives up a unique key that another row of the branch takes: it is deleted before anything is written.
    Move = 4,
}

impl ClaimKind {
    fn from_u8(n: u8) -> Option<ClaimKind> {
        use ClaimKind::*;
        [Shared, Exclusive, Write, Delete, Move].into_iter().find(|kind| *kind as u8 == n)
    }
}

/// A row of `apus.claims`.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    pub table: TableId,
    pub branch: u64,
    /// Among the claims of the branch.
    pub number: u32,
    /// Distribution hash of the row.
    pub hash: u64,
    pub kind: ClaimKind,
    pub more: bool,
    /// The row's encoded primary key.
    pub key: &'a [u8],
    pub image: &'a [u8],
}

const TABLE_COLUMN: u16 = 0;
const BRANCH_COLUMN: u16 = 2;
const NUMBER_COLUMN: u16 = 3;
/// Columns of `apus.claims` that a scan may ask for alone.
pub const HASH_COLUMN: u16 = 4;
pub const KIND_COLUMN: u16 = 5;
const KEY_COLUMN: u16 = 6;
const IMAGE_COLUMN: u16 = 7;

fn column(name: &str, ty: ColumnType) -> Column {
    Column { nullable: false, ..Column::new(name, ty) }
}

fn number(name: &str, bits: u8) -> Column {
    column(name, ColumnType::Int { bits, unsigned: true })
}

/// The definition of `apus.claims`.
pub fn claims_definition() -> TableSchema {
    let columns = vec![
        number("table", 32),
        number("key_hash", 64),
        number("branch", 64),
        number("number", 32),
        number("hash", 64),
        number("kind", 8),
        column("key", ColumnType::VarBinary { length: u16::MAX }),
        column("image", ColumnType::Blob { length: ROW_BYTES_MAX as u32 }),
    ];
    let mut schema = TableSchema::new(SYSTEM_DATABASE, CLAIMS, columns, vec![0, 1, BRANCH_COLUMN, NUMBER_COLUMN]);
    // Where a claim is says whoever writes it: not by its own key.
    schema.distribution_columns = 1;
    schema.indexes.push(IndexDef {
        no: BY_BRANCH,
        name: "branch".to_owned(),
        columns: vec![BRANCH_COLUMN],
        prefixes: Vec::new(),
        list: None,
        unique: false,
        hidden_table: None,
        state: IndexState::Ready,
    });
    schema
}

/// The definition of `apus.branches`: name, number, count of claims.
pub fn branches_definition() -> TableSchema {
    let name = column("name", ColumnType::VarBinary { length: NAME_BYTES_MAX as u16 });
    TableSchema::new(SYSTEM_DATABASE, BRANCHES, vec![name, number("branch", 64), number("claims", 64)], vec![0])
}

pub fn is_claims(schema: &TableSchema) -> bool {
    schema.database == SYSTEM_DATABASE && schema.name == CLAIMS
}

/// With what the keys of all claims on a row begin. Rows of other keys may have the same: ask [`claimed_key`].
pub fn prefix(table: TableId, key: &[u8]) -> [u8; PREFIX_BYTES] {
    let mut out = [0; PREFIX_BYTES];
    out[..4].copy_from_slice(&table.0.to_be_bytes());
    out[4..].copy_from_slice(&hash_key(key).to_be_bytes());
    out
}

/// What is above all that begins with these bytes; `None`: nothing is.
pub fn above<const N: usize>(mut prefix: [u8; N]) -> Option<[u8; N]> {
    let last = prefix.iter().rposition(|byte| *byte != u8::MAX)?;
    prefix[last] += 1;
    prefix[last + 1..].fill(0);
    Some(prefix)
}

/// Of a row of `apus.claims`: the key of the row that is claimed.
pub fn claimed_key<'r>(schema: &'r TableSchema, row: &'r [u8]) -> &'r [u8] {
    schema.layout().raw(row, KEY_COLUMN)
}

/// Of a row of `apus.claims`: whether others may share what it claims.
pub fn is_shared(schema: &TableSchema, row: &[u8]) -> bool {
    schema.layout().raw(row, KIND_COLUMN) == [ClaimKind::Shared as u8]
}

impl<'a> Claim<'a> {
    /// Appends its own encoded primary key.
    pub fn encode_key(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&prefix(self.table, self.key));
        out.extend_from_slice(&self.branch.to_be_bytes());
        out.extend_from_slice(&self.number.to_be_bytes());
    }

    /// Appends the row.
    ///
    /// # Errors
    /// A key or an image that is too long.
    pub fn encode_row(&self, schema: &TableSchema, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
        let kind = self.kind as u8 | if self.more { MORE } else { 0 };
        let values = [
            Value::UInt(self.table.0.into()),
            Value::UInt(hash_key(self.key)),
            Value::UInt(self.branch),
            Value::UInt(self.number.into()),
            Value::UInt(self.hash),
            Value::UInt(kind.into()),
            Value::Bytes(self.key),
            Value::Bytes(self.image),
        ];
        schema.layout().encode(&values, out)
    }

    /// Of a row.
    ///
    /// # Errors
    /// It is none of this release's.
    pub fn decode(schema: &'a TableSchema, row: &'a [u8]) -> Result<Claim<'a>, ErrorCode> {
        let layout = schema.layout();
        let number = |column| match layout.value(row, column) {
            Value::UInt(n) => Ok(n),
            _ => Err(ErrorCode::InvalidSchema),
        };
        let kind = number(KIND_COLUMN)? as u8;
        Ok(Claim {
            table: TableId(number(TABLE_COLUMN)? as u32),
            branch: number(BRANCH_COLUMN)?,
            number: number(NUMBER_COLUMN)? as u32,
            hash: number(HASH_COLUMN)?,
            kind: ClaimKind::from_u8(kind & !MORE).ok_or(ErrorCode::InvalidSchema)?,
            more: kind & MORE != 0,
            key: layout.raw(row, KEY_COLUMN),
            image: layout.raw(row, IMAGE_COLUMN),
        })
    }
}

/// A row of `apus.branches`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BranchRow<'a> {
    pub name: &'a [u8],
    pub branch: u64,
    pub claims: u64,
}

impl<'a> BranchRow<'a> {
    /// The encoded primary key of a name.
    ///
    /// # Errors
    /// It is too long.
    pub fn encode_key(schema: &TableSchema, name: &[u8], out: &mut Vec<u8>) -> Result<(), ErrorCode> {
        key::encode_part(schema.columns[0].ty, false, &Value::Bytes(name), out)
    }
    /// # Errors
    /// The name is too long.
    pub fn encode_row(&self, schema: &TableSchema, out: &mut Vec<u8>) -> Result<(), ErrorCode> {
        schema.layout().encode(&[Value::Bytes(self.name), Value::UInt(self.branch), Value::UInt(self.claims)], out)
    }
    pub fn decode(schema: &'a TableSchema, row: &'a [u8]) -> BranchRow<'a> {
        let layout = schema.layout();
        let number = |column| match layout.value(row, column) {
            Value::UInt(n) => n,
            _ => 0,
        };
        BranchRow { name: layout.raw(row, 0), branch: number(1), claims: number(2) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_found_by_the_row_that_it_names() {
        let schema = claims_definition();
        schema.validate().expect("a good definition");
        branches_definition().validate().expect("a good definition");
        let claim = Claim {
            table: TableId(77),
            branch: u64::MAX - 3,
            number: 9,
            hash: 5,
            kind: ClaimKind::Move,
            more: true,
            key: b"k\0ey",
            image: b"image",
        };
        let (mut key, mut row, mut by_row) = (Vec::new(), Vec::new(), Vec::new());
        claim.encode_key(&mut key);
        claim.encode_row(&schema, &mut row).unwrap();
        key::encode_from_row(&schema, &schema.primary_key, &row, &mut by_row).unwrap();
        assert_eq!(key, by_row, "as any row's key is made");
        assert!(key.starts_with(&prefix(TableId(77), b"k\0ey")));
        assert_eq!(claimed_key(&schema, &row), b"k\0ey");
        assert!(!is_shared(&schema, &row));
        let back = Claim::decode(&schema, &row).unwrap();
        assert_eq!(format!("{back:?}"), format!("{claim:?}"));
        assert!(is_claims(&schema) && !is_claims(&branches_definition()));
    }

    #[test]
    fn what_is_above_a_prefix() {
        assert_eq!(above([1, 0xff, 0xff]), Some([2, 0, 0]));
        assert_eq!(above([1, 2]), Some([1, 3]));
        assert_eq!(above([0xff; 3]), None);
        assert!([1, 2, 0xff, 0xff].as_slice() < above([1, 2]).unwrap().as_slice());
    }

    #[test]
    fn a_shared_claim_has_no_image() {
        let schema = claims_definition();
        let kind = ClaimKind::Shared;
        let claim = Claim { table: TableId(1), branch: 2, number: 0, hash: 0, kind, more: false, key: b"", image: b"" };
        let mut row = Vec::new();
        claim.encode_row(&schema, &mut row).unwrap();
        assert!(is_shared(&schema, &row));
    }

    #[test]
    fn a_branch_has_its_name() {
        let schema = branches_definition();
        let (mut row, mut key, mut by_row) = (Vec::new(), Vec::new(), Vec::new());
        let branch = BranchRow { name: &[0; NAME_BYTES_MAX], branch: 7, claims: 3 };
        branch.encode_row(&schema, &mut row).unwrap();
        assert_eq!(BranchRow::decode(&schema, &row), branch);
        BranchRow::encode_key(&schema, branch.name, &mut key).unwrap();
        key::encode_from_row(&schema, &schema.primary_key, &row, &mut by_row).unwrap();
        assert_eq!(key, by_row);
    }
}
