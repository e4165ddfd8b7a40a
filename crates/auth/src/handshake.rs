//! The two sides of the hello as state machines; see the crate.

use apus_signal::{
    DecodeError, Kind,
    envelope::PROTOCOL_VERSION,
    hello::{Hello, MAGIC, Role},
};
use apus_types::{ErrorCode, NodeId};
use hmac::{Hmac, Mac};
use prost::Message;
use sha2::Sha256;

use crate::{
    Keys, Secret,
    frames::{First, Input, MAC_BYTES, decode, encode, encode_hello, encode_refusal},
};

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
/// Drawn anew for each connection, from the operating system's entropy wherever a secret is to be proven.
pub type Nonce = [u8; NONCE_BYTES];

/// Why there is no link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub code: ErrorCode,
    pub detail: String,
}

impl Failure {
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Failure {
        Failure { code, detail: detail.into() }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.code, self.detail)
    }
}

impl std::error::Error for Failure {}

/// Where the hello stands after some bytes.
#[derive(Debug)]
pub enum Progress {
    /// More must come.
    More,
    /// To be written; then more must come.
    Send(Vec<u8>),
    /// Over. For a connector: it is let in, and this is the other side's hello with the id given to us as `peer`. For an acceptor: the
    /// other side has proven this hello and waits for [`Acceptor::admit`] or a refusal.
    Done(Hello),
}

/// Label of everything that is proven here, so that the secrets may serve something else one day.
const LABEL: &[u8] = b"apus link hello";

#[derive(Clone, Copy)]
enum Direction {
    Acceptor,
    Connector,
}

/// A MAC under which both hellos lie as they were sent; lengths in front make the cut between them certain.
fn mac(key: &Secret, direction: Direction, request: &[u8], answer: &[u8]) -> Hmac<Sha256> {
    let mut mac = <Hmac<Sha256> as Mac>::new_from_slice(key.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(LABEL);
    mac.update(&[
        PROTOCOL_VERSION,
        match direction {
            Direction::Acceptor => b'A',
            Direction::Connector => b'C',
        },
    ]);
    for part in [request, answer] {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part);
    }
    mac
}

/// In constant time.
fn verifies(key: &Secret, direction: Direction, request: &[u8], answer: &[u8], claimed: &[u8; MAC_BYTES]) -> bool {
    mac(key, direction, request, answer).verify_slice(claimed).is_ok()
}

fn mac_bytes(key: &Secret, direction: Direction, request: &[u8], answer: &[u8]) -> [u8; MAC_BYTES] {
    mac(key, direction, request, answer).finalize().into_bytes().into()
}

fn nonce_of(hello: &Hello) -> Result<&Nonce, DecodeError> {
    hello.nonce.as_slice().try_into().map_err(|_| DecodeError)
}

/// The node id of a member, if it fits its role.
pub fn member_id(hello: &Hello) -> Option<NodeId> {
    let node = NodeId(u16::try_from(hello.node).ok()?);
    match Role::try_from(hello.role) {
        Ok(Role::Data) if node.is_data() => Some(node),
        Ok(Role::Mgmt) if node.is_mgmt() => Some(node),
        Ok(Role::Arbitrator) if node.is_sql_arbitrator() => Some(node),
        _ => None,
    }
}

pub fn role_of(node: NodeId) -> Role {
    match node {
        _ if node.is_mgmt() => Role::Mgmt,
        _ if node.is_sql_arbitrator() => Role::Arbitrator,
        _ => Role::Data,
    }
}

enum Connecting {
    /// Said hello.
    Asked,
    /// The other side proved itself, and we did.
    Proved(Hello),
    Over,
}

/// The side that opened the connection.
pub struct Connector {
    secret: Secret,
    hello: Hello,
    /// Of our `HelloReq`, as sent.
    request: Vec<u8>,
    input: Input,
    state: Connecting,
}

impl Connector {
    /// With the secret that proves the role in `hello`. Returns the bytes to begin with.
    pub fn new(hello: Hello, secret: &Secret, nonce: Nonce) -> (Connector, Vec<u8>) {
        let hello = Hello { magic: MAGIC, nonce: nonce.to_vec(), ..hello };
        let out = encode_hello(Kind::HelloReq, &hello);
        let request = hello.encode_to_vec();
        let (secret, input) = (secret.clone(), Input::default());
        (Connector { secret, hello, request, input, state: Connecting::Asked }, out)
    }
    /// Most bytes that [`Connector::take`] takes now; they are to be read and no more, for what follows the hello is not its own.
    pub fn missing(&self) -> usize {
        self.input.missing().unwrap_or(0)
    }

