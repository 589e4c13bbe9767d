//! Connections to controllers, which are re-established, and connections accepted from tools.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tapswitch_channel::{Backoff, Config, ConnectionId};
use tapswitch_tls::explain;
use tapswitch_vhost::MORE_FILES;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::Endpoint;
use crate::peer::{Ended, FromPeer, Orders, Origin, Peer};
use crate::places::{Eviction, Place, Places};
use crate::tls::{TlsClient, TlsServer};

/// Opens and accepts connections, and gives them ids.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    pub(crate) next_id: Arc<AtomicU64>,
    pub(crate) to_server: mpsc::Sender<(ConnectionId, FromPeer)>,
    /// The limit on accepted connections.
    pub(crate) places: Arc<Places>,
    /// Times and limits of each connection.
    pub(crate) channel: Config,
}

impl Connector {
    /// Keeps a connection to `controller` for ever: reconnects at once after a loss, then with
    /// delays of at most two seconds. Each error is logged once, until a connection succeeds.
    pub(crate) async fn keep(self, controller: Endpoint, tls: Option<TlsClient>) {
        let mut attempts = Attempts::default();
        loop {
            let outcome = self.connect(controller, tls.as_ref(), attempts.is_on_trial).await;
            let (pause, news) = attempts.note(outcome);
            if let Some(text) = news {
                tracing::warn!(
                    "controller {controller}: {text}; trying again, at least every two seconds"
                );
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Runs one connection to a controller to its end. Returns an error if it did not last.
    async fn connect(
        &self,
        controller: Endpoint,
        tls: Option<&TlsClient>,
        is_on_trial: bool,
    ) -> Result<(), AttemptError> {
        let connecting = TcpStream::connect(controller.address);
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        let stream = as_messages_come(stream.map_err(io::Error::from)??);
        let origin = Origin::Controller { endpoint: controller, is_on_trial };
        let ended = match tls {
            None => self.run(stream, origin, None, pending()).await,
            Some(tls) => {
                let stream = tls.connect(stream, controller).await?;
                self.run(stream, origin, None, pending()).await
            }
        };
        judge(ended).map_err(|error| match error {
            AttemptError::Unused if tls.is_some() => AttemptError::UnusedTls,
            error => error,
        })
    }

    /// Accepts connections, for ever.
    pub(crate) async fn accept(self, listener: TcpListener, tls: Option<TlsServer>) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let Some(place) = self.places.take(peer.ip()) else { continue };
                    let (connector, tls) = (self.clone(), tls.clone());
                    tokio::spawn(async move { connector.serve(stream, peer, place, tls).await });
                }
                Err(error) => {
                    // Usually out of file descriptors: waits until some are closed.
                    if self.places.make_room(Instant::now()) {
                        tracing::warn!("cannot accept connections: {error}; {MORE_FILES}");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        (place, eviction): (Place, Eviction),
        tls: Option<TlsServer>,
    ) {
        let stream = as_messages_come(stream);
        let mut evicted = std::pin::pin!(eviction.happens());
        let origin = Origin::Accepted;
        let Some(tls) = tls else {
            self.run(stream, origin, Some(place), evicted).await;
            return;
        };
        let accepted = tokio::select! {
            accepted = tls.accept(stream) => accepted,
            () = &mut evicted => return,
        };
        match accepted {
            Ok(stream) => _ = self.run(stream, origin, Some(place), evicted).await,
            Err(error) => tracing::warn!("{peer}: {error}"),
        }
    }

    /// Runs a connection to its end, or until it is evicted.
    async fn run(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin,
        origin: Origin,
        place: Option<Place>,
        evicted: impl Future<Output = ()>,
    ) -> Ended {
        let id = ConnectionId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let (orders, inbox) = Orders::channel();
        let peer = Peer::new(id, self.to_server.clone(), inbox, place, self.channel);
        let unused = Ended { was_ready: false, has_lasted: false, error: None };
        // Sent on the same channel as all events of the peer, so that they are the first and the
        // last.
        if self.to_server.send((id, FromPeer::Opened { orders, origin })).await.is_err() {
            return unused;
        }
        let ended = tokio::select! {
            ended = self.run_peer(id, peer.run(stream)) => ended,
            () = evicted => unused,
        };
        // If this fails, the server has ended.
        let _ = self.to_server.send((id, FromPeer::Gone)).await;
        ended
    }

    /// Notifies the server when the connection has lasted for a while.
    async fn run_peer(&self, id: ConnectionId, running: impl Future<Output = Ended>) -> Ended {
        let mut running = std::pin::pin!(running);
        if let Ok(ended) = tokio::time::timeout(TRIAL_TIME, &mut running).await {
            return ended;
        }
        // If this fails, the server has ended.
        let _ = self.to_server.send((id, FromPeer::Lasts)).await;
        Ended { has_lasted: true, ..running.await }
    }
}

/// The history of attempts to connect to a controller.
#[derive(Debug, Default)]
struct Attempts {
    backoff: Backoff,
    /// The last error that was logged.
    told: Option<String>,
    /// Whether the controller accepted the last connection and closed it at once.
    is_on_trial: bool,
}

impl Attempts {
    /// Notes the outcome of an attempt. Returns the delay before the next one, and an error to log.
    ///
    /// Only a connection that lasts is a success: otherwise a controller that says hello and hangs
    /// up would be reconnected without a delay, for ever.
    fn note(&mut self, outcome: Result<(), AttemptError>) -> (Duration, Option<String>) {
        self.is_on_trial = matches!(outcome, Err(AttemptError::Short));
        if outcome.is_ok() {
            self.backoff.handle_success();
        }
        let wrong = outcome.err().map(|error| error.to_string());
        let news = wrong.clone().filter(|_| wrong != self.told);
        self.told = wrong;
        (self.backoff.handle_failure(), news)
    }
}

/// Whether a connection to a controller was used and lasted.
fn judge(ended: Ended) -> Result<(), AttemptError> {
    match ended {
        Ended { was_ready: true, has_lasted: true, .. } => Ok(()),
        Ended { was_ready: true, .. } => Err(AttemptError::Short),
        // In TLS 1.3, a controller that refuses our certificate reports it after the handshake.
        Ended { error: Some(error), .. } => Err(io::Error::other(explain(&error, "tcp:")).into()),
        _ => Err(AttemptError::Unused),
    }
}

/// Why an attempt did not lead to a lasting connection.
#[derive(Debug, thiserror::Error)]
enum AttemptError {
    /// Connecting failed, or TLS or the socket failed later.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer may serve another protocol on this port.
    #[error("the connection was closed before the OpenFlow 1.3 handshake")]
    Unused,
    /// A peer that refuses our certificate need not say so.
    #[error(
        "the connection was closed before the OpenFlow 1.3 handshake; perhaps the peer rejects our \
         certificate: see its log"
    )]
    UnusedTls,
    /// The controller may have a connection from another switch with this datapath id.
    #[error(
        "it completes the handshake and closes the connection within {} s; check that no other \
         switch has this datapath ID",
        TRIAL_TIME.as_secs()
    )]
    Short,
}

