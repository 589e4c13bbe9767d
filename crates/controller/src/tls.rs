//! TLS for REST and switches: certificates from files, reloadable without closing connections.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use rustls::{ClientConfig, ServerConfig};
use tapswitch_tls::{ClientFiles, Fresh, Source, TlsError, TlsFiles, explain};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Server side of TLS.
#[derive(Debug)]
pub(crate) struct Tls {
    files: TlsFiles,
    /// What a client without TLS may be looking for.
    plain: &'static str,
    config: ArcSwap<ServerConfig>,
    failures: Mutex<Failures>,
}

/// Client side of TLS, whose files are read again when they have changed.
#[derive(Clone, Debug)]
pub(crate) struct ClientTls(Arc<Mutex<Fresh<ClientFiles>>>);

impl ClientTls {
    /// Loads the files.
    pub(crate) fn open(files: ClientFiles) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(Mutex::new(Fresh::open(files)?))))
    }

    /// The configuration from the current files; if they are invalid, the last valid one. `whose`
    /// begins the error message.
    pub(crate) fn config(&self, whose: &str) -> Arc<ClientConfig> {
        let mut fresh = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = fresh.refresh() {
            tracing::error!("{whose}{error}; the previous certificates stay in use");
        }
        fresh.config()
    }
}

/// Failed handshakes, whose reports are rate-limited, as anyone can cause them.
#[derive(Debug, Default)]
struct Failures {
    /// Start of the current period.
    since: Option<Instant>,
    told: u32,
    untold: u64,
}

impl Tls {
    /// Loads the files. `plain` is what a client without TLS may be looking for.
    pub(crate) fn open(files: TlsFiles, plain: &'static str) -> Result<Self, TlsError> {
        let config = ArcSwap::from_pointee(files.read()?);
        Ok(Self { files, plain, config, failures: Mutex::default() })
    }

    /// Reloads the files for new connections. Returns the certificate's path; on an error nothing
    /// changes.
    pub(crate) fn reload(&self) -> Result<&Path, TlsError> {
        self.config.store(Arc::new(self.files.read()?));
        Ok(&self.files.cert)
    }

    /// Performs the handshake with `peer` before `deadline`. Logs a failure.
    pub(crate) async fn accept<S>(
        &self,
        stream: S,
        peer: &str,
        deadline: tokio::time::Instant,
    ) -> Option<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let acceptor = TlsAcceptor::from(self.config.load_full());
        let shaken = tokio::time::timeout_at(deadline, acceptor.accept(stream)).await;
        let shaken = shaken.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "not completed within ten seconds"))
        });
        shaken.inspect_err(|error| self.tell(peer, &explain(error, self.plain))).ok()
    }

    /// Reports a failed handshake, if not too many have failed.
    pub(crate) fn tell(&self, peer: &str, cause: &str) {
        // The content is consistent whenever the lock is free.
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match failures.handle(Instant::now()) {
            Some(0) => tracing::warn!("{peer}: TLS handshake failed: {cause}"),
            Some(untold) => {
                tracing::warn!(
                    "{peer}: TLS handshake failed: {cause} ({untold} more failures were not \
                     logged)"
                );
            }
            None => tracing::debug!("{peer}: TLS handshake failed: {cause}"),
        }
    }
}

impl Failures {
    /// Counts a failure; returns the number of earlier unreported ones if it is to be reported.
    fn handle(&mut self, now: Instant) -> Option<u64> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= SPAN) {
            (self.since, self.told) = (Some(now), 0);
        }
        if self.told == MAX_TOLD {
            self.untold += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.untold))
    }
}

pub(crate) const HANDSHAKE: Duration = Duration::from_secs(10);
/// Maximum failures reported in each period.
const MAX_TOLD: u32 = 10;
const SPAN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_failures_a_minute_are_told_and_how_many_were_not() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        let told: Vec<_> = (0..13).map(|_| failures.handle(now)).collect();
        assert_eq!(told, [vec![Some(0); 10], vec![None; 3]].concat());
        assert_eq!(failures.handle(now + SPAN), Some(3));
        assert_eq!(failures.handle(now + SPAN), Some(0));
    }
}
