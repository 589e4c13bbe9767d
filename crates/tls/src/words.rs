//! Explanations of failed handshakes for the operator who owns the files.

use std::io;

use rustls::AlertDescription as Alert;
use rustls::{CertificateError, Error};

/// Describes why TLS failed, which end is at fault, and how to fix it. Errors that do not come from
/// TLS are returned unchanged. `plain` is the unencrypted scheme to suggest when the other end does
/// not speak TLS.
pub fn explain(error: &io::Error, plain: &str) -> String {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match inner {
        Some(inner) => explain_tls(inner, plain),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the peer closed the connection; its log may tell why, or it does not use TLS \
             there"
                .to_owned()
        }
        None => error.to_string(),
    }
}

fn explain_tls(error: &Error, plain: &str) -> String {
    match error {
        Error::InvalidCertificate(error) => explain_certificate(error),
        Error::NoCertificatesPresented => {
            "the peer presented no certificate and is refused: configure one there".to_owned()
        }
        Error::AlertReceived(alert) => explain_alert(*alert),
        Error::InvalidMessage(_) => {
            format!("{error}: the peer does not use TLS there; if that is intended, use {plain}")
        }
        other => other.to_string(),
    }
}

fn explain_certificate(error: &CertificateError) -> String {
    use CertificateError as E;
    let what = match error {
        E::UnknownIssuer | E::BadSignature => {
            "is not signed by a CA in our CA file: add its CA there, or give the peer a \
             certificate that our CA has signed"
        }
        E::Expired | E::ExpiredContext { .. } => {
            "has expired: renew it, or correct the clocks of both machines"
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "is not valid yet: correct the clocks of both machines"
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => {
            "does not have the name that we connected to: issue one with that name \
             (subjectAltName), or configure its name on a switch with --tls-name"
        }
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "is not valid for this end of a connection (extendedKeyUsage): issue one that is"
        }
        _ => "cannot be used",
    };
    format!("the peer's certificate {what} ({error})")
}

fn explain_alert(alert: Alert) -> String {
    let what = match alert {
        Alert::UnknownCA => {
            "it does not know the CA of our certificate: add that CA to its CA file, or configure \
             a certificate here that its CA has signed"
        }
        Alert::CertificateExpired => "our certificate has expired: renew it, or correct the clocks",
        Alert::CertificateRequired => "it requires a client certificate: configure one here",
        Alert::BadCertificate | Alert::CertificateUnknown | Alert::UnsupportedCertificate => {
            "it rejects our certificate, or requires one: its log tells why"
        }
        Alert::DecryptError => {
            "our certificate is not signed by the CA of that name in its CA file: give both ends \
             the same CA file"
        }
        Alert::HandshakeFailure => {
            "it supports none of our versions or ciphers, or requires a certificate"
        }
        _ => "its log may tell why",
    };
    format!("the peer refused: {what} (TLS alert {alert:?})")
}
