//! What TPC-C draws (clauses 2.1.6 and 4.3.2): numbers where some come more often, names of syllables, strings.

use crate::bench::numbers::Random;

const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The constants of NURand. That for last names differs between loading and running by 65 to 119, neither 96 nor 112 (2.1.6.1).
const C_LAST_LOADED: u64 = 157;
const C_LAST_RUN: u64 = C_LAST_LOADED + 71;
const C_CUSTOMER: u64 = 511;
const C_ITEM: u64 = 4099;

impl Random {
    /// `low..=high`, each as often.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
    /// So many times of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    fn uneven(&mut self, a: u64, c: u64, low: u64, high: u64) -> u64 {
        let mixed = self.between(0, a) | self.between(low, high);
        (mixed + c) % (high - low + 1) + low
    }
    pub fn customer(&mut self) -> u64 {
        self.uneven(1023, C_CUSTOMER, 1, super::schema::CUSTOMERS)
    }
    pub fn item(&mut self) -> u64 {
        self.uneven(8191, C_ITEM, 1, super::schema::ITEMS)
    }
    pub fn last_name_run(&mut self) -> String {
        let number = self.uneven(255, C_LAST_RUN, 0, 999);
        last_name(number)
    }
    pub fn last_name_loaded(&mut self) -> String {
        let number = self.uneven(255, C_LAST_LOADED, 0, 999);
        last_name(number)
    }
    /// Letters, `low..=high` of them.
    pub fn letters(&mut self, low: u64, high: u64) -> String {
        let count = self.between(low, high);
        (0..count).map(|_| LETTERS[self.below(LETTERS.len() as u64) as usize] as char).collect()
    }
    pub fn digits(&mut self, count: u64) -> String {
        (0..count).map(|_| (b'0' + self.below(10) as u8) as char).collect()
    }
    /// As of items and stock: ten of a hundred hold the word ORIGINAL.
    pub fn data(&mut self) -> String {
        let mut text = self.letters(26, 50);
        if self.percent(10) {
            let at = self.below(text.len() as u64 - 7) as usize;
            text.replace_range(at..at + 8, "ORIGINAL");
        }
        text
    }
    pub fn zip(&mut self) -> String {
        format!("{}11111", self.digits(4))
    }
    /// The numbers 1 to `count` in any order.
    pub fn permutation(&mut self, count: u64) -> Vec<u64> {
        let mut all: Vec<u64> = (1..=count).collect();
        for at in (1..all.len()).rev() {
            all.swap(at, self.below(at as u64 + 1) as usize);
        }
        all
    }
}

/// The last name of a number below 1000 (4.3.2.3).
pub fn last_name(number: u64) -> String {
    [number / 100, number / 10 % 10, number % 10].map(|digit| SYLLABLES[digit as usize % 10]).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_in_their_ranges() {
        let mut random = Random::new(3);
        for _ in 0..2000 {
            assert!((1..=3000).contains(&random.customer()));
            assert!((1..=100_000).contains(&random.item()));
            assert!((26..=50).contains(&random.data().len()));
        }
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        let mut all = random.permutation(100);
        all.sort_unstable();
        assert_eq!(all, (1..=100).collect::<Vec<_>>());
    }

    #[test]
    fn some_customers_come_more_often() {
        let mut random = Random::new(5);
        let mut counts = vec![0u32; 3001];
        (0..300_000).for_each(|_| counts[random.customer() as usize] += 1);
        counts.sort_unstable();
        let most: u32 = counts.iter().rev().take(300).sum();
        assert!(most > 60_000, "a tenth of the customers got {most} of 300,000 draws: they are even");
    }
}
