//! Writes the sort key of each line, which is hexadecimal, as hexadecimal: `sort_keys COLLATION < texts > keys`. For tests/reference/collations.py.

use std::io::{BufRead, BufWriter, Write};

use apus_types::collate::Collation;

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some(collation) = Collation::from_name(&name) else { return eprintln!("no collation {name}") };
    let mut out = BufWriter::new(std::io::stdout().lock());
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let bytes: Vec<u8> =
            line.as_bytes().chunks(2).filter_map(|c| u8::from_str_radix(str::from_utf8(c).ok()?, 16).ok()).collect();
        let mut key = String::new();
        collation.sort_key(&bytes, |piece| piece.iter().for_each(|b| key.push_str(&format!("{b:02x}"))));
        if writeln!(out, "{key}").is_err() {
            return;
        }
    }
}
