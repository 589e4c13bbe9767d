//! Groups that copy: type ALL, the original path first, then the monitors.
//!
//! A group never changes. What would have to change gets a new group, the rules are pointed there,
//! and the old one goes after its counters were read: no copy is lost to the ledger.
//!
//! **Each monitor exactly once.** A bucket exists for each monitor that the original path does not
//! reach anyway. Flooding reaches every port that does not say otherwise, so the group of what is
//! flooded has other buckets only for those that do, and for the controller; the same holds for the
//! port of the destination. (Open vSwitch can be told, beyond OpenFlow 1.3, to leave a port out of
//! flooding without saying so: such a port gets no copies of what is flooded.)
//!
//! **Shared flows.** Where several monitors share flows, that is a group of type SELECT: with those
//! of one switch there, with those of several where copies are made. All switches name them in the
//! same order, so those that pick by the same hash share alike. Where one of them gets each frame
//! anyway, as another policy's own monitor or by the original path, none is picked: that is the
//! one.
//!
//! **Forks.** Where the original path is one of several ports that the switch picks itself, that is
//! a group of its own, of type SELECT or FAST FAILOVER: rules that only forward name it, and the
//! first bucket of a group that copies, too. All hosts behind the same ports share it.
//!
//! **Contracts.** On a switch of ours each copy's bucket says what the copy is owed, also when that
//! is best effort: without a word it would be a path for which senders wait. Two policies with one
//! monitor share its bucket, and the stronger contract counts. What reaches the monitor along the
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

/// Where a frame goes without any TAP.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Path {
    /// To its destination.
    To(Route),
    /// To its destination at a port of the switch, from another switch.
    Back(Back),
    /// Everywhere.
    Flood(Flood),
    /// Everywhere where nobody knows better, and the controller is asked for the way.
    Ask(Flood),
    /// It is itself a copy, on its way to the monitor.
    Carry(Carry),
    /// Out of one of several ports; the group does nothing else.
    Fork(Fork),
    /// A copy for monitors that share flows, to one of them.
    Spread(Spread),
    /// The same for monitors at several switches.
    Choice(Choice),
}

/// Ways to monitors at several switches that share flows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Choice {
    /// In the order of the monitors, which is the same at all switches: so they share alike.
    pub(crate) exits: Arc<[Exit]>,
    /// As in [`Back`].
    pub(crate) from: Option<PortNo>,
}

/// Frames from a link that copies leave by, too: switches send nothing out of the port where it
/// came in, unless they are told just that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Back {
    /// Where the original goes.
    pub(crate) to: Exit,
    /// The port of the link.
    pub(crate) from: PortNo,
}

/// What a switch does with copies that others send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Carry {
    /// The identifier that they have.
    pub(crate) tag: u16,
    pub(crate) exit: Exit,
    /// The address that they get back at the end, if they have another one on the way.
    pub(crate) rewritten: Option<MacAddr>,
    /// What they are owed; none where the switch has no word for it.
    pub(crate) delivery: Option<Delivery>,
}

/// What a group does, and for whom.
#[derive(Clone, Debug, Eq)]
pub(crate) struct GroupKey {
    /// The policies whose frames reach it: each has its own ledger. In the order of policies.
    pub(crate) members: Arc<[Member]>,
    pub(crate) path: Path,
}

/// Mostly it is compared with itself.
impl PartialEq for GroupKey {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.path == other.path && self.members == other.members
    }
}

