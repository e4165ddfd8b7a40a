//! A B+-tree from byte-string keys to row ids: the ordered index of an in-memory fragment.
//!
//! Keys are unique and compare as bytes; the caller encodes them so, and appends the primary key where the index allows
//! duplicates. One thread owns a tree; a scan that must survive changes starts again after the last key it saw.
//!
//! A node is a slotted page of 2 KiB. Entries of 16 bytes (a key *head*, a value, where the key lies) grow from its
//! front, key bytes from its back, and room left by removed keys is won back by compaction. The head is 8 bytes of the
//! key, a big-endian number, so that a search touches the key bytes only to tell equal heads apart. When heads from the
//! start of the keys would collide, they are taken behind the prefix that all keys of the node share (`skip`); a key
//! without that prefix lies before or after the whole node. Keys longer than [`INLINE_MAX`] live outside the node.
//!
//! Inner nodes are the same pages: `left` is the child below the first separator, an entry's value is the child at or
//! above its separator. A separator is the shortest string that tells its two sides apart. Leaves are linked both ways.
//!
//! A full node splits in the middle by bytes; at the right or left edge of the tree it splits at that end, so that
//! sequential load fills its leaves. A node below a quarter joins a neighbour if both fit in three quarters;
//! an empty leaf always goes. Nodes come from a slab that grows in small chunks: no insert copies the tree, and freed
//! nodes are used again (they are not returned to the allocator before the tree is dropped).

use std::{
    cmp::Ordering,
    mem,
    ops::{Bound, Index, IndexMut},
};

/// Bytes of a node for entries and keys.
const PAGE: usize = 2016;
/// Bytes of an entry.
const ENTRY: usize = 16;
/// Keys up to this length lie in the node.
pub const INLINE_MAX: usize = 128;
/// The length code of a key outside the node; the 4 bytes in the node are its number.
const OUTSIDE: u16 = u16::MAX;
/// A node with less than this in use looks for a neighbour to join.
const LOW: usize = PAGE / 4;
/// Two neighbours join if they use no more than this together.
const JOINED: usize = PAGE / 4 * 3;
/// Levels of a tree: 2^32 rows in nodes of at least six children need 13.
const HEIGHT_MAX: usize = 24;
/// Items of a slab chunk.
const CHUNK: usize = 32;
/// No node.
const NIL: u32 = u32::MAX;

/// Items with stable numbers in chunks; freed numbers are used again.
struct Slab<T> {
    /// All chunks have the full capacity but the first, which starts small.
    chunks: Vec<Vec<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    fn insert(&mut self, item: T) -> u32 {
        if let Some(id) = self.free.pop() {
            self[id] = item;
            return id;
        }
        match self.chunks.last() {
            None => self.chunks.push(Vec::new()),
            Some(last) if last.len() == CHUNK => self.chunks.push(Vec::with_capacity(CHUNK)),
            Some(_) => {}
        }
        let chunk = self.chunks.len() - 1;
        let id = chunk * CHUNK + self.chunks[chunk].len();
        assert!(id < NIL as usize, "slab full");
        self.chunks[chunk].push(item);
        id as u32
    }
    fn remove(&mut self, id: u32, empty: T) -> T {
        self.free.push(id);
        mem::replace(&mut self[id], empty)
    }
    /// Items in use.
    fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len()) - self.free.len()
    }
    /// Items the chunks have room for.
    fn room(&self) -> usize {
        self.chunks.first().map_or(0, |first| first.capacity() + (self.chunks.len() - 1) * CHUNK)
    }
    /// Heap bytes, without what the items own.
    fn bytes(&self) -> usize {
        self.room() * size_of::<T>()
            + self.chunks.capacity() * size_of::<Vec<T>>()
            + self.free.capacity() * size_of::<u32>()
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, id: u32) -> &T {
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

/// Keys too long for a node.
type Long = Slab<Box<[u8]>>;

/// What a node knows of a key in 16 bytes: head, length code, offset of the key bytes in the page, value.
#[derive(Clone, Copy)]
struct Entry(u128);

impl Entry {
    fn new(head: u64, len: u16, offset: usize, value: u32) -> Entry {
        Entry(u128::from(head) << 64 | u128::from(len) << 48 | (offset as u128) << 32 | u128::from(value))
    }
    #[inline]
    fn of(bytes: &[u8; ENTRY]) -> Entry {
        Entry(u128::from_le_bytes(*bytes))
    }
    #[inline]
    fn head(self) -> u64 {
        (self.0 >> 64) as u64
    }
    /// Length of the key, or [`OUTSIDE`].
    #[inline]
    fn len(self) -> u16 {
        (self.0 >> 48) as u16
    }
    #[inline]
    fn offset(self) -> usize {
        usize::from((self.0 >> 32) as u16)
    }
    #[inline]
    fn value(self) -> u32 {
        self.0 as u32
    }
    /// Bytes the key takes in the page.
    #[inline]
    fn stored(self) -> usize {
        if self.len() == OUTSIDE { size_of::<u32>() } else { usize::from(self.len()) }
    }
}

/// Bytes a key takes in a page.
fn stored_bytes(key: &[u8]) -> usize {
    if key.len() > INLINE_MAX { size_of::<u32>() } else { key.len() }
}

/// The 8 bytes behind the first `skip`, zeros where the key ends.
#[inline]
fn head_of(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None if rest.is_empty() => 0,
        None => rest.iter().fold(0, |head, byte| head << 8 | u64::from(*byte)) << (64 - 8 * rest.len()),
    }
}

