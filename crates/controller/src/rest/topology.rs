//! Switches and links, aggregated to groups if there are too many to view.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tapswitch_control::{LinkReport, MonitorPort, PolicyReport, PortLoad, SwitchReport};

use super::Api;
use super::error::Refusal;
use super::lists::Asked;
use crate::hub::Loads;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopologyQuery {
    max_nodes: Option<usize>,
}

/// The topology.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Topology {
    /// Changes whenever the content does.
    generation: u64,
    switches: Vec<Node>,
    links: Vec<Link>,
    /// Whether nodes are groups instead of switches.
    is_aggregated: bool,
    groups: Vec<Group>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
struct Node {
    switch: String,
    is_connected: bool,
    /// Whether it does not report its counters.
    is_silent: bool,
    ports: usize,
    hosts: usize,
    /// Number of monitors of policies.
    monitors: usize,
}

/// A link; between groups, all links between the two.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
struct Link {
    a: End,
    b: End,
    is_up: bool,
    /// Milliseconds for which it is held after flapping.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_ms: Option<u64>,
    is_tree: bool,
    latency_ns: Option<u64>,
    /// Between groups, the sum. `None` until counters of its ports have been read twice.
    a_to_b_bits_per_second: Option<u64>,
    b_to_a_bits_per_second: Option<u64>,
    /// Both directions.
    bits_per_second: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
struct End {
    /// A switch, or the id of a group.
    switch: String,
    port: Option<u32>,
    port_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
struct Group {
    id: String,
    switches: usize,
    hosts: usize,
    /// Whether all of them are.
    is_connected: bool,
    /// Whether one of them is.
    is_silent: bool,
    members: Vec<String>,
}

pub(super) async fn topology(
    State(api): State<Api>,
    Asked(query): Asked<TopologyQuery>,
) -> Result<Json<Topology>, Refusal> {
    if query.max_nodes == Some(0) {
        return Err(Refusal::malformed("max_nodes: expected at least 1").about("max_nodes"));
    }
    let switches = api.handle.switches().await?;
    let links = api.handle.links().await?;
    let policies = api.handle.known_policies().await?;
    let loads = api.loads().await?;
    let whole = Topology::whole(&switches, (&links, &loads), &policies);
    Ok(Json(match query.max_nodes {
        Some(max) if max < whole.switches.len() => whole.joined(max),
        _ => whole,
    }))
}

impl Topology {
    fn whole(
        switches: &[SwitchReport],
        (links, loads): (&[LinkReport], &Loads),
        policies: &[PolicyReport],
    ) -> Self {
        let monitors = policies.iter().flat_map(|report| &report.monitors);
        let monitors: BTreeSet<_> = monitors.map(|port| (port.switch, port.port)).collect();
        let switches = switches.iter().map(|report| Node {
            switch: format!("{:#x}", report.switch.0),
            is_connected: report.is_connected,
            is_silent: report.is_silent,
            ports: report.ports.len(),
            hosts: report.hosts,
            monitors: monitors.iter().filter(|(switch, _)| *switch == report.switch).count(),
        });
        let links = links.iter().map(|report| Link::of(report, loads));
        Self::new(switches.collect(), links.collect(), Vec::new())
    }

    fn new(switches: Vec<Node>, links: Vec<Link>, groups: Vec<Group>) -> Self {
        let mut hasher = DefaultHasher::new();
        let shape = |link: &Link| (link.a.clone(), link.b.clone(), link.is_up, link.is_tree);
        let shapes: Vec<_> = links.iter().map(shape).collect();
        (&switches, shapes, &groups).hash(&mut hasher);
        // As many bits as a JavaScript number represents exactly.
        let generation = hasher.finish() >> 11;
        Self { generation, switches, links, is_aggregated: !groups.is_empty(), groups }
    }

