//! Proof before apply: frames are traced through the desired rules of all switches, from port to
//! port over all links, and must arrive where they should.
//!
//! **Traced frames.** For each region of the policies, and each intersection of several, one frame
//! in it, from a host of each switch, to a host of each switch, to an unknown address, and to
//! broadcast; also with a priority tag. Rules match nothing else, so the result holds for all
//! frames like it.
//!
//! **Choices of switches.** If a switch chooses among several paths, all are traced: frames must
//! arrive at the same places by each. A failover path is traced with the other link removed.
//!
//! **Checks.** Without copying rules, frames arrive as before the change. With them, they arrive at
//! the same ports, and once at each monitor of the policies that they match, without a tag of ours,
//! with their original destination address, with or without their own tag as those policies
//! specify, and nowhere else. No frame loops.
//!
//! **Unknowns.** At a switch that is disconnected or being read, frames are lost sight of: the same
//! ones must arrive there as before. There is no verdict on copies that pass it, nor on frames that
//! hit a rule which their switch is known to lack.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use tapswitch_openflow::{
    Action, DatapathId, GroupId, Oxm, OxmField, PortNo, TableId, VID_NONE, VID_PRESENT,
};
use tapswitch_wire::MacAddr;

mod known;
mod sample;

use crate::desired::{Desired, Fields};
use crate::exit::{Flood, Fork, ForkKind};
use crate::group::{GroupKey, Path};
use crate::place::Place;
use crate::rule::{FORWARD, FlowId, Kind, Outcome, SOURCE, TAPS};
use crate::text::switch_name;
use crate::translate::Goal;
use known::{Alike, Known, Met, Walked};
pub(crate) use sample::Sample;

/// Desired rules of switches, and the links between them.
pub(crate) trait Network {
    /// Rules of a switch; `None` if its behaviour is unknown.
    fn rules(&self, switch: DatapathId) -> Option<&Desired>;
    /// Why a switch lacks one of its rules, if that is known.
    fn lacks(&self, switch: DatapathId, rule: &FlowId) -> Option<String>;
    /// Flood ports of a switch.
    fn flooded(&self, switch: DatapathId) -> Vec<PortNo>;
    /// The other end of a link.
    fn peer(&self, at: Place) -> Option<Place>;
    /// Number of switches.
    fn switch_count(&self) -> usize;
}

/// Traces frames through a network, within a budget.
pub(crate) struct Model<'a> {
    network: &'a dyn Network,
    /// Remaining budget, in passages of switches.
    passes_left: &'a Cell<usize>,
    known: Known,
}

/// Passage of a switch.
struct Passage<'a> {
    network: &'a dyn Network,
    rules: &'a Desired,
    /// Ingress of the frame.
    at: Place,
}

/// A frame in transit, with the fields that rules change.
#[derive(Clone, Debug)]
struct Frame<'a> {
    /// The frame as sent.
    sent: &'a Sample,
    dst: MacAddr,
    vlan: Option<u16>,
    /// Our tags, outermost last.
    tags: Vec<u16>,
}

/// An arrival of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival {
    pub(crate) place: Place,
    /// It was sent with a tag and arrives without.
    pub(crate) is_stripped: bool,
}

impl From<Place> for Arrival {
    fn from(place: Place) -> Self {
        Self { place, is_stripped: false }
    }
}

/// Arrivals of a frame, with their number.
pub(crate) type Arrivals = Result<BTreeMap<Arrival, usize>, Trouble>;

/// Why there is no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Frames are misdirected.
    Wrong(String),
    /// The result is unknown.
    Unknown(String),
    /// The result is unknown for now: a switch is disconnected, or being updated.
    Early(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Wrong(reason) | Self::Unknown(reason) | Self::Early(reason)) = self;
        f.write_str(reason)
    }
}

impl<'a> Model<'a> {
    /// A model of a network with a budget of passages.
    pub(crate) fn new(network: &'a dyn Network, passes_left: &'a Cell<usize>) -> Self {
        Self { network, passes_left, known: Known::default() }
    }

