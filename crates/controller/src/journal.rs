//! What happens, for those who watch: a ring of the last events, and a broadcast to everybody who
//! listens now. Both are bounded: who reads too slowly misses events and is told so.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value};
use std::sync::Arc;
use tokio::sync::broadcast;

use crate::clock::{now_text, now_us};
use crate::copies::Copies;

/// What an event is about; the name by which clients listen for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A switch came or went.
    Switch,
    /// A policy is doing otherwise than before.
    Policy,
    /// A link between switches came or went.
    Link,
    /// A host came, moved or went.
    Host,
    /// A port carries frames, or does not any more.
    Port,
    /// Something that somebody should look at.
    Alarm,
    /// A record of the audit log.
    Audit,
    /// Totals, each second; not kept.
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

    /// Whether there may be so many that others would not be remembered.
    const fn is_chatter(self) -> bool {
        matches!(self, Self::Link | Self::Host | Self::Port)
    }
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Larger than that of all before, also of those before a restart.
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// JSON, with the id and the time in it.
    pub(crate) data: Value,
}

/// The last events, and those that come.
#[derive(Debug)]
pub(crate) struct Journal {
    ring: Mutex<Ring>,
    copies: Copies,
    sender: broadcast::Sender<Arc<Entry>>,
}

#[derive(Debug)]
struct Ring {
    entries: VecDeque<Arc<Entry>>,
    /// How many of them are of links, hosts and ports: at most half.
    chatter: usize,
    last_id: u64,
    /// The last one that is gone.
    forgotten: u64,
    max: usize,
}

/// What a listener starts with.
pub(crate) struct Subscription {
    /// What it missed since the event that it named.
    pub(crate) missed: Vec<Arc<Entry>>,
    /// Whether some of that is gone, or it named none of this controller's.
    pub(crate) has_gap: bool,
    /// The event behind which it begins.
    pub(crate) begins_behind: u64,
    /// What comes.
    pub(crate) receiver: broadcast::Receiver<Arc<Entry>>,
}

impl Journal {
    /// Keeps the last `max` events; a listener may be as many behind.
    pub(crate) fn new(max: usize) -> Self {
        // Times as numbers, so that they go on growing when a controller starts again.
        let (entries, last_id) = (VecDeque::new(), now_us());
        let ring = Ring { entries, chatter: 0, last_id, forgotten: last_id, max: max.max(1) };
        Self {
            ring: Mutex::new(ring),
            copies: Copies::default(),
            sender: broadcast::channel(max.max(1)).0,
        }
    }

    /// This controller begins to tell what happens: what happened before, others may have told.
    /// Whoever comes back with an event from before has a gap.
    pub(crate) fn begin(&self) {
        let mut ring = self.lock();
        ring.last_id += 1;
        ring.forgotten = ring.last_id;
    }

    /// Something happened.
    pub(crate) fn publish(&self, kind: Kind, data: Value) {
        let mut ring = self.lock();
        ring.last_id += 1;
        let id = ring.last_id;
        let entry = Arc::new(Entry { id, kind, data: stamped(id, data) });
        if kind != Kind::Tick {
            ring.push(Arc::clone(&entry));
        }
        // Perhaps nobody listens.
        let _ = self.sender.send(entry);
    }

    /// Listens; `after` is the event that the listener saw last.
    pub(crate) fn subscribe(&self, after: Option<u64>) -> Subscription {
        let ring = self.lock();
        let receiver = self.sender.subscribe();
        let Some(after) = after else {
            let (missed, begins_behind) = (Vec::new(), ring.last_id);
            return Subscription { missed, has_gap: false, begins_behind, receiver };
        };
        let missed: Vec<_> =
            ring.entries.iter().filter(|entry| entry.id > after).cloned().collect();
        // No event of this controller has a number that is still to come.
        let has_gap = after < ring.forgotten || after > ring.last_id;
        let begins_behind = missed.first().map_or(ring.last_id, |first| first.id - 1);
        Subscription { missed, has_gap, begins_behind, receiver }
    }

    /// The last events, newest first.
    pub(crate) fn last(&self) -> Vec<Arc<Entry>> {
        self.lock().entries.iter().rev().cloned().collect()
    }

    /// Copies that came to the controller itself.
    pub(crate) const fn copies(&self) -> &Copies {
        &self.copies
    }

    /// How many listen.
    pub(crate) fn listener_count(&self) -> usize {
        self.sender.receiver_count()
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // What is in there is whole whenever the lock is free.
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
