//! The key by which clients without TLS send a password: RSA with 2048 bits, OAEP with SHA-1, as the clients of MySQL have it.
//!
//! A process makes one for itself; nobody keeps it. A client that asks for the public key takes whatever it gets: who sits between could give it another one. TLS is better.

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    rsa::{KeySize, OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, PrivateDecryptingKey},
};

pub struct RsaKey {
    key: OaepPrivateDecryptingKey,
    /// The public key.
    pub pem: String,
}

impl RsaKey {
    /// `None`: there is no entropy.
    pub fn generate() -> Option<RsaKey> {
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).ok()?;
        let der: PublicKeyX509Der<'_> = key.public_key().as_der().ok()?;
        let mut pem = "-----BEGIN PUBLIC KEY-----\n".to_owned();
        for line in base64(der.as_ref()).as_bytes().chunks(64) {
            pem.push_str(&String::from_utf8_lossy(line));
            pem.push('\n');
        }
        pem.push_str("-----END PUBLIC KEY-----\n");
        Some(RsaKey { key: OaepPrivateDecryptingKey::new(key).ok()?, pem })
    }

    /// What was encrypted by the public key.
    pub fn decrypt(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut space = vec![0; self.key.min_output_size()];
        let plain = self.key.decrypt(&OAEP_SHA1_MGF1SHA1, bytes, &mut space, None).ok()?;
        Some(plain.to_vec())
    }
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for i in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_lc_rs::rsa::{OaepPublicEncryptingKey, PublicEncryptingKey};

    #[test]
    fn base64_is_padded() {
        for (plain, expected) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
            assert_eq!(base64(plain.as_bytes()), expected);
        }
    }

    #[test]
    fn what_the_public_key_encrypts_is_read() {
        let ours = RsaKey::generate().unwrap();
        assert!(ours.pem.starts_with("-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOC"), "{}", ours.pem);
        let private = PrivateDecryptingKey::generate(KeySize::Rsa2048).unwrap();
        let der: PublicKeyX509Der<'_> = private.public_key().as_der().unwrap();
        let public = OaepPublicEncryptingKey::new(PublicEncryptingKey::from_der(der.as_ref()).unwrap()).unwrap();
        let mut space = vec![0; public.ciphertext_size()];
        let sent = public.encrypt(&OAEP_SHA1_MGF1SHA1, b"secret", &mut space, None).unwrap().to_vec();
        let key = RsaKey { key: OaepPrivateDecryptingKey::new(private).unwrap(), pem: String::new() };
        assert_eq!(key.decrypt(&sent).as_deref(), Some(&b"secret"[..]));
        assert_eq!(ours.decrypt(&sent), None, "another key");
        assert_eq!(ours.decrypt(b"junk"), None);
    }
}