    /// Arrivals of the frame that comes in at `from`, for all choices of switches. `copies`:
    /// include copies; of monitors that share flows, this one, modulo their number, gets them. A
    /// known result for an equivalent frame uses the same budget.
    pub(crate) fn walk(&self, from: Place, sample: &Sample, copies: Option<usize>) -> Arrivals {
        let met = match copies {
            Some(pick) => Some((self.met(from, sample)?, pick)),
            None => None,
        };
        let alike = Alike::new(from, sample, met);
        if let Some(Walked { arrivals, passes }) = self.known.walked(&alike) {
            self.count_passes(passes)?;
            return Ok(arrivals);
        }
        let before = self.passes_left.get();
        let mut picks = Picks::new(copies);
        let arrivals = self.walk_all(from, sample, &mut picks)?;
        if !picks.is_single {
            let passes = before - self.passes_left.get();
            self.known.note(alike, Walked { arrivals: arrivals.clone(), passes });
        }
        Ok(arrivals)
    }

    /// The copying rule that a frame hits at its ingress.
    fn met(&self, from: Place, sample: &Sample) -> Result<Met, Trouble> {
        let Some(rules) = self.network.rules(from.switch) else { return Ok(Met::Nothing) };
        let passage = Passage { network: self.network, rules, at: from };
        let frame = Frame::of(sample);
        let goes_there = |goal: &Goal| matches!(goal.outcome, Outcome::Admit | Outcome::Report);
        let met = match passage.find(SOURCE, &frame, true)?.is_some_and(goes_there) {
            true => passage.find(TAPS, &frame, true)?,
            false => None,
        };
        Ok(met.map_or(Met::Nothing, Met::from))
    }

    fn count_passes(&self, passes: usize) -> Result<(), Trouble> {
        match self.passes_left.get().checked_sub(passes) {
            Some(left) => self.passes_left.set(left),
            None => {
                self.passes_left.set(0);
                return Err(Trouble::Unknown(TOO_MANY_WAYS.to_owned()));
            }
        }
        Ok(())
    }

    fn walk_all(&self, from: Place, sample: &Sample, picks: &mut Picks) -> Arrivals {
        let first = self.walk_picked(from, sample, picks)?;
        for _ in 1..MAX_PICKS {
            if !picks.advance() {
                return Ok(first);
            }
            let arrivals = self.walk_picked(from, sample, picks)?;
            if let Some(lost) = first.keys().chain(arrivals.keys()).find(|at| self.is_lost(at)) {
                return Err(Trouble::Early(lost_at(lost.place.switch)));
            }
            // With a link removed it may be lost until the controller reroutes.
            let is_as_first = |(place, count)| match picks.dead {
                None => first.get(place) == Some(count),
                Some(_) => first.get(place) >= Some(count),
            };
            let is_missing = picks.dead.is_none() && arrivals.len() != first.len();
            if is_missing || !arrivals.iter().all(is_as_first) {
                return Err(Trouble::Wrong(format!(
                    "{sample} that enters at {from} arrives {} on one path, {} on another",
                    text(&first),
                    text(&arrivals)
                )));
            }
        }
        Err(Trouble::Unknown(TOO_MANY_WAYS.to_owned()))
    }

    fn walk_picked(&self, from: Place, sample: &Sample, picks: &mut Picks) -> Arrivals {
        let mut arrivals = BTreeMap::new();
        let mut queue = VecDeque::from([(from, Frame::of(sample))]);
        let mut hops = 0;
        while let Some((at, frame)) = queue.pop_front() {
            hops += 1;
            if hops > self.network.switch_count() * 64 {
                let told = format!("a frame loops: {sample} that enters at {from}");
                return Err(Trouble::Wrong(told));
            }
            self.count_passes(1)?;
            picks.is_on_way = hops > 1;
            for (port, frame) in self.pass((at, &frame), picks)? {
                let out = match port {
                    PortNo::CONTROLLER => Place::CONTROLLER,
                    port => Place { switch: at.switch, port },
                };
                let arrival = match self.network.peer(out) {
                    Some(peer) if picks.is_dead(out) || picks.is_dead(peer) => continue,
                    Some(peer) if self.network.rules(peer.switch).is_some() => {
                        queue.push_back((peer, frame));
                        continue;
                    }
                    // It is lost sight of there.
                    Some(peer) => frame.arrive(peer)?,
                    None => frame.arrive(out)?,
                };
                *arrivals.entry(arrival).or_insert(0) += 1;
            }
        }
        Ok(arrivals)
    }

    /// Whether a frame is lost sight of there.
    fn is_lost(&self, at: &Arrival) -> bool {
        at.place != Place::CONTROLLER && self.network.rules(at.place.switch).is_none()
    }