/// Length of the common prefix.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).position(|(x, y)| x != y).unwrap_or(a.len().min(b.len()))
}

#[derive(Clone)]
#[repr(align(64))]
struct Node {
    /// Entries.
    len: u32,
    /// Bytes that all keys share and the heads leave out; 0 when the heads tell the keys apart anyway.
    skip: u32,
    /// Where the key bytes begin.
    heap: u32,
    /// Bytes of removed keys among them.
    dead: u32,
    /// Leaf: the leaf before. Inner node: the child below the first separator.
    left: u32,
    /// Leaf: the leaf after.
    right: u32,
    page: [u8; PAGE],
}

const _: () = assert!(size_of::<Node>() == 2048 && PAGE.is_multiple_of(ENTRY) && PAGE / 2 > 4 * (ENTRY + INLINE_MAX));

impl Node {
    const EMPTY: Node = Node { len: 0, skip: 0, heap: PAGE as u32, dead: 0, left: NIL, right: NIL, page: [0; PAGE] };

    #[inline]
    fn len(&self) -> usize {
        self.len as usize
    }
    #[inline]
    fn entries(&self) -> &[[u8; ENTRY]] {
        &self.page.as_chunks::<ENTRY>().0[..self.len()]
    }
    #[inline]
    fn entry(&self, at: usize) -> Entry {
        Entry::of(&self.entries()[at])
    }
    fn set_entry(&mut self, at: usize, entry: Entry) {
        self.page.as_chunks_mut::<ENTRY>().0[at] = entry.0.to_le_bytes();
    }
    fn set_value(&mut self, at: usize, value: u32) {
        let old = self.entry(at);
        self.set_entry(at, Entry::new(old.head(), old.len(), old.offset(), value));
    }
    /// The key bytes in the page: the key, or the number of a long one.
    #[inline]
    fn stored(&self, entry: Entry) -> &[u8] {
        &self.page[entry.offset()..entry.offset() + entry.stored()]
    }
    /// The number of a key that lies outside.
    fn outside(&self, entry: Entry) -> Option<u32> {
        let bytes = if entry.len() == OUTSIDE { self.stored(entry).first_chunk() } else { None };
        bytes.map(|number| u32::from_le_bytes(*number))
    }
    #[inline]
    fn key<'t>(&'t self, long: &'t Long, at: usize) -> &'t [u8] {
        let entry = self.entry(at);
        match self.outside(entry) {
            Some(number) => &long[number],
            None => self.stored(entry),
        }
    }
    /// Inner node: child `at` of `len + 1`.
    #[inline]
    fn child(&self, at: usize) -> u32 {
        if at == 0 { self.left } else { self.entry(at - 1).value() }
    }
    /// Bytes in use.
    fn used(&self) -> usize {
        self.len() * ENTRY + PAGE - self.heap as usize - self.dead as usize
    }
    /// Where the key is, or where it would go.
    #[inline]
    fn search(&self, long: &Long, key: &[u8]) -> Result<usize, usize> {
        let entries = self.entries();
        let skip = self.skip as usize;
        if skip > 0 {
            match key[..skip.min(key.len())].cmp(&self.key(long, 0)[..skip]) {
                Ordering::Less => return Err(0),
                Ordering::Greater => return Err(entries.len()),
                Ordering::Equal => {}
            }
        }
        let head = head_of(key, skip);
        let mut low = entries.partition_point(|entry| Entry::of(entry).head() < head);
        let equal = |at: usize| entries.get(at).is_some_and(|entry| Entry::of(entry).head() == head);
        if !equal(low) {
            return Err(low);
        }
        let mut high = low + 1;
        if equal(high) {
            high += entries[high..].partition_point(|entry| Entry::of(entry).head() == head);
        }
        while low < high {
            let middle = low.midpoint(high);
            match self.compare(long, middle, key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Entries before the key, or up to and with it.
    #[inline]
    fn rank(&self, long: &Long, key: &[u8], with: bool) -> usize {
        self.search(long, key).map_or_else(|at| at, |at| at + usize::from(with))
    }

    /// The key of an entry against `key`, when the heads are equal.
    #[inline]
    fn compare(&self, long: &Long, at: usize, key: &[u8]) -> Ordering {
        let told = self.skip as usize + size_of::<u64>();
        let len = usize::from(self.entry(at).len());
        if len <= told && key.len() <= told {
            return len.cmp(&key.len()); // equal but for zeros at the end
        }
        let skip = self.skip as usize;
        self.key(long, at)[skip..].cmp(&key[skip..])
    }

    /// The caller has made room.
    fn open(&mut self, at: usize, head: u64, len: u16, value: u32, stored: &[u8]) {
        let (from, end, heap) = (at * ENTRY, self.len() * ENTRY, self.heap as usize);
        assert!(from <= end && end + ENTRY + stored.len() <= heap, "node overflow");
        let offset = heap - stored.len();
        self.page[offset..heap].copy_from_slice(stored);
        self.page.copy_within(from..end, from + ENTRY);
        self.set_entry(at, Entry::new(head, len, offset, value));
        self.heap = offset as u32;
        self.len += 1;
    }

    /// Takes an entry of another node as the last one, the head as it is there.
    fn append(&mut self, other: &Node, at: usize) {
        let entry = other.entry(at);
        self.open(self.len(), entry.head(), entry.len(), entry.value(), other.stored(entry));
    }

    /// Removes an entry; a key outside stays there.
    fn close(&mut self, at: usize) {
        self.dead += self.entry(at).stored() as u32;
        let end = self.len() * ENTRY;
        self.page.copy_within((at + 1) * ENTRY..end, at * ENTRY);
        self.len -= 1;
        if self.len == 0 {
            self.clear();
        }
    }
    fn clear(&mut self) {
        (self.len, self.skip, self.heap, self.dead) = (0, 0, PAGE as u32, 0);
    }

    /// Wins back the bytes of removed keys.
    fn compact(&mut self) {
        let old = self.clone();
        self.clear();
        self.skip = old.skip;
        (0..old.len()).for_each(|at| self.append(&old, at));
    }

    /// Takes all heads behind the first `skip` bytes, which the keys share.
    fn rehead(&mut self, long: &Long, skip: usize) {
        for at in 0..self.len() {
            let (head, old) = (head_of(self.key(long, at), skip), self.entry(at));
            self.set_entry(at, Entry::new(head, old.len(), old.offset(), old.value()));
        }
        self.skip = skip as u32;
    }

    /// Chooses what the heads leave out after the node was put together anew.
    fn choose_heads(&mut self, long: &Long) {
        self.rehead(long, 0);
        if self.entries().windows(2).any(|pair| Entry::of(&pair[0]).head() == Entry::of(&pair[1]).head()) {
            let skip = common(self.key(long, 0), self.key(long, self.len() - 1));
            self.rehead(long, skip);
        }
    }

    /// Entries of the left half of a split by bytes.
    fn middle(&self) -> usize {
        let mut bytes = 0;
        let half = self.entries().iter().position(|entry| {
            bytes += ENTRY + Entry::of(entry).stored();
            bytes * 2 >= self.used()
        });
        half.unwrap_or(0).clamp(1, self.len() - 2)
    }
}

/// The way from the root to a leaf: inner nodes (one less than the tree is high) and which child was taken.
type Path = [(u32, usize); HEIGHT_MAX];

/// The ordered index. See the module for its form.
pub struct BTree {
    nodes: Slab<Node>,
    long: Long,
    /// Bytes of the keys in `long`.
    long_bytes: usize,
    root: u32,
    /// Levels; 1: the root is a leaf.
    height: usize,
    len: usize,
    /// Separators on their way up, kept for their capacity.
    separator: Vec<u8>,
    raised: Vec<u8>,
}

impl Default for BTree {
    fn default() -> BTree {
        BTree::new()
    }
}

impl BTree {
    /// Frees a chunk of nodes or long keys of a tree that nobody will use again. `true`: nothing is left.
    pub fn give_up(&mut self) -> bool {
        self.nodes.chunks.pop().is_none() && self.long.chunks.pop().is_none()
    }
    pub fn new() -> BTree {
        let mut nodes = Slab { chunks: Vec::new(), free: Vec::new() };
        let root = nodes.insert(Node::EMPTY);
        let long = Slab { chunks: Vec::new(), free: Vec::new() };
        BTree { nodes, long, long_bytes: 0, root, height: 1, len: 0, separator: Vec::new(), raised: Vec::new() }
    }

    /// Keys.
    pub fn len(&self) -> usize {
        self.len
    }
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Heap bytes: nodes (also free ones), long keys and what finds them.
    pub fn bytes(&self) -> usize {
        self.nodes.bytes() + self.long.bytes() + self.long_bytes + self.separator.capacity() + self.raised.capacity()
    }

    /// Bytes of nodes among them that were freed.
    pub fn spare_bytes(&self) -> usize {
        self.nodes.free.len() * size_of::<Node>()
    }

    /// The row of a key.
    pub fn get(&self, key: &[u8]) -> Option<u32> {
        let leaf = &self.nodes[self.leaf_of(key)];
        leaf.search(&self.long, key).ok().map(|at| leaf.entry(at).value())
    }

    /// Sets the row of a key. False: the key was there, its row is replaced.
    pub fn insert(&mut self, key: &[u8], row: u32) -> bool {
        let leaf = self.leaf_of(key);
        let node = &mut self.nodes[leaf];
        match node.search(&self.long, key) {
            Ok(at) => {
                node.set_value(at, row);
                return false;
            }
            Err(at) if self.put(leaf, at, key, row) => {}
            Err(at) => self.split_leaf(leaf, at, key, row),
        }
        self.len += 1;
        true
    }

    /// Removes a key; its row.
    pub fn remove(&mut self, key: &[u8]) -> Option<u32> {
        let leaf = self.leaf_of(key);
        let node = &self.nodes[leaf];
        let at = node.search(&self.long, key).ok()?;
        let row = node.entry(at).value();
        self.cut(leaf, at);
        self.len -= 1;
        if self.height > 1 && self.nodes[leaf].used() < LOW {
            self.shrink(leaf, key);
        }
        Some(row)
    }

    /// The lowest key and its row.
    pub fn first(&self) -> Option<(&[u8], u32)> {
        self.range(Bound::Unbounded, Bound::Unbounded, false).next()
    }
    /// The highest key and its row.
    pub fn last(&self) -> Option<(&[u8], u32)> {
        self.range(Bound::Unbounded, Bound::Unbounded, true).next()
    }

    /// The keys between two bounds with their rows, in key order or backwards. Bounds that cross give nothing.
    pub fn range<'t>(&'t self, low: Bound<&[u8]>, high: Bound<&[u8]>, reverse: bool) -> Range<'t> {
        let (first, from) = match low {
            Bound::Unbounded => (self.edge_leaf(false), 0),
            Bound::Included(key) => self.seek(key, false),
            Bound::Excluded(key) => self.seek(key, true),
        };
        let seek_high = |key, with| {
            let here = self.nodes[first].rank(&self.long, key, with);
            // a short range ends in its first leaf
            if here < self.nodes[first].len() { (first, here) } else { self.seek(key, with) }
        };
        let (last, to) = match high {
            _ if crossed(low, high) => (first, from),
            Bound::Included(key) => seek_high(key, true),
            Bound::Excluded(key) => seek_high(key, false),
            Bound::Unbounded => {
                let leaf = self.edge_leaf(true);
                (leaf, self.nodes[leaf].len())
            }
        };
        let (leaf, at, goal, goal_at) = if reverse { (last, to, first, from) } else { (first, from, last, to) };
        let mut range =
            Range { tree: self, node: &self.nodes[leaf], at, stop: 0, more: leaf != goal, goal, goal_at, reverse };
        range.stop = range.leaf_end();
        range
    }

    /// The leaf of a key, and how many of its entries are before the key, or up to and with it.
    fn seek(&self, key: &[u8], with: bool) -> (u32, usize) {
        let leaf = self.leaf_of(key);
        (leaf, self.nodes[leaf].rank(&self.long, key, with))
    }
    /// The leaf below the children that `choose` names.
    #[inline]
    fn descend(&self, mut choose: impl FnMut(u32, &Node) -> usize) -> u32 {
        let mut id = self.root;
        for _ in 1..self.height {
            let node = &self.nodes[id];
            id = node.child(choose(id, node));
        }
        id
    }
    #[inline]
    fn leaf_of(&self, key: &[u8]) -> u32 {
        self.descend(|_, node| node.rank(&self.long, key, true))
    }
    fn edge_leaf(&self, last: bool) -> u32 {
        self.descend(|_, node| if last { node.len() } else { 0 })
    }

    fn path_to(&self, key: &[u8]) -> Path {
        let (mut path, mut level) = ([(NIL, 0); HEIGHT_MAX], 0);
        self.descend(|id, node| {
            let child = node.rank(&self.long, key, true);
            path[level] = (id, child);
            level += 1;
            child
        });
        path
    }

    /// Puts a new entry into a node; false: no room.
    fn put(&mut self, id: u32, at: usize, key: &[u8], value: u32) -> bool {
        let node = &mut self.nodes[id];
        let need = ENTRY + stored_bytes(key);
        if node.used() + need > PAGE {
            return false;
        }
        if node.heap as usize - node.len() * ENTRY < need {
            node.compact();
        }
        if node.skip > 0 {
            let prefix = &node.key(&self.long, 0)[..node.skip as usize];
            if !key.starts_with(prefix) {
                let skip = common(prefix, key);
                node.rehead(&self.long, skip);
            }
        }
        let head = head_of(key, node.skip as usize);
        if key.len() > INLINE_MAX {
            let number = self.long.insert(key.into());
            self.long_bytes += key.len();
            node.open(at, head, OUTSIDE, value, &number.to_le_bytes());
        } else {
            node.open(at, head, key.len() as u16, value, key);
        }
        true
    }

    /// Removes an entry of a node with its key.
    fn cut(&mut self, id: u32, at: usize) {
        let node = &mut self.nodes[id];
        let outside = node.outside(node.entry(at));
        node.close(at);
        self.forget(outside);
    }

    fn forget(&mut self, outside: Option<u32>) {
        if let Some(number) = outside {
            self.long_bytes -= self.long.remove(number, Box::default()).len();
        }
    }

    /// Moves the entries from `from` on into a new node and leaves the first `keep`. The new node.
    fn divide(&mut self, id: u32, keep: usize, from: usize) -> u32 {
        let old = self.nodes[id].clone();
        let mut right = Node::EMPTY;
        (from..old.len()).for_each(|at| right.append(&old, at));
        right.choose_heads(&self.long);
        let left = &mut self.nodes[id];
        left.clear();
        (0..keep).for_each(|at| left.append(&old, at));
        left.choose_heads(&self.long);
        self.nodes.insert(right)
    }

    /// Splits a full leaf for a new key and tells the levels above.
    fn split_leaf(&mut self, leaf: u32, at: usize, key: &[u8], row: u32) {
        let path = self.path_to(key);
        let node = &self.nodes[leaf];
        let (len, next) = (node.len(), node.right);
        let (edge, keep) = match at {
            _ if at == len && next == NIL => (Ordering::Greater, len),
            0 if node.left == NIL => (Ordering::Less, 0),
            _ => (Ordering::Equal, node.middle()),
        };
        let right = self.divide(leaf, keep, keep);
        self.nodes[leaf].right = right;
        (self.nodes[right].left, self.nodes[right].right) = (leaf, next);
        if next != NIL {
            self.nodes[next].left = right;
        }
        let (half, at) = if at < keep || keep == 0 { (leaf, at) } else { (right, at - keep) };
        assert!(self.put(half, at, key, row), "half a leaf has room");

        let (left_node, right_node) = (&self.nodes[leaf], &self.nodes[right]);
        let below = left_node.key(&self.long, left_node.len() - 1);
        let above = right_node.key(&self.long, 0);
        let mut separator = mem::take(&mut self.separator);
        separator.clear();
        separator.extend_from_slice(&above[..common(below, above) + 1]);
        self.separator = self.raise(path, edge, separator, right);
    }

    /// Puts a separator and the child at or above it into the lowest node of the path; splits upwards as far as needed.
    /// `edge`: the new key is the first (less) or last (greater) of the tree. Gives the buffer back.
    fn raise(&mut self, path: Path, edge: Ordering, mut separator: Vec<u8>, mut child: u32) -> Vec<u8> {
        for &(id, at) in path[..self.height - 1].iter().rev() {
            if self.put(id, at, &separator, child) {
                return separator;
            }
            let node = &self.nodes[id];
            let keep = match edge {
                Ordering::Greater => node.len() - 2,
                Ordering::Less => 1,
                Ordering::Equal => node.middle(),
            };
            let mut raised = mem::take(&mut self.raised);
            raised.clear();
            raised.extend_from_slice(node.key(&self.long, keep));
            let (below, outside) = (node.entry(keep).value(), node.outside(node.entry(keep)));
            let right = self.divide(id, keep, keep + 1);
            self.nodes[right].left = below;
            self.forget(outside);
            let (half, at) = if at <= keep { (id, at) } else { (right, at - keep - 1) };
            assert!(self.put(half, at, &separator, child), "half an inner node has room");
            self.raised = mem::replace(&mut separator, raised);
            child = right;
        }
        assert!(self.height < HEIGHT_MAX, "tree too high");
        self.root = self.nodes.insert(Node { left: self.root, ..Node::EMPTY });
        self.height += 1;
        assert!(self.put(self.root, 0, &separator, child), "a new root has room");
        separator
    }

    /// After a removal from a leaf that is now low: joins neighbours or frees nodes, upwards as far as needed.
    fn shrink(&mut self, leaf: u32, key: &[u8]) {
        let path = self.path_to(key);
        let mut id = leaf;
        let mut gone = self.nodes[leaf].len == 0;
        if gone {
            self.unlink(leaf);
        }
        for (level, &(parent, at)) in path[..self.height - 1].iter().enumerate().rev() {
            if gone {
                gone = self.drop_child(parent, at);
            } else if self.nodes[id].used() >= LOW || !self.join(parent, at, level + 2 == self.height) {
                break;
            }
            id = parent;
        }
        while self.height > 1 && self.nodes[self.root].len == 0 {
            let below = self.nodes[self.root].left;
            self.nodes.remove(self.root, Node::EMPTY);
            self.root = below;
            self.height -= 1;
        }
    }

    /// Takes a leaf out of the list and frees it.
    fn unlink(&mut self, leaf: u32) {
        let Node { left, right, .. } = self.nodes[leaf];
        if left != NIL {
            self.nodes[left].right = right;
        }
        if right != NIL {
            self.nodes[right].left = left;
        }
        self.nodes.remove(leaf, Node::EMPTY);
    }

    /// Forgets a freed child. True: it was the only one, the node is freed as well.
    fn drop_child(&mut self, id: u32, at: usize) -> bool {
        let node = &mut self.nodes[id];
        if node.len == 0 {
            assert!(id != self.root, "a root has two children");
            self.nodes.remove(id, Node::EMPTY);
            return true;
        }
        if at == 0 {
            node.left = node.entry(0).value();
        }
        self.cut(id, at.saturating_sub(1));
        false
    }

    /// Joins child `at` of a node with its right or left neighbour, if both together are small.
    fn join(&mut self, parent: u32, at: usize, leaves: bool) -> bool {
        let node = &self.nodes[parent];
        let fits = |separator: usize| {
            let (left, right) = (node.child(separator), node.child(separator + 1));
            let between = if leaves { 0 } else { ENTRY + node.entry(separator).stored() };
            self.nodes[left].used() + self.nodes[right].used() + between <= JOINED
        };
        let separator = if at < node.len() && fits(at) {
            at
        } else if at > 0 && fits(at - 1) {
            at - 1
        } else {
            return false;
        };
        let (left, right) = (node.child(separator), node.child(separator + 1));
        let from = self.nodes[right].clone();
        let mut into = self.nodes[left].clone();
        into.compact();
        if !leaves {
            into.append(&self.nodes[parent], separator);
            into.set_value(into.len() - 1, from.left);
        }
        (0..from.len()).for_each(|at| into.append(&from, at));
        into.choose_heads(&self.long);
        self.nodes[left] = into;
        if leaves {
            self.unlink(right);
            self.cut(parent, separator);
        } else {
            self.nodes.remove(right, Node::EMPTY);
            self.nodes[parent].close(separator); // a separator outside moved down
        }
        true
    }
}

/// True if no key can lie between the bounds.
fn crossed(low: Bound<&[u8]>, high: Bound<&[u8]>) -> bool {
    match (low, high) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(low), Bound::Included(high)) => low > high,
        (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => low >= high,
    }
}

