//! Collations: sort keys whose byte order is the order of the texts.
//!
//! `GeneralCi` (the default) folds case and strips accents per character and ignores trailing spaces, like MySQL's
//! `utf8mb4_general_ci`. `Utf8mb40900AiCi` uses the same weights but counts trailing spaces (NO PAD): letters compare as in
//! MySQL, the order among punctuation and rare scripts is by code point and differs from the Unicode collation algorithm.
//! Binary collations compare bytes.

use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Collation {
    Binary,
    Utf8mb4Bin,
    #[default]
    Utf8mb4GeneralCi,
    Utf8mb40900AiCi,
    Utf8mb40900Bin,
    AsciiBin,
}

impl Collation {
    pub const ALL: [Collation; 6] = [
        Collation::Binary,
        Collation::Utf8mb4Bin,
        Collation::Utf8mb4GeneralCi,
        Collation::Utf8mb40900AiCi,
        Collation::Utf8mb40900Bin,
        Collation::AsciiBin,
    ];
    /// MySQL's name.
    pub fn name(self) -> &'static str {
        match self {
            Collation::Binary => "binary",
            Collation::Utf8mb4Bin => "utf8mb4_bin",
            Collation::Utf8mb4GeneralCi => "utf8mb4_general_ci",
            Collation::Utf8mb40900AiCi => "utf8mb4_0900_ai_ci",
            Collation::Utf8mb40900Bin => "utf8mb4_0900_bin",
            Collation::AsciiBin => "ascii_bin",
        }
    }
    /// MySQL's collation id.
    pub fn id(self) -> u16 {
        match self {
            Collation::Binary => 63,
            Collation::Utf8mb4Bin => 46,
            Collation::Utf8mb4GeneralCi => 45,
            Collation::Utf8mb40900AiCi => 255,
            Collation::Utf8mb40900Bin => 309,
            Collation::AsciiBin => 65,
        }
    }
    pub fn charset(self) -> &'static str {
        match self {
            Collation::Binary => "binary",
            Collation::AsciiBin => "ascii",
            _ => "utf8mb4",
        }
    }
    pub fn from_id(id: u16) -> Option<Collation> {
        Self::ALL.into_iter().find(|c| c.id() == id)
    }
    /// Also accepts the names that map to one of ours without changing any answer for the texts stored
    /// (`utf8_general_ci`, `utf8mb3_...`).
    pub fn from_name(name: &str) -> Option<Collation> {
        let name = name.to_ascii_lowercase();
        if let Some(found) = Self::ALL.into_iter().find(|c| c.name() == name) {
            return Some(found);
        }
        match name.as_str() {
            "utf8_general_ci" | "utf8mb3_general_ci" | "latin1_swedish_ci" | "utf8mb4_unicode_ci"
            | "utf8_unicode_ci" => Some(Collation::Utf8mb4GeneralCi),
            "utf8_bin" | "utf8mb3_bin" | "latin1_bin" => Some(Collation::Utf8mb4Bin),
            _ => None,
        }
    }
    /// Trailing spaces do not count.
    pub fn pads(self) -> bool {
        matches!(self, Collation::Utf8mb4Bin | Collation::Utf8mb4GeneralCi | Collation::AsciiBin)
    }
    pub fn ignores_case(self) -> bool {
        matches!(self, Collation::Utf8mb4GeneralCi | Collation::Utf8mb40900AiCi)
    }

    /// Calls `emit` with the pieces of the sort key of `text`.
    pub fn sort_key(self, text: &[u8], mut emit: impl FnMut(&[u8])) {
        let text = if self.pads() { trim_spaces(text) } else { text };
        if !self.ignores_case() {
            return emit(text);
        }
        if text.is_ascii() {
            let mut piece = [0u8; 128];
            for chunk in text.chunks(piece.len()) {
                let folded = &mut piece[..chunk.len()];
                folded.copy_from_slice(chunk);
                folded.make_ascii_uppercase();
                emit(folded);
            }
            return;
        }
        let mut utf8 = [0u8; 4];
        for chunk in text.utf8_chunks() {
            for c in chunk.valid().chars().nfd().filter(|&c| !is_combining_mark(c)) {
                for folded in c.to_uppercase() {
                    emit(folded.encode_utf8(&mut utf8).as_bytes());
                }
            }
            emit(chunk.invalid());
        }
    }

    /// Compares two texts without building their keys where both are ASCII or the collation is binary.
    pub fn compare(self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        let (a, b) = if self.pads() { (trim_spaces(a), trim_spaces(b)) } else { (a, b) };
        if !self.ignores_case() {
            return a.cmp(b);
        }
        if a.is_ascii() && b.is_ascii() {
            return a.iter().map(u8::to_ascii_uppercase).cmp(b.iter().map(u8::to_ascii_uppercase));
        }
        let (mut key_a, mut key_b) = (Vec::new(), Vec::new());
        self.sort_key(a, |piece| key_a.extend_from_slice(piece));
        self.sort_key(b, |piece| key_b.extend_from_slice(piece));
        key_a.cmp(&key_b)
    }
}

/// Folds case and strips accents character by character, so that `LIKE` may compare one for one: what would become several
/// characters stays as it is.
pub fn fold(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut utf8 = [0u8; 4];
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            let mut parts = std::iter::once(c).nfd();
            let base = parts.next().filter(|_| parts.all(is_combining_mark)).unwrap_or(c);
            let mut upper = base.to_uppercase();
            let folded = match (upper.next(), upper.next()) {
                (Some(only), None) => only,
                _ => base,
            };
            out.extend_from_slice(folded.encode_utf8(&mut utf8).as_bytes());
        }
        out.extend_from_slice(chunk.invalid());
    }
    out
}

fn trim_spaces(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|&b| b != b' ').map_or(0, |i| i + 1);
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::Collation;
    use std::cmp::Ordering;

    #[test]
    fn case_accents_and_trailing_spaces() {
        let ci = Collation::Utf8mb4GeneralCi;
        assert_eq!(ci.compare(b"Straum  ", b"sTRAUM"), Ordering::Equal);
        assert_eq!(ci.compare("Éa".as_bytes(), b"eA"), Ordering::Equal);
        assert_eq!(ci.compare(b"a", b"b"), Ordering::Less);
        assert_eq!(Collation::Utf8mb4Bin.compare(b"a", b"A"), Ordering::Greater);
        assert_eq!(Collation::Utf8mb40900AiCi.compare(b"a ", b"a"), Ordering::Greater);
        assert_eq!(Collation::Binary.compare(b"a ", b"a"), Ordering::Greater);
    }

    #[test]
    fn folding_keeps_the_number_of_characters() {
        assert_eq!(super::fold("Ärgerß ñЯ%_".as_bytes()), "ARGERß NЯ%_".as_bytes());
        assert_eq!(super::fold("яé가".as_bytes()), "ЯE가".as_bytes());
        assert_eq!(super::fold(b"a\xffb"), b"A\xffB");
    }

    #[test]
    fn invalid_utf8_is_ordered_not_refused() {
        let mut key = Vec::new();
        Collation::Utf8mb4GeneralCi.sort_key(b"a\xffb", |p| key.extend_from_slice(p));
        assert_eq!(key, b"A\xffB");
    }
}
