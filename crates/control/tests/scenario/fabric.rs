//! Several connected switches: every frame arrives once, whatever the cabling, and copies reach
//! monitors at other switches unchanged.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use tapswitch_control::*;
use tapswitch_helpers::cases;
use tapswitch_openflow::multipart::FlowStats;
use tapswitch_openflow::{DatapathId, TableId};

use crate::frames::{BROADCAST, arp_request, mac, tcp, udp};
use crate::model::Model;
use crate::world::{World, policy};

/// Host `h` is at port 1 of switch `h`, its monitor at port 2. Links use ports from 10 on.
pub(crate) struct Fabric {
    pub(crate) world: World,
    pub(crate) hosts: u8,
}

impl Fabric {
    pub(crate) fn new(switches: u8, cables: &[(u8, u8)]) -> Self {
        Self::with(switches, cables, &Limits::default())
    }

    pub(crate) fn with(switches: u8, cables: &[(u8, u8)], limits: &Limits) -> Self {
        let discovery = Some(Discovery::new([7; 32]));
        let limits = Limits { discovery, ..limits.clone() };
        let mut world = World::empty(limits);
        let mut next = [10_u32; 256];
        for &(a, b) in cables {
            let a = (u64::from(a), take(&mut next, a));
            let b = (u64::from(b), take(&mut next, b));
            world.cables.extend([(a, b), (b, a)]);
        }
        for id in 1..=u64::from(switches) {
            world.add_switch(id, 2);
        }
        for (id, port) in world.cables.keys().copied().collect::<Vec<_>>() {
            world.model(id).add_port(port);
        }
        let mut fabric = Self { world, hosts: switches };
        fabric.wait(400);
        fabric
    }

    pub(crate) fn line(switches: u8) -> Self {
        Self::new(switches, &(1..switches).map(|at| (at, at + 1)).collect::<Vec<_>>())
    }

    pub(crate) fn ring(switches: u8) -> Self {
        let next = |at| at % switches + 1;
        Self::new(switches, &(1..=switches).map(|at| (at, next(at))).collect::<Vec<_>>())
    }

    /// Two spines, 5 and 6, and four leaves.
    pub(crate) fn leaf_spine() -> Self {
        Self::leaf_spine_with(&Limits::default())
    }

    fn leaf_spine_with(limits: &Limits) -> Self {
        let links = (1..=4).flat_map(|leaf| [(leaf, 5), (leaf, 6)]);
        Self::with(6, &links.collect::<Vec<_>>(), limits)
    }

    pub(crate) fn wait(&mut self, millis: u64) {
        for _ in 0..millis.div_ceil(50) {
            self.world.pass(50);
        }
    }

    /// A host sends a frame; returns switch and port of each arrival, which must be unchanged.
    pub(crate) fn send(&mut self, host: u8, frame: &[u8]) -> Vec<(u64, u32)> {
        let arrivals = self.world.inject(host.into(), 1, frame).into_iter();
        let places = arrivals.map(|(switch, port, arrived)| {
            assert_eq!(arrived, frame, "at {switch}/{port}");
            (switch, port)
        });
        places.collect()
    }

    /// Every host sends, so that all are known.
    pub(crate) fn learn(&mut self) {
        for host in 1..=self.hosts {
            let arrivals = self.send(host, &arp_request(host, 99, None));
            assert_eq!(arrivals, self.everywhere_but(host));
        }
    }

    /// The hosts of the leaves send.
    fn learn_leaves(&mut self) {
        (1..=4).for_each(|host| _ = self.send(host, &arp_request(host, 99, None)));
    }

    /// Every edge port except the host's.
    fn everywhere_but(&self, host: u8) -> Vec<(u64, u32)> {
        let edges = (1..=u64::from(self.hosts)).flat_map(|switch| [(switch, 1), (switch, 2)]);
        edges.filter(|edge| *edge != (host.into(), 1)).collect()
    }

    /// The port of a switch with a link to another one.
    pub(crate) fn exit_to(&self, from: u64, to: u64) -> Option<u32> {
        let cables = self
            .world
            .control
            .links()
            .into_iter()
            .flat_map(|link| [(link.a.clone(), link.b.clone()), (link.b, link.a)]);
        let mut leading = cables.filter(|(a, b)| (a.switch.0, b.switch.0) == (from, to));
        leading.next().map(|(a, _)| a.port)
    }

