//! Whose turn it is to be sent something.
//!
//! Switches are told changes one switch after the other, each as far as it follows. All together
//! are told so many ahead of what they confirmed, and no more ([`MAX_AHEAD`]): what is decided
//! later may be more urgent than what was decided long ago and still waits in a thousand sockets.

use std::collections::BTreeSet;

use tapswitch_openflow::DatapathId;

/// The switches that there may be messages for.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    waiting: BTreeSet<DatapathId>,
    /// Those for which there are changes, and no room.
    held: BTreeSet<DatapathId>,
    at: DatapathId,
    /// Changes that all switches were sent and did not confirm.
    ahead: usize,
    /// Switches that there are changes for which they did not confirm, sent or not.
    awaited: BTreeSet<DatapathId>,
}

impl Turns {
    /// There may be messages for it.
    pub(super) fn add(&mut self, switch: DatapathId) {
        self.waiting.insert(switch);
    }

    /// Whose turn it is. Once there is room, those are next that wait for it.
    pub(super) fn next(&mut self) -> Option<DatapathId> {
        if self.waiting.is_empty() && self.has_room() {
            let held = next_in(&self.held, self.at)?;
            self.held.remove(&held);
            self.waiting.insert(held);
        }
        self.at = next_in(&self.waiting, self.at)?;
        Some(self.at)
    }

    /// There is nothing more for it now; `is_held`: for want of room.
    pub(super) fn end(&mut self, switch: DatapathId, is_held: bool) {
        self.waiting.remove(&switch);
        if is_held {
            self.held.insert(switch);
        } else {
            self.held.remove(&switch);
        }
        self.at = DatapathId(switch.0.wrapping_add(1));
    }

    /// Whether changes may be sent.
    pub(super) const fn has_room(&self) -> bool {
        self.ahead < MAX_AHEAD
    }

    /// There are changes for a switch that it did not confirm, or are not any more.
    pub(super) fn note_awaited(&mut self, switch: DatapathId, is_awaited: bool) {
        match is_awaited {
            true => self.awaited.insert(switch),
            false => self.awaited.remove(&switch),
        };
    }

    /// The switches that there are changes for which they did not confirm.
    pub(super) const fn awaited(&self) -> &BTreeSet<DatapathId> {
        &self.awaited
    }

    /// No changes are unconfirmed.
    pub(super) const fn forget_ahead(&mut self) {
        self.ahead = 0;
    }

    /// So many changes to a switch were not confirmed before, and are now.
    pub(super) const fn recount(&mut self, before: usize, now: usize) {
        self.ahead = self.ahead + now - before;
    }
}

/// The first one from there on, in a circle.
fn next_in(switches: &BTreeSet<DatapathId>, from: DatapathId) -> Option<DatapathId> {
    switches.range(from..).next().or_else(|| switches.first()).copied()
}

/// Changes that all switches together are sent ahead of what they confirmed: what is written and
/// read within some ten milliseconds.
const MAX_AHEAD: usize = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [DatapathId; 3] = [DatapathId(1), DatapathId(2), DatapathId(3)];

    #[test]
    fn each_has_its_turn() {
        let mut turns = Turns::default();
        IDS.iter().for_each(|id| turns.add(*id));
        assert_eq!((turns.next(), turns.next()), (Some(IDS[0]), Some(IDS[0])));
        turns.end(IDS[0], false);
        turns.add(IDS[0]);
        assert_eq!(turns.next(), Some(IDS[1]));
        turns.end(IDS[1], false);
        assert_eq!(turns.next(), Some(IDS[2]));
        turns.end(IDS[2], false);
        assert_eq!(turns.next(), Some(IDS[0]));
        turns.end(IDS[0], false);
        assert_eq!(turns.next(), None);
    }

    #[test]
    fn without_room_only_those_go_on_that_need_none() {
        let mut turns = Turns::default();
        turns.recount(0, MAX_AHEAD);
        assert!(!turns.has_room());
        IDS.iter().for_each(|id| turns.add(*id));
        IDS.iter().for_each(|id| turns.end(*id, true));
        assert_eq!(turns.next(), None);
        turns.add(IDS[1]);
        assert_eq!(turns.next(), Some(IDS[1]));
        turns.end(IDS[1], false);
        assert_eq!(turns.next(), None);
        turns.recount(1, 0);
        assert_eq!(turns.next(), Some(IDS[2]));
        turns.end(IDS[2], false);
        assert_eq!(turns.next(), Some(IDS[0]));
    }
}
