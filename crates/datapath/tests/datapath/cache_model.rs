//! The cache against the rules: whatever it has learned, a frame must be treated as the rules say.
//!
//! Random rules over few values overlap a lot. Each frame is processed by a forwarder that has seen
//! all the others, and compared with an evaluation of the rules without tuples or caches: try every
//! rule, take the best.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests may stop at the first surprise"
)]

use crate::common::{Ip, Switch, apply, goto, host, ip, mac, matching, out, tcp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tapswitch_helpers::cases;
use tapswitch_openflow::{Action, Instruction, Masked, Oxm, PortNo};
use tapswitch_wire::{EtherType, parse};

const TABLES: u8 = 3;

#[derive(Clone, Debug)]
struct Rule {
    table: u8,
    priority: u16,
    fields: Vec<Oxm>,
    rewrite: Option<Rewrite>,
    port: u32,
    goes_on: bool,
}

#[derive(Clone, Debug)]
enum Rewrite {
    EthDst(u8),
    Ipv4Dst(u8),
    Push(u16),
    Pop(usize),
}

fn field() -> impl Strategy<Value = Vec<Oxm>> {
    prop_oneof![
        (1..4u32).prop_map(|port| vec![Oxm::InPort(PortNo(port))]),
        (1..4u8).prop_map(|last| vec![Oxm::EthDst(mac(last).into())]),
        (1..4u8).prop_map(|last| vec![Oxm::EthSrc(mac(last).into())]),
        (1..4u8).prop_map(|last| vec![ip(), Oxm::Ipv4Dst(host(last).into())]),
        (0..4u8).prop_map(|last| {
            let mask = Some([255, 255, 255, 254].into());
            vec![ip(), Oxm::Ipv4Src(Masked { value: host(last & 2), mask })]
        }),
        (1..4u16).prop_map(|port| vec![ip(), Oxm::IpProto(6), Oxm::TcpDst(port)]),
        prop_oneof![Just(0u16), Just(0x1001), Just(0x1002)]
            .prop_map(|vid| vec![Oxm::VlanVid(vid.into())]),
        Just(vec![Oxm::VlanVid(Masked { value: 0x1000, mask: Some(0x1000) })]),
        Just(vec![]),
    ]
}

fn rewrite() -> impl Strategy<Value = Rewrite> {
    prop_oneof![
        (1..4u8).prop_map(Rewrite::EthDst),
        (1..4u8).prop_map(Rewrite::Ipv4Dst),
        (1..3u16).prop_map(Rewrite::Push),
        (1..6usize).prop_map(Rewrite::Pop),
    ]
}

fn rule() -> impl Strategy<Value = Rule> {
    let base =
        (0..TABLES, 0..8u16, field(), field(), option::of(rewrite()), 1..5u32, any::<bool>());
    base.prop_map(|(table, priority, mut fields, more, rewrite, port, goes_on)| {
        let new = |f: &Oxm| {
            !fields.iter().any(|have| std::mem::discriminant(have) == std::mem::discriminant(f))
        };
        let more: Vec<_> = more.into_iter().filter(new).collect();
        fields.extend(more);
        Rule { table, priority, fields, rewrite, port, goes_on }
    })
}

fn frame() -> impl Strategy<Value = (u32, Ip)> {
    // More tags than the key holds, too.
    let tag = || prop_oneof![Just(0x8100_0001u32), Just(0x88a8_0002)];
    let tags = prop_oneof![vec(tag(), 0..3), vec(tag(), 4..8)];
    (1..4u32, 1..4u8, 1..4u8, 1..4u16, tags).prop_map(|(in_port, src, dst, dst_port, tags)| {
        (in_port, Ip { src, dst, dst_port, tags, payload: 4, ..tcp() })
    })
}

impl Rule {
    fn is_tagged(&self) -> bool {
        self.fields.iter().any(|f| matches!(f, Oxm::VlanVid(vid) if vid.value & 0x1000 != 0))
    }

    fn is_ip(&self) -> bool {
        self.fields.contains(&Oxm::EthType(EtherType::IPV4))
    }

    fn instructions(&self) -> Vec<Instruction> {
        let mut actions = match &self.rewrite {
            Some(Rewrite::EthDst(last)) => vec![Action::SetField(Oxm::EthDst(mac(*last).into()))],
            Some(Rewrite::Ipv4Dst(last)) if self.is_ip() => {
                vec![Action::SetField(Oxm::Ipv4Dst(host(*last).into()))]
            }
            Some(Rewrite::Push(vid)) => vec![
                Action::PushVlan(EtherType::VLAN),
                Action::SetField(Oxm::VlanVid((0x1000 | vid).into())),
            ],
            Some(Rewrite::Pop(count)) if self.is_tagged() => vec![Action::PopVlan; *count],
            _ => vec![],
        };
        actions.push(out(self.port));
        let next = (self.goes_on && self.table + 1 < TABLES).then(|| goto(self.table + 1));
        std::iter::once(apply(&actions)).chain(next).collect()
    }

    /// Applies the rewrite to a frame's description.
    fn rewrite(&self, packet: &mut Described) {
        match &self.rewrite {
            Some(Rewrite::EthDst(last)) => packet.eth_dst = *last,
            Some(Rewrite::Ipv4Dst(last)) if self.is_ip() => packet.ip.dst = *last,
            Some(Rewrite::Push(vid)) => {
                let inherited = packet.ip.tags.first().map_or(0, |tag| tag & 0xf000);
                packet.ip.tags.insert(0, 0x8100_0000 | inherited | u32::from(*vid));
            }
            Some(Rewrite::Pop(count)) if self.is_tagged() => {
                packet.ip.tags.drain(..(*count).min(packet.ip.tags.len()));
            }
            _ => {}
        }
    }
}

/// A frame whose MAC destination may differ from its IP destination.
#[derive(Clone, Debug)]
struct Described {
    in_port: u32,
    eth_dst: u8,
    ip: Ip,
}

impl Described {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.ip.bytes();
        bytes[5] = self.eth_dst;
        bytes
    }

    fn matches(&self, rule: &Rule) -> bool {
        let mut key = parse(&self.bytes()).unwrap().key;
        key.in_port = self.in_port.to_be_bytes();
        let wanted = tapswitch_datapath::MatchKey::new(&matching(&rule.fields)).unwrap();
        wanted.matches(&key)
    }
}

