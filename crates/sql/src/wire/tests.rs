//! Bytes of strangers against every decoder, and round trips of what the decoders read.

use super::{
    auth::{AuthPlugin, SCRAMBLE_BYTES, Scramble},
    command::{Command, code, decode_command},
    compressed::{Compression, HEADER_BYTES, Header, pack, unpack},
    constants::capability,
    error::DecodeError,
    handshake::{Attributes, ClientHello, Offer, decode_change_user, decode_client_hello, write_greeting},
    packet::{PacketBuffer, PacketReader, push_lenenc_bytes},
    params::{ParamType, ParamValue, decode_counted_params, decode_params, split_attributes},
    result::{
        ResultState, ResultWriter,
        column::{ColumnDef, ColumnType, Heading},
    },
};

/// Inputs of each kind; `make fuzz` gives a million.
fn rounds() -> usize {
    std::env::var("APUS_FUZZ_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(10_000)
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
        (self.next() % bound as u64) as usize
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
        (0..self.below(max + 1)).map(|_| self.next() as u8).collect()
    }

    /// Flips, cuts, inserts: a valid packet that has been tampered with.
    fn mutate(&mut self, valid: &[u8]) -> Vec<u8> {
        let mut bytes = valid.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len().max(1));
            match self.below(4) {
                0 if at < bytes.len() => bytes[at] = self.next() as u8,
                1 => bytes.truncate(at),
                2 => bytes.insert(at.min(bytes.len()), [0, 0xfb, 0xfc, 0xfe, 0xff][self.below(5)]),
                _ if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                _ => bytes.push(self.next() as u8),
            }
        }
        bytes
    }
}

fn decode_everything(bytes: &[u8]) {
    if let Ok(ClientHello::Login(login)) = decode_client_hello(bytes) {
        assert!(Attributes::new(login.attributes).count() <= bytes.len());
    }
    for capabilities in [0, capability::SERVER] {
        let _ = decode_change_user(bytes, capabilities);
    }
    if let Ok(Command::Execute { params, .. }) = decode_command(bytes) {
        decode_all_params(params);
    }
    decode_all_params(bytes);
    let _ = split_attributes(bytes, &mut Vec::new());
    if let (Some(header), Some(packed)) = (Header::decode(bytes), bytes.get(HEADER_BYTES..)) {
        for how in [Compression::Zlib, Compression::Zstd(3)] {
            let mut plain = Vec::new();
            let _ = unpack(how, packed, header.plain, &mut plain);
            assert!(plain.len() <= header.plain.max(packed.len()));
        }
    }
    let mut reader = PacketReader::new(1000);
    reader.space()[..bytes.len()].copy_from_slice(bytes);
    reader.filled(bytes.len());
    while let Ok(Some(packet)) = reader.next_packet() {
        assert!(reader.payload(&packet).len() <= 1000);
    }
}

fn decode_all_params(body: &[u8]) {
    let bound = ParamType { column_type: ColumnType::DateTime, unsigned: false };
    for count in [0, 1, 3, 9, 65_535] {
        let mut out = Vec::new();
        let _ = decode_params(body, count, &mut Vec::new(), &[], &mut out);
        let long = [None, Some(vec![1, 2, 3])];
        let mut told = (Vec::new(), Vec::new());
        let counted = decode_counted_params(body, count, &mut Vec::new(), &long, (&mut told.0, &mut told.1));
        assert!(counted.is_err() || told.0.len() == count);
        let _ = decode_params(body, count, &mut vec![bound; count], &long, &mut Vec::new());
    }
}

fn login_packet(capabilities: u32) -> Vec<u8> {
    let mut p = capabilities.to_le_bytes().to_vec();
    p.extend(0x0100_0000u32.to_le_bytes());
    p.push(45);
    p.extend([0; 23]);
    p.extend(b"root\0");
    p.extend([20]);
    p.extend([9; 20]);
    p.extend(b"test\0caching_sha2_password\0");
    let mut attributes = Vec::new();
    push_lenenc_bytes(&mut attributes, b"program_name");
    push_lenenc_bytes(&mut attributes, b"mysql");
    push_lenenc_bytes(&mut p, &attributes);
    p
}

fn execute_body() -> Vec<u8> {
    // Nine parameters, the second NULL, types bound.
    let mut p = vec![0b10, 0, 1];
    for (number, flags) in
        [(8, 0), (3, 0), (1, 0x80), (253, 0), (12, 0), (11, 0), (5, 0), (246, 0), (252, 0)] as [(u8, u8); 9]
    {
        p.extend([number, flags]);
    }
    p.extend((-5i64).to_le_bytes());
    p.push(255);
    p.extend(b"\x03abc");
    p.extend([11, 0xe8, 7, 2, 29, 23, 59, 58, 1, 0, 0, 0]);
    p.extend([8, 1, 2, 0, 0, 0, 3, 4, 5]);
    p.extend(1.5f64.to_le_bytes());
    p.extend(b"\x0512.50");
    p.extend([2, 0, 255]);
    p
}

