//! Handshakes between both ends in memory, and errors in files.

use std::net::{IpAddr, Ipv4Addr};

use rcgen::date_time_ymd;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::{ClientConnection, ServerConnection};
use tempfile::TempDir;

use super::*;

/// A CA and the directory for the certificates that it issues.
struct Authority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca"), issuer.pem()).unwrap();
        Self { directory, issuer }
    }

    fn ca(&self) -> PathBuf {
        self.directory.path().join("ca")
    }

    /// Issues a certificate for these names that expires at the end of `last_year`.
    fn issue(&self, names: &[&str], last_year: i32) -> TlsFiles {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let path = |name: &str| self.directory.path().join(name);
        std::fs::write(path("cert"), cert.pem()).unwrap();
        std::fs::write(path("key"), key.serialize_pem()).unwrap();
        TlsFiles { cert: path("cert"), key: path("key"), ca: None }
    }

    fn client(&self, name: &str) -> ClientFiles {
        let name = if name.is_empty() { PeerName::Address } else { name.parse().unwrap() };
        ClientFiles { ca: self.ca(), own: None, name }
    }
}

/// Performs a handshake at 127.0.0.1 and returns the results of the client and of the server.
fn shake(client: &ClientFiles, server: &TlsFiles) -> (Result<(), String>, Result<(), String>) {
    let name = client.name.at(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let mut client = ClientConnection::new(Arc::new(client.read().unwrap()), name).unwrap();
    let mut server = ServerConnection::new(Arc::new(server.read().unwrap())).unwrap();
    let explained = |error| explain(&std::io::Error::other(error), "tcp:");
    let mut said: (Result<(), String>, Result<(), String>) = (Ok(()), Ok(()));
    for _ in 0..8 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut unread = &bytes[..];
        while !unread.is_empty() && said.1.is_ok() {
            server.read_tls(&mut unread).unwrap();
            said.1 = server.process_new_packets().map(|_| ()).map_err(explained);
        }
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut unread = &bytes[..];
        while !unread.is_empty() && said.0.is_ok() {
            client.read_tls(&mut unread).unwrap();
            said.0 = client.process_new_packets().map(|_| ()).map_err(explained);
        }
    }
    let is_over = !client.is_handshaking() && !server.is_handshaking();
    assert!(is_over || said.0.is_err() || said.1.is_err(), "they do not get on: {said:?}");
    said
}

#[test]
fn names_are_those_that_are_asked_for() {
    let authority = Authority::new("ours");
    let server = authority.issue(&["127.0.0.1", "controller.example"], 2099);
    for name in ["", "controller.example", "any"] {
        assert_eq!(shake(&authority.client(name), &server), (Ok(()), Ok(())), "{name}");
    }
    let (client, _) = shake(&authority.client("other.example"), &server);
    let told = client.unwrap_err();
    assert!(
        told.contains("does not have the name that we connected to")
            && told.contains("controller.example"),
        "{told}"
    );
    let nameless = authority.issue(&[], 2099);
    assert!(shake(&authority.client(""), &nameless).0.is_err());
    assert_eq!(shake(&authority.client("any"), &nameless), (Ok(()), Ok(())));
}

#[test]
fn any_name_is_not_any_authority() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let server = theirs.issue(&["127.0.0.1"], 2099);
    for name in ["", "any"] {
        let (client, server) = shake(&ours.client(name), &server);
        let told = client.unwrap_err();
        assert!(told.contains("not signed by a CA in our CA file"), "{told}");
        let told = server.unwrap_err();
        assert!(told.contains("does not know the CA of our certificate"), "{told}");
    }
}

#[test]
fn an_authority_is_more_than_its_name() {
    let (ours, forged) = (Authority::new("ours"), Authority::new("ours"));
    let (client, server) = shake(&ours.client(""), &forged.issue(&["127.0.0.1"], 2099));
    assert!(client.unwrap_err().contains("not signed by a CA in our CA file"));
    assert!(server.unwrap_err().contains("not signed by the CA of that name"));
}

#[test]
fn what_has_expired_is_told_so_at_both_ends() {
    let authority = Authority::new("ours");
    let server = authority.issue(&["127.0.0.1"], 2020);
    for name in ["", "any"] {
        let (client, server) = shake(&authority.client(name), &server);
        assert!(client.unwrap_err().contains("has expired: renew it"));
        let told = server.unwrap_err();
        assert!(told.contains("our certificate has expired"), "{told}");
    }
}

#[test]
fn a_client_shows_who_it_is() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let wanted = TlsFiles { ca: Some(theirs.ca()), ..ours.issue(&["127.0.0.1"], 2099) };
    let (client, server) = shake(&ours.client(""), &wanted);
    assert!(server.unwrap_err().contains("presented no certificate"));
    let told = client.unwrap_err();
    assert!(told.contains("requires a client certificate"), "{told}");
    let known = theirs.issue(&[], 2099);
    let with =
        |files: TlsFiles| ClientFiles { own: Some((files.cert, files.key)), ..ours.client("") };
    assert_eq!(shake(&with(known), &wanted), (Ok(()), Ok(())));
    let stranger = Authority::new("stranger");
    let (client, server) = shake(&with(stranger.issue(&[], 2099)), &wanted);
    assert!(server.unwrap_err().contains("not signed by a CA in our CA file"));
    assert!(client.unwrap_err().contains("does not know the CA of our certificate"));
}

#[test]
fn files_of_no_use_are_named() {
    let authority = Authority::new("ours");
    let files = authority.issue(&[], 2099);
    let told = |files: &TlsFiles| files.read().unwrap_err().to_string();
    let none = TlsFiles { cert: "/none.pem".into(), ..files.clone() };
    assert!(told(&none).starts_with("/none.pem: no certificate"), "{}", told(&none));
    let swapped = TlsFiles { cert: files.key.clone(), ..files.clone() };
    assert!(told(&swapped).contains("the file has none"), "{}", told(&swapped));
    let other = TlsFiles { key: Authority::new("ours").ca(), ..files.clone() };
    assert!(told(&other).contains("no private key"), "{}", told(&other));
    std::fs::write(&files.key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    assert!(
        told(&files).contains("the key does not belong to the certificate"),
        "{}",
        told(&files)
    );
    let client = ClientFiles { ca: files.key, ..authority.client("") };
    assert!(client.read().unwrap_err().to_string().contains("no certificate"));
}

#[test]
fn files_are_read_again_when_they_changed() {
    let authority = Authority::new("ours");
    let files = authority.issue(&["127.0.0.1"], 2020);
    let mut fresh = Fresh::open(files).unwrap();
    let first = fresh.config();
    fresh.refresh().unwrap();
    assert!(Arc::ptr_eq(&first, &fresh.config()), "nothing has changed");
    let files = authority.issue(&["127.0.0.1"], 2099);
    fresh.refresh().unwrap();
    let second = fresh.config();
    assert!(!Arc::ptr_eq(&first, &second));
    std::fs::write(&files.cert, "half of it").unwrap();
    assert!(fresh.refresh().is_err());
    assert!(fresh.refresh().is_err(), "as long as it is so");
    assert!(Arc::ptr_eq(&second, &fresh.config()), "what was read last stays in force");
}

#[test]
fn what_is_no_name_is_refused() {
    for text in ["", "a b", "host:6653"] {
        let told = text.parse::<PeerName>().unwrap_err().to_string();
        assert!(told.contains("expected a host name or address"), "{told}");
    }
}