/// By what tells almost all groups apart: each rule that copies asks for its group several times.
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
    /// What only forks.
    pub(crate) fn forking(fork: Fork) -> Self {
        Self { members: [].into(), path: Path::Fork(fork) }
    }

    /// The groups that its buckets go on to, in their order: one bucket to one group.
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
        // Mostly there are none, and it is asked for each new group several times.
        let are_any = self.aims().any(|aims| Target::of(aims).is_several());
        let targets = if are_any { self.own_buckets() } else { Vec::new() };
        let shared = targets.into_iter().filter_map(|target| self.sharing(target));
        fork.into_iter().chain(shared).collect()
    }

    /// The group that picks one of several monitors.
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

    /// The members, those together whose monitors share flows.
    fn aims(&self) -> impl Iterator<Item = &[Member]> {
        self.members.chunk_by(Member::shares_with)
    }

    /// The port where frames came in, where copies may go back.
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

    /// How it picks buckets.
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

    /// How many buckets it has.
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

    /// How many of its first buckets are the way of the original: one for each place that it goes
    /// to, for a bucket is a set of actions and has one output (OpenFlow 1.3.5 §5.6.1, §5.10). A
    /// switch that takes it so, as Open vSwitch does, sends by the last one alone.
    pub(crate) fn original_count(&self) -> usize {
        match &self.path {
            Path::To(_) | Path::Back(_) | Path::Carry(_) | Path::Fork(_) => 1,
            Path::Flood(flood) => flood.ports().len(),
            Path::Ask(flood) => 1 + flood.ports().len(),
            Path::Spread(_) | Path::Choice(_) => 0,
        }
    }

    /// Its buckets, where the groups that it goes on to have these numbers.
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

    /// One for each monitor, which a switch passes by while its port has no link.
    fn spread_buckets(&self, spread: Spread) -> Vec<Bucket> {
        let exit = self.members.first().map(|member| member.aim.exit);
        let copy = |port: &PortNo| {
            let actions = exit.map(|exit| self.copy_to(exit, *port)).unwrap_or_default();
            watching(*port, actions)
        };
        spread.ports().iter().map(copy).collect()
    }

    /// One for each way, which a switch passes by while its port has no link.
    fn choice_buckets(&self, choice: &Choice) -> Vec<Bucket> {
        let copy = |exit: &Exit| watching(exit.port, self.copy_to(*exit, exit.port));
        choice.exits.iter().map(copy).collect()
    }

    /// The actions of the bucket that copies to a monitor.
    fn copy_to(&self, exit: Exit, port: PortNo) -> Vec<Action> {
        let contract = self.contract(exit).map(Delivery::action);
        let tag = self.tag_of(exit);
        let shape = contract.into_iter().chain(self.part(exit).actions(tag.map_or(0, tags::len)));
        let out = if self.came_from() == Some(port) { PortNo::IN_PORT } else { port };
        shape.chain(tag.into_iter().flat_map(tags::mark)).chain([output(out)]).collect()
    }

    /// Each policy's monitor, where copies to it leave, and the bucket that counts them. Copies for
    /// monitors that share flows are counted by the group that picks one.
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
                    // The original is with it, or with one of several.
                    None => self
                        .reached_by_original(aims)
                        .map(|(member, exit)| (member, exit, self.original_to(exit.port))),
                },
            }
        };
        self.aims().filter_map(of).collect()
    }

    /// The monitor that has the original, and where that left.
    fn reached_by_original(&self, aims: &[Member]) -> Option<(Member, Exit)> {
        let original = self.original();
        let is_there = |member: &&Member| {
            original.map_or(!member.aim.is_sink, |to| member.aim.exit.is_reached_by(to))
        };
        let member = *aims.iter().find(is_there).or(aims.first())?;
        let exit = member.aim.exit;
        Some((member, exit.spread_here().and(original).unwrap_or(exit)))
    }

    /// The bucket by which the original leaves by `port`; the first, where that is not told.
    fn original_to(&self, port: PortNo) -> usize {
        let flooded = match &self.path {
            Path::Flood(flood) => flood.ports(),
            _ => &[],
        };
        flooded.iter().position(|flooded| *flooded == port).unwrap_or(0)
    }

    /// The identifier of the copies of others that it carries, if it does.
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

    /// Where the original goes, if that is to one place.
    const fn original(&self) -> Option<Exit> {
        match &self.path {
            Path::To(route) => Some(route.exit),
            Path::Back(back) => Some(back.to),
            _ => None,
        }
    }

    /// The ports that copies of others leave by, each by its bucket.
    pub(crate) fn carry_ports(&self) -> Vec<PortNo> {
        match &self.path {
            Path::Carry(carry) => carry.ports(),
            _ => Vec::new(),
        }
    }

    /// The group-mod that adds the group, which goes on to `next`.
    pub(crate) fn add(&self, group_id: GroupId, next: &[GroupId]) -> GroupMod {
        GroupMod {
            command: GroupModCommand::Add,
            group_type: self.group_type(),
            group_id,
            buckets: self.buckets(next),
        }
    }

    /// The identifier of copies that leave this way: that of the first policy which wants them.
    pub(crate) fn tag_of(&self, exit: Exit) -> Option<u16> {
        self.members_to(exit).next().map(|member| member.aim.tag).filter(|tag| *tag != 0)
    }

    /// Those whose copies have a bucket of their own for this way, or one of this group's choice.
    fn members_to(&self, exit: Exit) -> impl Iterator<Item = &Member> {
        let picks = matches!(self.path, Path::Choice(_));
        let aims = self.aims().filter(move |aims| picks || aims.len() == 1);
        aims.flatten().filter(move |member| member.aim.exit == exit)
    }

    /// The same, and those of several monitors of which this is one.
    fn members_served(&self, exit: Exit) -> impl Iterator<Item = &Member> {
        let is_served = move |aims: &&[Member]| {
            let target = Target::of(aims);
            target.is_shared() && self.served_by(&target) == Some(exit)
        };
        let several = self.aims().filter(is_served).filter_map(<[_]>::first);
        self.members_to(exit).chain(several)
    }

    /// What copies to this monitor are owed: the most that one of their policies asks for.
    fn contract(&self, exit: Exit) -> Option<Delivery> {
        let members = self.members_served(exit);
        members.filter_map(|member| member.delivery).reduce(Delivery::or_stronger)
    }

    /// How much a monitor gets of each frame: the most that one of their policies asks for.
    fn part(&self, exit: Exit) -> Part {
        let members = self.members_served(exit);
        members.map(|member| member.part).reduce(Part::or_more).unwrap_or_default()
    }

    /// The monitors that have a bucket, each once, in order.
    fn own_buckets(&self) -> Vec<Target> {
        let mut own = self.unreached();
        if own.iter().any(Target::is_shared) {
            own.retain(|target| self.served_by(target).is_none());
        }
        own
    }

    /// Of several monitors, the one that gets each frame anyway: it has a bucket of its own.
    fn served_by(&self, target: &Target) -> Option<Exit> {
        let unreached = self.unreached();
        let is_wanted = target.is_shared() && unreached.binary_search(target).is_ok();
        let mut own = unreached.iter().filter_map(Target::alone);
        own.find(|exit| is_wanted && target.is_reached_by(*exit))
    }

    /// The monitors that the path does not reach, each once, in order.
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
    /// One for each port, which a switch passes by while the port has no link.
    fn buckets(&self) -> Vec<Bucket> {
        let weight = u16::from(self.kind == ForkKind::Balance);
        let bucket = |port: &PortNo| watching(*port, vec![Action::output(*port)]);
        self.ports.iter().map(|port| Bucket { weight, ..bucket(port) }).collect()
    }
}

