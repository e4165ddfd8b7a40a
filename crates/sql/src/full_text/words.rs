//! The words of a text, as InnoDB's full-text parser takes them.

use std::{borrow::Cow, collections::HashSet};

use apus_types::collate::Collation;

/// Words of fewer or more characters are not searched (`innodb_ft_min_token_size`, `innodb_ft_max_token_size`).
pub const LENGTHS: std::ops::RangeInclusive<usize> = 3..=84;

/// INFORMATION_SCHEMA.INNODB_FT_DEFAULT_STOPWORD.
pub const STOPWORDS: [&str; 36] = [
    "a", "about", "an", "are", "as", "at", "be", "by", "com", "de", "en", "for", "from", "how", "i", "in", "is", "it",
    "la", "of", "on", "or", "that", "the", "this", "to", "was", "what", "when", "where", "who", "will", "with", "und",
    "the", "www",
];

/// Letters, digits and underscores in a row.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !is_of_word(c)).filter(|word| !word.is_empty())
}

fn is_of_word(c: char) -> bool {
    // Combining marks belong to the letter before them.
    c.is_alphanumeric() || c == '_' || matches!(c, '\u{300}'..='\u{36f}')
}

/// A collation that orders by case does not tell words apart by it; one that compares bytes does.
pub fn folded(collation: Collation, word: &str) -> Cow<'_, str> {
    match collation.is_binary() || collation.ignores_case() {
        true => Cow::Borrowed(word),
        false => Cow::Owned(word.to_lowercase()),
    }
}

/// Two words are the same for a collation if their keys are.
pub fn push_key(collation: Collation, word: &str, key: &mut Vec<u8>) {
    key.clear();
    collation.sort_key(folded(collation, word).as_bytes(), |part| key.extend_from_slice(part));
}

/// What a search passes over.
#[derive(Clone)]
pub struct Filter {
    collation: Collation,
    stopwords: HashSet<Vec<u8>>,
}

impl Filter {
    pub fn new(collation: Collation) -> Filter {
        let key = |word: &&str| {
            let mut key = Vec::new();
            push_key(collation, word, &mut key);
            key
        };
        Filter { collation, stopwords: STOPWORDS.iter().map(key).collect() }
    }
    pub fn collation(&self) -> Collation {
        self.collation
    }
    /// Whether a word with this key can be found.
    pub fn takes(&self, word: &str, key: &[u8]) -> bool {
        LENGTHS.contains(&word.chars().count()) && !self.stopwords.contains(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_where_no_letter_digit_or_underscore_stands() {
        let all: Vec<&str> = words("Don't stop_me, 3.14 naïve—東京 x").collect();
        assert_eq!(all, ["Don", "t", "stop_me", "3", "14", "naïve", "東京", "x"]);
        assert_eq!(words("  ...  ").count(), 0);
    }

    #[test]
    fn short_words_long_words_and_stopwords_are_passed_over() {
        let filter = Filter::new(Collation::Utf8mb4GeneralCi);
        let takes = |word: &str| {
            let mut key = Vec::new();
            push_key(filter.collation(), word, &mut key);
            filter.takes(word, &key)
        };
        assert!(takes("word") && takes("äöü") && takes(&"x".repeat(84)));
        assert!(!takes("ab") && !takes("THE") && !takes("What") && !takes(&"x".repeat(85)));
    }
}
