//! Measures the cost of one more change in the control plane, without sockets: the time to plan it
//! and to apply it.
//!
//! ```text
//! cargo run --release -p tapswitch-control --example changes -- \
//!     KIND [SWITCHES HOSTS POLICIES REGIONS]
//! ```
//!
//! The switches form a ring and accept everything; HOSTS is per switch. Policies are added one by
//! one, for both directions, with monitors at two ports of each switch. KIND is one of:
//!
//! - `port`: TCP to a different port for each. All pairs overlap.
//! - `port4`: the same for IPv4 only.
//! - `wide`: three that match nearly all IPv4 frames, then one for each of many addresses.
//!
//! REGIONS is the maximum per switch, by default 4,096.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "a measurement: what goes wrong ends it"
)]

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use tapswitch_control::*;
use tapswitch_openflow::*;
use tapswitch_wire::{EtherType, MacAddr};
use tikv_jemallocator::Jemalloc;

/// As in `tapswitch`.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let kind = args.first().map_or("port", String::as_str);
    let number = |at: usize, usual: usize| args.get(at).map_or(usual, |it| it.parse().unwrap());
    let (switches, hosts, policies) = (number(1, 4), number(2, 5), number(3, 50));
    let mut ring = Ring::new(switches as u64, hosts as u32, number(4, 4096));
    let mut costs = Vec::new();
    for number in 0..policies {
        match ring.add(policy(kind, number as u16, switches as u64)) {
            Ok(cost) => costs.push(cost),
            Err(error) => {
                println!("{number}: {error}");
                break;
            }
        }
        if number % 10 == 9 {
            let Cost { looked, made, frames } = costs[costs.len() - 1];
            let rules: usize = ring.control.switches().iter().map(|switch| switch.rules).sum();
            println!("{number}: {looked:.1?} + {made:.1?}, {frames} frames, {rules} rules");
        }
    }
    let last = costs.split_off(costs.len().saturating_sub(20));
    tell("looked at", last.iter().map(|cost| cost.looked).collect());
    tell("made", last.iter().map(|cost| cost.made).collect());
    tell("both", last.iter().map(|cost| cost.looked + cost.made).collect());
}

fn tell(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    if let (Some(half), Some(most)) = (times.get(times.len() / 2), times.last()) {
        println!("the last {}, {what}: p50 {half:.1?}, most {most:.1?}", times.len());
    }
}

/// Cost of one change.
#[derive(Clone, Copy)]
struct Cost {
    looked: Duration,
    made: Duration,
    /// Number of frames traced.
    frames: usize,
}

fn policy(kind: &str, number: u16, switches: u64) -> TapPolicy {
    let (at, port) = (u64::from(number) % switches + 1, 3 + u64::from(number) / switches % 2);
    let monitor = format!("{at:#x}/{port}").parse().unwrap();
    let new = TapPolicy::new(format!("p{number}"), monitor);
    match (kind, number) {
        ("wide", 0..3) => {
            let port = [22, 53, 123][usize::from(number)];
            TapPolicy { filter: Some(format!("ip and not port {port}")), ..new }
        }
        ("wide", _) => {
            let [high, low] = number.to_be_bytes();
            TapPolicy { src_ip: Some(IpPrefix::host([10, 1, high, low])), ..new }
        }
        _ => TapPolicy {
            eth_type: (kind == "port4").then(|| "ipv4".parse().unwrap()),
            ip_proto: Some(IpProto::TCP),
            dst_port: Some((8000 + number).to_string().parse().unwrap()),
            ..new
        },
    }
}

/// Switches whose ports 1 and 2 are links, 3 and 4 are for monitors, and the others for hosts.
struct Ring {
    control: Control,
    switches: u64,
    hosts: u32,
    /// Cookies of the rules that send frames of a type to the controller.
    shown: BTreeMap<(u64, EtherType), u64>,
    now: Millis,
    answers: VecDeque<(DatapathId, Ticket, Option<Body>)>,
    /// Time spent in the control plane.
    spent: Duration,
}

impl Ring {
    fn new(switches: u64, hosts: u32, max_regions: usize) -> Self {
        let discovery = Some(Discovery::new([7; 32]));
        let limits = Limits { discovery, check_interval: None, max_regions, ..Limits::default() };
        let mut ring = Self {
            control: Control::new(limits),
            switches,
            hosts,
            shown: BTreeMap::new(),
            now: Millis(10_000),
            answers: VecDeque::new(),
            spent: Duration::ZERO,
        };
        for switch in 1..=switches {
            ring.control.handle_connected(&features(switch), ring.now);
            ring.run();
        }
        ring.wait(1000);
        for switch in 1..=switches {
            for port in 5..5 + hosts {
                ring.receive((switch, port), arp(switch, port));
                ring.run();
            }
        }
        ring.wait(1000);
        ring
    }

