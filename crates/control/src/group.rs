//! Copying groups of type ALL: the original path first, then the monitors.
//!
//! A group never changes. For a change a new group is added and the rules are redirected to it; the
//! old one is deleted after its counters were read, so no copy is lost to the ledger.
//!
//! **Each monitor exactly once.** Only monitors that the original path does not reach have a
//! bucket. Flooding reaches every port except those that declare that they take no floods, so the
//! group for flooded frames has further buckets only for these and for the controller; likewise for
//! the destination's port. (Open vSwitch can be configured, outside OpenFlow 1.3, to exclude a port
//! from flooding without such a declaration: the port then gets no copies of flooded frames.)
//!
//! **Shared flows.** Monitors that share flows have a group of type SELECT: at their switch if they
//! are at one, else where copies are made. All switches list them in the same order, so those with
//! the same hash choose alike. If one of them gets each frame anyway, as another policy's own
//! monitor or by the original path, there is no choice: it is that one.
//!
//! **Forks.** If the original path is one of several ports among which the switch chooses, they
//! have a group of their own, of type SELECT or FAST FAILOVER, used by rules that only forward and
//! by the first bucket of copying groups. All hosts behind the same ports share it.
//!
//! **Contracts.** On a tapswitch each copy's bucket carries its contract, also for best effort:
//! without one it would be a forwarding path that makes senders wait. Two policies with one monitor
//! share its bucket, and the stronger contract counts. A frame that reaches the monitor by the
//! original path is the original, and has no contract.

mod ids;
mod target;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tapswitch_openflow::{
    Action, Bucket, Delivery, GroupId, GroupMod, GroupModCommand, GroupType, Oxm, PortNo,
};
use tapswitch_wire::MacAddr;

use crate::exit::{Exit, Flood, Fork, ForkKind, Route, Spread};
use crate::overlap::Member;
use crate::policy::Part;
use crate::tags;
pub(crate) use ids::{GroupIds, is_in_range};
use target::{Target, served};

/// Path of the original frame.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Path {
    /// To its destination.
    To(Route),
    /// From a link to its destination at a port of this switch.
    Back(Back),
    /// Flooded.
    Flood(Flood),
    /// Flooded, and sent to the controller to learn the destination.
    Ask(Flood),
    /// The frame is itself a copy in transit to its monitor.
    Carry(Carry),
    /// One of several ports; the group does nothing else.
    Fork(Fork),
    /// One of several monitors at this switch that share flows.
    Spread(Spread),
    /// The same for monitors at several switches.
    Choice(Choice),
}

/// Exits to monitors at several switches that share flows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Choice {
    /// In the order of the monitors, which is the same at all switches, so that they choose alike.
    pub(crate) exits: Arc<[Exit]>,
    /// As in [`Back`].
    pub(crate) from: Option<PortNo>,
}

/// Frames from a link by which their copies leave: switches do not send to the ingress port unless
/// the output is IN_PORT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Back {
    /// Destination of the original.
    pub(crate) to: Exit,
    /// Port of the link.
    pub(crate) from: PortNo,
}

/// Handling of copies made by other switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Carry {
    /// Their identifier.
    pub(crate) tag: u16,
    pub(crate) exit: Exit,
    /// The destination address to restore at the end, if they have another one in transit.
    pub(crate) rewritten: Option<MacAddr>,
    /// Delivery contract; `None` if the switch does not support it.
    pub(crate) delivery: Option<Delivery>,
}

/// Content of a group, and the policies that it serves.
#[derive(Clone, Debug, Eq)]
pub(crate) struct GroupKey {
    /// Policies whose frames reach it, sorted: each has its own ledger.
    pub(crate) members: Arc<[Member]>,
    pub(crate) path: Path,
}

/// Compares the addresses first: most comparisons are with the same object.
impl PartialEq for GroupKey {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.path == other.path && self.members == other.members
    }
}

/// Hashes what differs in almost all groups, as each copying rule looks its group up several times.
impl Hash for GroupKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for Member { policy, aim, .. } in &*self.members {
            state.write_u64(policy.0);
            state.write_u32(aim.exit.port.0);
        }
        self.path.hash(state);
    }
}