    /// Output of one switch.
    fn pass<'f>(
        &self,
        (at, frame): (Place, &Frame<'f>),
        picks: &mut Picks,
    ) -> Result<Vec<(PortNo, Frame<'f>)>, Trouble> {
        let Some(rules) = self.network.rules(at.switch) else { return Ok(Vec::new()) };
        let passage = Passage { network: self.network, rules, at };
        let with_copies = picks.copies.is_some();
        let mut table = SOURCE;
        loop {
            let skips = table == TAPS && !with_copies;
            picks.is_single |= match table {
                TAPS => with_copies && picks.is_on_way,
                _ => rules.looks_closely(),
            };
            let outcome = match skips {
                true => &Outcome::Forward,
                false => match passage.find(table, frame, with_copies)? {
                    Some(goal) => &goal.outcome,
                    None => return Ok(Vec::new()),
                },
            };
            match outcome {
                Outcome::Admit | Outcome::Report => table = TAPS,
                Outcome::Forward => table = FORWARD,
                Outcome::Drop | Outcome::Show => return Ok(Vec::new()),
                Outcome::Output(port) => {
                    return Ok(passage.output(&Flood::Ports([*port].into()), frame));
                }
                Outcome::Flood(flood) | Outcome::Ask(flood) => {
                    return Ok(passage.output(flood, frame));
                }
                Outcome::Group(key) => {
                    let mut out = Vec::new();
                    self.carry_out((key, at.switch), picks, &mut |bucket| {
                        out.extend(passage.apply(bucket, frame));
                    });
                    return Ok(out);
                }
            }
        }
    }

    /// Actions of all executed buckets of a group, and of the groups that it outputs to.
    fn carry_out(
        &self,
        (key, at): (&GroupKey, DatapathId),
        picks: &mut Picks,
        then: &mut impl FnMut(&[Action]),
    ) {
        if let Path::Fork(fork) = &key.path {
            if let Some(port) = self.pick(fork, at, picks) {
                then(&[Action::output(port)]);
            }
            return;
        }
        let made = self.known.made(key);
        for bucket in made.buckets.get(picks.of(key, made.buckets.len())).into_iter().flatten() {
            match bucket.as_slice() {
                [Action::Group(GroupId(number))] => {
                    let next = usize::try_from(*number).ok().and_then(|at| made.next.get(at));
                    if let Some(next) = next {
                        self.carry_out((next, at), picks, then);
                    }
                }
                actions => then(actions),
            }
        }
    }

    /// The port that a switch chooses.
    fn pick(&self, fork: &Fork, switch: DatapathId, picks: &mut Picks) -> Option<PortNo> {
        let places = fork.ports.iter().map(|port| Place { switch, port: *port });
        let is_alive = |at: &Place| {
            !picks.is_dead(*at) && !self.network.peer(*at).is_some_and(|peer| picks.is_dead(peer))
        };
        let alive: Vec<_> = places.filter(is_alive).collect();
        let picked = match fork.kind {
            ForkKind::Balance => picks.next(alive.len()),
            ForkKind::FailOver if alive.len() > 1 && picks.may_cut() => {
                let picked = picks.next(2);
                picks.dead = alive.first().copied().filter(|_| picked > 0);
                picked
            }
            ForkKind::FailOver => 0,
        };
        alive.get(picked).map(|at| at.port)
    }
}

/// Choices of switches in one trace. Traces are repeated until all combinations are covered.
struct Picks {
    /// Chosen index and number of alternatives, in the order of the trace.
    taken: Vec<(usize, usize)>,
    at: usize,
    /// Which of the monitors that share flows gets a copy; no link is removed when tracing copies.
    copies: Option<usize>,
    /// The removed link, by one of its ends.
    dead: Option<Place>,
    /// The frame has left its ingress switch.
    is_on_way: bool,
    /// The result does not apply to other frames.
    is_single: bool,
}

impl Picks {
    const fn new(copies: Option<usize>) -> Self {
        let (is_on_way, is_single) = (false, false);
        Self { taken: Vec::new(), at: 0, copies, dead: None, is_on_way, is_single }
    }

    /// Chooses one of `count`.
    fn next(&mut self, count: usize) -> usize {
        self.at += 1;
        match self.taken.get(self.at - 1) {
            Some((picked, _)) => *picked,
            None => {
                self.taken.push((0, count));
                0
            }
        }
    }

