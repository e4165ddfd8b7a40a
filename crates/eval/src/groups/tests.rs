//! Groups of rows, what they answer and what is refused.

use apus_types::{Column, ColumnType, ErrorCode, TableSchema, Value, collate::Collation};

use super::*;
use crate::{
    fixed::{Program, Step},
    grouping::{self, GROUPING_BYTES_MAX, KEYS_MAX, VERSION},
};

const ID: u16 = 0;
const N: u16 = 1;
const PRICE: u16 = 2;
const TEXT: u16 = 3;
const LONG: u16 = 4;
const X: u16 = 5;

fn table() -> TableSchema {
    let text = |length| ColumnType::VarChar { length, collation: Collation::Utf8mb4GeneralCi };
    let int = ColumnType::Int { bits: 32, unsigned: false };
    let price = ColumnType::Decimal { precision: 15, scale: 2, unsigned: false };
    let list = [("id", int), ("n", int), ("p", price), ("t", text(20)), ("l", text(4000)), ("x", ColumnType::Double)];
    let mut columns: Vec<Column> = list.into_iter().map(|(name, ty)| Column::new(name, ty)).collect();
    columns[0].nullable = false;
    TableSchema::new("d", "t", columns, vec![0])
}

fn row(schema: &TableSchema, id: i64, n: Option<i64>, price: Option<i128>, text: &str) -> Vec<u8> {
    let n = n.map_or(Value::Null, Value::Int);
    let price = price.map_or(Value::Null, |unscaled| Value::Decimal { unscaled, scale: 2 });
    let values = [Value::Int(id), n, price, Value::Bytes(text.as_bytes()), Value::Null, Value::Double(id as f64)];
    let mut out = Vec::new();
    schema.layout().encode(&values, &mut out).unwrap();
    out
}

fn program(steps: &[Step]) -> Program {
    let mut program = Program::default();
    steps.iter().try_for_each(|step| program.push(*step)).expect("a program");
    program
}

fn encoded(keys: &[u16], programs: &[Program], slots: &[Slot]) -> Vec<u8> {
    let mut out = Vec::new();
    grouping::encode(keys, programs, slots, &mut out);
    out
}

fn read(bytes: &[u8]) -> Result<Grouping, ErrorCode> {
    let mut grouping = Grouping::default();
    grouping.read(bytes, &table()).map(|()| grouping)
}

/// Each group's first id, and its states as they come back.
fn grouped(bytes: &[u8], slots: &[Slot], rows: &[Vec<u8>]) -> Vec<(i64, Vec<State>)> {
    let (schema, grouping) = (table(), read(bytes).expect("a grouping"));
    let mut groups = Groups::default();
    groups.clear();
    for row in rows {
        groups.add(&grouping, schema.layout(), row, |out| out.extend_from_slice(row)).expect("all fit");
    }
    let of = |number| {
        let mut states = Vec::new();
        groups.push_states(&grouping, number, &mut states);
        let mut rest = states.as_slice();
        let list = slots.iter().map(|slot| State::take(*slot, &mut rest).expect("a state")).collect();
        assert!(rest.is_empty());
        let Value::Int(id) = schema.layout().value(groups.row(number), ID) else { panic!("an id") };
        (id, list)
    };
    (0..groups.len()).map(of).collect()
}

fn state(count: u64, value: i128) -> State {
    State { count, value }
}

#[test]
fn rows_that_are_stored_alike_are_one_group() {
    let schema = table();
    let rows = [
        row(&schema, 1, Some(7), Some(150), "a"),
        row(&schema, 2, Some(7), None, "a"),
        row(&schema, 3, None, Some(-300), "a"),
        row(&schema, 4, Some(7), Some(1), "A"),
        row(&schema, 5, None, Some(10i128.pow(29)), "a"),
        row(&schema, 6, Some(7), Some(50), "a"),
    ];
    let programs = [program(&[Step::Column(PRICE)]), program(&[Step::Column(ID)])];
    let slots = [Slot::Rows, Slot::Values(PRICE), Slot::Sum(0), Slot::Least(0), Slot::Greatest(1)];
    let large = 10i128.pow(29);
    assert_eq!(
        grouped(&encoded(&[N, TEXT], &programs, &slots), &slots, &rows),
        [
            (1, vec![state(3, 0), state(2, 0), state(2, 200), state(2, 50), state(3, 6)]),
            (3, vec![state(2, 0), state(2, 0), state(2, large - 300), state(2, -300), state(2, 5)]),
            (4, vec![state(1, 0), state(1, 0), state(1, 1), state(1, 1), state(1, 4)]),
        ],
        "`A` is another group than `a` here, and NULL is one"
    );
    let all = grouped(&encoded(&[], &programs, &slots), &slots, &rows);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].1[0], state(6, 0));
    let firsts: Vec<i64> = grouped(&encoded(&[TEXT], &[], &[]), &[], &rows).into_iter().map(|(id, _)| id).collect();
    assert_eq!(firsts, [1, 4], "without slots: the first of those that are alike");
    assert_eq!(grouped(&encoded(&[TEXT], &programs, &slots), &slots, &[]), []);
}