impl GroupKey {
    /// A group that only forks.
    pub(crate) fn forking(fork: Fork) -> Self {
        Self { members: [].into(), path: Path::Fork(fork) }
    }

    /// The groups that its buckets output to, in order of the buckets: at most one each.
    pub(crate) fn next(&self) -> Vec<Self> {
        let fork = match &self.path {
            Path::To(route) => route.fork.clone().map(Self::forking),
            Path::Back(_)
            | Path::Flood(_)
            | Path::Ask(_)
            | Path::Carry(_)
            | Path::Fork(_)
            | Path::Spread(_)
            | Path::Choice(_) => None,
        };
        // Usually there are none, and each new group takes several calls.
        let are_any = self.aims().any(|aims| Target::of(aims).is_several());
        let targets = if are_any { self.own_buckets() } else { Vec::new() };
        let shared = targets.into_iter().filter_map(|target| self.sharing(target));
        fork.into_iter().chain(shared).collect()
    }

    /// The group that chooses one of several monitors.
    fn sharing(&self, target: Target) -> Option<Self> {
        let aims = self.aims().filter(|aims| Target::of(aims) == target);
        let members = aims.flatten().copied().collect();
        let path = match target {
            Target::One(exit) => Path::Spread(exit.spread_here()?),
            Target::OneOf(exits) => {
                Path::Choice(Choice { exits: exits.into(), from: self.came_from() })
            }
        };
        Some(Self { members, path })
    }

    /// Members in chunks that share flows.
    fn aims(&self) -> impl Iterator<Item = &[Member]> {
        self.members.chunk_by(Member::shares_with)
    }

    /// Ingress port, if copies may leave by it.
    const fn came_from(&self) -> Option<PortNo> {
        match &self.path {
            Path::Back(back) => Some(back.from),
            Path::Choice(choice) => choice.from,
            _ => None,
        }
    }

    /// Whether the controller is a monitor.
    pub(crate) fn is_shown(&self) -> bool {
        self.aims().any(|aims| Target::of(aims).is_controller())
    }

    /// Whether it only forks.
    pub(crate) const fn is_fork(&self) -> bool {
        matches!(self.path, Path::Fork(_))
    }

    /// The type of the group.
    pub(crate) const fn group_type(&self) -> GroupType {
        match &self.path {
            Path::Carry(carry) if carry.exit.beyond.is_none() && carry.exit.spread.is_some() => {
                GroupType::Select
            }
            Path::To(_) | Path::Back(_) | Path::Flood(_) | Path::Ask(_) | Path::Carry(_) => {
                GroupType::All
            }
            Path::Fork(Fork { kind: ForkKind::Balance, .. })
            | Path::Spread(_)
            | Path::Choice(_) => GroupType::Select,
            Path::Fork(Fork { kind: ForkKind::FailOver, .. }) => GroupType::FastFailover,
        }
    }

    /// Number of buckets.
    pub(crate) fn bucket_count(&self) -> usize {
        match &self.path {
            Path::Fork(fork) => fork.ports.len(),
            Path::Spread(spread) => spread.ports().len(),
            Path::Choice(choice) => choice.exits.len(),
            Path::Carry(carry) => carry.ports().len(),
            Path::To(_) | Path::Back(_) | Path::Flood(_) | Path::Ask(_) => {
                self.original_count() + self.own_buckets().len()
            }
        }
    }

    /// Number of leading buckets for the original: one for each of its outputs, as a bucket is an
    /// action set with a single output (OpenFlow 1.3.5 §5.6.1, §5.10). A switch that implements it
    /// so, like Open vSwitch, would use the last output only.
    pub(crate) fn original_count(&self) -> usize {
        match &self.path {
            Path::To(_) | Path::Back(_) | Path::Carry(_) | Path::Fork(_) => 1,
            Path::Flood(flood) => flood.ports().len(),
            Path::Ask(flood) => 1 + flood.ports().len(),
            Path::Spread(_) | Path::Choice(_) => 0,
        }
    }