    pub(crate) fn check_production(&mut self) {
        for from in 1..=self.hosts {
            for to in (1..=self.hosts).filter(|to| *to != from) {
                let arrivals = self.send(from, &udp(from, to).bytes());
                assert_eq!(arrivals, [(to.into(), 1)], "{from} to {to}");
            }
            let arrivals = self.send(from, &arp_request(from, 98, None));
            assert_eq!(arrivals, self.everywhere_but(from), "from {from} to all");
        }
    }

    /// A link fails and returns.
    pub(crate) fn flap(&mut self, a: u64, b: u64) {
        for is_up in [false, true] {
            let ends = self.world.cables.iter().filter(|(at, to)| (at.0, to.0) == (a, b));
            let ends: Vec<_> = ends.flat_map(|(at, to)| [*at, *to]).collect();
            for (switch, port) in ends {
                self.world.model(switch).set_link(port, is_up);
            }
            self.world.run();
            self.wait(50);
        }
    }

    /// A link fails; the switches notice unless it is cut `silently`.
    pub(crate) fn cut(&mut self, a: u64, b: u64, silently: bool) {
        let cables = self.world.cables.iter();
        let (at, to) =
            cables.map(|(at, to)| (*at, *to)).find(|(at, to)| (at.0, to.0) == (a, b)).unwrap();
        for end in [at, to] {
            self.world.cables.remove(&end);
            if !silently {
                self.world.model(end.0).set_link(end.1, false);
            }
        }
        self.world.run();
    }
}

fn take(next: &mut [u32], switch: u8) -> u32 {
    let port = &mut next[usize::from(switch)];
    *port += 1;
    *port - 1
}

/// Replaces a policy by others of its name and back. In a line of three it copies frames for the
/// second host to the third switch, each time.
pub(crate) fn check_changes(policy: &TapPolicy, others: &[TapPolicy]) {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.tap(policy.clone());
    for next in others.iter().chain([policy]) {
        fabric.world.control.replace_policy(next.clone(), WhenMissing::Refuse).unwrap();
        fabric.world.run();
        assert_eq!(fabric.world.control.policy(&next.name).unwrap().policy, *next);
        assert_eq!(fabric.world.state(&next.name), PolicyState::Active);
        assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
        check_ledger(&mut fabric, &next.name, 1);
    }
}

pub(crate) fn check_ledger(fabric: &mut Fabric, name: &str, matched: u64) {
    let report = fabric.world.ledger(name);
    assert_eq!(report.matched.packets, matched, "{report:?}");
    assert!(report.adds_up && report.is_complete, "{report:?}");
    for copied in &report.copied {
        let ended = copied.delivered.packets + copied.flooded;
        assert_eq!((copied.counts.packets, ended), (matched, matched), "{copied:?}");
    }
}

#[test]
fn everything_arrives_once_whatever_the_wiring() {
    for fabric in [Fabric::line(4), Fabric::ring(5), Fabric::leaf_spine()] {
        let mut fabric = fabric;
        fabric.learn();
        fabric.check_production();
    }
}

#[test]
fn links_are_told() {
    let fabric = Fabric::ring(3);
    let links = fabric.world.control.links();
    assert_eq!(links.len(), 3);
    assert_eq!(links.iter().filter(|link| link.is_tree).count(), 2);
    assert!(links.iter().all(|link| link.is_sure));
}

#[test]
fn copies_reach_a_monitor_on_another_switch_unchanged() {
    for fabric in [Fabric::line(4), Fabric::ring(4), Fabric::leaf_spine()] {
        let mut fabric = fabric;
        fabric.learn();
        fabric.world.plan_and_tap(policy("all tcp", "0x3/2"));
        let mut matched = 0;
        for from in 1..=fabric.hosts {
            for to in (1..=fabric.hosts).filter(|to| *to != from) {
                let arrivals = fabric.send(from, &tcp(from, to).vlan_bytes(None));
                let mut expected = vec![(to.into(), 1), (3, 2)];
                expected.sort_unstable();
                assert_eq!(arrivals, expected, "{from} to {to}");
                matched += 1;
            }
        }
        check_ledger(&mut fabric, "all tcp", matched);
        let report = fabric.world.untap("all tcp");
        assert!(report.adds_up && report.matched.packets == matched, "{report:?}");
        fabric.check_production();
    }
}

