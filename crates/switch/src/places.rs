//! The limit on OpenFlow connections that others open to the switch.
//!
//! Each listener takes a [`Place`] for a connection that it accepts, and the connection keeps it
//! until it ends. The limit bounds memory and file descriptors.
//!
//! A connection is a stranger until the peer has sent its hello. When all places are taken, a new
//! connection evicts the oldest stranger; it is refused if there is none. So silent peers cannot
//! block others. The time limits for strangers are set elsewhere: ten seconds for TLS and ten for
//! the hello.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// The places of all accepted connections.
#[derive(Debug)]
pub(crate) struct Places {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Numbers of the open connections; older ones have smaller numbers.
    open: BTreeSet<u64>,
    strangers: BTreeMap<u64, oneshot::Sender<()>>,
    last: u64,
    evicted: u64,
    refused: u64,
    told_at: Option<Instant>,
    /// When the log was last told that a connection cannot be accepted.
    failed_at: Option<Instant>,
}

/// The place of one connection, released on drop.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
}

/// Tells a connection to end in favour of a new one.
#[derive(Debug)]
pub(crate) struct Eviction(oneshot::Receiver<()>);

impl Places {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, taken: Mutex::default() })
    }

    /// A place for a stranger from this address, unless all are taken by connections that have sent
    /// hello.
    pub(crate) fn take(self: &Arc<Self>, from: IpAddr) -> Option<(Place, Eviction)> {
        let mut taken = self.lock();
        if taken.open.len() >= self.max {
            let has_room = taken.evict();
            taken.refused += u64::from(!has_room);
            self.tell(&mut taken, from);
            if !has_room {
                return None;
            }
        }
        taken.last += 1;
        let (number, (evict, evicted)) = (taken.last, oneshot::channel());
        taken.open.insert(number);
        taken.strangers.insert(number, evict);
        Some((Place { places: Arc::clone(self), number }, Eviction(evicted)))
    }

    /// The kernel cannot accept a connection, usually for lack of file descriptors: evicts a
    /// stranger, if there is one. Returns whether to log it, at a limited rate.
    pub(crate) fn make_room(&self, now: Instant) -> bool {
        let mut taken = self.lock();
        taken.evict();
        is_due(&mut taken.failed_at, now)
    }

    /// Logs now and then that places are scarce, at a limited rate.
    fn tell(&self, taken: &mut Taken, from: IpAddr) {
        if !is_due(&mut taken.told_at, Instant::now()) {
            return;
        }
        let Taken { evicted, refused, .. } = taken;
        tracing::warn!(
            "the limit of {} connections to this switch is reached, and {from} opens another: so \
             far {evicted} without a hello were closed for newer ones, and {refused} were refused",
            self.max
        );
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // The state is consistent whenever the lock is free.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Evicts the oldest stranger. Returns whether there was one.
    fn evict(&mut self) -> bool {
        let Some((number, evict)) = self.strangers.pop_first() else { return false };
        self.open.remove(&number);
        self.evicted += 1;
        // The connection may have ended by itself.
        let _ = evict.send(());
        true
    }
}

impl Place {
    /// The peer has sent hello: it is not evicted any more.
    pub(crate) fn keep(&self) {
        self.places.lock().strangers.remove(&self.number);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.open.remove(&self.number);
        taken.strangers.remove(&self.number);
    }
}

impl Eviction {
    /// Waits for the eviction, possibly for ever.
    pub(crate) async fn happens(self) {
        if self.0.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Whether to log something that was last logged at this time; if so, it is now.
fn is_due(told_at: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = told_at.is_none_or(|at| now.saturating_duration_since(at) >= TELL_AGAIN);
    if is_due {
        *told_at = Some(now);
    }
    is_due
}

const TELL_AGAIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_make_room_and_others_do_not() {
        let places = Places::new(3);
        let take = || places.take(IpAddr::from([192, 0, 2, 1]));
        let known = take().unwrap();
        known.0.keep();
        let mut strangers: Vec<_> = (0..4).map(|_| take().unwrap()).collect();
        let evicted = strangers.iter_mut().map(|(_, it)| it.0.try_recv().is_ok());
        assert_eq!(evicted.collect::<Vec<_>>(), [true, true, false, false], "the oldest ones");
        strangers[2..].iter().for_each(|(place, _)| place.keep());
        assert!(take().is_none(), "all are known");
        drop(known);
        assert!(take().is_some());
        drop(strangers);
        let taken = places.lock();
        assert_eq!((taken.open.len(), taken.evicted, taken.refused), (0, 2, 1));
    }

    #[test]
    fn a_lack_of_descriptors_ends_strangers_and_is_told_once_a_minute() {
        let places = Places::new(8);
        let take = || places.take(IpAddr::from([192, 0, 2, 1])).unwrap();
        let known = take();
        known.0.keep();
        let mut strangers = [take(), take()];
        let mut evicted = || strangers.each_mut().map(|(_, it)| it.0.try_recv().is_ok());
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(places.make_room(start), "it is told");
        assert_eq!(evicted(), [true, false], "the oldest makes room");
        assert!(!places.make_room(after(59)), "and not again for a minute");
        assert_eq!(evicted(), [false, true]);
        assert!(places.make_room(after(60)), "then it is");
        assert_eq!(places.lock().open.len(), 1, "who has said hello stays");
    }
}
