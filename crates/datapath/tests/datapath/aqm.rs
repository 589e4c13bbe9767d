//! Marking by sojourn time: compared with RFC 8289's own pseudo-code, in a loop with senders that
//! obey it, and the mark itself compared with another implementation of the headers.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "helpers of tests, on data that they chose"
)]

use std::collections::VecDeque;

use etherparse::{IpEcn, IpNumber, Ipv4Header, Ipv6FlowLabel, Ipv6Header};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tapswitch_datapath::{Codel, mark_ce};
use tapswitch_helpers::cases;

const MS: u64 = 1_000_000;
const CE: u8 = 3;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(300)))]

    /// Queues that stand, drain and stand again, in phases of random length.
    #[test]
    fn marks_fall_where_the_pseudo_code_of_the_rfc_has_them(
        phases in vec(
            (1u64..3_000, 0u64..12, select(vec![0usize, 1514, 1515, 90_000]), any::<bool>()),
            1..30,
        ),
        step_us in 50u64..20_000,
    ) {
        let (mut ours, mut reference) = (Codel::default(), Reference::default());
        let mut now_ns = 0;
        for (frames, sojourn_ms, backlog, is_empty) in phases {
            for _ in 0..frames {
                now_ns += step_us * 1_000;
                let is_marked = ours.dequeued(now_ns, sojourn_ms * MS, backlog);
                let packet = Some((sojourn_ms * MS, backlog));
                prop_assert_eq!(is_marked, reference.dequeue(now_ns, packet));
            }
            if is_empty {
                ours.emptied();
                prop_assert!(!reference.dequeue(now_ns, None));
            }
        }
    }

    #[test]
    fn a_marked_frame_is_what_its_sender_would_have_made(packet in packet()) {
        let mut bytes = packet.bytes(packet.ecn);
        let is_capable = packet.ecn != 0;
        prop_assert_eq!(mark_ce(&mut bytes), is_capable && packet.ecn != CE);
        prop_assert_eq!(bytes, packet.bytes(if is_capable { CE } else { 0 }));
    }

    /// Either the header is whole and marked, or nothing is changed.
    #[test]
    fn a_frame_cut_short_is_marked_or_left_alone(packet in packet(), len in 0usize..120) {
        let whole = packet.bytes(packet.ecn);
        let mut cut = whole[..len.min(whole.len())].to_vec();
        let is_marked = ![0, CE].contains(&packet.ecn) && cut.len() >= packet.headers_len();
        prop_assert_eq!(mark_ce(&mut cut), is_marked);
        prop_assert!(is_marked || whole.starts_with(&cut));
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in vec(any::<u8>(), 0..200)) {
        let before = bytes.clone();
        prop_assert!(mark_ce(&mut bytes) || bytes == before);
    }
}

/// The purpose: flows that halve their window at a mark keep the queue short and lose little of the
/// rate, where without marks they fill the buffer and lose packets.
#[test]
fn senders_that_obey_marks_do_not_stand_in_the_queue() {
    for flows in [1, 4, 16] {
        let without = Bottleneck::new(flows, None).run(60_000);
        let with = Bottleneck::new(flows, Some(Codel::default())).run(60_000);
        assert!(without.median_ms >= 100, "{flows} flows fill the buffer: {without:?}");
        assert!(with.median_ms <= 20, "{flows} flows, marked: {with:?}");
        assert!(with.dropped < without.dropped, "{flows} flows: {with:?}, {without:?}");
        assert!(with.sent * 100 >= without.sent * 85, "{flows} flows: {with:?}, {without:?}");
    }
}

