//! Routes between switches: the choice among equally short paths, and failover by the switches
//! themselves.
//!
//! Frames to hosts use all equally short paths: each switch chooses one by the flow. Where there is
//! only one next hop, a **detour** may replace it while its link is down: a neighbour whose own
//! shortest path does not lead back (RFC 5286 §3.1, inequality 1). A neighbour nearer to the
//! destination than this switch (inequality 3) is preferred: such detours form no loop however many
//! links are down. Every switch drops frames that would leave by their ingress port, so two detours
//! of the other sort form no loop either; three or more may, until the controller reroutes.
//!
//! Copies use a single path, which the controller reroutes: this keeps all copies of a policy in
//! order and counts them on one path.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tapswitch_openflow::{DatapathId, PortNo};

use crate::exit::{Exit, Fork, ForkKind, Route};
use crate::fabric::{Graph, Shortest};
use crate::place::Place;

/// Routes between all linked switches.
///
/// A thousand switches are a million pairs: the tables are indexed by the numbers of both ends, and
/// equal sets of ports are stored once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    graph: Graph,
    /// Switches by number.
    switches: Vec<DatapathId>,
    sets: PortSets,
    /// Ports on a shortest path.
    ways: Vec<SetId>,
    /// The only port on a shortest path, and that of its detour.
    detours: Vec<SetId>,
}

impl Routes {
    /// Computes the routes for these links.
    pub(crate) fn new(graph: Graph) -> Self {
        let shortest = Shortest::new(&graph);
        let switches = shortest.switches().to_vec();
        let costs: Vec<_> = (0..switches.len()).map(|to| shortest.costs_to(to)).collect();
        let (mut sets, mut ports) = (PortSets::default(), Vec::new());
        let detours_of = Detours { graph: &shortest, costs: &costs };
        let (mut ways, mut detours) = (Vec::new(), Vec::new());
        // Most routes of a switch use the same ports.
        let mut last = vec![NONE; switches.len()];
        for cost in &costs {
            for (from, last) in last.iter_mut().enumerate() {
                shortest.nearest(from, cost, &mut ports);
                if sets.get(*last).is_none_or(|last| **last != *ports) {
                    *last = sets.id(&ports);
                }
                ways.push(*last);
                let detour = match ports[..] {
                    [nearest] => detours_of.best(from, nearest, cost).map(|port| [nearest, port]),
                    _ => None,
                };
                detours.push(detour.map_or(NONE, |ports| sets.id(&ports)));
            }
        }
        Self { graph, switches, sets, ways, detours }
    }

    /// Ports on a shortest path from one switch to another.
    fn nearest(&self, from: DatapathId, to: DatapathId) -> Option<&Arc<[PortNo]>> {
        self.sets.get(*self.ways.get(self.index(from, to)?)?)
    }

    /// The only port on a shortest path, and that of its detour.
    fn detour(&self, from: DatapathId, to: DatapathId) -> Option<&Arc<[PortNo]>> {
        self.sets.get(*self.detours.get(self.index(from, to)?)?)
    }

    fn index(&self, from: DatapathId, to: DatapathId) -> Option<usize> {
        Some(self.number(to)? * self.switches.len() + self.number(from)?)
    }

    fn number(&self, switch: DatapathId) -> Option<usize> {
        self.switches.binary_search(&switch).ok()
    }

