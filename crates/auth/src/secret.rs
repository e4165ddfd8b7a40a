//! The secrets and the text form of their files.

use std::fmt::Write;

/// Bytes of a secret.
pub const SECRET_BYTES: usize = 32;

/// What a secret proves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretKind {
    /// A data node or a management node.
    Node,
    /// A SQL node or another native client, and nothing more.
    Client,
}

impl SecretKind {
    pub fn name(self) -> &'static str {
        match self {
            SecretKind::Node => "node",
            SecretKind::Client => "client",
        }
    }
}

/// A shared secret. Never shown: its `Debug` form tells only whether there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SECRET_BYTES]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_none() { "Secret(none)" } else { "Secret(set)" })
    }
}

impl Default for Secret {
    fn default() -> Secret {
        Secret::NONE
    }
}

/// First word of a secret's file.
const MARK: &str = "apus-secret";

impl Secret {
    /// Known to everybody: proves nothing.
    pub const NONE: Secret = Secret([0; SECRET_BYTES]);

    /// From the operating system's entropy, drawn by the caller.
    pub fn from_bytes(bytes: [u8; SECRET_BYTES]) -> Secret {
        Secret(bytes)
    }
    pub fn is_none(&self) -> bool {
        *self == Secret::NONE
    }
    pub(crate) fn as_bytes(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }

    /// The line of a secret's file: `apus-secret node 0123...` with 64 hexadecimal digits.
    pub fn to_text(&self, kind: SecretKind) -> String {
        let mut text = format!("{MARK} {} ", kind.name());
        for byte in self.0 {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
        text
    }

    /// Reads what [`Secret::to_text`] wrote.
    ///
    /// # Errors
    /// What is wrong with the text, without any part of it.
    pub fn from_text(kind: SecretKind, text: &str) -> Result<Secret, String> {
        let mut words = text.split_ascii_whitespace();
        if words.next() != Some(MARK) {
            return Err("it is no secret's file; `apus secret` makes one".to_owned());
        }
        let (found, digits) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if found != kind.name() && (found == "node" || found == "client") {
            return Err(format!("it holds the {found} secret, and the {} secret is wanted", kind.name()));
        }
        let digits = digits.as_bytes();
        if found != kind.name() || digits.len() != 2 * SECRET_BYTES || words.next().is_some() {
            return Err("it is damaged; `apus secret` makes a new one".to_owned());
        }
        let mut secret = Secret::NONE;
        for (byte, pair) in secret.0.iter_mut().zip(digits.chunks_exact(2)) {
            let digit =
                |c: u8| char::from(c).to_digit(16).ok_or_else(|| "it is damaged: no hexadecimal digits".to_owned());
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        if secret.is_none() { Err("it holds zeros, which are no secret".to_owned()) } else { Ok(secret) }
    }
}

/// What a data or management node holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keys {
    /// Of data nodes and management nodes.
    pub node: Secret,
    /// Of SQL nodes and native clients.
    pub client: Secret,
}

impl Keys {
    /// Nobody has to prove anything.
    pub const NONE: Keys = Keys { node: Secret::NONE, client: Secret::NONE };

    /// Whether everybody has to prove who he is.
    pub fn are_set(&self) -> bool {
        !self.node.is_none() && !self.client.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_round_trips_and_names_what_is_wrong() {
        let secret = Secret::from_bytes(std::array::from_fn(|i| (i * 37 + 1) as u8));
        for kind in [SecretKind::Node, SecretKind::Client] {
            assert_eq!(Secret::from_text(kind, &secret.to_text(kind)), Ok(secret.clone()));
        }
        let wrong = |text: &str| Secret::from_text(SecretKind::Node, text).expect_err("no node secret");
        assert!(wrong(&secret.to_text(SecretKind::Client)).contains("client secret"));
        assert!(wrong("").contains("no secret"));
        assert!(wrong("hunter2").contains("no secret"));
        let good = secret.to_text(SecretKind::Node);
        for cut in MARK.len()..good.len() - 1 {
            assert!(Secret::from_text(SecretKind::Node, &good[..cut]).is_err());
        }
        assert!(wrong(&format!("{} 00", good.trim())).contains("damaged"));
        assert!(wrong(&good.replace("01", "zz")).contains("hexadecimal"));
        assert!(wrong(&Secret::NONE.to_text(SecretKind::Node)).contains("zeros"));
        assert_eq!(format!("{secret:?} {:?}", Secret::NONE), "Secret(set) Secret(none)");
    }
}
