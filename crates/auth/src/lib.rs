//! Who may speak: the proof at the beginning of every link, without a socket, a clock or entropy of its own.
//!
//! A cluster has two [`Secret`]s of 256 bits. Data nodes and management nodes hold both; SQL nodes and native clients hold that for clients
//! only. A link begins with four frames, and nothing else is read before the last of them:
//!
//! ```text
//! connector                                          acceptor
//! HelloReq        hello, nonce              ------>
//!                                           <------  HelloProofReq    hello, nonce, MAC "acceptor"
//! HelloProofConf  MAC "connector"           ------>
//!                                           <------  HelloConf        the id that a client is given
//! ```
//!
//! Both MACs are HMAC-SHA256 over a label, the direction, the protocol's version and both hellos as they were sent, so over both nonces,
//! roles, ids, incarnations, the worker and the cluster. The key is the node secret where the connector says that it is a data or
//! management node, and the client secret where it says client: the role is proven with the link.
//!
//! **What it gives.** A peer that does not hold the secret is refused before anything it says is believed. A recorded proof is worth nothing
//! on another link: the nonces differ. A proof sent back to its maker is worth nothing: the directions differ. The connector never
//! answers who did not prove first, so nobody collects proofs by listening at a node's address.
//!
//! **What it does not give.** The link is not encrypted after the proof and its bytes carry no MAC: who can change packets on the way
//! can take over a proven link. A client that holds the client secret can pose as a node to other clients, for the secret is shared.
//! Both need TLS with certificates, which is to replace the challenge and leaves all that is checked afterwards.
//!
//! **Without secrets** the same frames are exchanged under a key of zeros ([`Secret::NONE`]). It proves nothing; the `apus` binary
//! listens that way on loopback only.
//!
//! **Limits.** A frame of the hello has at most `HELLO_BYTES_MAX` bytes behind its envelope; an acceptor takes two frames and a connector
//! two, or it is over. Time limits and limits on the number of unproven connections are the executor's.

mod frames;
mod handshake;
mod secret;

pub use handshake::{Acceptor, Connector, Failure, NONCE_BYTES, Nonce, Progress, member_id, role_of};
pub use secret::{Keys, SECRET_BYTES, Secret, SecretKind};
