//! Certificates of SQL nodes: read from files, or made.
//!
//! A SQL node that is given none makes one when it starts. It encrypts, and proves to nobody who the server is. `apus dev` makes an authority and a certificate for
//! `localhost` in its directory, so that a client can verify the server (`--ssl-mode=VERIFY_IDENTITY --ssl-ca=ca.pem`). They do not expire; who runs servers for others brings
//! certificates of his own.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use apus_sql::server::Tls;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};

/// Longest file of certificates, in bytes.
const CHAIN_BYTES_MAX: u64 = 1 << 20;
/// In a directory of certificates that [`make_files`] has made: of the authority, of the server, and the server's private key.
pub const CA_FILE: &str = "ca.pem";
pub const CERT_FILE: &str = "server-cert.pem";
pub const KEY_FILE: &str = "server-key.pem";

#[derive(clap::Args)]
pub struct TlsArgs {
    /// Certificate of the SQL port and those that it was signed by, as PEM; without it the node makes one that nobody can verify
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<std::path::PathBuf>,
    /// Its private key, as PEM, readable by this user only
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<std::path::PathBuf>,
    /// Certificates of the authorities that sign those of clients, as PEM: accounts with REQUIRE X509, SUBJECT, ISSUER or CIPHER can log in
    #[arg(long, value_name = "FILE", conflicts_with = "no_tls")]
    tls_ca: Option<std::path::PathBuf>,
    /// Refuse clients that do not encrypt (as MySQL's require_secure_transport)
    #[arg(long, conflicts_with = "no_tls")]
    require_tls: bool,
    /// Offer no TLS
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    no_tls: bool,
}

impl TlsArgs {
    /// `None`: none is offered.
    ///
    /// # Errors
    /// A file cannot be read or used; the text says which and why.
    pub fn load(&self) -> Result<Option<Tls>, String> {
        if self.no_tls {
            return Ok(None);
        }
        let authorities = self.tls_ca.as_deref().map(read_chain).transpose()?;
        let of_clients = || self.tls_ca.as_ref().map_or(String::new(), |path| format!(", clients' {}", path.display()));
        let (Some(cert), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            let (chain, key) = own()?;
            return Tls::from_pem(chain.as_bytes(), key.as_bytes(), authorities.as_deref(), self.require_tls)
                .map(Some)
                .map_err(|why| format!("the node's own certificate{}: {why}", of_clients()));
        };
        let (chain, private) = (read_chain(cert)?, crate::secret::read_private(key)?);
        Tls::from_pem(&chain, private.as_bytes(), authorities.as_deref(), self.require_tls)
            .map(Some)
            .map_err(|why| format!("{} and {}{}: {why}", cert.display(), key.display(), of_clients()))
    }
}

fn read_chain(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |e: std::io::Error| format!("cannot read {}: {e}", path.display());
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut chain = Vec::new();
    file.take(CHAIN_BYTES_MAX + 1).read_to_end(&mut chain).map_err(failed)?;
    if chain.len() as u64 > CHAIN_BYTES_MAX {
        return Err(format!("{} has more than {CHAIN_BYTES_MAX} bytes", path.display()));
    }
    Ok(chain)
}

fn for_localhost(name: &str) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    params.subject_alt_names.extend(addresses.map(SanType::IpAddress));
    params.distinguished_name.push(DnType::CommonName, name);
    Ok(params)
}

/// A certificate that is signed by itself, and its private key.
fn own() -> Result<(String, String), String> {
    let made = || -> Result<_, rcgen::Error> {
        let key = KeyPair::generate()?;
        Ok((for_localhost("apus sql")?.self_signed(&key)?.pem(), key.serialize_pem()))
    };
    made().map_err(|e| format!("cannot make a certificate: {e}"))
}

/// Makes an authority, whose private key is forgotten at once, and a certificate of it for this machine.
///
/// # Errors
/// The operating system refuses.
pub fn make_files(dir: &Path) -> Result<(), String> {
    let made = || -> Result<_, rcgen::Error> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        authority.distinguished_name.push(DnType::CommonName, "apus dev");
        let authority_key = KeyPair::generate()?;
        let ca = authority.self_signed(&authority_key)?.pem();
        let key = KeyPair::generate()?;
        let issuer = Issuer::new(authority, authority_key);
        Ok((ca, for_localhost("localhost")?.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
    };
    let (ca, cert, key) = made().map_err(|e| format!("cannot make certificates: {e}"))?;
    // The certificate comes last: who finds it finds all.
    for (name, text, mode) in [(CA_FILE, &ca, 0o644), (KEY_FILE, &key, 0o600), (CERT_FILE, &cert, 0o644)] {
        let path = dir.join(name);
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(mode).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| crate::sync_names(&path))
            .map_err(|e| format!("cannot make {}: {e}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_can_be_used() {
        let (chain, key) = own().expect("a certificate");
        assert!(Tls::from_pem(chain.as_bytes(), key.as_bytes(), None, true).expect("usable").required);
        let dir = std::env::temp_dir().join(format!("apus-tls-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        make_files(&dir).expect("files");
        let file = |name: &str| std::fs::read(dir.join(name)).expect("a file");
        let (ca, cert, own_key) = (file(CA_FILE), file(CERT_FILE), file(KEY_FILE));
        std::fs::remove_dir_all(&dir).expect("removed");
        assert!(Tls::from_pem(&cert, &own_key, Some(&ca), false).expect("usable").asks);
        let refusal = Tls::from_pem(&cert, &own_key, Some(b""), false).expect_err("no authority");
        assert!(refusal.contains("no certificate"), "{refusal}");
        for (chain, key, why) in [
            (&cert[..], key.as_bytes(), "cannot be used"),
            (&ca[..], &own_key[..], "cannot be used"),
            (&b""[..], &own_key[..], "no certificate"),
            (&cert[..], &cert[..], "private key cannot be read"),
        ] {
            let refusal = Tls::from_pem(chain, key, None, false).expect_err("not usable");
            assert!(refusal.contains(why), "{refusal}");
        }
    }
}
