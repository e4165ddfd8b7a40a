//! A B+-tree from byte-string keys to row ids: the ordered index of an in-memory fragment.
//!
//! Keys are unique and compare as bytes; the caller encodes them so, and appends the primary key where the index allows
//! duplicates. One thread owns a tree; a scan that must survive changes starts again after the last key it saw.
//!
//! **Without keys.** The index of primary keys does not hold them: each row knows its own ([`RowKeys`]). An entry of its leaves is a key head and a row, 12 bytes
//! together, and where heads are equal the rows are asked.
//!
//! A node is a slotted page of 2 KiB. Entries of 16 bytes (a key *head*, a value, where the key lies) grow from its
//! front, key bytes from its back, and room left by removed keys is won back by compaction. The head is 8 bytes of the
//! key, a big-endian number, so that a search touches the key bytes only to tell equal heads apart. When heads from the
//! start of the keys would collide, they are taken behind the prefix that all keys of the node share (`skip`); a key
//! without that prefix lies before or after the whole node. Keys longer than [`INLINE_MAX`] live outside the node. A leaf without keys
//! has nothing but the shared prefix at its back, and takes heads behind a longer one as soon as two of them are equal.
//!
//! Inner nodes are the same pages: `left` is the child below the first separator, an entry's value is the child at or
//! above its separator. A separator is the shortest string that tells its two sides apart. Leaves are linked both ways.
//!
//! A full node splits in the middle by bytes; at the right or left edge of the tree it splits at that end, so that
//! sequential load fills its leaves. A node below a quarter joins a neighbour if both fit in three quarters;
//! an empty leaf always goes. Nodes come from a slab that grows in small chunks: no insert copies the tree, and freed
//! nodes are used again; chunks of which all nodes are free go back to the allocator.

mod node;
mod slab;

use std::{cmp::Ordering, mem, ops::Bound};

use self::{
    node::{Keys, Node, common, head_of, stored_bytes},
    slab::Slab,
};
use crate::{hash_index::prefetch_read, row_key::RowKeys};

/// Bytes of a node for entries and keys.
const PAGE: usize = 2016;
/// Bytes of an entry, and of one in a leaf without keys.
const ENTRY: usize = 16;
const BARE_ENTRY: usize = 12;
/// Prefix that the heads of a leaf without keys leave out at most.
const BARE_SKIP_MAX: usize = 128;
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
/// No node.
const NIL: u32 = u32::MAX;

