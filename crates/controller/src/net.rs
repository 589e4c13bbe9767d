//! Accepts HTTP connections, with TLS or without, and enforces timeouts.
//!
//! No client delays others: a head must arrive within seconds, a write without progress ends its
//! connection, and the number of connections is bounded ([`crate::places`]).

mod plain;

use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};
use tokio_rustls::server::TlsStream;

use crate::neighbour;
use crate::places::{MORE_FILES, Place, Places};
use crate::tls::{HANDSHAKE, Tls};

/// The peer of a connection, for handlers.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Local user of the connection, if needed and known.
    pub(crate) user: Option<u32>,
    /// Whether the connection uses TLS.
    pub(crate) is_secure: bool,
    /// Its place, to be kept once the client is authenticated.
    pub(crate) place: Arc<Place>,
}

/// Common parameters of connections.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) tls: Option<Arc<Tls>>,
    /// Maximum time of a write without progress.
    pub(crate) write_timeout: Duration,
    pub(crate) places: Arc<Places>,
    /// Whether the local user matters.
    pub(crate) asks_for_user: bool,
    /// True when the server stops. A dropped sender means the same.
    pub(crate) ended: watch::Receiver<bool>,
}

/// Serves until the server stops, and then for a short time to complete responses; or until it is
/// dropped, which also drops the connections.
pub(crate) async fn serve(listener: TcpListener, mut terms: Terms, router: Router) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = terms.ended.wait_for(|ended| *ended) => break,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually out of file descriptors: waits until some are closed.
                if terms.places.make_room(Instant::now().into_std()) {
                    tracing::warn!("REST: cannot accept connections: {error}; {MORE_FILES}");
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some((place, eviction)) = terms.places.take(address.ip()) else { continue };
        // Looked up now instead of at the request, as a closed socket has no user.
        let own = stream.local_addr().ok().filter(|_| terms.asks_for_user);
        let user = own.and_then(|own| neighbour::user(address, own));
        let is_secure = terms.tls.is_some();
        let peer = Peer { address, user, is_secure, place: Arc::new(place) };
        let serving = serve_one(stream, peer, terms.clone(), router.clone());
        connections.spawn(async move {
            let ended = tokio::select! {
                ended = serving => ended,
                () = eviction.happens() => Err(
                    "it was closed to make room for another one".to_owned()),
            };
            if let Err(reason) = ended {
                tracing::debug!("REST: {address}: {reason}");
            }
        });
    }
    let finishing = async { while connections.join_next().await.is_some() {} };
    // A client that does not read is not waited for.
    let _ = tokio::time::timeout(LAST_WORDS, finishing).await;
}

async fn serve_one(
    stream: TcpStream,
    peer: Peer,
    Terms { tls, write_timeout, ended, .. }: Terms,
    router: Router,
) -> Result<(), String> {
    // Failure only costs latency.
    let _ = stream.set_nodelay(true);
    match tls {
        None => talk(Timed::new(stream, write_timeout), peer, (router, ended)).await,
        Some(tls) => {
            let Some(stream) = shake_hands(stream, &peer, &tls).await else { return Ok(()) };
            talk(Timed::new(stream, write_timeout), peer, (router, ended)).await
        }
    }
}

/// Performs the TLS handshake, within [`HANDSHAKE`] in total.
async fn shake_hands(stream: TcpStream, peer: &Peer, tls: &Tls) -> Option<TlsStream<TcpStream>> {
    let _handshake = peer.place.shake_hands();
    let (whose, deadline) = (format!("REST: {}", peer.address), Instant::now() + HANDSHAKE);
    if plain::is_plain(&stream, deadline).await {
        tls.tell(&whose, "the client speaks plain HTTP; use https://");
        plain::refuse(stream).await;
        return None;
    }
    tls.accept(stream, &whose, deadline).await
}

async fn talk<S>(
    stream: Timed<S>,
    peer: Peer,
    (router, mut ended): (Router, watch::Receiver<bool>),
) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let router = router.clone();
        async move {
            use tower_service::Service;
            router.clone().call(request.map(Body::new)).await
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD_LEN);
    let mut talking = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let talked = tokio::select! {
        talked = talking.as_mut() => Some(talked),
        _ = ended.wait_for(|ended| *ended) => None,
    };
    let talked = match talked {
        Some(talked) => talked,
        None => {
            talking.as_mut().graceful_shutdown();
            talking.await
        }
    };
    talked.map_err(|error| error.to_string())
}

/// A stream whose writes time out without progress.
#[derive(Debug)]
struct Timed<S> {
    stream: S,
    timeout: Duration,
    /// Runs while a write is pending.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S> Timed<S> {
    const fn new(stream: S, timeout: Duration) -> Self {
        Self { stream, timeout, deadline: None }
    }

    /// Passes on the result of a write, or a timeout.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.deadline = None;
            return result;
        }
        let timeout = self.timeout;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "it does not read from the connection",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.watch(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch(context, result)
    }
}

const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes of request line and headers.
const MAX_HEAD_LEN: usize = 32 << 10;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum time for completing responses at shutdown.
const LAST_WORDS: Duration = Duration::from_secs(1);
