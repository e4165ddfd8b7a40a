//! The lines that are understood.

use std::net::SocketAddr;

/// Longest delay, in milliseconds.
const DELAY_MAX_MS: u64 = 600_000;

/// From whom to whom.
pub type Direction = (String, String);

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Command {
    Link { from: String, to: String, listen: SocketAddr, target: SocketAddr },
    Delay { direction: Direction, ms: u64, jitter_ms: u64 },
    Rate { direction: Direction, bytes: u64 },
    Loss { direction: Direction, permille: u64 },
    Cut { direction: Direction },
    Reset { direction: Direction },
    Heal { direction: Direction },
    HealAll,
    Stats,
}

fn number(word: &str, max: u64) -> Result<u64, String> {
    match word.parse() {
        Ok(n) if n <= max => Ok(n),
        _ => Err(format!("{word:?} is no number from 0 to {max}")),
    }
}

fn address(word: &str) -> Result<SocketAddr, String> {
    word.parse().map_err(|_| format!("{word:?} is no address and port"))
}

impl Command {
    /// # Errors
    /// The line is none of ours; the text says why.
    pub fn parse(line: &str) -> Result<Command, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let direction = |a: &&str, b: &&str| ((*a).to_owned(), (*b).to_owned());
        match words.as_slice() {
            ["link", a, b, listen, target] => {
                let (from, to) = direction(a, b);
                Ok(Command::Link { from, to, listen: address(listen)?, target: address(target)? })
            }
            ["delay", a, b, ms, jitter @ ..] if jitter.len() <= 1 => Ok(Command::Delay {
                direction: direction(a, b),
                ms: number(ms, DELAY_MAX_MS)?,
                jitter_ms: number(jitter.first().unwrap_or(&"0"), DELAY_MAX_MS)?,
            }),
            ["rate", a, b, bytes] => {
                Ok(Command::Rate { direction: direction(a, b), bytes: number(bytes, u64::from(u32::MAX))? })
            }
            ["loss", a, b, permille] => {
                Ok(Command::Loss { direction: direction(a, b), permille: number(permille, 1000)? })
            }
            ["cut", a, b] => Ok(Command::Cut { direction: direction(a, b) }),
            ["reset", a, b] => Ok(Command::Reset { direction: direction(a, b) }),
            ["heal", a, b] => Ok(Command::Heal { direction: direction(a, b) }),
            ["heal"] => Ok(Command::HealAll),
            ["stats"] => Ok(Command::Stats),
            _ => Err(format!("{line:?} is no command")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood_or_refused() {
        let direction = ("a".to_owned(), "b".to_owned());
        let delay = |ms, jitter_ms| Ok(Command::Delay { direction: direction.clone(), ms, jitter_ms });
        assert_eq!(Command::parse("delay a b 5"), delay(5, 0));
        assert_eq!(Command::parse(" delay a b 5 3 "), delay(5, 3));
        assert_eq!(Command::parse("cut a b"), Ok(Command::Cut { direction: direction.clone() }));
        assert_eq!(Command::parse("heal"), Ok(Command::HealAll));
        assert!(matches!(Command::parse("link a b 127.0.0.1:0 127.0.0.1:7"), Ok(Command::Link { .. })));
        let wrong = [
            "",
            "cut a",
            "delay a b",
            "delay a b x",
            "delay a b 1 2 3",
            "loss a b 1001",
            "rate a b -1",
            "link a b c d",
        ];
        for line in wrong {
            assert!(Command::parse(line).is_err(), "{line}");
        }
    }
}