    fn add(&mut self, new: TapPolicy) -> Result<Cost, PolicyError> {
        self.spent = Duration::ZERO;
        let verdict = self.timed(|control| control.judge(Change::Add(&new)))?;
        assert_eq!(verdict.counterexample(), None);
        let looked = std::mem::take(&mut self.spent);
        self.timed(|control| control.add_policy(new, WhenMissing::Refuse))?;
        self.run();
        let frames = verdict.proof.map_or(0, |proof| proof.checked);
        Ok(Cost { looked, made: self.spent, frames })
    }

    fn timed<T>(&mut self, what: impl FnOnce(&mut Control) -> T) -> T {
        let start = Instant::now();
        let result = what(&mut self.control);
        self.spent += start.elapsed();
        result
    }

    fn wait(&mut self, millis: u64) {
        for _ in 0..millis / 50 {
            self.now = Millis(self.now.0 + 50);
            self.control.handle_timeout(self.now);
            self.run();
        }
    }

    /// Processes messages until there are none left.
    fn run(&mut self) {
        let now = self.now;
        loop {
            while let Some(Transmit { switch, ticket, body }) = self.timed(Control::poll_transmit) {
                self.take(switch, ticket, body);
            }
            let Some((switch, ticket, answer)) = self.answers.pop_front() else { break };
            self.timed(|control| match answer {
                Some(body) => control.handle_reply(switch, ticket, &body, now),
                None => {
                    control.handle_error(switch, ticket, ErrorKind::OFPBRC_BAD_TYPE, now);
                }
            });
        }
        while self.control.poll_event().is_some() {}
    }

    /// Processes a message to a switch.
    fn take(&mut self, switch: DatapathId, ticket: Ticket, body: Body) {
        let answer = match body {
            Body::BarrierRequest => Some(Body::BarrierReply),
            Body::MultipartRequest(request) => match request.body {
                MultipartRequestBody::PortDesc => Some(self.ports_of(switch)),
                _ => None,
            },
            Body::FlowMod(rule) => return self.note_shown(switch, &rule),
            Body::PacketOut(out) => return self.send(switch, &out),
            _ => return,
        };
        self.answers.push_back((switch, ticket, answer));
    }

    fn ports_of(&self, switch: DatapathId) -> Body {
        let ports = (1..5 + self.hosts).map(|port| {
            let mac = MacAddr([2, 9, 0, switch.0 as u8, 0, port as u8]);
            Port::new(PortNo(port), mac, &format!("p{port}"), PortState::LIVE)
        });
        let body = MultipartReplyBody::PortDesc(ports.collect());
        Body::MultipartReply(MultipartReply::new(body))
    }

    fn note_shown(&mut self, switch: DatapathId, rule: &FlowMod) {
        if rule.table_id != TableId(0) || rule.command.deletes() {
            return;
        }
        for field in rule.match_fields.iter() {
            if let Oxm::EthType(kind) = field {
                self.shown.insert((switch.0, *kind), rule.cookie);
            }
        }
    }

    fn send(&mut self, switch: DatapathId, out: &PacketOut) {
        for action in &out.actions {
            let Action::Output { port, .. } = action else { continue };
            let peer = match port.0 {
                1 => (switch.0 % self.switches + 1, 2),
                2 => ((switch.0 + self.switches - 2) % self.switches + 1, 1),
                _ => continue,
            };
            self.receive(peer, out.data.clone());
        }
    }

    fn receive(&mut self, (switch, port): (u64, u32), data: Vec<u8>) {
        let kind = EtherType(u16::from_be_bytes([data[12], data[13]]));
        let Some(cookie) = self.shown.get(&(switch, kind)) else { return };
        let frame = PacketIn {
            buffer_id: BufferId::NO_BUFFER,
            total_len: data.len() as u16,
            reason: PacketInReason::ACTION,
            table_id: TableId(0),
            cookie: *cookie,
            match_fields: Match::new().with(Oxm::InPort(PortNo(port))),
            data,
        };
        self.control.handle_message(DatapathId(switch), &Body::PacketIn(frame), self.now);
    }
}

fn features(switch: u64) -> FeaturesReply {
    FeaturesReply {
        datapath_id: DatapathId(switch),
        n_buffers: 0,
        n_tables: 254,
        auxiliary_id: 0,
        capabilities: Capabilities::FLOW_STATS,
    }
}

/// An ARP request of a host.
fn arp(switch: u64, port: u32) -> Vec<u8> {
    let src = [2, 0, 0, 0, switch as u8, port as u8];
    let mut data = [&[0xff; 6][..], &src, &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &src].concat();
    data.extend([10, 0, switch as u8, port as u8, 0, 0, 0, 0, 0, 0, 10, 0, 0, 99]);
    data.resize(60, 0);
    data
}
