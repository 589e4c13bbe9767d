//! Timers and unfinished work by switch, so that not all switches have to be inspected for each
//! input.

use std::collections::{BTreeMap, BTreeSet};

use tapswitch_openflow::DatapathId;

use crate::Millis;
use crate::switch::Switch;

/// Cached state of switches, updated by `note` after each possible change.
#[derive(Clone, Debug, Default)]
pub(super) struct Agenda {
    due: BTreeSet<(Millis, DatapathId)>,
    due_at: BTreeMap<DatapathId, Millis>,
    unsettled: BTreeSet<DatapathId>,
}

impl Agenda {
    pub(super) fn note(&mut self, switch: &Switch) {
        let id = switch.id();
        self.note_due(id, switch.poll_timeout());
        match switch.is_waiting() || switch.is_reread() {
            true => _ = self.unsettled.insert(id),
            false => _ = self.unsettled.remove(&id),
        }
    }

    /// Forgets a switch.
    pub(super) fn remove(&mut self, id: DatapathId) {
        self.note_due(id, None);
        self.unsettled.remove(&id);
    }

    fn note_due(&mut self, id: DatapathId, due: Option<Millis>) {
        if self.due_at.get(&id) == due.as_ref() {
            return;
        }
        let before = match due {
            Some(at) => self.due_at.insert(id, at),
            None => self.due_at.remove(&id),
        };
        self.due.extend(due.map(|at| (at, id)));
        before.into_iter().for_each(|at| _ = self.due.remove(&(at, id)));
    }

    /// The earliest timer.
    pub(super) fn next(&self) -> Option<Millis> {
        Some(self.due.first()?.0)
    }

    /// Switches with timers that are due.
    pub(super) fn due(&self, now: Millis) -> Vec<DatapathId> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, id)| *id).collect()
    }

    /// Switches that are connected but not taken over yet, or being read.
    pub(super) const fn unsettled(&self) -> &BTreeSet<DatapathId> {
        &self.unsettled
    }
}
