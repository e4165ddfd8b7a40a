//! Multi-valued indexes: keys of the elements of an array, `KEY ((CAST(zips AS UNSIGNED ARRAY)))`.
//!
//! The array is a functional key part ([`super::functional`]), whose hidden column has no values but the list of the index's keys ([`apus_types::list`]): for each element one, with the values of the
//! index's other parts before and behind it. So a row is written as any other with a generated column, and the data nodes make entries of the list. A list with NULL in another part
//! says that other rows may have its keys.
//!
//! As in MySQL a condition that such an index could answer is asked of the array's values as the index has them ([`substitute`]), whether the rows are found by the index or not: `2 MEMBER OF (x)`
//! is true of `["2"]` where `x` is in an index of integers.

use apus_types::{ColumnType, ErrorCode, IndexDef, TableSchema, Value, key, list};

use super::functional::{Same, is_same};
use crate::{
    errors::{self, Result},
    expr::{
        CastType, Context, Env, Expr, Func, Kind, assign,
        json::array::{self, Misfit},
    },
    value::datum::Datum,
    wire::SqlError,
};

/// Bytes of the values of one list, as MySQL counts them.
const BYTES_MAX: usize = 10_000;

/// How the keys of a row are made.
#[derive(Debug)]
pub(crate) struct ListKeys {
    /// The column that has them.
    pub(crate) column: u16,
    /// The document whose elements they are, and as what.
    pub(crate) source: Expr,
    pub(crate) ty: ColumnType,
    /// Of the index; none while the column has no index yet.
    name: Option<String>,
    before: Vec<Part>,
    behind: Vec<Part>,
}

/// Another column of the index.
#[derive(Debug)]
struct Part {
    column: u16,
    prefix: Option<usize>,
}

impl Part {
    /// Appends the part of a row's keys; true: it is NULL.
    fn push(&self, schema: &TableSchema, row: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let value = schema.layout().value(row, self.column);
        push_part(schema, self.column, self.prefix, value, out)?;
        Ok(value.is_null())
    }
}

/// Appends the part of a key that a column is.
///
/// # Errors
/// The key is too long.
pub fn push_part(
    schema: &TableSchema,
    column: u16,
    prefix: Option<usize>,
    value: Value<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let c = &schema.columns[usize::from(column)];
    let value = prefix.map_or(value, |length| key::beginning(c.ty, &value, length));
    key::encode_part(c.ty, c.nullable, &value, out).map_err(coded)
}

fn coded(code: ErrorCode) -> SqlError {
    errors::from_code(code, "")
}

/// The types of an array's elements.
///
/// # Errors
/// 1235: there are no arrays of these.
pub fn element_type(ty: &sqlparser::ast::DataType) -> Result<ColumnType> {
    const LENGTH_MAX: u32 = 512;
    let unsupported = |what: &str| Err(errors::not_yet_in_mysql(&format!("CAST-ing data to array of {what}")));
    let Ok(cast) = crate::plan::bind::cast_type(ty) else {
        return Err(errors::not_yet_in_mysql("specifying charset for multi-valued index"));
    };
    Ok(match cast {
        CastType::Signed => ColumnType::Int { bits: 64, unsigned: false },
        CastType::Unsigned => ColumnType::Int { bits: 64, unsigned: true },
        CastType::Decimal { precision, scale } => ColumnType::Decimal { precision, scale, unsigned: false },
        CastType::Text(Some(length)) if length <= LENGTH_MAX => {
            ColumnType::VarChar { length: length as u16, collation: apus_types::collate::Collation::default() }
        }
        CastType::Bytes(Some(length)) if length <= LENGTH_MAX => ColumnType::VarBinary { length: length as u16 },
        CastType::Date => ColumnType::Date,
        CastType::DateTime(decimals) => ColumnType::DateTime { decimals },
        CastType::Time(decimals) => ColumnType::Time { decimals },
        CastType::Text(_) | CastType::Bytes(_) => return unsupported("char/binary BLOBs"),
        CastType::Json => return unsupported("JSON"),
        CastType::Double => return unsupported("DOUBLE"),
        CastType::Float => return unsupported("FLOAT"),
        _ => return unsupported("YEAR"),
    })
}

impl ListKeys {
    /// Of a generated column, if it is one of lists.
    pub(crate) fn of(schema: &TableSchema, column: u16, expr: &Expr) -> Option<ListKeys> {
        let Expr::Cast(source, CastType::Array(ty)) = expr else { return None };
        let index = schema.indexes.iter().find(|index| index.list_column() == Some(column));
        let at = index.and_then(|index| index.list).map_or(0, usize::from);
        let parts = |range: std::ops::Range<usize>| {
            let part = |index: &IndexDef, at: usize| Part { column: index.columns[at], prefix: index.prefix(at) };
            index.map_or_else(Vec::new, |index| range.map(|at| part(index, at)).collect())
        };
        let length = index.map_or(0, |index| index.columns.len());
        let (before, behind) = (parts(0..at), parts((at + 1).min(length)..length));
        let name = index.map(|index| index.name.clone());
        Some(ListKeys { column, source: (**source).clone(), ty: *ty, name, before, behind })
    }

