//! Passwords as they are kept, in MySQL's own forms, so that dumps of accounts can be read in.
//!
//! `mysql_native_password`: `*` and the hexadecimal digits of `SHA1(SHA1(p))`. `caching_sha2_password`: `$A$`, three hexadecimal digits (rounds in thousands), `$`, a salt of 20 bytes and 43 characters
//! of the SHA-crypt of password and salt (Drepper's SHA-256 scheme, with the whole salt).
//!
//! A kept SHA-crypt cannot check the short proof that clients send first, which needs `SHA256(SHA256(p))`. So a client has to send its password once (encrypted); what it says is remembered
//! by the process until it ends ([`crate::server::Accounts`]).

use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::Secret;

const SALT_BYTES: usize = 20;
const HASH_CHARS: usize = 43;
const HEAD: &str = "$A$";
/// MySQL's default, and what new passwords get.
const THOUSANDS: u32 = 5;
/// More rounds than these would keep a thread from its other connections for too long.
const THOUSANDS_MAX: u32 = 100;
/// Longest password in bytes, as in MySQL.
pub const PASSWORD_BYTES_MAX: usize = 256;

const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// A new password for `caching_sha2_password`; `random` makes its salt.
pub fn sha2(password: &str, random: [u8; SALT_BYTES]) -> Secret {
    if password.is_empty() {
        return Secret::Empty;
    }
    let salt = random.map(|b| DIGITS[usize::from(b % 64)]);
    let hash = sha_crypt(password.as_bytes(), &salt, THOUSANDS * 1000);
    Secret::Sha2(format!("{HEAD}{THOUSANDS:03X}${}{hash}", String::from_utf8_lossy(&salt)))
}

/// A new password for `mysql_native_password`.
pub fn native(password: &str) -> Secret {
    if password.is_empty() { Secret::Empty } else { Secret::Native(Sha1::digest(Sha1::digest(password)).into()) }
}

/// A password in MySQL's form; `None`: it is none.
pub fn parse_sha2(text: &str) -> Option<Secret> {
    if text.is_empty() {
        return Some(Secret::Empty);
    }
    parts(text).map(|_| Secret::Sha2(text.to_owned()))
}

