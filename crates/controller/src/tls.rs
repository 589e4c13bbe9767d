//! TLS, for REST and for switches: certificates from files, read again without losing connections.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Where keys and certificates are, as PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Our certificate, and those that vouch for it.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Who vouches for clients; with this, whoever has no certificate of theirs is turned away.
    pub ca: Option<PathBuf>,
}

/// Our end of TLS.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    config: ArcSwap<ServerConfig>,
}

impl Tls {
    /// Reads the files.
    pub(crate) fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let config = ArcSwap::from_pointee(read(&files)?);
        Ok(Self { files, config })
    }

    /// Reads the files again, for the connections that come. What is wrong with them is said, and
    /// changes nothing.
    pub(crate) fn reload(&self) {
        match read(&self.files) {
            Ok(config) => {
                self.config.store(Arc::new(config));
                tracing::info!("{}: read again", self.files.cert.display());
            }
            Err(error) => tracing::error!("{error}; the certificate stays as it was"),
        }
    }

    /// Shakes hands.
    pub(crate) async fn accept<S>(&self, stream: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.config.load_full());
        let shaken = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await;
        shaken.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "no TLS handshake within ten seconds"))
        })
    }
}

fn read(files: &TlsFiles) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certs = certificates(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| TlsError::new(&files.key, "no private key", &error))?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::new(&files.cert, "TLS", &error))?;
    let builder = match &files.ca {
        None => builder.with_no_client_auth(),
        Some(ca) => builder.with_client_cert_verifier(verifier(ca, provider)?),
    };
    let config = builder.with_single_cert(certs, key);
    config.map_err(|error| TlsError::new(&files.key, "not the certificate's key", &error))
}

fn verifier(
    ca: &Path,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for cert in certificates(ca)? {
        let added = roots.add(cert);
        added.map_err(|error| TlsError::new(ca, "no authority's certificate", &error))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    verifier.map_err(|error| TlsError::new(ca, "no authority's certificate", &error))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |error| TlsError::new(path, "no certificate", &error);
    let certs = CertificateDer::pem_file_iter(path).map_err(failed)?;
    let certs: Vec<_> = certs.collect::<Result<_, _>>().map_err(failed)?;
    match certs.is_empty() {
        true => Err(TlsError::new(path, "no certificate", &"the file has none")),
        false => Ok(certs),
    }
}

/// Why there is no TLS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}: {cause}; PEM files are expected", path.display())]
pub struct TlsError {
    path: PathBuf,
    what: &'static str,
    cause: String,
}

impl TlsError {
    fn new(path: &Path, what: &'static str, cause: &dyn std::fmt::Display) -> Self {
        Self { path: path.to_owned(), what, cause: cause.to_string() }
    }
}

const HANDSHAKE: Duration = Duration::from_secs(10);
