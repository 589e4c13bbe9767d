//! Random policies, hosts and packets, compared with a direct evaluation of the policies.
//!
//! The evaluation uses neither regions nor rules nor groups: a packet matches a policy if it has
//! the policy's fields and passes its filter, in one direction or, if wanted, the other. Filters
//! are flat chains of words, each with an evaluation of its own.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use tapswitch_control::*;
use tapswitch_helpers::cases;
use tapswitch_openflow::{Body, PortNo};
use tapswitch_wire::ip_proto;

use crate::frames::{Packet, ipv4, ipv6, mac};
use crate::model::Model;
use crate::world::{World, policy};

/// Ports 1 to 4 have hosts of the same number, 5 and 6 are often monitors, 7 is unused.
const PORTS: u32 = 7;
const HOSTS: u8 = 4;

/// Maximum number of policies: with five, hundreds of regions overlap.
const MAX_POLICIES: usize = 5;

const ACTIVE: PolicyState = PolicyState::Active;

/// Maximum regions of a policy, so that all overlaps stay within the budget.
const MAX_POLICY_REGIONS: usize = 10;

/// A step of the test.
#[derive(Clone, Debug)]
enum Step {
    Add(Box<TapPolicy>),
    /// Deletes a policy.
    Delete(usize),
    /// A packet arrives at a port: its sender is learned, or moves.
    Send(u32, Packet),
    /// A port loses or regains its link.
    Link(u32, bool),
    /// The connection is lost and restored.
    Reconnect,
    /// The controller restarts with the same policies.
    Restart,
}

fn prefix() -> impl Strategy<Value = IpPrefix> {
    prop_oneof![
        (1..=HOSTS).prop_map(|host| IpPrefix::host(ipv4(host))),
        Just("10.0.0.0/30".parse().unwrap()),
        Just("10.0.0.2/31".parse().unwrap()),
        Just("0.0.0.0/0".parse().unwrap()),
        (1..=HOSTS).prop_map(|host| IpPrefix::host(ipv6(host))),
        Just("2001:db8::/126".parse().unwrap()),
        Just("2001:db8::2/127".parse().unwrap()),
    ]
}

fn proto() -> impl Strategy<Value = IpProto> {
    prop_oneof![Just(IpProto::TCP), Just(IpProto::UDP), Just(IpProto::ICMP), Just(IpProto(89))]
}

fn vlan() -> impl Strategy<Value = Vlan> {
    prop_oneof![
        6 => Just(Vlan::Any),
        2 => Just(Vlan::Untagged),
        2 => Just(Vlan::Id(5)),
        1 => Just(Vlan::Tagged),
    ]
}

type Reading = fn(&Packet) -> bool;

/// Filter words, and the packets that match them.
const WORDS: [(&str, Reading); 15] = [
    ("ip", |packet| !packet.is_ipv6),
    ("ip6", |packet| packet.is_ipv6),
    ("tcp", |packet| packet.proto == ip_proto::TCP),
    ("udp", |packet| packet.proto == ip_proto::UDP),
    ("proto 89", |packet| packet.proto == 89),
    ("tcp dst port 1", |packet| packet.proto == ip_proto::TCP && packet.dst_port == 1),
    ("ip6 and udp src portrange 1-2", |packet| {
        packet.is_ipv6 && packet.proto == ip_proto::UDP && (1..=2).contains(&packet.src_port)
    }),
    ("src host 10.0.0.1", |packet| !packet.is_ipv6 && packet.src == 1),
    ("dst host 10.0.0.2", |packet| !packet.is_ipv6 && packet.dst == 2),
    ("net 10.0.0.2/31", |packet| {
        !packet.is_ipv6 && [packet.src, packet.dst].iter().any(|host| [2, 3].contains(host))
    }),
    ("icmp[icmpcode] = 1", |packet| {
        !packet.is_ipv6 && packet.proto == ip_proto::ICMP && packet.src_port == 1
    }),
    ("ether src 02:00:00:00:00:03", |packet| packet.src == 3),
    ("vlan 5", |packet| packet.vlan == Some(5)),
    ("vlan", |packet| packet.vlan.is_some()),
    ("multicast", |packet| packet.dst == 0xff),
];