impl Carry {
    /// What copies are owed for which the other one holds as well: where policies share an
    /// identifier, the stronger contract counts.
    pub(crate) fn stronger(&self, other: &Self) -> Option<Delivery> {
        self.delivery.zip(other.delivery).map(|(one, other)| one.or_stronger(other))
    }

    /// On to the next switch as they are, or as they were made to the monitor, or one of several.
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

/// A bucket that is passed by while its port has no link.
fn watching(port: PortNo, actions: Vec<Action>) -> Bucket {
    Bucket { weight: 1, watch_port: port, ..Bucket::new(actions) }
}

/// Sends it out of a port. The controller gets the start.
const fn output(port: PortNo) -> Action {
    let is_controller = port.0 == PortNo::CONTROLLER.0;
    if is_controller { Action::Output { port, max_len: SHOWN_LEN } } else { Action::output(port) }
}

/// The group-mod that deletes a group.
pub(crate) const fn delete(group_id: GroupId) -> GroupMod {
    let (command, group_type) = (GroupModCommand::Delete, GroupType::All);
    GroupMod { command, group_type, group_id, buckets: Vec::new() }
}

/// Bytes of a copy that the controller gets, to show them: headers, and a glance at the rest.
const SHOWN_LEN: u16 = 256;

#[cfg(test)]
mod tests;