/// Evaluates the rules: outputs with the bytes of each, in order. `None` if two rules of the same
/// priority match, where the specification leaves the choice open.
fn read_rules(rules: &[Rule], in_port: u32, packet: &Ip) -> Option<Vec<(u32, Vec<u8>)>> {
    let mut packet = Described { in_port, eth_dst: packet.dst, ip: packet.clone() };
    let mut sent = Vec::new();
    let mut table = 0;
    loop {
        let mut found: Vec<_> =
            rules.iter().filter(|rule| rule.table == table && packet.matches(rule)).collect();
        found.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        let Some(best) = found.first() else { return Some(sent) };
        if found.get(1).is_some_and(|second| second.priority == best.priority) {
            return None;
        }
        best.rewrite(&mut packet);
        if best.port != in_port {
            sent.push((best.port, packet.bytes()));
        }
        if !best.goes_on || table + 1 >= TABLES {
            return Some(sent);
        }
        table += 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(400)))]

    #[test]
    fn a_warm_cache_does_what_the_rules_say(
        rules in vec(rule(), 1..12),
        frames in vec(frame(), 1..40),
    ) {
        let mut switch = Switch::new(4);
        let mut kept: Vec<Rule> = Vec::new();
        for rule in rules {
            let same = |other: &Rule| {
                other.table == rule.table && other.priority == rule.priority && {
                    let a = tapswitch_datapath::MatchKey::new(&matching(&other.fields));
                    let b = tapswitch_datapath::MatchKey::new(&matching(&rule.fields));
                    a == b
                }
            };
            kept.retain(|other| !same(other));
            switch.flow(rule.table, rule.priority, &rule.fields, &rule.instructions());
            kept.push(rule);
        }
        for (in_port, packet) in frames {
            let Some(expected) = read_rules(&kept, in_port, &packet) else { continue };
            switch.receive(in_port, &packet.bytes());
            let sent = switch.out.sent.drain(..).map(|(port, bytes, _)| (port, untouched(bytes)));
            let sent: Vec<_> = sent.collect();
            let expected = expected.into_iter().map(|(port, bytes)| (port, untouched(bytes)));
            let expected: Vec<_> = expected.collect();
            prop_assert_eq!(sent, expected);
        }
    }
}

/// The description recomputes a TCP checksum from scratch; both 0x0000 and 0xffff may stand for
/// zero there, so it is left out of the comparison. `forwarding.rs` checks checksums.
fn untouched(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Ok(parsed) = parse(&bytes)
        && let Some(transport) = parsed.layout.transport
    {
        let at = usize::from(transport) + 16;
        bytes[at..at + 2].fill(0);
    }
    bytes
}