    /// Advances to the next combination, if there is one.
    fn advance(&mut self) -> bool {
        (self.at, self.dead) = (0, None);
        while let Some((picked, count)) = self.taken.pop() {
            if picked + 1 < count {
                self.taken.push((picked + 1, count));
                return true;
            }
        }
        false
    }

    /// The buckets of a group that are executed.
    fn of(&self, key: &GroupKey, count: usize) -> Range<usize> {
        match &key.path {
            Path::Carry(_) | Path::Spread(_) | Path::Choice(_) => {
                let picked = self.copies.unwrap_or(0) % count.max(1);
                picked..count.min(picked + 1)
            }
            // The frame goes to the controller for its route, not as a copy.
            Path::Ask(_) if !key.is_shown() => count.min(1)..count,
            Path::To(_) | Path::Back(_) | Path::Flood(_) | Path::Ask(_) | Path::Fork(_) => 0..count,
        }
    }

    /// Whether a link may be removed in this trace: at most one is.
    const fn may_cut(&self) -> bool {
        self.copies.is_none() && self.dead.is_none()
    }

    fn is_dead(&self, at: Place) -> bool {
        self.dead == Some(at)
    }
}

/// Maximum traces of one frame.
const MAX_PICKS: usize = 1024;
/// Reason for no verdict when the budget is used up.
const TOO_MANY_WAYS: &str = "its frames have too many possible paths";

impl<'a> Passage<'a> {
    /// The rule that a frame hits. If the switch lacks it, the frame hits an unknown other one;
    /// other missing rules make no difference.
    fn find(
        &self,
        table: TableId,
        frame: &Frame<'_>,
        with_copies: bool,
    ) -> Result<Option<&'a Goal>, Trouble> {
        let counts = |goal: &Goal| with_copies || !goal.cookie.is(Kind::TapHost);
        let seen = Seen { frame, in_port: self.at.port };
        let Some((id, goal)) = self.rules.first_met(table, &seen, counts) else { return Ok(None) };
        match self.network.lacks(self.at.switch, id) {
            Some(told) => Err(Trouble::Unknown(told)),
            None => Ok(Some(goal)),
        }
    }

    /// All ports except the ingress.
    fn output<'f>(&self, flood: &Flood, frame: &Frame<'f>) -> Vec<(PortNo, Frame<'f>)> {
        let ports: Vec<_> = match flood {
            Flood::All => self.network.flooded(self.at.switch),
            Flood::Ports(ports) => ports.to_vec(),
        };
        let others = ports.into_iter().filter(|port| *port != self.at.port);
        others.map(|port| (port, frame.clone())).collect()
    }

    /// Output of a bucket. As it is an action set, a switch may execute only the last of several
    /// outputs (OpenFlow 1.3.5 §5.10).
    fn apply<'f>(&self, actions: &[Action], frame: &Frame<'f>) -> Vec<(PortNo, Frame<'f>)> {
        let mut frame = frame.clone();
        let mut out = Vec::new();
        for action in actions {
            match action {
                Action::PushVlan(_) => frame.tags.push(0),
                Action::PopVlan => frame.pop(),
                Action::SetField(Oxm::VlanVid(vid)) => {
                    if let Some(last) = frame.tags.last_mut() {
                        *last = vid.value & !VID_PRESENT;
                    }
                }
                Action::SetField(Oxm::EthDst(mac)) => frame.dst = mac.value,
                Action::Output { port: PortNo::IN_PORT, .. } => {
                    out = vec![(self.at.port, frame.clone())];
                }
                Action::Output { port: PortNo::CONTROLLER, .. } => {
                    out = vec![(PortNo::CONTROLLER, frame.clone())];
                }
                Action::Output { port: PortNo::FLOOD, .. } => {
                    out = self.output(&Flood::All, &frame);
                }
                Action::Output { port, .. } => {
                    out = self.output(&Flood::Ports([*port].into()), &frame);
                }
                // Contracts do not affect where copies go.
                _ => {}
            }
        }
        out
    }
}

impl<'a> Frame<'a> {
    /// The frame as sent by a host.
    const fn of(sent: &'a Sample) -> Self {
        Self { sent, dst: sent.dst, vlan: sent.vlan, tags: Vec::new() }
    }

    /// Removes the outermost tag, if any.
    fn pop(&mut self) {
        if self.tags.pop().is_none() {
            self.vlan = None;
        }
    }

