//! Certificates for tests of TLS.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair,
};

/// The authority of both sides.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pub(crate) path: PathBuf,
    directory: PathBuf,
}

impl Authority {
    pub(crate) fn new(directory: &Path) -> Self {
        Self::named("authority", directory)
    }

    /// One of several authorities, whose certificate is in a file of its name.
    pub(crate) fn named(name: &str, directory: &Path) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let path = directory.join(format!("{name}-ca.pem"));
        fs::write(&path, issuer.pem()).unwrap();
        Self { issuer, path, directory: directory.to_owned() }
    }

    /// Issues a key and a certificate for this machine.
    pub(crate) fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        // OpenSSL takes a certificate with its issuer's name for a self-signed one.
        self.issue_for(Some(name), name)
    }

    /// The same with this CommonName, or without any.
    pub(crate) fn issue_for(&self, common_name: Option<&str>, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = DistinguishedName::new();
        if let Some(common_name) = common_name {
            params.distinguished_name.push(DnType::CommonName, common_name);
        }
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let path = |end: &str| self.directory.join(format!("{name}.{end}"));
        // Key and certificate are replaced one after the other; a reader in between retries.
        fs::write(path("key"), key.serialize_pem()).unwrap();
        fs::write(path("pem"), cert.pem()).unwrap();
        (path("key"), path("pem"))
    }
}
