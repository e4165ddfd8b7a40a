//! Links between data nodes go on where they were when their connection is lost.
//!
//! TCP keeps the order of what it delivers and says nothing of what it has delivered when it breaks. So both ends number the bytes of each
//! direction. The sender keeps what the receiver has not acknowledged; the receiver counts what it has executed, always whole frames. On
//! a new connection each end says how far it has come, and the other sends from there. A signal is neither lost nor executed twice, and the
//! order stays; blocks notice nothing. A *session* is such a link from its first connection to its end, between two processes.
//!
//! ```text
//! each end, first on every connection    LinkOpenOrd   own session, the other's session (0: none yet), bytes received in it
//! either, every LINK_ACK_BYTES received  LinkAckOrd    bytes received
//! ```
//!
//! Neither names another session than the one that the other is in: it begins or goes on. Otherwise one end has given the session up, or
//! never had it, and the link has failed ([`Kind::LinkDownRep`]). The acknowledgement stands in the numbered stream like any signal, so that it
//! costs no system call and no second kind of bookkeeping; one that is sent again says less than the newest and is passed over.
//!
//! **Which connection.** Both ends dial as soon as they notice, and often both come through. A connection has a *rank*: how often the session
//! was taken up before it, then whether the lower id dialled it. The higher rank takes the place of the lower one at both ends, at whatever
//! time each of them sees which.
//!
//! **Limits.** What is written and not acknowledged is at most [`LINK_UNACKED_MAX`] bytes; beyond that the oldest are forgotten, and if the other
//! end lacks them, the link has failed. What is not written yet is bounded as ever ([`crate::limits::MEMBER_UNSENT_MAX`]). How long a
//! session waits for a connection is for QMGR to say, which closes the link.

use apus_signal::{DecodeError, Envelope, Kind, Reader, codec::Put};
use apus_types::{
    NodeId,
    planted::{Bug, planted},
};

use crate::{
    core::Core,
    limits::{LINK_ACK_BYTES, LINK_UNACKED_MAX},
    links::Link,
};

/// Of a connection within its session; see the module.
pub(crate) type Rank = (u32, bool);

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Wire {
    /// There is no connection.
    #[default]
    None,
    /// The other end has not said how far it has come.
    Opening,
    Open,
}

/// What [`Kind::LinkOpenOrd`] says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Opening {
    mine: u64,
    yours: u64,
    received: u64,
}

impl Opening {
    fn encode(self, out: &mut Vec<u8>) {
        out.put_u64(self.mine);
        out.put_u64(self.yours);
        out.put_u64(self.received);
    }
    fn decode(body: &[u8]) -> Result<Opening, DecodeError> {
        let mut r = Reader::new(body);
        let opening = Opening { mine: r.u64()?, yours: r.u64()?, received: r.u64()? };
        if opening.mine == 0 || !r.is_empty() { Err(DecodeError) } else { Ok(opening) }
    }
}

/// The numbering of a link; of one that is not between data nodes all is as at the beginning.
#[derive(Default, Debug)]
pub(crate) struct Session {
    pub is_numbered: bool,
    pub wire: Wire,
    /// Goes before all numbered bytes of this connection.
    pub head: Vec<u8>,
    pub rank: Rank,
    /// QMGR knows of the link.
    pub is_known: bool,
    /// It knows that there is no connection.
    pub is_suspended: bool,
    /// What came is not to be followed: the session ends with this connection.
    pub is_broken: bool,
    mine: u64,
    /// 0: the other end has not been heard.
    yours: u64,
    /// Number of the byte at the start of [`Link::out`].
    base: u64,
    /// Bytes executed, and of those the ones that the other end knows of.
    received: u64,
    told: u64,
}

/// What the other end's opening means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Met {
    /// The session begins or goes on.
    Agreed,
    /// One of the two is at the end of another.
    Over,
}

impl Session {
    pub fn numbered(mine: u64, rank: Rank) -> Session {
        Session { is_numbered: true, mine, rank, ..Session::default() }
    }
    /// The other end was heard.
    pub fn is_met(&self) -> bool {
        self.yours != 0
    }
    pub fn forget(&mut self) {
        *self = Session { is_numbered: self.is_numbered, rank: self.rank, ..Session::default() };
    }
    /// Whether the other end has still to say how far it has come.
    #[inline]
    pub fn awaits_opening(&self) -> bool {
        self.is_numbered && self.wire != Wire::Open
    }
    /// So many more bytes were executed. True: it is time to say so.
    #[inline]
    pub fn receive(&mut self, bytes: usize) -> bool {
        self.received += bytes as u64;
        self.is_numbered && self.received - self.told >= LINK_ACK_BYTES
    }
    pub fn moved(&mut self, bytes: usize) {
        self.base += bytes as u64;
    }
}

impl Link {
    /// A connection for the session, new or not: nothing is sent but how far we have come.
    pub fn begin_opening(&mut self, rank: Rank, envelope: &Envelope) {
        let session = &mut self.session;
        session.wire = Wire::Opening;
        session.rank = rank;
        session.told = session.received;
        session.head.clear();
        let opening = Opening { mine: session.mine, yours: session.yours, received: session.received };
        envelope.encode(&mut session.head, |b| opening.encode(b));
    }