/// Keys too long for a node.
type Long = Slab<Box<[u8]>>;

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
    /// Its leaves hold no keys.
    bare: bool,
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
        BTree::with_leaves(false)
    }
    /// A tree that asks the rows for their keys: to be given [`RowKeys`] by who calls.
    pub fn without_keys() -> BTree {
        BTree::with_leaves(true)
    }
    fn with_leaves(bare: bool) -> BTree {
        let mut nodes = Slab::EMPTY;
        let root = nodes.insert(if bare { Node::EMPTY_BARE } else { Node::EMPTY });
        let long = Slab::EMPTY;
        let (separator, raised) = (Vec::new(), Vec::new());
        BTree { nodes, long, long_bytes: 0, root, height: 1, len: 0, bare, separator, raised }
    }
    #[inline]
    fn keys<'t, R>(&'t self, rows: &'t R) -> Keys<'t, R> {
        Keys { long: &self.long, rows }
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

    /// The same without nodes that have no keys yet, or none any more.
    #[inline]
    pub fn used_bytes(&self) -> usize {
        let long = self.long.bytes() + self.long_bytes;
        self.nodes.len() * size_of::<Node>()
            + self.nodes.list_bytes()
            + long
            + self.separator.capacity()
            + self.raised.capacity()
    }

    /// The row of a key.
    pub fn get<R: RowKeys>(&self, rows: &R, key: &[u8]) -> Option<u32> {
        let leaf = &self.nodes[self.leaf_of(rows, key)];
        leaf.search(self.keys(rows), key).ok().map(|at| leaf.entry(at).value())
    }

    /// Sets the row of a key. False: the key was there, its row is replaced.
    pub fn insert<R: RowKeys>(&mut self, rows: &R, key: &[u8], row: u32) -> bool {
        let leaf = self.leaf_of(rows, key);
        let node = &mut self.nodes[leaf];
        node.prefetch();
        match node.search(Keys { long: &self.long, rows }, key) {
            Ok(at) => {
                node.set_value(at, row);
                return false;
            }
            Err(at) if self.put(rows, leaf, at, key, row) => {}
            Err(at) => self.split_leaf(rows, leaf, at, key, row),
        }
        self.len += 1;
        true
    }

    /// Removes a key; its row.
    pub fn remove<R: RowKeys>(&mut self, rows: &R, key: &[u8]) -> Option<u32> {
        let leaf = self.leaf_of(rows, key);
        let node = &self.nodes[leaf];
        let at = node.search(self.keys(rows), key).ok()?;
        let row = node.entry(at).value();
        self.cut(leaf, at);
        self.len -= 1;
        if self.height > 1 && self.nodes[leaf].used() < LOW {
            self.shrink(rows, leaf, key);
        }
        Some(row)
    }

    /// The lowest key and its row.
    pub fn first(&self) -> Option<(&[u8], u32)> {
        self.range(&(), Bound::Unbounded, Bound::Unbounded, false).next()
    }
    /// The highest key and its row.
    pub fn last(&self) -> Option<(&[u8], u32)> {
        self.range(&(), Bound::Unbounded, Bound::Unbounded, true).next()
    }

    /// The keys between two bounds with their rows, in key order or backwards. Bounds that cross give nothing.
    pub fn range<'t, R: RowKeys>(
        &'t self,
        rows: &R,
        low: Bound<&[u8]>,
        high: Bound<&[u8]>,
        reverse: bool,
    ) -> Range<'t> {
        let (first, from) = match low {
            Bound::Unbounded => (self.edge_leaf(false), 0),
            Bound::Included(key) => self.seek(rows, key, false),
            Bound::Excluded(key) => self.seek(rows, key, true),
        };
        let seek_high = |key, with| {
            let here = self.nodes[first].rank(self.keys(rows), key, with);
            // a short range ends in its first leaf
            if here < self.nodes[first].len() { (first, here) } else { self.seek(rows, key, with) }
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
    fn seek<R: RowKeys>(&self, rows: &R, key: &[u8], with: bool) -> (u32, usize) {
        let leaf = self.leaf_of(rows, key);
        (leaf, self.nodes[leaf].rank(self.keys(rows), key, with))
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
    fn leaf_of<R: RowKeys>(&self, rows: &R, key: &[u8]) -> u32 {
        self.descend(|_, node| node.rank(self.keys(rows), key, true))
    }
    /// Where fetching ahead begins that which an insert will touch.
    #[inline]
    pub fn approach(&self) -> Approach<'_> {
        Approach { tree: self, node: &self.nodes[self.root], below: self.height - 1 }
    }
    fn edge_leaf(&self, last: bool) -> u32 {
        self.descend(|_, node| if last { node.len() } else { 0 })
    }

    fn path_to<R: RowKeys>(&self, rows: &R, key: &[u8]) -> Path {
        let (mut path, mut level) = ([(NIL, 0); HEIGHT_MAX], 0);
        self.descend(|id, node| {
            let child = node.rank(self.keys(rows), key, true);
            path[level] = (id, child);
            level += 1;
            child
        });
        path
    }

    /// Puts a new entry into a node; false: no room.
    fn put<R: RowKeys>(&mut self, rows: &R, id: u32, at: usize, key: &[u8], value: u32) -> bool {
        let (node, keys) = (&mut self.nodes[id], Keys { long: &self.long, rows });
        let need = node.entry_bytes() + if node.bare { 0 } else { stored_bytes(key) };
        if node.used() + need > PAGE {
            return false;
        }
        if (node.heap as usize) < node.len() * node.entry_bytes() + need {
            node.compact();
        }
        if node.skip > 0 && node.side(keys, key).is_ne() {
            let skip = match node.bare {
                true => common(&node.page[PAGE - usize::from(node.skip)..], key),
                false => common(&node.key(keys, 0)[..usize::from(node.skip)], key),
            };
            node.rehead(keys, skip);
        }
        let head = head_of(key, usize::from(node.skip));
        if node.bare {
            node.open_bare(at, head, value);
            let is_equal = |other: usize| other < node.len() && node.head(other) == head;
            if is_equal(at + 1) || is_equal(at.wrapping_sub(1)) {
                node.choose_heads(keys);
            }
        } else if key.len() > INLINE_MAX {
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
    fn divide<R: RowKeys>(&mut self, rows: &R, id: u32, keep: usize, from: usize) -> u32 {
        let (old, keys) = (self.nodes[id].clone(), Keys { long: &self.long, rows });
        let mut right = Node::EMPTY;
        right.begin_as(&old);
        (from..old.len()).for_each(|at| right.append(&old, at));
        right.choose_heads(keys);
        let left = &mut self.nodes[id];
        left.begin_as(&old);
        (0..keep).for_each(|at| left.append(&old, at));
        left.choose_heads(keys);
        self.nodes.insert(right)
    }

    /// Splits a full leaf for a new key and tells the levels above.
    fn split_leaf<R: RowKeys>(&mut self, rows: &R, leaf: u32, at: usize, key: &[u8], row: u32) {
        let path = self.path_to(rows, key);
        let node = &self.nodes[leaf];
        let (len, next) = (node.len(), node.right);
        let (edge, keep) = match at {
            _ if at == len && next == NIL => (Ordering::Greater, len),
            0 if node.left == NIL => (Ordering::Less, 0),
            _ => (Ordering::Equal, node.middle()),
        };
        let right = self.divide(rows, leaf, keep, keep);
        self.nodes[leaf].right = right;
        (self.nodes[right].left, self.nodes[right].right) = (leaf, next);
        if next != NIL {
            self.nodes[next].left = right;
        }
        let (half, at) = if at < keep || keep == 0 { (leaf, at) } else { (right, at - keep) };
        assert!(self.put(rows, half, at, key, row), "half a leaf has room");

        let mut separator = mem::take(&mut self.separator);
        separator.clear();
        let (left_node, right_node) = (&self.nodes[leaf], &self.nodes[right]);
        let keys = self.keys(rows);
        let (below, above) = (left_node.key(keys, left_node.len() - 1), right_node.key(keys, 0));
        separator.extend_from_slice(&above[..common(&below, &above) + 1]);
        self.separator = self.raise(rows, path, edge, separator, right);
    }

    /// Puts a separator and the child at or above it into the lowest node of the path; splits upwards as far as needed.
    /// `edge`: the new key is the first (less) or last (greater) of the tree. Gives the buffer back.
    fn raise<R: RowKeys>(
        &mut self,
        rows: &R,
        path: Path,
        edge: Ordering,
        mut separator: Vec<u8>,
        mut child: u32,
    ) -> Vec<u8> {
        for &(id, at) in path[..self.height - 1].iter().rev() {
            if self.put(rows, id, at, &separator, child) {
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
            raised.extend_from_slice(&node.key(self.keys(rows), keep));
            let (below, outside) = (node.entry(keep).value(), node.outside(node.entry(keep)));
            let right = self.divide(rows, id, keep, keep + 1);
            self.nodes[right].left = below;
            self.forget(outside);
            let (half, at) = if at <= keep { (id, at) } else { (right, at - keep - 1) };
            assert!(self.put(rows, half, at, &separator, child), "half an inner node has room");
            self.raised = mem::replace(&mut separator, raised);
            child = right;
        }
        assert!(self.height < HEIGHT_MAX, "tree too high");
        self.root = self.nodes.insert(Node { left: self.root, ..Node::EMPTY });
        self.height += 1;
        assert!(self.put(rows, self.root, 0, &separator, child), "a new root has room");
        separator
    }

    /// After a removal from a leaf that is now low: joins neighbours or frees nodes, upwards as far as needed.
    fn shrink<R: RowKeys>(&mut self, rows: &R, leaf: u32, key: &[u8]) {
        let path = self.path_to(rows, key);
        let mut id = leaf;
        let mut gone = self.nodes[leaf].len == 0;
        if gone {
            self.unlink(leaf);
        }
        for (level, &(parent, at)) in path[..self.height - 1].iter().enumerate().rev() {
            if gone {
                gone = self.drop_child(parent, at);
            } else if self.nodes[id].used() >= LOW || !self.join(rows, parent, at, level + 2 == self.height) {
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
    fn join<R: RowKeys>(&mut self, rows: &R, parent: u32, at: usize, leaves: bool) -> bool {
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
        let keys = Keys { long: &self.long, rows };
        if into.bare {
            let shared = common(&into.key(keys, 0), &from.key(keys, from.len() - 1));
            into.rehead(keys, shared.min(usize::from(into.skip)));
        }
        into.compact();
        if !leaves {
            into.append(&self.nodes[parent], separator);
            into.set_value(into.len() - 1, from.left);
        }
        (0..from.len()).for_each(|at| into.append(&from, at));
        if into.bare && from.skip != into.skip {
            into.rehead(keys, usize::from(into.skip));
        }
        into.choose_heads(keys);
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

/// The way of a key to its leaf, as far as it is in the cache: the ways of many keys are gone side by side, a level at a time, so that their cache misses overlap.
pub struct Approach<'t> {
    tree: &'t BTree,
    node: &'t Node,
    /// Levels below the node.
    below: usize,
}

impl Approach<'_> {
    /// Has the node of the next level fetched, or what is used of the leaf. `false`: that was the last step.
    #[inline]
    pub fn step<R: RowKeys>(&mut self, rows: &R, key: &[u8]) -> bool {
        let (tree, node) = (self.tree, self.node);
        if self.below == 0 {
            node.prefetch();
            return false;
        }
        self.node = &tree.nodes[node.child(node.rank(tree.keys(rows), key, true))];
        self.below -= 1;
        prefetch_read(self.node);
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

/// The entries between two bounds, in a tree without keys each with an empty one. Both ends are found before the first step; a step compares no keys.
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
        let entry = node.entry(at);
        let key = match node.outside(entry) {
            Some(number) => &self.tree.long[number],
            None => node.stored(entry),
        };
        Some((key, entry.value()))
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
    pub fn verify<R: RowKeys>(&self, rows: &R) -> Result<(), String> {
        let mut census = Census::default();
        self.verify_node(rows, self.root, 1, [None, None], &mut census)?;
        let last = census.leaf.map_or(NIL, |leaf| self.nodes[leaf].right);
        hold(last == NIL, "a leaf follows the last", self.root)?;
        hold(self.height == 1 || self.nodes[self.root].len > 0, "the root has one child", self.root)?;
        for (what, counted, kept) in [
            ("keys", census.keys, self.len),
            ("nodes", census.nodes, self.nodes.len()),
            ("long keys", census.long, self.long.len()),
            ("bytes of long keys", census.long_bytes, self.long_bytes),
            ("room for nodes", self.nodes.chunks.iter().map(|chunk| chunk.items.capacity()).sum(), self.nodes.room()),
            ("room for long keys", self.long.chunks.iter().map(|chunk| chunk.items.capacity()).sum(), self.long.room()),
        ] {
            if counted != kept {
                return Err(format!("{what}: counted {counted}, kept {kept}"));
            }
        }
        Ok(())
    }

    /// One node and what is below it; the keys lie in `low..high`.
    fn verify_node<R: RowKeys>(
        &self,
        rows: &R,
        id: u32,
        level: usize,
        [low, high]: [Option<&[u8]>; 2],
        census: &mut Census,
    ) -> Result<(), String> {
        let (node, keys) = (&self.nodes[id], self.keys(rows));
        let leaf = level == self.height;
        census.nodes += 1;
        hold(!leaf || node.len > 0 || id == self.root, "an empty leaf", id)?;
        hold(node.bare == (leaf && self.bare), "keys where none should be, or none", id)?;
        let stored: usize = (0..node.len()).map(|at| node.entry(at).stored()).sum();
        let live = stored + if node.bare { usize::from(node.skip) } else { 0 };
        hold(live + node.dead as usize + node.heap as usize == PAGE, "dead bytes", id)?;
        hold(node.len() * node.entry_bytes() <= node.heap as usize, "entries and keys overlap", id)?;
        for at in 0..node.len() {
            let key = &*node.key(keys, at);
            let skip = usize::from(node.skip);
            hold(node.head(at) == head_of(key, skip), "a head", id)?;
            hold(key.len() >= skip && node.side(keys, key).is_eq(), "a prefix", id)?;
            let inside = low.is_none_or(|low| low <= key) && high.is_none_or(|high| key < high);
            hold(inside, "a key outside the separators", id)?;
            hold(at == 0 || &*node.key(keys, at - 1) < key, "order", id)?;
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
            let between =
                [at.checked_sub(1), (at < node.len()).then_some(at)].map(|at| at.map(|at| node.key(keys, at)));
            let [from, to] = &between;
            let bounds = [from.as_deref().or(low), to.as_deref().or(high)];
            self.verify_node(rows, node.child(at), level + 1, bounds, census)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
