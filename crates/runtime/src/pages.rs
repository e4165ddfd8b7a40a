//! Memory that goes back to the operating system while it stays allocated. The core makes no system calls: its memory manager is given this function.

#![allow(unsafe_code)]

/// The content of these bytes is not needed any more: the system takes the memory of the pages that are wholly in them, and gives other memory when they are used again. They begin
/// where a page begins; otherwise nothing happens.
pub fn release_memory<const N: usize>(bytes: &mut [u8; N]) {
    // SAFETY: the bytes are ours alone for the time of the call and plain values, and are those of an allocation, so the pages are private and anonymous: what is read of them afterwards is what
    // it was or zero. A refusal changes nothing.
    let refused = unsafe { libc::madvise(bytes.as_mut_ptr().cast(), N, libc::MADV_DONTNEED) } != 0;
    debug_assert!(!refused, "the system does not take pages back: {}", std::io::Error::last_os_error());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_bytes_are_gone_and_usable() {
        let mut block = vec![7u8; 3 * 65_536];
        let aligned = block.as_ptr().align_offset(65_536);
        let bytes: &mut [u8; 65_536] = block[aligned..].first_chunk_mut().unwrap();
        release_memory(bytes);
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(9);
        assert!(bytes.iter().all(|byte| *byte == 9));
        assert!(block[..aligned].iter().chain(&block[aligned + 65_536..]).all(|byte| *byte == 7));
    }
}
