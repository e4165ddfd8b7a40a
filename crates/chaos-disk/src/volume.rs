//! A volume in memory that knows what would be left of it if the power went now.
//!
//! Each file has its content as programs see it, and the content that was synced; each directory the same of its names. A sync moves the one to the
//! other. [`Volume::lose_power`] goes back to what was synced, and beside it keeps what a real disk might have written by itself: of the sectors of
//! 512 bytes that were not synced any, in any order; of the changes to the names of a directory the first so many; of a file's length either.
//!
//! This is stricter than most file systems: syncing a new file does not make its name durable, its directory has to be synced too, as POSIX has it.
//! A sync that is told to fail loses what was dirty, and the next one succeeds, as on Linux.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
};

pub const PAGE: u64 = 4096;
/// What a disk writes or does not.
const SECTOR: usize = 512;
pub const ROOT: u64 = 1;

/// Why something is not done.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Error {
    NotFound,
    Exists,
    NotEmpty,
    NotADirectory,
    IsADirectory,
    /// The volume is full.
    NoSpace,
    /// The disk could not.
    Io,
    /// A rename from one directory to another: nobody who is tested here needs it.
    CrossDevice,
    Invalid,
}

type Page = Box<[u8; PAGE as usize]>;

#[derive(Default)]
struct File {
    pages: BTreeMap<u64, Page>,
    length: u64,
    synced_pages: BTreeMap<u64, Page>,
    synced_length: u64,
    /// Pages that differ from the synced ones, and may be written at any time.
    dirty: BTreeSet<u64>,
    /// Pages below this have their place on the disk whether written or not.
    allocated: u64,
}

impl File {
    fn places(&self) -> u64 {
        self.allocated + self.pages.range(self.allocated..).count() as u64
    }
}

#[derive(Default)]
struct Directory {
    names: BTreeMap<OsString, u64>,
    synced: BTreeMap<OsString, u64>,
    /// Changes since the last sync, oldest first: these names lead there from now on.
    changes: Vec<Vec<(OsString, Option<u64>)>>,
}

impl Directory {
    fn change(&mut self, change: Vec<(OsString, Option<u64>)>) {
        apply(&mut self.names, &change);
        self.changes.push(change);
    }
}

fn apply(names: &mut BTreeMap<OsString, u64>, change: &[(OsString, Option<u64>)]) {
    for (name, inode) in change {
        match inode {
            Some(inode) => names.insert(name.clone(), *inode),
            None => names.remove(name),
        };
    }
}

enum Node {
    File(File),
    Directory(Directory),
    /// Nothing but its name is on the disk.
    Socket,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    File,
    Directory,
    Socket,
}

struct Inode {
    node: Node,
    mode: u16,
    /// No name leads here any more. Its content is kept until the power goes, because the change of the name may be lost.
    is_removed: bool,
}

/// What there is to know of a file or directory.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    pub inode: u64,
    pub kind: Kind,
    pub length: u64,
    pub mode: u16,
}

/// What a loss of power did.
#[derive(Copy, Clone, Default, PartialEq, Eq, Debug)]
pub struct Loss {
    pub sectors_kept: u64,
    pub sectors_lost: u64,
    pub names_lost: u64,
}

pub struct Volume {
    inodes: BTreeMap<u64, Inode>,
    next: u64,
    /// Pages that there is room for.
    pub capacity: u64,
    /// Every sync fails.
    pub syncs_fail: bool,
}

/// Numbers from a seed: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

impl Volume {
    pub fn new() -> Volume {
        let root = Inode { node: Node::Directory(Directory::default()), mode: 0o755, is_removed: false };
        Volume { inodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1, capacity: u64::MAX, syncs_fail: false }
    }

    fn file(&mut self, inode: u64) -> Result<&mut File, Error> {
        match self.inodes.get_mut(&inode) {
            Some(Inode { node: Node::File(file), .. }) => Ok(file),
            Some(_) => Err(Error::IsADirectory),
            None => Err(Error::NotFound),
        }
    }
    fn directory(&mut self, inode: u64) -> Result<&mut Directory, Error> {
        match self.inodes.get_mut(&inode) {
            Some(Inode { node: Node::Directory(directory), .. }) => Ok(directory),
            Some(_) => Err(Error::NotADirectory),
            None => Err(Error::NotFound),
        }
    }
    /// Pages that have a place.
    pub fn used(&self) -> u64 {
        let places = |inode: &Inode| match &inode.node {
            Node::File(file) if !inode.is_removed => file.places(),
            _ => 0,
        };
        self.inodes.values().map(places).sum()
    }
    fn check_room(&self, pages: u64) -> Result<(), Error> {
        let is_limited = pages > 0 && self.capacity != u64::MAX;
        if is_limited && self.used().saturating_add(pages) > self.capacity { Err(Error::NoSpace) } else { Ok(()) }
    }

