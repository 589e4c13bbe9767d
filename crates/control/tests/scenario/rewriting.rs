//! Copies that travel with another address: made at the egress, restored at the monitor's switch
//! (the thesis' Algorithm 1).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::collection::vec;
use proptest::prelude::*;
use tapswitch_control::*;
use tapswitch_helpers::cases;
use tapswitch_openflow::{Action, Instruction, Oxm, PortNo};
use tapswitch_wire::MacAddr;

use crate::fabric::{Fabric, check_changes, check_ledger};
use crate::frames::{arp_request, mac, tcp, udp};
use crate::model::Model;
use crate::world::{World, policy};

fn rewrite(name: &str, dst: u8, monitor: &str) -> TapPolicy {
    let dst_mac = Some(mac(dst));
    TapPolicy { transport: Transport::Rewrite, dst_mac, ..policy(name, monitor) }
}

#[test]
fn copies_arrive_as_they_were_made_wherever_the_monitor_is() {
    for monitor in 1..=4 {
        for from in [1, 2, 4] {
            let mut fabric = Fabric::line(4);
            fabric.learn();
            fabric.world.plan_and_tap(rewrite("far", 3, &format!("{monitor:#x}/2")));
            let mut expected = [(3, 1), (monitor, 2)];
            expected.sort_unstable();
            assert_eq!(fabric.send(from, &tcp(from, 3).bytes()), expected, "from {from}");
            check_ledger(&mut fabric, "far", 1);
            fabric.check_production_but("far", 3);
            let before = fabric.world.untap("far");
            assert!(before.adds_up, "{before:?}");
        }
    }
}

impl Fabric {
    /// Checks that forwarding to all other hosts is unchanged.
    fn check_production_but(&mut self, name: &str, host: u8) {
        let matched = self.world.ledger(name).matched;
        for (from, to) in [(1, 2), (2, 4), (4, 1), (3, 1)].into_iter().filter(|ends| ends.1 != host)
        {
            assert_eq!(self.send(from, &udp(from, to).bytes()), [(to.into(), 1)]);
        }
        assert_eq!(self.world.ledger(name).matched, matched);
    }
}

#[test]
fn a_sender_beside_the_destination_is_copied_too() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    let _ = fabric.world.inject(2, 2, &arp_request(9, 99, None));
    fabric.world.plan_and_tap(rewrite("far", 2, "0x3/2"));
    let frame = tcp(9, 2).bytes();
    let arrivals = fabric.world.inject(2, 2, &frame);
    assert_eq!(arrivals, [(2, 1, frame.clone()), (3, 2, frame)]);
    check_ledger(&mut fabric, "far", 1);
}

#[test]
fn on_one_switch_nothing_is_rewritten() {
    let mut world = World::new(4);
    world.learn(2);
    world.tap(rewrite("here", 2, "3"));
    assert_eq!(world.send(1, &tcp(1, 2).bytes()), [2, 3]);
    assert_eq!(world.send(2, &tcp(2, 1).bytes()), [1]);
}

#[test]
fn frames_in_vlans_keep_their_tags() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    for host in 1..=3 {
        fabric.send(host, &arp_request(host, 99, Some(100)));
    }
    fabric.world.plan_and_tap(rewrite("far", 2, "0x3/2"));
    assert_eq!(fabric.send(1, &tcp(1, 2).vlan_bytes(Some(100))), [(2, 1), (3, 2)]);
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
    check_ledger(&mut fabric, "far", 2);
}

#[test]
fn a_destination_that_moves_is_followed() {
    let mut fabric = Fabric::ring(4);
    fabric.learn();
    fabric.world.plan_and_tap(rewrite("far", 1, "0x4/2"));
    assert_eq!(fabric.send(2, &udp(2, 1).bytes()), [(1, 1), (4, 2)]);
    let _ = fabric.world.inject(3, 2, &arp_request(1, 99, None));
    assert_eq!(fabric.world.state("far"), PolicyState::Active);
    assert_eq!(fabric.send(2, &udp(2, 1).bytes()), [(3, 2), (4, 2)]);
    check_ledger(&mut fabric, "far", 2);
    fabric.cut(3, 4, false);
    fabric.wait(100);
    assert_eq!(fabric.send(2, &udp(2, 1).bytes()), [(3, 2), (4, 2)]);
}

#[test]
fn who_is_not_known_is_refused_or_waited_for() {
    let mut fabric = Fabric::line(3);
    let far = rewrite("far", 2, "0x3/2");
    let refused = fabric.world.control.add_policy(far.clone(), WhenMissing::Refuse).unwrap_err();
    assert_eq!(refused, PolicyError::UnknownDestination { mac: mac(2) });
    fabric.world.control.add_policy(far, WhenMissing::Wait).unwrap();
    fabric.world.run();
    let PolicyState::Pending { reason } = fabric.world.state("far") else { panic!() };
    assert!(reason.contains("dst-mac 02:00:00:00:00:02 is not known yet"), "{reason}");
    fabric.learn();
    assert_eq!(fabric.world.state("far"), PolicyState::Active);
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
    // However silent it is.
    fabric.world.pass(400_000);
    assert_eq!(fabric.world.state("far"), PolicyState::Active);
}

