//! Connections to controllers, made again when they end, and from tools, accepted.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tapswitch_channel::{Backoff, ConnectionId};
use tapswitch_tls::explain;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::Endpoint;
use crate::peer::{Ended, FromPeer, Orders, Peer};
use crate::tls::{TlsClient, TlsServer};

/// Makes connections and gives them names.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) next_id: Arc<AtomicU64>,
    pub(crate) to_server: mpsc::Sender<(ConnectionId, FromPeer)>,
}

impl Connector {
    /// Keeps a connection to `controller`, for ever: at once after a loss, then with pauses of at
    /// most two seconds. Each thing that is wrong is told once, until it was right in between.
    pub(crate) async fn keep(self, controller: Endpoint, tls: Option<TlsClient>) {
        let mut backoff = Backoff::default();
        let mut told = None;
        loop {
            match self.connect(controller, tls.as_ref()).await {
                Ok(()) => {
                    told = None;
                    backoff.handle_success();
                }
                Err(error) => {
                    let error = Some(error.to_string());
                    if let Some(text) = error.as_ref().filter(|_| told != error) {
                        tracing::warn!(
                            "controller {controller}: {text}; trying again, at least every two \
                             seconds"
                        );
                    }
                    told = error;
                }
            }
            tokio::time::sleep(backoff.handle_failure()).await;
        }
    }

    /// One connection to a controller, to its end. It is an error when it was never of use.
    async fn connect(&self, controller: Endpoint, tls: Option<&TlsClient>) -> io::Result<()> {
        let connecting = TcpStream::connect(controller.address);
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await??;
        let ended = match tls {
            None => self.run(as_messages_come(stream), Some(controller)).await,
            Some(tls) => {
                let stream = tls.connect(as_messages_come(stream), controller).await?;
                self.run(stream, Some(controller)).await
            }
        };
        match ended.error {
            // By TLS 1.3 a controller that refuses our certificate says so behind the handshake.
            Some(error) if !ended.was_ready => Err(io::Error::other(explain(&error))),
            _ if !ended.was_ready => Err(io::Error::other(UNUSED)),
            _ => Ok(()),
        }
    }

    /// Accepts connections, for ever.
    pub(crate) async fn accept(self, listener: TcpListener, tls: Option<TlsServer>) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let (connector, tls) = (self.clone(), tls.clone());
                    tokio::spawn(async move { connector.serve(stream, peer, tls).await });
                }
                Err(error) => {
                    // Out of file descriptors: wait for some to be closed.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve(&self, stream: TcpStream, peer: SocketAddr, tls: Option<TlsServer>) {
        let stream = as_messages_come(stream);
        match tls {
            None => _ = self.run(stream, None).await,
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => _ = self.run(stream, None).await,
                Err(error) => tracing::warn!("{peer}: {error}"),
            },
        }
    }

    /// Carries a connection on to its end.
    async fn run(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        controller: Option<Endpoint>,
    ) -> Ended {
        let id = ConnectionId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let (orders, inbox) = Orders::channel();
        let peer = Peer::new(id, self.to_server.clone(), inbox, controller.is_none());
        // The news go the way of all that the peer tells, so that they are the first and the last.
        if self.to_server.send((id, FromPeer::Opened { orders, controller })).await.is_err() {
            return Ended { was_ready: false, error: None };
        }
        let ended = peer.run(stream).await;
        // The server is gone when it does not want to hear it.
        let _ = self.to_server.send((id, FromPeer::Gone)).await;
        ended
    }
}

/// Messages are sent as they come, not when there are more of them.
fn as_messages_come(stream: TcpStream) -> TcpStream {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("no TCP_NODELAY: {error}");
    }
    stream
}

/// Time for the TCP handshake, so that a controller behind a firewall that drops does not hold up
/// the next attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Perhaps it listens to something else there.
const UNUSED: &str = "the connection ended before anybody spoke OpenFlow 1.3";
