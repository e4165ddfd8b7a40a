//! The tables of weights, read from what `tests/reference/collations.py` has written, and the codes that stand for weights in sort keys.
//!
//! A code is one to three bytes, none of them zero. No code is the beginning of another, and codes are in the order of their weights, so byte strings of codes are in the
//! order of the lists of weights. They are kept in the upper bytes of a `u32`, where the same is true of the numbers. In the tables of the Unicode collation algorithm the weights
//! of ASCII characters have codes of one byte; what lies between two of them shares a first byte, and what lies behind `z` (Greek, Cyrillic, all that follows) has two bytes.
//!
//! A table has an entry for each code point, in pages of 128 of which equal ones are there once. It is read when the first text is compared by it, and kept.

use std::sync::LazyLock;

use super::sets;

/// Points of a page.
const PAGE: usize = 128;
const POINTS: u32 = 0x11_0000;

/// Entries that are no code: the low byte is one of these, the code of a weight leaves it zero.
const IMPLICIT: u32 = 1;
const HANGUL: u32 = 4;
pub(super) const OUTSIDE: u32 = 5;
/// And above it as many codes as the entry says, at a place in the pool that its upper bytes say.
const SEVERAL: u32 = 16;

/// The first weights of code points that have none of their own.
const BASES: [u32; 3] = [0xfbc0, 0xfb80, 0xfb40];
/// Most codes of a character.
const CODES_MAX: usize = 8;

/// Where the codes of texts that end with spaces stand, and those of runs of spaces: see the module above.
pub(super) const BELOW: u8 = 0;
pub(super) const END: u8 = 1;
pub(super) const ABOVE: u8 = 2;
pub(super) const SPACE: u8 = 3;
/// Of level 2 and 3: the weight of most characters.
pub(super) const USUAL: u32 = 0x0200_0000;

pub(super) struct Table {
    /// Code of one byte of each ASCII character, 0 where it has no weight.
    pub(super) ascii: [u8; 128],
    /// The first of the four bytes that stand for spaces and ends.
    pub(super) spaces: u8,
    /// All other printing characters of ASCII are behind the space.
    pub(super) space_is_first: bool,
    pages: Vec<u16>,
    entries: Vec<u32>,
    pool: Vec<u32>,
    codes: Codes,
}

/// How weights become codes.
pub(super) enum Codes {
    /// A weight is a code point.
    Points,
    /// A weight is a byte.
    Bytes,
    /// A weight is the number of a character's code.
    Written,
    /// A number in the order of weights.
    Ranks,
    /// One of `gb18030_chinese_ci`.
    Sounds,
    /// Of level 2 and 3; the weight of most.
    Level(u32),
    Unicode(Unicode),
}

/// The weights of ASCII characters with their codes, in their order.
pub(super) struct Unicode {
    ascii: Vec<(u32, u8)>,
    /// The first byte of two, behind the last of them, of three behind those, and of implicit weights.
    two: u32,
    three: u32,
    implicit: u32,
}

/// Weights behind this one have three bytes, up to [`BASES`].
const TWO_END: u32 = 0x5500;
const THREE_END: u32 = 0xfb40;

impl Unicode {
    fn new(mut weights: Vec<u32>, space: u32) -> (Unicode, u8) {
        weights.sort_unstable();
        weights.dedup();
        let (mut next, mut spaces) = (2, 0);
        let mut ascii = Vec::with_capacity(weights.len());
        for (at, &weight) in weights.iter().enumerate() {
            if weight == space {
                spaces = next;
                next += SPACE;
            }
            ascii.push((weight, next));
            next += 1 + u8::from(weights.get(at + 1).is_some_and(|&w| w > weight + 1));
        }
        let two = u32::from(next);
        let last = weights.last().copied().unwrap_or(0);
        let three = two + TWO_END.saturating_sub(last) / 255 + 1;
        let implicit = three + ((THREE_END - TWO_END) >> 14) + 1;
        assert!(implicit + 2 < 0xff, "there are more codes than bytes");
        (Unicode { ascii, two, three, implicit }, spaces)
    }

