//! What a terminal asks for: the mix of transactions, and what is drawn for each (clauses 2.4.1 to 2.8.1, 5.2.3).

use super::schema::{DISTRICTS, ITEMS};
use crate::bench::numbers::Random;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

pub const KINDS: [Kind; 5] = [Kind::NewOrder, Kind::Payment, Kind::OrderStatus, Kind::Delivery, Kind::StockLevel];

impl Kind {
    pub fn name(self) -> &'static str {
        ["new order", "payment", "order status", "delivery", "stock level"][self as usize]
    }
}

/// A customer by number, or (60 of a hundred) by last name.
#[derive(Clone, Debug)]
pub enum Who {
    Number(u64),
    Name(String),
}

#[derive(Clone, Debug)]
pub struct Line {
    pub item: u64,
    pub supply: u64,
    pub quantity: u64,
}

/// A transaction with all that was drawn for it, so that it can be tried again as it was.
#[derive(Clone, Debug)]
pub enum Input {
    /// The last item of one in a hundred does not exist, so that it rolls back.
    NewOrder {
        d: u64,
        c: u64,
        lines: Vec<Line>,
    },
    /// `of`: warehouse and district of the customer.
    Payment {
        d: u64,
        of: (u64, u64),
        who: Who,
        cents: u64,
    },
    OrderStatus {
        d: u64,
        who: Who,
    },
    Delivery {
        carrier: u64,
    },
    StockLevel {
        d: u64,
        below: u64,
    },
}

impl Input {
    pub fn kind(&self) -> Kind {
        match self {
            Input::NewOrder { .. } => Kind::NewOrder,
            Input::Payment { .. } => Kind::Payment,
            Input::OrderStatus { .. } => Kind::OrderStatus,
            Input::Delivery { .. } => Kind::Delivery,
            Input::StockLevel { .. } => Kind::StockLevel,
        }
    }
}

/// The kinds as they come, 45, 43, 4, 4 and 4 of a hundred: a deck of cards that is shuffled when it is through (5.2.4.2).
#[derive(Default)]
pub struct Deck(Vec<Kind>);

impl Deck {
    fn next(&mut self, random: &mut Random) -> Kind {
        if self.0.is_empty() {
            let counts = [45, 43, 4, 4, 4];
            self.0.extend(KINDS.iter().zip(counts).flat_map(|(&kind, count)| std::iter::repeat_n(kind, count)));
        }
        let at = random.below(self.0.len() as u64) as usize;
        self.0.swap_remove(at)
    }

    /// The next transaction of a terminal of warehouse `w`, one of `warehouses`; its district, where a terminal has one for good.
    pub fn draw(&mut self, w: u64, warehouses: u64, home: u64, r: &mut Random) -> Input {
        let d = r.between(1, DISTRICTS);
        let other = |r: &mut Random| {
            let at = r.between(1, warehouses.max(2) - 1);
            if warehouses < 2 { w } else { at + u64::from(at >= w) }
        };
        match self.next(r) {
            Kind::NewOrder => {
                let c = r.customer();
                let rolls_back = r.percent(1);
                let count = r.between(5, 15);
                let mut line = |_| {
                    let supply = if r.percent(1) { other(r) } else { w };
                    Line { item: r.item(), supply, quantity: r.between(1, 10) }
                };
                let mut lines: Vec<Line> = (0..count).map(&mut line).collect();
                lines.sort_by_key(|line| (line.supply, line.item));
                if let (true, Some(last)) = (rolls_back, lines.last_mut()) {
                    last.item = ITEMS + 1;
                }
                Input::NewOrder { d, c, lines }
            }
            Kind::Payment => {
                let of = if r.percent(85) { (w, d) } else { (other(r), r.between(1, DISTRICTS)) };
                Input::Payment { d, of, who: who(r), cents: r.between(100, 500_000) }
            }
            Kind::OrderStatus => Input::OrderStatus { d, who: who(r) },
            Kind::Delivery => Input::Delivery { carrier: r.between(1, 10) },
            Kind::StockLevel => Input::StockLevel { d: home, below: r.between(10, 20) },
        }
    }
}

fn who(r: &mut Random) -> Who {
    if r.percent(60) { Who::Name(r.last_name_run()) } else { Who::Number(r.customer()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_and_its_distributions_are_the_specifications() {
        let (mut deck, mut random) = (Deck::default(), Random::new(11));
        let (mut counts, mut back, mut lines, mut remote_lines, mut payments, mut remote) = ([0; 5], 0, 0, 0, 0, 0);
        for _ in 0..100_000 {
            let input = deck.draw(2, 4, 7, &mut random);
            counts[input.kind() as usize] += 1;
            match input {
                Input::NewOrder { lines: all, .. } => {
                    back += u64::from(all.iter().any(|l| l.item > ITEMS));
                    lines += all.len();
                    remote_lines += all.iter().filter(|l| l.supply != 2).count();
                    assert!(all.iter().all(|l| (1..=4).contains(&l.supply)));
                }
                Input::Payment { of: (w, _), .. } => {
                    payments += 1;
                    remote += i32::from(w != 2);
                }
                _ => {}
            }
        }
        assert_eq!(counts, [45_000, 43_000, 4000, 4000, 4000]);
        assert!((300..600).contains(&back), "{back} of 45,000 orders roll back");
        assert!((lines / 130..lines / 77).contains(&remote_lines), "{remote_lines} of {lines} lines are remote");
        assert!((payments * 14..payments * 16).contains(&(remote * 100)), "{remote} of {payments} payments are remote");
        // One warehouse has no other.
        assert!(
            (0..1000).all(|_| !matches!(deck.draw(1, 1, 1, &mut random), Input::Payment { of: (w, _), .. } if w != 1))
        );
    }
}
