//! From hosts and policies to rules: a pure function, one piece at a time.
//!
//! | table | priority | frames | what happens |
//! |---|---|---|---|
//! | 0 | 1000 | to 01:80:c2:00:00:0x, which bridges keep to a link | dropped |
//! | 0 | 110 | ARP; ICMPv6 neighbour discovery | shown to the controller; on to table 1 |
//! | 0 | 100 | from a known host, at its port, in its VLAN | on to table 1 |
//! | 0 | 0 | others: a host that is new, or moved | shown to the controller; on to table 1 |
//! | 1 | 1001 + 2 d | of a TAP's region of depth d, to a known host | to it and the monitors |
//! | 1 | 1000 + 2 d | of a TAP's region of depth d | everywhere, the monitors included |
//! | 1 | 100 | to a known host in its VLAN | to its port |
//! | 1 | 0 | others | everywhere |
//!
//! Forwarding never waits for the controller. Regions inside others have the greater depth
//! (`overlap.rs`), so each frame meets exactly one rule of its policies.

use std::sync::Arc;

use tapswitch_openflow::{Masked, Match, Oxm, PortNo, VID_PRESENT};
use tapswitch_wire::{EtherType, MacAddr, icmp, ip_proto};

use crate::group::{GroupKey, Path};
use crate::hosts::HostKey;
use crate::overlap::TapRegion;
use crate::rule::{FORWARD, FlowId, Kind, Outcome, Rule, SOURCE};

/// A rule that a switch shall have.
pub(crate) type Goal = Rule<Arc<GroupKey>>;

/// A host as far as rules go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Station {
    pub(crate) key: HostKey,
    pub(crate) port: PortNo,
    /// It stays however silent it is: copies go to it.
    pub(crate) is_monitor: bool,
}

/// The rules that every switch has.
pub(crate) fn base_rules() -> Vec<(FlowId, Goal)> {
    let rule = |table, priority, fields: Match, outcome| {
        (FlowId::new(table, priority, fields), Rule::new(Kind::Base, 0, outcome))
    };
    let reserved = Masked::with_mask(BRIDGE_GROUP, BRIDGE_GROUP_MASK);
    let arp = Match::new().with(Oxm::EthType(EtherType::ARP));
    let solicitation = neighbor_discovery(icmp::NEIGHBOR_SOLICITATION);
    let advertisement = neighbor_discovery(icmp::NEIGHBOR_ADVERTISEMENT);
    vec![
        rule(SOURCE, DROP, Match::new().with(Oxm::EthDst(reserved)), Outcome::Drop),
        rule(SOURCE, ADDRESSES, arp, Outcome::Report),
        rule(SOURCE, ADDRESSES, solicitation, Outcome::Report),
        rule(SOURCE, ADDRESSES, advertisement, Outcome::Report),
        rule(SOURCE, MISS, Match::new(), Outcome::Report),
        rule(FORWARD, MISS, Match::new(), Outcome::Flood),
    ]
}

/// The rule that knows a host at its place.
pub(crate) fn source_rule(station: Station) -> (FlowId, Goal) {
    let Station { key, port, is_monitor } = station;
    let fields = Match::new()
        .with(Oxm::InPort(port))
        .with(Oxm::EthSrc(key.mac.into()))
        .with(Oxm::VlanVid(key.vid().into()));
    let rule = Rule::new(Kind::Source, 0, Outcome::Forward);
    let idle_timeout = if is_monitor { 0 } else { IDLE_TIMEOUT };
    (FlowId::new(SOURCE, HOST, fields), Rule { idle_timeout, ..rule })
}

/// All rules of a host: its place, the way to it, and the copies of what goes there.
pub(crate) fn host_rules<'a>(
    station: Station,
    regions: impl IntoIterator<Item = &'a TapRegion>,
) -> Vec<(FlowId, Goal)> {
    let Station { key, port, .. } = station;
    let fields =
        Match::new().with(Oxm::EthDst(key.mac.into())).with(Oxm::VlanVid(key.vid().into()));
    let way = Rule::new(Kind::Destination, 0, Outcome::Output(port));
    let copies = regions.into_iter().filter(|tap| tap.region.reaches(key));
    [source_rule(station), (FlowId::new(FORWARD, HOST, fields), way)]
        .into_iter()
        .chain(copies.map(|tap| copies_rule(tap, key, port)))
        .collect()
}

/// The rule of a region for a host that it reaches.
pub(crate) fn copies_rule(tap: &TapRegion, key: HostKey, port: PortNo) -> (FlowId, Goal) {
    let id = FlowId::new(FORWARD, priority(tap) + 1, tap.region.matching_to(key));
    (id, copy_rule(Kind::TapHost, tap, Path::Port(port)))
}

/// The rule of a region for destinations that are not known.
pub(crate) fn region_rule(tap: &TapRegion) -> (FlowId, Goal) {
    let id = FlowId::new(FORWARD, priority(tap), tap.region.matching());
    (id, copy_rule(Kind::TapAnywhere, tap, Path::Flood))
}