/// Chains of words, as in `tcp and not vlan 5 or icmp`.
fn filter() -> impl Strategy<Value = String> {
    let word = || (any::<bool>(), 0..WORDS.len(), any::<bool>());
    vec(word(), 1..4).prop_map(|words| {
        let texts = words.into_iter().map(|(is_and, index, is_not)| {
            let not = if is_not { "not " } else { "" };
            format!("{}{not}({})", if is_and { " and " } else { " or " }, WORDS[index].0)
        });
        texts.collect::<String>().trim_start_matches(" and ").trim_start_matches(" or ").to_owned()
    })
}

/// Evaluates such a chain for a packet, from left to right.
fn passes(filter: &str, packet: &Packet) -> bool {
    let (mut rest, mut passed) = (filter.to_owned(), None);
    while !rest.is_empty() {
        let (is_and, behind) = match rest.strip_prefix(" or ") {
            Some(behind) => (false, behind.to_owned()),
            None => (true, rest.strip_prefix(" and ").unwrap_or(&rest).to_owned()),
        };
        let (is_not, behind) = match behind.strip_prefix("not ") {
            Some(behind) => (true, behind.to_owned()),
            None => (false, behind),
        };
        let (word, behind) = behind[1..].split_once(')').unwrap();
        let (_, reading) = WORDS.iter().find(|(text, _)| *text == word).unwrap();
        let holds = reading(packet) != is_not;
        passed = Some(match (passed, is_and) {
            (None, _) => holds,
            (Some(before), true) => before && holds,
            (Some(before), false) => before || holds,
        });
        rest = behind.to_owned();
    }
    passed.unwrap()
}

fn ports() -> impl Strategy<Value = PortRange> {
    (1..3u16, 0..2u16).prop_map(|(first, more)| PortRange::new(first, first + more).unwrap())
}

/// A policy; most fields are omitted, so that policies overlap.
fn tap_policy() -> impl Strategy<Value = TapPolicy> {
    let host = || option::weighted(0.2, (1..=HOSTS).prop_map(mac));
    let addresses = (option::weighted(0.4, prefix()), option::weighted(0.4, prefix()));
    let ports = (option::weighted(0.2, ports()), option::weighted(0.3, ports()));
    let rest = (option::weighted(0.3, proto()), vlan(), any::<bool>(), 3..=6u32);
    let filter = option::weighted(0.4, filter());
    (host(), host(), addresses, ports, rest, filter)
        .prop_map(|(src_mac, dst_mac, (src_ip, dst_ip), (src_port, dst_port), rest, filter)| {
            let (ip_proto, vlan, both, monitor) = rest;
            let direction = if both { Direction::Both } else { Direction::Forward };
            TapPolicy {
                filter,
                src_mac,
                dst_mac,
                src_ip,
                dst_ip,
                ip_proto,
                vlan,
                src_port,
                dst_port,
                direction: Some(direction),
                ..policy("p", &monitor.to_string())
            }
        })
        .prop_filter("contradicts itself, or is large", |policy| {
            policy.region_count().is_ok_and(|count| count <= MAX_POLICY_REGIONS)
        })
}