    pub fn facts(&self, inode: u64) -> Result<Facts, Error> {
        let found = self.inodes.get(&inode).ok_or(Error::NotFound)?;
        let (kind, length) = match &found.node {
            Node::File(file) => (Kind::File, file.length),
            Node::Directory(_) => (Kind::Directory, 0),
            Node::Socket => (Kind::Socket, 0),
        };
        Ok(Facts { inode, kind, length, mode: found.mode })
    }
    pub fn set_mode(&mut self, inode: u64, mode: u16) -> Result<(), Error> {
        self.inodes.get_mut(&inode).ok_or(Error::NotFound)?.mode = mode & 0o7777;
        Ok(())
    }
    pub fn lookup(&mut self, parent: u64, name: &OsStr) -> Result<u64, Error> {
        self.directory(parent)?.names.get(name).copied().ok_or(Error::NotFound)
    }
    /// Names and where they lead, in order.
    pub fn list(&mut self, inode: u64) -> Result<Vec<(OsString, u64)>, Error> {
        Ok(self.directory(inode)?.names.iter().map(|(name, inode)| (name.clone(), *inode)).collect())
    }

    pub fn make(&mut self, parent: u64, name: &OsStr, kind: Kind, mode: u16) -> Result<u64, Error> {
        if self.directory(parent)?.names.contains_key(name) {
            return Err(Error::Exists);
        }
        let number = self.next;
        self.next += 1;
        self.directory(parent)?.change(vec![(name.to_owned(), Some(number))]);
        let node = match kind {
            Kind::File => Node::File(File::default()),
            Kind::Directory => Node::Directory(Directory::default()),
            Kind::Socket => Node::Socket,
        };
        self.inodes.insert(number, Inode { node, mode: mode & 0o7777, is_removed: false });
        Ok(number)
    }
    pub fn remove(&mut self, parent: u64, name: &OsStr, is_directory: bool) -> Result<(), Error> {
        let inode = self.lookup(parent, name)?;
        match (&self.inodes[&inode].node, is_directory) {
            (Node::File(_) | Node::Socket, false) => {}
            (Node::File(_) | Node::Socket, true) => return Err(Error::NotADirectory),
            (Node::Directory(_), false) => return Err(Error::IsADirectory),
            (Node::Directory(directory), true) if !directory.names.is_empty() => return Err(Error::NotEmpty),
            (Node::Directory(_), true) => {}
        }
        self.directory(parent)?.change(vec![(name.to_owned(), None)]);
        self.unlink(inode);
        Ok(())
    }
    fn unlink(&mut self, inode: u64) {
        if let Some(inode) = self.inodes.get_mut(&inode) {
            inode.is_removed = true;
        }
    }
    /// Both names change in one step.
    pub fn rename(&mut self, parent: u64, name: &OsStr, to_parent: u64, to: &OsStr) -> Result<(), Error> {
        if parent != to_parent {
            return Err(Error::CrossDevice);
        }
        let inode = self.lookup(parent, name)?;
        if name != to {
            if let Ok(old) = self.lookup(parent, to) {
                self.unlink(old);
            }
            self.directory(parent)?.change(vec![(name.to_owned(), None), (to.to_owned(), Some(inode))]);
        }
        Ok(())
    }

