//! What became of a file that a block had written (`Context::write_file` of the kernel).
//!
//! `FileConf` (executor to the block): the file has the new content, and has it after a crash of the machine too, if that was asked for.
//! `FileRef`: it may have the old content or the new one. Answers come in the order in which the files were given.
//!
//! And of a request to a file that is written in pieces (`Context::disk`): `DiskConf`, or `DiskRef`, after which a write may have been done in
//! part. Answers of one file come in the order of asking.
//!
//! What is kept in such a file is sealed, so that one that was cut off or changed is not taken for what was written:
//!
//! ```text
//! 0 magic u64 | 8 hash of the body u64 | 16 body
//! ```

use apus_types::hash::hash_key;

use crate::codec::{DecodeError, Put, Reader};

/// The content of a file with this body; `magic` names its kind and version.
pub fn seal(magic: [u8; 8], body: &[u8]) -> Vec<u8> {
    let mut out = magic.to_vec();
    out.put_u64(hash_key(body));
    out.extend_from_slice(body);
    out
}

/// The body of a file.
///
/// # Errors
/// What is wrong with it, for people: "the file ..." goes before.
pub fn unseal(magic: [u8; 8], content: &[u8]) -> Result<&[u8], &'static str> {
    let mut r = Reader::new(content);
    let (Ok(found), Ok(hash)) = (r.u64(), r.u64()) else { return Err("is cut off") };
    let body = content.get(16..).unwrap_or_default();
    if found != u64::from_le_bytes(magic) {
        return Err("is of another kind or release");
    }
    if hash != hash_key(body) {
        return Err("is damaged (its hash is wrong)");
    }
    Ok(body)
}

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

/// Body of `DiskConf`: `token u64`, and what was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskConf<'a> {
    /// As the block gave it.
    pub token: u64,
    /// Of a read; empty for anything else.
    pub bytes: &'a [u8],
}

impl<'a> DiskConf<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.token);
        out.put_bytes(self.bytes);
    }
    pub fn decode(body: &'a [u8]) -> Result<DiskConf<'a>, DecodeError> {
        let mut r = Reader::new(body);
        Ok(DiskConf { token: r.u64()?, bytes: r.rest() })
    }
}

/// Body of `DiskRef`: `token u64, full u8`, and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskRef {
    pub token: u64,
    /// There is no room; anything else is an error of the disk.
    pub full: bool,
    /// For people.
    pub reason: String,
}

impl DiskRef {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.token);
        out.put_u8(u8::from(self.full));
        out.put_bytes(self.reason.as_bytes());
    }
    pub fn decode(body: &[u8]) -> Result<DiskRef, DecodeError> {
        let mut r = Reader::new(body);
        let (token, full) = (r.u64()?, r.u8()? != 0);
        Ok(DiskRef { token, full, reason: String::from_utf8_lossy(r.rest()).into_owned() })
    }
}

/// How the disk of a log does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiskState {
    #[default]
    Answers,
    /// It has answered nothing for a while.
    Late,
    /// ... for so long that it cannot be waited for.
    Hangs,
    /// A write or a sync has failed; it stays so.
    Broken,
}

/// `DiskRep` (LDM to QMGR of its node), when the state changes: `instance u8, state u8`, and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskRep {
    pub instance: u8,
    pub state: DiskState,
    /// For people; empty: it answers.
    pub reason: String,
}

impl DiskRep {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.instance);
        out.put_u8(self.state as u8);
        out.put_bytes(self.reason.as_bytes());
    }
    pub fn decode(body: &[u8]) -> Result<DiskRep, DecodeError> {
        let mut r = Reader::new(body);
        let instance = r.u8()?;
        let state = match r.u8()? {
            0 => DiskState::Answers,
            1 => DiskState::Late,
            2 => DiskState::Hangs,
            3 => DiskState::Broken,
            _ => return Err(DecodeError),
        };
        Ok(DiskRep { instance, state, reason: String::from_utf8_lossy(r.rest()).into_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_or_changed_is_refused() {
        let (magic, body) = (*b"APUSTEST", b"some body");
        let content = seal(magic, body);
        assert_eq!(unseal(magic, &content), Ok(&body[..]));
        assert!(unseal(*b"APUSTEXT", &content).is_err());
        for at in 0..content.len() {
            assert!(unseal(magic, &content[..at]).is_err(), "cut off at {at}");
            let mut bad = content.clone();
            bad[at] ^= 1;
            assert!(unseal(magic, &bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn answers_round_trip_and_refuse() {
        let done = FileDone { token: 7, reason: "no space left".to_owned() };
        let mut out = Vec::new();
        done.encode(&mut out);
        assert_eq!(FileDone::decode(&out), Ok(done));
        assert_eq!(FileDone::decode(&out[..7]), Err(DecodeError));
    }

    #[test]
    fn states_of_the_disk_round_trip_and_refuse() {
        for state in [DiskState::Answers, DiskState::Late, DiskState::Hangs, DiskState::Broken] {
            let (rep, mut out) = (DiskRep { instance: 3, state, reason: "why".to_owned() }, Vec::new());
            rep.encode(&mut out);
            assert_eq!(DiskRep::decode(&out), Ok(rep));
            out[1] = 4;
            assert_eq!(DiskRep::decode(&out), Err(DecodeError));
        }
    }

    #[test]
    fn answers_of_the_disk_round_trip_and_refuse() {
        let (conf, mut out) = (DiskConf { token: 8, bytes: b"what was read" }, Vec::new());
        conf.encode(&mut out);
        assert_eq!(DiskConf::decode(&out), Ok(conf));
        assert_eq!(DiskConf::decode(&out[..7]), Err(DecodeError));
        for full in [false, true] {
            let refused = DiskRef { token: 9, full, reason: "why".to_owned() };
            out.clear();
            refused.encode(&mut out);
            assert_eq!(DiskRef::decode(&out), Ok(refused));
            assert_eq!(DiskRef::decode(&out[..8]), Err(DecodeError));
        }
    }
}