/// Policies with tagged copies copy at the ingress, these at the egress.
#[test]
fn each_place_of_copying_makes_one_copy() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.plan_and_tap(rewrite("all", 2, "0x3/2"));
    let web = TapPolicy { dst_port: Some(80.into()), ..rewrite("web", 2, "0x3/2") };
    fabric.world.plan_and_tap(web);
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2)]);
    check_ledger(&mut fabric, "all", 1);
    check_ledger(&mut fabric, "web", 1);
    fabric.world.plan_and_tap(policy("tagged", "0x3/2"));
    assert_eq!(fabric.send(1, &tcp(1, 2).bytes()), [(2, 1), (3, 2), (3, 2)]);
    assert_eq!(fabric.send(1, &tcp(1, 3).bytes()), [(3, 1), (3, 2)]);
    let filter = Some("not port 80".to_owned());
    fabric.world.plan_and_tap(TapPolicy { filter, ..rewrite("other", 2, "0x1/2") });
    assert_eq!(fabric.send(3, &tcp(3, 2).bytes()), [(2, 1), (3, 2), (3, 2)]);
    let udp = crate::frames::Packet { dst_port: 53, ..udp(3, 2) }.bytes();
    assert_eq!(fabric.send(3, &udp), [(1, 2), (2, 1), (3, 2), (3, 2)]);
    for name in ["all", "web", "tagged", "other"] {
        let report = fabric.world.ledger(name);
        assert!(report.adds_up && report.is_complete, "{report:?}");
    }
}

#[test]
fn a_policy_may_change_its_transport() {
    let to_second = TapPolicy { dst_mac: Some(mac(2)), ..policy("web", "0x3/2") };
    check_changes(&to_second, &[rewrite("web", 2, "0x3/2")]);
}

#[test]
fn hosts_cannot_send_to_the_addresses_of_monitors() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    fabric.world.plan_and_tap(rewrite("far", 2, "0x3/2"));
    let given = given_addresses(&mut fabric);
    assert_eq!(given.len(), 1);
    for address in given {
        for host in 1..=3 {
            let frame = [&address.0[..], &tcp(host, 2).bytes()[6..]].concat();
            assert_eq!(fabric.send(host, &frame), []);
        }
    }
}

/// Addresses that any switch sets, except the originals.
fn given_addresses(fabric: &mut Fabric) -> BTreeSet<MacAddr> {
    let groups = fabric.world.switches.values().flat_map(Model::groups);
    let actions = groups.flat_map(|group| group.buckets).flat_map(|bucket| bucket.actions);
    let given = actions.filter_map(|action| match action {
        Action::SetField(Oxm::EthDst(mac)) => Some(mac.value),
        _ => None,
    });
    given.filter(|given| given.0[0] == 0x72).collect()
}

#[test]
fn a_controller_that_starts_again_changes_nothing() {
    let mut fabric = Fabric::line(3);
    fabric.learn();
    let far = rewrite("far", 2, "0x3/2");
    fabric.world.tap(far.clone());
    let before: Vec<_> = fabric.world.switches.values().map(Model::state).collect();
    let mut between = |world: &mut World| {
        let frame = tcp(1, 2).bytes();
        let arrivals = world.inject(1, 1, &frame);
        assert_eq!(arrivals, [(2, 1, frame.clone()), (3, 2, frame)]);
    };
    fabric.world.restart_controller_slowly(&[far], &mut between);
    fabric.wait(4000);
    let after: Vec<_> = fabric.world.switches.values().map(Model::state).collect();
    assert_eq!(before, after);
    assert_eq!(fabric.world.state("far"), PolicyState::Active);
    between(&mut fabric.world);
}

/// A rule of Algorithm 1 for a device. Any of several shortest paths is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// `installRewriteRule(device, outPortToDstDev, outPortToMonDev, policy)`
    Rewrite { to_dst: BTreeSet<u32>, to_mon: BTreeSet<u32> },
    /// `installRecoveryRule(device, outPortToMonHost, policy)`
    Recovery { to_mon_host: u32 },
}

/// Location of a host: device and port.
type At = (u64, u32);

/// Algorithm 1, line by line.
fn algorithm_1(cables: &BTreeMap<At, At>, devices: u64, dst: At, mon: At) -> BTreeMap<u64, Told> {
    let mut told = BTreeMap::new();
    for device in 1..=devices {
        let (dst_device, mon_device) = (dst.0, mon.0);
        if device == dst_device {
            // A path that ends where it begins has no port; the next hop is the host itself.
            let to_dst = src_ports(cables, device, dst_device).unwrap_or([dst.1].into());
            let to_mon = src_ports(cables, device, mon_device).unwrap_or([mon.1].into());
            told.insert(device, Told::Rewrite { to_dst, to_mon });
        } else if device == mon_device {
            told.insert(device, Told::Recovery { to_mon_host: mon.1 });
        }
    }
    told
}

