//! TLS of client connections, by rustls: TLS 1.2 and 1.3.
//!
//! A client asks for it by a short packet in the place of its login and goes on with its first TLS record at once. What has come behind that packet is given to
//! TLS, never read as a command: nobody can slip a statement in before the handshake. The login and everything after it is encrypted. There is no resumption of
//! sessions between threads or servers. Clients are asked for certificates where the server has been given the authorities that it trusts; who has none comes in all the same, and it is the account
//! that may want one (REQUIRE X509). One that no such authority has signed ends the handshake.
//!
//! The server gets its certificate when it starts; another one needs a restart of the SQL node.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use super::{certificate::Certificate, compression::Compressed};
use crate::wire::compressed::Compression;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, RootCertStore, ServerConfig,
        crypto::CryptoProvider,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
        server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    },
    server::TlsStream,
};

/// What a server needs to offer TLS.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ServerConfig>,
    /// Who does not ask for it is refused (3159).
    pub required: bool,
    /// Clients are asked for certificates.
    pub asks: bool,
}

/// How a connection is encrypted, as `SHOW STATUS LIKE 'Ssl_%'` tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsSession {
    pub version: String,
    pub cipher: String,
    /// Of the client, signed by an authority that the server trusts.
    pub certificate: Option<Certificate>,
}

impl Tls {
    /// From a chain of certificates, the server's own first, and its private key, both as PEM; `authorities`: certificates of those that clients are vouched for by.
    ///
    /// # Errors
    /// What is wrong with them, for people.
    pub fn from_pem(chain: &[u8], key: &[u8], authorities: Option<&[u8]>, required: bool) -> Result<Tls, String> {
        let chain = certificates(chain)?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|e| format!("the private key cannot be read (a PEM block BEGIN PRIVATE KEY): {e}"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())
            .and_then(|builder| {
                let builder = match authorities {
                    Some(authorities) => builder.with_client_cert_verifier(verifier(authorities, provider)?),
                    None => builder.with_no_client_auth(),
                };
                builder.with_single_cert(chain, key).map_err(|e| e.to_string())
            })
            .map_err(|e| format!("the certificate and the private key cannot be used: {e}"))?;
        Ok(Tls { config: Arc::new(config), required, asks: authorities.is_some() })
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let list: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|e| format!("the certificates cannot be read: {e}"))?;
    if list.is_empty() {
        return Err("there is no certificate (a PEM block BEGIN CERTIFICATE)".to_owned());
    }
    Ok(list)
}

/// Takes who has no certificate, and of those with one who is vouched for.
fn verifier(authorities: &[u8], provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(authorities)? {
        roots.add(authority).map_err(|e| format!("an authority cannot be used: {e}"))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    builder.allow_unauthenticated().build().map_err(|e| format!("the authorities cannot be used: {e}"))
}

/// A client's stream, before or after the changes to TLS and to compressed packets.
pub(super) enum Transport<S> {
    Plain(S),
    Encrypted(Box<TlsStream<Resumed<S>>>),
    /// One of the former.
    Compressed(Box<Compressed<Transport<S>>>),
    /// The handshake has failed.
    Broken,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Transport<S> {
    /// Goes on encrypted; `head` has been read already.
    pub async fn encrypt(&mut self, tls: &Tls, head: Vec<u8>) -> io::Result<()> {
        let Transport::Plain(stream) = std::mem::replace(self, Transport::Broken) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let stream = Resumed { head, taken: 0, stream };
        *self = Transport::Encrypted(Box::new(TlsAcceptor::from(tls.config.clone()).accept(stream).await?));
        Ok(())
    }

    /// Goes on with compressed packets; `head` has been read already.
    pub fn compress(&mut self, how: Compression, head: Vec<u8>) {
        let stream = std::mem::replace(self, Transport::Broken);
        *self = Transport::Compressed(Box::new(Compressed::new(stream, how, head)));
    }

    /// `None`: it is not encrypted.
    pub fn session(&self) -> Option<TlsSession> {
        let stream = match self {
            Transport::Encrypted(stream) => stream,
            Transport::Compressed(stream) => return stream.stream().session(),
            Transport::Plain(_) | Transport::Broken => return None,
        };
        let (_, connection) = stream.get_ref();
        let version = match connection.protocol_version()? {
            rustls::ProtocolVersion::TLSv1_2 => "TLSv1.2",
            rustls::ProtocolVersion::TLSv1_3 => "TLSv1.3",
            _ => return None,
        };
        let suite = format!("{:?}", connection.negotiated_cipher_suite()?.suite());
        let certificate = connection.peer_certificates().and_then(|chain| Certificate::read(chain.first()?));
        Some(TlsSession { version: version.to_owned(), cipher: suite.replacen("TLS13_", "TLS_", 1), certificate })
    }
}

/// A stream of which some bytes have been read before.
pub(super) struct Resumed<S> {
    head: Vec<u8>,
    taken: usize,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Resumed<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let rest = self.head.get(self.taken..).unwrap_or_default();
        if rest.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, space);
        }
        let count = rest.len().min(space.remaining());
        space.put_slice(&rest[..count]);
        self.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Resumed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Transport<S> {
    #[inline]
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, space: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, space),
            Transport::Encrypted(stream) => Pin::new(stream).poll_read(cx, space),
            Transport::Compressed(stream) => Pin::new(stream).poll_read(cx, space),
            Transport::Broken => Poll::Ready(Ok(())),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Transport<S> {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Transport::Encrypted(stream) => Pin::new(stream).poll_write(cx, bytes),
            Transport::Compressed(stream) => Pin::new(stream).poll_write(cx, bytes),
            Transport::Broken => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
    /// What was written may still be in TLS.
    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Plain(_) | Transport::Broken => Poll::Ready(Ok(())), // a socket holds nothing back
            Transport::Encrypted(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Compressed(stream) => Pin::new(stream).poll_flush(cx),
        }
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Transport::Compressed(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Encrypted(stream) => {
                // Its peer may have gone without a word, or read no more: the end is told if there is room for it.
                ready!(Pin::new(stream).poll_shutdown(cx))?;
                Poll::Ready(Ok(()))
            }
            Transport::Broken => Poll::Ready(Ok(())),
        }
    }
}