    /// The differences to earlier routes.
    pub(crate) fn changes(&self, before: &Self) -> Changes<'_> {
        let is_comparable = self.switches == before.switches;
        let changed = (0..self.ways.len()).filter(|index| {
            let (now, then) = (self.sets_at(*index), before.sets_at(*index));
            now != then
        });
        let changed = if is_comparable { changed.collect() } else { Vec::new() };
        Changes { routes: self, changed: is_comparable.then_some(changed) }
    }

    fn sets_at(&self, index: usize) -> [Option<&Arc<[PortNo]>>; 2] {
        [&self.ways, &self.detours].map(|table| self.sets.get(*table.get(index)?))
    }

    /// Route from a switch to a host's port on this or another switch.
    pub(crate) fn route(&self, from: DatapathId, to: Place) -> Option<Route> {
        let exit = self.exit(from, to)?;
        let far = exit.beyond.map(|place| place.switch);
        Some(Route { exit, fork: far.and_then(|far| self.fork(from, far)) })
    }

    /// The alternative ports towards a switch, if there are several.
    fn fork(&self, from: DatapathId, to: DatapathId) -> Option<Fork> {
        let nearest = self.nearest(from, to)?;
        if nearest.len() > 1 {
            return Some(Fork { kind: ForkKind::Balance, ports: nearest.clone() });
        }
        let ports = self.detour(from, to)?.clone();
        Some(Fork { kind: ForkKind::FailOver, ports })
    }

    /// Exit from a switch to a port on this or another switch.
    pub(crate) fn exit(&self, from: DatapathId, to: Place) -> Option<Exit> {
        if from == to.switch || to == Place::CONTROLLER {
            return Some(Exit::here(to.port));
        }
        let port = pick(self.nearest(from, to.switch)?, to)?;
        Some(Exit { port, beyond: Some(to), spread: None })
    }

    /// The other switches that reach this port.
    pub(crate) fn sources(&self, to: Place) -> impl Iterator<Item = DatapathId> {
        let count = self.switches.len();
        let row = self.number(to.switch).and_then(|to| self.ways.get(to * count..)?.get(..count));
        let ways = self.switches.iter().zip(row.into_iter().flatten());
        ways.filter(|(_, ports)| **ports != NONE).map(|(from, _)| *from)
    }

    /// The switches after `from` on the path to a port; that of the port is the last.
    pub(crate) fn behind(&self, from: DatapathId, to: Place) -> impl Iterator<Item = DatapathId> {
        let next = move |at: &DatapathId| Some(self.hop(*at, to)?.1.switch);
        std::iter::successors(Some(from), next).skip(1)
    }

    /// The switches after `from` on any path or detour to a host's port, including that of the
    /// port.
    pub(crate) fn all_behind(&self, from: DatapathId, to: Place) -> BTreeSet<DatapathId> {
        let (mut found, mut queue) = (BTreeSet::new(), vec![from]);
        while let Some(at) = queue.pop() {
            let ports = [self.nearest(at, to.switch), self.detour(at, to.switch)];
            for &port in ports.into_iter().flatten().flat_map(|ports| &**ports) {
                let peer = self.graph.peer(Place { switch: at, port });
                queue.extend(peer.map(|peer| peer.switch).filter(|id| found.insert(*id)));
            }
        }
        found
    }

    /// Egress and ingress ports along the path from a switch to a port.
    pub(crate) fn path(&self, from: DatapathId, to: Place) -> Vec<Place> {
        let mut path = Vec::new();
        let mut at = from;
        while let Some((out, peer)) = self.hop(at, to) {
            path.extend([out, peer]);
            at = peer.switch;
        }
        path.push(to);
        path
    }

    /// Whether the path from a switch to a port is unchanged.
    pub(crate) fn leads_as(&self, before: &Self, from: DatapathId, to: Place) -> bool {
        let mut at = from;
        loop {
            match (self.hop(at, to), before.hop(at, to)) {
                (now, then) if now != then => return false,
                (Some((_, peer)), _) => at = peer.switch,
                (None, _) => return true,
            }
        }
    }

    /// Egress port towards a port on another switch, and the ingress port at the next switch.
    fn hop(&self, at: DatapathId, to: Place) -> Option<(Place, Place)> {
        let Exit { port, beyond, .. } = self.exit(at, to)?;
        beyond?;
        let out = Place { switch: at, port };
        Some((out, self.graph.peer(out)?))
    }

    /// Whether each switch reaches the same switches as before.
    pub(crate) fn reaches_as(&self, before: &Self) -> bool {
        let (now, then) = (self.ways.iter(), before.ways.iter());
        let is_there = |way: &SetId| *way != NONE;
        self.switches == before.switches && now.map(is_there).eq(then.map(is_there))
    }

    /// Whether a path connects the two.
    pub(crate) fn connects(&self, a: DatapathId, b: DatapathId) -> bool {
        a == b || self.nearest(b, a).is_some()
    }
}

/// Changed routes.
#[derive(Debug)]
pub(crate) struct Changes<'a> {
    routes: &'a Routes,
    /// Sorted indices of changed next hops and detours. `None`: the set of switches changed, so all
    /// may have.
    changed: Option<Vec<usize>>,
}

impl Changes<'_> {
    /// Switches whose routes to this one have changed. `None`: possibly all.
    pub(crate) fn to(&self, to: DatapathId) -> Option<BTreeSet<DatapathId>> {
        let (changed, count) = (self.changed.as_deref()?, self.routes.switches.len());
        let Some(first) = self.routes.number(to).map(|to| to * count) else {
            return Some(BTreeSet::new());
        };
        let start = changed.partition_point(|index| *index < first);
        let row = changed.iter().skip(start).take_while(|index| **index < first + count);
        let from = row.filter_map(|index| self.routes.switches.get(index - first).copied());
        Some(from.collect())
    }
}

