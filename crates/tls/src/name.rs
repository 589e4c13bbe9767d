//! The name that the server's certificate must have.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// The name that the server's certificate must have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PeerName {
    /// The address or name that we connect to.
    #[default]
    Address,
    /// This name, whatever address we connect to.
    Named(ServerName<'static>),
    /// Any name: for a CA that issues certificates to such servers only, as the controller CA of
    /// `ovs-pki` does.
    Any,
}

impl PeerName {
    /// The name to request when connecting to `address`.
    pub fn at(&self, address: IpAddr) -> ServerName<'static> {
        match self {
            Self::Named(name) => name.clone(),
            Self::Address | Self::Any => ServerName::from(address),
        }
    }
}

impl FromStr for PeerName {
    type Err = ParsePeerNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == ANY {
            return Ok(Self::Any);
        }
        let name = ServerName::try_from(text.to_owned());
        name.map(Self::Named).map_err(|_| ParsePeerNameError(text.to_owned()))
    }
}

/// The text is not a valid certificate name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a name for a certificate; expected a host name or address, or {ANY} for any \
     certificate that the CA has signed"
)]
pub struct ParsePeerNameError(String);

/// Verifies everything except the name.
#[derive(Debug)]
pub(crate) struct AnyName {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyName {
    pub(crate) fn new(roots: Arc<RootCertStore>, provider: &CryptoProvider) -> Self {
        Self { roots, algorithms: provider.signature_verification_algorithms }
    }
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        cert: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let cert = ParsedCertificate::try_from(cert)?;
        let (roots, all) = (&self.roots, self.algorithms.all);
        verify_server_cert_signed_by_trust_anchor(&cert, roots, intermediates, now, all)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// Text form of [`PeerName::Any`].
const ANY: &str = "any";