    /// The row with its list. `number`: of the row, in warnings.
    ///
    /// # Errors
    /// 1235, 3141, 3751, 3752, 3903 to 3908: the document has no such elements, or too many.
    pub(crate) fn complete(&self, schema: &TableSchema, env: &Env, row: &[u8], number: usize) -> Result<Vec<u8>> {
        let value = match &self.name {
            Some(name) => self.list(schema, env, row, (name, number))?,
            None => Datum::Null,
        };
        assign::replace(schema, row, self.column, &value).map_err(coded)
    }

    fn list(&self, schema: &TableSchema, env: &Env, row: &[u8], at: (&str, usize)) -> Result<Datum<'static>> {
        let value = self.source.eval(&Context::of_row(schema.layout(), row, env))?;
        if value.is_null() {
            return Ok(Datum::Null);
        }
        let (values, is_cut) = array::elements(self.ty, &array::document(&value)?)
            .map_err(|misfit: Misfit| misfit.of_index(at.0, at.1))?;
        if is_cut {
            env.remark(array::cut(at.0, at.1));
        }
        let (mut before, mut behind) = (Vec::new(), Vec::new());
        let mut has_null = false;
        for (parts, out) in [(&self.before, &mut before), (&self.behind, &mut behind)] {
            for part in parts {
                has_null |= part.push(schema, row, out)?;
            }
        }
        let mut keys = Vec::with_capacity(values.len());
        for value in &values {
            let mut key = before.clone();
            array::push_key(self.ty, value, &mut key)?;
            key.extend_from_slice(&behind);
            keys.push(key);
        }
        let mut bytes = Vec::new();
        list::write(&mut keys, has_null, &mut bytes).map_err(coded)?;
        let shared = before.len() + behind.len() + if is_of_bytes(self.ty) { 2 } else { 0 };
        let length = keys.iter().map(|key| key.len() - shared).sum::<usize>();
        self.check(schema, row, at.0, (keys.len(), length, &bytes))?;
        Ok(Datum::Bytes(bytes.into()))
    }

    fn check(
        &self,
        schema: &TableSchema,
        row: &[u8],
        name: &str,
        (count, length, bytes): (usize, usize, &[u8]),
    ) -> Result<()> {
        let of_length = |over: usize| {
            let text = format!(
                "Exceeded max total length of values per record for multi-valued index '{name}' by {over} bytes."
            );
            SqlError::new(3906, b"HY000", text)
        };
        if count > list::KEYS_MAX {
            let text = format!(
                "Exceeded max number of values per record for multi-valued index '{name}' by {} value(s).",
                count - list::KEYS_MAX
            );
            return Err(SqlError::new(3905, b"HY000", text));
        }
        if length > BYTES_MAX {
            return Err(of_length(length - BYTES_MAX));
        }
        let mut primary = Vec::new();
        key::encode_from_row(schema, &schema.primary_key, row, &mut primary).map_err(coded)?;
        match list::KeyList::read(bytes, primary.len()) {
            Err(ErrorCode::RequestTooLarge) => {
                let all = bytes.len() + count * (primary.len() + list::ENTRY_BYTES);
                Err(of_length(all.saturating_sub(list::ENTRIES_BYTES_MAX)))
            }
            read => read.map(|_| ()).map_err(coded),
        }
    }

    /// What the array of a row is in the error of a key that is there already, as MySQL cuts it.
    pub(crate) fn shown(&self, schema: &TableSchema, env: &Env, row: &[u8]) -> Option<String> {
        let value = self.source.eval(&Context::of_row(schema.layout(), row, env)).ok()?;
        let (values, _) = array::elements(self.ty, &array::document(&value).ok()?).ok()?;
        let mut keyed = Vec::with_capacity(values.len());
        for value in &values {
            let mut key = Vec::new();
            array::push_key(self.ty, value, &mut key).ok()?;
            keyed.push((key, crate::expr::json::of_datum(value)));
        }
        keyed.sort_by(|a, b| a.0.cmp(&b.0));
        keyed.dedup_by(|a, b| a.0 == b.0);
        let list = crate::value::json::Json::Array(keyed.into_iter().map(|(_, value)| value).collect());
        let mut text = crate::expr::json::datum(&list).as_string();
        let most = match self.ty {
            ColumnType::VarChar { length, .. } => usize::from(length) * 4,
            ColumnType::VarBinary { length } => usize::from(length),
            ty => ty.fixed_bytes().unwrap_or(usize::MAX),
        };
        text.truncate((0..=most.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0));
        Some(text)
    }

    /// Whether this is the array.
    fn is_array(&self, e: &Expr) -> bool {
        matches!(e, Expr::Cast(source, CastType::Array(ty)) if *ty == self.ty && is_same(&self.source, source) == Same::Yes)
    }
}