#[test]
fn several_monitors_get_a_copy_each() {
    let mut fabric = Fabric::ring(4);
    fabric.learn();
    let monitors = ["0x1/2", "0x3/2", "0x4/2"].map(|text| text.parse().unwrap());
    let monitor = Monitors::new(monitors.to_vec());
    fabric.world.tap(TapPolicy { monitor, dst_port: Some(80.into()), ..policy("web", "1") });
    let arrivals = fabric.send(2, &tcp(2, 1).bytes());
    assert_eq!(arrivals, [(1, 1), (1, 2), (3, 2), (4, 2)]);
    assert_eq!(fabric.send(2, &arp_request(2, 1, None)), fabric.everywhere_but(2));
    check_ledger(&mut fabric, "web", 1);
}

#[test]
fn the_ways_of_copies_are_told() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.tap(policy("all", "0x3/2"));
    let paths = fabric.world.control.policy_paths("all").unwrap();
    let hops: Vec<_> = paths.iter().map(|path| path.hops.as_slice()).collect();
    let hop =
        |switch, in_port, out_port| HopReport { switch: DatapathId(switch), in_port, out_port };
    assert_eq!(hops, [[hop(1, None, 10), hop(2, Some(10), 11), hop(3, Some(10), 2)]]);
}

#[test]
fn what_is_flooded_reaches_a_far_monitor_once() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.tap(policy("all", "0x3/2"));
    assert_eq!(fabric.send(1, &tcp(1, BROADCAST).bytes()), fabric.everywhere_but(1));
    assert_eq!(fabric.send(2, &tcp(2, 77).bytes()), fabric.everywhere_but(2));
    check_ledger(&mut fabric, "all", 2);
}

#[test]
fn policies_with_one_far_monitor_share_its_copies() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.tap(policy("all", "0x3/2"));
    fabric.world.tap(TapPolicy { dst_port: Some(80.into()), ..policy("web", "0x3/2") });
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
    assert_eq!(fabric.send(1, &udp(1, 2).bytes()), [(2, 1), (3, 2)]);
    check_ledger(&mut fabric, "all", 2);
    check_ledger(&mut fabric, "web", 2);
}

#[test]
fn tagged_traffic_is_copied_with_its_tags() {
    let mut fabric = Fabric::line(3);
    for host in 1..=3 {
        fabric.send(host, &arp_request(host, 99, Some(100)));
    }
    fabric.world.tap(TapPolicy { vlan: Vlan::Id(100), ..policy("blue", "0x3/2") });
    assert_eq!(fabric.send(1, &tcp(1, 2).vlan_bytes(Some(100))), [(2, 1), (3, 2)]);
    check_ledger(&mut fabric, "blue", 1);
}

#[test]
fn hosts_cannot_send_to_monitors_in_the_vlans_of_copies() {
    let mut fabric = Fabric::line(2);
    fabric.learn();
    fabric.world.tap(policy("all", "0x2/2"));
    for vlan in 3072..4095 {
        assert_eq!(fabric.send(1, &tcp(1, 2).vlan_bytes(Some(vlan))), []);
    }
}

#[test]
fn a_host_that_moves_is_followed() {
    let mut fabric = Fabric::ring(4);
    fabric.learn();
    let arrivals = fabric.world.inject(3, 2, &arp_request(1, 99, None));
    assert!(!arrivals.is_empty());
    assert_eq!(fabric.send(2, &udp(2, 1).bytes()), [(3, 2)]);
    let hosts = fabric.world.control.hosts();
    let of_first: Vec<_> = hosts.iter().filter(|host| host.mac == mac(1)).collect();
    assert_eq!((of_first.len(), of_first[0].switch), (1, DatapathId(3)));
}

/// The only location of a host.
fn place_of(fabric: &Fabric, host: u8) -> (u64, u32) {
    let hosts = fabric.world.control.hosts();
    let places: Vec<_> = hosts.iter().filter(|it| it.mac == mac(host)).collect();
    assert_eq!(places.len(), 1, "{places:?}");
    (places[0].switch.0, places[0].port.parse().unwrap())
}

