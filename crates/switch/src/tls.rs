//! TLS to controllers, and for tools that connect.
//!
//! Both ends must present a certificate: a peer that controls a switch sees all traffic.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tapswitch_tls::{ClientFiles, Fresh, Source, TlsError, TlsFiles, explain};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use crate::{Endpoint, Tls};

/// The connecting end.
#[derive(Clone, Debug)]
pub(crate) struct TlsClient(Files<ClientFiles>);

/// The accepting end.
#[derive(Clone, Debug)]
pub(crate) struct TlsServer(Files<TlsFiles>);

impl TlsClient {
    pub(crate) fn open(tls: &Tls) -> Result<Self, TlsError> {
        Files::open(tls.client()).map(Self)
    }

    /// Performs the handshake with a controller.
    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        controller: Endpoint,
    ) -> io::Result<client::TlsStream<TcpStream>> {
        let name = self.name(controller);
        let connector = TlsConnector::from(self.0.config());
        in_time(connector.connect(name, stream)).await
    }

    fn name(&self, controller: Endpoint) -> ServerName<'static> {
        self.0.with(|fresh| fresh.source().name.at(controller.address.ip()))
    }
}

impl TlsServer {
    pub(crate) fn open(tls: &Tls) -> Result<Self, TlsError> {
        Files::open(tls.server()).map(Self)
    }

    /// Performs the handshake with a peer that has connected.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<server::TlsStream<TcpStream>> {
        in_time(TlsAcceptor::from(self.0.config()).accept(stream)).await
    }
}

/// Files shared by all connections of one kind.
#[derive(Debug)]
struct Files<S: Source>(Arc<Mutex<(Fresh<S>, Option<TlsError>)>>);

impl<S: Source> Files<S> {
    fn open(source: S) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(Mutex::new((Fresh::open(source)?, None)))))
    }

    /// The current configuration from the files, or the last valid one.
    fn config(&self) -> Arc<S::Config> {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (fresh, told) = &mut *guard;
        let error = fresh.refresh().err();
        if let Some(error) = error.as_ref().filter(|error| told.as_ref() != Some(error)) {
            tracing::error!("{error}; the previous certificates stay in use");
        }
        *told = error;
        fresh.config()
    }

    fn with<T>(&self, ask: impl FnOnce(&Fresh<S>) -> T) -> T {
        ask(&self.0.lock().unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl<S: Source> Clone for Files<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Runs a handshake with a time limit, and explains its error.
async fn in_time<T>(handshake: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let shaken = tokio::time::timeout(HANDSHAKE, handshake).await;
    let shaken = shaken.unwrap_or_else(|_| Err(io::Error::other("no answer in time")));
    shaken.map_err(|error| io::Error::other(format!("no TLS: {}", explain(&error, "tcp:"))))
}

/// Time limit of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
