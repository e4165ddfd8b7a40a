//! Groupings, states and filters that others made of nothing, and good ones with mistakes: refused, or run without harm.
#![expect(clippy::disallowed_methods, reason = "a test that is run by hand for longer")]

use apus_eval::{
    fixed::{Program, Step},
    grouping::{self, Grouping, Slot},
    groups::{Groups, State},
};
use apus_types::{
    Column, ColumnType, TableSchema, Value,
    collate::Collation,
    filter::{self, Filter, Set},
};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

fn inputs() -> usize {
    std::env::var("APUS_FUZZ_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000)
}

fn table() -> TableSchema {
    let text = ColumnType::VarChar { length: 20, collation: Collation::Utf8mb4GeneralCi };
    let price = ColumnType::Decimal { precision: 15, scale: 2, unsigned: false };
    let list = [("id", ColumnType::Int { bits: 32, unsigned: false }), ("p", price), ("t", text)];
    TableSchema::new("d", "t", list.into_iter().map(|(name, ty)| Column::new(name, ty)).collect(), vec![0])
}

fn drawn(random: &mut Random) -> Vec<u8> {
    let mut programs = Vec::new();
    for _ in 0..random.below(4) {
        let mut program = Program::default();
        for _ in 0..1 + random.below(9) {
            let _ = program.push(match random.below(5) {
                0 => Step::Column(random.below(4) as u16),
                1 => Step::Constant(i128::from(random.next()) << random.below(64)),
                2 => Step::Add(random.below(40) as u8, random.below(4) as u8),
                3 => Step::Subtract(random.below(4) as u8, random.below(40) as u8),
                _ => Step::Multiply,
            });
        }
        programs.push(program);
    }
    let keys: Vec<u16> = (0..random.below(4)).map(|_| random.below(4) as u16).collect();
    let slot = |random: &mut Random| match random.below(5) {
        0 => Slot::Rows,
        1 => Slot::Values(random.below(4) as u16),
        2 => Slot::Sum(random.below(4) as u8),
        3 => Slot::Least(random.below(4) as u8),
        _ => Slot::Greatest(random.below(4) as u8),
    };
    let slots: Vec<Slot> = (0..random.below(6)).map(|_| slot(random)).collect();
    let mut out = Vec::new();
    grouping::encode(&keys, &programs, &slots, &mut out);
    out
}

fn rows(schema: &TableSchema) -> Vec<Vec<u8>> {
    (0..40)
        .map(|i| {
            let price = if i % 5 == 0 { Value::Null } else { Value::Decimal { unscaled: 1i128 << (3 * i), scale: 2 } };
            let mut row = Vec::new();
            schema.layout().encode(&[Value::Int(i % 7), price, Value::Bytes(b"text")], &mut row).unwrap();
            row
        })
        .collect()
}

#[test]
fn filters_from_strangers_do_no_harm() {
    let schema = table();
    let mut random = Random(0x5eed_0048);
    let (rows, mut passed, mut read) = (rows(&schema), 0, 0);
    for _ in 0..inputs() {
        let mut bytes = Vec::new();
        let column = random.below(4) as u16;
        let key: Vec<u8> = (0..random.below(6)).map(|_| random.next() as u8).collect();
        let ranges = [(Some(key.as_slice()), None), (None, Some(key.as_slice()))];
        match random.below(5) {
            0 => filter::push_ranges(&mut bytes, column, ranges.into_iter()),
            1 => filter::push_ranges_of_beginning(&mut bytes, column, random.next() as u16, ranges.into_iter()),
            2 => filter::push_columns(&mut bytes, column, random.next() as u8, random.below(4) as u16),
            3 => filter::push_like(&mut bytes, column, &key, (column > 1).then_some(b'|'), random.below(2) == 0),
            _ => {
                let mut set = Set::with_room(random.below(300));
                set.add(ColumnType::Int { bits: 32, unsigned: false }, &Value::Int(3), &mut Vec::new());
                filter::push_set(&mut bytes, column, set.bytes());
            }
        }
        for _ in 0..random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        bytes.truncate(bytes.len() - random.below(2));
        let Ok(filter) = Filter::decode(&bytes, &schema, Vec::new()) else { continue };
        read += 1;
        let mut key = Vec::new();
        passed += rows.iter().filter(|row| filter.passes(&schema, row, &mut key)).count();
        let _ = filter.take_spent();
    }
    assert!(read > inputs() / 50 && passed > 0, "{read} of them were filters");
}

#[test]
fn groupings_from_strangers_do_no_harm() {
    let schema = table();
    let mut random = Random(0x5eed_0046);
    let rows = rows(&schema);
    let (mut grouping, mut groups, mut read) = (Grouping::default(), Groups::default(), 0);
    for input in 0..inputs() {
        let mut bytes = drawn(&mut random);
        for _ in 0..random.below(3) {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        if input % 7 == 0 {
            bytes.truncate(random.below(bytes.len() + 1));
        }
        if grouping.read(&bytes, &schema).is_err() {
            continue;
        }
        read += 1;
        groups.clear();
        let all_fit = rows
            .iter()
            .all(|row| groups.add(&grouping, schema.layout(), row, |out| out.extend_from_slice(row)).is_ok());
        let mut states = Vec::new();
        (0..groups.len()).filter(|_| all_fit).for_each(|number| groups.push_states(&grouping, number, &mut states));
    }
    assert!(read > inputs() / 50, "{read} of them were groupings");
}

#[test]
fn states_from_strangers_do_no_harm() {
    let mut random = Random(0x5eed_0047);
    for _ in 0..inputs() {
        let bytes: Vec<u8> = (0..random.below(24)).map(|_| random.next() as u8).collect();
        for slot in [Slot::Rows, Slot::Sum(0)] {
            let mut rest = bytes.as_slice();
            while State::take(slot, &mut rest).is_some() {}
            assert!(rest.len() <= bytes.len());
        }
    }
}