    /// The frame leaves the fabric there.
    fn arrive(&self, place: Place) -> Result<Arrival, Trouble> {
        if !self.tags.is_empty() {
            return Err(Trouble::Wrong(format!(
                "a copy arrives at {place} with its transport tag"
            )));
        }
        if self.dst != self.sent.dst {
            return Err(Trouble::Wrong(format!(
                "a copy arrives at {place} with the destination {}",
                self.dst
            )));
        }
        Ok(Arrival { place, is_stripped: self.vlan != self.sent.vlan })
    }
}

/// The reason that frames are lost sight of at a switch.
pub(crate) fn lost_at(switch: DatapathId) -> String {
    let name = switch_name(switch);
    format!("switch {name} is not connected, or not taken over yet")
}

/// Describes arrivals with their number.
pub(crate) fn text(arrivals: &BTreeMap<Arrival, usize>) -> String {
    let text = |(arrival, count): (&Arrival, &usize)| {
        let form = if arrival.is_stripped { " without its tag" } else { "" };
        format!("{}{form} x{count}", arrival.place)
    };
    let texts: Vec<_> = arrivals.iter().map(text).collect();
    if texts.is_empty() { "nowhere".to_owned() } else { format!("at {}", texts.join(", ")) }
}

/// A frame as seen by matches.
struct Seen<'a> {
    frame: &'a Frame<'a>,
    in_port: PortNo,
}

impl Fields for Seen<'_> {
    fn value(&self, field: OxmField) -> Option<u128> {
        let Frame { sent, dst, vlan, tags } = self.frame;
        let vid = || tags.last().copied().or(*vlan).map_or(VID_NONE, |vid| VID_PRESENT | vid);
        let (src_ip, dst_ip) = sent.ips;
        let (src_port, dst_port) = sent.ports;
        Some(match field {
            OxmField::InPort => self.in_port.0.into(),
            OxmField::EthSrc => number(sent.src),
            OxmField::EthDst => number(*dst),
            OxmField::EthType => sent.eth_type.into(),
            OxmField::VlanVid => vid().into(),
            OxmField::IpProto => sent.proto.into(),
            OxmField::Ipv4Src | OxmField::ArpSpa => v4(src_ip)?,
            OxmField::Ipv4Dst | OxmField::ArpTpa => v4(dst_ip)?,
            OxmField::Ipv6Src => v6(src_ip)?,
            OxmField::Ipv6Dst => v6(dst_ip)?,
            OxmField::TcpSrc | OxmField::UdpSrc | OxmField::SctpSrc => src_port.into(),
            OxmField::TcpDst | OxmField::UdpDst | OxmField::SctpDst => dst_port.into(),
            OxmField::Icmpv4Type | OxmField::Icmpv6Type => src_port.into(),
            OxmField::Icmpv4Code | OxmField::Icmpv6Code => dst_port.into(),
            // Fields that no sample has.
            _ => return None,
        })
    }
}