    fn code(&self, weight: u32) -> u32 {
        let (last, _) = self.ascii.last().copied().unwrap_or((0, 0));
        if weight <= last {
            return match self.ascii.binary_search_by_key(&weight, |a| a.0) {
                Ok(at) => u32::from(self.ascii[at].1) << 24,
                Err(at) => {
                    let (before, code) = at.checked_sub(1).map_or((0, 1), |at| self.ascii[at]);
                    with_14_bits(u32::from(code) + 1, weight - before)
                }
            };
        }
        if weight < TWO_END {
            let n = weight - last - 1;
            return (self.two + n / 255) << 24 | (n % 255 + 1) << 16;
        }
        match weight {
            0xfb40 | 0xfb41 => (self.implicit + weight - 0xfb40) << 24,
            0xfb42.. => with_14_bits(self.implicit + 2, weight - 0xfb42),
            _ => with_14_bits(self.three + ((weight - TWO_END) >> 14), (weight - TWO_END) & 0x3fff),
        }
    }
}

fn with_14_bits(first: u32, n: u32) -> u32 {
    first << 24 | (0x80 | n >> 7 & 0x7f) << 16 | (0x80 | n & 0x7f) << 8
}

/// The code of a byte where bytes are weights: the bytes below the space first, what stands for spaces, then those above.
pub(super) const fn byte_code(byte: u8) -> u32 {
    let n = byte as u32;
    match byte {
        0..0x20 => (n + 1) << 24,
        0x20 => ((BYTE_SPACES + SPACE) as u32) << 24,
        0xfb.. => 0xff << 24 | n << 16,
        _ => (n + BYTES_UP as u32) << 24,
    }
}
pub(super) const BYTE_SPACES: u8 = 0x21;
/// How far bytes from the space on move up.
pub(super) const BYTES_UP: u8 = 4;

fn point_code(point: u32) -> u32 {
    let mut utf8 = [0; 4];
    let text = char::from_u32(point).unwrap_or(char::REPLACEMENT_CHARACTER).encode_utf8(&mut utf8);
    match text.as_bytes() {
        [byte] => byte_code(*byte),
        [first, rest @ ..] => {
            let rest = rest.iter().take(2).zip([16, 8]).map(|(b, shift)| u32::from(*b) << shift);
            u32::from(*first + 4) << 24 | rest.sum::<u32>()
        }
        [] => 0,
    }
}

impl Codes {
    fn code(&self, weight: u32) -> u32 {
        match self {
            Codes::Points => point_code(weight),
            Codes::Bytes => byte_code(weight as u8),
            Codes::Written => sets::written_code(weight),
            Codes::Ranks => sets::rank_code(weight),
            Codes::Sounds => sets::sound_code(weight),
            Codes::Level(usual) => USUAL + (weight.wrapping_sub(*usual) << 24),
            Codes::Unicode(unicode) => unicode.code(weight),
        }
    }
}

/// A run of code points with their weights, as the generator wrote it. What it wrote is part of this program: anything else is a fault of it.
enum Run {
    Own(u32, u32),
    Weights { first: u32, step: u32, count: u32 },
    Several(Vec<u32>),
}

impl Run {
    fn count(&self) -> u32 {
        match self {
            Run::Own(_, count) | Run::Weights { count, .. } => *count,
            Run::Several(_) => 1,
        }
    }
    /// All its entries are the same.
    fn is_even(&self) -> bool {
        matches!(self, Run::Own(..) | Run::Weights { step: 0, .. })
    }
}

pub(super) struct Runs<'a> {
    data: &'a [u8],
    last: u32,
    point: u32,
}

impl<'a> Runs<'a> {
    pub(super) fn of(data: &'a [u8]) -> Runs<'a> {
        Runs { data, last: 0, point: 0 }
    }

    /// As many bytes as a number before them says.
    pub(super) fn part(&mut self) -> &'a [u8] {
        let long = self.number() as usize;
        let (part, rest) = self.data.split_at(long.min(self.data.len()));
        self.data = rest;
        part
    }

