//! The other side of a client: who moves its bytes and tells its time.
//!
//! The tokio shell is one driver; a simulator or a test is another: carry out [`Driver::next_action`], report `opened`, exchange the
//! hello (crate `apus-auth`), report `admitted` or `refused`, then `received` and `closed`, write what [`Driver::take_output`] gives, call [`Driver::tick`] with the time. All calls return at once and never
//! call back; tasks that may go on are woken through their wakers.

use std::{
    rc::{Rc, Weak},
    task::{Context, Poll},
};

use apus_auth::Secret;
use apus_signal::hello::Hello;

use crate::{
    Client,
    client::Inner,
    core::{Action, ConnId},
};

/// A handle that does not keep the client alive; calls after its end do nothing.
#[derive(Clone)]
pub struct Driver {
    inner: Weak<Inner>,
}

impl Client {
    pub fn driver(&self) -> Driver {
        Driver { inner: Rc::downgrade(&self.inner) }
    }
}

impl Driver {
    /// The next thing to do, if any.
    pub fn next_action(&self) -> Option<Action> {
        self.inner.upgrade()?.core.borrow_mut().next_action()
    }
    /// Tells the time in nanoseconds (monotonic, any origin) and runs what is due. Returns when to call again at the latest.
    pub fn tick(&self, now: u64) -> u64 {
        let Some(inner) = self.inner.upgrade() else { return u64::MAX };
        let mut core = inner.core.borrow_mut();
        core.tick(now);
        core.next_deadline()
    }
    /// As [`Driver::tick`], then the next action; pending until there may be one or the time must be told again.
    /// `None`: the client is gone. `Err`: nothing to do before that time.
    pub fn poll_action(&self, now: u64, cx: &Context<'_>) -> Option<Result<Action, u64>> {
        let inner = self.inner.upgrade()?;
        let mut core = inner.core.borrow_mut();
        core.tick(now);
        Some(match core.next_action() {
            Some(action) => Ok(action),
            None => {
                core.set_driver(cx);
                Err(core.next_deadline())
            }
        })
    }
    /// Connected. Returns the hello that the driver is to say and prove; `None`: no longer wanted, close it.
    pub fn opened(&self, conn: ConnId) -> Option<Hello> {
        self.inner.upgrade()?.core.borrow_mut().opened(conn)
    }
    /// The other side let us in with this hello, and proved it where a secret is set. `false`: close the connection.
    pub fn admitted(&self, conn: ConnId, hello: &Hello) -> bool {
        self.inner.upgrade().is_some_and(|inner| inner.core.borrow_mut().admitted(conn, hello))
    }
    /// The hello failed: the connection is closed. The reason goes to whoever waits for a cluster that nobody lets us into.
    pub fn refused(&self, conn: ConnId, reason: String) {
        if let Some(inner) = self.inner.upgrade() {
            inner.core.borrow_mut().refused(conn, reason);
        }
    }
    /// What proves our role.
    pub fn secret(&self) -> Secret {
        self.inner.upgrade().map_or(Secret::NONE, |inner| inner.core.borrow().config.secret.clone())
    }
    /// Bytes came in, in order, cut anywhere. `false`: close the connection.
    pub fn received(&self, conn: ConnId, bytes: &[u8]) -> bool {
        self.inner.upgrade().is_some_and(|inner| inner.core.borrow_mut().received(conn, bytes))
    }
    /// The connection could not be made or ended.
    pub fn closed(&self, conn: ConnId) {
        if let Some(inner) = self.inner.upgrade() {
            inner.core.borrow_mut().closed(conn);
        }
    }
    /// Swaps what is to be written into `out`, which must be empty. `None`: close the connection; `Some(false)`: nothing.
    pub fn take_output(&self, conn: ConnId, out: &mut Vec<u8>) -> Option<bool> {
        self.inner.upgrade()?.core.borrow_mut().take_output(conn, out)
    }
    /// As [`Driver::take_output`], but waits until there is something. `false`: close the connection.
    pub fn poll_output(&self, conn: ConnId, out: &mut Vec<u8>, cx: &Context<'_>) -> Poll<bool> {
        let Some(inner) = self.inner.upgrade() else { return Poll::Ready(false) };
        let mut core = inner.core.borrow_mut();
        match core.take_output(conn, out) {
            None => Poll::Ready(false),
            Some(true) => Poll::Ready(true),
            Some(false) => {
                core.set_writer(conn, cx);
                Poll::Pending
            }
        }
    }
}
