//! Several paths between hosts: all are used, and switches leave a failed one on their own, while
//! the controller is stopped. Monitors share flows in the same way.

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
    monitors_share_flows
    monitors_at_two_switches_share_flows
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
    let mut flows = Flows::new(&fabric, (1, 2));
    let monitor = Capture::open(fabric.monitor(1));
    let before = [5, 6].map(|spine| fabric.sent_over(1, spine));
    for round in 0..ROUNDS {
        assert_eq!(flows.arriving(round), FLOWS, "of round {round}");
    }
    // Apart from flows there are only link probes.
    let sent = [5, 6].map(|spine| fabric.sent_over(1, spine));
    let sent = [sent[0] - before[0], sent[1] - before[1]];
    assert!(sent.iter().all(|count| *count >= 8 * u64::from(ROUNDS)), "{sent:?}");
    assert_eq!(flows.copied_to(&mut [monitor]), [0; FLOWS]);
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

/// The host and the monitor of the third switch share flows of the others.
fn monitors_share_flows(kind: Kind) {
    let Some(fabric) = Fabric::ring(&[kind; 3]) else { return };
    share_flows(kind, &fabric, "one-of:0x3/1+0x3/2", [fabric.host(3), fabric.monitor(3)]);
}

/// The same with one monitor at a switch where flows come in, and one where none does.
fn monitors_at_two_switches_share_flows(kind: Kind) {
    let Some(fabric) = Fabric::ring(&[kind; 3]) else { return };
    share_flows(kind, &fabric, "one-of:0x2/2+0x3/2", [fabric.monitor(2), fabric.monitor(3)]);
}

fn share_flows(kind: Kind, fabric: &Fabric, named: &str, monitors: [&Host; 2]) {
    fabric.introduce();
    let fields = ["--ip-proto", "udp", "--dst-port", "2000", "--monitor", named];
    fabric.add("shared", &fields);
    let copied_to = [(1, 2), (2, 1)].map(|ends| {
        let mut flows = Flows::new(fabric, ends);
        let mut monitors = monitors.map(Capture::open);
        for round in 0..ROUNDS {
            assert_eq!(flows.arriving(round), FLOWS, "of round {round}");
        }
        flows.copied_to(&mut monitors)
    });
    for copied_to in &copied_to {
        let second = copied_to.iter().sum::<usize>();
        assert!((8..=FLOWS - 8).contains(&second), "{copied_to:?}");
    }
    if kind == Kind::Ours {
        assert_eq!(copied_to[0], copied_to[1], "both directions go to the same one");
    }
    fabric.assert_conserved();
}

/// Flows between two hosts, distinguished by address and port of the one with the lower number.
struct Flows {
    streams: Vec<Stream>,
    source: Capture,
    sink: Capture,
    sent: usize,
}

impl Flows {
    fn new(fabric: &Fabric, (from, to): (u8, u8)) -> Self {
        let is_back = from > to;
        let (from, to) = (fabric.host(from), fabric.host(to));
        let streams = (1000..).take(FLOWS).map(|port: u16| {
            let mut stream = Stream::new(from, to);
            let [.., low] = port.to_be_bytes();
            // Open vSwitch ignores UDP ports when it selects.
            let address = std::net::Ipv4Addr::new(10, 77, 0, low).into();
            match is_back {
                false => stream.from.1 = address,
                true => stream.to.1 = address,
            }
            let ports = if is_back { (2000, port) } else { (port, 2000) };
            stream.ports(ports.0, ports.1)
        });
        let (streams, source, sink) = (streams.collect(), Capture::open(from), Capture::open(to));
        Self { streams, source, sink, sent: 0 }
    }

    /// The monitor that each flow was copied to: all of its frames, once, in order.
    fn copied_to(&self, monitors: &mut [Capture]) -> Vec<usize> {
        let mut copies = vec![Vec::new(); monitors.len()];
        until("all copies arrive", || {
            for (copies, monitor) in copies.iter_mut().zip(&mut *monitors) {
                copies.extend(monitor.drain().into_iter().map(|(_, frame)| frame));
            }
            let ours = copies.iter().flatten().filter(|frame| self.number(frame).is_some());
            ours.count() >= self.sent
        });
        let find = |stream: &Stream| {
            let numbers = copies.iter().map(|copies| {
                copies.iter().filter_map(|frame| stream.number(frame)).collect::<Vec<_>>()
            });
            let numbers: Vec<_> = numbers.collect();
            let found = numbers.iter().position(|numbers| !numbers.is_empty()).unwrap();
            assert!(numbers[found].iter().copied().eq(0..ROUNDS), "{numbers:?}");
            assert!(numbers[found + 1..].iter().all(Vec::is_empty), "{numbers:?}");
            found
        };
        self.streams.iter().map(find).collect()
    }

    /// Sends one frame of each flow. Returns how many of them arrive, when no more do.
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

    /// The number of a frame of one of the flows.
    fn number(&self, frame: &[u8]) -> Option<u32> {
        self.streams.iter().find_map(|stream| stream.number(frame))
    }
}

const FLOWS: usize = 64;
const ROUNDS: u32 = 10;
/// Idle periods of a tenth of a second after which no more frames are expected: many, because the
/// machine may be busy.
const QUIET: u32 = 100;