    pub(super) fn number(&mut self) -> u32 {
        let (mut n, mut shift) = (0, 0);
        while let Some((&byte, rest)) = self.data.split_first() {
            self.data = rest;
            n |= u32::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                break;
            }
        }
        n
    }

    fn weight(&mut self) -> u32 {
        let n = self.number();
        self.last = if n & 1 == 0 { self.last.wrapping_add(n >> 1) } else { self.last.wrapping_sub(n >> 1) };
        self.last
    }

    /// Each code point that has one number, with it.
    pub(super) fn numbers(mut self, mut tell: impl FnMut(u32, u32)) {
        while let Some(run) = self.next() {
            for n in 0..run.count() {
                if self.point == 0xd800 {
                    self.point = 0xe000;
                }
                if let Run::Weights { first, step, .. } = run {
                    tell(self.point, first + step * n);
                }
                self.point += 1;
            }
        }
    }

    /// Up to the last code point.
    fn next(&mut self) -> Option<Run> {
        if self.point >= POINTS {
            return None;
        }
        let head = self.number();
        let count = head >> 3;
        Some(match head & 7 {
            7 => Run::Several((0..count).map(|_| self.weight()).collect()),
            kind @ (5 | 6) => {
                let step = u32::from(kind == 5);
                let first = self.weight();
                self.last += (count - 1) * step;
                Run::Weights { first, step, count }
            }
            kind => Run::Own(kind, count),
        })
    }
}

impl Table {
    fn empty(codes: Codes, spaces: u8) -> Table {
        Table {
            ascii: [0; 128],
            spaces,
            space_is_first: false,
            pages: Vec::new(),
            entries: Vec::new(),
            pool: Vec::new(),
            codes,
        }
    }