/// Disables Nagle's algorithm: messages are sent at once.
fn as_messages_come(stream: TcpStream) -> TcpStream {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("cannot set TCP_NODELAY: {error}");
    }
    stream
}

/// Limit for the TCP handshake, so that a firewall that drops packets does not delay the next
/// attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of accepted connections: a process may have a few thousand files open.
pub(crate) const ACCEPTED_COUNT_MAX: usize = 128;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a connection must last to be a success.
const TRIAL_TIME: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses_ms(attempts: &mut Attempts, count: usize) -> Vec<u128> {
        let short = || Err(AttemptError::Short);
        (0..count).map(|_| attempts.note(short()).0.as_millis()).collect()
    }

    #[test]
    fn a_controller_that_hangs_up_is_given_time_until_it_stays() {
        let mut attempts = Attempts::default();
        assert_eq!(pauses_ms(&mut attempts, 7), [0, 100, 200, 400, 800, 1600, 2000]);
        assert_eq!(attempts.note(Ok(())), (Duration::ZERO, None), "it was there for a while");
        assert_eq!(pauses_ms(&mut attempts, 2), [100, 200]);
    }

    #[test]
    fn only_a_connection_that_was_of_use_and_lasted_is_a_success() {
        let ended = |was_ready, has_lasted| judge(Ended { was_ready, has_lasted, error: None });
        assert!(ended(true, true).is_ok());
        assert!(matches!(ended(true, false), Err(AttemptError::Short)));
        assert!(matches!(ended(false, true), Err(AttemptError::Unused)), "it was silent");
        assert!(matches!(ended(false, false), Err(AttemptError::Unused)));
    }

    #[test]
    fn what_is_wrong_is_told_once_until_it_was_right() {
        let mut attempts = Attempts::default();
        let mut tells = |outcome| attempts.note(outcome).1.is_some();
        assert!(tells(Err(AttemptError::Short)) && !tells(Err(AttemptError::Short)));
        assert!(tells(Err(AttemptError::Unused)) && !tells(Err(AttemptError::Unused)));
        assert!(!tells(Ok(())) && tells(Err(AttemptError::Unused)));
    }
}
