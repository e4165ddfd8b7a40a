//! Writing and checking the first frames of a link; see `apus_signal::hello`.

use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    envelope::{ENVELOPE_BYTES, decode_frame, frame_length},
    hello::{HELLO_BYTES_MAX, Hello, MAGIC, Role},
    tc::RequestRef,
};
use apus_types::{Epoch, ErrorCode, NodeId};
use prost::Message;

/// Bytes still missing of the first frame, given what has come; 0: it is whole.
///
/// # Errors
/// It is no hello, or too long for one.
pub fn missing_bytes(bytes: &[u8]) -> Result<usize, DecodeError> {
    match frame_length(bytes)? {
        None => Ok(ENVELOPE_BYTES - bytes.len()),
        Some(length) if length > ENVELOPE_BYTES + HELLO_BYTES_MAX => Err(DecodeError),
        Some(length) if bytes.len() < ENVELOPE_BYTES => Ok(ENVELOPE_BYTES.min(length) - bytes.len()),
        Some(length) => length.checked_sub(bytes.len()).ok_or(DecodeError),
    }
}

fn address(node: NodeId) -> BlockRef {
    BlockRef::new(node, BlockId::Link, 0)
}

fn frame(kind: Kind, own: NodeId, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    Envelope { kind, to: address(NodeId(0)), from: address(own), epoch: Epoch(0), trace: 0 }.encode(&mut out, write);
    out
}

/// `HelloReq` or `HelloConf`.
pub fn encode(kind: Kind, own: NodeId, hello: &Hello) -> Vec<u8> {
    frame(kind, own, |b| b.extend_from_slice(&hello.encode_to_vec()))
}

pub fn encode_refusal(own: NodeId, reason: &str) -> Vec<u8> {
    let mut refusal = RequestRef::new(0, ErrorCode::ProtocolViolation);
    refusal.detail = reason.as_bytes();
    frame(Kind::HelloRef, own, |b| refusal.encode(b))
}

/// What the other side said first.
#[derive(Debug)]
pub enum First {
    Req(Hello),
    Conf(Hello),
    Ref(String),
}

/// # Errors
/// It does not decode, is none of the three, or lacks the magic number.
pub fn decode(bytes: &[u8]) -> Result<First, DecodeError> {
    let (envelope, body) = decode_frame(bytes)?;
    let hello = || Hello::decode(body).ok().filter(|h| h.magic == MAGIC).ok_or(DecodeError);
    match envelope.kind {
        Kind::HelloReq => Ok(First::Req(hello()?)),
        Kind::HelloConf => Ok(First::Conf(hello()?)),
        Kind::HelloRef => Ok(First::Ref(String::from_utf8_lossy(RequestRef::decode(body)?.detail).into_owned())),
        _ => Err(DecodeError),
    }
}

/// The node id of a member, if it fits its role.
pub fn member_id(hello: &Hello) -> Option<NodeId> {
    let node = NodeId(u16::try_from(hello.node).ok()?);
    match hello.role() {
        Role::Data if node.is_data() => Some(node),
        Role::Mgmt if node.is_mgmt() && node.0 < NodeId::MGMT_BASE + 0x100 => Some(node),
        _ => None,
    }
}

pub fn role_of(node: NodeId) -> Role {
    if node.is_mgmt() { Role::Mgmt } else { Role::Data }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_refused_without_panic() {
        let hello = Hello { magic: MAGIC, role: Role::Data as i32, node: 2, name: "x".into(), ..Hello::default() };
        let bytes = encode(Kind::HelloReq, NodeId(2), &hello);
        for cut in 0..bytes.len() {
            let missing = missing_bytes(&bytes[..cut]).expect("a prefix of a hello");
            assert!(missing > 0 && cut + missing <= bytes.len());
        }
        assert_eq!(missing_bytes(&bytes), Ok(0));
        assert!(matches!(decode(&bytes), Ok(First::Req(h)) if h == hello && member_id(&h) == Some(NodeId(2))));
        assert!(missing_bytes(b"GET / HTTP/1.1\r\n").is_err());
        for i in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[i] ^= 0xff;
            let _ = (missing_bytes(&bad), decode(&bad));
        }
        for (role, node) in
            [(Role::Data, 0), (Role::Data, 256), (Role::Mgmt, 1), (Role::Client, 1), (Role::Data, 70_000)]
        {
            assert_eq!(member_id(&Hello { role: role as i32, node, ..hello.clone() }), None);
        }
        assert!(matches!(decode(&encode_refusal(NodeId(1), "no")), Ok(First::Ref(reason)) if reason == "no"));
    }
}