    /// Reads one table of `data` and moves behind it.
    pub(super) fn read(data: &mut &'static [u8], codes: impl FnOnce(&'static [u8]) -> (Codes, u8)) -> Table {
        let (codes, spaces) = codes(data);
        let mut table = Table::empty(codes, spaces);
        let mut runs = Runs::of(data);
        let mut page = Vec::with_capacity(PAGE);
        while let Some(run) = runs.next() {
            let mut n = 0;
            while n < run.count() {
                if runs.point == 0xd800 {
                    runs.point = 0xe000;
                    (0..0x800).for_each(|_| table.put(&mut page, OUTSIDE));
                }
                let entry = match &run {
                    Run::Own(kind, _) => table.own(*kind, runs.point),
                    Run::Weights { first, step, .. } => table.codes.code(first + step * n),
                    Run::Several(weights) => table.several(weights),
                };
                table.put(&mut page, entry);
                n += 1;
                runs.point += 1;
                // Planes of nothing: the page is there.
                while run.is_even()
                    && page.is_empty()
                    && runs.point >= 0x1_0000
                    && n + PAGE as u32 <= run.count()
                    && n >= PAGE as u32
                {
                    table.pages.push((table.entries.len() / PAGE - 1) as u16);
                    n += PAGE as u32;
                    runs.point += PAGE as u32;
                }
            }
        }
        *data = runs.data;
        table.finish()
    }

    /// The entry of a code point that says its weights itself.
    fn own(&self, kind: u32, point: u32) -> u32 {
        match (&self.codes, kind) {
            (Codes::Written | Codes::Ranks | Codes::Sounds, _) => OUTSIDE,
            (_, 3) => 0,
            (_, 4) => HANGUL,
            (Codes::Level(usual), _) => self.codes.code(*usual),
            (Codes::Points, _) => self.codes.code(point),
            _ => IMPLICIT + kind,
        }
    }

    /// Of the entries of the first code points; all others are outside.
    pub(super) fn of(codes: Codes, spaces: u8, entries: &[u32]) -> Table {
        let mut table = Table::empty(codes, spaces);
        let mut page = Vec::with_capacity(PAGE);
        entries.iter().for_each(|&entry| table.put(&mut page, entry));
        (0..PAGE).for_each(|_| table.put(&mut page, OUTSIDE));
        let last = table.pages.last().copied().unwrap_or(0);
        table.pages.resize(POINTS as usize / PAGE, last);
        table.finish()
    }

    /// Another weight of a character.
    pub(super) fn set(&mut self, point: u32, weight: u32) {
        self.set_entry(point, self.codes.code(weight));
    }

    /// Two codes of a character.
    pub(super) fn set_several(&mut self, point: u32, codes: [u32; 2]) {
        let at = self.pool.len() as u32;
        self.pool.extend(codes);
        self.set_entry(point, (at << 8) | (SEVERAL + 2));
    }

    /// Its page may stand for others as well.
    fn set_entry(&mut self, point: u32, entry: u32) {
        let (page, at) = (point as usize / PAGE, point as usize % PAGE);
        let own = usize::from(self.pages[page]);
        if self.pages.iter().filter(|other| usize::from(**other) == own).count() > 1 {
            self.entries.extend_from_within(own * PAGE..(own + 1) * PAGE);
            self.pages[page] = (self.entries.len() / PAGE - 1) as u16;
        }
        self.entries[usize::from(self.pages[page]) * PAGE + at] = entry;
        if let Some(code) = self.ascii.get_mut(point as usize) {
            *code = (entry >> 24) as u8;
        }
    }

    /// The character set has this one.
    pub(super) fn has(&self, point: u32) -> bool {
        self.entry(point) & 0xff != OUTSIDE
    }

    fn several(&mut self, weights: &[u32]) -> u32 {
        let at = self.pool.len() as u32;
        self.pool.extend(weights.iter().map(|&w| self.codes.code(w)));
        (at << 8) | (SEVERAL + weights.len() as u32)
    }

    fn put(&mut self, page: &mut Vec<u32>, entry: u32) {
        page.push(entry);
        if page.len() == PAGE {
            let last = self.entries.len().saturating_sub(PAGE);
            if self.entries.is_empty() || self.entries[last..] != page[..] {
                self.entries.append(page);
            }
            page.clear();
            self.pages.push((self.entries.len() / PAGE - 1) as u16);
        }
    }

    fn finish(mut self) -> Table {
        for (byte, code) in self.ascii.iter_mut().enumerate() {
            let entry = self.entries[usize::from(self.pages[0]) * PAGE + byte];
            debug_assert_eq!(entry & 0xff_ffff, 0, "an ASCII character has a code of one byte");
            *code = (entry >> 24) as u8;
        }
        self.space_is_first = self.ascii[0x21..0x7f].iter().all(|code| *code > self.spaces + SPACE);
        self
    }

    /// The code of a weight that a character says itself. Appends all codes of a character that is not ASCII.
    fn expand(&self, point: u32, out: &mut Expansion) {
        let entry = self.entry(point);
        match entry & 0xff {
            0 => out.push(entry),
            HANGUL => {
                let n = point.wrapping_sub(0xac00);
                for part in [0x1100 + n / 588, 0x1161 + n % 588 / 28, 0x11a7 + n % 28] {
                    let own = self.entry(part);
                    if part != 0x11a7 && own & 0xff == 0 {
                        out.push(own);
                    }
                }
            }
            OUTSIDE => {
                outside_codes(point).into_iter().for_each(|code| out.push(code));
            }
            kind if kind < HANGUL => {
                let base = BASES[(kind - IMPLICIT) as usize % 3];
                out.push(self.codes.code(base + (point >> 15)));
                out.push(self.codes.code(point & 0x7fff | 0x8000));
            }
            several => {
                let at = (entry >> 8) as usize;
                self.pool[at..at + (several - SEVERAL) as usize].iter().for_each(|&code| out.push(code));
            }
        }
    }

    fn entry(&self, point: u32) -> u32 {
        let page = self.pages.get(point as usize / PAGE).copied().unwrap_or(0);
        self.entries[usize::from(page) * PAGE + point as usize % PAGE]
    }

    pub(super) fn iter<'a>(&'static self, text: &'a [u8]) -> Iter<'a> {
        Iter { table: self, text, expansion: Expansion::default() }
    }
}

/// Behind all others.
pub(super) fn outside_codes(point: u32) -> [u32; 2] {
    [0xff00_0000, (0x80 | point >> 14) << 24 | (0x80 | point >> 7 & 0x7f) << 16 | (0x80 | point & 0x7f) << 8]
}

/// The codes of one character.
#[derive(Default)]
struct Expansion {
    codes: [u32; CODES_MAX],
    from: u8,
    to: u8,
}