    /// Aggregates to at most `max` groups of adjacent switches.
    fn joined(self, max: usize) -> Self {
        let index: BTreeMap<_, _> =
            self.switches.iter().enumerate().map(|(at, node)| (node.switch.as_str(), at)).collect();
        let pairs = self.links.iter().filter_map(|link| {
            Some((*index.get(link.a.switch.as_str())?, *index.get(link.b.switch.as_str())?))
        });
        let homes = join(self.switches.len(), &pairs.collect::<Vec<_>>(), max);
        let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
        for (node, home) in self.switches.iter().zip(&homes) {
            groups.entry(*home).or_insert_with(|| Group::around(node)).take(node);
        }
        let id = |switch: &str| {
            index.get(switch).and_then(|at| homes.get(*at)).and_then(|home| groups.get(home))
        };
        let mut between: BTreeMap<(String, String), Link> = BTreeMap::new();
        for link in &self.links {
            let (Some(a), Some(b)) = (id(&link.a.switch), id(&link.b.switch)) else { continue };
            let is_turned = a.id > b.id;
            let (a, b) = if is_turned { (&b.id, &a.id) } else { (&a.id, &b.id) };
            if a != b {
                let key = (a.clone(), b.clone());
                between.entry(key).or_insert_with(|| Link::between(a, b)).take(link, is_turned);
            }
        }
        let links = between.into_values().collect();
        Self::new(Vec::new(), links, groups.into_values().collect())
    }
}

impl Link {
    fn of(report: &LinkReport, loads: &Loads) -> Self {
        let load = |port: &MonitorPort| loads.get(&(port.switch, port.port));
        let (a, b) = (load(&report.a), load(&report.b));
        // Sent at one end; if unknown, received at the other.
        let rate = |from: Option<&PortLoad>, to: Option<&PortLoad>| {
            let bytes = from.map(|load| load.tx).or(to.map(|load| load.rx))?;
            Some(bytes.saturating_mul(8))
        };
        let (there, back) = (rate(a, b), rate(b, a));
        Self {
            a: End::of(&report.a),
            b: End::of(&report.b),
            is_up: report.is_sure && report.held_ms.is_none(),
            held_ms: report.held_ms,
            is_tree: report.is_tree,
            latency_ns: (report.latency_ns > 0).then_some(report.latency_ns),
            a_to_b_bits_per_second: there,
            b_to_a_bits_per_second: back,
            bits_per_second: sum(there, back),
        }
    }

    fn between(a: &str, b: &str) -> Self {
        let end = |id: &str| End { switch: id.to_owned(), port: None, port_name: String::new() };
        let (a, b) = (end(a), end(b));
        Self {
            a,
            b,
            is_up: false,
            held_ms: None,
            is_tree: false,
            latency_ns: None,
            a_to_b_bits_per_second: None,
            b_to_a_bits_per_second: None,
            bits_per_second: None,
        }
    }

    /// Adds a link between two groups.
    fn take(&mut self, link: &Self, is_turned: bool) {
        let (there, back) = (link.a_to_b_bits_per_second, link.b_to_a_bits_per_second);
        let (there, back) = if is_turned { (back, there) } else { (there, back) };
        self.a_to_b_bits_per_second = sum(self.a_to_b_bits_per_second, there);
        self.b_to_a_bits_per_second = sum(self.b_to_a_bits_per_second, back);
        self.bits_per_second = sum(self.bits_per_second, link.bits_per_second);
        self.is_up |= link.is_up;
        self.is_tree |= link.is_tree;
    }
}

impl End {
    fn of(port: &MonitorPort) -> Self {
        let MonitorPort { switch, port, name } = port;
        Self { switch: format!("{:#x}", switch.0), port: Some(*port), port_name: name.clone() }
    }
}

impl Group {
    fn around(node: &Node) -> Self {
        let id = format!("around {}", node.switch);
        let members = Vec::new();
        Self { id, switches: 0, hosts: 0, is_connected: true, is_silent: false, members }
    }