/// Interned sets of ports.
#[derive(Clone, Debug, Default)]
struct PortSets {
    sets: Vec<Arc<[PortNo]>>,
    known: HashMap<Arc<[PortNo]>, SetId>,
}

/// Index of a set, or [`NONE`].
type SetId = u32;
/// No ports.
const NONE: SetId = SetId::MAX;

impl PortSets {
    fn id(&mut self, ports: &[PortNo]) -> SetId {
        if ports.is_empty() {
            return NONE;
        }
        if let Some(id) = self.known.get(ports) {
            return *id;
        }
        let (ports, id) = (Arc::<[PortNo]>::from(ports), self.sets.len());
        let id = SetId::try_from(id).unwrap_or(NONE);
        self.sets.push(ports.clone());
        self.known.insert(ports, id);
        id
    }

    fn get(&self, id: SetId) -> Option<&Arc<[PortNo]>> {
        self.sets.get(usize::try_from(id).ok()?)
    }
}

/// Computes detours.
struct Detours<'a> {
    graph: &'a Shortest,
    /// By destination, then switch.
    costs: &'a [Vec<u64>],
}

impl Detours<'_> {
    /// Port of the best detour from a switch whose only next hop is another port. `cost` is the
    /// cost from each switch to the destination.
    fn best(&self, from: usize, nearest: PortNo, cost: &[u64]) -> Option<PortNo> {
        let (own, back) = (*cost.get(from)?, self.costs.get(from)?);
        let others = self.graph.links(from).iter().filter(|step| step.port != nearest);
        let detours = others.filter_map(|step| {
            let on = *cost.get(step.peer)?;
            let is_free = on < back.get(step.peer)?.saturating_add(own);
            is_free.then_some((on >= own, on.saturating_add(step.cost), step.port))
        });
        detours.min().map(|(.., port)| port)
    }
}