/// Its old switch still has its source rule.
#[test]
fn a_host_that_moved_while_its_switch_was_away_stays_where_it_is() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.disconnect(1);
    let _ = fabric.world.inject(2, 2, &arp_request(1, 99, None));
    assert_eq!(place_of(&fabric, 1), (2, 2));
    fabric.world.connect(1);
    fabric.wait(500);
    assert_eq!(place_of(&fabric, 1), (2, 2));
    let _ = fabric.world.inject(1, 2, &arp_request(9, 99, None));
    for (switch, from) in [(3, 3), (1, 9)] {
        let port = if from == 9 { 2 } else { 1 };
        let frame = udp(from, 1).bytes();
        assert_eq!(fabric.world.inject(switch, port, &frame), [(2, 2, frame)], "from {from}");
    }
}

#[test]
fn a_host_that_moved_to_another_part_is_there_when_the_parts_are_linked_again() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    let _ = fabric.world.inject(1, 2, &arp_request(9, 99, None));
    let cable = fabric.world.cables.iter().find(|(at, to)| (at.0, to.0) == (1, 2));
    let ends = cable.map(|(at, to)| [*at, *to]).unwrap();
    let set_link = |fabric: &mut Fabric, is_up| {
        ends.iter().for_each(|(switch, port)| fabric.world.model(*switch).set_link(*port, is_up));
        fabric.world.run();
        fabric.wait(500);
    };
    set_link(&mut fabric, false);
    let _ = fabric.world.inject(2, 2, &arp_request(1, 99, None));
    set_link(&mut fabric, true);
    assert_eq!(place_of(&fabric, 1), (2, 2));
    let frame = udp(9, 1).bytes();
    assert_eq!(fabric.world.inject(1, 2, &frame), [(2, 2, frame)]);
}

#[test]
fn a_cut_cable_is_gone_around() {
    for silently in [false, true] {
        let mut fabric = Fabric::ring(5);
        fabric.learn();
        fabric.world.tap(policy("all", "0x3/2"));
        fabric.cut(2, 3, silently);
        fabric.wait(if silently { 1000 } else { 0 });
        let arrivals = fabric.send(2, &tcp(2, 3).bytes());
        assert_eq!(arrivals, [(3, 1), (3, 2)]);
        fabric.wait(500);
        fabric.world.untap("all");
        if !silently {
            fabric.check_production();
        }
    }
}

#[test]
fn a_controller_that_starts_again_changes_nothing() {
    let mut fabric = Fabric::leaf_spine();
    fabric.learn();
    let ip_proto = Some(IpProto::TCP);
    let web = TapPolicy { ip_proto, dst_port: Some(80.into()), ..policy("web", "0x3/2") };
    fabric.world.tap(web.clone());
    let rules = |fabric: &Fabric| {
        fabric
            .world
            .switches
            .values()
            .map(|model| format!("{:?}", model.state()))
            .collect::<Vec<_>>()
    };
    let before = rules(&fabric);
    fabric.world.restart_controller(&[web]);
    assert_eq!(rules(&fabric), before, "while it finds out");
    fabric.wait(400);
    assert_eq!(rules(&fabric), before, "when it knows");
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
    check_ledger(&mut fabric, "web", 1);
    fabric.check_production();
}

#[test]
fn switches_that_connect_again_in_their_own_time_are_disturbed_as_little() {
    for mut fabric in [Fabric::line(4), Fabric::ring(3), Fabric::leaf_spine()] {
        fabric.learn();
        let ip_proto = Some(IpProto::TCP);
        let web = TapPolicy { ip_proto, dst_port: Some(80.into()), ..policy("web", "0x3/2") };
        fabric.world.tap(web.clone());
        let state = |world: &World| {
            format!("{:?}", world.switches.values().map(Model::state).collect::<Vec<_>>())
        };
        let before = state(&fabric.world);
        // Messages may arrive at any time, also right after the deadline.
        let millisecond = |world: &mut World| {
            world.now = world.now.plus(Millis(1));
            let copied = world.inject(1, 1, &tcp(1, 2).bytes());
            let places: Vec<_> = copied.iter().map(|(switch, port, _)| (*switch, *port)).collect();
            assert_eq!(places, [(2, 1), (3, 2)], "at {:?}", world.now);
            world.inject(1, 1, &arp_request(1, 99, None));
            assert_eq!(state(world), before, "at {:?}", world.now);
            world.pass(0);
        };
        fabric.world.restart_controller_slowly(&[web], &mut |world| {
            (0..7).for_each(|_| millisecond(world));
        });
        (0..500).for_each(|_| millisecond(&mut fabric.world));
        fabric.check_production();
    }
}

