//! LIKE: texts that are as a pattern says, by a collation.

use std::sync::OnceLock;

use super::Collation;

/// What comparing two characters that are not both ASCII counts for.
const OTHER_STEPS: u32 = 16;

/// For each ASCII character the first one that is equal to it.
fn ascii_classes(collation: Collation) -> &'static [u8; 128] {
    static CLASSES: [OnceLock<[u8; 128]>; Collation::ALL.len()] = [const { OnceLock::new() }; Collation::ALL.len()];
    CLASSES[collation as usize].get_or_init(|| {
        let first = |c: u8| (0..c).find(|&other| collation.equal_unpadded(&[c], &[other]));
        std::array::from_fn(|c| first(c as u8).unwrap_or(c as u8))
    })
}

/// LIKE with `%` and `_`, which is a character, and of bytes a byte; linear in text times runs of `%`.
pub fn like(text: &[u8], pattern: &[u8], escape: Option<u8>, collation: Option<Collation>) -> bool {
    like_in_steps(text, pattern, escape, collation).0
}

/// As [`like`], with how many steps it took: at most the characters of the text times the bytes of the pattern, [`OTHER_STEPS`] times as many beyond ASCII.
pub fn like_in_steps(text: &[u8], pattern: &[u8], escape: Option<u8>, collation: Option<Collation>) -> (bool, u32) {
    let is_bytes = collation == Some(Collation::Binary);
    let long = |of: &[u8], at: usize| match is_bytes {
        true => 1,
        false => 1 + of[(at + 1).min(of.len())..].iter().take_while(|&&b| b & 0xc0 == 0x80).count(),
    };
    let width = |at: usize| long(text, at);
    let classes = collation.filter(|_| !is_bytes).map(ascii_classes);
    let (mut t, mut p, mut steps) = (0, 0, 0);
    let mut resume: Option<(usize, usize)> = None;
    loop {
        steps += 1;
        let matched = match pattern.get(p) {
            Some(b'%') => {
                resume = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(b'_') if t < text.len() => {
                t += width(t);
                p += 1;
                true
            }
            // Most characters: nothing continues them, and a table knows which of them are equal.
            Some(&b) if t < text.len() && (b | text[t]).is_ascii() && Some(b) != escape => {
                let (b, c) = (usize::from(b), usize::from(text[t]));
                let same = b == c || classes.is_some_and(|of| of[b] == of[c]);
                (t, p) = if same { (t + 1, p + 1) } else { (t, p) };
                same
            }
            Some(&b) if t < text.len() => {
                steps += OTHER_STEPS;
                let at = p + usize::from(Some(b) == escape && p + 1 < pattern.len());
                let (end, after) = (t + width(t), at + long(pattern, at));
                let (one, other) = (&text[t..end], &pattern[at..after]);
                let same = one == other || collation.is_some_and(|c| c.equal_unpadded(one, other));
                if same {
                    (t, p) = (end, after);
                }
                same
            }
            None if t == text.len() => return (true, steps),
            _ => false,
        };
        if !matched {
            let Some((after, from)) = resume else { return (false, steps) };
            if from >= text.len() {
                return (false, steps);
            }
            t = from + width(from);
            p = after;
            resume = Some((after, t));
        }
    }
}