#[test]
fn sums_that_do_not_fit_are_said_to() {
    let (schema, grouping) =
        (table(), read(&encoded(&[], &[program(&[Step::Column(PRICE)])], &[Slot::Sum(0)])).unwrap());
    let mut groups = Groups::default();
    let row = row(&schema, 1, None, Some(i128::MAX / 2 + 1), "");
    let mut add = || groups.add(&grouping, schema.layout(), &row, |_| ());
    assert_eq!((add(), add()), (Ok(()), Err(Unfit)));
}

#[test]
fn a_page_has_no_more_groups_than_an_answer_has_rows() {
    let (schema, grouping) = (table(), read(&encoded(&[ID], &[], &[Slot::Rows])).unwrap());
    let mut groups = Groups::default();
    for round in 0..2 {
        groups.clear();
        let mut id = 0;
        while !groups.are_full() {
            let row = row(&schema, id / 2, None, None, "");
            groups.add(&grouping, schema.layout(), &row, |out| out.extend_from_slice(&row)).unwrap();
            id += 1;
        }
        assert_eq!((groups.len(), id), (GROUPS_MAX, 2 * GROUPS_MAX as i64 - 1), "round {round}");
    }
}

#[test]
fn numbers_of_every_length_come_back() {
    let edges = (0..127).flat_map(|bit| [1i128 << bit, -(1i128 << bit), (1i128 << bit) - 1, -(1i128 << bit) - 1]);
    for value in edges.chain([0, -1, i128::MAX, i128::MIN]) {
        for count in [1, 127, 128, u64::MAX] {
            let mut out = Vec::new();
            state(count, value).push(Slot::Sum(0), &mut out);
            let mut rest = out.as_slice();
            assert_eq!(State::take(Slot::Sum(0), &mut rest), Some(state(count, value)));
            assert!(rest.is_empty());
            for length in 0..out.len() {
                assert_eq!(State::take(Slot::Sum(0), &mut &out[..length]), None, "cut at {length}");
            }
        }
    }
    assert_eq!(State::take(Slot::Sum(0), &mut &[1, 17, 0, 0, 0][..]), None);
    assert_eq!(State::take(Slot::Sum(0), &mut &[1, 0][..]), None, "a number of no bytes");
    assert_eq!(State::take(Slot::Rows, &mut &[0xff; 11][..]), None, "a count without end");
}

#[test]
fn what_is_no_grouping_is_refused() {
    let column = |column| program(&[Step::Column(column)]);
    let is_refused = |bytes: &[u8]| matches!(read(bytes), Err(ErrorCode::ProtocolViolation));
    let sum = [program(&[Step::Column(PRICE), Step::Constant(-1), Step::Add(0, 2)])];
    let good = encoded(&[N, TEXT], &sum, &[Slot::Rows, Slot::Values(LONG), Slot::Sum(0)]);
    assert!(read(&good).is_ok());
    for length in 0..good.len() {
        assert!(is_refused(&good[..length]), "cut at {length}");
    }
    assert!(is_refused(&[good.as_slice(), &[0]].concat()), "more behind it");
    let mut newer = good.clone();
    newer[0] = VERSION + 1;
    assert_eq!(read(&newer).err(), Some(ErrorCode::NotSupported));
    for (what, keys, programs, slots) in [
        ("no such column", &[6][..], &[][..], &[][..]),
        ("a key too long", &[LONG], &[], &[]),
        ("a program of no such column", &[], &[column(6)], &[]),
        ("a program of texts", &[], &[column(TEXT)], &[]),
        ("a program of doubles", &[], &[column(X)], &[]),
        ("no program", &[], &[Program::default()], &[]),
        ("two numbers", &[], &[program(&[Step::Column(N), Step::Column(N)])], &[]),
        ("no such program", &[], &[column(N)], &[Slot::Least(1)]),
        ("values of no such column", &[], &[], &[Slot::Values(6)]),
        ("too many keys", &[N; KEYS_MAX + 1], &[], &[]),
    ] {
        assert!(is_refused(&encoded(keys, programs, slots)), "{what}");
    }
    let long = |steps: usize| {
        let mut list = vec![Step::Column(N)];
        (0..steps).for_each(|_| list.extend([Step::Constant(1), Step::Multiply]));
        program(&list)
    };
    assert!(read(&encoded(&[], &vec![long(31); 4], &[])).is_ok());
    assert!(is_refused(&encoded(&[], &vec![long(31); 5], &[])), "too many steps");
    assert!(is_refused(&vec![VERSION; GROUPING_BYTES_MAX + 1]), "too long");
}