/// The pseudo-code of RFC 8289 §5 with marks in place of drops: a marked packet leaves, so what
/// would be the next turn of its loop is the next call (Linux does so with ECN).
#[derive(Default)]
struct Reference {
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

impl Reference {
    /// `packet` is how long it has waited, and the bytes behind it.
    fn dequeue(&mut self, now: u64, packet: Option<(u64, usize)>) -> bool {
        let ok_to_drop = self.dodequeue(now, packet);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            } else if now >= self.drop_next {
                self.count += 1;
                self.drop_next = Self::control_law(self.drop_next, self.count);
                return true;
            }
            return false;
        }
        if !ok_to_drop {
            return false;
        }
        self.dropping = true;
        let delta = self.count - self.lastcount;
        self.count = 1;
        if delta > 1 && now.saturating_sub(self.drop_next) < 16 * 100 * MS {
            self.count = delta;
        }
        self.drop_next = Self::control_law(now, self.count);
        self.lastcount = self.count;
        true
    }

    fn dodequeue(&mut self, now: u64, packet: Option<(u64, usize)>) -> bool {
        let Some((sojourn, bytes)) = packet else {
            self.first_above_time = 0;
            return false;
        };
        if sojourn < 5 * MS || bytes <= 1514 {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + 100 * MS;
        } else if now >= self.first_above_time {
            return true;
        }
        false
    }

    fn control_law(t: u64, count: u32) -> u64 {
        t + ((100 * MS) as f64 / f64::from(count).sqrt()) as u64
    }
}

/// A link that takes one packet per millisecond, with a buffer for 200 before it and a round trip
/// of 40 ms, and flows that add a packet per round trip and halve their window at a mark or a loss.
struct Bottleneck {
    codel: Option<Codel>,
    flows: Vec<Flow>,
    /// When each packet came, and its flow.
    buffer: VecDeque<(u64, usize)>,
    /// Signals on their way to senders: when, which flow, whether to slow down.
    news: VecDeque<(u64, usize, bool)>,
    waits_ms: Vec<u64>,
    dropped: usize,
}

struct Flow {
    window: f64,
    in_flight: usize,
    in_slow_start: bool,
    /// Until then further signals belong to the same round trip.
    obeys_from_ms: u64,
}

#[derive(Debug)]
struct Outcome {
    median_ms: u64,
    sent: usize,
    dropped: usize,
}

impl Bottleneck {
    const BUFFER: usize = 200;
    const ROUND_TRIP_MS: u64 = 40;

    fn new(flows: usize, codel: Option<Codel>) -> Self {
        let flow = |_| Flow { window: 2.0, in_flight: 0, in_slow_start: true, obeys_from_ms: 0 };
        Self {
            codel,
            flows: (0..flows).map(flow).collect(),
            buffer: VecDeque::new(),
            news: VecDeque::new(),
            waits_ms: Vec::new(),
            dropped: 0,
        }
    }

    fn run(mut self, duration_ms: u64) -> Outcome {
        for now_ms in 0..duration_ms {
            self.send(now_ms);
            self.leave(now_ms);
            while self.news.front().is_some_and(|news| news.0 <= now_ms) {
                let (_, flow, is_signal) = self.news.pop_front().unwrap();
                let round_trip_ms = Self::ROUND_TRIP_MS + self.buffer.len() as u64;
                self.flows[flow].hear(now_ms, is_signal, round_trip_ms);
            }
        }
        self.waits_ms.sort_unstable();
        let median_ms = self.waits_ms[self.waits_ms.len() / 2];
        Outcome { median_ms, sent: self.waits_ms.len(), dropped: self.dropped }
    }

    /// Each flow in turn fills its window.
    fn send(&mut self, now_ms: u64) {
        while let Some(index) = self.flows.iter().position(Flow::may_send) {
            self.flows[index].in_flight += 1;
            if self.buffer.len() < Self::BUFFER {
                self.buffer.push_back((now_ms, index));
            } else {
                self.dropped += 1;
                self.news.push_back((now_ms + Self::ROUND_TRIP_MS, index, true));
            }
        }
    }

