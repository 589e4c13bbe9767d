//! Translates hosts and policies to rules: pure functions, one for each part.
//!
//! | table | priority | frames | what happens |
//! |---|---|---|---|
//! | 0 | 1100 | LLDP, where links are looked for | shown to the controller |
//! | 0 | 1000 | to 01:80:c2:00:00:0x, which bridges keep to a link | dropped |
//! | 0 | 970 | from a closed port | dropped |
//! | 0 | 960 | from hosts, in VLANs or for addresses of copies, where there are links | dropped |
//! | 0 | 950 | copies of one TAP, from a link | on to the next switch, or as made to the monitor |
//! | 0 | 940 | copies of TAPs that no longer exist | dropped |
//! | 0 | 500 | from a link | on to table 2 |
//! | 0 | 110 | ARP; ICMPv6 neighbour discovery | shown to the controller; on to table 1 |
//! | 0 | 100 | from a known host, at its port, in its VLAN | on to table 1 |
//! | 0 | 0 | others: from a new or moved host | shown to the controller; on to table 1 |
//! | 1 | 1002 + 4 d | in a TAP's region of depth d, to a known host | to it and the monitors |
//! | 1 | 1000 + 4 d | in a TAP's region of depth d | flooded, the monitors included |
//! | 1 | 0 | others | on to table 2 |
//! | 2 | 1002 + 4 d | as the next row, from a link by which copies leave | to it and the monitors |
//! | 2 | 1000 + 4 d | in a TAP's region of depth d, to an own host | to it and the monitors |
//! | 2 | 100 | to a known host in its VLAN | to its port, or to its switch by one of the paths |
//! | 2 | 20 | others, from a link that is not on the spanning tree | dropped |
//! | 2 | 10 | other unicast, where not all hosts are known | shown, too; as the next row |
//! | 2 | 0 | others | flooded: to all ports, or to edges and the spanning tree |
//!
//! Each priority of a TAP has an alternate, one higher: when a region's copies go to other monitors
//! than before, the new rules are added at the other of the two, then the old ones are removed.
//!
//! Forwarding never waits for the controller. The deepest regions that contain a frame name the
//! policies that it matches (`overlap.rs`), so the one rule that it hits copies for all of them; if
//! a policy excepts the frame and no other matches it, the rule copies nothing. This happens only
//! on the switch where the frame comes in from a host; frames from a link were handled before.
//! Policies that copy at the egress apply where frames leave for their host: in table 1 to frames
//! from the switch's own hosts, in table 2 to others.

use std::collections::BTreeSet;
use std::sync::Arc;

use tapswitch_openflow::{Action, Instruction, Masked, Match, Oxm, PortNo, VID_PRESENT};
use tapswitch_wire::{EtherType, MacAddr, icmp, ip_proto};

use crate::VidRange;
use crate::exit::{Exit, Flood, Route};
use crate::fabric::NEAREST_BRIDGE;
use crate::group::{Back, Carry, GroupKey, Path};
use crate::hosts::HostKey;
use crate::overlap::{MAX_DEPTH, TapRegion};
use crate::region::{MacMask, Region};
use crate::rule::{FORWARD, FlowId, Kind, Outcome, Rule, SOURCE, TAPS};
use crate::tags;

/// A rule that a switch should have.
pub(crate) type Goal = Rule<Arc<GroupKey>>;

/// A host as far as rules need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Station {
    pub(crate) key: HostKey,
    pub(crate) port: PortNo,
    /// It never times out, as copies go to it.
    pub(crate) is_monitor: bool,
}

/// Roles of a switch's ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wiring {
    /// Whether link discovery is on.
    pub(crate) is_searched: bool,
    pub(crate) flood: Flood,
    pub(crate) edges: BTreeSet<PortNo>,
    pub(crate) links: BTreeSet<PortNo>,
    /// Links that are not on the spanning tree.
    pub(crate) shortcuts: BTreeSet<PortNo>,
    /// Ports whose role is unknown.
    pub(crate) closed: BTreeSet<PortNo>,
    /// Whether other switches may have hosts that are unknown here, so that unknown destinations
    /// are reported.
    pub(crate) asks: bool,
    /// The VLANs of copies, if there are links.
    pub(crate) copy_vids: Option<VidRange>,
    /// Whether copies may have addresses of their own.
    pub(crate) has_rewritten: bool,
}

