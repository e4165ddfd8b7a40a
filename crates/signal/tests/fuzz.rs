//! Whatever bytes come: frames and the bodies of all kinds of signals are refused or decoded, and never end the process.
//!
//! 20,000 inputs each; `make fuzz` gives a million to this and to the decoders of the other ports.
#![expect(clippy::disallowed_methods, reason = "a test that is run by hand for longer")]

use apus_signal::{
    Kind,
    copy::CopyOutcomesOrd,
    describe,
    envelope::{ENVELOPE_BYTES, PROTOCOL_VERSION, decode_frame, frame_length},
    key_read::{ReadConf, ReadReq},
    ldm::LdmBatchReq,
    scan::{ScanConf, ScanReq},
    tc::{TcBatchConf, TcBatchReq},
    view::View,
};
use apus_types::{
    Column, ColumnType, TableSchema, Value,
    collate::Collation,
    filter::{self, Filter},
};

fn inputs() -> usize {
    std::env::var("APUS_FUZZ_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_000)
}

/// splitmix64: the same bytes in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
    /// Numbers of all widths that counts, lengths, tags and ids like to have, some text, some noise.
    fn body(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..self.below(24) {
            let number = [0, 1, 2, 3, 8, 127, 255, 0xffff, u64::from(u32::MAX), u64::MAX, self.next()][self.below(11)];
            match self.below(7) {
                0 => out.push(number as u8),
                1 => out.extend_from_slice(&(number as u16).to_le_bytes()),
                2 => out.extend_from_slice(&(number as u32).to_le_bytes()),
                3 => out.extend_from_slice(&number.to_le_bytes()),
                // A field of a message: tag, length, content.
                4 => {
                    let length = self.below(12);
                    out.extend_from_slice(&[(1 + self.below(12) as u8) << 3 | 2, length as u8]);
                    out.extend((0..length).map(|_| self.next() as u8 & 0x1f));
                }
                5 => out.extend_from_slice(&[(1 + self.below(12) as u8) << 3, number as u8 & 0x7f]),
                _ => out.extend_from_slice(b"t1"),
            }
        }
        out
    }
}

/// What a block does with a body, as far as it is decoding.
fn take_apart(kind: Kind, body: &[u8]) {
    let _ = describe(kind, body);
    match kind {
        Kind::ReadReq => drop(ReadReq::decode(body).map(|m| m.keys().count())),
        Kind::ReadConf => drop(ReadConf::decode(body).map(|m| m.rows().count())),
        Kind::ScanReq => drop(ScanReq::decode(body).map(|m| m.partitions().count() + m.aggregates().count())),
        Kind::ScanConf => drop(ScanConf::decode(body).map(|m| m.rows().count())),
        Kind::TcBatchReq => drop(TcBatchReq::decode(body).map(|m| m.ops().count())),
        Kind::TcBatchConf => drop(TcBatchConf::decode(body).map(|m| m.results().count())),
        Kind::CopyOutcomesOrd => drop(CopyOutcomesOrd::decode(body).map(|m| m.chunks().count())),
        Kind::LdmBatchReq => drop(LdmBatchReq::decode(body)),
        Kind::MapRep | Kind::MapConf => drop(View::from_bytes(body)),
        _ => {}
    }
}

#[test]
fn bodies_of_every_kind() {
    let mut random = Random(740_000_001);
    for input in 0..inputs() {
        let body = random.body();
        take_apart(Kind::ALL[input % Kind::ALL.len()], &body);
    }
}

#[test]
fn streams_of_frames() {
    let mut random = Random(740_000_002);
    for _ in 0..inputs() {
        let mut stream = Vec::new();
        for _ in 0..1 + random.below(3) {
            let body = random.body();
            let start = stream.len();
            stream.extend_from_slice(&((ENVELOPE_BYTES + body.len()) as u32).to_le_bytes());
            stream.resize(start + ENVELOPE_BYTES, 0);
            for byte in stream.iter_mut().skip(start + 8) {
                *byte = [0, 0, 1, random.next() as u8][random.below(4)];
            }
            let kind = Kind::ALL[random.below(Kind::ALL.len())] as u16;
            stream[start + 4..start + 6].copy_from_slice(&kind.to_le_bytes());
            stream[start + 6] = PROTOCOL_VERSION;
            stream.extend_from_slice(&body);
        }
        for _ in 0..random.below(3) {
            let at = random.below(stream.len());
            stream[at] = random.next() as u8;
        }
        stream.truncate(stream.len() - random.below(4).min(stream.len()));
        let mut at = 0;
        while let Some(rest) = stream.get(at..)
            && let Ok(Some(length)) = frame_length(rest)
            && let Some(frame) = rest.get(..length)
        {
            assert!(length > 0, "a frame without an end");
            if let Ok((envelope, body)) = decode_frame(frame) {
                take_apart(envelope.kind, body);
            }
            at += length;
        }
    }
}

/// Filters as scans bring them: what is taken is asked of a row.
#[test]
fn filters_of_a_table() {
    let int = ColumnType::Int { bits: 32, unsigned: false };
    let text = ColumnType::VarChar { length: 20, collation: Collation::Utf8mb4GeneralCi };
    let columns = [("id", int), ("n", int), ("t", text)].map(|(name, ty)| Column::new(name, ty));
    let schema = TableSchema::new("d", "t", columns.into(), vec![0]);
    let mut row = Vec::new();
    schema.layout().encode(&[Value::Int(1), Value::Null, Value::Bytes(b"Ab")], &mut row).expect("a row");
    let (mut random, mut key, mut taken) = (Random(740_000_003), Vec::new(), 0);
    for _ in 0..inputs() {
        let mut bytes = Vec::new();
        for _ in 0..random.below(4) {
            let (column, other, noise) = (random.below(4) as u16, random.below(4) as u16, random.body());
            let bound = |at: usize| noise.get(at..).filter(|_| !at.is_multiple_of(3));
            let ranges: Vec<_> =
                (0..random.below(4)).map(|_| (bound(random.below(9)), bound(random.below(9)))).collect();
            match random.below(8) {
                0..=4 => filter::push_ranges(&mut bytes, column, ranges.into_iter()),
                5 | 6 => filter::push_columns(&mut bytes, column, random.next() as u8, other),
                _ => bytes.extend_from_slice(&noise),
            }
        }
        if random.below(3) == 0 && !bytes.is_empty() {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
            bytes.truncate(bytes.len() - random.below(3).min(bytes.len()));
        }
        if let Ok(filter) = Filter::decode(&bytes, &schema, Vec::new()) {
            let _ = filter.passes(&schema, &row, &mut key);
            taken += 1;
        }
    }
    assert!(taken > inputs() / 10 && taken < inputs(), "{taken} were filters");
}