/// `topologySrv.getPath(from, to).getSrcPort()`, for all shortest paths.
fn src_ports(cables: &BTreeMap<At, At>, from: u64, to: u64) -> Option<BTreeSet<u32>> {
    let mut distance = BTreeMap::from([(to, 0)]);
    let mut queue = VecDeque::from([to]);
    while let Some(at) = queue.pop_front() {
        for (_, peer) in cables.iter().filter(|(end, _)| end.0 == at) {
            if !distance.contains_key(&peer.0) {
                distance.insert(peer.0, distance[&at] + 1);
                queue.push_back(peer.0);
            }
        }
    }
    let nearer = cables
        .iter()
        .filter(|(end, peer)| end.0 == from && distance[&peer.0] + 1 == distance[&from]);
    (from != to).then(|| nearer.map(|(end, _)| end.1).collect())
}

/// The rules of Algorithm 1 that each device has, from its rules and groups.
fn told(fabric: &Fabric, dst: MacAddr) -> BTreeMap<u64, Vec<Told>> {
    let mut told: BTreeMap<_, Vec<Told>> = BTreeMap::new();
    for model in fabric.world.switches.values() {
        let groups = model.groups();
        let is_of_copies = |cookie: u64| matches!(cookie >> 32 & 0xffff, 0x8002 | 5);
        for rule in model.rules().iter().filter(|rule| is_of_copies(rule.cookie)) {
            let [Instruction::ApplyActions(actions)] = &rule.instructions[..] else { continue };
            let [Action::Group(id)] = actions[..] else { continue };
            let group = groups.iter().find(|group| group.group_id == id).unwrap();
            let in_port = rule.match_fields.iter().find_map(|field| match field {
                Oxm::InPort(port) => Some(port.0),
                _ => None,
            });
            let out = |bucket: usize| match group.buckets[bucket].actions.last() {
                Some(Action::Output { port: PortNo::IN_PORT, .. }) => in_port.unwrap(),
                Some(Action::Output { port, .. }) => port.0,
                other => panic!("{other:?}"),
            };
            let set = |bucket: usize| {
                group.buckets[bucket].actions.iter().find_map(|action| match action {
                    Action::SetField(Oxm::EthDst(mac)) => Some(mac.value),
                    _ => None,
                })
            };
            let is_one = |port| BTreeSet::from([port]);
            let of_rule = match group.buckets.len() {
                1 if set(0) == Some(dst) => Told::Recovery { to_mon_host: out(0) },
                // In transit, unchanged.
                1 if set(0).is_none() => continue,
                2 => Told::Rewrite { to_dst: is_one(out(0)), to_mon: is_one(out(1)) },
                _ => panic!("{group}"),
            };
            told.entry(model.id).or_default().push(of_rule);
        }
    }
    told
}

fn check_told(expected: &Told, told: &[Told]) {
    for told in told {
        match (expected, told) {
            (
                Told::Rewrite { to_dst, to_mon },
                Told::Rewrite { to_dst: dst_taken, to_mon: mon_taken },
            ) => assert!(dst_taken.is_subset(to_dst) && mon_taken.is_subset(to_mon), "{told:?}"),
            (expected, told) => assert_eq!(expected, told),
        }
    }
    assert!(!told.is_empty(), "{expected:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(48)))]

    /// On any fabric the rules are those of Algorithm 1, and copies arrive.
    #[test]
    fn rules_are_those_of_algorithm_1(
        parents in vec(any::<prop::sample::Index>(), 1..6),
        more in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..4),
        [dst, mon, src] in any::<[prop::sample::Index; 3]>(),
    ) {
        let count = parents.len() as u8 + 1;
        let pick = |index: &prop::sample::Index| index.index(count.into()) as u8 + 1;
        let up = |at: u8, up: &prop::sample::Index| up.index(at as usize - 1) as u8 + 1;
        let tree = (2..).zip(&parents).map(|(at, parent)| (up(at, parent), at));
        let more = more.iter().map(|(a, b)| (pick(a), pick(b))).filter(|(a, b)| a != b);
        let cables: Vec<_> = tree.chain(more).collect();
        let (dst, mon, src) = (pick(&dst), pick(&mon), pick(&src));
        let mut fabric = Fabric::new(count, &cables);
        fabric.learn();
        fabric.world.plan_and_tap(rewrite("tap", dst, &format!("{mon:#x}/2")));
        let (dst_at, mon_at) = ((u64::from(dst), 1), (u64::from(mon), 2));
        let expected = algorithm_1(&fabric.world.cables, count.into(), dst_at, mon_at);
        let told = told(&fabric, mac(dst));
        prop_assert_eq!(told.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (device, expected) in &expected {
            check_told(expected, &told[device]);
        }
        if src != dst {
            let mut ends = [dst_at, mon_at];
            ends.sort_unstable();
            prop_assert_eq!(fabric.send(src, &tcp(src, dst).bytes()), ends);
            check_ledger(&mut fabric, "tap", 1);
        }
    }
}
