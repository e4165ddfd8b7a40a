//! The frames of the hello: cutting them out of a stream, writing and reading them.

use apus_signal::{
    BlockId, BlockRef, DecodeError, Envelope, Kind,
    envelope::{ENVELOPE_BYTES, decode_frame, frame_length},
    hello::{HELLO_BYTES_MAX, Hello, MAGIC},
    tc::RequestRef,
};
use apus_types::{Epoch, ErrorCode, NodeId};
use prost::Message;

use crate::handshake::Failure;

/// Bytes of a MAC.
pub const MAC_BYTES: usize = 32;

/// One frame as it comes in, never more than [`ENVELOPE_BYTES`] + [`HELLO_BYTES_MAX`] bytes.
#[derive(Default, Debug)]
pub struct Input {
    bytes: Vec<u8>,
}

impl Input {
    /// Bytes still missing of the frame, as far as is known; 0: it is whole.
    ///
    /// # Errors
    /// It is no frame, or too long for one of the hello.
    pub fn missing(&self) -> Result<usize, DecodeError> {
        match frame_length(&self.bytes)? {
            Some(length) if length > ENVELOPE_BYTES + HELLO_BYTES_MAX => Err(DecodeError),
            Some(length) if self.bytes.len() >= ENVELOPE_BYTES => {
                length.checked_sub(self.bytes.len()).ok_or(DecodeError)
            }
            _ => Ok(ENVELOPE_BYTES - self.bytes.len()),
        }
    }
    /// Takes at most what [`Input::missing`] says. `Some`: the frame is whole, and the next may come.
    ///
    /// # Errors
    /// As [`Input::missing`], or these are more bytes than were missing.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, DecodeError> {
        if bytes.len() > self.missing()? {
            return Err(DecodeError);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(if self.missing()? == 0 { Some(std::mem::take(&mut self.bytes)) } else { None })
    }
}

pub fn encode(kind: Kind, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let nobody = BlockRef::new(NodeId(0), BlockId::Link, 0);
    let mut out = Vec::with_capacity(256);
    Envelope { kind, to: nobody, from: nobody, epoch: Epoch(0), trace: 0, generation: 0 }.encode(&mut out, write);
    out
}

pub fn encode_hello(kind: Kind, hello: &Hello) -> Vec<u8> {
    encode(kind, |b| hello.encode_raw(b))
}

pub fn encode_refusal(failure: &Failure) -> Vec<u8> {
    let mut refusal = RequestRef::new(0, failure.code);
    let detail = &failure.detail.as_bytes()[..failure.detail.len().min(HELLO_BYTES_MAX / 2)];
    refusal.detail = detail;
    encode(Kind::HelloRef, |b| refusal.encode(b))
}

/// A frame of the hello. Bodies that are under a MAC are kept as they came.
#[derive(Debug)]
pub enum First {
    Req { hello: Hello, body: Vec<u8> },
    ProofReq { hello: Hello, body: Vec<u8>, mac: [u8; MAC_BYTES] },
    ProofConf { mac: [u8; MAC_BYTES] },
    Conf(Hello),
    Ref(Failure),
}

/// # Errors
/// It does not decode, is none of these, or lacks the magic number.
pub fn decode(frame: &[u8]) -> Result<First, DecodeError> {
    let (envelope, body) = decode_frame(frame)?;
    let hello = |bytes: &[u8]| Hello::decode(bytes).ok().filter(|h| h.magic == MAGIC).ok_or(DecodeError);
    match envelope.kind {
        Kind::HelloReq => Ok(First::Req { hello: hello(body)?, body: body.to_vec() }),
        Kind::HelloProofReq => {
            let (mac, rest) = body.split_first_chunk::<MAC_BYTES>().ok_or(DecodeError)?;
            Ok(First::ProofReq { hello: hello(rest)?, body: rest.to_vec(), mac: *mac })
        }
        Kind::HelloProofConf => Ok(First::ProofConf { mac: body.try_into().map_err(|_| DecodeError)? }),
        Kind::HelloConf => Ok(First::Conf(hello(body)?)),
        Kind::HelloRef => {
            let refusal = RequestRef::decode(body)?;
            // What is told to people and logs: nothing that moves their cursor.
            let text = String::from_utf8_lossy(refusal.detail);
            let detail = text.chars().filter(|c| !c.is_control()).take(HELLO_BYTES_MAX / 2).collect();
            Ok(First::Ref(Failure { code: refusal.code, detail }))
        }
        _ => Err(DecodeError),
    }
}

impl From<DecodeError> for Failure {
    fn from(_: DecodeError) -> Failure {
        Failure::new(ErrorCode::ProtocolViolation, "it does not speak this protocol")
    }
}
