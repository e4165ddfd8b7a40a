//! One search: the rows are read once, then found rows are put together and ranked.
//!
//! The parts of a query are carried out in the order of the reference: first all that only add rows or change their ranks, then those with `+`, then those with `-`. A word counts
//! in a rank as often as it stands in the row, times the square of its weight log10(rows / rows with the word); ranks are single precision, summed in the order in which the
//! words came up, so that they are equal to the last digit. A word that the query names twice is counted twice among the rows that have it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use apus_types::collate::Collation;

use super::{
    query::{self, Mode, Operand, Operator, Part},
    words::{Filter, folded, push_key, words},
};
use crate::{
    errors::{self, Result},
    spill::byte_strings::Strings,
};

/// What `>` adds to a rank, and `<` and `~` take from it; the limit of all of them together.
const STEP: f32 = 1.0;

/// Words that a query names at most: each is counted in every row that is found.
pub const WORDS_MAX: usize = 1000;

/// What is looked for in each row.
#[derive(Clone)]
enum Needle {
    /// Known by its key.
    Word,
    /// Words that begin so.
    Beginning(String),
}

#[derive(Clone)]
struct Phrase {
    /// Keys of its words from the first one on that can be found.
    keys: Vec<Vec<u8>>,
    /// Needles of those that can be found.
    needles: Vec<usize>,
    /// They may stand in any order within so many words.
    within: Option<usize>,
}

/// A query whose words are known by their numbers.
#[derive(Clone)]
enum Node {
    Word(usize),
    Phrase(usize),
    List(Vec<(Operator, Node)>),
}

/// How often a needle stands in a row; for a beginning: how often the first of the words that begin so, and how many those are.
#[derive(Clone, Copy, Default)]
struct Hit {
    times: u32,
    words: u32,
}

#[derive(Clone)]
struct Row {
    key: Vec<u8>,
    hits: Vec<Hit>,
    phrases: Vec<bool>,
    /// All its words, for a query expansion.
    words: BTreeMap<Vec<u8>, u32>,
}

/// A word that counts in ranks.
#[derive(Default)]
struct Entry {
    rows: u64,
    times: BTreeMap<usize, u32>,
    /// When it came up.
    place: Option<usize>,
    /// The query names it, and not in a phrase only: an expansion does not look for it again.
    is_alone: bool,
}

#[derive(Default)]
struct Found {
    rank: f32,
    entries: BTreeSet<usize>,
}

#[derive(Clone)]
pub struct Search {
    filter: Filter,
    mode: Mode,
    nodes: Vec<(Operator, Node)>,
    needles: Vec<Needle>,
    by_key: HashMap<Vec<u8>, usize>,
    /// Of each needle the word that it counts as.
    entries: Vec<Vec<u8>>,
    phrases: Vec<Phrase>,
    total: u64,
    rows: Vec<Row>,
    /// Of the row under way: the keys of its words, and where each column ends.
    keys: Strings,
    ends: Vec<usize>,
}

impl Search {
    /// # Errors
    /// 1064: a boolean query that does not follow its grammar; 1235: more than [`WORDS_MAX`] words.
    pub fn new(text: &str, mode: Mode, collation: Collation) -> Result<Search> {
        let parts = query::parse(text, mode)?;
        let mut search = Search {
            filter: Filter::new(collation),
            mode,
            nodes: Vec::new(),
            needles: Vec::new(),
            by_key: HashMap::new(),
            entries: Vec::new(),
            phrases: Vec::new(),
            total: 0,
            rows: Vec::new(),
            keys: Strings::default(),
            ends: Vec::new(),
        };
        search.nodes = parts.into_iter().map(|part| search.node(part)).collect();
        if search.needles.len() > WORDS_MAX {
            return Err(errors::not_supported(&format!("a full-text query of more than {WORDS_MAX} words")));
        }
        Ok(search)
    }

    fn key_of(&self, word: &str) -> Vec<u8> {
        let mut key = Vec::new();
        push_key(self.filter.collation(), word, &mut key);
        key
    }

    fn node(&mut self, part: Part) -> (Operator, Node) {
        let node = match part.operand {
            Operand::Word(word, begins) => Node::Word(self.needle(&word, begins)),
            Operand::List(parts) => Node::List(parts.into_iter().map(|part| self.node(part)).collect()),
            Operand::Phrase(words, within) => self.phrase(words, within),
        };
        (part.operator, node)
    }