    fn leave(&mut self, now_ms: u64) {
        let Some((came_ms, flow)) = self.buffer.pop_front() else {
            return;
        };
        let wait_ms = now_ms - came_ms;
        self.waits_ms.push(wait_ms);
        let left_len = self.buffer.len() * 1514;
        let is_marked = match &mut self.codel {
            Some(codel) => codel.dequeued(now_ms * MS, wait_ms * MS, left_len),
            None => false,
        };
        self.news.push_back((now_ms + Self::ROUND_TRIP_MS, flow, is_marked));
    }
}

impl Flow {
    fn may_send(&self) -> bool {
        self.in_flight < self.window as usize
    }

    fn hear(&mut self, now_ms: u64, is_signal: bool, round_trip_ms: u64) {
        self.in_flight -= 1;
        if is_signal && now_ms >= self.obeys_from_ms {
            self.window = (self.window / 2.0).max(1.0);
            self.in_slow_start = false;
            self.obeys_from_ms = now_ms + round_trip_ms;
        } else if !is_signal {
            self.window += if self.in_slow_start { 1.0 } else { 1.0 / self.window };
        }
    }
}

/// An IP packet behind tags; the TCP header and what follows are any bytes.
#[derive(Clone, Debug)]
struct Packet {
    tpids: Vec<u16>,
    is_ipv6: bool,
    /// Words of IPv4 options.
    options: usize,
    dscp: u8,
    ecn: u8,
    ttl: u8,
    identification: u16,
    address: [u8; 16],
    payload: Vec<u8>,
}

impl Packet {
    fn bytes(&self, ecn: u8) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for tpid in &self.tpids {
            bytes.extend(tpid.to_be_bytes());
            bytes.extend([0x20, 100]);
        }
        if self.is_ipv6 {
            self.ipv6(ecn, &mut bytes);
        } else {
            self.ipv4(ecn, &mut bytes);
        }
        bytes.extend(&self.payload);
        bytes
    }

    fn ipv4(&self, ecn: u8, bytes: &mut Vec<u8>) {
        let [a, b, c, d, ..] = self.address;
        let len = self.payload.len() as u16;
        let mut ip =
            Ipv4Header::new(len, self.ttl, IpNumber::TCP, [a, b, c, d], [d, c, b, a]).unwrap();
        ip.dscp = self.dscp.try_into().unwrap();
        ip.ecn = IpEcn::try_new(ecn).unwrap();
        ip.identification = self.identification;
        ip.options = vec![1; self.options * 4].as_slice().try_into().unwrap();
        ip.header_checksum = ip.calc_header_checksum();
        bytes.extend([0x08, 0x00]);
        bytes.extend(ip.to_bytes());
    }

    fn ipv6(&self, ecn: u8, bytes: &mut Vec<u8>) {
        let ip = Ipv6Header {
            traffic_class: self.dscp << 2 | ecn,
            flow_label: Ipv6FlowLabel::try_new(u32::from(self.identification)).unwrap(),
            payload_length: self.payload.len() as u16,
            next_header: IpNumber::TCP,
            hop_limit: self.ttl,
            source: self.address,
            destination: self.address,
        };
        bytes.extend([0x86, 0xdd]);
        bytes.extend(ip.to_bytes());
    }

    fn headers_len(&self) -> usize {
        let ip_len = if self.is_ipv6 { 40 } else { 20 + 4 * self.options };
        14 + 4 * self.tpids.len() + ip_len
    }
}

fn packet() -> impl Strategy<Value = Packet> {
    let tpids = vec(select(vec![0x8100u16, 0x88a8, 0x9100]), 0..6);
    let ip = (any::<bool>(), 0usize..=10, 0u8..64, 0u8..4, any::<u8>(), any::<u16>());
    (tpids, ip, any::<[u8; 16]>(), vec(any::<u8>(), 0..80)).prop_map(
        |(tpids, (is_ipv6, options, dscp, ecn, ttl, identification), address, payload)| Packet {
            tpids,
            is_ipv6,
            options,
            dscp,
            ecn,
            ttl,
            identification,
            address,
            payload,
        },
    )
}
