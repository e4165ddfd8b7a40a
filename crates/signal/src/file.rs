//! What became of a file that a block had written (`Context::write_file` of the kernel).
//!
//! `FileConf` (executor to the block): the file has the new content, and has it after a crash of the machine too, if that was asked for.
//! `FileRef`: it may have the old content or the new one. Answers come in the order in which the files were given.

use crate::codec::{DecodeError, Put, Reader};

/// Body of both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileDone {
    /// As the block gave it.
    pub token: u64,
    /// For people; empty in a `FileConf`.
    pub reason: String,
}

impl FileDone {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.token);
        out.put_bytes(self.reason.as_bytes());
    }
    pub fn decode(body: &[u8]) -> Result<FileDone, DecodeError> {
        let token = Reader::new(body).u64()?;
        let reason = String::from_utf8_lossy(body.get(8..).unwrap_or_default()).into_owned();
        Ok(FileDone { token, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_round_trip_and_refuse() {
        let done = FileDone { token: 7, reason: "no space left".to_owned() };
        let mut out = Vec::new();
        done.encode(&mut out);
        assert_eq!(FileDone::decode(&out), Ok(done));
        assert_eq!(FileDone::decode(&out[..7]), Err(DecodeError));
    }
}
