//! Reads of one moment that need several messages.
//!
//! A *moment* is what an answer without a snapshot says of itself: between which epochs nothing was committed that it does not show
//! ([`apus_signal::epoch::Moment`]). Answers of several data nodes, or workers of one, are of one moment if there is an epoch in all their ranges: where nothing was written for
//! a round or two of epochs, 10 to 20 ms, they are, and a consistent read costs nothing more than any other.
//!
//! ```text
//! first message to each worker --all answered all there is, and agree--> these are the rows
//!                               --otherwise--> a snapshot; from the beginning, at it
//! ```
//!
//! **Snapshots are shared.** One is asked for at a time; who wants one meanwhile waits for the next, which is asked for after he came, so
//! it has all that was acknowledged before. All who waited for it read at the same one, and it is given back when the last of them is done. If it is lost (its node died, memory ran short)
//! before a row was handed out, another one is taken; afterwards the read ends with `SnapshotTooOld`.

use std::{
    cell::RefCell,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use apus_signal::epoch::Moment;
use apus_types::Epoch;

use crate::{Client, ClientError, Snapshot};

/// Nothing was read yet.
pub const ANY_MOMENT: Moment = Moment { from: Epoch(0), to: Epoch(u64::MAX), answers: 0 };

type Answer = Result<Rc<Snapshot>, ClientError>;

/// One who waits.
#[derive(Default)]
struct Place {
    answer: RefCell<Option<Answer>>,
    waker: RefCell<Option<Waker>>,
}

/// Who waits for a snapshot.
#[derive(Default)]
pub(crate) struct Shared {
    waiting: Vec<Rc<Place>>,
    /// One of those who came asks for all of them.
    is_asked: bool,
}

/// Those for whom somebody asks; if he is dropped amid that, somebody else does.
struct Round<'c> {
    client: &'c Client,
    places: Vec<Rc<Place>>,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let mut shared = self.client.inner.shared.borrow_mut();
        shared.is_asked = false;
        let unanswered = self.places.drain(..).filter(|place| place.answer.borrow().is_none());
        shared.waiting.extend(unanswered);
        // Whoever has gone holds no place any more but in the list.
        shared.waiting.retain(|place| Rc::strong_count(place) > 1);
        let woken: Vec<Waker> = shared.waiting.iter().filter_map(|place| place.waker.take()).collect();
        drop(shared);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Client {
    /// A snapshot of now, perhaps one that others read at, too.
    ///
    /// # Errors
    /// As [`Client::snapshot`].
    pub async fn shared_snapshot(&self) -> Result<Rc<Snapshot>, ClientError> {
        let place = Rc::new(Place::default());
        self.inner.shared.borrow_mut().waiting.push(place.clone());
        loop {
            if let Some(answer) = place.answer.take() {
                return answer;
            }
            let round = {
                let mut shared = self.inner.shared.borrow_mut();
                let may_ask = !std::mem::replace(&mut shared.is_asked, true);
                may_ask.then(|| Round { client: self, places: std::mem::take(&mut shared.waiting) })
            };
            match round {
                Some(round) => {
                    let answer = self.snapshot().await.map(Rc::new);
                    for place in &round.places {
                        *place.answer.borrow_mut() = Some(answer.clone());
                        place.waker.take().into_iter().for_each(Waker::wake);
                    }
                }
                None => {
                    poll_fn(|cx| {
                        let is_free = !self.inner.shared.borrow().is_asked;
                        if place.answer.borrow().is_some() || is_free {
                            return Poll::Ready(());
                        }
                        *place.waker.borrow_mut() = Some(cx.waker().clone());
                        Poll::Pending
                    })
                    .await;
                }
            }
        }
    }
}