    /// The buckets; `next` are the ids of the groups that they output to.
    pub(crate) fn buckets(&self, next: &[GroupId]) -> Vec<Bucket> {
        let mut next = next.iter().copied().map(Action::Group);
        let path = match &self.path {
            Path::To(route) => {
                let group = route.fork.as_ref().and_then(|_| next.next());
                vec![vec![group.unwrap_or(Action::output(route.exit.port))]]
            }
            Path::Back(back) => vec![vec![Action::output(back.to.port)]],
            Path::Flood(flood) => flood.ports().iter().map(|port| vec![output(*port)]).collect(),
            Path::Ask(flood) => {
                let ports = [PortNo::CONTROLLER].into_iter().chain(flood.ports().iter().copied());
                ports.map(|port| vec![output(port)]).collect()
            }
            Path::Carry(carry) => return carry.buckets(),
            Path::Fork(fork) => return fork.buckets(),
            Path::Spread(spread) => return self.spread_buckets(*spread),
            Path::Choice(choice) => return self.choice_buckets(choice),
        };
        let copies = self.own_buckets().into_iter().map(|target| match target {
            Target::One(exit) if !target.is_several() => self.copy_to(exit, exit.port),
            _ => next.next().into_iter().collect(),
        });
        path.into_iter().chain(copies).map(Bucket::new).collect()
    }

    /// One bucket for each monitor, skipped by the switch while its port has no link.
    fn spread_buckets(&self, spread: Spread) -> Vec<Bucket> {
        let exit = self.members.first().map(|member| member.aim.exit);
        let copy = |port: &PortNo| {
            let actions = exit.map(|exit| self.copy_to(exit, *port)).unwrap_or_default();
            watching(*port, actions)
        };
        spread.ports().iter().map(copy).collect()
    }

    /// One bucket for each exit, skipped by the switch while its port has no link.
    fn choice_buckets(&self, choice: &Choice) -> Vec<Bucket> {
        let copy = |exit: &Exit| watching(exit.port, self.copy_to(*exit, exit.port));
        choice.exits.iter().map(copy).collect()
    }

    /// Actions of the bucket that copies to a monitor.
    fn copy_to(&self, exit: Exit, port: PortNo) -> Vec<Action> {
        let contract = self.contract(exit).map(Delivery::action);
        let tag = self.tag_of(exit);
        let shape = contract.into_iter().chain(self.part(exit).actions(tag.map_or(0, tags::len)));
        let out = if self.came_from() == Some(port) { PortNo::IN_PORT } else { port };
        shape.chain(tag.into_iter().flat_map(tags::mark)).chain([output(out)]).collect()
    }

    /// For each policy's monitor: the exit of its copies, and the bucket that counts them. Copies
    /// for monitors that share flows are counted by the group that chooses one.
    pub(crate) fn bucket_of_each(&self) -> Vec<(Member, Exit, usize)> {
        if let Path::Spread(spread) = &self.path {
            let ports = || (0..).zip(spread.ports());
            let of = |member: &Member| {
                let member = *member;
                ports().map(move |(bucket, port)| (member, Exit::here(*port), bucket))
            };
            return self.members.iter().flat_map(of).collect();
        }
        if let Path::Choice(choice) = &self.path {
            let of = |member: &Member| {
                let exit = member.aim.exit;
                let bucket = choice.exits.iter().position(|other| *other == exit)?;
                Some((*member, exit, bucket))
            };
            return self.members.iter().filter_map(of).collect();
        }
        let (own, first) = (self.own_buckets(), self.original_count());
        let of = |aims: &[Member]| {
            let target = Target::of(aims);
            match own.binary_search(&target) {
                Ok(_) if target.is_several() => None,
                Ok(at) => aims.first().map(|member| (*member, member.aim.exit, first + at)),
                Err(_) => match self.served_by(&target) {
                    Some(exit) => {
                        let at = own.binary_search(&Target::One(exit)).ok()?;
                        served(aims, exit).map(|member| (member, exit, first + at))
                    }
                    // The original reaches it, or one of several.
                    None => self
                        .reached_by_original(aims)
                        .map(|(member, exit)| (member, exit, self.original_to(exit.port))),
                },
            }
        };
        self.aims().filter_map(of).collect()
    }

