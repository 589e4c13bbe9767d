//! Event journal: a ring of recent events, and a broadcast to all listeners. Both are bounded: a
//! slow listener misses events and is told so.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use std::sync::Arc;
use tokio::sync::broadcast;

use crate::clock::{now_text, now_us};
use crate::copies::Copies;

/// Kind of an event, which is its name in the event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A switch connected or disconnected.
    Switch,
    /// A policy changed its state.
    Policy,
    /// A link was added or removed.
    Link,
    /// A host was added, moved or removed.
    Host,
    /// A port went up or down.
    Port,
    /// A condition that needs attention.
    Alarm,
    /// An audit record.
    Audit,
    /// Totals, every second; not kept.
    Tick,
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Policy => "policy",
            Self::Link => "link",
            Self::Host => "host",
            Self::Port => "port",
            Self::Alarm => "alarm",
            Self::Audit => "audit",
            Self::Tick => "tick",
        }
    }

    /// Whether there may be so many that they would displace others.
    const fn is_chatter(self) -> bool {
        matches!(self, Self::Link | Self::Host | Self::Port)
    }
}

/// An event.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Larger than all earlier ids, also of earlier runs.
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// JSON including id and time.
    pub(crate) data: Value,
}

/// Recent events, and the broadcast of new ones.
#[derive(Debug)]
pub(crate) struct Journal {
    ring: Mutex<Ring>,
    copies: Copies,
    sender: broadcast::Sender<Arc<Entry>>,
}

#[derive(Debug)]
struct Ring {
    entries: VecDeque<Arc<Entry>>,
    /// Number of link, host and port events: at most half of all.
    chatter: usize,
    last_id: u64,
    /// Id of the last event that was dropped.
    forgotten: u64,
    max: usize,
}

/// Start of a subscription.
pub(crate) struct Subscription {
    /// Events missed since the given one.
    pub(crate) missed: Vec<Arc<Entry>>,
    /// Whether some of these are lost, or the given event is not of this controller.
    pub(crate) has_gap: bool,
    /// The event after which it begins.
    pub(crate) begins_behind: u64,
    /// New events.
    pub(crate) receiver: broadcast::Receiver<Arc<Entry>>,
}

impl Journal {
    /// A journal that keeps `max` events, which is also the maximum lag of a listener.
    pub(crate) fn new(max: usize) -> Self {
        // Ids are times, so that they increase across restarts.
        let (entries, last_id) = (VecDeque::new(), now_us());
        let ring = Ring { entries, chatter: 0, last_id, forgotten: last_id, max: max.max(1) };
        Self {
            ring: Mutex::new(ring),
            copies: Copies::default(),
            sender: broadcast::channel(max.max(1)).0,
        }
    }

    /// This controller starts to report events: earlier ones may have been reported by others. A
    /// listener that continues from before has a gap.
    pub(crate) fn begin(&self) {
        let mut ring = self.lock();
        ring.last_id += 1;
        ring.forgotten = ring.last_id;
    }

    /// Publishes an event.
    pub(crate) fn publish(&self, kind: Kind, data: Value) {
        let mut ring = self.lock();
        ring.last_id += 1;
        let id = ring.last_id;
        let entry = Arc::new(Entry { id, kind, data: stamped(id, data) });
        if kind != Kind::Tick {
            ring.push(Arc::clone(&entry));
        }
        // There may be no listener.
        let _ = self.sender.send(entry);
    }

    /// Subscribes; `after` is the last event that the listener has seen.
    pub(crate) fn subscribe(&self, after: Option<u64>) -> Subscription {
        let ring = self.lock();
        let receiver = self.sender.subscribe();
        let Some(after) = after else {
            let (missed, begins_behind) = (Vec::new(), ring.last_id);
            return Subscription { missed, has_gap: false, begins_behind, receiver };
        };
        let missed: Vec<_> =
            ring.entries.iter().filter(|entry| entry.id > after).cloned().collect();
        // An id in the future is not of this controller.
        let has_gap = after < ring.forgotten || after > ring.last_id;
        let begins_behind = missed.first().map_or(ring.last_id, |first| first.id - 1);
        Subscription { missed, has_gap, begins_behind, receiver }
    }

    /// The last events, newest first.
    pub(crate) fn last(&self) -> Vec<Arc<Entry>> {
        self.lock().entries.iter().rev().cloned().collect()
    }

    /// Copies received by the controller itself.
    pub(crate) const fn copies(&self) -> &Copies {
        &self.copies
    }