/// Traffic between all hosts while policies, links and the controller change: every frame and every
/// copy arrives once.
fn churn(seed: &[u8], limits: &Limits) {
    let mut fabric = Fabric::leaf_spine_with(limits);
    fabric.learn();
    let mut matched: BTreeMap<String, u64> = BTreeMap::new();
    // A link that flaps is held: the links to the other spine stay below that threshold.
    let mut flaps = [0; 5];
    for (step, &byte) in seed.iter().enumerate() {
        let (what, host) = (byte % 5, byte / 5 % 4 + 1);
        let name = format!("from {host}");
        match what {
            0 if !matched.contains_key(&name) => {
                let monitor = format!("{:#x}/2", u64::from(host % 4 + 1));
                let from = TapPolicy { src_mac: Some(mac(host)), ..policy(&name, &monitor) };
                fabric.world.plan_and_tap(from);
                matched.insert(name, 0);
            }
            1 if matched.contains_key(&name) => {
                let report = fabric.world.untap(&name);
                assert_eq!(Some(report.matched.packets), matched.remove(&name));
                assert!(report.adds_up && report.is_complete, "step {step}: {report:?}");
            }
            2 if byte / 20 % 2 == 0 => {
                fabric.flap(host.into(), 5);
                fabric.wait(150);
            }
            2 if flaps[usize::from(host)] < 2 => {
                flaps[usize::from(host)] += 1;
                fabric.flap(host.into(), 6);
                fabric.wait(150);
            }
            2 => {}
            _ => {
                let to = (host + byte / 20 % 3) % 4 + 1;
                if to == host {
                    continue;
                }
                let mut expected = vec![(u64::from(to), 1)];
                if let Some(count) = matched.get_mut(&name) {
                    *count += 1;
                    expected.push((u64::from(host % 4 + 1), 2));
                }
                expected.sort_unstable();
                let arrivals = fabric.send(host, &tcp(host, to).bytes());
                assert_eq!(arrivals, expected, "step {step}: {host} to {to}");
            }
        }
    }
    for (name, matched) in matched {
        check_ledger(&mut fabric, &name, matched);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(24)))]

    #[test]
    fn nothing_is_lost_or_doubled_whatever_comes_and_goes(
        seed in vec(any::<u8>(), 1..60),
        everywhere in 0..3_usize,
    ) {
        churn(&seed, &Limits { max_places: everywhere * 6, ..Limits::default() });
    }
}

/// Switches that copy.
fn tapping(fabric: &Fabric) -> Vec<u64> {
    let taps = |stats: &FlowStats| stats.table_id == TableId(1) && stats.priority >= 1000;
    let switches = fabric.world.switches.iter();
    let tapping = switches.filter(|(_, model)| model.rules().iter().any(taps));
    tapping.map(|(id, _)| id.0).collect()
}

fn from_host(host: u8) -> TapPolicy {
    TapPolicy { src_mac: Some(mac(host)), ..policy(&format!("from {host}"), "0x3/2") }
}

#[test]
fn where_there_are_many_policies_they_are_applied_where_senders_are() {
    let mut fabric = Fabric::leaf_spine_with(&Limits { max_places: 6, ..Limits::default() });
    fabric.learn();
    fabric.world.tap(from_host(1));
    fabric.world.tap(from_host(2));
    let note = fabric.world.ledger("from 2").notes.concat();
    assert!(note.contains("applied only at the switches of its senders, 0x2"), "{note}");
    assert_eq!(tapping(&fabric), [1, 2, 3, 4, 5, 6], "the first one is applied everywhere");
    fabric.world.untap("from 1");
    assert_eq!(tapping(&fabric), [1, 2, 3, 4, 5, 6], "the other one is the first now");
    assert!(fabric.world.ledger("from 2").notes.is_empty());
}

/// Switches with a route to a host.
fn knowing(fabric: &Fabric, host: u8) -> Vec<u64> {
    let to = format!("dl_dst={}", mac(host));
    let knows = |stats: &FlowStats| {
        stats.table_id == TableId(2) && stats.match_fields.to_string().contains(&to)
    };
    let switches = fabric.world.switches.iter();
    let knowing = switches.filter(|(_, model)| model.rules().iter().any(knows));
    knowing.map(|(id, _)| id.0).collect()
}