fn valid_packets() -> Vec<Vec<u8>> {
    let mut packets = vec![
        login_packet(capability::SERVER),
        login_packet(capability::SERVER & !capability::PLUGIN_AUTH_LENENC_DATA),
        b"root\0\x00db\0\x2d\x00caching_sha2_password\0".to_vec(),
        execute_body(),
    ];
    for code in 0..=0x20 {
        packets.push([&[code][..], &1u32.to_le_bytes(), &[0], &1u32.to_le_bytes(), &execute_body()].concat());
    }
    for how in [Compression::Zlib, Compression::Zstd(3)] {
        let mut packed = Vec::new();
        pack(how, &packets.concat()[..150], 0, &mut packed);
        packets.push(packed);
    }
    // Two attributes before a statement; a parameter and an attribute of a prepared one.
    packets.push(b"\x02\x01\x00\x01\xfd\x00\x02n1\x08\x00\x02n2\x03val\x01\0\0\0\0\0\0\0SELECT 1".to_vec());
    packets.push(b"\x02\x00\x01\x08\x00\x00\xfd\x00\x02n1\x05\0\0\0\0\0\0\0\x03xyz".to_vec());
    packets.extend([vec![3, 0, 0, 0, 3, b'a', b'b', 1, 0, 0, 1, 14]]);
    packets
}

#[test]
fn random_bytes_are_refused_not_panicked_on() {
    let mut random = Random(1);
    for _ in 0..rounds() {
        decode_everything(&random.bytes(200));
    }
}

#[test]
fn tampered_packets_are_refused_not_panicked_on() {
    let mut random = Random(2);
    let valid = valid_packets();
    for _ in 0..rounds() {
        let from = random.below(valid.len());
        decode_everything(&random.mutate(&valid[from]));
    }
}

#[test]
fn every_prefix_of_a_valid_packet_is_safe() {
    for packet in valid_packets() {
        for length in 0..=packet.len() {
            decode_everything(&packet[..length]);
        }
    }
}

#[test]
fn login_fields() {
    let packet = login_packet(capability::SERVER);
    let Ok(ClientHello::Login(login)) = decode_client_hello(&packet) else { panic!("a valid login") };
    assert_eq!(login.user, b"root");
    assert_eq!(login.auth_response, [9; 20]);
    assert_eq!(login.database, Some(&b"test"[..]));
    assert_eq!(AuthPlugin::from_name(login.plugin), Some(AuthPlugin::CachingSha2Password));
    assert_eq!(Attributes::new(login.attributes).next(), Some((&b"program_name"[..], &b"mysql"[..])));
    let tls = login_packet(capability::SERVER | capability::SSL);
    assert_eq!(decode_client_hello(&tls[..32]), Ok(ClientHello::TlsRequest));
    assert!(matches!(decode_client_hello(&tls), Ok(ClientHello::Login(_))), "inside of TLS");
    assert!(decode_client_hello(&login_packet(capability::SERVER & !capability::PROTOCOL_41)).is_err());
}

#[test]
fn greeting_layout() {
    let mut out = PacketBuffer::new();
    let scramble = Scramble::from_random([7; SCRAMBLE_BYTES]);
    write_greeting(&mut out, 0x0102, &scramble, AuthPlugin::CachingSha2Password, Offer::default());
    let bytes = out.complete();
    assert_eq!(bytes[4], 10);
    let version_end = 5 + bytes[5..].iter().position(|&b| b == 0).unwrap();
    assert_eq!(&bytes[5..version_end], b"8.4.6-apus-0.1.0");
    assert_eq!(bytes[version_end + 1..version_end + 5], [2, 1, 0, 0]);
    assert_eq!(bytes[version_end + 5..version_end + 14], [7, 7, 7, 7, 7, 7, 7, 7, 0]);
    assert!(bytes.ends_with(b"\x07\x07\x07\x07\0caching_sha2_password\0"));
}

#[test]
fn commands() {
    assert_eq!(decode_command(b"\x03select 1"), Ok(Command::Query(b"select 1")));
    assert_eq!(decode_command(&[code::STMT_CLOSE, 5, 0, 0, 0]), Ok(Command::CloseStatement(5)));
    assert_eq!(decode_command(b"\x04t\0a%"), Ok(Command::FieldList { table: b"t", wildcard: b"a%" }));
    assert_eq!(decode_command(&[0x12, 1, 2]), Ok(Command::Unknown(0x12)));
    assert_eq!(decode_command(&[]), Err(DecodeError::new("empty command")));
    assert!(decode_command(&[code::STMT_EXECUTE, 1, 0, 0, 0, 0]).is_err());
}