/// The entries between two bounds. Both ends are found before the first step; a step compares no keys.
pub struct Range<'t> {
    tree: &'t BTree,
    node: &'t Node,
    /// Next entry, or behind it when going backwards.
    at: usize,
    /// Where this leaf ends.
    stop: usize,
    /// Leaves follow.
    more: bool,
    goal: u32,
    goal_at: usize,
    reverse: bool,
}

impl Range<'_> {
    fn leaf_end(&self) -> usize {
        match (self.more, self.reverse) {
            (false, _) => self.goal_at,
            (true, false) => self.node.len(),
            (true, true) => 0,
        }
    }
}

impl<'t> Iterator for Range<'t> {
    type Item = (&'t [u8], u32);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.at == self.stop {
            if !self.more {
                return None;
            }
            let id = if self.reverse { self.node.left } else { self.node.right };
            self.node = &self.tree.nodes[id];
            self.more = id != self.goal;
            self.at = if self.reverse { self.node.len() } else { 0 };
            self.stop = self.leaf_end();
        }
        let at = if self.reverse { self.at - 1 } else { self.at };
        self.at = if self.reverse { at } else { at + 1 };
        let node: &'t Node = self.node;
        Some((node.key(&self.tree.long, at), node.entry(at).value()))
    }
}

/// What [`BTree::verify`] counts on its way.
#[derive(Default)]
struct Census {
    nodes: usize,
    keys: usize,
    long: usize,
    long_bytes: usize,
    /// The leaf before, in key order.
    leaf: Option<u32>,
}