impl Expansion {
    fn push(&mut self, code: u32) {
        if code != 0 && usize::from(self.to) < CODES_MAX {
            self.codes[usize::from(self.to)] = code;
            self.to += 1;
        }
    }
}

/// The codes of a text, one after the other.
pub(super) struct Iter<'a> {
    table: &'static Table,
    text: &'a [u8],
    expansion: Expansion,
}

impl Iterator for Iter<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        loop {
            if self.expansion.from < self.expansion.to {
                self.expansion.from += 1;
                return Some(self.expansion.codes[usize::from(self.expansion.from) - 1]);
            }
            let (&first, rest) = self.text.split_first()?;
            if first < 0x80 {
                self.text = rest;
                match self.table.ascii[usize::from(first)] {
                    0 => continue,
                    code => return Some(u32::from(code) << 24),
                }
            }
            self.expand();
        }
    }
}

impl Iter<'_> {
    fn expand(&mut self) {
        let (point, long) = decode(self.text);
        self.text = &self.text[long..];
        self.expansion.from = 0;
        self.expansion.to = 0;
        match point {
            Ok(point) => self.table.expand(point, &mut self.expansion),
            Err(byte) => {
                self.expansion.push(0xff00_0000);
                self.expansion
                    .push(0x7f << 24 | u32::from(0x80 | byte >> 7) << 16 | u32::from(0x80 | byte & 0x7f) << 8);
            }
        }
    }
}

/// The first character of a text that is not empty, and how long it is; or a byte that begins none.
pub(super) fn decode(text: &[u8]) -> (Result<u32, u8>, usize) {
    let Some(&first) = text.first() else { return (Err(0), 0) };
    let (long, low) = match first {
        0..0x80 => return (Ok(u32::from(first)), 1),
        0xc2..0xe0 => (2, first & 0x1f),
        0xe0..0xf0 => (3, first & 0xf),
        0xf0..0xf5 => (4, first & 7),
        _ => return (Err(first), 1),
    };
    let mut point = u32::from(low);
    for at in 1..long {
        match text.get(at) {
            Some(byte) if byte & 0xc0 == 0x80 => point = point << 6 | u32::from(byte & 0x3f),
            _ => return (Err(first), 1),
        }
    }
    if point < POINTS { (Ok(point), long) } else { (Err(first), 1) }
}

/// A table of the Unicode collation algorithm, with levels if it has them.
fn unicode(mut data: &'static [u8], levels: &[u32]) -> Vec<Table> {
    let first = Table::read(&mut data, |data| {
        let (mut runs, mut weights) = (Runs::of(data), Vec::new());
        let mut space = 0;
        while runs.point < 128 {
            match runs.next() {
                Some(Run::Own(_, count)) => runs.point += count,
                Some(Run::Weights { first, step, count }) => {
                    for n in 0..count.min(128 - runs.point) {
                        weights.push(first + step * n);
                        space = if runs.point + n == 32 { first + step * n } else { space };
                    }
                    runs.point += count;
                }
                _ => runs.point += 1,
            }
        }
        let (codes, spaces) = Unicode::new(weights, space);
        (Codes::Unicode(codes), spaces)
    });
    let mut tables = vec![first];
    tables.extend(levels.iter().map(|&usual| Table::read(&mut data, |_| (Codes::Level(usual), 0))));
    tables
}

pub(super) static UNICODE_400: LazyLock<Vec<Table>> = LazyLock::new(|| unicode(include_bytes!("uca400.bin"), &[]));
pub(super) static UNICODE_520: LazyLock<Vec<Table>> = LazyLock::new(|| unicode(include_bytes!("uca520.bin"), &[]));
pub(super) static UNICODE_900: LazyLock<Vec<Table>> =
    LazyLock::new(|| unicode(include_bytes!("uca900.bin"), &[0x20, 2]));
pub(super) static GENERAL: LazyLock<Vec<Table>> = LazyLock::new(|| {
    let mut data = &include_bytes!("general.bin")[..];
    vec![Table::read(&mut data, |_| (Codes::Points, BYTE_SPACES))]
});
