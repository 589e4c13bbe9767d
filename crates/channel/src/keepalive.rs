//! Detects a lost peer (OpenFlow 1.3.5 §6.3.4, §7.5.2).
//!
//! With *i* the interval: any received byte proves that the peer is alive. After *i* of silence an
//! echo request is sent; after *i* more the peer is considered dead. So a lost peer is detected
//! after 2*i*.

use std::time::{Duration, Instant};

/// Keepalive state of one connection.
#[derive(Debug)]
pub(crate) struct Keepalive {
    interval: Duration,
    /// Time of the last received bytes.
    heard_at: Instant,
    /// Time of the echo request, if one was sent since then.
    probed_at: Option<Instant>,
}

/// Action to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing.
    Wait,
    /// Send an echo request.
    Probe,
    /// Close the connection.
    Dead,
}

impl Keepalive {
    /// Starts at `now`.
    pub(crate) const fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, heard_at: now, probed_at: None }
    }

    /// Records received bytes.
    pub(crate) const fn handle_bytes(&mut self, now: Instant) {
        self.heard_at = now;
        self.probed_at = None;
    }

    /// Returns the action at `now`. [`Verdict::Probe`] is considered done.
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

    /// Time of the next action; `None` if it is not representable.
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