    /// The monitor that the original reaches, and the exit of the original.
    fn reached_by_original(&self, aims: &[Member]) -> Option<(Member, Exit)> {
        let original = self.original();
        let is_there = |member: &&Member| {
            original.map_or(!member.aim.is_sink, |to| member.aim.exit.is_reached_by(to))
        };
        let member = *aims.iter().find(is_there).or(aims.first())?;
        let exit = member.aim.exit;
        Some((member, exit.spread_here().and(original).unwrap_or(exit)))
    }

    /// The bucket by which the original leaves by `port`; the first if that is unknown.
    fn original_to(&self, port: PortNo) -> usize {
        let flooded = match &self.path {
            Path::Flood(flood) => flood.ports(),
            _ => &[],
        };
        flooded.iter().position(|flooded| *flooded == port).unwrap_or(0)
    }

    /// The identifier of the copies in transit, if it carries them.
    pub(crate) const fn carried_tag(&self) -> Option<u16> {
        match &self.path {
            Path::Carry(carry) => Some(carry.tag),
            Path::To(_)
            | Path::Back(_)
            | Path::Flood(_)
            | Path::Ask(_)
            | Path::Fork(_)
            | Path::Spread(_)
            | Path::Choice(_) => None,
        }
    }

    /// Exit of the original, if there is a single one.
    const fn original(&self) -> Option<Exit> {
        match &self.path {
            Path::To(route) => Some(route.exit),
            Path::Back(back) => Some(back.to),
            _ => None,
        }
    }

    /// Ports by which copies in transit leave, in order of the buckets.
    pub(crate) fn carry_ports(&self) -> Vec<PortNo> {
        match &self.path {
            Path::Carry(carry) => carry.ports(),
            _ => Vec::new(),
        }
    }

    /// The group-mod that adds the group; `next` are the groups that it outputs to.
    pub(crate) fn add(&self, group_id: GroupId, next: &[GroupId]) -> GroupMod {
        GroupMod {
            command: GroupModCommand::Add,
            group_type: self.group_type(),
            group_id,
            buckets: self.buckets(next),
        }
    }

    /// Identifier of the copies that leave by this exit: that of the first policy with such copies.
    pub(crate) fn tag_of(&self, exit: Exit) -> Option<u16> {
        self.members_to(exit).next().map(|member| member.aim.tag).filter(|tag| *tag != 0)
    }

    /// Members whose copies have a bucket of their own for this exit, or one in this group's
    /// choice.
    fn members_to(&self, exit: Exit) -> impl Iterator<Item = &Member> {
        let picks = matches!(self.path, Path::Choice(_));
        let aims = self.aims().filter(move |aims| picks || aims.len() == 1);
        aims.flatten().filter(move |member| member.aim.exit == exit)
    }

    /// The same, and members that share flows of which this exit is one.
    fn members_served(&self, exit: Exit) -> impl Iterator<Item = &Member> {
        let is_served = move |aims: &&[Member]| {
            let target = Target::of(aims);
            target.is_shared() && self.served_by(&target) == Some(exit)
        };
        let several = self.aims().filter(is_served).filter_map(<[_]>::first);
        self.members_to(exit).chain(several)
    }

    /// Contract of the copies to this exit: the strongest of its policies.
    fn contract(&self, exit: Exit) -> Option<Delivery> {
        let members = self.members_served(exit);
        members.filter_map(|member| member.delivery).reduce(Delivery::or_stronger)
    }

    /// Part of each frame that a monitor gets: the largest of its policies.
    fn part(&self, exit: Exit) -> Part {
        let members = self.members_served(exit);
        members.map(|member| member.part).reduce(Part::or_more).unwrap_or_default()
    }

