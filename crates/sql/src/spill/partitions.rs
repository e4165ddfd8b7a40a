//! Records parted by a hash of their key, so that those of one key are in one stream and the rest is small.

use std::rc::Rc;

use apus_types::hash::hash_key;

use super::{
    DEPTH_MAX, PARTITIONS,
    file::File,
    stream::{Stream, Writer},
};
use crate::{errors::Result, expr::Env};

/// Bits of a hash that tell partitions apart.
const BITS: u32 = PARTITIONS.trailing_zeros();

/// Streams that are being written.
#[derive(Debug)]
pub struct Partitions {
    file: File,
    writers: Vec<Writer>,
    depth: u32,
    is_full: bool,
}

impl Partitions {
    /// `depth`: how often the records were parted before.
    ///
    /// # Errors
    /// As [`File::create`].
    pub async fn new(depth: u32, env: &Env) -> Result<Partitions> {
        assert!(depth < DEPTH_MAX, "a level without bits of its own");
        let writers = (0..PARTITIONS).map(|_| Writer::default()).collect();
        Ok(Partitions { file: File::create(env).await?, writers, depth, is_full: false })
    }

    /// Adds a record with a payload in parts; whoever adds many lets them [`settle`](Partitions::settle).
    pub fn push(&mut self, key: &[u8], payload: &[&[u8]]) {
        let place = hash_key(key) >> (u64::BITS - BITS * (self.depth + 1));
        let writer = &mut self.writers[place as usize % PARTITIONS];
        writer.push_parts(key, payload);
        self.is_full |= writer.is_full();
    }

    /// Writes what is to be written.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn settle(&mut self, env: &Env) -> Result<()> {
        if std::mem::take(&mut self.is_full) {
            for writer in self.writers.iter_mut().filter(|writer| writer.is_full()) {
                writer.flush(&self.file, env).await?;
            }
        }
        Ok(())
    }

    /// The streams, by number.
    ///
    /// # Errors
    /// As [`File::append`].
    pub async fn end(self, env: &Env) -> Result<Vec<Rc<Stream>>> {
        let mut streams = Vec::with_capacity(PARTITIONS);
        for writer in self.writers {
            streams.push(Rc::new(writer.end(&self.file, env).await?));
        }
        Ok(streams)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spill::Reader;

    #[test]
    fn each_level_parts_what_the_one_before_left_together() {
        let env = Env::new("root".into(), "localhost".into(), 7, 1, Default::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut parts = Partitions::new(0, &env).await.unwrap();
            for n in 0..20_000u32 {
                parts.push(&n.to_le_bytes(), &[b"payload of ", &n.to_be_bytes()]);
                parts.settle(&env).await.unwrap();
            }
            let streams = parts.end(&env).await.unwrap();
            assert_eq!(streams.iter().map(|stream| stream.records()).sum::<u64>(), 20_000);
            assert!(streams.iter().all(|stream| stream.records() > 300));
            let mut again = Partitions::new(1, &env).await.unwrap();
            let mut reader = Reader::new(streams[5].clone());
            while reader.advance(&env).await.unwrap() {
                let n = u32::from_le_bytes(reader.key().try_into().unwrap());
                assert_eq!(reader.payload()[11..], n.to_be_bytes());
                again.push(reader.key(), &[reader.payload()]);
            }
            let streams = again.end(&env).await.unwrap();
            assert!(streams.iter().filter(|stream| stream.records() > 5).count() > PARTITIONS / 2);
        });
    }
}