    fn take(&mut self, node: &Node) {
        self.switches += 1;
        self.hosts += node.hosts;
        self.is_connected &= node.is_connected;
        self.is_silent |= node.is_silent;
        self.members.push(node.switch.clone());
    }
}

/// Sum of the known values.
fn sum(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    }
}

/// Assigns each of `count` nodes to a group, by an index below `count`. The smallest group is
/// merged with its smallest neighbour until there are at most `max`: so groups are connected where
/// the nodes are, and of similar size.
fn join(count: usize, links: &[(usize, usize)], max: usize) -> Vec<usize> {
    let mut members: BTreeMap<usize, Vec<usize>> = (0..count).map(|at| (at, vec![at])).collect();
    let mut near = vec![BTreeSet::new(); count];
    for &(a, b) in links {
        near[a].insert(b);
        near[b].insert(a);
    }
    let mut by_size: BTreeSet<_> = (0..count).map(|at| (1, at)).collect();
    while members.len() > max.max(1) {
        let Some((size, small)) = by_size.pop_first() else { break };
        near[small].remove(&small);
        let sized = |at: &usize| members.get(at).map(|group| (group.len(), *at));
        let neighbour = near[small].iter().filter_map(sized).min();
        // Without links it joins the smallest other group.
        let Some((other_size, other)) = neighbour.or_else(|| by_size.first().copied()) else {
            break;
        };
        by_size.remove(&(other_size, other));
        by_size.insert((size + other_size, other));
        let moved = members.remove(&small).unwrap_or_default();
        members.entry(other).or_default().extend(moved);
        for at in std::mem::take(&mut near[small]) {
            near[at].remove(&small);
            if at != other {
                near[at].insert(other);
                near[other].insert(at);
            }
        }
    }
    let mut homes = vec![0; count];
    for (home, members) in members {
        members.into_iter().for_each(|at| homes[at] = home);
    }
    homes
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_control::{Counts, PolicyState, PortReport, PortRole, TapPolicy};
    use tapswitch_openflow::DatapathId;

    #[test]
    fn a_line_becomes_groups_of_neighbours() {
        let links: Vec<_> = (1..12).map(|at| (at - 1, at)).collect();
        for max in 1..12 {
            let homes = join(12, &links, max);
            let distinct: BTreeSet<_> = homes.iter().collect();
            assert_eq!(distinct.len(), max);
            let breaks = homes.windows(2).filter(|pair| pair[0] != pair[1]).count();
            assert_eq!(breaks + 1, max, "each group is one stretch of the line: {homes:?}");
        }
    }

    #[test]
    fn what_has_no_links_is_joined_too() {
        let homes = join(9, &[], 2);
        let distinct: BTreeSet<_> = homes.iter().collect();
        assert_eq!(distinct.len(), 2);
        assert!(join(0, &[], 3).is_empty());
    }

    #[test]
    fn a_silent_switch_is_told_with_its_group() {
        let mut switches: Vec<_> = (1..=4).map(switch).collect();
        switches[2].is_silent = true;
        let whole = || Topology::whole(&switches, (&[link(1, 2), link(3, 4)], &Loads::new()), &[]);
        let silent: Vec<_> = whole().switches.iter().map(|node| node.is_silent).collect();
        assert_eq!(silent, [false, false, true, false]);
        let silent: Vec<_> = whole().joined(2).groups.iter().map(|one| one.is_silent).collect();
        assert_eq!(silent, [false, true]);
    }

    #[test]
    fn groups_have_what_their_switches_have() {
        let switches: Vec<_> = (1..=4).map(switch).collect();
        let links = [link(1, 2), link(2, 3), link(3, 4)];
        let loads = [((DatapathId(2), 1), PortLoad { rx: 1, tx: 1000 })].into();
        let whole = Topology::whole(&switches, (&links, &loads), &[policy()]);
        assert_eq!((whole.switches[3].monitors, whole.links.len()), (1, 3));
        let loaded = whole.links.iter().map(|link| link.bits_per_second).collect::<Vec<_>>();
        assert_eq!(loaded, [Some(8008), Some(8008), None], "one port of theirs told its counters");
        let joined = Topology::whole(&switches, (&links, &loads), &[policy()]).joined(2);
        assert!(joined.is_aggregated && joined.switches.is_empty());
        assert_ne!(joined.generation, whole.generation);
        let told: Vec<_> =
            joined.groups.iter().map(|group| (group.switches, group.hosts)).collect();
        assert_eq!(told.iter().map(|(switches, _)| switches).sum::<usize>(), 4);
        assert_eq!(told.iter().map(|(_, hosts)| hosts).sum::<usize>(), 1 + 2 + 3 + 4);
        assert_eq!(joined.links.len(), 1);
        let ids: Vec<_> = joined.groups.iter().map(|group| &group.id).collect();
        assert!(ids.contains(&&joined.links[0].a.switch));
    }

    fn switch(id: u64) -> SwitchReport {
        let port = PortReport {
            port: "1".to_owned(),
            name: String::new(),
            is_up: true,
            role: PortRole::Edge,
        };
        SwitchReport {
            switch: DatapathId(id),
            is_connected: true,
            is_silent: false,
            through: None,
            ports: vec![port],
            hosts: usize::try_from(id).unwrap(),
            hosts_refused: 0,
            address_conflicts: 0,
            lldp_forged: 0,
            lldp_late: 0,
            lldp_foreign: 0,
            rules: 0,
            groups: 0,
            refusals: 0,
            drifted: 0,
        }
    }

    fn end(id: u64) -> MonitorPort {
        MonitorPort { switch: DatapathId(id), port: 1, name: String::new() }
    }

    fn link(a: u64, b: u64) -> LinkReport {
        LinkReport {
            a: end(a),
            b: end(b),
            latency_ns: 7,
            is_tree: true,
            is_sure: true,
            held_ms: None,
        }
    }

    fn policy() -> PolicyReport {
        PolicyReport {
            number: 1,
            policy: TapPolicy::new("p", "0x4/1".parse().unwrap()),
            state: PolicyState::Active,
            monitor: Some(end(4)),
            monitors: vec![end(4)],
            matched: Counts::ZERO,
            copied: Vec::new(),
            adds_up: true,
            is_complete: true,
            notes: Vec::new(),
        }
    }
}
