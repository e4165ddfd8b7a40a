//! The tree against `std::collections::BTreeMap`, its fill under load in order, and its memory.

use std::collections::BTreeMap;

use super::{slab::CHUNK, *};
use crate::row_key::RowKey;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

type Model = BTreeMap<Vec<u8>, u32>;

/// The key of each row.
#[derive(Default)]
struct Rows(Vec<Vec<u8>>);

impl RowKeys for Rows {
    fn key(&self, row: u32) -> RowKey<'_> {
        RowKey::stored(&self.0[row as usize])
    }
}

impl Rows {
    fn add(&mut self, row: u32, key: &[u8]) {
        self.0.resize(self.0.len().max(row as usize + 1), Vec::new());
        self.0[row as usize] = key.to_vec();
    }
}

/// Makes the key of step `.1`.
type MadeKeys = fn(&mut Random, u64) -> Vec<u8>;

/// Some bytes of a fill, then a number below a limit.
fn filled(random: &mut Random, fill: u8, lengths: &[usize], limit: u64) -> Vec<u8> {
    let mut key = vec![fill; lengths[random.below(lengths.len() as u64) as usize]];
    key.extend_from_slice(&(random.below(limit) as u32).to_be_bytes());
    key
}

fn bound<'k>(random: &mut Random, key: &'k [u8]) -> Bound<&'k [u8]> {
    match random.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(key),
        _ => Bound::Excluded(key),
    }
}

fn check_range(tree: &BTree, rows: &Rows, model: &Model, low: Bound<&[u8]>, high: Bound<&[u8]>, limit: usize) {
    if crossed(low, high) {
        assert!([false, true].into_iter().all(|reverse| tree.range(rows, low, high, reverse).next().is_none()));
        return;
    }
    let wanted = || model.range::<[u8], _>((low, high)).map(|(key, row)| (key.as_slice(), *row));
    let found = |reverse| {
        tree.range(rows, low, high, reverse)
            .map(|(key, row)| (if tree.bare { rows.0[row as usize].as_slice() } else { key }, row))
            .take(limit)
    };
    assert!(found(false).eq(wanted().take(limit)), "{low:?} {high:?}");
    assert!(found(true).eq(wanted().rev().take(limit)), "{low:?} {high:?} reverse");
}

fn leaves(tree: &BTree) -> impl Iterator<Item = u32> {
    let follow = |leaf: &u32| Some(tree.nodes[*leaf].right).filter(|next| *next != NIL);
    std::iter::successors(Some(tree.edge_leaf(false)), follow)
}

/// Phases of mostly inserts and mostly removes against the model, then down to nothing.
fn model_test(seed: u64, keys: MadeKeys, steps: u64, bare: bool) {
    let mut random = Random(seed);
    let (mut tree, mut model, mut rows) = (BTree::with_leaves(bare), Model::new(), Rows::default());
    for step in 0..steps {
        let key = keys(&mut random, step);
        rows.add(step as u32, &key);
        let growing = (step / 8_000) % 3 != 2;
        match random.below(10) {
            0 => assert_eq!(tree.get(&rows, &key), model.get(&key).copied()),
            1 if step % 16 == 0 => {
                let other = keys(&mut random, step);
                let (low, high) = (bound(&mut random, &key), bound(&mut random, &other));
                check_range(&tree, &rows, &model, low, high, 500);
            }
            2..6 if growing => {
                assert_eq!(tree.insert(&rows, &key, step as u32), model.insert(key, step as u32).is_none())
            }
            2..9 if !growing => {
                let near = model.range(key..).next().map_or(vec![], |(key, _)| key.clone());
                assert_eq!(tree.remove(&rows, &near), model.remove(&near));
            }
            6 => assert_eq!(tree.remove(&rows, &key), model.remove(&key)),
            _ => assert_eq!(tree.insert(&rows, &key, step as u32), model.insert(key, step as u32).is_none()),
        }
        assert_eq!(tree.len(), model.len());
        if step % 1000 == 0 {
            tree.verify(&rows).unwrap();
        }
    }
    let used: usize = leaves(&tree).map(|id| tree.nodes[id].used()).sum();
    assert!(used * 3 > leaves(&tree).count() * PAGE, "leaves less than a third full");
    check_range(&tree, &rows, &model, Bound::Unbounded, Bound::Unbounded, 2_000_000);
    let bytes = tree.bytes();
    while !model.is_empty() {
        let key = keys(&mut random, steps);
        let near = model.range(key..).chain(&model).next().map_or(vec![], |(key, _)| key.clone());
        assert_eq!(tree.remove(&rows, &near), model.remove(&near));
        if model.len() % 1000 == 0 {
            tree.verify(&rows).unwrap();
        }
    }
    tree.verify(&rows).unwrap();
    assert!(tree.is_empty() && tree.height == 1 && tree.nodes.len() == 1 && tree.long_bytes == 0);
    assert!(tree.bytes() < bytes / 4 + 3 * CHUNK * size_of::<Node>(), "{} of {bytes} bytes stay", tree.bytes());
}