    fn meet(&mut self, peer: Opening) -> Met {
        let session = &mut self.session;
        // Either may have heard the other's opening on an earlier connection, and the other not.
        let is_ours = peer.yours == session.mine || (peer.yours == 0 && peer.received == 0);
        let is_theirs = session.yours == peer.mine || session.yours == 0;
        if !is_ours || !is_theirs || !self.go_on_from(peer.received) {
            return Met::Over;
        }
        self.session.yours = peer.mine;
        self.session.wire = Wire::Open;
        Met::Agreed
    }

    /// The other end has executed so many bytes. False: we lack what comes next, or have never sent that much.
    fn go_on_from(&mut self, received: u64) -> bool {
        let Some(at) = self.place_of(received) else { return false };
        if planted(Bug::LinkRepeats) {
            self.sent = self.released;
            return true;
        }
        if !planted(Bug::LinkSkipsLost) {
            self.sent = at;
        }
        self.release(at);
        true
    }

    /// # Errors
    /// It says more than was ever sent.
    fn acknowledge(&mut self, received: u64) -> Result<(), DecodeError> {
        if received > self.session.base + self.sent as u64 {
            return Err(DecodeError);
        }
        if let Some(at) = self.place_of(received) {
            self.release(at);
        }
        Ok(())
    }

    /// Where in `out` the byte of this number is, if it was sent and is not released.
    fn place_of(&self, number: u64) -> Option<usize> {
        let at = usize::try_from(number.checked_sub(self.session.base)?).ok()?;
        (self.released..=self.sent).contains(&at).then_some(at)
    }

    /// What was written just now is kept, within the limit.
    pub fn keep_sent(&mut self) {
        let over = (self.sent - self.released).saturating_sub(LINK_UNACKED_MAX);
        if over > 0 {
            self.release(self.released + over);
        }
    }
}

impl Core {
    /// The first frame of a connection between data nodes. Returns its length, 0: it is not whole.
    ///
    /// # Errors
    /// It is something else, or the session ends here: the executor closes the connection.
    pub fn meet(&mut self, source: NodeId, bytes: &[u8]) -> Result<usize, DecodeError> {
        let Some(length) = apus_signal::envelope::frame_length(bytes)? else { return Ok(0) };
        let Some(frame) = bytes.get(..length) else { return Ok(0) };
        let (envelope, body) = apus_signal::envelope::decode_frame(frame)?;
        if envelope.kind != Kind::LinkOpenOrd || envelope.from.node != source || envelope.to.node != self.config.node {
            return Err(DecodeError);
        }
        let opening = Opening::decode(body)?;
        let Some(link) = self.links.get_mut(source) else { return Err(DecodeError) };
        let incarnation = link.incarnation;
        let met = link.meet(opening);
        link.heard = self.now;
        let is_known = link.session.is_known;
        let was_suspended = met == Met::Agreed && std::mem::take(&mut link.session.is_suspended);
        link.session.is_known |= met == Met::Agreed;
        self.links.recount(source);
        if met == Met::Over {
            if is_known {
                self.log(format_args!("node {source} does not go on with the link that was"));
            }
            return Err(DecodeError);
        }
        if !is_known {
            self.report_link(Kind::LinkUpRep, source, incarnation);
        } else if was_suspended {
            self.counters.links_resumed += 1;
            self.report_link(Kind::LinkResumedRep, source, incarnation);
        }
        self.links.note_dirty(source);
        Ok(length)
    }

    /// [`Kind::LinkAckOrd`].
    ///
    /// # Errors
    /// It is impossible.
    #[cold]
    pub fn acknowledged(&mut self, source: NodeId, body: &[u8]) -> Result<(), DecodeError> {
        let mut r = Reader::new(body);
        let received = r.u64()?;
        let link = self.links.get_mut(source).filter(|link| link.session.is_numbered).ok_or(DecodeError)?;
        link.acknowledge(received)?;
        self.links.recount(source);
        Ok(())
    }

    /// Tells the other end how far we have come.
    #[cold]
    pub fn acknowledge(&mut self, source: NodeId) {
        let envelope = self.link_envelope(Kind::LinkAckOrd, source);
        let Some(link) = self.links.get_mut(source) else { return };
        let received = link.session.received;
        assert!(link.session.told <= received, "an acknowledgement went back");
        link.session.told = received;
        if let Some(out) = self.links.writer(source) {
            envelope.encode(out, |b| b.put_u64(received));
        }
    }

    /// Of what this worker's executor says to that of another node.
    pub fn link_envelope(&self, kind: Kind, node: NodeId) -> Envelope {
        let from = self.link_ref();
        Envelope {
            kind,
            to: apus_signal::BlockRef { node, ..from },
            from,
            epoch: self.epoch,
            trace: 0,
            generation: self.links.generation(),
        }
    }
}