#[test]
fn where_there_are_many_hosts_those_that_talk_are_known() {
    let mut fabric = Fabric::leaf_spine_with(&Limits { max_ways: 0, ..Limits::default() });
    fabric.learn();
    assert_eq!(knowing(&fabric, 2), [2]);
    let mut flooded = fabric.everywhere_but(1);
    flooded.retain(|place| *place != (2, 2));
    assert_eq!(fabric.send(1, &udp(1, 2).bytes()), flooded, "its own switch knows it");
    assert_eq!(knowing(&fabric, 2), [1, 2, 5, 6], "and all that frames may come through");
    assert_eq!(knowing(&fabric, 1), [1, 2, 5, 6], "both ways");
    for (from, to) in [(1, 2), (2, 1)] {
        assert_eq!(fabric.send(from, &udp(from, to).bytes()), [(to.into(), 1)]);
    }
    fabric.cut(1, 5, false);
    for (from, to) in [(1, 2), (2, 1)] {
        assert_eq!(fabric.send(from, &udp(from, to).bytes()), [(to.into(), 1)], "around");
    }
    assert!(!fabric.world.inject(4, 2, &arp_request(1, 99, None)).is_empty());
    assert_eq!(fabric.send(2, &udp(2, 1).bytes()), [(4, 2)], "followed");
    assert_eq!(fabric.world.inject(4, 2, &udp(1, 2).bytes()).len(), 1, "its peers are known there");
    assert_eq!(fabric.send(3, &udp(3, 77).bytes()), fabric.everywhere_but(3), "nobody is there");
    fabric.world.restart_controller(&[]);
    fabric.wait(800);
    assert_eq!(fabric.send(2, &udp(2, 1).bytes()), [(4, 2)], "by what the switches knew");
    fabric.world.tap(TapPolicy { ip_proto: Some(IpProto::TCP), ..policy("tcp", "0x3/2") });
    let first = fabric.send(2, &tcp(2, 3).bytes());
    assert!(first.contains(&(3, 1)) && first.contains(&(3, 2)), "asked for, and copied: {first:?}");
    assert_eq!(fabric.send(2, &tcp(2, 3).bytes()), [(3, 1), (3, 2)]);
    check_ledger(&mut fabric, "tcp", 2);
}

#[test]
fn when_there_are_few_hosts_again_all_switches_know_them() {
    let mut fabric = Fabric::leaf_spine_with(&Limits { max_ways: 24, ..Limits::default() });
    fabric.learn_leaves();
    assert_eq!(knowing(&fabric, 4), [1, 2, 3, 4, 5, 6]);
    let _ = fabric.world.inject(1, 2, &arp_request(50, 99, None));
    assert_eq!(knowing(&fabric, 50), [1], "one too many");
    for (gone, known) in [(4, vec![1]), (3, vec![1]), (2, vec![1, 2, 3, 4, 5, 6])] {
        fabric.world.model(gone).set_link(1, false);
        fabric.wait(100);
        assert_eq!(knowing(&fabric, 50), known, "without {gone}");
    }
    assert_eq!(fabric.world.inject(4, 2, &udp(77, 50).bytes()).len(), 1);
}

#[test]
fn a_sender_that_nobody_knows_may_be_anywhere() {
    let mut fabric = Fabric::leaf_spine_with(&Limits { max_places: 0, ..Limits::default() });
    fabric.learn();
    fabric.world.tap(from_host(77));
    assert_eq!(tapping(&fabric), [1, 2, 3, 4, 5, 6]);
    assert!(!fabric.world.inject(4, 1, &arp_request(77, 99, None)).is_empty());
    assert_eq!(tapping(&fabric), [4]);
}

#[test]
fn a_policy_follows_its_sender_to_another_switch() {
    let mut fabric = Fabric::leaf_spine_with(&Limits { max_places: 0, ..Limits::default() });
    fabric.learn();
    fabric.world.tap(from_host(1));
    assert_eq!(tapping(&fabric), [1]);
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
    fabric.world.inject(4, 2, &arp_request(1, 99, None));
    assert_eq!(tapping(&fabric), [4]);
    let arrivals = fabric.world.inject(4, 2, &tcp(1, 2).bytes());
    assert_eq!(arrivals.len(), 2, "{arrivals:?}");
    fabric.wait(100);
    check_ledger(&mut fabric, "from 1", 2);
    let report = fabric.world.untap("from 1");
    assert!(report.adds_up && report.matched.packets == 2, "{report:?}");
}

