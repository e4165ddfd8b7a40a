//! Password checks by challenge and response: mysql_native_password and the fast path of caching_sha2_password.
//!
//! Either check needs only a double digest (`SHA1(SHA1(p))`, `SHA256(SHA256(p))`). Digests are compared in constant time.

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// Bytes of the challenge a greeting carries.
pub const SCRAMBLE_BYTES: usize = 20;

/// The challenge of one connection: printable, without zero bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scramble([u8; SCRAMBLE_BYTES]);

impl Scramble {
    /// From random bytes. Zero ends strings and `$` separates fields in MySQL's formats, so both are avoided.
    pub fn from_random(mut bytes: [u8; SCRAMBLE_BYTES]) -> Scramble {
        for byte in &mut bytes {
            *byte &= 0x7f;
            if *byte == 0 || *byte == b'$' {
                *byte += 1;
            }
        }
        Scramble(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; SCRAMBLE_BYTES] {
        &self.0
    }
}

/// How a client proves its password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthPlugin {
    NativePassword,
    CachingSha2Password,
}

impl AuthPlugin {
    pub const fn name(self) -> &'static str {
        match self {
            AuthPlugin::NativePassword => "mysql_native_password",
            AuthPlugin::CachingSha2Password => "caching_sha2_password",
        }
    }

    pub fn from_name(name: &[u8]) -> Option<AuthPlugin> {
        [AuthPlugin::NativePassword, AuthPlugin::CachingSha2Password].into_iter().find(|p| p.name().as_bytes() == name)
    }
}

/// What the server keeps of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordDigest {
    /// `None` is the empty password.
    digests: Option<([u8; 20], [u8; 32])>,
}

impl std::fmt::Debug for PasswordDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.digests.is_some() { "PasswordDigest(set)" } else { "PasswordDigest(empty)" })
    }
}

impl PasswordDigest {
    /// Digests of a clear password; an empty one stands for "no password".
    pub fn of(password: &str) -> PasswordDigest {
        if password.is_empty() {
            return PasswordDigest { digests: None };
        }
        let sha1 = Sha1::digest(Sha1::digest(password.as_bytes())).into();
        let sha256 = double_sha256(password.as_bytes());
        PasswordDigest { digests: Some((sha1, sha256)) }
    }

    /// Whether `response` proves this password against the challenge.
    pub fn verify(&self, plugin: AuthPlugin, scramble: &Scramble, response: &[u8]) -> bool {
        let Some((sha1, sha256)) = &self.digests else {
            // An empty password is answered by nothing, or by the zero byte that ends an empty string.
            return matches!(response, [] | [0]);
        };
        match plugin {
            AuthPlugin::NativePassword => proves_native(sha1, scramble, response),
            AuthPlugin::CachingSha2Password => proves_sha2(sha256, scramble, response),
        }
    }

    /// Whether it is this password, which is not empty.
    pub fn is(&self, password: &[u8]) -> bool {
        let digest: [u8; 32] = double_sha256(password);
        self.digests.as_ref().is_some_and(|(_, sha256)| equal(&digest, sha256))
    }

    pub fn is_empty(&self) -> bool {
        self.digests.is_none()
    }
}

/// Whether the client knows the password of this `SHA1(SHA1(p))`.
pub fn proves_native(digest: &[u8; 20], scramble: &Scramble, response: &[u8]) -> bool {
    // response = SHA1(p) xor SHA1(scramble, SHA1(SHA1(p)))
    let mask = Sha1::new().chain_update(scramble.0).chain_update(digest).finalize();
    let Some(once) = unmask::<20>(response, &mask) else { return false };
    equal(&Sha1::digest(once), digest)
}

/// Whether the client knows the password of this `SHA256(SHA256(p))`.
pub fn proves_sha2(digest: &[u8; 32], scramble: &Scramble, response: &[u8]) -> bool {
    // response = SHA256(p) xor SHA256(SHA256(SHA256(p)), scramble)
    let mask = Sha256::new().chain_update(digest).chain_update(scramble.0).finalize();
    let Some(once) = unmask::<32>(response, &mask) else { return false };
    equal(&Sha256::digest(once), digest)
}

pub fn double_sha256(password: &[u8]) -> [u8; 32] {
    Sha256::digest(Sha256::digest(password)).into()
}

/// The client's side of the check, for our own clients and tests.
pub fn respond(plugin: AuthPlugin, scramble: &Scramble, password: &str) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    match plugin {
        AuthPlugin::NativePassword => {
            let once = Sha1::digest(password.as_bytes());
            let mask = Sha1::new().chain_update(scramble.0).chain_update(Sha1::digest(once)).finalize();
            once.iter().zip(mask).map(|(a, b)| a ^ b).collect()
        }
        AuthPlugin::CachingSha2Password => {
            let once = Sha256::digest(password.as_bytes());
            let mask = Sha256::new().chain_update(Sha256::digest(once)).chain_update(scramble.0).finalize();
            once.iter().zip(mask).map(|(a, b)| a ^ b).collect()
        }
    }
}

fn unmask<const N: usize>(response: &[u8], mask: &[u8]) -> Option<[u8; N]> {
    let mut out: [u8; N] = response.try_into().ok()?;
    for (byte, mask) in out.iter_mut().zip(mask) {
        *byte ^= mask;
    }
    Some(out)
}

fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_plugins_accept_only_the_right_password() {
        let scramble = Scramble::from_random(std::array::from_fn(|i| (i * 13) as u8));
        assert!(!scramble.as_bytes().contains(&0));
        for plugin in [AuthPlugin::NativePassword, AuthPlugin::CachingSha2Password] {
            assert_eq!(AuthPlugin::from_name(plugin.name().as_bytes()), Some(plugin));
            let stored = PasswordDigest::of("s3cret");
            assert!(stored.verify(plugin, &scramble, &respond(plugin, &scramble, "s3cret")));
            assert!(!stored.verify(plugin, &scramble, &respond(plugin, &scramble, "S3cret")));
            assert!(!stored.verify(plugin, &scramble, &[]));
            assert!(!stored.verify(plugin, &scramble, &[0; 20]));
            let other = Scramble::from_random([7; 20]);
            assert!(!stored.verify(plugin, &other, &respond(plugin, &scramble, "s3cret")));
            assert!(PasswordDigest::of("").verify(plugin, &scramble, &[]));
            assert!(!PasswordDigest::of("").verify(plugin, &scramble, &respond(plugin, &scramble, "x")));
        }
    }
}
