//! Several ways between hosts: all are used, and switches leave one that goes by themselves, while
//! the controller does nothing.

use crate::support::*;

/// Runs each scenario on fabrics of ours and of Open vSwitch.
macro_rules! on_both {
    ($($scenario:ident)*) => {
        mod ours {
            $(#[test]
            fn $scenario() {
                super::$scenario(crate::support::Kind::Ours);
            })*
        }
        mod open_vswitch {
            $(#[test]
            fn $scenario() {
                super::$scenario(crate::support::Kind::OpenVswitch);
            })*
        }
    };
}

on_both! {
    flows_are_spread_over_spines_and_leave_one_that_goes
    connections_go_on_by_a_detour
}

/// Four leaves, and two spines above them.
fn leaves_and_spines(kind: Kind) -> Option<Fabric> {
    let cables: Vec<_> = (1..=4).flat_map(|leaf| [(leaf, 5), (leaf, 6)]).collect();
    Fabric::new(&[kind; 6], &cables)
}

fn flows_are_spread_over_spines_and_leave_one_that_goes(kind: Kind) {
    let Some(fabric) = leaves_and_spines(kind) else { return };
    fabric.introduce();
    fabric.add("near", &["--ip-proto", "udp", "--monitor", "0x1/2"]);
    let mut flows = Flows::new(&fabric);
    let mut monitor = Capture::open(fabric.monitor(1));
    let before = [5, 6].map(|spine| fabric.sent_over(1, spine));
    for round in 0..ROUNDS {
        assert_eq!(flows.arriving(round), FLOWS, "of round {round}");
    }
    // Beside flows there is no more than what links are found by.
    let sent = [5, 6].map(|spine| fabric.sent_over(1, spine));
    let sent = [sent[0] - before[0], sent[1] - before[1]];
    assert!(sent.iter().all(|count| *count >= 8 * u64::from(ROUNDS)), "{sent:?}");
    let mut copies = Vec::new();
    until("all copies arrive", || {
        copies.extend(monitor.drain());
        copies.iter().filter(|(_, frame)| flows.number(frame).is_some()).count() >= flows.sent
    });
    for stream in &flows.streams {
        let numbers = copies.iter().filter_map(|(_, frame)| stream.number(frame));
        assert!(numbers.eq(0..ROUNDS), "each frame is copied once, in order");
    }
    fabric.assert_conserved();

    fabric.cut_unheard(1, 5);
    let mut round = ROUNDS;
    until("all flows leave the cable that is gone", || {
        round += 1;
        flows.arriving(round) == FLOWS
    });
    assert_eq!(flows.arriving(round + 1), FLOWS, "and stay away from it");
    fabric.hear();
    fabric.introduce();
}

/// On a ring of three both ends of a cable have a detour.
fn connections_go_on_by_a_detour(kind: Kind) {
    let Some(fabric) = Fabric::ring(&[kind; 3]) else { return };
    fabric.introduce();
    send_by_tcp(fabric.host(1), fabric.host(2), 1 << 20);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for _ in 0..3 {
                send_by_tcp(fabric.host(1), fabric.host(2), 4 << 20);
            }
        });
        fabric.cut_unheard(1, 2);
        sending.join().unwrap();
    });
    fabric.hear();
    send_by_tcp(fabric.host(1), fabric.host(2), 1 << 20);
    fabric.assert_conserved();
}

/// Flows from host 1 to host 2, told apart by their source ports.
struct Flows {
    streams: Vec<Stream>,
    source: Capture,
    sink: Capture,
    sent: usize,
}

impl Flows {
    fn new(fabric: &Fabric) -> Self {
        let (from, to) = (fabric.host(1), fabric.host(2));
        let streams = (1000..).take(FLOWS).map(|port| Stream::new(from, to).ports(port, 2000));
        let (streams, source, sink) = (streams.collect(), Capture::open(from), Capture::open(to));
        Self { streams, source, sink, sent: 0 }
    }

    /// Sends one frame of each flow. Returns how many of them arrive, until nothing more comes.
    fn arriving(&mut self, round: u32) -> usize {
        for stream in &self.streams {
            self.source.send(&stream.frame(round));
        }
        self.sent += FLOWS;
        let (mut arrived, mut quiet) = (0, 0);
        while arrived < FLOWS && quiet < QUIET {
            self.sink.wait();
            let frames = self.sink.drain();
            let numbers = frames.iter().filter_map(|(_, frame)| self.number(frame));
            let count = numbers.filter(|number| *number == round).count();
            arrived += count;
            quiet = if count == 0 { quiet + 1 } else { 0 };
        }
        arrived
    }

    /// The number of a frame of any of the flows.
    fn number(&self, frame: &[u8]) -> Option<u32> {
        self.streams.iter().find_map(|stream| stream.number(frame))
    }
}

const FLOWS: usize = 64;
const ROUNDS: u32 = 10;
/// Waits of a tenth of a second without a frame after which no more is expected: many, for the
/// machine may do something else.
const QUIET: u32 = 100;
