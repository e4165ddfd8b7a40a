//! Long work of a statement, in turns: a SQL node has one thread for many connections, and no statement keeps it.

use std::cmp::Ordering;

use crate::{errors::Result, expr::Env};

/// What is sorted in one turn, in items.
const RUN: usize = 512;

/// Sorts a list that may be long: runs of [`RUN`], which are merged. Equal items may change places. Takes the list's memory a second time meanwhile.
///
/// # Errors
/// KILL, the deadline; the list is in some order then.
pub async fn sort<T: Copy>(items: &mut Vec<T>, order: impl Fn(&T, &T) -> Ordering, env: &Env) -> Result<()> {
    for run in items.chunks_mut(RUN) {
        run.sort_unstable_by(&order);
        env.breathe(run.len()).await?;
    }
    let mut merged = Vec::with_capacity(if items.len() > RUN { items.len() } else { 0 });
    let mut sorted = RUN;
    while sorted < items.len() {
        merged.clear();
        for two in items.chunks(2 * sorted) {
            let (mut left, mut right) = two.split_at(sorted.min(two.len()));
            while let (Some(first), Some(second)) = (left.first(), right.first()) {
                let from = if order(second, first).is_lt() { &mut right } else { &mut left };
                merged.extend(from.split_off_first());
                env.breathe(1).await?;
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        std::mem::swap(items, &mut merged);
        sorted *= 2;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;

    #[test]
    fn sorts_lists_of_any_length_and_lets_others_have_their_turn() {
        let env = Env::new("root".into(), "localhost".into(), 7, 1, Default::default());
        for length in [0, 1, RUN - 1, RUN, RUN + 1, 3 * RUN + 7, 40 * RUN] {
            let mut items: Vec<u32> = (0..length as u32).map(|n| n.wrapping_mul(2_654_435_761) % 10_007).collect();
            let mut wanted = items.clone();
            wanted.sort_unstable();
            let mut turns = 0;
            {
                let mut sorting = std::pin::pin!(sort(&mut items, Ord::cmp, &env));
                while sorting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                    turns += 1;
                }
            }
            assert_eq!(items, wanted, "{length}");
            assert!(turns >= length / RUN, "{turns} turns for {length}");
        }
    }
}