    pub fn read(&mut self, inode: u64, at: u64, count: u64) -> Result<Vec<u8>, Error> {
        let file = self.file(inode)?;
        let end = at.saturating_add(count).min(file.length);
        let mut bytes = Vec::with_capacity(end.saturating_sub(at) as usize);
        let mut place = at;
        while place < end {
            let (page, from) = (place / PAGE, (place % PAGE) as usize);
            let to = (end - page * PAGE).min(PAGE) as usize;
            match file.pages.get(&page) {
                Some(page) => bytes.extend_from_slice(&page[from..to]),
                None => bytes.resize(bytes.len() + (to - from), 0),
            }
            place += (to - from) as u64;
        }
        Ok(bytes)
    }
    pub fn write(&mut self, inode: u64, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let end = at.checked_add(bytes.len() as u64).ok_or(Error::Invalid)?;
        let file = self.file(inode)?;
        let (first, last) = (at / PAGE, end.div_ceil(PAGE));
        let new = (first..last).filter(|page| *page >= file.allocated && !file.pages.contains_key(page)).count();
        self.check_room(new as u64)?;
        let file = self.file(inode)?;
        let mut rest = bytes;
        for number in first..last {
            let from = at.saturating_sub(number * PAGE) as usize;
            let count = rest.len().min(PAGE as usize - from);
            let (now, later) = rest.split_at(count);
            let page = file.pages.entry(number).or_insert_with(|| Box::new([0; PAGE as usize]));
            page[from..from + count].copy_from_slice(now);
            file.dirty.insert(number);
            rest = later;
        }
        file.length = file.length.max(end);
        Ok(())
    }
    /// Gives the first `length` bytes their places, and the file at least that length.
    pub fn allocate(&mut self, inode: u64, length: u64) -> Result<(), Error> {
        let pages = length.div_ceil(PAGE);
        let file = self.file(inode)?;
        let inside = file.pages.range(file.allocated..pages.max(file.allocated)).count() as u64;
        let new = pages.saturating_sub(file.allocated).saturating_sub(inside);
        self.check_room(new)?;
        let file = self.file(inode)?;
        file.allocated = file.allocated.max(pages);
        file.length = file.length.max(length);
        Ok(())
    }
    pub fn set_length(&mut self, inode: u64, length: u64) -> Result<(), Error> {
        let file = self.file(inode)?;
        let pages = length.div_ceil(PAGE);
        let gone = file.pages.split_off(&pages);
        file.dirty.extend(gone.keys());
        if let Some(page) = (!length.is_multiple_of(PAGE)).then(|| file.pages.get_mut(&(length / PAGE))).flatten() {
            page[(length % PAGE) as usize..].fill(0);
            file.dirty.insert(length / PAGE);
        }
        file.allocated = file.allocated.min(pages);
        file.length = length;
        Ok(())
    }

    /// What programs see of the file, or of the directory's names, is on the disk from now on.
    pub fn sync(&mut self, inode: u64) -> Result<(), Error> {
        let fails = self.syncs_fail;
        let Some(found) = self.inodes.get_mut(&inode) else { return Err(Error::NotFound) };
        match &mut found.node {
            Node::File(file) if fails => {
                file.dirty.clear();
                return Err(Error::Io);
            }
            Node::File(file) => {
                for number in std::mem::take(&mut file.dirty) {
                    match file.pages.get(&number) {
                        Some(page) => file.synced_pages.insert(number, page.clone()),
                        None => file.synced_pages.remove(&number),
                    };
                }
                file.synced_length = file.length;
            }
            Node::Directory(_) if fails => return Err(Error::Io),
            Node::Socket => {}
            Node::Directory(directory) => {
                directory.changes.clear();
                directory.synced.clone_from(&directory.names);
            }
        }
        Ok(())
    }

    /// The power goes and comes back. No program may have a file open.
    pub fn lose_power(&mut self, seed: u64) -> Loss {
        let mut random = Random(seed);
        let mut loss = Loss::default();
        // How much a disk had written by itself differs from one time to the next.
        let kept_of_8 = [0, 1, 4, 7, 8][random.below(5) as usize];
        for inode in self.inodes.values_mut() {
            match &mut inode.node {
                Node::File(file) => lose_pages(file, kept_of_8, &mut random, &mut loss),
                Node::Directory(directory) => {
                    let changes = std::mem::take(&mut directory.changes);
                    let kept = random.below(changes.len() as u64 + 1) as usize;
                    changes.iter().take(kept).for_each(|change| apply(&mut directory.synced, change));
                    loss.names_lost += (changes.len() - kept) as u64;
                    directory.names.clone_from(&directory.synced);
                }
                Node::Socket => {}
            }
        }
        self.forget_nameless();
        loss
    }
    fn forget_nameless(&mut self) {
        let mut named = BTreeSet::from([ROOT]);
        for inode in self.inodes.values() {
            if let Node::Directory(directory) = &inode.node {
                named.extend(directory.names.values());
            }
        }
        self.inodes.retain(|number, inode| {
            inode.is_removed = false;
            named.contains(number)
        });
    }
}

