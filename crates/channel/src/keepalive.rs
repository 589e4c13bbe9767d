//! Whether the peer is still there (OpenFlow 1.3.5 §6.3.2, §7.5.2).
//!
//! Operations, with *i* the interval: any byte proves that the peer lives. After *i* of silence it
//! is probed with an echo request; after *i* more it is dead. So a lost peer is noticed after 2*i*.

use std::time::{Duration, Instant};

/// The times of one connection.
#[derive(Debug)]
pub(crate) struct Keepalive {
    interval: Duration,
    /// When the peer was heard last.
    heard_at: Instant,
    /// When it was probed, if it was since then.
    probed_at: Option<Instant>,
}

/// What the passing of time asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Wait,
    /// An echo request.
    Probe,
    /// The end.
    Dead,
}

impl Keepalive {
    /// The peer was heard at `now`.
    pub(crate) const fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, heard_at: now, probed_at: None }
    }

    /// Bytes came.
    pub(crate) const fn handle_bytes(&mut self, now: Instant) {
        self.heard_at = now;
        self.probed_at = None;
    }

    /// Time passed. A verdict of [`Verdict::Probe`] counts as followed.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> Verdict {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return Verdict::Wait;
        }
        if self.probed_at.is_some() {
            return Verdict::Dead;
        }
        self.probed_at = Some(now);
        Verdict::Probe
    }

    /// When there will be another verdict; `None` for never, when the interval is beyond all time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.probed_at.unwrap_or(self.heard_at).checked_add(self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(5);

    #[test]
    fn a_silent_peer_is_probed_then_dead() {
        let start = Instant::now();
        let mut keepalive = Keepalive::new(INTERVAL, start);
        assert_eq!(keepalive.handle_timeout(start + INTERVAL / 2), Verdict::Wait);
        assert_eq!(keepalive.handle_timeout(start + INTERVAL), Verdict::Probe);
        assert_eq!(keepalive.handle_timeout(start + INTERVAL), Verdict::Wait);
        assert_eq!(keepalive.deadline(), Some(start + 2 * INTERVAL));
        assert_eq!(keepalive.handle_timeout(start + 2 * INTERVAL), Verdict::Dead);
    }

    #[test]
    fn an_endless_interval_never_ends() {
        let start = Instant::now();
        let mut keepalive = Keepalive::new(Duration::MAX, start);
        assert_eq!(keepalive.deadline(), None);
        assert_eq!(keepalive.handle_timeout(start + 1000 * INTERVAL), Verdict::Wait);
    }

    #[test]
    fn any_byte_is_a_sign_of_life() {
        let start = Instant::now();
        let mut keepalive = Keepalive::new(INTERVAL, start);
        assert_eq!(keepalive.handle_timeout(start + INTERVAL), Verdict::Probe);
        keepalive.handle_bytes(start + INTERVAL * 2 - Duration::from_millis(1));
        assert_eq!(keepalive.handle_timeout(start + 2 * INTERVAL), Verdict::Wait);
    }
}
