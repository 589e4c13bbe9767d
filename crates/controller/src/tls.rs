//! TLS, for REST and for switches: certificates from files, read again without losing connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tapswitch_tls::{Source, TlsError, TlsFiles, explain};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Our end of TLS.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    config: ArcSwap<ServerConfig>,
}

impl Tls {
    /// Reads the files.
    pub(crate) fn open(files: TlsFiles) -> Result<Self, TlsError> {
        let config = ArcSwap::from_pointee(files.read()?);
        Ok(Self { files, config })
    }

    /// Reads the files again, for the connections that come. What is wrong with them is said, and
    /// changes nothing.
    pub(crate) fn reload(&self) {
        match self.files.read() {
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
        let shaken = shaken.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "no TLS handshake within ten seconds"))
        });
        shaken.map_err(|error| io::Error::other(explain(&error)))
    }
}

const HANDSHAKE: Duration = Duration::from_secs(10);