impl Wiring {
    /// Whether floods are sent to and accepted from a port.
    pub(crate) fn lets_floods(&self, port: PortNo) -> bool {
        !self.closed.contains(&port) && !self.shortcuts.contains(&port)
    }

    /// Fields that match any copies in transit.
    fn copy_fields(&self) -> impl Iterator<Item = Oxm> {
        let addresses = self.copy_vids.filter(|_| self.has_rewritten);
        let vids = self.copy_vids.map(copy_field);
        vids.into_iter().chain(addresses.map(|_| tags::any_address()))
    }
}

/// Rules that every switch has.
pub(crate) fn base_rules(wiring: &Wiring) -> Vec<(FlowId, Goal)> {
    let rule = |table, priority, fields: Match, outcome| {
        (FlowId::new(table, priority, fields), Rule::new(Kind::Base, 0, outcome))
    };
    let reserved = Masked::with_mask(BRIDGE_GROUP, BRIDGE_GROUP_MASK);
    let arp = Match::new().with(Oxm::EthType(EtherType::ARP));
    let solicitation = neighbor_discovery(icmp::NEIGHBOR_SOLICITATION);
    let advertisement = neighbor_discovery(icmp::NEIGHBOR_ADVERTISEMENT);
    let always = [
        rule(SOURCE, DROP, Match::new().with(Oxm::EthDst(reserved)), Outcome::Drop),
        rule(SOURCE, ADDRESSES, arp, Outcome::Report),
        rule(SOURCE, ADDRESSES, solicitation, Outcome::Report),
        rule(SOURCE, ADDRESSES, advertisement, Outcome::Report),
        rule(SOURCE, MISS, Match::new(), Outcome::Report),
        rule(TAPS, MISS, Match::new(), Outcome::Forward),
        rule(FORWARD, MISS, Match::new(), Outcome::flood(&wiring.flood)),
    ];
    let search = wiring.is_searched.then(search_rule);
    let to_one = Match::new().with(Oxm::EthDst(Masked::with_mask(MacAddr::ZERO, GROUP_BIT)));
    let ask = wiring.asks.then(|| rule(FORWARD, ASK, to_one, Outcome::Ask(wiring.flood.clone())));
    search.into_iter().chain(always).chain(ask).chain(port_rules(wiring)).collect()
}

/// The rule for link discovery.
pub(crate) fn search_rule<G>() -> (FlowId, Rule<G>) {
    let fields =
        Match::new().with(Oxm::EthDst(NEAREST_BRIDGE.into())).with(Oxm::EthType(EtherType::LLDP));
    (FlowId::new(SOURCE, SEARCH, fields), Rule::new(Kind::Base, 0, Outcome::Show))
}

/// Rules for ports that differ from those of a single switch.
fn port_rules(wiring: &Wiring) -> impl Iterator<Item = (FlowId, Goal)> {
    let rule = |priority, fields, outcome| {
        (FlowId::new(SOURCE, priority, fields), Rule::new(Kind::Port, 0, outcome))
    };
    let from = |port: &PortNo| Match::new().with(Oxm::InPort(*port));
    let closed = wiring.closed.iter().map(move |port| rule(CLOSED, from(port), Outcome::Drop));
    let links = wiring.links.iter().map(move |port| rule(LINK, from(port), Outcome::Forward));
    let copies = wiring.copy_fields().flat_map(move |copies| {
        let of_host = copies.clone();
        let forged = wiring
            .edges
            .iter()
            .map(move |port| rule(FORGED, from(port).with(of_host.clone()), Outcome::Drop));
        let lost = rule(LOST, Match::new().with(copies), Outcome::Drop);
        forged.chain([lost])
    });
    let strays = wiring.shortcuts.iter().map(move |port| {
        let id = FlowId::new(FORWARD, STRAY, from(port));
        (id, Rule::new(Kind::Port, 0, Outcome::Drop))
    });
    closed.chain(links).chain(copies).chain(strays)
}

