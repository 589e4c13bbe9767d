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
            "the other end hung up; its log may say why, or it speaks no TLS there".to_owned()
        }
        None => error.to_string(),
    }
}

fn explain_tls(error: &Error, plain: &str) -> String {
    match error {
        Error::InvalidCertificate(error) => explain_certificate(error),
        Error::NoCertificatesPresented => {
            "the other end showed no certificate, and is turned away: give it one".to_owned()
        }
        Error::AlertReceived(alert) => explain_alert(*alert),
        Error::InvalidMessage(_) => {
            format!("{error}: the other end speaks no TLS there; perhaps {plain} is meant")
        }
        other => other.to_string(),
    }
}

fn explain_certificate(error: &CertificateError) -> String {
    use CertificateError as E;
    let what = match error {
        E::UnknownIssuer | E::BadSignature => {
            "is not of an authority that our CA file has: add that authority there, or give the \
             other end a certificate of ours"
        }
        E::Expired | E::ExpiredContext { .. } => {
            "has expired: renew it, or set the clocks of both machines"
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "is not valid yet: set the clocks of both machines"
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => {
            "is for other names than what we connected to: issue one for that (subjectAltName), or \
             tell a switch by --tls-name which one it has"
        }
        E::InvalidPurpose | E::InvalidPurposeContext { .. } => {
            "is not made for this end of a connection (extendedKeyUsage): issue one that is"
        }
        _ => "is of no use",
    };
    format!("the certificate of the other end {what} ({error})")
}

fn explain_alert(alert: Alert) -> String {
    let what = match alert {
        Alert::UnknownCA => {
            "it does not know the authority of our certificate: add that to its CA file, or give \
             us a certificate of its authority"
        }
        Alert::CertificateExpired => "our certificate has expired: renew it, or set the clocks",
        Alert::CertificateRequired => "it wants a certificate of us: say where it is",
        Alert::BadCertificate | Alert::CertificateUnknown | Alert::UnsupportedCertificate => {
            "it does not take our certificate, or wants one: its log says why"
        }
        Alert::DecryptError => {
            "our certificate is not signed by the authority of that name that it knows: give both \
             ends the same CA file"
        }
        Alert::HandshakeFailure => "it takes no version or cipher of ours, or wants a certificate",
        _ => "its log may say why",
    };
    format!("the other end refused: {what} (TLS alert {alert:?})")
}