#[test]
fn parameters_of_every_kind() {
    let want = [
        ParamValue::Int(-5),
        ParamValue::Null,
        ParamValue::UInt(255),
        ParamValue::Text(b"abc"),
        ParamValue::DateTime { year: 2024, month: 2, day: 29, hour: 23, minute: 59, second: 58, micros: 1 },
        ParamValue::Time { negative: true, hours: 51, minutes: 4, seconds: 5, micros: 0 },
        ParamValue::Double(1.5),
        ParamValue::Decimal(b"12.50"),
        ParamValue::Blob(&[0, 255]),
    ];
    let body = execute_body();
    let (mut types, mut out) = (Vec::new(), Vec::new());
    decode_params(&body, 9, &mut types, &[], &mut out).unwrap();
    assert_eq!(out, want);
    // The same values again without binding: the types are remembered.
    let again = [&[0b10, 0, 0][..], &body[3 + 18..]].concat();
    decode_params(&again, 9, &mut types, &[], &mut out).unwrap();
    assert_eq!(out, want);
    assert!(decode_params(&again, 9, &mut Vec::new(), &[], &mut Vec::new()).is_err());
    // Data sent ahead takes its parameter's place in the packet.
    let ahead = [None, None, None, Some(b"long".to_vec())];
    let mut body = again.clone();
    body.drain(3 + 9..3 + 9 + 4);
    let mut out = Vec::new();
    decode_params(&body, 9, &mut types, &ahead, &mut out).unwrap();
    assert_eq!(out[3], ParamValue::Text(b"long"));
    assert_eq!(out[4..], want[4..]);
}