/// The rule for copies that arrive over a link.
pub(crate) fn carry_rule(carry: Carry) -> (FlowId, Goal) {
    let fields = Match::new().with(tags::field(carry.tag));
    let group = Arc::new(GroupKey { members: [].into(), path: Path::Carry(carry) });
    let rule = Rule::new(Kind::Carry, u32::from(carry.tag), Outcome::Group(group));
    (FlowId::new(SOURCE, COPY, fields), rule)
}

fn copy_field(vids: VidRange) -> Oxm {
    let (first, mask) = vids.masked();
    Oxm::VlanVid(Masked::with_mask(VID_PRESENT | first, VID_PRESENT | mask))
}

/// The rule that recognises a host at its port.
pub(crate) fn source_rule(station: Station) -> (FlowId, Goal) {
    let Station { key, port, is_monitor } = station;
    let place = [Oxm::InPort(port), Oxm::EthSrc(key.mac.into())];
    let fields = place.into_iter().chain(key.vid_field()).collect();
    let rule = Rule::new(Kind::Source, 0, Outcome::Admit);
    let idle_timeout = if is_monitor { 0 } else { IDLE_TIMEOUT };
    (FlowId::new(SOURCE, HOST, fields), Rule { idle_timeout, ..rule })
}

/// Rules for a route to a host: forwarding, and the copies of frames to it.
pub(crate) fn way_rules<'a>(
    (key, route): (HostKey, Route),
    regions: impl IntoIterator<Item = &'a TapRegion>,
) -> Vec<(FlowId, Goal)> {
    let fields = [Oxm::EthDst(key.mac.into())].into_iter().chain(key.vid_field()).collect();
    let out = match &route.fork {
        Some(fork) => Outcome::Group(Arc::new(GroupKey::forking(fork.clone()))),
        None => Outcome::Output(route.exit.port),
    };
    let way = Rule::new(Kind::Destination, 0, out);
    let copies = regions.into_iter().filter(|tap| tap.region.reaches(key));
    [(FlowId::new(FORWARD, HOST, fields), way)]
        .into_iter()
        .chain(copies.map(|tap| copies_rule(tap, key, route.clone())))
        .collect()
}

/// The rule of a region for a host within its reach.
pub(crate) fn copies_rule(tap: &TapRegion, key: HostKey, route: Route) -> (FlowId, Goal) {
    (copies_id(tap, key), copy_rule(Kind::TapHost, tap, Path::To(route)))
}

/// As [`copies_rule`], for many hosts: those with the same route share a group.
pub(crate) fn copies_rules(
    tap: &TapRegion,
    hosts: Vec<(HostKey, Route)>,
) -> impl Iterator<Item = (FlowId, Goal)> {
    let mut known: Vec<(Route, Goal)> = Vec::new();
    hosts.into_iter().map(move |(key, route)| {
        if let Some((_, goal)) = known.iter().find(|(other, _)| *other == route) {
            return (copies_id(tap, key), goal.clone());
        }
        let (id, goal) = copies_rule(tap, key, route.clone());
        if known.len() < MAX_KNOWN {
            known.push((route, goal.clone()));
        }
        (id, goal)
    })
}

fn copies_id(tap: &TapRegion, key: HostKey) -> FlowId {
    FlowId::new(TAPS, priority(tap) + TO_HOST, tap.region.matching_to(key))
}

/// Rules of a region for frames that leave for a host of this switch, wherever they came from.
pub(crate) fn arrival_rules(tap: &TapRegion, key: HostKey, to: Exit) -> Vec<(FlowId, Goal)> {
    let matching = tap.region.matching_to(key);
    let rule = |priority, matching: Match, path| {
        let rule = copy_rule(Kind::TapHost, tap, path);
        let is_way = rule.outcome == Outcome::Forward;
        let outcome = if is_way { Outcome::Output(to.port) } else { rule.outcome };
        (FlowId::new(FORWARD, priority, matching), Rule { outcome, ..rule })
    };
    let back = tap.ways_out().into_iter().map(|from| {
        let matching = matching.clone().with(Oxm::InPort(from));
        rule(priority(tap) + TO_HOST, matching, Path::Back(Back { to, from }))
    });
    let any = rule(priority(tap), matching.clone(), Path::To(to.into()));
    back.chain([any]).collect()
}