fn number(mac: MacAddr) -> u128 {
    mac.0.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn v4(ip: IpAddr) -> Option<u128> {
    match ip {
        IpAddr::V4(ip) => Some(u32::from(ip).into()),
        IpAddr::V6(_) => None,
    }
}

fn v6(ip: IpAddr) -> Option<u128> {
    match ip {
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) => Some(ip.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tapswitch_openflow::{GroupId, Match};
    use tapswitch_wire::EtherType;

    use super::*;
    use crate::exit::{Exit, Route};
    use crate::group::Carry;
    use crate::hosts::HostKey;
    use crate::overlap::{Aim, Member, PolicyId, Slot, TapRegion};
    use crate::policy::Part;
    use crate::region::Region;
    use crate::rule::Rule;
    use crate::translate::{Wiring, base_rules, carry_rule, region_rule, way_rules};

    fn place(switch: u64, port: u32) -> Place {
        Place { switch: DatapathId(switch), port: PortNo(port) }
    }

    fn sample() -> Sample {
        let key = HostKey { mac: MacAddr([2, 0, 0, 0, 0, 1]), vlan: None };
        Sample::new(&Match::new(), (key, MacAddr::BROADCAST))
    }

    /// Rules of a switch whose port 1 is an edge, and whose ports 2 and 3 are links.
    fn linked(flood: &[u32]) -> Desired {
        let flood: Arc<[_]> = flood.iter().map(|port| PortNo(*port)).collect();
        let wiring = Wiring {
            flood: Flood::Ports(flood),
            edges: [PortNo(1)].into(),
            links: [PortNo(2), PortNo(3)].into(),
            ..Wiring::default()
        };
        let mut desired = Desired::default();
        base_rules(&wiring).into_iter().for_each(|rule| desired.insert(rule));
        desired
    }

    fn walk(a: &Desired, b: &Desired) -> Arrivals {
        Model::new(&Pair([a, b]), &Cell::new(10_000)).walk(place(1, 1), &sample(), Some(0))
    }

    /// Two switches linked by their ports 2 and 3.
    struct Pair<'a>([&'a Desired; 2]);

    impl Network for Pair<'_> {
        fn rules(&self, switch: DatapathId) -> Option<&Desired> {
            self.0.get(usize::try_from(switch.0).unwrap() - 1).copied()
        }

        fn lacks(&self, _: DatapathId, _: &FlowId) -> Option<String> {
            None
        }

        fn flooded(&self, _: DatapathId) -> Vec<PortNo> {
            [1, 2, 3].map(PortNo).into()
        }

        fn peer(&self, at: Place) -> Option<Place> {
            let peer = Place { switch: DatapathId(3 - at.switch.0), ..at };
            (at.port.0 > 1).then_some(peer)
        }

        fn switch_count(&self) -> usize {
            2
        }
    }

    fn copying(tag: u16) -> Desired {
        let exit = Exit { port: PortNo(3), beyond: Some(place(2, 1)), spread: None };
        let member = Member {
            policy: PolicyId(1),
            aim: Aim { slot: Slot::only(0), exit, tag, is_sink: false },
            delivery: None,
            part: Part::default(),
        };
        let tap = TapRegion {
            region: Region::default(),
            depth: 1,
            members: [member].into(),
            excepted: [].into(),
            mark: 0,
            is_turned: false,
            copies: None,
        };
        let mut desired = linked(&[1, 2]);
        let (id, mut rule) = region_rule(&tap, &Flood::All);
        if let Outcome::Group(key) = &mut rule.outcome {
            let path = Path::To(Exit::here(PortNo(1)).into());
            *key = Arc::new(GroupKey { members: key.members.clone(), path });
        }
        assert!(rule.map_group(|_| GroupId(1)).add(&id).check().is_ok());
        desired.insert((id, rule));
        desired
    }

    #[test]
    fn a_frame_is_told_in_words() {
        let host = MacAddr([2, 0, 0, 0, 0, 1]);
        let sample = |fields, vlan| {
            Sample::new(&fields, (HostKey { mac: host, vlan }, MacAddr::BROADCAST)).to_string()
        };
        let start = "a frame from 02:00:00:00:00:01 to ff:ff:ff:ff:ff:ff";
        let web = Match::new().with(Oxm::IpProto(6)).with(Oxm::TcpDst(80));
        assert_eq!(
            sample(web, Some(5)),
            format!("{start} in VLAN 5 (ipv4 192.0.2.1 > 192.0.2.1, tcp 0 > 80)")
        );
        let lldp = Match::new().with(Oxm::EthType(EtherType::LLDP));
        assert_eq!(sample(lldp, None), format!("{start} (lldp)"));
    }

    #[test]
    fn a_tree_floods_once() {
        assert_eq!(walk(&linked(&[1, 2]), &linked(&[1, 2])), Ok([(place(2, 1).into(), 1)].into()));
    }

    #[test]
    fn frames_that_a_rule_tells_apart_are_not_alike() {
        let fields = |port| {
            let tcp = Match::new().with(Oxm::EthType(EtherType::IPV4)).with(Oxm::IpProto(6));
            tcp.with(Oxm::TcpDst(port))
        };
        let host = HostKey { mac: MacAddr([2, 0, 0, 0, 0, 1]), vlan: None };
        for (table, at) in [(TAPS, 1), (FORWARD, 1), (FORWARD, 2)] {
            let mut switches = [linked(&[1, 2]), linked(&[1, 2])];
            let rule = Rule::new(Kind::Port, 0, Outcome::Drop);
            switches[at - 1].insert((FlowId::new(table, 10, fields(80)), rule));
            let (left, pair) = (Cell::new(1000), Pair(switches.each_ref()));
            let model = Model::new(&pair, &left);
            let walk = |port| {
                let sample = Sample::new(&fields(port), (host, MacAddr::BROADCAST));
                let arrivals = model.walk(place(1, 1), &sample, Some(0)).unwrap();
                (arrivals.len(), left.get())
            };
            assert_eq!(walk(81), (1, 998));
            assert_eq!(walk(82), (1, 996), "it counts as if it were followed");
            assert_eq!((walk(80).0, walk(81).0), (0, 1), "{table:?} {at}");
        }
    }

    #[test]
    fn what_goes_round_or_comes_twice_is_found() {
        let told = walk(&linked(&[1, 2, 3]), &linked(&[1, 2, 3])).unwrap_err().to_string();
        assert!(told.starts_with("a frame loops"), "{told}");
        assert_eq!(walk(&linked(&[1, 2, 3]), &linked(&[1])), Ok([(place(2, 1).into(), 2)].into()));
    }

    #[test]
    fn a_copy_loses_its_tag_or_that_is_found() {
        let mut end = linked(&[1, 2]);
        let carry =
            Carry { tag: 3072, exit: Exit::here(PortNo(1)), rewritten: None, delivery: None };
        assert_eq!(
            walk(&copying(3072), &end),
            Err(Trouble::Wrong("a copy arrives at 0x2/1 with its transport tag".to_owned()))
        );
        end.insert(carry_rule(carry));
        assert_eq!(walk(&copying(3072), &end), Ok([(place(2, 1).into(), 1)].into()));
    }

    /// The rules of [`linked`], and one with a fork for frames to `dst`.
    fn forking(dst: MacAddr, kind: ForkKind, ports: &[u32]) -> Desired {
        let ports = ports.iter().map(|port| PortNo(*port)).collect();
        let exit = Exit { port: PortNo(2), beyond: Some(place(2, 1)), spread: None };
        let route = Route { exit, fork: Some(Fork { kind, ports }) };
        let mut desired = linked(&[1, 2]);
        let way = way_rules((HostKey { mac: dst, vlan: None }, route), []);
        way.into_iter().for_each(|rule| desired.insert(rule));
        desired
    }

    #[test]
    fn whatever_is_picked_must_arrive_once() {
        let dst = MacAddr::BROADCAST;
        let mut end = linked(&[1, 2]);
        let way = way_rules((HostKey { mac: dst, vlan: None }, Exit::here(PortNo(1)).into()), []);
        way.into_iter().for_each(|rule| end.insert(rule));
        for kind in [ForkKind::Balance, ForkKind::FailOver] {
            let both = forking(dst, kind, &[2, 3]);
            assert_eq!(walk(&both, &end), Ok([(place(2, 1).into(), 1)].into()));
            let told = walk(&both, &forking(dst, kind, &[3, 2])).unwrap_err().to_string();
            assert!(told.starts_with("a frame loops"), "{told}");
        }
    }

    #[test]
    fn what_arrives_elsewhere_by_one_of_several_ways_is_found() {
        let dst = MacAddr::BROADCAST;
        let both = forking(dst, ForkKind::Balance, &[1, 2]);
        let told = walk(&both, &linked(&[1, 2])).unwrap_err().to_string();
        assert!(told.ends_with("arrives nowhere on one path, at 0x2/1 x1 on another"), "{told}");
    }

    #[test]
    fn what_is_picked_last_is_walked_too_or_that_is_said() {
        let dst = MacAddr::BROADCAST;
        let walk_with = |count, last: &[u32]| {
            let ports = [&vec![2; count], last].concat();
            walk(&forking(dst, ForkKind::Balance, &ports), &linked(&[1, 2]))
        };
        assert_eq!(walk_with(100, &[]), Ok([(place(2, 1).into(), 1)].into()));
        let told = walk_with(100, &[1]).unwrap_err().to_string();
        assert!(told.ends_with("on one path, nowhere on another"), "{told}");
        assert_eq!(walk_with(2000, &[]), Err(Trouble::Unknown(TOO_MANY_WAYS.to_owned())));
    }

    #[test]
    fn all_that_may_be_picked_is_walked() {
        let mut picks = Picks::new(Some(0));
        let mut walks = Vec::new();
        loop {
            let first = picks.next(2);
            // The second choice exists only if the first one is 0.
            walks.push((first, if first == 0 { picks.next(3) } else { 9 }));
            if !picks.advance() {
                break;
            }
        }
        assert_eq!(walks, [(0, 0), (0, 1), (0, 2), (1, 9)]);
    }
}
