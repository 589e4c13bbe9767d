//! Room on the way to the controllers, shared among the ports.
//!
//! What waits there is bounded. Were it first come, first served, a guest whose every frame is new
//! would leave no room for the probes of links, which would go down. So a port may have as much
//! waiting as is free: one alone gets half, two get a third each, and what is left is for the next
//! one ("dynamic thresholds": Choudhury and Hahne, 1998). Probes count by themselves, since what a
//! guest floods comes by links as well. They wait behind all that, but are not lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tapswitch_datapath::MAX_PORT;
use tapswitch_openflow::PortNo;
use tapswitch_wire::EtherType;

/// All the room, and who has how much of it.
#[derive(Debug)]
pub(crate) struct Credits {
    limit: usize,
    taken: AtomicUsize,
    /// By the port's number, other frames and probes; reserved ones share the place of number 0.
    by_port: Box<[[AtomicUsize; 2]]>,
}

/// Room that is taken until this is dropped.
#[derive(Debug)]
pub(crate) struct Credit {
    credits: Arc<Credits>,
    place: [usize; 2],
    amount: usize,
}

impl Credits {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        let by_port = (0..=MAX_PORT).map(|_| Default::default()).collect();
        Arc::new(Self { limit, taken: AtomicUsize::new(0), by_port })
    }

    /// Takes room for `frame`, which came in by `port`, if that has less than is free.
    pub(crate) fn take(
        self: &Arc<Self>,
        port: PortNo,
        frame: &[u8],
        amount: usize,
    ) -> Option<Credit> {
        let port = if port.0 <= MAX_PORT { port.0 as usize } else { 0 };
        let place = [port, usize::from(is_probe(frame))];
        let credit = Credit { credits: self.clone(), place, amount };
        // Relaxed: a bound on memory, which nothing else depends on.
        let own = credit.account().fetch_add(amount, Ordering::Relaxed) + amount;
        let all = self.taken.fetch_add(amount, Ordering::Relaxed) + amount;
        // What was taken in vain is given back when `credit` is dropped.
        (own + all <= self.limit).then_some(credit)
    }
}

/// Whether controllers look for links by such frames.
pub(crate) fn is_probe(frame: &[u8]) -> bool {
    EtherType::of(frame) == Some(EtherType::LLDP)
}

impl Credit {
    fn account(&self) -> &AtomicUsize {
        let [port, kind] = self.place;
        &self.credits.by_port[port][kind]
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        self.account().fetch_sub(self.amount, Ordering::Relaxed);
        self.credits.taken.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame that is no probe.
    const FRAME: &[u8] = &[];

    /// Takes as much as this port gets.
    fn take_all(credits: &Arc<Credits>, port: u32) -> Vec<Credit> {
        std::iter::from_fn(|| credits.take(PortNo(port), FRAME, 1)).collect()
    }

    #[test]
    fn each_port_leaves_as_much_as_it_has() {
        let credits = Credits::new(1024);
        let held: Vec<_> = (1..=4).map(|port| take_all(&credits, port)).collect();
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [512, 256, 128, 64], "one after the other");
        assert!(credits.take(PortNo(5), FRAME, 1).is_some(), "there is a place for the next");
        drop(held);
        assert_eq!(credits.taken.load(Ordering::Relaxed), 0);
        assert_eq!(take_all(&credits, 4).len(), 512, "it was given back");
    }

    #[test]
    fn ports_that_take_turns_get_equal_parts() {
        let credits = Credits::new(1000);
        let mut held: Vec<Vec<Credit>> = (0..4).map(|_| Vec::new()).collect();
        for _ in 0..1000 {
            for (port, held) in (1..).zip(&mut held) {
                held.extend(credits.take(PortNo(port), FRAME, 1));
            }
        }
        assert!(held.iter().all(|held| held.len() == 200), "a fifth each, and one is free");
    }

    #[test]
    fn reserved_numbers_are_one_port() {
        let credits = Credits::new(100);
        let _held = take_all(&credits, PortNo::CONTROLLER.0);
        assert!(credits.take(PortNo::LOCAL, FRAME, 1).is_none());
        assert!(credits.take(PortNo(MAX_PORT), FRAME, 1).is_some());
    }

    #[test]
    fn a_link_has_room_for_probes_whatever_else_comes_by_it() {
        let credits = Credits::new(100);
        let _held = take_all(&credits, 1);
        let probe = [[0; 12].as_slice(), &EtherType::LLDP.0.to_be_bytes()].concat();
        assert!(credits.take(PortNo(1), FRAME, 1).is_none());
        assert!(credits.take(PortNo(1), &probe, 1).is_some());
    }
}
