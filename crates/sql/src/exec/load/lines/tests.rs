//! Tests of `exec::load::lines`.

use apus_types::collate::Charset;

use super::*;

fn format(change: impl FnOnce(&mut Format)) -> Format {
    let mut format = Format::default();
    change(&mut format);
    format
}

/// The rows of a file that comes in pieces of `piece` bytes; NULL is `~`, a row that was cut ends with `+`.
fn read(format: &Format, skips: u64, wanted: usize, file: &[u8], piece: usize) -> Vec<String> {
    read_by(Lines::new(format.clone(), skips), wanted, file, piece)
}

fn read_by(mut lines: Lines, wanted: usize, file: &[u8], piece: usize) -> Vec<String> {
    let (mut pieces, mut rows) = (file.chunks(piece), Vec::new());
    loop {
        match lines.next(wanted, rows.len() + 1).unwrap() {
            Next::End => return rows,
            Next::Missing => match pieces.next() {
                Some(piece) => lines.push(piece),
                None => lines.finish(),
            },
            Next::Row { is_cut } => {
                let show = |i| match lines.field(i).unwrap() {
                    Field::Null => "~".to_owned(),
                    Field::Text(t) => String::from_utf8_lossy(t).into_owned(),
                };
                let row: Vec<String> = (0..lines.field_count()).map(show).collect();
                rows.push(row.join("|") + if is_cut { "+" } else { "" });
            }
        }
    }
}

#[test]
fn rows_of_fixed_lengths() {
    let fixed = format(|f| f.terminated.clear());
    let unended = format(|f| {
        f.terminated.clear();
        f.line.clear();
    });
    for (format, skips, file, rows) in [
        (&fixed, 0, "abcde\nab\n\na\\\nbcde\nabcdefg\nxyz", &["abc|de", "ab", "", "a\nb|cd+", "abc|de+", "xyz"][..]),
        (&fixed, 1, "head\nabcde\n", &["abc|de"]),
        (&unended, 0, "abcdefghijk", &["abc|de", "fgh|ij", "k"]),
        (&fixed, 0, "ab\\", &["ab\\"]),
    ] {
        for piece in 1..=file.len() {
            let lines = Lines::of_fixed(format.clone(), skips, (vec![3, 2], 5));
            assert_eq!(read_by(lines, 2, file.as_bytes(), piece), rows, "{file:?} in pieces of {piece}");
        }
    }
}

#[test]
fn rows_are_the_same_whatever_the_pieces() {
    let csv = format(|f| {
        (f.terminated, f.enclosed) = (b",".to_vec(), Some(b'"'));
    });
    let (comma, starting, none) = (
        format(|f| f.line = b"--".to_vec()),
        format(|f| (f.starting, f.terminated) = (b"xxx".to_vec(), b",,".to_vec())),
        format(|f| (f.line, f.terminated) = (Vec::new(), b",".to_vec())),
    );
    let plain = Format::default();
    for (format, skips, file, rows) in [
        (&plain, 0, "1\ta\tb\n2\t\\N\n3\tc\td\te\n\n4", &["1|a|b", "2|~", "3|c|d+", "", "4"][..]),
        (&plain, 0, "a\\\tb\t\\\\\tx\\Ny\n", &["a\tb|\\|xNy"]),
        (&plain, 2, "h\nm\\\nn\n1\t2\t3\n", &["1|2|3"]),
        (&plain, 9, "h\n1\t2\t3", &[]),
        (&plain, 0, "1\t2\t3\t\n1\t2\t3\t4", &["1|2|3", "1|2|3"]),
        (&csv, 0, "1,\"a, \"\"b\"\"\nc\",NULL\n2,\"NULL\",\\N\n", &["1|a, \"b\"\nc|~", "2|NULL|~"]),
        (&csv, 0, "\"a\"b,c\",d\n\"open", &["a\"b,c|d", "\"open"]),
        (&comma, 0, "1\tb-c\t---2\t--", &["1|b-c|", "-2|"]),
        (&starting, 0, "no\nxx xxxa,,b\nnone\nxxxc", &["a|b", "c"]),
        (&none, 1, "1,2,3,4,5,6,7", &["4|5|6", "7"]),
        (&csv, 0, "ü,☃\"🐦,\"é\"\n", &["ü|☃\"🐦|é"]),
    ] {
        for piece in [1, 2, 3, 5, 1000] {
            assert_eq!(read(format, skips, 3, file.as_bytes(), piece), rows, "{file:?} in pieces of {piece}");
        }
    }
}

#[test]
fn character_sets() {
    let of = |charset| format(|f| f.charset = charset);
    assert_eq!(read(&of(Charset::Latin1), 0, 2, b"\xfc\t\x80\n", 1), ["ü|€"]);
    let mut lines = Lines::new(Format::default(), 0);
    lines.push(b"a\t\xfc\n");
    assert_eq!(lines.next(2, 1).unwrap_err().errno, 1300);
    let mut lines = Lines::new(of(Charset::Binary), 0);
    lines.push(b"\xfc\\0\n");
    assert_eq!(lines.next(1, 1).unwrap(), Next::Row { is_cut: false });
    assert_eq!(lines.field(0), Some(Field::Text(b"\xfc\0")));
}

#[test]
fn a_row_without_end_is_refused_and_lines_that_are_skipped_are_forgotten() {
    let piece = [b'x'; 1 << 16];
    let mut lines = Lines::new(Format::default(), 0);
    let refused = loop {
        match lines.next(1, 7) {
            Ok(Next::Missing) => lines.push(&piece),
            other => break other.unwrap_err(),
        }
    };
    assert!(refused.errno == 1118 && refused.message.contains("row 7"), "{refused:?}");
    assert!(lines.window.len() <= LINE_BYTES_MAX + piece.len());
    for (mut lines, wanted) in
        [(Lines::new(Format::default(), 1), 1), (Lines::new(format(|f| f.starting = b"yy".to_vec()), 0), 1)]
    {
        for _ in 0..2 * (LINE_BYTES_MAX >> 16) {
            lines.push(&piece);
            assert_eq!(lines.next(wanted, 1).unwrap(), Next::Missing);
            assert!(lines.window.len() - lines.at < 4);
        }
    }
}
