//! TLS keys and certificates from files, for both ends, and explanations of failed handshakes.
//!
//! [`TlsFiles`] names the files of a server, [`ClientFiles`] those of a client. [`Fresh`] reads
//! them again when they change, so that certificates can be renewed while connections stay open.
//! [`explain`] describes why a handshake failed and how to fix it.
//!
//! This crate opens no sockets: the caller wraps its own. TLS 1.2 and 1.3, by rustls.
#![forbid(unsafe_code)]

mod fresh;
mod name;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

pub use fresh::{Fresh, Source};
pub use name::{ParsePeerNameError, PeerName};
pub use words::explain;

/// PEM files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Our certificate and its chain.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// CA certificates for clients. If set, clients without a certificate from one of these CAs are
    /// refused.
    pub ca: Option<PathBuf>,
}

/// PEM files of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFiles {
    /// CA certificates for the server.
    pub ca: PathBuf,
    /// Our certificate with its chain, and its key, for servers that require one.
    pub own: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must have.
    pub name: PeerName,
}

impl Source for TlsFiles {
    type Config = ServerConfig;

    fn paths(&self) -> Vec<&Path> {
        let ca = self.ca.as_deref();
        [self.cert.as_path(), &self.key].into_iter().chain(ca).collect()
    }

    fn read(&self) -> Result<ServerConfig, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::new(&self.cert, "TLS", &error))?;
        let builder = match &self.ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(roots(ca)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                builder.with_client_cert_verifier(
                    verifier.build().map_err(|error| TlsError::new(ca, NO_AUTHORITY, &error))?,
                )
            }
        };
        let (certs, key) = own(&self.cert, &self.key)?;
        let config = builder.with_single_cert(certs, key);
        config.map_err(|error| TlsError::new(&self.key, OTHER_KEY, &error))
    }
}

impl Source for ClientFiles {
    type Config = ClientConfig;

    fn paths(&self) -> Vec<&Path> {
        let own = self.own.iter().flat_map(|(cert, key)| [cert.as_path(), key.as_path()]);
        [self.ca.as_path()].into_iter().chain(own).collect()
    }

    fn read(&self) -> Result<ClientConfig, TlsError> {
        let roots = Arc::new(roots(&self.ca)?);
        let verifier: Arc<dyn ServerCertVerifier> = match self.name {
            PeerName::Any => Arc::new(name::AnyName::new(roots, &provider())),
            PeerName::Address | PeerName::Named(_) => {
                let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider());
                verifier.build().map_err(|error| TlsError::new(&self.ca, NO_AUTHORITY, &error))?
            }
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsError::new(&self.ca, "TLS", &error))?
            // Only the name check differs, as configured: see `AnyName`.
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let Some((cert, key)) = &self.own else { return Ok(builder.with_no_client_auth()) };
        let (certs, private) = own(cert, key)?;
        let config = builder.with_client_auth_cert(certs, private);
        config.map_err(|error| TlsError::new(key, OTHER_KEY, &error))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn own(
    cert: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let certs = certificates(cert)?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| TlsError::new(key, "no private key", &error))?;
    Ok((certs, key))
}

fn roots(ca: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for cert in certificates(ca)? {
        let added = roots.add(cert);
        added.map_err(|error| TlsError::new(ca, NO_AUTHORITY, &error))?;
    }
    Ok(roots)
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

/// Why no TLS configuration could be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {what}: {cause}; expected a PEM file", path.display())]
pub struct TlsError {
    path: PathBuf,
    what: &'static str,
    cause: String,
}

impl TlsError {
    fn new(path: &Path, what: &'static str, cause: &dyn fmt::Display) -> Self {
        Self { path: path.to_owned(), what, cause: cause.to_string() }
    }
}

const NO_AUTHORITY: &str = "no CA certificate";
const OTHER_KEY: &str = "the key does not belong to the certificate";

#[cfg(test)]
mod tests;