fn lose_pages(file: &mut File, kept_of_8: u64, random: &mut Random, loss: &mut Loss) {
    for number in std::mem::take(&mut file.dirty) {
        let Some(page) = file.pages.get(&number) else { continue };
        for from in (0..PAGE as usize).step_by(SECTOR) {
            let sector = &page[from..from + SECTOR];
            let old = file.synced_pages.get(&number).map_or(&[0; SECTOR][..], |page| &page[from..from + SECTOR]);
            if sector == old {
                continue;
            }
            if random.below(8) < kept_of_8 {
                loss.sectors_kept += 1;
                let page = file.synced_pages.entry(number).or_insert_with(|| Box::new([0; PAGE as usize]));
                page[from..from + SECTOR].copy_from_slice(sector);
            } else {
                loss.sectors_lost += 1;
            }
        }
    }
    if random.below(2) == 0 {
        file.synced_length = file.length;
    }
    // What lies beyond the length is not seen again.
    let length = file.synced_length;
    drop(file.synced_pages.split_off(&length.div_ceil(PAGE)));
    if let Some(page) = (!length.is_multiple_of(PAGE)).then(|| file.synced_pages.get_mut(&(length / PAGE))).flatten() {
        page[(length % PAGE) as usize..].fill(0);
    }
    file.length = length;
    file.allocated = file.allocated.min(length.div_ceil(PAGE));
    file.pages.clone_from(&file.synced_pages);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(volume: &mut Volume, name: &str) -> u64 {
        volume.make(ROOT, OsStr::new(name), Kind::File, 0o600).unwrap()
    }

    #[test]
    fn what_was_synced_with_its_name_is_left_whatever_the_seed() {
        for seed in 0..200 {
            let mut volume = Volume::new();
            let file = named(&mut volume, "a");
            volume.write(file, 4000, &[7; 5000]).unwrap();
            volume.sync(file).unwrap();
            volume.sync(ROOT).unwrap();
            volume.write(file, 9000, &[8; 5000]).unwrap();
            volume.lose_power(seed);
            assert_eq!(volume.read(file, 4000, 5000), Ok(vec![7; 5000]));
        }
    }

    #[test]
    fn what_was_not_synced_is_lost_kept_and_torn() {
        let (mut all, mut none, mut torn, mut nameless) = (0, 0, 0, 0);
        for seed in 0..200 {
            let mut volume = Volume::new();
            let file = named(&mut volume, "a");
            volume.sync(ROOT).unwrap();
            named(&mut volume, "b");
            volume.write(file, 0, &[9; 8192]).unwrap();
            volume.lose_power(seed);
            let bytes = volume.read(file, 0, 8192).unwrap();
            let there = bytes.iter().filter(|byte| **byte == 9).count();
            assert_eq!(there % SECTOR, 0);
            (all, none, torn) = match there {
                8192 => (all + 1, none, torn),
                0 => (all, none + 1, torn),
                _ => (all, none, torn + 1),
            };
            nameless += u32::from(volume.lookup(ROOT, OsStr::new("b")).is_err());
        }
        assert!(all > 5 && none > 5 && torn > 5 && nameless > 5, "{all} {none} {torn} {nameless}");
    }

    #[test]
    fn names_change_in_order_and_renames_in_one_step() {
        for seed in 0..100 {
            let mut volume = Volume::new();
            let old = named(&mut volume, "name");
            volume.sync(ROOT).unwrap();
            let new = named(&mut volume, "name.new");
            volume.write(new, 0, b"new").unwrap();
            volume.sync(new).unwrap();
            volume.rename(ROOT, OsStr::new("name.new"), ROOT, OsStr::new("name")).unwrap();
            volume.lose_power(seed);
            let found = volume.lookup(ROOT, OsStr::new("name")).unwrap();
            assert!(found == old || volume.read(new, 0, 9) == Ok(b"new".to_vec()));
        }
    }

    #[test]
    fn a_failed_sync_has_lost_what_was_dirty() {
        let mut volume = Volume::new();
        let file = named(&mut volume, "a");
        volume.sync(ROOT).unwrap();
        volume.write(file, 0, &[5; 4096]).unwrap();
        volume.syncs_fail = true;
        assert_eq!(volume.sync(file), Err(Error::Io));
        volume.syncs_fail = false;
        assert_eq!(volume.sync(file), Ok(()));
        assert_eq!(volume.read(file, 0, 4096), Ok(vec![5; 4096]));
        for seed in 0..20 {
            volume.lose_power(seed);
        }
        assert_eq!(volume.read(file, 0, 4096), Ok(vec![0; 4096]));
    }

    #[test]
    fn allocated_places_are_there_when_the_volume_is_full() {
        let mut volume = Volume::new();
        volume.capacity = 4;
        let (file, other) = (named(&mut volume, "a"), named(&mut volume, "b"));
        volume.allocate(file, 3 * PAGE).unwrap();
        volume.write(other, 0, &[1; PAGE as usize]).unwrap();
        assert_eq!(volume.write(other, PAGE, &[1]), Err(Error::NoSpace));
        volume.write(file, 0, &[2; 3 * PAGE as usize]).unwrap();
        assert_eq!(volume.allocate(file, 4 * PAGE), Err(Error::NoSpace));
        volume.remove(ROOT, OsStr::new("b"), false).unwrap();
        volume.set_length(file, 1).unwrap();
        assert_eq!(volume.read(file, 0, 9), Ok(vec![2]));
    }
}