/// Chooses one of several ports: always the same for one destination, spread over destinations.
fn pick(ports: &[PortNo], to: Place) -> Option<PortNo> {
    let mixed =
        (to.switch.0 ^ u64::from(to.port.0) << 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let index = usize::try_from(mixed).unwrap_or(0).checked_rem(ports.len())?;
    ports.get(index).copied()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place(switch: u64, port: u32) -> Place {
        Place { switch: DatapathId(switch), port: PortNo(port) }
    }

    /// 1 – 2 – 3 in a line, and 4 isolated. Ports 1 lead down, ports 2 up.
    fn line() -> Routes {
        let links = [(place(1, 2), place(2, 1)), (place(2, 2), place(3, 1))];
        Routes::new(Graph::new(links.map(|(a, b)| (a, b, 1))))
    }

    #[test]
    fn a_way_goes_from_port_to_port() {
        let routes = line();
        let to = place(3, 9);
        let path = [place(1, 2), place(2, 1), place(2, 2), place(3, 1), to];
        assert_eq!(routes.path(DatapathId(1), to), path);
        assert_eq!(routes.exit(DatapathId(3), to), Some(Exit::here(PortNo(9))));
        assert_eq!(routes.exit(DatapathId(4), to), None);
        assert!(routes.connects(DatapathId(1), DatapathId(3)));
        assert!(!routes.connects(DatapathId(1), DatapathId(4)));
    }

    #[test]
    fn those_in_between_and_at_the_end_are_behind() {
        let behind = |from| line().behind(DatapathId(from), place(3, 9)).collect::<Vec<_>>();
        assert_eq!(behind(1), [DatapathId(2), DatapathId(3)]);
        assert_eq!((behind(3), behind(4)), (vec![], vec![]));
    }

    /// A ring of `count` switches; port 1 leads to the next one, port 2 to the previous one.
    fn ring(count: u64) -> Routes {
        let links = (0..count).map(|at| (place(at, 1), place((at + 1) % count, 2), 1));
        Routes::new(Graph::new(links))
    }

    fn fork(routes: &Routes, from: u64, to: u64) -> Option<(ForkKind, Vec<u32>)> {
        let fork = routes.route(DatapathId(from), place(to, 9)).unwrap().fork?;
        Some((fork.kind, fork.ports.iter().map(|port| port.0).collect()))
    }

    #[test]
    fn equally_short_ways_are_shared_and_others_are_detours() {
        let five = ring(5);
        assert_eq!(fork(&five, 2, 0), Some((ForkKind::FailOver, vec![2, 1])));
        assert_eq!(fork(&five, 3, 0), Some((ForkKind::FailOver, vec![1, 2])));
        assert_eq!(fork(&five, 1, 0), None, "the neighbour would send it back");
        assert_eq!(fork(&five, 0, 0), None);
        assert_eq!(fork(&ring(4), 2, 0), Some((ForkKind::Balance, vec![1, 2])));
        assert_eq!(fork(&ring(3), 1, 0), Some((ForkKind::FailOver, vec![2, 1])));
        assert_eq!(fork(&line(), 1, 3), None);
        assert_eq!(line().route(DatapathId(4), place(3, 9)), None);
    }

    #[test]
    fn a_detour_that_is_nearer_is_preferred() {
        // From 1 to 0: directly, via 2 at the same distance as 1, or via 3, which is nearer but
        // expensive.
        let links = [
            (place(1, 1), place(0, 1), 2),
            (place(1, 2), place(2, 1), 1),
            (place(2, 2), place(0, 2), 2),
            (place(1, 3), place(3, 1), 9),
            (place(3, 2), place(0, 3), 1),
        ];
        let routes = Routes::new(Graph::new(links));
        assert_eq!(fork(&routes, 1, 0), Some((ForkKind::FailOver, vec![1, 3])));
    }

    proptest! {
        /// Changed links are reported where they change a route, and only there.
        #[test]
        fn what_leads_as_before_is_known(
            links in prop::collection::vec((0..6_u64, 0..6_u64), 1..14),
            others in prop::collection::vec(prop::option::weighted(0.2, (0..6_u64, 0..6_u64)), 14),
        ) {
            let graph = |links: &mut dyn Iterator<Item = (u64, u64)>| {
                let links = links.zip(1..).filter(|((a, b), _)| a != b);
                Graph::new(links.map(|((a, b), port)| (place(a, port), place(b, port), 1)))
            };
            let before = Routes::new(graph(&mut links.iter().copied()));
            let changed = links.iter().zip(&others).map(|(link, other)| other.unwrap_or(*link));
            let now = Routes::new(graph(&mut changed.into_iter()));
            let switches = || (0..6).map(DatapathId);
            for (from, to) in switches().flat_map(|from| switches().map(move |to| (from, to))) {
                let to = Place { switch: to, port: PortNo(99) };
                let is_same = now.path(from, to) == before.path(from, to);
                prop_assert_eq!(now.leads_as(&before, from, to), is_same, "{} {}", from.0, to);
            }
            let reached = |routes: &Routes| {
                let reached = |from| switches().filter(move |to| routes.connects(from, *to));
                switches().map(|from| reached(from).collect::<Vec<_>>()).collect::<Vec<_>>()
            };
            let has_same_switches = now.switches == before.switches;
            let is_same = has_same_switches && reached(&now) == reached(&before);
            prop_assert_eq!(now.reaches_as(&before), is_same);
        }

        /// When any link fails, frames arrive at once by the remaining ports of each switch, or end
        /// at a switch without any; they never loop.
        #[test]
        fn a_link_that_goes_makes_no_loop(
            links in prop::collection::vec((0..8_u64, 0..8_u64), 1..30),
            gone in any::<prop::sample::Index>(),
            pick in 0..4_usize,
        ) {
            let links = links.into_iter().zip(1..).filter(|((a, b), _)| a != b);
            let links: Vec<_> =
                links.map(|((a, b), port)| (place(a, port), place(b, port), 1)).collect();
            prop_assume!(!links.is_empty());
            let routes = Routes::new(Graph::new(links.clone()));
            let gone = links[gone.index(links.len())];
            let is_up = |at: Place| at != gone.0 && at != gone.1;
            for start in routes.graph.switches() {
                let (mut at, mut steps) = (start, 0);
                while at != DatapathId(0) {
                    let Some(route) = routes.route(at, place(0, 99)) else { break };
                    let ports = route.fork.as_ref().map_or(vec![route.exit.port], |fork| {
                        fork.ports.to_vec()
                    });
                    let up: Vec<_> = ports
                        .into_iter()
                        .map(|port| Place { switch: at, port })
                        .filter(|at| is_up(*at))
                        .collect();
                    let out = match route.fork.map(|fork| fork.kind) {
                        Some(ForkKind::Balance) if !up.is_empty() => up[pick % up.len()],
                        _ => match up.first() {
                            Some(first) => *first,
                            None => break,
                        },
                    };
                    at = routes.graph.peer(out).unwrap().switch;
                    steps += 1;
                    prop_assert!(steps < 16, "it goes round from {start}");
                }
            }
        }
    }
}
