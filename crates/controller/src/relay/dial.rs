//! Connects to the leader in the place of a switch.

use std::net::SocketAddr;
use std::time::Duration;

use tapswitch_tls::{ClientFiles, PeerName, TlsError, TlsFiles, explain};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Stream;
use crate::tls::ClientTls;

/// How to connect to a leader.
#[derive(Clone, Debug)]
pub(crate) struct Dialler {
    /// Without a CA no certificate can be verified.
    tls: Option<ClientTls>,
}

impl Dialler {
    /// Uses the certificate that switches see, and their CA.
    pub(crate) fn new(tls: Option<&TlsFiles>) -> Result<Self, TlsError> {
        let files = tls.and_then(|TlsFiles { cert, key, ca }| {
            let own = Some((cert.clone(), key.clone()));
            Some(ClientFiles { ca: ca.clone()?, own, name: PeerName::Address })
        });
        Ok(Self { tls: files.map(ClientTls::open).transpose()? })
    }

    /// Connects to `tcp:ADDRESS:PORT` or `tls:ADDRESS:PORT`.
    ///
    /// # Errors
    /// The cause, and the remedy.
    pub(crate) async fn dial(&self, leader: &str) -> Result<Box<dyn Stream>, String> {
        let dialled = tokio::time::timeout(PATIENCE, self.dial_patiently(leader)).await;
        dialled.unwrap_or_else(|_| Err(format!("{leader}: no answer within {PATIENCE:?}")))
    }

    async fn dial_patiently(&self, leader: &str) -> Result<Box<dyn Stream>, String> {
        let (scheme, address) = leader.split_once(':').unwrap_or_default();
        let address: SocketAddr = address.parse().map_err(|error| format!("{leader}: {error}"))?;
        let failed = |error| format!("{leader}: {}", explain(&error, "tcp:"));
        let stream = TcpStream::connect(address).await.map_err(failed)?;
        // Messages are small, and latency matters.
        let _ = stream.set_nodelay(true);
        if scheme == "tcp" {
            return Ok(Box::new(stream));
        }
        let tls = self.tls.as_ref().ok_or_else(|| format!("{leader}: {NO_CA}"))?;
        let name = PeerName::Address.at(address.ip());
        let stream =
            TlsConnector::from(tls.config("")).connect(name, stream).await.map_err(failed)?;
        Ok(Box::new(stream))
    }
}

/// Maximum time for a connection and its handshake; also an etcd lease of two seconds waits.
const PATIENCE: Duration = Duration::from_secs(1);
const NO_CA: &str = "its certificate cannot be verified; name the CA with --tls-ca";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::tls::{HANDSHAKE, Tls};

    type Authority = CertifiedIssuer<'static, KeyPair>;

    fn authority() -> Authority {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    /// A certificate for this machine from `issuer`, and the authority of the others.
    fn files(directory: &Path, name: &str, issuer: &Authority, ca: Option<&Authority>) -> TlsFiles {
        let path = |end: &str| directory.join(format!("{name}.{end}"));
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let cert = params.signed_by(&key, issuer).unwrap();
        std::fs::write(path("pem"), cert.pem()).unwrap();
        std::fs::write(path("key"), key.serialize_pem()).unwrap();
        let ca = ca.map(|ca| {
            std::fs::write(path("ca"), ca.pem()).unwrap();
            path("ca")
        });
        TlsFiles { cert: path("pem"), key: path("key"), ca }
    }

    /// What the leader gets from who dials it with these files, or why not.
    async fn dialled(leader: TlsFiles, follower: Option<&TlsFiles>) -> Result<u8, String> {
        let tls = Tls::open(leader, "tcp:").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("tls:{}", listener.local_addr().unwrap());
        let accepting = async {
            let stream = listener.accept().await.unwrap().0;
            let deadline = tokio::time::Instant::now() + HANDSHAKE;
            let mut stream = tls.accept(stream, "follower", deadline).await?;
            stream.read_u8().await.ok()
        };
        let dialling = async {
            let mut stream = Dialler::new(follower).unwrap().dial(&address).await?;
            stream.write_all(&[7]).await.map_err(|error| error.to_string())?;
            stream.flush().await.map_err(|error| error.to_string())
        };
        tokio::select! {
            // Without a certificate the leader does not accept, which the follower hears later.
            byte = accepting => byte.ok_or_else(|| "not accepted".to_owned()),
            Err(error) = dialling => Err(error),
        }
    }

    #[tokio::test]
    async fn controllers_know_each_other_by_the_certificates_that_switches_see() {
        let (ours, others) = (authority(), authority());
        let directory = tempfile::tempdir().unwrap();
        let files = |name, issuer, ca| files(directory.path(), name, issuer, ca);
        let leader = files("leader", &ours, Some(&ours));
        let good = files("good", &ours, Some(&ours));
        assert_eq!(dialled(leader.clone(), Some(&good)).await, Ok(7));
        let foreign = files("foreign", &others, Some(&ours));
        assert!(dialled(leader.clone(), Some(&foreign)).await.is_err());
        let astray = files("astray", &ours, Some(&others));
        let why = dialled(leader.clone(), Some(&astray)).await.unwrap_err();
        assert!(why.contains("tls:127.0.0.1:") && why.contains("CA file"), "{why}");
        for blind in [None, Some(&files("blind", &ours, None))] {
            let why = dialled(leader.clone(), blind).await.unwrap_err();
            assert!(why.ends_with("name the CA with --tls-ca"), "{why}");
        }
    }

    #[tokio::test]
    async fn who_cannot_be_reached_is_named() {
        let dialler = Dialler::new(None).unwrap();
        let why = dialler.dial("tcp:127.0.0.1:1").await.err().unwrap();
        assert!(why.starts_with("tcp:127.0.0.1:1: "), "{why}");
        let why = dialler.dial("unknown").await.err().unwrap();
        assert!(why.starts_with("unknown: "), "{why}");
    }
}
