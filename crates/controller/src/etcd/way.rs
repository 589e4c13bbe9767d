//! Connections to members of etcd: with TLS or without, and the login.

use std::error::Error;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use http_body_util::Full;
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tapswitch_tls::{ClientFiles, PeerName, explain};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{EtcdConfig, EtcdError, EtcdTls, unreachable};
use crate::tls::ClientTls;
use crate::tokens::open_mode;

/// How to reach the members.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    /// Members as `host:port`; at least one.
    members: Arc<[String]>,
    tls: Option<ClientTls>,
    /// A file with user and password.
    login: Option<Arc<PathBuf>>,
}

/// Why no member can be reached with a configuration.
#[derive(Debug)]
pub(crate) struct Misfit {
    pub(crate) cause: String,
    pub(crate) remedy: &'static str,
    /// Text form of the configuration.
    pub(crate) place: String,
}

impl Way {
    /// Loads the certificates, if any.
    pub(crate) fn open(config: &EtcdConfig) -> Result<Self, Misfit> {
        let wrong = |cause: &dyn Display, remedy| {
            let (cause, place) = (cause.to_string(), config.place());
            Misfit { cause, remedy, place }
        };
        let tls = match &config.tls {
            None if config.is_secure => {
                return Err(wrong(&"the CA of its certificates is missing", NO_CA));
            }
            Some(_) if !config.is_secure => return Err(wrong(&"its URL is without TLS", NO_TLS)),
            None => None,
            Some(EtcdTls { ca, own }) => {
                let (ca, own) = (ca.clone(), own.clone());
                let tls = ClientTls::open(ClientFiles { ca, own, name: PeerName::Address });
                Some(tls.map_err(|error| wrong(&error, OTHER_FILES))?)
            }
        };
        let login = config.login.clone().map(Arc::new);
        Ok(Self { members: config.endpoints.clone().into(), tls, login })
    }

    pub(super) fn members(&self) -> &[String] {
        &self.members
    }

    pub(super) const fn has_login(&self) -> bool {
        self.login.is_some()
    }

    /// The authentication request; the file is read each time, so that it can be changed.
    pub(super) fn login(&self) -> Result<Option<Value>, EtcdError> {
        let Some(path) = &self.login else { return Ok(None) };
        let login = read_login(path);
        let refused = |what| EtcdError::Refused(format!("{}: {what}", path.display()));
        login.map(Some).map_err(refused)
    }

    /// Explains a lost connection. A server that expects TLS may close it, reset it (before it has
    /// read the whole request), or send an alert.
    pub(super) fn explain_lost(&self, error: &hyper::Error) -> EtcdError {
        let perhaps = match self.tls {
            None => "; if it requires TLS, use etcds://",
            Some(_) => "",
        };
        EtcdError::Unreachable(format!("{}{perhaps}", explain_error(error)))
    }

    /// Connects to a member.
    pub(super) async fn connect(
        &self,
        member: &str,
    ) -> Result<SendRequest<Full<Bytes>>, EtcdError> {
        let stream = TcpStream::connect(member).await.map_err(unreachable)?;
        // Requests are small, and latency matters.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else { return speak(stream).await };
        let host = member.rsplit_once(':').map_or(member, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(host).map_err(unreachable)?;
        let connector = TlsConnector::from(tls.config("etcd: "));
        speak(connector.connect(name, stream).await.map_err(unreachable)?).await
    }
}

fn read_login(path: &Path) -> Result<Value, String> {
    let meta = fs::metadata(path).map_err(|error| error.to_string())?;
    if let Some(mode) = open_mode(&meta) {
        return Err(format!(
            "other users may access this file (mode {mode:03o}); run `chmod 600` on it"
        ));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let line = text.trim_end_matches(['\r', '\n']);
    match line.split_once(':') {
        Some((name, password)) if !name.is_empty() && !line.contains('\n') => {
            Ok(json!({ "name": name, "password": password }))
        }
        _ => Err("expected a single line, as in USER:PASSWORD".to_owned()),
    }
}

async fn speak<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, EtcdError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await.map_err(unreachable)?;
    // It ends with its sender, which reports errors.
    tokio::spawn(async move { _ = connection.await });
    Ok(sender)
}

/// Explains a connection error; that of TLS is below HTTP's.
pub(super) fn explain_error(error: &(dyn Error + 'static)) -> String {
    let mut inner = Some(error);
    while let Some(one) = inner {
        if let Some(io) = one.downcast_ref::<io::Error>() {
            return explain(io, "etcd://");
        }
        inner = one.source();
    }
    error.to_string()
}

/// Describes a response that is not the gateway's.
pub(super) fn explain_status(status: StatusCode, bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().next().unwrap_or_default().trim();
    let line: String = line.chars().take(MAX_WORDS_LEN).collect();
    let remedy = match &line {
        line if line.contains("HTTPS") => "; use etcds:// instead of etcd://",
        line if line.contains("CommonName") => {
            "; where etcd has users, the certificate of --store-cert must have no CommonName"
        }
        _ => "",
    };
    format!("HTTP status {status}: {line}{remedy}")
}

/// Maximum quoted bytes of an unexpected response.
const MAX_WORDS_LEN: usize = 200;
const NO_CA: &str = "name the file with the CA of etcd with --store-ca";
const NO_TLS: &str = "use etcds:// instead of etcd://, or leave out --store-ca";
const OTHER_FILES: &str = "name the right files with --store-ca, --store-cert and --store-key";