/// The rule of a region for flooded frames.
pub(crate) fn region_rule(tap: &TapRegion, flood: &Flood) -> (FlowId, Goal) {
    let id = FlowId::new(TAPS, priority(tap), tap.region.matching());
    (id, copy_rule(Kind::TapAnywhere, tap, Path::Flood(flood.clone())))
}

/// Rules of a region for unknown destinations. If other switches may know them, flooding does not
/// serve the monitors: they get copies.
pub(crate) fn region_rules(tap: &TapRegion, wiring: &Wiring) -> Vec<(FlowId, Goal)> {
    let flood = &wiring.flood;
    if !wiring.asks {
        return vec![region_rule(tap, flood)];
    }
    let to_groups = for_groups(&tap.region).map(|region| {
        let id = FlowId::new(TAPS, priority(tap) + TO_HOST, region.matching());
        (id, copy_rule(Kind::TapAnywhere, tap, Path::Flood(flood.clone())))
    });
    let to_one = has_others(&tap.region).then(|| {
        let id = FlowId::new(TAPS, priority(tap), tap.region.matching());
        (id, copy_rule(Kind::TapAnywhere, tap, Path::Ask(flood.clone())))
    });
    to_groups.into_iter().chain(to_one).collect()
}

/// Number of these rules.
pub(crate) fn region_rule_count(region: &Region, wiring: &Wiring) -> usize {
    match wiring.asks {
        true => usize::from(for_groups(region).is_some()) + usize::from(has_others(region)),
        false => 1,
    }
}

/// The group-addressed frames of a region.
fn for_groups(region: &Region) -> Option<Region> {
    region.intersect(&Region { dst_mac: Some(MacMask::GROUPS), ..Region::default() })
}

/// Whether the region has frames to single hosts.
fn has_others(region: &Region) -> bool {
    !region.dst_mac.is_some_and(MacMask::is_of_groups)
}

/// Host and port of a rule that recognises a host.
pub(crate) fn read_source(id: &FlowId) -> Option<(HostKey, PortNo)> {
    match id.matching().fields.as_slice() {
        [Oxm::InPort(port), Oxm::EthSrc(mac), Oxm::VlanVid(vid)] => {
            Some((read_host(mac, vid)?, *port))
        }
        _ => None,
    }
}

/// The host of a rule that forwards to one.
pub(crate) fn read_way(id: &FlowId) -> Option<HostKey> {
    match id.matching().fields.as_slice() {
        [Oxm::EthDst(mac), Oxm::VlanVid(vid)] => read_host(mac, vid),
        _ => None,
    }
}

/// The single host that these fields match.
fn read_host(mac: &Masked<MacAddr>, vid: &Masked<u16>) -> Option<HostKey> {
    let is_tagged = vid.value & VID_PRESENT != 0;
    let key = HostKey::new(mac.value, is_tagged.then_some(vid.value & !VID_PRESENT));
    let is_exact = mac.mask.is_none() && key.vid_field() == Some(Oxm::VlanVid(*vid));
    is_exact.then_some(key)
}

/// The port of a rule for a link.
pub(crate) fn read_link(id: &FlowId) -> Option<PortNo> {
    match id.matching().fields.as_slice() {
        [Oxm::InPort(port)] if id.priority == LINK => Some(*port),
        _ => None,
    }
}

/// Whether floods are sent to or accepted from a port under these rules.
pub(crate) fn read_flooding(rules: &[(FlowId, &[Instruction])]) -> impl Fn(PortNo) -> bool {
    let flooding = || rules.iter().filter(|(id, _)| is_flooding(id));
    let actions = flooding().flat_map(|(_, does)| does.iter()).flat_map(|does| match does {
        Instruction::ApplyActions(actions) => actions.as_slice(),
        _ => &[],
    });
    let outputs = actions.filter_map(|action| match action {
        Action::Output { port, .. } => Some(*port),
        _ => None,
    });
    let outputs: BTreeSet<_> = outputs.collect();
    let shut: BTreeSet<_> = rules.iter().filter_map(|(id, _)| read_shut(id)).collect();
    let floods = flooding().next().is_some();
    move |port| floods && (outputs.contains(&port) || !shut.contains(&port))
}

