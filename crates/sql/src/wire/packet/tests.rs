//! Tests of `wire::packet`.

use super::*;

fn feed(reader: &mut PacketReader, mut bytes: &[u8], chunk: usize) -> Vec<(Vec<u8>, u8)> {
    let mut got = Vec::new();
    loop {
        while let Some(packet) = reader.next_packet().unwrap() {
            got.push((reader.payload(&packet).to_vec(), packet.sequence));
        }
        if bytes.is_empty() {
            return got;
        }
        let space = reader.space();
        let n = space.len().min(chunk).min(bytes.len());
        space[..n].copy_from_slice(&bytes[..n]);
        reader.filled(n);
        bytes = &bytes[n..];
    }
}

#[test]
fn packets_survive_any_chunking() {
    let mut out = PacketBuffer::new();
    for i in 0..200usize {
        out.begin().extend(std::iter::repeat_n(i as u8, i * 37));
        out.end();
    }
    let bytes = out.complete().to_vec();
    for chunk in [1, 3, 4, 5, 1000, 1 << 20] {
        let mut reader = PacketReader::new(1 << 20);
        let got = feed(&mut reader, &bytes, chunk);
        assert_eq!(got.len(), 200);
        for (i, (payload, sequence)) in got.iter().enumerate() {
            assert_eq!(payload.len(), i * 37);
            assert_eq!(usize::from(*sequence), i);
        }
    }
}

#[test]
fn long_payloads_are_split_and_joined() {
    for length in [PACKET_PAYLOAD_MAX - 1, PACKET_PAYLOAD_MAX, PACKET_PAYLOAD_MAX + 1, 2 * PACKET_PAYLOAD_MAX + 5] {
        let mut out = PacketBuffer::new();
        out.set_sequence(3);
        out.begin().extend((0..length).map(|i| (i % 251) as u8));
        out.end();
        out.begin().push(7);
        out.end();
        let mut reader = PacketReader::new(64 << 20);
        let got = feed(&mut reader, out.complete(), 1 << 20);
        assert_eq!(got.len(), 2);
        assert!(got[0].0.iter().enumerate().all(|(i, &b)| b == (i % 251) as u8));
        assert_eq!(got[0].0.len(), length);
        assert_eq!(usize::from(got[0].1), 3 + length / PACKET_PAYLOAD_MAX);
        assert_eq!(got[1].0, [7]);
    }
}

#[test]
fn limits_and_order_are_held() {
    let mut reader = PacketReader::new(100);
    reader.space()[..4].copy_from_slice(&[101, 0, 0, 0]);
    reader.filled(4);
    assert_eq!(reader.next_packet(), Err(FrameError::TooLarge));

    let mut bytes = vec![0xff, 0xff, 0xff, 0];
    bytes.resize(4 + PACKET_PAYLOAD_MAX, 0);
    bytes.extend([1, 0, 0, 5, 9]);
    let mut reader = PacketReader::new(64 << 20);
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let space = reader.space();
        let n = space.len().min(rest.len());
        space[..n].copy_from_slice(&rest[..n]);
        reader.filled(n);
        rest = &rest[n..];
    }
    assert_eq!(reader.next_packet(), Err(FrameError::OutOfOrder));
}

#[test]
fn a_claimed_length_allocates_nothing() {
    let mut reader = PacketReader::new(64 << 20);
    reader.space()[..4].copy_from_slice(&[0, 0, 0xf0, 0]);
    reader.filled(4);
    assert_eq!(reader.next_packet(), Ok(None));
    assert!(reader.space().len() <= INPUT_REST_BYTES);
}

#[test]
fn an_abandoned_packet_leaves_no_trace() {
    let mut out = PacketBuffer::new();
    out.begin().push(1);
    out.end();
    out.begin().extend([1, 2, 3]);
    out.abandon();
    out.begin().push(2);
    out.end();
    assert_eq!(out.complete(), [1, 0, 0, 0, 1, 1, 0, 0, 1, 2]);
}

#[test]
fn lenenc() {
    let mut out = Vec::new();
    for v in [250, 251, 65535, 65536, 1 << 24] {
        push_lenenc(&mut out, v);
    }
    assert_eq!(out, [250, 0xfc, 251, 0, 0xfc, 255, 255, 0xfd, 0, 0, 1, 0xfe, 0, 0, 0, 1, 0, 0, 0, 0].as_slice());
}
