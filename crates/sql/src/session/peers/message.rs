//! What SQL nodes write for each other, and how much of it.

use prost::Message;

use crate::server::{Process, limits};

/// Bytes of what a SQL node tells of its connections: it is one row.
pub const ANSWER_BYTES_MAX: usize = 3 << 20;
/// Of which connections it tells statements so far, the first of these with which all find room.
const INFO_BYTES: [usize; 5] = [limits::INFO_BYTES_MAX, 1024, 256, 64, 0];
/// Answers that have attributes still, behind the one that was asked for them.
const ATTRIBUTES_KEPT: u64 = 8;
/// Of connections to be ended at a time, over SQL nodes; one more takes the place of the oldest.
pub const KILLS_MAX: usize = 64;

/// What is asked of all SQL nodes: one row.
#[derive(Clone, PartialEq, Message)]
pub struct Asked {
    /// How often their connections were asked for.
    #[prost(uint64, tag = "1")]
    pub lists: u64,
    /// The number that was given to a SQL node last.
    #[prost(uint32, tag = "2")]
    pub last_number: u32,
    #[prost(message, repeated, tag = "3")]
    pub kills: Vec<Kill>,
    /// Which of the questions for connections wanted their attributes last.
    #[prost(uint64, tag = "4")]
    pub attributes: u64,
}

impl Asked {
    /// One more question.
    pub fn ask(&mut self, with_attributes: bool) {
        self.lists += 1;
        if with_attributes {
            self.attributes = self.lists;
        }
    }
    /// Whether somebody wants attributes who has asked behind this question, or shortly before it and may not have read them yet.
    pub fn wants_attributes(&self, answered: u64) -> bool {
        self.attributes > 0 && self.attributes + ATTRIBUTES_KEPT > answered
    }
}

/// A connection is to be ended, or its statement.
#[derive(Clone, PartialEq, Message)]
pub struct Kill {
    /// By chance.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint32, tag = "2")]
    pub id: u32,
    #[prost(bool, tag = "3")]
    pub query: bool,
    /// Who wants it, and whether he may do so to others.
    #[prost(string, tag = "4")]
    pub user: String,
    #[prost(bool, tag = "5")]
    pub any: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Outcome {
    Done = 0,
    Unknown = 1,
    NotOwner = 2,
}

/// What has become of kills that are still asked for.
#[derive(Clone, PartialEq, Message)]
pub struct Outcomes {
    #[prost(uint64, repeated, tag = "1")]
    pub numbers: Vec<u64>,
    #[prost(enumeration = "Outcome", repeated, tag = "2")]
    pub outcomes: Vec<i32>,
}

impl Outcomes {
    pub fn add(&mut self, number: u64, outcome: Outcome) {
        self.numbers.push(number);
        self.outcomes.push(outcome.into());
    }
    pub fn find(&self, number: u64) -> Option<Outcome> {
        let at = self.numbers.iter().position(|n| *n == number)?;
        Outcome::try_from(*self.outcomes.get(at)?).ok()
    }
}

/// The connections of a SQL node.
#[derive(Clone, PartialEq, Message)]
pub struct Answer {
    #[prost(message, repeated, tag = "1")]
    pub processes: Vec<Process>,
    /// Connections that have found no room.
    #[prost(uint64, tag = "2")]
    pub left_out: u64,
}

impl Answer {
    /// As much of it as has room: rather all connections than long statements.
    pub fn fitting(processes: Vec<Process>) -> Answer {
        let mut answer = Answer { processes, left_out: 0 };
        for bytes in INFO_BYTES {
            answer.processes.iter_mut().for_each(|process| process.cut_info(bytes));
            if answer.encoded_len() <= ANSWER_BYTES_MAX {
                return answer;
            }
        }
        let all = answer.processes.len();
        let mut room = ANSWER_BYTES_MAX - 64;
        let has_room = |process: &&Process| {
            // A field and its length stand before each.
            let needed = process.encoded_len() + 16;
            room = room.saturating_sub(needed);
            room > 0
        };
        let fits = answer.processes.iter().take_while(has_room).count();
        answer.processes.truncate(fits);
        answer.left_out = (all - fits) as u64;
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_many(count: usize, info: usize, host: usize) -> Answer {
        let one = Process { info: Some("x".repeat(info)), host: "h".repeat(host), ..Process::default() };
        Answer::fitting(vec![one; count])
    }

    #[test]
    fn what_is_long_is_cut_before_a_connection_is_left_out() {
        let whole = of_many(100, limits::INFO_BYTES_MAX, 9);
        assert_eq!((whole.left_out, whole.processes[0].info().len()), (0, limits::INFO_BYTES_MAX));
        let cut = of_many(limits::CONNECTIONS_MAX_DEFAULT, limits::INFO_BYTES_MAX, 60);
        assert_eq!((cut.left_out, cut.processes.len(), cut.processes[0].info().len()), (0, 10_000, 64));
        let many = of_many(20_000, 10, 200);
        assert!(many.left_out > 0 && many.encoded_len() <= ANSWER_BYTES_MAX);
        assert_eq!(many.left_out as usize + many.processes.len(), 20_000);
        assert!(many.encoded_len() > ANSWER_BYTES_MAX / 10 * 9, "no more than has to be");
    }

    #[test]
    fn outcomes_are_found_by_the_numbers_of_kills() {
        let mut outcomes = Outcomes::default();
        outcomes.add(7, Outcome::NotOwner);
        outcomes.add(u64::MAX, Outcome::Done);
        assert_eq!((outcomes.find(7), outcomes.find(u64::MAX)), (Some(Outcome::NotOwner), Some(Outcome::Done)));
        assert_eq!(outcomes.find(8), None);
        (0..KILLS_MAX as u64 - 2).for_each(|number| outcomes.add(u64::MAX - number, Outcome::NotOwner));
        assert!(outcomes.encoded_len() <= super::super::rows::OUTCOMES_BYTES.into(), "they have room in their column");
    }
}