/// Whether the flood ports depend on a rule: in general, or for this port.
pub(crate) fn is_about_floods(id: &FlowId, port: PortNo) -> bool {
    is_flooding(id) || read_shut(id) == Some(port)
}

fn is_flooding(id: &FlowId) -> bool {
    id.table == FORWARD && matches!(id.priority, MISS | ASK)
}

/// The port of a rule that blocks floods from it.
fn read_shut(id: &FlowId) -> Option<PortNo> {
    let is_shut = matches!((id.table, id.priority), (SOURCE, CLOSED) | (FORWARD, STRAY));
    match id.matching().fields.as_slice() {
        [Oxm::InPort(port)] if is_shut => Some(*port),
        _ => None,
    }
}

/// The port of a rule that marks it as not an edge.
pub(crate) fn read_cable(id: &FlowId) -> Option<PortNo> {
    read_link(id).or_else(|| read_shut(id))
}

fn neighbor_discovery(kind: u8) -> Match {
    Match::new()
        .with(Oxm::EthType(EtherType::IPV6))
        .with(Oxm::IpProto(ip_proto::ICMPV6))
        .with(Oxm::Icmpv6Type(kind))
}

fn copy_rule(kind: Kind, tap: &TapRegion, path: Path) -> Goal {
    if tap.members.is_empty() {
        // Frames excepted from a policy that no other copies: counted for none.
        return Rule::new(Kind::Base, 0, Outcome::Forward);
    }
    let group = Arc::new(GroupKey { members: tap.members.clone(), path });
    Rule::new(kind, tap.mark, Outcome::Group(group))
}

fn priority(tap: &TapRegion) -> u16 {
    TAP + 4 * tap.depth.min(MAX_DEPTH) + u16::from(tap.is_turned)
}