fn hold(condition: bool, what: &str, id: u32) -> Result<(), String> {
    if condition { Ok(()) } else { Err(format!("node {id}: {what}")) }
}

impl BTree {
    /// Checks order, heads, separators, links, that no leaf is empty, the number of keys and the byte count.
    pub fn verify(&self) -> Result<(), String> {
        let mut census = Census::default();
        self.verify_node(self.root, 1, [None, None], &mut census)?;
        let last = census.leaf.map_or(NIL, |leaf| self.nodes[leaf].right);
        hold(last == NIL, "a leaf follows the last", self.root)?;
        hold(self.height == 1 || self.nodes[self.root].len > 0, "the root has one child", self.root)?;
        for (what, counted, kept) in [
            ("keys", census.keys, self.len),
            ("nodes", census.nodes, self.nodes.len()),
            ("long keys", census.long, self.long.len()),
            ("bytes of long keys", census.long_bytes, self.long_bytes),
            ("room for nodes", self.nodes.chunks.iter().map(Vec::capacity).sum(), self.nodes.room()),
            ("room for long keys", self.long.chunks.iter().map(Vec::capacity).sum(), self.long.room()),
        ] {
            if counted != kept {
                return Err(format!("{what}: counted {counted}, kept {kept}"));
            }
        }
        Ok(())
    }