/// Where a rule that knows a host says that it is.
pub(crate) fn read_source(id: &FlowId) -> Option<(HostKey, PortNo)> {
    match id.matching().fields.as_slice() {
        [Oxm::InPort(port), Oxm::EthSrc(mac), Oxm::VlanVid(vid)] => {
            let is_tagged = vid.value & VID_PRESENT != 0;
            let vlan = is_tagged.then_some(vid.value & !VID_PRESENT);
            let is_exact = mac.mask.is_none() && vid.mask.is_none();
            is_exact.then_some((HostKey { mac: mac.value, vlan }, *port))
        }
        _ => None,
    }
}

fn neighbor_discovery(kind: u8) -> Match {
    Match::new()
        .with(Oxm::EthType(EtherType::IPV6))
        .with(Oxm::IpProto(ip_proto::ICMPV6))
        .with(Oxm::Icmpv6Type(kind))
}

fn copy_rule(kind: Kind, tap: &TapRegion, path: Path) -> Goal {
    let group = Arc::new(GroupKey { members: tap.members.clone(), path });
    Rule::new(kind, tap.mark, Outcome::Group(group))
}

fn priority(tap: &TapRegion) -> u16 {
    TAP + 2 * tap.depth.min(MAX_DEPTH)
}

/// Seconds without a frame until a host is forgotten, as bridges do (IEEE 802.1Q-2022 §8.8.3).
pub(crate) const IDLE_TIMEOUT: u16 = 300;
const MISS: u16 = 0;
const HOST: u16 = 100;
const ADDRESSES: u16 = 110;
const DROP: u16 = 1000;
const TAP: u16 = 1000;
/// Depth that priorities can tell: more policies than [`crate::Limits`] allows would be needed.
const MAX_DEPTH: u16 = (u16::MAX - TAP - 1) / 2;
/// The sixteen addresses that a bridge must not forward (IEEE 802.1Q-2022 §8.6.3).
const BRIDGE_GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0]);
const BRIDGE_GROUP_MASK: MacAddr = MacAddr([0xff, 0xff, 0xff, 0xff, 0xff, 0xf0]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlap::{Member, PolicyId};
    use crate::region::{Family, Region};
    use tapswitch_openflow::GroupId;

    /// A rule as `ovs-ofctl` prints it, with every group numbered 1.
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
        let member = Member { policy: PolicyId(1), monitor: PortNo(3), delivery: None };
        TapRegion { region, depth, members: [member].into(), mark: 5 }
    }

    #[test]
    fn every_switch_has_these() {
        let base = "cookie=0x7470000100000000,priority";
        let reserved = "01:80:c2:00:00:00/ff:ff:ff:ff:ff:f0";
        let nd = "dl_type=0x86dd,nw_proto=58";
        let goes_on = "actions=CONTROLLER:256,goto_table:1";
        assert_eq!(
            texts(&base_rules()),
            [
                format!("add table=0,{base}=1000,dl_dst={reserved} actions=drop"),
                format!("add table=0,{base}=110,dl_type=0x0806 {goes_on}"),
                format!("add table=0,{base}=110,{nd},icmpv6_type=135 {goes_on}"),
                format!("add table=0,{base}=110,{nd},icmpv6_type=136 {goes_on}"),
                format!("add table=0,{base}=0 {goes_on}"),
                format!("add table=1,{base}=0 actions=FLOOD"),
            ]
        );
    }

    #[test]
    fn a_host_has_a_place_a_way_and_copies() {
        let tcp = Region { family: Some(Family::Ipv4), proto: Some(6), ..Region::default() };
        let rules = host_rules(station(Some(100)), &[tap(tcp, 2)]);
        assert_eq!(
            texts(&rules),
            [
                "add table=0,cookie=0x7470000200000000,idle_timeout=300,send_flow_rem,priority=100,\
                 in_port=7,dl_src=02:00:00:00:00:01,dl_vlan=100 actions=goto_table:1",
                "add table=1,cookie=0x7470000300000000,priority=100,\
                 dl_dst=02:00:00:00:00:01,dl_vlan=100 actions=output:7",
                "add table=1,cookie=0x7470800200000005,send_flow_rem,priority=1005,\
                 dl_dst=02:00:00:00:00:01,dl_type=0x0800,dl_vlan=100,nw_proto=6 actions=group:1",
            ]
        );
        assert_eq!(read_source(&rules[0].0), Some((station(Some(100)).key, PortNo(7))));
        assert_eq!(read_source(&rules[1].0), None);
    }

    #[test]
    fn hosts_that_get_copies_stay_however_silent() {
        let monitor = Station { is_monitor: true, ..station(None) };
        assert_eq!(source_rule(monitor).1.idle_timeout, 0);
        assert_eq!(source_rule(monitor).0, source_rule(station(None)).0);
    }

    #[test]
    fn copies_are_made_for_hosts_that_the_region_reaches() {
        let elsewhere = Region { dst_mac: Some(MacAddr([2, 0, 0, 0, 0, 9])), ..Region::default() };
        assert_eq!(host_rules(station(None), &[tap(elsewhere, 1)]).len(), 2);
        let anywhere = region_rule(&tap(elsewhere, 1));
        assert!(
            text(&anywhere).ends_with("priority=1002,dl_dst=02:00:00:00:00:09 actions=group:1")
        );
    }
}
