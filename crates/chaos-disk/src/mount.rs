//! The volume as the kernel's file system calls reach it.
//!
//! Nothing is cached by the kernel: files are opened for direct I/O and facts are valid for no time, so that a loss of power is seen by the next program.

use std::{
    ffi::OsStr,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use crate::volume::{Error, Facts, Kind, PAGE, ROOT, Volume};

const NO_TIME: Duration = Duration::ZERO;
const FIRST: Generation = Generation(0);

/// The volume, and whether it answers.
pub struct Shared {
    volume: Mutex<Volume>,
    stalls: Mutex<bool>,
    goes_on: Condvar,
}

impl Shared {
    pub fn new() -> Shared {
        Shared { volume: Mutex::new(Volume::new()), stalls: Mutex::new(false), goes_on: Condvar::new() }
    }
    pub fn volume(&self) -> MutexGuard<'_, Volume> {
        self.volume.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub fn set_stalls(&self, stalls: bool) {
        *self.stalls.lock().unwrap_or_else(PoisonError::into_inner) = stalls;
        self.goes_on.notify_all();
    }
    /// Writes and syncs wait here while the disk does not answer.
    fn wait(&self) -> MutexGuard<'_, Volume> {
        let stalls = self.stalls.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.goes_on.wait_while(stalls, |stalls| *stalls).unwrap_or_else(PoisonError::into_inner));
        self.volume()
    }
}

pub struct Door(pub std::sync::Arc<Shared>);

fn errno(error: Error) -> Errno {
    match error {
        Error::NotFound => Errno::ENOENT,
        Error::Exists => Errno::EEXIST,
        Error::NotEmpty => Errno::ENOTEMPTY,
        Error::NotADirectory => Errno::ENOTDIR,
        Error::IsADirectory => Errno::EISDIR,
        Error::NoSpace => Errno::ENOSPC,
        Error::Io => Errno::EIO,
        Error::CrossDevice => Errno::EXDEV,
        Error::Invalid => Errno::EINVAL,
    }
}

fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Socket => FileType::Socket,
    }
}

fn attr(facts: &Facts, request: &Request) -> FileAttr {
    let time: SystemTime = UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(facts.inode),
        size: facts.length,
        blocks: facts.length.div_ceil(512),
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: file_type(facts.kind),
        perm: facts.mode,
        nlink: 1,
        uid: request.uid(),
        gid: request.gid(),
        rdev: 0,
        blksize: PAGE as u32,
        flags: 0,
    }
}

fn answer(reply: ReplyEmpty, done: Result<(), Error>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

impl Door {
    fn entry(reply: ReplyEntry, request: &Request, found: Result<Facts, Error>) {
        match found {
            Ok(facts) => reply.entry(&NO_TIME, &attr(&facts, request), FIRST),
            Err(error) => reply.error(errno(error)),
        }
    }
}

impl Filesystem for Door {
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let mut volume = self.0.volume();
        let found = volume.lookup(parent.0, name).and_then(|inode| volume.facts(inode));
        Door::entry(reply, request, found);
    }
    fn getattr(&self, request: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.0.volume().facts(inode.0) {
            Ok(facts) => reply.attr(&NO_TIME, &attr(&facts, request)),
            Err(error) => reply.error(errno(error)),
        }
    }
    fn setattr(
        &self,
        request: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut volume = self.0.wait();
        let moded = mode.map_or(Ok(()), |mode| volume.set_mode(inode.0, mode as u16));
        let sized = moded.and_then(|()| size.map_or(Ok(()), |size| volume.set_length(inode.0, size)));
        match sized.and_then(|()| volume.facts(inode.0)) {
            Ok(facts) => reply.attr(&NO_TIME, &attr(&facts, request)),
            Err(error) => reply.error(errno(error)),
        }
    }
    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let mut volume = self.0.wait();
        let made = volume.make(parent.0, name, Kind::Directory, (mode & !umask) as u16);
        let found = made.and_then(|inode| volume.facts(inode));
        Door::entry(reply, request, found);
    }
    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let kind = match mode & 0o170_000 {
            0o140_000 => Kind::Socket,
            0o100_000 => Kind::File,
            _ => return reply.error(Errno::EPERM),
        };
        let mut volume = self.0.wait();
        let made = volume.make(parent.0, name, kind, (mode & !umask) as u16);
        let found = made.and_then(|inode| volume.facts(inode));
        Door::entry(reply, request, found);
    }
    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.0.wait().remove(parent.0, name, false));
    }
    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.0.wait().remove(parent.0, name, true));
    }
    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        answer(reply, self.0.wait().rename(parent.0, name, to_parent.0, to));
    }
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }
    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let mut volume = self.0.wait();
        let made = volume.make(parent.0, name, Kind::File, (mode & !umask) as u16);
        match made.and_then(|inode| volume.facts(inode)) {
            Ok(facts) => {
                let attr = attr(&facts, request);
                reply.created(&NO_TIME, &attr, FIRST, FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(error) => reply.error(errno(error)),
        }
    }
    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.0.volume().read(inode.0, offset, u64::from(size)) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(error)),
        }
    }
    fn write(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        match self.0.wait().write(inode.0, offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(error)),
        }
    }
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
    fn fsync(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(reply, self.0.wait().sync(inode.0));
    }
    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer(reply, self.0.wait().sync(inode.0));
    }
    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let mut volume = self.0.volume();
        let names = match volume.list(inode.0) {
            Ok(names) => names,
            Err(error) => return reply.error(errno(error)),
        };
        for (index, (name, inode)) in names.iter().enumerate().skip(offset as usize) {
            let kind = volume.facts(*inode).map_or(Kind::File, |facts| facts.kind);
            if reply.add(INodeNo(*inode), index as u64 + 1, file_type(kind), name) {
                break;
            }
        }
        reply.ok();
    }
    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let volume = self.0.volume();
        let blocks = volume.capacity.min(1 << 40);
        let free = blocks.saturating_sub(volume.used());
        reply.statfs(blocks, free, free, 1 << 20, 1 << 20, PAGE as u32, 255, PAGE as u32);
    }
    fn fallocate(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        if mode != 0 {
            return reply.error(Errno::EOPNOTSUPP);
        }
        let end = offset.checked_add(length).ok_or(Error::Invalid);
        answer(reply, end.and_then(|end| self.0.wait().allocate(inode.0, end)));
    }
}

/// The inode that a path from the volume's root leads to.
pub fn resolve(volume: &mut Volume, path: &str) -> Result<u64, Error> {
    let mut names = path.split('/').filter(|name| !name.is_empty());
    names.try_fold(ROOT, |inode, name| volume.lookup(inode, OsStr::new(name)))
}
