//! Numbers of columns with ZEROFILL: the text of each has as many zeros in front as make it as wide as its column.
//!
//! A row is written like any other and filled when it ends, so that rows of other columns are not asked for each cell. Clients fill the numbers of the binary protocol; a decimal is a
//! text there, and filled by the server in both.

use super::{
    cursor::Cursor,
    packet::{push_lenenc, push_lenenc_bytes},
};

const NULL: u8 = 0xfb;

/// Appends a text cell of at least this width.
pub fn push(out: &mut Vec<u8>, text: &[u8], width: u8) {
    let missing = usize::from(width).saturating_sub(text.len());
    push_lenenc(out, (missing + text.len()) as u64);
    out.resize(out.len() + missing, b'0');
    out.extend_from_slice(text);
}

/// Fills the text cells that begin at `start`; `widths`: of each, 0 where it is told as it is.
pub fn row(out: &mut Vec<u8>, start: usize, widths: impl Iterator<Item = u8>) {
    let cells = out.split_off(start);
    let mut rest = Cursor::new(&cells);
    for width in widths {
        if rest.rest().first() == Some(&NULL) {
            out.push(NULL);
            rest = Cursor::new(&rest.rest()[1..]);
            continue;
        }
        let Ok(text) = rest.lenenc_bytes() else { panic!("a row of fewer cells than columns") };
        if width == 0 { push_lenenc_bytes(out, text) } else { push(out, text, width) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_get_zeros_and_all_else_stays() {
        let mut out = b"before".to_vec();
        let long = vec![b'x'; 300];
        push_lenenc_bytes(&mut out, b"42");
        out.push(NULL);
        push_lenenc_bytes(&mut out, &long);
        push_lenenc_bytes(&mut out, b"1234567");
        push_lenenc_bytes(&mut out, b"7");
        row(&mut out, 6, [5, 5, 0, 5, 255].into_iter());
        let mut wanted = b"before".to_vec();
        push_lenenc_bytes(&mut wanted, b"00042");
        wanted.push(NULL);
        push_lenenc_bytes(&mut wanted, &long);
        push_lenenc_bytes(&mut wanted, b"1234567");
        push_lenenc_bytes(&mut wanted, format!("{:0>255}", 7).as_bytes());
        assert_eq!(out, wanted);
    }
}