/// Senders whose frames a switch copies.
fn copied(fabric: &Fabric, switch: u64) -> Vec<String> {
    let rules = fabric.world.switches[&DatapathId(switch)].rules();
    let taps = rules.iter().filter(|rule| rule.table_id == TableId(1) && rule.priority >= 1000);
    let sources: BTreeSet<_> = taps
        .filter_map(|rule| {
            let fields = rule.match_fields.to_string();
            Some(fields.split(',').find_map(|field| field.strip_prefix("dl_src="))?.to_owned())
        })
        .collect();
    sources.into_iter().collect()
}

#[test]
fn of_a_conversation_each_switch_copies_what_its_own_hosts_send() {
    let mut fabric = Fabric::leaf_spine_with(&Limits { max_places: 0, ..Limits::default() });
    fabric.learn();
    let talk = TapPolicy {
        src_mac: Some(mac(1)),
        dst_mac: Some(mac(2)),
        direction: Some(Direction::Both),
        ..policy("talk", "0x3/2")
    };
    fabric.world.tap(talk);
    let both = [mac(1).to_string(), mac(2).to_string()];
    assert_eq!((copied(&fabric, 1), copied(&fabric, 2)), (both[..1].to_vec(), both[1..].to_vec()));
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
    assert_eq!(fabric.send(2, &tcp(2, 1).bytes()), [(1, 1), (3, 2)]);
    for (switch, port) in [(2, 2), (1, 1), (2, 2)] {
        fabric.world.inject(switch, port, &arp_request(1, 99, None));
        let here = if switch == 2 { &both[..] } else { &both[1..] };
        assert_eq!(copied(&fabric, 2), here, "1 is at {switch}");
        assert_eq!(fabric.world.inject(switch, port, &tcp(1, 2).bytes()).len(), 2);
        assert_eq!(fabric.send(2, &tcp(2, 1).bytes()).len(), 2);
    }
    assert_eq!(tapping(&fabric), [2]);
    fabric.wait(100);
    check_ledger(&mut fabric, "talk", 8);
    let report = fabric.world.untap("talk");
    assert!(report.adds_up && report.matched.packets == 8, "{report:?}");
}

#[test]
fn a_switch_without_controller_forwards_on() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.tap(policy("all", "0x3/2"));
    fabric.world.disconnect(2);
    fabric.wait(2000);
    assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), [(3, 1), (3, 2)]);
    fabric.world.connect(2);
    fabric.wait(500);
    assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), [(3, 1), (3, 2)]);
    check_ledger(&mut fabric, "all", 2);
}

/// Events about policies, now and for a while.
fn told_of(fabric: &mut Fabric, wait: u64) -> Vec<Event> {
    fabric.wait(wait);
    let events = std::mem::take(&mut fabric.world.events);
    let is_about =
        |event: &Event| matches!(event, Event::PolicyActive { .. } | Event::PolicyPartial { .. });
    events.into_iter().filter(is_about).collect()
}

#[test]
fn losing_one_of_several_monitors_is_told_and_so_is_having_it_again() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    let monitors = ["0x1/2", "0x3/2"].map(|monitor| monitor.parse().unwrap());
    fabric.world.tap(TapPolicy::to_several("all", Monitors::new(monitors.to_vec())));
    fabric.world.model(3).set_link(2, false);
    let told = told_of(&mut fabric, 500);
    let [Event::PolicyPartial { name, reason }] = &told[..] else { panic!("{told:?}") };
    assert!(name == "all" && reason.starts_with("1 of 2 monitors reached: "), "{reason}");
    assert_eq!(told_of(&mut fabric, 500), []);
    fabric.world.model(3).set_link(2, true);
    assert_eq!(told_of(&mut fabric, 500), [Event::PolicyActive { name: "all".to_owned() }]);
}

