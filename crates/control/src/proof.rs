//! Proof before apply: frames are walked through the rules that switches shall have, from port to
//! port over all links, and must arrive where they should.
//!
//! **What is walked.** For each region that policies are about, and for each that several of them
//! have in common, a frame that lies in it, from a host of each switch, to a host of each switch,
//! to an address that nobody has, and to all; with a tag that says a priority and no VLAN, too.
//! Rules look at nothing else, so what holds for that frame holds for all frames like it.
//!
//! **What switches pick.** Where one picks one of several ways itself, all that it may pick are
//! walked: by any of them frames must arrive at the same places. A way that is picked only when
//! another has no link is walked without that link.
//!
//! **What is checked.** Without the rules that copy, frames arrive as before the change. With
//! it, they arrive at the same ports and once at each monitor of the policies that they match,
//! without a tag of ours, for the address that they were sent to, with their own tag or without as
//! those policies say, and nowhere else. No frame goes round.
//!
//! **What is not known.** A switch that is away, or is being read, is where frames are lost sight
//! of: the same ones must come there as before. Nothing is said of copies that pass it, nor of
//! frames that meet a rule which their switch is known to lack.

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

/// Switches by what they shall hold, and what is between them.
pub(crate) trait Network {
    /// The rules of a switch; none where it is not known what becomes of frames.
    fn rules(&self, switch: DatapathId) -> Option<&Desired>;
    /// That a switch does not hold one of its rules, if that is known.
    fn lacks(&self, switch: DatapathId, rule: &FlowId) -> Option<String>;
    /// The ports of a switch where floods go.
    fn flooded(&self, switch: DatapathId) -> Vec<PortNo>;
    /// The other end of a link.
    fn peer(&self, at: Place) -> Option<Place>;
    /// How many switches there are.
    fn switch_count(&self) -> usize;
}

/// A network that frames are walked through, until so much was looked at as may be.
pub(crate) struct Model<'a> {
    network: &'a dyn Network,
    /// How often a switch may still be passed.
    passes_left: &'a Cell<usize>,
    known: Known,
}

/// What one switch does.
struct Passage<'a> {
    network: &'a dyn Network,
    rules: &'a Desired,
    /// Where the frame comes in.
    at: Place,
}

/// A frame on its way: what becomes of the fields that rules change.
#[derive(Clone, Debug)]
struct Frame<'a> {
    /// As it was sent.
    sent: &'a Sample,
    dst: MacAddr,
    vlan: Option<u16>,
    /// Tags of ours, the outermost one last.
    tags: Vec<u16>,
}

/// Where a frame arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival {
    pub(crate) place: Place,
    /// It had a tag when it was sent, and has none any more.
    pub(crate) is_stripped: bool,
}

impl From<Place> for Arrival {
    fn from(place: Place) -> Self {
        Self { place, is_stripped: false }
    }
}

/// Where a frame arrives, and how many times.
pub(crate) type Arrivals = Result<BTreeMap<Arrival, usize>, Trouble>;

/// Why that cannot be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It goes where none should.
    Wrong(String),
    /// It is not known where it goes.
    Unknown(String),
    /// That is not known yet: a switch is not there, or is just being told.
    Early(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Wrong(reason) | Self::Unknown(reason) | Self::Early(reason)) = self;
        f.write_str(reason)
    }
}

impl<'a> Model<'a> {
    /// The model of a network, in which switches may be passed so often.
    pub(crate) fn new(network: &'a dyn Network, passes_left: &'a Cell<usize>) -> Self {
        Self { network, passes_left, known: Known::default() }
    }

    /// Where the frame arrives that comes in there, whatever switches pick. With copies: of
    /// monitors that share flows, the one with this number, counted in a ring. What is known of
    /// another frame counts as if this one were followed.
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

    /// What a frame meets where it comes in, among the rules that copy.
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
            // With a link gone it may be lost, until the controller turns the way.
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
                    // There it is lost sight of.
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

    /// What one switch sends where.
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

    /// The actions of each bucket of a group that is carried out, and of those that it goes on to.
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

