//! epoll and eventfd, as much of them as is needed.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    event::{
        EventfdFlags, Timespec,
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
        eventfd,
    },
    io::Errno,
};

/// What is awaited of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Interest {
    pub read: bool,
    pub write: bool,
}

impl Interest {
    pub const READ: Interest = Interest { read: true, write: false };
    fn flags(self) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN | EventFlags::RDHUP, self.read);
        flags.set(EventFlags::OUT, self.write);
        flags
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Ready {
    pub token: u64,
    pub read: bool,
    pub write: bool,
}

pub struct Poll {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Poll {
    pub fn new() -> io::Result<Poll> {
        Ok(Poll { epoll: epoll::create(CreateFlags::CLOEXEC)?, events: Vec::with_capacity(256) })
    }
    pub fn add(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, EventData::new_u64(token), interest.flags())?)
    }
    pub fn change(&self, source: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, EventData::new_u64(token), interest.flags())?)
    }
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }
    /// Waits for at most `timeout_ns` (`None`: for ever), rounded up to milliseconds, and fills `ready`.
    pub fn wait(&mut self, timeout_ns: Option<u64>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        self.events.clear();
        let timeout = timeout_ns.map(|ns| {
            let ms = ns.div_ceil(1_000_000).min(3_600_000);
            Timespec { tv_sec: (ms / 1000) as i64, tv_nsec: (ms % 1000 * 1_000_000) as _ }
        });
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let ends = EventFlags::ERR | EventFlags::HUP;
        ready.extend(self.events.iter().map(|event| {
            let flags = event.flags;
            Ready {
                token: event.data.u64(),
                read: flags.intersects(EventFlags::IN | EventFlags::RDHUP | ends),
                write: flags.intersects(EventFlags::OUT | ends),
            }
        }));
        Ok(())
    }
}

/// Wakes a thread out of its [`Poll`].
pub struct Waker {
    eventfd: OwnedFd,
}

impl Waker {
    pub fn new() -> io::Result<Waker> {
        Ok(Waker { eventfd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }
    pub fn wake(&self) {
        // Fails only when the counter is full, and then the thread is awake anyway.
        let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
    }
    pub fn drain(&self) {
        let _ = rustix::io::read(&self.eventfd, &mut [0u8; 8]);
    }
    pub fn fd(&self) -> &OwnedFd {
        &self.eventfd
    }
}