#[test]
fn a_policy_that_some_switches_cannot_copy_for_says_which() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.tap(policy("all", "0x3/2"));
    let own = TapPolicy { src_mac: Some(mac(3)), ..policy("own", "0x3/2") };
    fabric.world.tap(own);
    fabric.cut(1, 2, false);
    let told = told_of(&mut fabric, 500);
    let [Event::PolicyPartial { name, reason }] = &told[..] else { panic!("{told:?}") };
    let expected =
        "frames that come in at 0x1 are not copied to monitor 0x3/2: there is no path of links";
    assert!(name == "all" && reason.starts_with(expected), "{reason}");
    assert_eq!(fabric.world.state("all"), PolicyState::Partial { reason: reason.clone() });
    assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), [(1, 2)]);
    let plan = fabric.world.control.plan_policy(policy("other", "0x3/2")).unwrap();
    assert!(plan.proof.is_proved && plan.notes == [reason.as_str()], "{plan:?}");
    fabric.world.cables.extend([((1, 10), (2, 10)), ((2, 10), (1, 10))]);
    fabric.world.model(1).set_link(10, true);
    fabric.world.model(2).set_link(10, true);
    // Other policies now have rules at more switches, too.
    let told = told_of(&mut fabric, 1000);
    let are_active = told.iter().all(|event| matches!(event, Event::PolicyActive { .. }));
    assert!(
        are_active && told.contains(&Event::PolicyActive { name: "all".to_owned() }),
        "{told:?}"
    );
    assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), [(3, 1), (3, 2)]);
}

#[test]
fn a_policy_without_an_identifier_for_its_copies_says_so_and_gets_one_when_there_is() {
    let limits = Limits { copy_vids: VidRange::new(16, 2).unwrap(), ..Limits::default() };
    let mut fabric = Fabric::with(4, &[(1, 2), (2, 3), (3, 4)], &limits);
    fabric.learn();
    fabric.world.tap(policy("a", "0x2/2"));
    fabric.world.tap(policy("b", "0x3/2"));
    fabric.world.control.add_policy(policy("c", "0x4/2"), WhenMissing::Wait).unwrap();
    fabric.world.run();
    let PolicyState::Pending { reason } = fabric.world.state("c") else {
        panic!("{:?}", fabric.world.state("c"))
    };
    assert!(reason.contains("VLAN identifier") && reason.contains("16-17"), "{reason}");
    let plan = fabric.world.control.plan_policy(policy("d", "0x4/2")).unwrap();
    assert!(!plan.proof.is_proved && plan.proof.problems.contains(&reason), "{plan:?}");
    let verdict = fabric.world.control.judge(Change::Add(&policy("d", "0x4/2"))).unwrap();
    assert_eq!((verdict.proof, verdict.unproved), (None, Some(reason)));
    fabric.world.control.delete_policy("a").unwrap();
    fabric.wait(100);
    assert_eq!(fabric.world.state("c"), PolicyState::Active);
    let arrivals = fabric.send(1, &tcp(1, 2).vlan_bytes(None));
    assert_eq!(arrivals, [(2, 1), (3, 2), (4, 2)]);
}

/// Frames from links are not copied: a device that makes us believe in a link without being a
/// switch cannot send. Hosts that reflect our frames do this, to the same port or to another one of
/// the same switch.
#[test]
fn hosts_that_pass_our_frames_on_are_no_links() {
    let mut fabric = Fabric::line(2);
    fabric.learn();
    fabric.world.cables.insert((1, 2), (1, 2));
    fabric.wait(10_000);
    let is_closed = |fabric: &Fabric, number: &str| {
        let switches = fabric.world.control.switches();
        let port = switches[0].ports.iter().find(|port| port.port == number).unwrap();
        port.role == PortRole::Closed
    };
    assert!(is_closed(&fabric, "2"));
    assert!(fabric.world.control.switches()[0].lldp_forged > 0);
    let told = fabric.world.events.iter();
    let told = told.filter(|event| matches!(event, Event::PortClosed { .. }));
    assert_eq!(told.count(), 1);
    assert_eq!(fabric.world.inject(1, 2, &udp(3, 2).bytes()), []);

    fabric.world.cables.extend([((1, 1), (1, 2)), ((1, 2), (1, 1))]);
    fabric.wait(10_000);
    assert!(is_closed(&fabric, "1") && is_closed(&fabric, "2"));
    assert_eq!(fabric.world.inject(1, 1, &udp(1, 2).bytes()), []);
    fabric.world.cables.retain(|(_, port), _| *port >= 10);
    fabric.wait(10_000);
    assert!(!is_closed(&fabric, "1") && !is_closed(&fabric, "2"));
    fabric.learn();
    fabric.check_production();
}