    /// The port that a switch picks.
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

/// What switches pick on one walk. Another one follows until all of it was picked.
struct Picks {
    /// What was picked, of how many, in the order of the walk.
    taken: Vec<(usize, usize)>,
    at: usize,
    /// Which of monitors that share flows gets a copy; with copies, no link goes.
    copies: Option<usize>,
    /// The link that is gone, by one of its ends.
    dead: Option<Place>,
    /// The frame has left the switch where it came in.
    is_on_way: bool,
    /// What became of it says nothing of others.
    is_single: bool,
}

impl Picks {
    const fn new(copies: Option<usize>) -> Self {
        let (is_on_way, is_single) = (false, false);
        Self { taken: Vec::new(), at: 0, copies, dead: None, is_on_way, is_single }
    }

    /// Picks one of so many.
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

    /// Starts another walk, on which something else is picked, if there is something.
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

    /// Which of so many buckets of a group are carried out.
    fn of(&self, key: &GroupKey, count: usize) -> Range<usize> {
        match &key.path {
            Path::Carry(_) | Path::Spread(_) | Path::Choice(_) => {
                let picked = self.copies.unwrap_or(0) % count.max(1);
                picked..count.min(picked + 1)
            }
            // The controller is asked, and not meant to get a copy.
            Path::Ask(_) if !key.is_shown() => count.min(1)..count,
            Path::To(_) | Path::Back(_) | Path::Flood(_) | Path::Ask(_) | Path::Fork(_) => 0..count,
        }
    }

    /// Whether a link may go on this walk: one at most does.
    const fn may_cut(&self) -> bool {
        self.copies.is_none() && self.dead.is_none()
    }

    fn is_dead(&self, at: Place) -> bool {
        self.dead == Some(at)
    }
}

/// Walks of one frame.
const MAX_PICKS: usize = 1024;
/// Why nothing is said of a frame when so much was looked at as may be.
const TOO_MANY_WAYS: &str = "its frames have too many possible paths";

impl<'a> Passage<'a> {
    /// The rule that a frame meets. Where the switch lacks it the frame meets another one, and
    /// nobody knows which; others that are lacking change nothing for it.
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

    /// All ports but that of arrival.
    fn output<'f>(&self, flood: &Flood, frame: &Frame<'f>) -> Vec<(PortNo, Frame<'f>)> {
        let ports: Vec<_> = match flood {
            Flood::All => self.network.flooded(self.at.switch),
            Flood::Ports(ports) => ports.to_vec(),
        };
        let others = ports.into_iter().filter(|port| *port != self.at.port);
        others.map(|port| (port, frame.clone())).collect()
    }

    /// What a bucket sends. It is a set of actions: of several outputs, a switch may carry out the
    /// last one alone (OpenFlow 1.3.5 §5.10).
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
                // Contracts say nothing of where copies go.
                _ => {}
            }
        }
        out
    }
}

impl<'a> Frame<'a> {
    /// As a host sends it.
    const fn of(sent: &'a Sample) -> Self {
        Self { sent, dst: sent.dst, vlan: sent.vlan, tags: Vec::new() }
    }

    /// Loses the outermost tag, if there is one.
    fn pop(&mut self) {
        if self.tags.pop().is_none() {
            self.vlan = None;
        }
    }

    /// Leaves the fabric there.
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

/// That frames are lost sight of at a switch.
pub(crate) fn lost_at(switch: DatapathId) -> String {
    let name = switch_name(switch);
    format!("switch {name} is not connected, or not taken over yet")
}

/// Places, and how often a frame arrives there.
pub(crate) fn text(arrivals: &BTreeMap<Arrival, usize>) -> String {
    let text = |(arrival, count): (&Arrival, &usize)| {
        let form = if arrival.is_stripped { " without its tag" } else { "" };
        format!("{}{form} x{count}", arrival.place)
    };
    let texts: Vec<_> = arrivals.iter().map(text).collect();
    if texts.is_empty() { "nowhere".to_owned() } else { format!("at {}", texts.join(", ")) }
}

/// A frame as rules see it.
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
            // What no sample has.
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

    /// The rules of a switch whose port 1 is an edge, and whose ports 2 and 3 are links.
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

    /// Two switches that are linked by their ports 2 and 3.
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

    /// The rules of [`linked`], and one that forks what goes to `dst`.
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
            // The second one has a choice only after the first took the one.
            walks.push((first, if first == 0 { picks.next(3) } else { 9 }));
            if !picks.advance() {
                break;
            }
        }
        assert_eq!(walks, [(0, 0), (0, 1), (0, 2), (1, 9)]);
    }
}
