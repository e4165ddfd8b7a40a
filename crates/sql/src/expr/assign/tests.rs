//! Tests of `expr::assign`.

use super::{
    index_key::{KeyValue, key_value},
    *,
};

fn column(ty: ColumnType) -> Column {
    Column::new("c", ty)
}

#[test]
fn strict_assignments() {
    let a = Assign { row: 1, table: "t", strict: true, zone: Zone::UTC, env: None, warns: false };
    let tiny = column(ColumnType::Int { bits: 8, unsigned: false });
    assert_eq!(assign(&tiny, Datum::text("-128"), a).unwrap(), Datum::Int(-128));
    assert_eq!(assign(&tiny, Datum::Int(128), a).unwrap_err().errno, 1264);
    assert_eq!(assign(&tiny, Datum::text("1x"), a).unwrap_err().errno, 1265);
    assert_eq!(assign(&tiny, Datum::text("x"), a).unwrap_err().errno, 1366);
    assert_eq!(assign(&tiny, Datum::Double(1.5), a).unwrap(), Datum::Int(2));
    let text = column(ColumnType::VarChar { length: 3, collation: Default::default() });
    assert_eq!(assign(&text, Datum::text("abcd"), a).unwrap_err().errno, 1406);
    assert_eq!(assign(&text, Datum::text("abc  "), a).unwrap(), Datum::text("abc"));
    assert_eq!(assign(&text, Datum::Int(12), a).unwrap(), Datum::text("12"));
    let dec = column(ColumnType::Decimal { precision: 4, scale: 2, unsigned: false });
    assert_eq!(assign(&dec, Datum::text("12.345"), a).unwrap(), Datum::Decimal { unscaled: 1235, scale: 2 });
    assert_eq!(assign(&dec, Datum::Int(100), a).unwrap_err().errno, 1264);
    let date = column(ColumnType::Date);
    assert_eq!(assign(&date, Datum::text("2023-02-32"), a).unwrap_err().errno, 1292);
}

#[test]
fn key_values_keep_the_comparison() {
    let int = ColumnType::Int { bits: 32, unsigned: false };
    assert_eq!(key_value(int, Datum::text("12"), Zone::UTC), KeyValue::Exact(Datum::Int(12)));
    assert_eq!(key_value(int, Datum::Decimal { unscaled: 15, scale: 1 }, Zone::UTC), KeyValue::Above(Datum::Int(1)));
    assert_eq!(key_value(int, Datum::Int(1 << 40), Zone::UTC), KeyValue::AboveAll);
    assert_eq!(key_value(int, Datum::Null, Zone::UTC), KeyValue::Never);
    let text = ColumnType::VarChar { length: 3, collation: Default::default() };
    assert_eq!(key_value(text, Datum::Int(1), Zone::UTC), KeyValue::Unusable);
    assert_eq!(
        key_value(ColumnType::Date, Datum::text("2024-01-02 03:00:00"), Zone::UTC),
        KeyValue::Above(Datum::Date(pack_date(2024, 1, 2)))
    );
}
