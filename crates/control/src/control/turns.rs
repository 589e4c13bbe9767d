//! Order in which switches are sent messages.
//!
//! Switches are sent changes in turn, each as fast as it confirms them. In addition the total of
//! unconfirmed changes is limited ([`MAX_AHEAD`]): later decisions may be more urgent than earlier
//! ones that wait in a thousand sockets.

use std::collections::BTreeSet;

use tapswitch_openflow::DatapathId;

/// Switches with messages to send.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    waiting: BTreeSet<DatapathId>,
    /// Switches with changes that the total limit holds back.
    held: BTreeSet<DatapathId>,
    at: DatapathId,
    /// Unconfirmed changes of all switches.
    ahead: usize,
    /// Switches with unconfirmed changes, sent or queued.
    awaited: BTreeSet<DatapathId>,
}

impl Turns {
    /// Adds a switch that may have messages.
    pub(super) fn add(&mut self, switch: DatapathId) {
        self.waiting.insert(switch);
    }

    /// The next switch. Once there is room, switches that wait for it come first.
    pub(super) fn next(&mut self) -> Option<DatapathId> {
        if self.waiting.is_empty() && self.has_room() {
            let held = next_in(&self.held, self.at)?;
            self.held.remove(&held);
            self.waiting.insert(held);
        }
        self.at = next_in(&self.waiting, self.at)?;
        Some(self.at)
    }

    /// The switch has nothing more to send now; `is_held`: for lack of room.
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

    /// Records whether a switch has unconfirmed changes.
    pub(super) fn note_awaited(&mut self, switch: DatapathId, is_awaited: bool) {
        match is_awaited {
            true => self.awaited.insert(switch),
            false => self.awaited.remove(&switch),
        };
    }

    /// Switches with unconfirmed changes.
    pub(super) const fn awaited(&self) -> &BTreeSet<DatapathId> {
        &self.awaited
    }

    /// Clears the total limit.
    pub(super) const fn forget_ahead(&mut self) {
        self.ahead = 0;
    }

    /// Updates the total: a switch had `before` unconfirmed changes, and has `now`.
    pub(super) const fn recount(&mut self, before: usize, now: usize) {
        self.ahead = self.ahead + now - before;
    }
}

/// The first one from `from` on, cyclically.
fn next_in(switches: &BTreeSet<DatapathId>, from: DatapathId) -> Option<DatapathId> {
    switches.range(from..).next().or_else(|| switches.first()).copied()
}

/// Maximum unconfirmed changes of all switches: written and read within some ten milliseconds.
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
