//! Maps transaction ids to the tickets of the control plane.

use std::collections::{HashMap, VecDeque};

use tapswitch_control::Ticket;

/// Messages on one connection that may still be answered or fail.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    by_xid: HashMap<u32, Sent>,
    /// Changes in the order sent: they are not answered, but confirmed by the next barrier.
    changes: VecDeque<(u32, Position)>,
    next: Position,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    ticket: Ticket,
    at: Position,
}

/// Position in the order sent. Tickets are not in this order, as urgent messages overtake those
/// with smaller ones.
type Position = u64;

impl Tickets {
    /// Records a sent message.
    pub(crate) fn insert(&mut self, xid: u32, ticket: Ticket, is_change: bool) {
        let at = self.next;
        self.next += 1;
        self.by_xid.insert(xid, Sent { ticket, at });
        if is_change {
            self.changes.push_back((xid, at));
        }
        if self.by_xid.len() > 2 * MOST_SENT {
            self.forget_oldest();
        }
    }

    /// Drops messages that are too old to be answered: some switches leave requests unanswered.
    #[cold]
    fn forget_oldest(&mut self) {
        let oldest = self.next.saturating_sub(MOST_SENT as Position);
        self.by_xid.retain(|_, sent| sent.at >= oldest);
    }

    /// The ticket for the reply or error with this transaction id.
    pub(crate) fn take(&mut self, xid: u32) -> Option<Ticket> {
        self.by_xid.remove(&xid).map(|sent| sent.ticket)
    }

    /// The ticket for a barrier reply. Everything sent before it has succeeded or failed.
    pub(crate) fn take_barrier(&mut self, xid: u32) -> Option<Ticket> {
        let barrier = self.by_xid.remove(&xid)?;
        while let Some(&(xid, at)) = self.changes.front()
            && at < barrier.at
        {
            self.changes.pop_front();
            self.by_xid.remove(&xid);
        }
        Some(barrier.ticket)
    }

    /// Number of recorded messages.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.by_xid.len()
    }
}

/// Minimum number of latest messages to keep: several times what a switch is sent at once.
const MOST_SENT: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_control::{Control, Limits, Millis};
    use tapswitch_openflow::{Capabilities, DatapathId, FeaturesReply};

    /// Tickets in the order of a control plane.
    fn tickets() -> Vec<Ticket> {
        let mut control = Control::new(Limits::default());
        let features = FeaturesReply {
            datapath_id: DatapathId(1),
            n_buffers: 0,
            n_tables: 2,
            auxiliary_id: 0,
            capabilities: Capabilities::empty(),
        };
        control.handle_connected(&features, Millis(0));
        std::iter::from_fn(|| control.poll_transmit()).map(|transmit| transmit.ticket).collect()
    }

    #[test]
    fn a_barrier_ends_the_wait_for_errors_of_earlier_changes() {
        let tickets = tickets();
        let mut known = Tickets::default();
        known.insert(10, tickets[0], true);
        known.insert(11, tickets[1], false);
        known.insert(12, tickets[2], false);
        known.insert(13, tickets[3], true);
        assert_eq!(known.take_barrier(12), Some(tickets[2]));
        assert_eq!((known.take(10), known.take(12)), (None, None));
        assert_eq!((known.take(11), known.take(13)), (Some(tickets[1]), Some(tickets[3])));
        assert_eq!(known.count(), 0);
    }

    #[test]
    fn changes_that_failed_leave_nothing_behind() {
        let tickets = tickets();
        let mut known = Tickets::default();
        known.insert(10, tickets[0], true);
        assert_eq!(known.take(10), Some(tickets[0]));
        known.insert(11, tickets[1], false);
        assert_eq!(known.take_barrier(11), Some(tickets[1]));
        assert!(known.changes.is_empty());
    }

    #[test]
    fn questions_that_are_never_answered_are_forgotten() {
        let (ticket, mut known) = (tickets()[0], Tickets::default());
        let most = u32::try_from(MOST_SENT).unwrap();
        (0..10 * most).for_each(|xid| known.insert(xid, ticket, false));
        assert!(known.count() <= 2 * MOST_SENT);
        assert_eq!(known.take(0), None);
        assert_eq!(known.take(9 * most), Some(ticket));
    }

    #[test]
    fn a_barrier_that_overtook_changes_leaves_them() {
        let tickets = tickets();
        let mut known = Tickets::default();
        known.insert(10, tickets[0], true);
        known.insert(11, tickets[3], false);
        known.insert(12, tickets[1], true);
        assert_eq!(known.take_barrier(11), Some(tickets[3]));
        assert_eq!((known.take(10), known.take(12)), (None, Some(tickets[1])));
    }
}