#[test]
fn agrees_with_a_sorted_map() {
    let tests: [(MadeKeys, u64); 7] = [
        (|random, _| (0..random.below(7)).map(|_| [0, 0, 1, 255][random.below(4) as usize]).collect(), 200_000),
        (|random, _| random.below(20_000).to_be_bytes().to_vec(), 200_000),
        (|random, _| filled(random, b'p', &[0, 3, 20, 90, 100], 3_000), 200_000),
        (|random, _| filled(random, b'p', &[20], 30_000), 200_000),
        (|random, _| filled(random, b'x', &[1, 60, 120, 127, 200, 1_000, 16_380], 400), 60_000),
        (|random, step| (step - random.below(200).min(step)).to_be_bytes().to_vec(), 200_000),
        (|random, step| (u64::MAX - step + random.below(200).min(step)).to_be_bytes().to_vec(), 200_000),
    ];
    for (seed, (keys, steps)) in (1..).zip(tests) {
        model_test(seed, keys, steps, false);
        model_test(seed + 100, keys, steps / 4, true);
    }
}

#[test]
fn sequential_load_fills_the_leaves() {
    for descending in [false, true] {
        let mut tree = BTree::new();
        for step in 0..100_000u64 {
            assert!(tree.insert(&(), &(if descending { u64::MAX - step } else { step }).to_be_bytes(), step as u32));
        }
        tree.verify(&()).unwrap();
        assert!(tree.bytes() < 100_000 * 27, "{}", tree.bytes());
        let ends = (tree.first().unwrap().1, tree.last().unwrap().1);
        assert_eq!(ends, if descending { (99_999, 0) } else { (0, 99_999) });
    }
}

/// A queue: the window of keys moves on, the memory stays.
#[test]
fn freed_nodes_are_used_again() {
    let (mut tree, mut most) = (BTree::new(), 0);
    for step in 0..200_000u64 {
        tree.insert(&(), &step.to_be_bytes(), 0);
        if step >= 10_000 {
            assert_eq!(tree.remove(&(), &(step - 10_000).to_be_bytes()), Some(0));
        }
        if step == 30_000 {
            most = tree.bytes();
        }
    }
    tree.verify(&()).unwrap();
    assert!(tree.len() == 10_000 && tree.bytes() <= most + 2 * CHUNK * size_of::<Node>(), "{} {most}", tree.bytes());
}

#[test]
fn keys_that_differ_in_trailing_zeros() {
    let mut tree = BTree::new();
    for len in (0..300usize).rev() {
        assert!(tree.insert(&(), &vec![0; len], len as u32));
    }
    tree.verify(&()).unwrap();
    assert!((0..300).all(|len| tree.get(&(), &vec![0; len]) == Some(len as u32)));
    assert!(tree.range(&(), Bound::Unbounded, Bound::Unbounded, false).map(|(_, row)| row).eq(0..300));
    assert!(!tree.insert(&(), &[], 7));
    assert_eq!((tree.get(&(), &[]), tree.remove(&(), &[]), tree.remove(&(), &[])), (Some(7), Some(7), None));
}

/// Without keys: 12 bytes and little else for each of them, in order and in none, and also where keys begin alike.
#[test]
fn leaves_without_keys_are_small() {
    for (prefix, most) in [("", 13), ("a prefix of many bytes, that all keys share", 14)] {
        for random in [false, true] {
            let (mut tree, mut rows, mut drawn) = (BTree::without_keys(), Rows::default(), Random(5));
            for step in 0..100_000u64 {
                let number = if random { drawn.below(u64::MAX) } else { step };
                let key = [prefix.as_bytes(), &number.to_be_bytes()].concat();
                rows.add(step as u32, &key);
                assert!(tree.insert(&rows, &key, step as u32));
            }
            tree.verify(&rows).unwrap();
            let most = if random { most * 3 / 2 } else { most };
            assert!(tree.bytes() < 100_000 * most, "{} bytes, random: {random}", tree.bytes());
        }
    }
}

/// Fetched ahead is the leaf that an insert of the key goes to, a level in each step.
#[test]
fn the_way_of_a_key_leads_to_its_leaf() {
    for bare in [false, true] {
        let (mut tree, mut rows, mut random) = (BTree::with_leaves(bare), Rows::default(), Random(3));
        let (mut heights, mut ways) = (Vec::new(), Vec::new());
        for row in 0..60_000 {
            let key = filled(&mut random, b'p', &[0, 3, 20], 1_000_000);
            let mut way = tree.approach();
            let steps = std::iter::from_fn(|| way.step(&rows, &key).then_some(())).count();
            ways.push(std::ptr::eq(way.node, &tree.nodes[tree.leaf_of(&rows, &key)]) && steps + 1 == tree.height);
            rows.add(row, &key);
            tree.insert(&rows, &key, row);
            heights.push(tree.height);
        }
        tree.verify(&rows).unwrap();
        heights.dedup();
        assert!(heights == [1, 2, 3] && ways.iter().all(|is_right| *is_right), "{heights:?}, without keys: {bare}");
    }
}