    /// Words at its beginning that cannot be found are not looked at; those behind must stand there.
    fn phrase(&mut self, words: Vec<String>, within: Option<usize>) -> Node {
        let keyed = words.into_iter().map(|word| (self.key_of(&word), word));
        let all: Vec<(Vec<u8>, String)> = keyed.skip_while(|(key, word)| !self.filter.takes(word, key)).collect();
        let known = all.iter().filter(|(key, word)| self.filter.takes(word, key));
        let known: Vec<String> = known.map(|(_, word)| word.clone()).collect();
        let needles: Vec<usize> = known.iter().map(|word| self.needle(word, false)).collect();
        if let ([one], 1) = (needles.as_slice(), all.len()) {
            return Node::Word(*one);
        }
        let keys = all.into_iter().map(|(key, _)| key).collect();
        self.phrases.push(Phrase { keys, needles, within });
        Node::Phrase(self.phrases.len() - 1)
    }

    fn needle(&mut self, word: &str, begins: bool) -> usize {
        let key = self.key_of(word);
        let number = self.needles.len();
        if begins {
            self.needles.push(Needle::Beginning(folded(self.filter.collation(), word).into_owned()));
        } else if let Some(known) = self.by_key.get(&key) {
            return *known;
        } else {
            self.by_key.insert(key.clone(), number);
            self.needles.push(Needle::Word);
        }
        self.entries.push(key);
        number
    }

    /// The next row; gives the memory that it takes, in bytes.
    pub fn add(&mut self, key: &[u8], columns: &[Option<Cow<'_, [u8]>>]) -> usize {
        self.total += 1;
        self.keys.clear();
        self.ends.clear();
        let mut row = Row { key: Vec::new(), hits: Vec::new(), phrases: Vec::new(), words: BTreeMap::new() };
        let mut beginnings: Vec<BTreeMap<Vec<u8>, u32>> = Vec::new();
        let mut of_word = Vec::new();
        for text in columns {
            let text = text.as_ref().map_or(Cow::Borrowed(""), |text| String::from_utf8_lossy(text));
            for word in words(&text) {
                push_key(self.filter.collation(), word, &mut of_word);
                self.count(word, &of_word, &mut row, &mut beginnings);
                self.keys.push(&of_word);
            }
            self.ends.push(self.keys.len());
        }
        for (hit, found) in row.hits.iter_mut().zip(&beginnings) {
            if let Some((_, times)) = found.first_key_value() {
                *hit = Hit { times: *times, words: found.len() as u32 };
            }
        }
        if row.hits.is_empty() && row.words.is_empty() {
            return 0;
        }
        row.phrases = self.phrases.iter().map(|phrase| self.has_phrase(phrase, &row)).collect();
        row.key = key.to_vec();
        let of_words: usize = row.words.keys().map(|word| word.len() + size_of::<(Vec<u8>, u32)>()).sum();
        let bytes = size_of::<Row>() + row.key.len() + row.hits.len() * size_of::<Hit>() + row.phrases.len() + of_words;
        self.rows.push(row);
        bytes
    }

    /// One more word of a row.
    fn count(&self, word: &str, key: &[u8], row: &mut Row, beginnings: &mut Vec<BTreeMap<Vec<u8>, u32>>) {
        let number = self.by_key.get(key);
        let begins = |needle: &Needle| match needle {
            Needle::Beginning(part) => {
                let collation = self.filter.collation();
                collation.starts_with(folded(collation, word).as_bytes(), part.as_bytes())
            }
            Needle::Word => false,
        };
        let is_wanted = number.is_some() || self.mode == Mode::Expansion || self.needles.iter().any(begins);
        if !is_wanted || !self.filter.takes(word, key) {
            return;
        }
        if row.hits.is_empty() {
            row.hits.resize(self.needles.len(), Hit::default());
        }
        if let Some(&number) = number {
            let hit = &mut row.hits[number];
            *hit = Hit { times: hit.times + 1, words: 1 };
        }
        for (number, _) in self.needles.iter().enumerate().filter(|(_, needle)| begins(needle)) {
            beginnings.resize_with(self.needles.len(), BTreeMap::new);
            *beginnings[number].entry(key.to_vec()).or_default() += 1;
        }
        if self.mode == Mode::Expansion {
            *row.words.entry(key.to_vec()).or_default() += 1;
        }
    }

    /// Whether the row under way has the phrase.
    fn has_phrase(&self, phrase: &Phrase, row: &Row) -> bool {
        if phrase.needles.is_empty() || phrase.needles.iter().any(|&needle| row.hits[needle].times == 0) {
            return false;
        }
        if let Some(within) = phrase.within {
            return self.are_near(&phrase.needles, within);
        }
        let mut begin = 0;
        for &end in &self.ends {
            let is_here = |from: usize| {
                phrase.keys.iter().enumerate().all(|(at, key)| self.keys.get(from + at) == Some(key.as_slice()))
            };
            if (begin..(end + 1).saturating_sub(phrase.keys.len())).any(is_here) {
                return true;
            }
            begin = end;
        }
        false
    }

    /// Whether so many words in a row have all of these among them.
    fn are_near(&self, needles: &[usize], within: usize) -> bool {
        let mut last: BTreeMap<usize, Option<usize>> = needles.iter().map(|needle| (*needle, None)).collect();
        for (at, key) in self.keys.iter().enumerate() {
            let Some(seen) = self.by_key.get(key).and_then(|needle| last.get_mut(needle)) else { continue };
            *seen = Some(at);
            let first = last.values().try_fold(at, |first, seen| Some(first.min((*seen)?)));
            if first.is_some_and(|first| at - first < within) {
                return true;
            }
        }
        false
    }

    /// The keys and ranks of all rows that are found, for [`rank_of`].
    pub fn finish(self) -> Vec<u8> {
        let mut run = Run { search: &self, entries: BTreeMap::new(), places: 0, keys: HashMap::new() };
        let mut found = BTreeMap::new();
        run.list(&self.nodes, &mut found);
        if self.mode == Mode::Expansion {
            run.expand(&mut found);
        }
        let mut ranked: Vec<(&[u8], f32)> =
            found.iter().map(|(row, found)| (self.rows[*row].key.as_slice(), run.rank(*row, found))).collect();
        ranked.sort_unstable_by(|a, b| a.0.cmp(b.0));
        packed(&ranked)
    }
}

/// The rows that some parts of a query found.
type Rows = BTreeMap<usize, Found>;

struct Run<'s> {
    search: &'s Search,
    entries: BTreeMap<usize, Entry>,
    places: usize,
    /// Numbers of entries.
    keys: HashMap<&'s [u8], usize>,
}