/// Routes whose groups are kept for sharing. Beyond that most routes lead to one host each.
const MAX_KNOWN: usize = 16;
/// Seconds without a frame until a host is forgotten, as for bridges (IEEE 802.1Q-2022 §8.8.3).
pub(crate) const IDLE_TIMEOUT: u16 = 300;
const MISS: u16 = 0;
const ASK: u16 = 10;
const STRAY: u16 = 20;
const HOST: u16 = 100;
const ADDRESSES: u16 = 110;
const LINK: u16 = 500;
const LOST: u16 = 940;
const COPY: u16 = 950;
const FORGED: u16 = 960;
const CLOSED: u16 = 970;
const DROP: u16 = 1000;
const SEARCH: u16 = 1100;
const TAP: u16 = 1000;
/// Rules for a host rank above all others of their depth, toggled or not.
const TO_HOST: u16 = 2;
// Priorities suffice for all depths.
const _: () = assert!(MAX_DEPTH <= (u16::MAX - TAP - TO_HOST - 1) / 4);
/// Group bit of a MAC address (IEEE 802-2014 §8.2.2).
const GROUP_BIT: MacAddr = MacAddr([1, 0, 0, 0, 0, 0]);
/// The sixteen addresses that bridges must not forward (IEEE 802.1Q-2022 §8.6.3).
const BRIDGE_GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0]);
const BRIDGE_GROUP_MASK: MacAddr = MacAddr([0xff, 0xff, 0xff, 0xff, 0xff, 0xf0]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::family::Family;
    use crate::overlap::{Aim, Member, PolicyId, Slot};
    use crate::policy::Part;
    use tapswitch_openflow::GroupId;

    /// A rule as printed by `ovs-ofctl`, with every group numbered 1.
    fn text((id, rule): &(FlowId, Goal)) -> String {
        rule.map_group(|_| GroupId(1)).add(id).to_string()
    }

    fn texts(rules: &[(FlowId, Goal)]) -> Vec<String> {
        rules.iter().map(text).collect()
    }

    fn station(vlan: Option<u16>) -> Station {
        let key = HostKey { mac: MacAddr([2, 0, 0, 0, 0, 1]), vlan };
        Station { key, port: PortNo(7), is_monitor: false }
    }

    fn tap(region: Region, depth: u16) -> TapRegion {
        let exit = Exit::here(PortNo(3));
        let aim = Aim { slot: Slot::only(0), exit, tag: 0, is_sink: false };
        let member = Member { policy: PolicyId(1), aim, delivery: None, part: Part::default() };
        TapRegion {
            region,
            depth,
            members: [member].into(),
            excepted: [].into(),
            mark: 5,
            is_turned: false,
            copies: None,
        }
    }

    #[test]
    fn every_switch_has_these() {
        let base = "cookie=0x7470000100000000,priority";
        let reserved = "01:80:c2:00:00:00/ff:ff:ff:ff:ff:f0";
        let nd = "dl_type=0x86dd,nw_proto=58";
        let goes_on = "actions=CONTROLLER:256,goto_table:1";
        assert_eq!(
            texts(&base_rules(&Wiring::default())),
            [
                format!("add table=0,{base}=1000,dl_dst={reserved} actions=drop"),
                format!("add table=0,{base}=110,dl_type=0x0806 {goes_on}"),
                format!("add table=0,{base}=110,{nd},icmpv6_type=135 {goes_on}"),
                format!("add table=0,{base}=110,{nd},icmpv6_type=136 {goes_on}"),
                format!("add table=0,{base}=0 {goes_on}"),
                format!("add table=1,{base}=0 actions=goto_table:2"),
                format!("add table=2,{base}=0 actions=FLOOD"),
            ]
        );
    }

    #[test]
    fn a_switch_with_links_has_these_too() {
        let wiring = Wiring {
            is_searched: true,
            flood: Flood::Ports([PortNo(1), PortNo(3)].into()),
            edges: [PortNo(1)].into(),
            links: [PortNo(3), PortNo(4)].into(),
            shortcuts: [PortNo(4)].into(),
            closed: [PortNo(5)].into(),
            asks: true,
            copy_vids: Some(VidRange::default()),
            has_rewritten: true,
        };
        let alone = texts(&base_rules(&Wiring::default()));
        let mut rules = texts(&base_rules(&wiring));
        rules.retain(|rule| !alone.contains(rule));
        let (base, port) = ("cookie=0x7470000100000000", "cookie=0x7470000400000000");
        let copies = "vlan_vid=0x1c00/0x1c00";
        let given = "dl_dst=72:74:70:00:00:00/ff:ff:ff:ff:00:00";
        assert_eq!(
            rules,
            [
                format!(
                    "add table=0,{base},priority=1100,dl_dst=01:80:c2:00:00:0e,dl_type=0x88cc \
                     actions=CONTROLLER:256"
                ),
                format!("add table=2,{base},priority=0 actions=output:1,output:3"),
                format!(
                    "add table=2,{base},priority=10,dl_dst=00:00:00:00:00:00/01:00:00:00:00:00 \
                     actions=CONTROLLER:256,output:1,output:3"
                ),
                format!("add table=0,{port},priority=970,in_port=5 actions=drop"),
                format!("add table=0,{port},priority=500,in_port=3 actions=goto_table:2"),
                format!("add table=0,{port},priority=500,in_port=4 actions=goto_table:2"),
                format!("add table=0,{port},priority=960,in_port=1,{copies} actions=drop"),
                format!("add table=0,{port},priority=940,{copies} actions=drop"),
                format!("add table=0,{port},priority=960,in_port=1,{given} actions=drop"),
                format!("add table=0,{port},priority=940,{given} actions=drop"),
                format!("add table=2,{port},priority=20,in_port=4 actions=drop"),
            ]
        );
        let carry =
            Carry { tag: 3072, exit: Exit::here(PortNo(1)), rewritten: None, delivery: None };
        assert_eq!(
            text(&carry_rule(carry)),
            "add table=0,cookie=0x7470000500000c00,priority=950,dl_vlan=3072 actions=group:1"
        );
    }

    #[test]
    fn a_host_has_a_place_a_way_and_copies() {
        let tcp = Region { family: Some(Family::Ipv4), proto: Some(6), ..Region::default() };
        let (key, route): (_, Route) = (station(Some(100)).key, Exit::here(PortNo(7)).into());
        let mut rules = vec![source_rule(station(Some(100)))];
        rules.extend(way_rules((key, route), &[tap(tcp, 2)]));
        assert_eq!(
            texts(&rules),
            [
                "add table=0,cookie=0x7470000200000000,idle_timeout=300,send_flow_rem,priority=100,\
                 in_port=7,dl_src=02:00:00:00:00:01,dl_vlan=100 actions=goto_table:1",
                "add table=2,cookie=0x7470000300000000,priority=100,\
                 dl_dst=02:00:00:00:00:01,dl_vlan=100 actions=output:7",
                "add table=1,cookie=0x7470800200000005,send_flow_rem,priority=1010,\
                 dl_dst=02:00:00:00:00:01,dl_type=0x0800,dl_vlan=100,nw_proto=6 actions=group:1",
            ]
        );
        assert_eq!(read_source(&rules[0].0), Some((key, PortNo(7))));
        assert_eq!(read_source(&rules[1].0), None);
    }

    #[test]
    fn several_ways_are_a_group() {
        let place =
            crate::place::Place { switch: tapswitch_openflow::DatapathId(9), port: PortNo(1) };
        let fork = crate::exit::Fork {
            kind: crate::exit::ForkKind::Balance,
            ports: [PortNo(7), PortNo(8)].into(),
        };
        let exit = Exit { port: PortNo(7), beyond: Some(place), spread: None };
        let route = Route { exit, fork: Some(fork) };
        assert_eq!(
            texts(&way_rules((station(None).key, route), [])),
            ["add table=2,cookie=0x7470000300000000,priority=100,\
              dl_dst=02:00:00:00:00:01,vlan_vid=0x0/0xfff actions=group:1"]
        );
    }

    #[test]
    fn hosts_that_get_copies_stay_however_silent() {
        let monitor = Station { is_monitor: true, ..station(None) };
        assert_eq!(source_rule(monitor).1.idle_timeout, 0);
        assert_eq!(source_rule(monitor).0, source_rule(station(None)).0);
    }

    #[test]
    fn copies_are_made_for_hosts_that_the_region_reaches() {
        let elsewhere =
            Region { dst_mac: Some(MacAddr([2, 0, 0, 0, 0, 9]).into()), ..Region::default() };
        let way = (station(None).key, Exit::here(PortNo(7)).into());
        assert_eq!(way_rules(way, &[tap(elsewhere, 1)]).len(), 1);
        let anywhere = region_rule(&tap(elsewhere, 1), &Flood::All);
        assert!(
            text(&anywhere).ends_with("priority=1004,dl_dst=02:00:00:00:00:09 actions=group:1")
        );
    }

    #[test]
    fn the_rules_of_a_region_are_counted_as_they_are_made() {
        let to = |mac: MacMask| Region { dst_mac: Some(mac), ..Region::default() };
        let one = to(MacAddr([2, 0, 0, 0, 0, 9]).into());
        let regions = [Region::default(), one, to(MacMask::GROUPS), to(MacAddr::BROADCAST.into())];
        for (asks, counts) in [(false, [1, 1, 1, 1]), (true, [2, 1, 1, 1])] {
            let wiring = Wiring { asks, ..Wiring::default() };
            for (region, count) in regions.into_iter().zip(counts) {
                assert_eq!(region_rules(&tap(region, 1), &wiring).len(), count);
                assert_eq!(region_rule_count(&region, &wiring), count, "{region:?}");
            }
        }
    }

    #[test]
    fn what_nobody_copies_is_forwarded_as_ever() {
        let except = TapRegion { members: [].into(), ..tap(Region::default(), 2) };
        let to = copies_rule(&except, station(None).key, Exit::here(PortNo(7)).into());
        assert_eq!(
            texts(&[to, region_rule(&except, &Flood::All)]),
            [
                "add table=1,cookie=0x7470000100000000,priority=1010,\
                 dl_dst=02:00:00:00:00:01,vlan_vid=0x0/0xfff actions=goto_table:2",
                "add table=1,cookie=0x7470000100000000,priority=1008 actions=goto_table:2",
            ]
        );
    }
}
