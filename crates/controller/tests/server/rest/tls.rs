//! TLS for REST and for switches.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tapswitch_controller::{Config, RestConfig, Server, TlsFiles};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::client::{TokenFile, exchange, with_rest};
use super::places::metric;
use crate::running::{Running, config, until};
use crate::script::Script;

/// A certificate authority.
struct Authority {
    directory: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { directory, issuer }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Issues a certificate for this machine, with its key.
    fn issue(&self, name: &str) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()]);
        let cert = params.unwrap().signed_by(&key, &self.issuer).unwrap();
        let files = TlsFiles {
            cert: self.path(&format!("{name}.pem")),
            key: self.path(&format!("{name}.key")),
            ca: None,
        };
        std::fs::write(&files.cert, cert.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    /// Performs a handshake with a server whose certificate is from this authority.
    async fn connect(
        &self,
        server: std::net::SocketAddr,
        own: Option<&TlsFiles>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        let builder =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some(own) => builder.with_client_auth_cert(certs(&own.cert), key(&own.key)).unwrap(),
        };
        let stream = TcpStream::connect(server).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }
}

fn certs(path: &Path) -> Vec<CertificateDer<'static>> {
    vec![CertificateDer::from_pem_file(path).unwrap()]
}

fn key(path: &Path) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_file(path).unwrap()
}

fn rest(tls: TlsFiles, tokens: &TokenFile) -> Config {
    let base = with_rest();
    let rest = RestConfig {
        tls: Some(tls),
        tokens: Some(tokens.path.clone()),
        ..base.rest.clone().unwrap()
    };
    Config { rest: Some(rest), ..base }
}

#[tokio::test]
async fn rest_by_tls_and_a_session_whose_cookie_stays_there() {
    let (authority, tokens) = (Authority::new(), TokenFile::make());
    let server = Running::start(rest(authority.issue("rest"), &tokens)).await;
    let stream = authority.connect(server.rest(), None).await.unwrap();
    let body = format!("{{\"token\":\"{}\"}}", tokens.viewer).into_bytes();
    let json = [("content-type", "application/json")];
    let request = ("POST", "/api/v1/session");
    let answer = exchange(stream, server.rest(), request, &json, body).await;
    assert_eq!(answer.status, 204);
    assert!(answer.headers["set-cookie"].to_str().unwrap().ends_with("; Secure"));
    let other = Authority::new();
    assert!(
        other.connect(server.rest(), None).await.is_err(),
        "the CA of its certificates is missing there"
    );
}

#[tokio::test]
async fn plain_http_is_answered_by_what_to_ask_instead() {
    let (authority, tokens) = (Authority::new(), TokenFile::make());
    let server = Running::start(rest(authority.issue("rest"), &tokens)).await;
    let stream = TcpStream::connect(server.rest()).await.unwrap();
    let request = ("POST", "/api/v1/policies");
    let answer = exchange(stream, server.rest(), request, &[], vec![b'x'; 9000]).await;
    assert_eq!(answer.refusal(), (400, "not-tls".to_owned()));
    assert!(answer.text.contains("https://"), "{}", answer.text);
}

/// Silent connections get a part of the places, even if all others are free.
#[tokio::test]
async fn who_begins_handshakes_and_does_not_end_them_takes_few_places() {
    let (authority, tokens) = (Authority::new(), TokenFile::make());
    let base = rest(authority.issue("rest"), &tokens);
    let narrow = RestConfig { max_connections: 16, ..base.rest.clone().unwrap() };
    let server = Running::start(Config { rest: Some(narrow), ..base }).await;
    let mut silent = Vec::new();
    for _ in 0..6 {
        silent.push(TcpStream::connect(server.rest()).await.unwrap());
    }
    let bearer = format!("Bearer {}", tokens.viewer);
    let metric = "tapswitch_controller_connections_evicted_total{of=\"rest\"} ";
    until(async || {
        // A client that completes the handshake is served.
        let stream = authority.connect(server.rest(), None).await.unwrap();
        let (request, headers) = (("GET", "/metrics"), [("authorization", bearer.as_str())]);
        let text = exchange(stream, server.rest(), request, &headers, vec![]).await.text;
        let evicted = text.lines().find_map(|line| line.strip_prefix(metric));
        evicted.unwrap_or_else(|| panic!("{text}")).parse::<u64>().unwrap() >= 4
    })
    .await;
}

#[tokio::test]
async fn certificates_are_replaced_under_connections() {
    let (authority, tokens) = (Authority::new(), TokenFile::make());
    let files = authority.issue("rest");
    let server = Running::start(rest(files.clone(), &tokens)).await;
    let shown =
        |stream: &TlsStream<TcpStream>| stream.get_ref().1.peer_certificates().unwrap()[0].clone();
    let old = authority.connect(server.rest(), None).await.unwrap();
    let first = shown(&old);
    authority.issue("rest");
    server.reloader.reload();
    let new = authority.connect(server.rest(), None).await.unwrap();
    assert_ne!(shown(&new), first);
    let answer = exchange(old, server.rest(), ("GET", "/healthz"), &[], vec![]).await;
    assert_eq!(answer.text, "ok\n", "the connection from before goes on");

    std::fs::write(&files.key, "no key").unwrap();
    server.reloader.reload();
    let kept = authority.connect(server.rest(), None).await.unwrap();
    assert_eq!(shown(&kept), shown(&new), "what is wrong changes nothing");
}