impl<'s> Run<'s> {
    fn entry(&mut self, key: &'s [u8]) -> usize {
        let next = self.keys.len();
        let number = *self.keys.entry(key).or_insert(next);
        self.entries.entry(number).or_default();
        number
    }

    fn list(&mut self, nodes: &'s [(Operator, Node)], found: &mut Rows) {
        let mut has_must = false;
        let phase = |operator: Operator| match operator {
            Operator::Must => 1,
            Operator::MustNot => 2,
            _ => 0,
        };
        for now in 0..3 {
            for (operator, node) in nodes.iter().filter(|(operator, _)| phase(*operator) == now) {
                self.part(*operator, node, found, has_must);
                has_must |= *operator == Operator::Must;
            }
        }
    }

    fn part(&mut self, operator: Operator, node: &'s Node, found: &mut Rows, has_must: bool) {
        let is_in_vain = match operator {
            Operator::Must => found.is_empty() && has_must,
            Operator::MustNot => found.is_empty(),
            _ => false,
        };
        if is_in_vain {
            return;
        }
        let hits: Vec<(usize, f32, BTreeSet<usize>)> = match node {
            Node::Word(needle) => {
                let (entry, rows) = self.word(*needle);
                self.entries.entry(entry).or_default().is_alone = true;
                rows.into_iter().map(|row| (row, 0.0, BTreeSet::from([entry]))).collect()
            }
            Node::Phrase(number) => {
                let needles = &self.search.phrases[*number].needles;
                let entries = self.words_of_phrase(needles);
                let rows = self.search.rows.iter().enumerate().filter(|(_, row)| row.phrases[*number]);
                rows.map(|(row, _)| (row, 0.0, entries.clone())).collect()
            }
            Node::List(nodes) => {
                let mut inner = Rows::new();
                self.list(nodes, &mut inner);
                inner.into_iter().map(|(row, found)| (row, found.rank, found.entries)).collect()
            }
        };
        if operator == Operator::Must {
            let mut both = Rows::new();
            for (row, rank, entries) in hits {
                let before = match found.remove(&row) {
                    None if has_must => continue,
                    before => before.unwrap_or_default(),
                };
                let rank = before.rank + rank;
                both.insert(row, Found { rank: rank.min(STEP), entries: before.entries });
                self.came_up(both.get_mut(&row), entries);
            }
            *found = both;
            return;
        }
        for (row, rank, entries) in hits {
            match operator {
                Operator::MustNot => _ = found.remove(&row),
                Operator::Negate => change(found.get_mut(&row), -STEP),
                _ => {
                    let known = found.entry(row).or_insert(Found { rank, entries: BTreeSet::new() });
                    match operator {
                        Operator::More => change(Some(known), STEP),
                        Operator::Less => change(Some(known), -STEP),
                        _ => {}
                    }
                }
            }
            self.came_up(found.get_mut(&row), entries);
        }
    }