    /// Some of the missing bytes.
    ///
    /// # Errors
    /// The other side is none of ours or refuses us: the connection is to be closed.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Progress, Failure> {
        let Some(frame) = self.input.take(bytes)? else { return Ok(Progress::More) };
        match (std::mem::replace(&mut self.state, Connecting::Over), decode(&frame)?) {
            (Connecting::Asked, First::ProofReq { hello, body, mac }) => self.prove(hello, &body, &mac),
            (Connecting::Proved(hello), First::Conf(conf)) => {
                // Only the id given to us is taken from what stands under no MAC.
                Ok(Progress::Done(Hello { peer: conf.peer, ..hello }))
            }
            (Connecting::Asked | Connecting::Proved(_), First::Ref(failure)) => Err(failure),
            _ => Err(DecodeError.into()),
        }
    }

    fn prove(&mut self, hello: Hello, body: &[u8], mac: &[u8; MAC_BYTES]) -> Result<Progress, Failure> {
        if !verifies(&self.secret, Direction::Acceptor, &self.request, body, mac) {
            let detail = if self.secret.is_none() {
                "it wants the secret of its cluster, and we were given none"
            } else {
                "it does not know our secret: it belongs to another cluster, or one of us has the wrong file"
            };
            return Err(Failure::new(ErrorCode::NotProven, detail));
        }
        if *nonce_of(&hello)? == *nonce_of(&self.hello)? {
            return Err(DecodeError.into());
        }
        let node = member_id(&hello).ok_or(DecodeError)?;
        if self.hello.peer != 0 && self.hello.peer != u32::from(node.0) {
            return Err(Failure::new(ErrorCode::NotSupported, format!("found node {node} there")));
        }
        if hello.cluster != 0 && self.hello.cluster != 0 && hello.cluster != self.hello.cluster {
            let detail = format!("that of node {node} is {:016x}", hello.cluster);
            return Err(Failure::new(ErrorCode::WrongCluster, detail));
        }
        let proof = mac_bytes(&self.secret, Direction::Connector, &self.request, body);
        self.state = Connecting::Proved(hello);
        Ok(Progress::Send(encode(Kind::HelloProofConf, |b| b.extend_from_slice(&proof))))
    }
}

enum Accepting {
    Waiting,
    /// Our hello and proof are sent.
    Asked {
        request: Hello,
        request_body: Vec<u8>,
        answer_body: Vec<u8>,
    },
    Over,
}

/// The side that listens.
pub struct Acceptor {
    keys: Keys,
    own: Hello,
    input: Input,
    state: Accepting,
}

impl Acceptor {
    /// `own` says who we are; what it says of the peer is ignored.
    pub fn new(own: Hello, keys: &Keys, nonce: Nonce) -> Acceptor {
        let own = Hello { magic: MAGIC, nonce: nonce.to_vec(), peer: 0, ..own };
        Acceptor { keys: keys.clone(), own, input: Input::default(), state: Accepting::Waiting }
    }
    /// Most bytes that [`Acceptor::take`] takes now; see [`Connector::missing`].
    pub fn missing(&self) -> usize {
        self.input.missing().unwrap_or(0)
    }

    /// Some of the missing bytes.
    ///
    /// # Errors
    /// A stranger: [`Acceptor::refusal`] may be sent, then the connection is to be closed.
    pub fn take(&mut self, bytes: &[u8]) -> Result<Progress, Failure> {
        let Some(frame) = self.input.take(bytes)? else { return Ok(Progress::More) };
        match (std::mem::replace(&mut self.state, Accepting::Over), decode(&frame)?) {
            (Accepting::Waiting, First::Req { hello, body }) => self.ask(hello, body),
            (Accepting::Asked { request, request_body, answer_body }, First::ProofConf { mac }) => {
                self.check(&request, &request_body, &answer_body, &mac)?;
                Ok(Progress::Done(request))
            }
            _ => Err(DecodeError.into()),
        }
    }

    fn key(&self, hello: &Hello) -> Result<&Secret, DecodeError> {
        match Role::try_from(hello.role).map_err(|_| DecodeError)? {
            Role::Data | Role::Mgmt | Role::Operator | Role::Arbitrator => Ok(&self.keys.node),
            Role::Client => Ok(&self.keys.client),
        }
    }

    fn ask(&mut self, request: Hello, request_body: Vec<u8>) -> Result<Progress, Failure> {
        if *nonce_of(&request)? == *nonce_of(&self.own)? {
            return Err(DecodeError.into());
        }
        // Program and version are nobody's business before the proof.
        let answer_body = Hello { name: String::new(), ..self.own.clone() }.encode_to_vec();
        let proof = mac_bytes(self.key(&request)?, Direction::Acceptor, &request_body, &answer_body);
        let out = encode(Kind::HelloProofReq, |b| {
            b.extend_from_slice(&proof);
            b.extend_from_slice(&answer_body);
        });
        self.state = Accepting::Asked { request, request_body, answer_body };
        Ok(Progress::Send(out))
    }

    fn check(
        &self,
        request: &Hello,
        request_body: &[u8],
        answer_body: &[u8],
        mac: &[u8; MAC_BYTES],
    ) -> Result<(), Failure> {
        let key = self.key(request)?;
        if verifies(key, Direction::Connector, request_body, answer_body, mac) {
            return Ok(());
        }
        let of_client = verifies(&self.keys.client, Direction::Connector, request_body, answer_body, mac);
        Err(if of_client {
            Failure::new(
                ErrorCode::RoleNotProven,
                "the client secret proves a client, and this one says that it is a node or an operator",
            )
        } else {
            Failure::new(ErrorCode::NotProven, "another cluster's secret, or none")
        })
    }

    /// `HelloConf`: the link stands, and the other side is known to us as `peer`.
    pub fn admit(&self, peer: NodeId, worker: u8) -> Vec<u8> {
        let hello = Hello { peer: u32::from(peer.0), worker: u32::from(worker), nonce: Vec::new(), ..self.own.clone() };
        encode_hello(Kind::HelloConf, &hello)
    }
    /// `HelloRef`.
    pub fn refusal(failure: &Failure) -> Vec<u8> {
        encode_refusal(failure)
    }
}
