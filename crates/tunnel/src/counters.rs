//! Counters of a port.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{GreRefusal, Refusal};

/// Counters of a port since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// System calls that received datagrams.
    pub receive_calls: u64,
    /// Datagrams received.
    pub received: u64,
    /// System calls that sent datagrams.
    pub send_calls: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Datagrams shorter than the tunnel's headers and an Ethernet header.
    pub runt: u64,
    /// Datagrams with invalid headers: VXLAN without the I flag, GRE with another protocol, or a
    /// wrong checksum.
    pub malformed: u64,
    /// Datagrams with another VNI, key or session.
    pub foreign: u64,
    /// Datagrams dropped because routers had marked them, and the sender of the inner packet is not
    /// ECN-capable (RFC 6040 §4.2).
    pub congested: u64,
    /// Errors reported by ICMP, or by the host's neighbour table: no listener (`ECONNREFUSED`), or
    /// not reachable (`EHOSTUNREACH`, `ENETUNREACH`).
    pub unreachable: u64,
    /// Datagrams that the underlying interface refused ([`crate::SendError::Congested`]), which it
    /// counts as drops.
    pub refused_below: u64,
    /// Datagrams dropped by the kernel: socket buffer full, or wrong checksum.
    pub dropped: u64,
}

/// Received datagrams that were dropped, as in [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// Too short.
    pub runt: u64,
    /// Invalid headers.
    pub malformed: u64,
    /// Of another tunnel.
    pub foreign: u64,
    /// Marked, with an inner packet that is not ECN-capable.
    pub congested: u64,
}

/// The counters, shared by threads.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    receive_calls: AtomicU64,
    received: AtomicU64,
    send_calls: AtomicU64,
    sent: AtomicU64,
    runt: AtomicU64,
    malformed: AtomicU64,
    foreign: AtomicU64,
    congested: AtomicU64,
    unreachable: AtomicU64,
    refused_below: AtomicU64,
}

impl Tally {
    #[inline]
    pub(crate) fn note_received(&self, datagrams: usize) {
        add(&self.receive_calls, 1);
        add(&self.received, datagrams as u64);
    }

    #[inline]
    pub(crate) fn note_sent(&self, datagrams: usize) {
        add(&self.send_calls, 1);
        add(&self.sent, datagrams as u64);
    }

    #[cold]
    pub(crate) fn note_refused(&self, refusal: Refusal) {
        add(
            match refusal {
                Refusal::Runt => &self.runt,
                Refusal::NoVni => &self.malformed,
                Refusal::WrongVni(_) => &self.foreign,
            },
            1,
        );
    }

    #[cold]
    pub(crate) fn note_gre_refused(&self, refusal: GreRefusal) {
        add(
            match refusal {
                GreRefusal::Runt => &self.runt,
                GreRefusal::Malformed => &self.malformed,
                GreRefusal::Other => &self.foreign,
            },
            1,
        );
    }

    #[cold]
    pub(crate) fn note_unreachable(&self, count: u64) {
        add(&self.unreachable, count);
    }

    #[cold]
    pub(crate) fn note_refused_below(&self) {
        add(&self.refused_below, 1);
    }

    #[cold]
    pub(crate) fn note_congested(&self) {
        add(&self.congested, 1);
    }

    /// The current values.
    #[inline]
    pub(crate) fn refused(&self) -> Refused {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Refused {
            runt: read(&self.runt),
            malformed: read(&self.malformed),
            foreign: read(&self.foreign),
            congested: read(&self.congested),
        }
    }

    /// All counters, with the kernel's `dropped`.
    pub(crate) fn counters(&self, dropped: u64) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Refused { runt, malformed, foreign, congested } = self.refused();
        Counters {
            receive_calls: read(&self.receive_calls),
            received: read(&self.received),
            send_calls: read(&self.send_calls),
            sent: read(&self.sent),
            runt,
            malformed,
            foreign,
            congested,
            unreachable: read(&self.unreachable),
            refused_below: read(&self.refused_below),
            dropped,
        }
    }
}

/// Several threads send. Relaxed: independent counters.
#[inline]
fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