#[test]
fn attributes_are_split_off_a_query_and_an_execution() {
    let packet = b"\x02\x01\x02\x01\xfd\x00\x02n1\x08\x00\x02n2\x03valSELECT 1";
    let mut found = Vec::new();
    assert_eq!(split_attributes(packet, &mut found), Ok(&b"SELECT 1"[..]));
    let named: Vec<_> = found.iter().map(|a| (a.name, a.value)).collect();
    assert_eq!(named, [(&b"n1"[..], ParamValue::Text(b"val")), (b"n2", ParamValue::Null)]);
    assert_eq!(split_attributes(b"\x00\x01SELECT 1", &mut found), Ok(&b"SELECT 1"[..]));
    assert!(found.is_empty());
    for wrong in [&b""[..], b"\0", b"\0\x02SELECT", b"\x01\x01\0\0SELECT", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"]
    {
        assert!(split_attributes(wrong, &mut found).is_err(), "{wrong:?}");
    }
    let body = b"\x02\x00\x01\x08\x00\x00\xfd\x00\x02n1\x05\0\0\0\0\0\0\0\x03xyz";
    let (mut types, mut params) = (Vec::new(), Vec::new());
    decode_counted_params(body, 1, &mut types, &[], (&mut params, &mut found)).unwrap();
    assert_eq!((params.as_slice(), found[0].value), (&[ParamValue::Int(5)][..], ParamValue::Text(b"xyz")));
    // Bound types stay, and so the attributes' are needed anew.
    let again = b"\x01\x00\x00\x06\0\0\0\0\0\0\0";
    decode_counted_params(again, 1, &mut types, &[], (&mut params, &mut found)).unwrap();
    assert_eq!((params.as_slice(), found.len()), (&[ParamValue::Int(6)][..], 0));
    assert!(decode_counted_params(body, 3, &mut types, &[], (&mut params, &mut found)).is_err());
    assert!(decode_counted_params(b"\x02\0\0", 1, &mut types, &[], (&mut params, &mut found)).is_err());
}

fn written(binary: bool, capabilities: u32, write: impl FnOnce(&mut ResultWriter<'_>)) -> Vec<Vec<u8>> {
    let (mut out, mut state) = (PacketBuffer::new(), ResultState::new(capabilities));
    state.start_command(binary, 2);
    write(&mut ResultWriter::new(&mut out, &mut state));
    assert!(state.is_answered());
    let mut reader = PacketReader::new(1 << 20);
    let bytes = out.complete();
    reader.space()[..bytes.len()].copy_from_slice(bytes);
    reader.filled(bytes.len());
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet().unwrap() {
        packets.push(reader.payload(&packet).to_vec());
    }
    assert_eq!(reader.buffered(), 0);
    packets
}

fn sample(w: &mut ResultWriter<'_>) {
    let types = [
        ColumnType::Tiny,
        ColumnType::Long,
        ColumnType::LongLong,
        ColumnType::Double,
        ColumnType::VarString,
        ColumnType::DateTime,
        ColumnType::Time,
        ColumnType::Date,
    ];
    let columns: Vec<_> = types.into_iter().map(|t| ColumnDef::expression("c", t, 10)).collect();
    w.begin_rows(&columns);
    w.row_start();
    w.int(-1);
    w.null();
    w.uint(u64::MAX);
    w.double(1e20);
    w.bytes(b"hi");
    w.datetime(2024, 2, 29, 1, 2, 3, 450_000, 3);
    w.time(true, 100, 2, 3, 0, 0);
    w.date(2024, 2, 29);
    w.row_end();
    w.end_rows(1, 3);
}

/// To the byte, sequence numbers included: told first, from memory, and from memory behind another packet.
#[test]
fn headings_are_told_alike() {
    let columns: Vec<_> = ["a", "b"].map(|name| ColumnDef::expression(name, ColumnType::Long, 10)).into();
    let heading = Heading::from(columns.clone());
    let told = |behind_another: bool, begin: &dyn Fn(&mut ResultWriter<'_>)| {
        let (mut out, mut state) = (PacketBuffer::new(), ResultState::new(0));
        state.start_command(false, 2);
        let mut w = ResultWriter::new(&mut out, &mut state);
        if behind_another {
            w.set_more_results(true);
            w.ok(0, 0, 0, "");
            w.set_more_results(false);
        }
        begin(&mut w);
        w.row_start();
        w.int(1);
        w.int(2);
        w.row_end();
        w.end_rows(0, 2);
        out.complete().to_vec()
    };
    for behind_another in [false, false, true, false] {
        let expected = told(behind_another, &|w| w.begin_rows(&columns));
        assert_eq!(told(behind_another, &|w| w.begin_rows_of(&heading)), expected, "behind another: {behind_another}");
    }
}

#[test]
fn text_rows() {
    let packets = written(false, 0, sample);
    // Count, eight definitions, EOF, row, EOF.
    assert_eq!(packets.len(), 12);
    assert_eq!(packets[9], [0xfe, 0, 0, 2, 0]);
    let mut want = Vec::new();
    push_lenenc_bytes(&mut want, b"-1");
    want.push(0xfb);
    for text in ["18446744073709551615", "1e20", "hi", "2024-02-29 01:02:03.450", "-100:02:03", "2024-02-29"] {
        push_lenenc_bytes(&mut want, text.as_bytes());
    }
    assert_eq!(packets[10], want);
    assert_eq!(packets[11], [0xfe, 1, 0, 3, 0]);
    assert_eq!(written(false, capability::DEPRECATE_EOF, sample).len(), 11);
}

#[test]
fn binary_rows() {
    let packets = written(true, capability::DEPRECATE_EOF, sample);
    let mut want = vec![0, 0b1000, 0, 0xff];
    want.extend(u64::MAX.to_le_bytes());
    want.extend(1e20f64.to_le_bytes());
    want.extend(b"\x02hi");
    want.extend([11, 0xe8, 7, 2, 29, 1, 2, 3]);
    want.extend(450_000u32.to_le_bytes());
    want.extend([8, 1, 4, 0, 0, 0, 4, 2, 3]);
    want.extend([4, 0xe8, 7, 2, 29]);
    assert_eq!(packets[9], want);
    assert_eq!(packets[10], [0xfe, 0, 0, 3, 0, 1, 0]);
}

#[test]
fn an_error_in_the_middle_of_a_row_drops_the_row() {
    let packets = written(false, capability::DEPRECATE_EOF, |w| {
        w.begin_rows(&[ColumnDef::expression("c", ColumnType::Long, 10)]);
        w.row_start();
        w.int(5);
        w.error(1205, b"HY000", "late");
    });
    assert_eq!(packets.len(), 3);
    assert_eq!(packets[2], b"\xff\xb5\x04#HY000late");
}

#[test]
fn several_results_carry_the_flag_on_all_but_the_last() {
    let packets = written(false, capability::DEPRECATE_EOF, |w| {
        w.set_more_results(true);
        w.ok(1, 2, 0, "");
        w.set_more_results(false);
        w.ok(300, 0, 4, "info");
    });
    assert_eq!(packets[0], [0, 1, 2, 10, 0, 0, 0]);
    assert_eq!(packets[1], b"\x00\xfc\x2c\x01\x00\x02\x00\x04\x00\x04info");
}

#[test]
#[should_panic(expected = "for a Tiny column")]
fn an_integer_too_wide_for_its_column_is_our_bug() {
    written(true, 0, |w| {
        w.begin_rows(&[ColumnDef::expression("c", ColumnType::Tiny, 4)]);
        w.row_start();
        w.int(300);
    });
}