    /// A needle is looked for: the word that it counts as, and the rows that have it.
    fn word(&mut self, needle: usize) -> (usize, Vec<usize>) {
        let search = self.search;
        let number = self.entry(&search.entries[needle]);
        let hit_of = |row: &Row| row.hits.get(needle).copied().unwrap_or_default();
        let hits = search.rows.iter().map(hit_of).enumerate().filter(|(_, hit)| hit.times > 0);
        (number, self.counted(number, hits))
    }

    /// They are looked for one after the other, until one is in no row.
    fn words_of_phrase(&mut self, needles: &'s [usize]) -> BTreeSet<usize> {
        let mut entries = BTreeSet::new();
        for needle in needles {
            let (entry, rows) = self.word(*needle);
            entries.insert(entry);
            if rows.is_empty() {
                break;
            }
        }
        entries
    }

    fn counted(&mut self, number: usize, hits: impl Iterator<Item = (usize, Hit)>) -> Vec<usize> {
        let entry = self.entries.entry(number).or_default();
        let mut rows = Vec::new();
        for (row, hit) in hits {
            entry.rows += u64::from(hit.words);
            entry.times.entry(row).or_insert(hit.times);
            rows.push(row);
        }
        rows
    }

    /// These words count in the rank of a row, if it is found.
    fn came_up(&mut self, found: Option<&mut Found>, entries: BTreeSet<usize>) {
        let Some(found) = found else { return };
        for number in &entries {
            let place = &mut self.entries.entry(*number).or_default().place;
            if place.is_none() {
                *place = Some(self.places);
                self.places += 1;
            }
        }
        found.entries.extend(entries);
    }

    /// All words of the rows that are found are looked for, too.
    fn expand(&mut self, found: &mut Rows) {
        let search = self.search;
        let all: BTreeSet<&'s [u8]> =
            found.keys().flat_map(|row| search.rows[*row].words.keys().map(Vec::as_slice)).collect();
        for key in all {
            let number = self.entry(key);
            if self.entries.get(&number).is_some_and(|entry| entry.is_alone) {
                continue;
            }
            let hits = search.rows.iter().enumerate().filter_map(|(row, of)| Some((row, *of.words.get(key)?)));
            for row in self.counted(number, hits.map(|(row, times)| (row, Hit { times, words: 1 }))) {
                found.entry(row).or_default();
                self.came_up(found.get_mut(&row), BTreeSet::from([number]));
            }
        }
    }

    fn rank(&self, row: usize, found: &Found) -> f32 {
        let mut entries: Vec<&Entry> = found.entries.iter().filter_map(|number| self.entries.get(number)).collect();
        entries.sort_by_key(|entry| entry.place);
        entries.into_iter().fold(found.rank, |rank, entry| {
            let weight = match entry.rows {
                rows if rows == self.search.total => 1.0001f64,
                rows => self.search.total as f64 / rows as f64,
            };
            let weight = weight.log10();
            let times = f64::from(entry.times.get(&row).copied().unwrap_or(0));
            rank + (times * weight * weight) as f32
        })
    }
}

fn change(found: Option<&mut Found>, by: f32) {
    if let Some(found) = found {
        found.rank = (found.rank + by).clamp(-STEP, STEP);
    }
}

/// Number of rows; of each where its key ends and its rank; the keys.
fn packed(ranked: &[(&[u8], f32)]) -> Vec<u8> {
    let mut out = (ranked.len() as u32).to_le_bytes().to_vec();
    let mut end = 0;
    for (key, rank) in ranked {
        end += key.len() as u32;
        out.extend_from_slice(&end.to_le_bytes());
        out.extend_from_slice(&rank.to_le_bytes());
    }
    ranked.iter().for_each(|(key, _)| out.extend_from_slice(key));
    out
}

/// The rank of the row with this key in what [`Search::finish`] made; `None`: it is not found.
pub fn rank_of(found: &[u8], key: &[u8]) -> Option<f32> {
    let word = |at: usize| Some(u32::from_le_bytes(found.get(at..at + 4)?.try_into().ok()?));
    let count = word(0)? as usize;
    let keys = 4 + count * 8;
    let key_of = |row: usize| {
        let begin = if row == 0 { 0 } else { word(4 + (row - 1) * 8)? as usize };
        found.get(keys + begin..keys + word(4 + row * 8)? as usize)
    };
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        match key_of(middle)?.cmp(key) {
            std::cmp::Ordering::Equal => return Some(f32::from_bits(word(8 + middle * 8)?)),
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
        }
    }
    None
}