    /// Monitors with a bucket, sorted and unique.
    fn own_buckets(&self) -> Vec<Target> {
        let mut own = self.unreached();
        if own.iter().any(Target::is_shared) {
            own.retain(|target| self.served_by(target).is_none());
        }
        own
    }

    /// Of monitors that share flows, the one that gets each frame anyway: it has a bucket of its
    /// own.
    fn served_by(&self, target: &Target) -> Option<Exit> {
        let unreached = self.unreached();
        let is_wanted = target.is_shared() && unreached.binary_search(target).is_ok();
        let mut own = unreached.iter().filter_map(Target::alone);
        own.find(|exit| is_wanted && target.is_reached_by(*exit))
    }

    /// Monitors that the path does not reach, sorted and unique.
    fn unreached(&self) -> Vec<Target> {
        let is_reached = |aims: &[Member]| match &self.path {
            Path::To(Route { exit, .. }) | Path::Back(Back { to: exit, .. }) => {
                Target::of(aims).is_reached_by(*exit)
            }
            Path::Ask(_) => Target::of(aims).is_controller(),
            Path::Flood(_) => aims.iter().any(|member| !member.aim.is_sink),
            Path::Carry(_) | Path::Fork(_) | Path::Spread(_) | Path::Choice(_) => true,
        };
        let unreached = self.aims().filter(|aims| !is_reached(aims));
        let mut own: Vec<_> = unreached.map(Target::of).collect();
        own.sort_unstable();
        own.dedup();
        own
    }
}

impl Fork {
    /// One bucket for each port, skipped by the switch while the port has no link.
    fn buckets(&self) -> Vec<Bucket> {
        let weight = u16::from(self.kind == ForkKind::Balance);
        let bucket = |port: &PortNo| watching(*port, vec![Action::output(*port)]);
        self.ports.iter().map(|port| Bucket { weight, ..bucket(port) }).collect()
    }
}

impl Carry {
    /// The contract that satisfies both, where policies share an identifier.
    pub(crate) fn stronger(&self, other: &Self) -> Option<Delivery> {
        self.delivery.zip(other.delivery).map(|(one, other)| one.or_stronger(other))
    }

    /// To the next switch unchanged; or in original form to the monitor, or to one of several.
    fn buckets(&self) -> Vec<Bucket> {
        let bucket = |port: &PortNo| match self.exit.spread_here() {
            Some(_) => watching(*port, self.actions(*port)),
            None => Bucket::new(self.actions(*port)),
        };
        self.ports().iter().map(bucket).collect()
    }

    fn ports(&self) -> Vec<PortNo> {
        let spread = self.exit.spread_here();
        spread.map_or_else(|| vec![self.exit.port], |spread| spread.ports().to_vec())
    }

    fn actions(&self, port: PortNo) -> Vec<Action> {
        let contract = self.delivery.map(Delivery::action);
        let is_end = self.exit.beyond.is_none();
        let undo = match self.rewritten {
            None => Action::PopVlan,
            Some(mac) => Action::SetField(Oxm::EthDst(mac.into())),
        };
        contract.into_iter().chain(is_end.then_some(undo)).chain([Action::output(port)]).collect()
    }
}

/// A bucket that is skipped while its port has no link.
fn watching(port: PortNo, actions: Vec<Action>) -> Bucket {
    Bucket { weight: 1, watch_port: port, ..Bucket::new(actions) }
}

/// Output to a port. The controller gets the start of the frame.
const fn output(port: PortNo) -> Action {
    let is_controller = port.0 == PortNo::CONTROLLER.0;
    if is_controller { Action::Output { port, max_len: SHOWN_LEN } } else { Action::output(port) }
}

/// The group-mod that deletes a group.
pub(crate) const fn delete(group_id: GroupId) -> GroupMod {
    let (command, group_type) = (GroupModCommand::Delete, GroupType::All);
    GroupMod { command, group_type, group_id, buckets: Vec::new() }
}

/// Bytes of a copy sent to the controller for display: headers and some payload.
const SHOWN_LEN: u16 = 256;

#[cfg(test)]
mod tests;
