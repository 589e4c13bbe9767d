//! Which number of a transaction is which ticket of the control plane.

use std::collections::{HashMap, VecDeque};

use tapswitch_control::Ticket;

/// What was sent on one connection and may still be answered, or fail.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    by_xid: HashMap<u32, Ticket>,
    /// Changes in the order in which they were sent: no answer says that they are done, but the
    /// next barrier does.
    changes: VecDeque<(u32, Ticket)>,
}

impl Tickets {
    /// This was sent.
    pub(crate) fn insert(&mut self, xid: u32, ticket: Ticket, is_change: bool) {
        self.by_xid.insert(xid, ticket);
        if is_change {
            self.changes.push_back((xid, ticket));
        }
    }

    /// An answer, or an error, came: to what?
    pub(crate) fn take(&mut self, xid: u32) -> Option<Ticket> {
        self.by_xid.remove(&xid)
    }

    /// Everything before this barrier is done, or has failed.
    pub(crate) fn handle_barrier(&mut self, barrier: Ticket) {
        while let Some(&(xid, ticket)) = self.changes.front()
            && ticket < barrier
        {
            self.changes.pop_front();
            self.by_xid.remove(&xid);
        }
    }

    /// How many are remembered.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.by_xid.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_control::{Control, Limits, Millis};
    use tapswitch_openflow::{Capabilities, DatapathId, FeaturesReply};

    /// Tickets in the order in which a control plane hands them out.
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
        assert_eq!(known.take(12), Some(tickets[2]));
        known.handle_barrier(tickets[2]);
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
        known.handle_barrier(tickets[1]);
        assert!(known.changes.is_empty());
    }
}