#[tokio::test]
async fn clients_without_a_certificate_are_turned_away_where_one_is_asked_for() {
    let (authority, tokens) = (Authority::new(), TokenFile::make());
    let files = TlsFiles { ca: Some(authority.path("ca.pem")), ..authority.issue("rest") };
    let server = Running::start(rest(files, &tokens)).await;
    let own = authority.issue("client");
    let stream = authority.connect(server.rest(), Some(&own)).await.unwrap();
    let answer = exchange(stream, server.rest(), ("GET", "/healthz"), &[], vec![]).await;
    assert_eq!(answer.status, 200);
    assert!(!is_served(&authority, server.rest(), None).await);
    let elsewhere = Authority::new();
    let stranger = elsewhere.issue("client");
    assert!(!is_served(&authority, server.rest(), Some(&stranger)).await);
}

/// In TLS 1.3 a client learns that it was rejected when it reads.
async fn is_served(
    authority: &Authority,
    server: std::net::SocketAddr,
    own: Option<&TlsFiles>,
) -> bool {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let Ok(mut stream) = authority.connect(server, own).await else { return false };
    let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    let mut buf = [0; 16];
    matches!(stream.read(&mut buf).await, Ok(1..))
}

#[tokio::test]
async fn switches_by_tls() {
    let authority = Authority::new();
    let tls = TlsFiles { ca: Some(authority.path("ca.pem")), ..authority.issue("openflow") };
    let listen_tls = vec!["127.0.0.1:0".parse().unwrap()];
    let server =
        Running::start(Config { tls: Some(tls), listen: vec![], listen_tls, ..config() }).await;
    let own = authority.issue("switch");
    let stream = authority.connect(server.address, Some(&own)).await.unwrap();
    let switch = Script::on(1, stream, Arc::default());
    server.wait_for_ports(1).await;
    let policy = tapswitch_control::TapPolicy::new("p", "3".parse().unwrap());
    server.handle.add_policy(&crate::running::me(), policy).await.unwrap();
    assert_eq!(switch.tap_count(), 1);
    // Without a certificate the handshake fails.
    if let Ok(stream) = authority.connect(server.address, None).await {
        Script::on(2, stream, Arc::default()).closed().await;
    }
    Script::connect(3, server.address).await.closed().await;
    let switches = server.handle.switches().await.unwrap();
    assert_eq!(switches.iter().map(|report| report.switch.0).collect::<Vec<_>>(), [1]);
}

/// The same for switches, of which many may be behind one address.
#[tokio::test]
async fn switches_that_begin_handshakes_and_do_not_end_them_take_few_places() {
    let authority = Authority::new();
    let tls = TlsFiles { ca: Some(authority.path("ca.pem")), ..authority.issue("openflow") };
    let listen_tls = vec!["127.0.0.1:0".parse().unwrap()];
    let config = Config { tls: Some(tls), listen: vec![], listen_tls, ..with_rest() };
    let server = Running::start(Config { max_connections: 16, ..config }).await;
    let own = authority.issue("switch");
    let mut switches = Vec::new();
    for id in 1..=4 {
        let stream = authority.connect(server.address, Some(&own)).await.unwrap();
        switches.push(Script::on(id, stream, Arc::default()));
        server.wait_for_ports(id).await;
    }
    let mut silent = Vec::new();
    for _ in 0..6 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    until(async || {
        // Most of the silent ones make room, although places are free.
        drop(authority.connect(server.address, Some(&own)).await.unwrap());
        metric(&server, "_evicted_total", "switches").await >= 4
    })
    .await;
    assert!(switches.iter().all(|switch| !switch.is_closed()), "they have shaken hands");
}

#[tokio::test]
async fn what_is_wrong_with_certificates_is_said() {
    let (authority, tokens) = (Authority::new(), TokenFile::make());
    let files = authority.issue("rest");
    let error = async |tls: TlsFiles| {
        Server::bind(rest(tls, &tokens)).await.map(drop).unwrap_err().to_string()
    };
    let missing = error(TlsFiles { cert: authority.path("nowhere.pem"), ..files.clone() }).await;
    assert!(missing.contains("nowhere.pem") && missing.contains("PEM"), "{missing}");
    let swapped = TlsFiles { cert: files.key.clone(), key: files.cert.clone(), ca: None };
    assert!(error(swapped).await.contains("no certificate"));
    let other = TlsFiles { key: authority.issue("other").key, ..files };
    assert!(error(other).await.contains("the key does not belong to the certificate"));
    let none = Config { listen_tls: vec!["127.0.0.1:0".parse().unwrap()], ..config() };
    let error = Server::bind(none).await.map(drop).unwrap_err().to_string();
    assert!(error.contains("--tls-cert"), "{error}");
}