    /// One node and what is below it; the keys lie in `low..high`.
    fn verify_node(
        &self,
        id: u32,
        level: usize,
        [low, high]: [Option<&[u8]>; 2],
        census: &mut Census,
    ) -> Result<(), String> {
        let node = &self.nodes[id];
        let leaf = level == self.height;
        census.nodes += 1;
        hold(!leaf || node.len > 0 || id == self.root, "an empty leaf", id)?;
        let live: usize = node.entries().iter().map(|entry| Entry::of(entry).stored()).sum();
        hold(live + node.dead as usize + node.heap as usize == PAGE, "dead bytes", id)?;
        hold(node.len() * ENTRY <= node.heap as usize, "entries and keys overlap", id)?;
        for at in 0..node.len() {
            let key = node.key(&self.long, at);
            let skip = node.skip as usize;
            hold(node.entry(at).head() == head_of(key, skip), "a head", id)?;
            hold(key.get(..skip) == node.key(&self.long, 0).get(..skip), "a prefix", id)?;
            let inside = low.is_none_or(|low| low <= key) && high.is_none_or(|high| key < high);
            hold(inside, "a key outside the separators", id)?;
            hold(at == 0 || node.key(&self.long, at - 1) < key, "order", id)?;
            if let Some(number) = node.outside(node.entry(at)) {
                census.long += 1;
                census.long_bytes += self.long[number].len();
            }
        }
        if leaf {
            census.keys += node.len();
            hold(node.left == census.leaf.unwrap_or(NIL), "the link to the left", id)?;
            hold(census.leaf.is_none_or(|before| self.nodes[before].right == id), "the link from the left", id)?;
            census.leaf = Some(id);
            return Ok(());
        }
        for at in 0..=node.len() {
            let from = if at == 0 { low } else { Some(node.key(&self.long, at - 1)) };
            let to = if at == node.len() { high } else { Some(node.key(&self.long, at)) };
            self.verify_node(node.child(at), level + 1, [from, to], census)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