    /// Number of listeners.
    pub(crate) fn listener_count(&self) -> usize {
        self.sender.receiver_count()
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // The content is consistent whenever the lock is free.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn push(&mut self, entry: Arc<Entry>) {
        let is_chatter = |entry: &Arc<Entry>| entry.kind.is_chatter();
        let is_full = is_chatter(&entry) && self.chatter >= self.max.div_ceil(2);
        let gone = match is_full {
            true => self.entries.iter().position(is_chatter),
            false => (self.entries.len() >= self.max).then_some(0),
        };
        if let Some(gone) = gone.and_then(|index| self.entries.remove(index)) {
            self.chatter -= usize::from(is_chatter(&gone));
            self.forgotten = self.forgotten.max(gone.id);
        }
        self.chatter += usize::from(is_chatter(&entry));
        self.entries.push_back(entry);
    }
}

fn stamped(id: u64, data: Value) -> Value {
    let mut members = Map::new();
    members.insert("id".to_owned(), id.into());
    members.insert("at".to_owned(), now_text().into());
    if let Value::Object(data) = data {
        members.extend(data);
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn who_comes_back_gets_what_it_missed() {
        let journal = Journal::new(3);
        journal.publish(Kind::Policy, json!({"n": 1}));
        let seen = journal.last()[0].id;
        journal.publish(Kind::Tick, json!({}));
        journal.publish(Kind::Policy, json!({"n": 2}));
        let Subscription { missed, has_gap, .. } = journal.subscribe(Some(seen));
        assert!(!has_gap);
        assert_eq!(missed.iter().map(|entry| entry.data["n"].clone()).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn what_is_gone_is_said_to_be() {
        let journal = Journal::new(2);
        for n in 0..4 {
            journal.publish(Kind::Policy, json!({"n": n}));
        }
        let oldest = journal.last()[1].id;
        assert_eq!(journal.last().len(), 2);
        assert!(!journal.subscribe(Some(oldest)).has_gap);
        assert!(!journal.subscribe(Some(oldest - 1)).has_gap, "the last one that is gone was seen");
        assert!(journal.subscribe(Some(oldest - 2)).has_gap);
        assert!(journal.subscribe(Some(1)).has_gap, "of a controller before this one");
        let newest = journal.last()[0].id;
        assert!(!journal.subscribe(Some(newest)).has_gap);
        assert!(journal.subscribe(Some(newest + 1)).has_gap, "of one whose clock was ahead");
        assert!(!journal.subscribe(None).has_gap);
    }

    #[test]
    fn what_others_told_meanwhile_is_a_gap() {
        let journal = Journal::new(4);
        journal.publish(Kind::Policy, json!({"n": 0}));
        let seen = journal.last()[0].id;
        assert!(!journal.subscribe(Some(seen)).has_gap);
        journal.begin();
        assert!(journal.subscribe(Some(seen)).has_gap);
        journal.publish(Kind::Policy, json!({"n": 1}));
        let Subscription { missed, has_gap, .. } = journal.subscribe(Some(seen));
        assert_eq!((missed.len(), has_gap), (1, true));
        assert!(!journal.subscribe(Some(journal.last()[0].id)).has_gap);
        assert_eq!(journal.last().len(), 2, "the log has both");
    }

    #[test]
    fn hosts_do_not_make_the_rest_forgotten() {
        let journal = Journal::new(4);
        journal.publish(Kind::Policy, json!({"n": 0}));
        let seen = journal.last()[0].id;
        for n in 1..9 {
            journal.publish(Kind::Host, json!({"n": n}));
        }
        let told = |journal: &Journal| {
            let last = journal.last();
            last.iter().map(|entry| entry.data["n"].as_u64().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(told(&journal), [8, 7, 0]);
        assert!(journal.subscribe(Some(seen)).has_gap);
        assert!(!journal.subscribe(Some(seen + 6)).has_gap);
        for n in 9..12 {
            journal.publish(Kind::Policy, json!({"n": n}));
        }
        assert_eq!(told(&journal), [11, 10, 9, 8]);
    }

    #[tokio::test]
    async fn who_reads_too_slowly_is_told_so() {
        let journal = Journal::new(2);
        let mut receiver = journal.subscribe(None).receiver;
        for n in 0..4 {
            journal.publish(Kind::Tick, json!({"n": n}));
        }
        assert!(matches!(receiver.recv().await, Err(broadcast::error::RecvError::Lagged(2))));
    }
}
