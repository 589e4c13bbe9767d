//! Connections to controllers, made again when they end, and from tools, accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tapswitch_channel::{Backoff, ConnectionId};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::Endpoint;
use crate::peer::{FromPeer, Orders, Peer};

/// Makes connections and gives them names.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) next_id: Arc<AtomicU64>,
    pub(crate) to_server: mpsc::Sender<(ConnectionId, FromPeer)>,
}

impl Connector {
    /// Keeps a connection to `controller`, for ever: at once after a loss, then with pauses of at
    /// most two seconds.
    pub(crate) async fn keep(self, controller: Endpoint) {
        let mut backoff = Backoff::default();
        let mut is_reported = false;
        loop {
            match connect(controller).await {
                Ok(stream) => {
                    is_reported = false;
                    if self.run(stream, Some(controller)).await {
                        backoff.handle_success();
                    }
                }
                Err(error) if !is_reported => {
                    is_reported = true;
                    tracing::warn!(
                        "controller {controller}: {error}; trying again, at least \
                                    every two seconds"
                    );
                }
                Err(_) => {}
            }
            tokio::time::sleep(backoff.handle_failure()).await;
        }
    }

    /// Accepts connections, for ever.
    pub(crate) async fn accept(self, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let connector = self.clone();
                    tokio::spawn(async move { connector.run(stream, None).await });
                }
                Err(error) => {
                    // Out of file descriptors: wait for some to be closed.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Carries a connection on to its end. Returns whether it was ever of use.
    async fn run(&self, stream: TcpStream, controller: Option<Endpoint>) -> bool {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("no TCP_NODELAY: {error}");
        }
        let id = ConnectionId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let (orders, inbox) = Orders::channel();
        let peer = Peer::new(id, stream, self.to_server.clone(), inbox, controller.is_none());
        // The news go the way of all that the peer tells, so that they are the first and the last.
        if self.to_server.send((id, FromPeer::Opened { orders, controller })).await.is_err() {
            return false;
        }
        let was_ready = peer.run().await;
        // The server is gone when it does not want to hear it.
        let _ = self.to_server.send((id, FromPeer::Gone)).await;
        was_ready
    }
}

async fn connect(controller: Endpoint) -> std::io::Result<TcpStream> {
    tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(controller.0)).await?
}

/// Time for the TCP handshake, so that a controller behind a firewall that drops does not hold up
/// the next attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