fn packet() -> impl Strategy<Value = Packet> {
    let proto =
        prop_oneof![Just(ip_proto::TCP), Just(ip_proto::UDP), Just(ip_proto::ICMP), Just(89)];
    // VLAN 0 is a priority tag.
    let vlan =
        prop_oneof![3 => Just(None), 1 => Just(Some(5)), 1 => Just(Some(6)), 1 => Just(Some(0))];
    let dst = prop_oneof![4 => 1..=HOSTS, 1 => Just(9u8), 1 => Just(0xff)];
    (1..=HOSTS, dst, vlan, any::<bool>(), proto, 1..3u16, 1..3u16).prop_map(
        |(src, dst, vlan, is_ipv6, proto, src_port, dst_port)| Packet {
            src,
            dst,
            vlan,
            is_ipv6,
            proto,
            src_port,
            dst_port,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let at_home = packet().prop_map(|packet| Step::Send(packet.src.into(), packet));
    let anywhere = (1..=PORTS, packet()).prop_map(|(port, packet)| Step::Send(port, packet));
    prop_oneof![
        4 => tap_policy().prop_map(|policy| Step::Add(Box::new(policy))),
        2 => (0..MAX_POLICIES).prop_map(Step::Delete),
        10 => at_home,
        3 => anywhere,
        2 => (1..=PORTS, any::<bool>()).prop_map(|(port, is_up)| Step::Link(port, is_up)),
        1 => Just(Step::Reconnect),
        1 => Just(Step::Restart),
    ]
}

/// Evaluates a policy for a packet directly.
fn matches(policy: &TapPolicy, packet: &Packet) -> bool {
    let (src_port, dst_port) = match IpProto(packet.proto).has_ports() {
        true => (packet.dst_port, packet.src_port),
        false => (packet.src_port, packet.dst_port),
    };
    let back = Packet { src: packet.dst, dst: packet.src, src_port, dst_port, ..*packet };
    matches_forward(policy, packet)
        || policy.ways() == Direction::Both && matches_forward(policy, &back)
}

fn matches_forward(policy: &TapPolicy, packet: &Packet) -> bool {
    let address = |host| match packet.is_ipv6 {
        true => std::net::IpAddr::from(ipv6(host)),
        false => ipv4(host).into(),
    };
    let has_ports = IpProto(packet.proto).has_ports();
    let proto = match (policy.ip_proto, packet.is_ipv6) {
        (Some(IpProto::ICMP), true) => false,
        (Some(proto), _) => proto.0 == packet.proto,
        (None, _) => true,
    };
    let port = |wanted: Option<PortRange>, port| {
        wanted.is_none_or(|wanted| has_ports && wanted.contains(port))
    };
    policy.src_mac.is_none_or(|wanted| wanted == mac(packet.src))
        && policy.dst_mac.is_none_or(|wanted| wanted == mac(packet.dst))
        && policy.src_ip.is_none_or(|prefix| prefix.contains(address(packet.src)))
        && policy.dst_ip.is_none_or(|prefix| prefix.contains(address(packet.dst)))
        && match policy.vlan {
            Vlan::Any => true,
            Vlan::Untagged => packet.vlan.is_none_or(|id| id == 0),
            Vlan::Tagged => packet.vlan.is_some(),
            Vlan::Id(id) => packet.vlan == Some(id),
        }
        && proto
        && port(policy.src_port, packet.src_port)
        && port(policy.dst_port, packet.dst_port)
        && policy.filter.as_ref().is_none_or(|filter| passes(filter, packet))
}

/// A world with policies, and one without policies but with the same input.
struct Pair {
    tapped: World,
    plain: World,
    policies: Vec<TapPolicy>,
    /// Packets matched by each policy according to the direct evaluation, since counters started.
    matched: BTreeMap<String, u64>,
    added: usize,
    down: BTreeSet<u32>,
}

impl Pair {
    fn new() -> Self {
        Self {
            tapped: World::new(PORTS),
            plain: World::new(PORTS),
            policies: Vec::new(),
            matched: BTreeMap::new(),
            added: 0,
            down: BTreeSet::new(),
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Add(policy) if self.policies.len() < MAX_POLICIES => self.add(*policy),
            Step::Delete(index) if index < self.policies.len() => self.delete(index),
            Step::Send(port, packet) if !self.down.contains(&port) => self.send(port, &packet),
            Step::Link(port, is_up) => self.set_link(port, is_up),
            Step::Reconnect => {
                self.tapped.take_changes();
                self.tapped.disconnect(1);
                self.tapped.connect(1);
                assert_eq!(self.tapped.take_changes(), [], "the switch is as it was");
            }
            Step::Restart => {
                // A host that is being probed has no source rule, by which a new controller would
                // know it.
                [&mut self.tapped, &mut self.plain].into_iter().for_each(|world| world.pass(4000));
                self.tapped.take_changes();
                self.tapped.restart_controller(&self.policies);
                // The restarted controller has forgotten recent moves.
                self.plain.restart_controller(&[]);
                assert_eq!(self.tapped.take_changes(), [], "the switch is as it was");
                self.matched.values_mut().for_each(|count| *count = 0);
            }
            Step::Add(_) | Step::Delete(_) | Step::Send(..) => {}
        }
    }

    fn add(&mut self, policy: TapPolicy) {
        self.added += 1;
        let policy = TapPolicy { name: format!("p{}", self.added), ..policy };
        self.tapped.control.add_policy(policy.clone(), WhenMissing::Wait).unwrap();
        self.tapped.run();
        self.matched.insert(policy.name.clone(), 0);
        self.policies.push(policy);
    }

    fn delete(&mut self, index: usize) {
        let policy = self.policies.remove(index);
        let report = self.tapped.untap(&policy.name);
        let expected = self.matched.remove(&policy.name).unwrap();
        check_counts(&report, expected);
    }

    fn set_link(&mut self, port: u32, is_up: bool) {
        for world in [&mut self.tapped, &mut self.plain] {
            world.switch().set_link(port, is_up);
            world.run();
        }
        match is_up {
            true => self.down.remove(&port),
            false => self.down.insert(port),
        };
    }

    fn send(&mut self, port: u32, packet: &Packet) {
        let frame = packet.bytes();
        let mut expected = self.plain.send(port, &frame);
        let active = self.policies.iter().filter(|policy| !self.down.contains(&monitor(policy)));
        for policy in active.filter(|policy| matches(policy, packet)) {
            *self.matched.get_mut(&policy.name).unwrap() += 1;
            if monitor(policy) != port && !expected.contains(&monitor(policy)) {
                expected.push(monitor(policy));
            }
        }
        expected.sort_unstable();
        let sent = self.tapped.send(port, &frame);
        assert_eq!(sent, expected, "{packet:?} from port {port}");
    }

    fn check(mut self) {
        for policy in std::mem::take(&mut self.policies) {
            let state = self.tapped.state(&policy.name);
            let is_up = !self.down.contains(&monitor(&policy));
            assert_eq!(state == PolicyState::Active, is_up, "{state:?}");
            let expected = self.matched[&policy.name];
            check_counts(&self.tapped.ledger(&policy.name), expected);
            check_counts(&self.tapped.untap(&policy.name), expected);
        }
        assert_eq!(self.tapped.switch().state(), self.plain.switch().state());
    }
}

fn check_counts(report: &PolicyReport, expected: u64) {
    let copied: u64 = report.copied.iter().map(|copied| copied.counts.packets).sum();
    assert_eq!((report.matched.packets, copied), (expected, expected), "{report:?}");
    assert!(report.is_complete && report.adds_up, "{report:?}");
}

/// The port named as the policy's monitor.
fn monitor(policy: &TapPolicy) -> u32 {
    match policy.monitor.iter().next() {
        Some(MonitorSpec::Port { port, .. }) => port.0,
        _ => panic!("{policy:?}"),
    }
}

/// Packets from every host to every other one, to an unknown one, and to broadcast.
fn probes() -> impl Iterator<Item = Packet> {
    let pairs = (1..=HOSTS).flat_map(|src| (1..=HOSTS).chain([9, 0xff]).map(move |dst| (src, dst)));
    pairs.filter(|(src, dst)| src != dst).flat_map(|(src, dst)| {
        [ip_proto::TCP, ip_proto::UDP].map(|proto| Packet {
            src,
            dst,
            vlan: None,
            is_ipv6: false,
            proto,
            src_port: 1,
            dst_port: 1,
        })
    })
}

/// Checks the switch during a change: forwarding is unchanged, no port gets a frame twice, and
/// remaining policies miss nothing.
fn check_between(model: &mut Model, stays: &[TapPolicy]) {
    let missed = missed_by(model, stays);
    assert!(missed.is_empty(), "{missed:?}");
}

/// Checks all but the last, and returns missed packets with the policies that match them.
fn missed_by<'a>(model: &mut Model, stays: &'a [TapPolicy]) -> Vec<(Packet, &'a TapPolicy)> {
    let passed = passed_once(model).into_iter();
    let missed = passed.flat_map(|(packet, ports)| {
        let missing = move |policy: &&TapPolicy| {
            matches(policy, &packet) && !ports.contains(&monitor(policy))
        };
        stays.iter().filter(missing).map(move |policy| (packet, policy))
    });
    missed.collect()
}

/// Packets with their output ports; checks that forwarding is unchanged and nothing is sent twice.
fn passed_once(model: &mut Model) -> Vec<(Packet, Vec<u32>)> {
    let mut passed = Vec::new();
    for packet in probes() {
        let port = u32::from(packet.src);
        let sent = model.receive(port, &packet.bytes());
        let ports: Vec<_> = sent.into_iter().map(|(port, _)| port).collect();
        let forwarded: Vec<_> =
            ports.iter().copied().filter(|port| *port <= HOSTS.into()).collect();
        let expected: Vec<_> = match packet.dst {
            1..=HOSTS => vec![packet.dst.into()],
            _ => (1..=HOSTS).filter(|host| *host != packet.src).map(u32::from).collect(),
        };
        assert_eq!(forwarded, expected, "{packet:?}");
        assert!(ports.is_sorted_by(|a, b| a < b), "twice: {packet:?} to {ports:?}");
        passed.push((packet, ports));
    }
    passed
}

/// A quarter of the usual number of cases, as each takes long.
fn config() -> ProptestConfig {
    ProptestConfig::with_cases(cases(64))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_packet_is_forwarded_as_without_policies_and_copied_once_to_each_monitor(
        steps in vec(step(), 1..60),
    ) {
        let mut pair = Pair::new();
        steps.into_iter().for_each(|step| pair.take(step));
        pair.check();
    }

    #[test]
    fn nothing_is_lost_or_doubled_while_policies_come_and_go(
        policies in vec(tap_policy(), 1..4),
        order in vec(any::<prop::sample::Index>(), 8),
    ) {
        let mut world = World::new(PORTS);
        world.learn(HOSTS);
        let name = |index: usize| format!("p{index}");
        let mut there: Vec<(usize, TapPolicy)> = Vec::new();
        for index in order.into_iter().map(|index| index.index(policies.len())) {
            let stays: Vec<_> = there.iter().filter(|(at, _)| *at != index).cloned().collect();
            if stays.len() < there.len() {
                world.control.delete_policy(&name(index)).unwrap();
                there = stays.clone();
            } else {
                let port = PortNo(5 + index as u32 % 2);
                let monitor = MonitorSpec::Port { switch: None, port }.into();
                let policy = TapPolicy { name: name(index), monitor, ..policies[index].clone() };
                world.control.add_policy(policy.clone(), WhenMissing::Refuse).unwrap();
                there.push((index, policy));
            }
            let stays: Vec<_> = stays.into_iter().map(|(_, policy)| policy).collect();
            world.run_and_watch(&mut |model| {
                check_between(model, &stays);
                model.said.retain(|message| !matches!(message.body, Body::PacketIn(_)));
            });
            let all: Vec<_> = there.iter().map(|(_, policy)| policy.clone()).collect();
            check_between(world.switch(), &all);
        }
    }

    #[test]
    fn nothing_is_lost_or_doubled_where_there_is_little_room(
        policies in vec(tap_policy(), 2..6),
        order in vec(any::<prop::sample::Index>(), 10),
        max_regions in 2..40usize,
    ) {
        let mut world =
            World::with_limits(PORTS, Limits { max_regions, ..Limits::default() });
        world.learn(HOSTS);
        let mut there: Vec<TapPolicy> = Vec::new();
        for index in order.into_iter().map(|index| index.index(policies.len())) {
            let name = format!("p{index}");
            let mut stays = there.clone();
            stays.retain(|policy| policy.name != name && world.state(&policy.name) == ACTIVE);
            if there.iter().any(|policy| policy.name == name) {
                there.retain(|policy| policy.name != name);
                world.control.delete_policy(&name).unwrap();
            } else {
                let port = PortNo(5 + index as u32 % 2);
                let monitor = MonitorSpec::Port { switch: None, port }.into();
                let policy = TapPolicy { name, monitor, ..policies[index].clone() };
                if world.control.add_policy(policy.clone(), WhenMissing::Refuse).is_err() {
                    continue;
                }
                there.push(policy);
            }
            let mut missed = Vec::new();
            world.run_and_watch(&mut |model| {
                missed.extend(missed_by(model, &stays));
                model.said.retain(|message| !matches!(message.body, Body::PacketIn(_)));
            });
            let is_active = |policy: &&TapPolicy| world.state(&policy.name) == ACTIVE;
            let missed: Vec<_> =
                missed.into_iter().filter(|(_, policy)| is_active(policy)).collect();
            prop_assert!(missed.is_empty(), "{:?}", missed);
            let active: Vec<_> = there.iter().filter(is_active).cloned().collect();
            check_between(world.switch(), &active);
        }
    }

    #[test]
    fn what_two_versions_want_is_copied_all_the_while_that_one_replaces_the_other(
        versions in vec(tap_policy(), 2..5),
        beside in option::of(tap_policy()),
    ) {
        let mut world = World::new(PORTS);
        world.learn(HOSTS);
        let at = |port: u32, policy: TapPolicy| {
            let monitor = MonitorSpec::Port { switch: None, port: PortNo(port) }.into();
            TapPolicy { monitor, ..policy }
        };
        let beside = beside.map(|policy| TapPolicy { name: "beside".to_owned(), ..at(5, policy) });
        let beside: Vec<_> = beside.into_iter().collect();
        beside.iter().for_each(|policy| world.tap(policy.clone()));
        let versions = versions.into_iter().enumerate();
        let versions: Vec<_> =
            versions.map(|(index, policy)| at(5 + index as u32 / 2 % 2, policy)).collect();
        world.tap(versions[0].clone());
        for pair in versions.windows(2) {
            world.events.clear();
            world.control.replace_policy(pair[1].clone(), WhenMissing::Refuse).unwrap();
            world.run_and_watch(&mut |model| {
                check_between(model, &beside);
                for (packet, ports) in passed_once(model) {
                    let is_owed = pair.iter().all(|policy| matches(policy, &packet))
                        && monitor(&pair[0]) == monitor(&pair[1]);
                    assert!(!is_owed || ports.contains(&monitor(&pair[0])), "{packet:?} {ports:?}");
                }
                model.said.retain(|message| !matches!(message.body, Body::PacketIn(_)));
            });
            let replaced = Event::PolicyReplaced { name: "p".to_owned() };
            assert!(world.events.contains(&replaced), "{:?}", world.events);
            let said = world.control.with_switches_said(pair[1].clone());
            assert_eq!(world.control.policy("p").unwrap().policy, said);
            let stays: Vec<_> = beside.iter().chain(&pair[1..]).cloned().collect();
            check_between(world.switch(), &stays);
        }
    }
}