fn is_of_bytes(ty: ColumnType) -> bool {
    ty.fixed_bytes().is_none()
}

/// What rows are looked for by: one of several values.
#[derive(Debug, Clone)]
pub enum Sought {
    /// A value.
    Member(Expr),
    /// The elements of a document: any of them, or all.
    Any(Expr),
    All(Expr),
}

impl Sought {
    pub fn expr(&self) -> &Expr {
        match self {
            Sought::Member(e) | Sought::Any(e) | Sought::All(e) => e,
        }
    }
}

/// Has conditions asked of arrays as indexes have them; whether literals decide about others.
pub(crate) fn substitute(lists: &[&ListKeys], e: &mut Expr, params: &[Kind]) -> bool {
    let (function, args) = match e {
        Expr::And(list) | Expr::Or(list) => {
            return list.iter_mut().fold(false, |waits, e| waits | substitute(lists, e, params));
        }
        Expr::Call(f @ (Func::MemberOf | Func::JsonContains | Func::JsonOverlaps), args, _) => (*f, args),
        _ => return false,
    };
    let [a, b] = args.as_mut_slice() else { return false };
    let (value, document) = match function {
        Func::MemberOf => (a, b),
        Func::JsonOverlaps if a.is_constant() => (a, b),
        _ => (b, a),
    };
    let mut waits = false;
    for keys in lists {
        match is_same(&keys.source, document) {
            Same::No => continue,
            Same::WaitsForLiterals => waits = true,
            Same::Yes if is_fit(keys.ty, value, function == Func::MemberOf, params) => {
                let to = if function == Func::MemberOf { CastType::Element } else { CastType::Array };
                wrap(value, to(keys.ty));
                wrap(document, CastType::Array(keys.ty));
                return waits;
            }
            Same::Yes => {}
        }
    }
    waits
}

fn wrap(e: &mut Expr, to: CastType) {
    let inner = std::mem::replace(e, Expr::Const(Datum::Null));
    *e = Expr::Cast(Box::new(inner), to);
}

/// Whether a constant is looked for among such values.
fn is_fit(ty: ColumnType, value: &Expr, is_member: bool, params: &[Kind]) -> bool {
    let is_of_row = value.any(|e| matches!(e, Expr::Outer(_) | Expr::Given(..)));
    if !value.is_constant() || is_of_row {
        return false;
    }
    if let Expr::Const(value) = value {
        let fits = match is_member {
            true => array::element(ty, &crate::expr::json::of_datum(value)).is_ok_and(|(_, is_cut)| !is_cut),
            false => array::document(value).is_ok_and(|read| array::elements(ty, &read).is_ok_and(|(_, cut)| !cut)),
        };
        if !fits {
            return false;
        }
    }
    let kind = match value {
        Expr::Call(Func::JsonTruth, ..) => Kind::Int,
        value => value.kind(params),
    };
    !is_member
        || match ty {
            ColumnType::Int { .. } => matches!(kind, Kind::Int | Kind::UInt),
            ColumnType::Decimal { .. } => matches!(kind, Kind::Decimal(_)),
            _ => !matches!(kind, Kind::Int | Kind::UInt | Kind::Decimal(_) | Kind::Double | Kind::Null),
        }
}

/// What a condition looks for in an array.
pub(crate) fn sought(keys: &ListKeys, condition: &Expr) -> Option<Vec<Sought>> {
    match condition {
        Expr::Or(list) => {
            let all: Option<Vec<Vec<Sought>>> = list.iter().map(|e| sought(keys, e)).collect();
            all.map(|all| all.into_iter().flatten().collect())
        }
        Expr::Call(function, args, _) => {
            let [a, b] = args.as_slice() else { return None };
            let value = match (keys.is_array(a), keys.is_array(b)) {
                (true, false) => b,
                (false, true) => a,
                _ => return None,
            };
            let Expr::Cast(value, _) = value else { return None };
            let value = (**value).clone();
            Some(vec![match function {
                Func::MemberOf => Sought::Member(value),
                Func::JsonContains => Sought::All(value),
                Func::JsonOverlaps => Sought::Any(value),
                _ => return None,
            }])
        }
        _ => None,
    }
}
