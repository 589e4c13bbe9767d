//! Buffer space on the way to the controllers, shared fairly among the ports.
//!
//! The space is bounded. First come, first served would let a guest that only sends new flows take
//! all of it, and links would go down for lack of probes. So a port may use as much space as is
//! free: one port alone gets half, two get a third each, and the rest is left for the next port
//! ("dynamic thresholds": Choudhury and Hahne, 1998). Probes are counted separately, as floods from
//! guests arrive through links as well. Probes wait behind other packets, but are not lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tapswitch_datapath::MAX_PORT;
use tapswitch_openflow::PortNo;
use tapswitch_wire::EtherType;

/// The whole space, and how much of it each port uses.
#[derive(Debug)]
pub(crate) struct Credits {
    limit: usize,
    taken: AtomicUsize,
    /// By port number: other frames and probes. Reserved ports share number 0.
    by_port: Box<[[AtomicUsize; 2]]>,
}

/// Space that is in use until this is dropped.
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

    /// Takes space for `frame`, which was received on `port`, if the port uses less than is free.
    pub(crate) fn take(
        self: &Arc<Self>,
        port: PortNo,
        frame: &[u8],
        amount: usize,
    ) -> Option<Credit> {
        let port = if port.0 <= MAX_PORT { port.0 as usize } else { 0 };
        let place = [port, usize::from(is_probe(frame))];
        let credit = Credit { credits: self.clone(), place, amount };
        // Relaxed: a memory limit, on which nothing else depends.
        let own = credit.account().fetch_add(amount, Ordering::Relaxed) + amount;
        let all = self.taken.fetch_add(amount, Ordering::Relaxed) + amount;
        // Dropping `credit` returns what was taken in vain.
        (own + all <= self.limit).then_some(credit)
    }
}

/// Whether controllers use such frames to discover links.
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

    /// A frame that is not a probe.
    const FRAME: &[u8] = &[];

    /// Takes as much as this port can get.
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