pub fn parse_native(text: &str) -> Option<Secret> {
    if text.is_empty() {
        return Some(Secret::Empty);
    }
    let digits = text.strip_prefix('*').filter(|d| d.len() == 40 && d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    let bytes = crate::parse::digest::literal::from_hex(digits.as_bytes());
    bytes.try_into().ok().map(Secret::Native)
}

/// MySQL's form of a native digest.
pub fn native_text(digest: &[u8; 20]) -> String {
    let digits: String = digest.iter().map(|b| format!("{b:02X}")).collect();
    format!("*{digits}")
}

/// Rounds, salt and hash.
fn parts(text: &str) -> Option<(u32, &[u8], &str)> {
    let rest = text.strip_prefix(HEAD)?;
    let (thousands, rest) = rest.split_at_checked(3)?;
    let thousands = u32::from_str_radix(thousands, 16).ok().filter(|n| (THOUSANDS..=THOUSANDS_MAX).contains(n))?;
    let rest = rest.strip_prefix('$')?;
    let bytes = rest.as_bytes();
    let is_digit = |b: &u8| DIGITS.contains(b);
    let hash = rest.get(SALT_BYTES..).filter(|h| h.len() == HASH_CHARS && h.bytes().all(|b| is_digit(&b)))?;
    Some((thousands * 1000, bytes.get(..SALT_BYTES)?, hash))
}

/// Whether a password in clear is the one that is kept as `text`. It takes as long for a wrong one as for the right one.
pub fn is_password(text: &str, password: &[u8]) -> bool {
    let Some((rounds, salt, hash)) = parts(text) else { return false };
    let made = sha_crypt(password, salt, rounds);
    made.bytes().zip(hash.bytes()).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}

/// Whether a password in clear is this one.
pub fn is_of(secret: &Secret, password: &[u8]) -> bool {
    match secret {
        Secret::Empty => password.is_empty(),
        Secret::Native(digest) => *digest == <[u8; 20]>::from(Sha1::digest(Sha1::digest(password))),
        Secret::Sha2(text) => is_password(text, password),
        Secret::Configured(digest) => digest.is(password),
    }
}

/// What a check of a password costs, for a user that is not there.
pub fn waste(password: &[u8]) {
    std::hint::black_box(sha_crypt(password, &[b'.'; SALT_BYTES], THOUSANDS * 1000));
}

/// The 43 characters of the SHA-256 crypt.
fn sha_crypt(password: &[u8], salt: &[u8], rounds: u32) -> String {
    let alternate = Sha256::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let repeated = |block: &[u8], length: usize| -> Vec<u8> { block.iter().copied().cycle().take(length).collect() };
    let mut first = Sha256::new().chain_update(password).chain_update(salt);
    first.update(repeated(&alternate, password.len()));
    let mut bits = password.len();
    while bits > 0 {
        if bits & 1 == 1 {
            first.update(alternate);
        } else {
            first.update(password);
        }
        bits >>= 1;
    }
    let mut block: [u8; 32] = first.finalize().into();
    let mut of_password = Sha256::new();
    for _ in 0..password.len() {
        of_password.update(password);
    }
    let password = repeated(&of_password.finalize(), password.len());
    let mut of_salt = Sha256::new();
    for _ in 0..16 + usize::from(block[0]) {
        of_salt.update(salt);
    }
    let salt = repeated(&of_salt.finalize(), salt.len());
    for round in 0..rounds {
        let is_odd = round & 1 == 1;
        let mut next = Sha256::new();
        next.update(if is_odd { &password[..] } else { &block[..] });
        if round % 3 != 0 {
            next.update(&salt);
        }
        if round % 7 != 0 {
            next.update(&password);
        }
        next.update(if is_odd { &block[..] } else { &password[..] });
        block = next.finalize().into();
    }
    digits_of(&block)
}

/// Three bytes make four digits, in the order of the scheme.
fn digits_of(block: &[u8; 32]) -> String {
    let mut out = String::with_capacity(HASH_CHARS);
    let mut push = |high: u8, middle: u8, low: u8, count: u32| {
        let bits = u32::from(high) << 16 | u32::from(middle) << 8 | u32::from(low);
        out.extend((0..count).map(|i| char::from(DIGITS[(bits >> (6 * i) & 63) as usize])));
    };
    let (mut a, mut b, mut c) = (0, 10, 20);
    for _ in 0..10 {
        push(block[a], block[b], block[c], 4);
        (a, b, c) = (c + 1, a + 1, b + 1);
    }
    push(0, block[31], block[30], 3);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_is_drepper_s() {
        // As glibc's crypt() has it.
        assert_eq!(sha_crypt(b"Hello world!", b"saltstring", 5000), "5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5");
    }

    #[test]
    fn passwords_are_what_they_were() {
        let Secret::Sha2(text) = sha2("s3cret", std::array::from_fn(|i| i as u8)) else { panic!() };
        assert_eq!(text.len(), 70);
        assert!(is_password(&text, b"s3cret") && !is_password(&text, b"s3cre") && !is_password(&text, b""));
        assert_eq!(parse_sha2(&text), Some(Secret::Sha2(text.clone())));
        for wrong in ["$A$005$short", &text[1..], &format!("{text}x"), &text.replacen("005", "FFF", 1)] {
            assert_eq!(parse_sha2(wrong), None, "{wrong}");
        }
        let Secret::Native(digest) = native("password") else { panic!() };
        let text = native_text(&digest);
        assert_eq!(text, "*2470C0C06DEE42FD1618BB99005ADCA2EC9D1E19");
        assert_eq!(parse_native(&text), Some(Secret::Native(digest)));
        assert_eq!(parse_native(&text[1..]), None);
        assert_eq!(
            (sha2("", [0; 20]), native(""), parse_sha2("")),
            (Secret::Empty, Secret::Empty, Some(Secret::Empty))
        );
    }
}
