//! REQUIRE: how the connection of an account has to be encrypted, and by whom its client has to be vouched for.
//!
//! A certificate counts when an authority has signed it that the SQL node trusts (`--tls-ca`): TLS has seen to that before anybody asks here. Its names are compared with those of the account
//! byte by byte, as they are written in one line: `/C=SE/O=Apus/CN=client`.

use super::kept::{escaped, plain};
use crate::server::TlsSession;

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Requires {
    #[default]
    Nothing,
    /// SSL.
    Encryption,
    /// X509.
    Certificate,
    /// A certificate, and what is named of it and of the cipher.
    Named(Named),
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Named {
    pub subject: Option<String>,
    pub issuer: Option<String>,
    pub cipher: Option<String>,
}

impl Named {
    /// In the order of SHOW CREATE USER.
    pub fn each(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [("SUBJECT", &self.subject), ("ISSUER", &self.issuer), ("CIPHER", &self.cipher)];
        all.into_iter().filter_map(|(word, name)| Some((word, name.as_deref()?)))
    }
    pub fn of(&mut self, word: &str) -> Option<&mut Option<String>> {
        match word {
            "SUBJECT" => Some(&mut self.subject),
            "ISSUER" => Some(&mut self.issuer),
            "CIPHER" => Some(&mut self.cipher),
            _ => None,
        }
    }
}

impl Requires {
    /// `tls`: how the connection is encrypted, if it is.
    pub fn is_met_by(&self, tls: Option<&TlsSession>) -> bool {
        let certificate = tls.and_then(|tls| tls.certificate.as_ref());
        match (self, tls, certificate) {
            (Requires::Nothing, ..) | (Requires::Encryption, Some(_), _) | (Requires::Certificate, _, Some(_)) => true,
            (Requires::Named(named), Some(tls), Some(certificate)) => named.each().all(|(word, name)| match word {
                "SUBJECT" => certificate.subject == name,
                "ISSUER" => certificate.issuer == name,
                _ => tls.cipher == name || openssl_name(&tls.cipher) == Some(name),
            }),
            _ => false,
        }
    }

    pub fn needs_certificate(&self) -> bool {
        matches!(self, Requires::Certificate | Requires::Named(_))
    }

    /// As lines of the account's row. An older build takes the account for one that is locked where it knows no such line.
    pub(super) fn lines(&self) -> Vec<String> {
        match self {
            Requires::Nothing => Vec::new(),
            Requires::Encryption => vec!["tls".to_owned()],
            Requires::Certificate => vec!["certificate".to_owned()],
            Requires::Named(named) => {
                named.each().map(|(word, name)| format!("certificate\t{word}\t{}", escaped(name))).collect()
            }
        }
    }

    /// Reads one of them.
    pub(super) fn take(&mut self, fields: &[&str]) -> Option<()> {
        match fields {
            ["tls"] => *self = Requires::Encryption,
            ["certificate"] => *self = Requires::Certificate,
            ["certificate", word, name] => {
                let mut named = match self {
                    Requires::Named(named) => std::mem::take(named),
                    _ => Named::default(),
                };
                *named.of(word)? = Some(plain(name));
                *self = Requires::Named(named);
            }
            _ => return None,
        }
        Some(())
    }

    /// As it stands behind REQUIRE; names as MySQL writes them, without a look at quotes within.
    pub fn shown(&self) -> String {
        match self {
            Requires::Nothing => "NONE".to_owned(),
            Requires::Encryption => "SSL".to_owned(),
            Requires::Certificate => "X509".to_owned(),
            Requires::Named(named) => {
                let each: Vec<String> = named.each().map(|(word, name)| format!("{word} '{name}'")).collect();
                each.join(" ")
            }
        }
    }
}

/// What OpenSSL, and so MySQL, calls a cipher of TLS 1.2.
fn openssl_name(cipher: &str) -> Option<&'static str> {
    Some(match cipher {
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" => "ECDHE-ECDSA-CHACHA20-POLY1305",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" => "ECDHE-RSA-CHACHA20-POLY1305",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Certificate;

    #[test]
    fn who_is_vouched_for_may_come() {
        let certificate = Certificate { subject: "/CN=a".to_owned(), issuer: "/CN=ca".to_owned() };
        let cipher = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned();
        let with = TlsSession { version: "TLSv1.2".to_owned(), cipher, certificate: Some(certificate) };
        let without = TlsSession { certificate: None, ..with.clone() };
        let named = |list: &[(&str, &str)]| {
            let mut named = Named::default();
            list.iter().for_each(|(word, name)| *named.of(word).unwrap() = Some((*name).to_owned()));
            Requires::Named(named)
        };
        for (requires, of_none, of_encrypted, of_vouched) in [
            (Requires::Nothing, true, true, true),
            (Requires::Encryption, false, true, true),
            (Requires::Certificate, false, false, true),
            (named(&[("SUBJECT", "/CN=a"), ("ISSUER", "/CN=ca")]), false, false, true),
            (named(&[("SUBJECT", "/CN=b"), ("ISSUER", "/CN=ca")]), false, false, false),
            (named(&[("SUBJECT", "")]), false, false, false),
            (named(&[("CIPHER", "ECDHE-RSA-AES128-GCM-SHA256")]), false, false, true),
            (named(&[("CIPHER", "TLS_AES_128_GCM_SHA256")]), false, false, false),
        ] {
            let met = [None, Some(&without), Some(&with)].map(|tls| requires.is_met_by(tls));
            assert_eq!(met, [of_none, of_encrypted, of_vouched], "{requires:?}");
            let mut again = Requires::default();
            requires.lines().iter().for_each(|line| {
                again.take(&line.split('\t').collect::<Vec<_>>()).unwrap();
            });
            assert_eq!(again, requires);
        }
        assert_eq!(named(&[("CIPHER", "c"), ("SUBJECT", "s")]).shown(), "SUBJECT 's' CIPHER 'c'");
    }
}
