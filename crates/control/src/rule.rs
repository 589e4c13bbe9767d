//! Rules of a switch: identity, outcome and ownership.
//!
//! OpenFlow identifies a rule by table, priority and match, so [`FlowId`] is these three in a
//! canonical form: two matches that a switch treats as equal are equal values.
//!
//! **Ownership.** Each of our rules has [`MARK`] in the upper 16 bits of its cookie, then its kind,
//! then a hash of the names of its policies. Rules without the mark are never changed or deleted,
//! except that OpenFlow cannot keep two rules of the same table, priority and match: ours replaces
//! the other.

use std::fmt::{Display, Formatter};
use std::hash::{Hash, Hasher};

use tapswitch_openflow::{
    Action, FlowMod, FlowModCommand, FlowModFlags, GroupId, Instruction, Masked, Match, Oxm,
    PortNo, TableId,
};
use tapswitch_wire::MacAddr;

use crate::exit::Flood;
use crate::hash::hash_of;

/// Identity of a rule.
#[derive(Clone, Debug, Eq)]
pub(crate) struct FlowId {
    pub(crate) table: TableId,
    pub(crate) priority: u16,
    /// In canonical form.
    matching: Match,
    /// Hash of the fields above, as each change takes several lookups.
    hash: u64,
}

impl FlowId {
    pub(crate) fn new(table: TableId, priority: u16, matching: Match) -> Self {
        let matching = canonical(matching);
        let hash = hash_of(&(table, priority, &matching.fields));
        Self { table, priority, matching, hash }
    }

    pub(crate) const fn matching(&self) -> &Match {
        &self.matching
    }

    /// The flow-mod that deletes the rule if it is ours.
    pub(crate) fn delete(&self) -> FlowMod {
        FlowMod {
            cookie: MARK << MARK_SHIFT,
            cookie_mask: MARK_MASK,
            table_id: self.table,
            priority: self.priority,
            match_fields: self.matching.clone(),
            ..FlowMod::new(FlowModCommand::DeleteStrict)
        }
    }
}

impl Display for FlowId {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { table, priority, matching, .. } = self;
        write!(f, "table {}, priority {priority}", table.0)?;
        match matching.fields.is_empty() {
            true => Ok(()),
            false => write!(f, ", {matching}"),
        }
    }
}

/// Compares the addresses and hashes first: most comparisons are with the same object, or with one
/// of another hash.
impl PartialEq for FlowId {
    fn eq(&self, other: &Self) -> bool {
        let parts = |id: &Self| (id.hash, id.table, id.priority);
        std::ptr::eq(self, other) || parts(self) == parts(other) && self.matching == other.matching
    }
}

impl Hash for FlowId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Kind of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub(crate) enum Kind {
    /// One that every switch has.
    Base = 1,
    /// Recognises a host at its port.
    Source = 2,
    /// Forwards to a host.
    Destination = 3,
    /// For a port with a link, or a closed one.
    Port = 4,
    /// Copies in transit or at their last switch.
    Carry = 5,
    /// Copies frames to any destination.
    TapAnywhere = TAP_BIT | 1,
    /// Copies frames to one host.
    TapHost = TAP_BIT | 2,
}

impl Kind {
    /// Whether the switch sends flow-removed with the last counters.
    const fn is_reported(self) -> bool {
        matches!(self, Self::Source | Self::TapAnywhere | Self::TapHost)
    }
}

/// Cookie of a rule: owner, kind, and hash of the policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cookie(pub(crate) u64);

impl Cookie {
    /// The cookie of a rule of this kind; `number` helps people to tell rules apart.
    pub(crate) const fn new(kind: Kind, number: u32) -> Self {
        Self(MARK << MARK_SHIFT | (kind as u64) << KIND_SHIFT | number as u64)
    }

    /// The number given to [`Self::new`].
    #[expect(clippy::cast_possible_truncation, reason = "it is the lower half")]
    pub(crate) const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Whether the rule is ours.
    pub(crate) const fn is_ours(self) -> bool {
        self.0 & MARK_MASK == MARK << MARK_SHIFT
    }

    /// Whether the rule is ours and of this kind.
    pub(crate) const fn is(self, kind: Kind) -> bool {
        self.0 >> KIND_SHIFT == Self::new(kind, 0).0 >> KIND_SHIFT
    }
}

/// What a rule does. `G` names a group: by its content, or by its id on a switch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome<G> {
    /// Drops the frame.
    Drop,
    /// Continues in the table that copies.
    Admit,
    /// Continues in the table that forwards.
    Forward,
    /// Sends the start of the frame to the controller, and continues in the table that copies.
    Report,
    /// Sends the start of the frame to the controller only.
    Show,
    /// Sends the frame to a port.
    Output(PortNo),
    /// Floods the frame.
    Flood(Flood),
    /// Sends the start of the frame to the controller, and floods the frame.
    Ask(Flood),
    /// Processes the frame by a group.
    Group(G),
}

impl<G> Outcome<G> {
    /// The same with another identifier of the group.
    pub(crate) fn map_group<H>(&self, name: impl FnOnce(&G) -> H) -> Outcome<H> {
        match self {
            Self::Drop => Outcome::Drop,
            Self::Admit => Outcome::Admit,
            Self::Forward => Outcome::Forward,
            Self::Report => Outcome::Report,
            Self::Show => Outcome::Show,
            Self::Output(port) => Outcome::Output(*port),
            Self::Flood(flood) => Outcome::Flood(flood.clone()),
            Self::Ask(flood) => Outcome::Ask(flood.clone()),
            Self::Group(group) => Outcome::Group(name(group)),
        }
    }
}

impl Outcome<GroupId> {
    /// The OpenFlow instructions.
    pub(crate) fn instructions(&self) -> Vec<Instruction> {
        let apply = |action| Instruction::ApplyActions(vec![action]);
        let admit = Instruction::GotoTable(TAPS);
        match self {
            Self::Drop => vec![],
            Self::Admit => vec![admit],
            Self::Forward => vec![Instruction::GotoTable(FORWARD)],
            Self::Report => vec![apply(REPORT), admit],
            Self::Show => vec![apply(REPORT)],
            Self::Output(port) => vec![apply(Action::output(*port))],
            Self::Flood(flood) => {
                let outputs = flood.ports().iter().map(|port| Action::output(*port));
                vec![Instruction::ApplyActions(outputs.collect())]
            }
            Self::Ask(flood) => {
                let outputs = flood.ports().iter().map(|port| Action::output(*port));
                vec![Instruction::ApplyActions([REPORT].into_iter().chain(outputs).collect())]
            }
            Self::Group(group) => vec![apply(Action::Group(*group))],
        }
    }

    /// Decodes instructions; `None` for anything that we never send.
    pub(crate) fn read(instructions: &[Instruction]) -> Option<Self> {
        match instructions {
            [] => Some(Self::Drop),
            [Instruction::GotoTable(TAPS)] => Some(Self::Admit),
            [Instruction::GotoTable(FORWARD)] => Some(Self::Forward),
            [Instruction::ApplyActions(actions), Instruction::GotoTable(TAPS)] => {
                (*actions == [REPORT]).then_some(Self::Report)
            }
            [Instruction::ApplyActions(actions)] => match actions.as_slice() {
                [REPORT] => Some(Self::Show),
                [Action::Output { port: PortNo::FLOOD, .. }] => Some(Self::Flood(Flood::All)),
                [Action::Output { port, .. }] => Some(Self::Output(*port)),
                [Action::Group(group)] => Some(Self::Group(*group)),
                [REPORT, flood @ ..] => read_outputs(flood).map(Self::Ask),
                several => read_outputs(several).filter(|_| several.len() > 1).map(Self::Flood),
            },
            _ => None,
        }
    }
}

impl<G> Outcome<G> {
    /// Flooding in its simplest OpenFlow form, so that it compares equal when read back from a
    /// switch.
    pub(crate) fn flood(flood: &Flood) -> Self {
        match flood {
            Flood::Ports(ports) => match ports[..] {
                [] => Self::Drop,
                [port] => Self::Output(port),
                _ => Self::Flood(flood.clone()),
            },
            Flood::All => Self::Flood(Flood::All),
        }
    }
}

/// Decodes a list of outputs only.
fn read_outputs(actions: &[Action]) -> Option<Flood> {
    if let [Action::Output { port: PortNo::FLOOD, .. }] = actions {
        return Some(Flood::All);
    }
    let ports = actions.iter().map(|action| match action {
        Action::Output { port, .. } if port.is_real() || *port == PortNo::LOCAL => Some(*port),
        _ => None,
    });
    let ports: Option<Vec<_>> = ports.collect();
    ports.map(|ports| Flood::Ports(ports.into()))
}

/// Content of a rule, apart from its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule<G> {
    pub(crate) cookie: Cookie,
    /// Seconds without a frame after which it is removed; 0 for never.
    pub(crate) idle_timeout: u16,
    /// Whether the switch reports its removal.
    pub(crate) is_reported: bool,
    pub(crate) outcome: Outcome<G>,
}

impl<G> Rule<G> {
    /// A rule of this kind without timeout.
    pub(crate) const fn new(kind: Kind, number: u32, outcome: Outcome<G>) -> Self {
        let is_reported = kind.is_reported();
        Self { cookie: Cookie::new(kind, number), idle_timeout: 0, is_reported, outcome }
    }

    /// The same with another identifier of the group.
    pub(crate) fn map_group<H>(&self, name: impl FnOnce(&G) -> H) -> Rule<H> {
        Rule {
            cookie: self.cookie,
            idle_timeout: self.idle_timeout,
            is_reported: self.is_reported,
            outcome: self.outcome.map_group(name),
        }
    }
}

impl Rule<GroupId> {
    /// The flow-mod that adds the rule, or replaces the one with this id.
    pub(crate) fn add(&self, id: &FlowId) -> FlowMod {
        let reported = FlowModFlags::SEND_FLOW_REM;
        FlowMod {
            cookie: self.cookie.0,
            table_id: id.table,
            priority: id.priority,
            idle_timeout: self.idle_timeout,
            flags: if self.is_reported { reported } else { FlowModFlags::empty() },
            match_fields: id.matching.clone(),
            instructions: self.outcome.instructions(),
            ..FlowMod::new(FlowModCommand::Add)
        }
    }
}

/// Sorts fields by their numbers, and omits masks with all bits set.
fn canonical(matching: Match) -> Match {
    let mut fields: Vec<_> = matching.fields.into_iter().map(plain).collect();
    fields.sort_by_key(|field| field.field().map_or(u8::MAX, |field| field as u8));
    Match { fields }
}

fn plain(field: Oxm) -> Oxm {
    match field {
        Oxm::EthDst(value) => Oxm::EthDst(unmask(value, &MacAddr::BROADCAST)),
        Oxm::EthSrc(value) => Oxm::EthSrc(unmask(value, &MacAddr::BROADCAST)),
        Oxm::VlanVid(value) => Oxm::VlanVid(unmask(value, &VID_BITS)),
        Oxm::Ipv4Src(value) => Oxm::Ipv4Src(unmask(value, &[0xff; 4].into())),
        Oxm::Ipv4Dst(value) => Oxm::Ipv4Dst(unmask(value, &[0xff; 4].into())),
        Oxm::ArpSpa(value) => Oxm::ArpSpa(unmask(value, &[0xff; 4].into())),
        Oxm::ArpTpa(value) => Oxm::ArpTpa(unmask(value, &[0xff; 4].into())),
        Oxm::Ipv6Src(value) => Oxm::Ipv6Src(unmask(value, &[0xff; 16].into())),
        Oxm::Ipv6Dst(value) => Oxm::Ipv6Dst(unmask(value, &[0xff; 16].into())),
        other => other,
    }
}

fn unmask<T: PartialEq>(value: Masked<T>, all: &T) -> Masked<T> {
    Masked { mask: value.mask.filter(|mask| mask != all), ..value }
}

/// Table of known hosts, by port.
pub(crate) const SOURCE: TableId = TableId(0);
/// Table that copies what hosts send.
pub(crate) const TAPS: TableId = TableId(1);
/// The table that forwards.
pub(crate) const FORWARD: TableId = TableId(2);
/// Our mark in the upper 16 bits of a cookie: "tp".
const MARK: u64 = 0x7470;
const MARK_SHIFT: u32 = 48;
const KIND_SHIFT: u32 = 32;
/// Bits of the mark in a cookie.
pub(crate) const MARK_MASK: u64 = 0xffff << MARK_SHIFT;
/// Bit of the kinds that copy.
const TAP_BIT: u16 = 0x8000;
/// Cookie and mask that select all our rules.
pub(crate) const OURS: (u64, u64) = (MARK << MARK_SHIFT, MARK_MASK);
/// Cookie and mask that select our copying rules.
pub(crate) const OUR_TAPS: (u64, u64) = {
    let bit = (TAP_BIT as u64) << KIND_SHIFT;
    (MARK << MARK_SHIFT | bit, MARK_MASK | bit)
};
/// All bits of `vlan_vid`.
const VID_BITS: u16 = 0x1fff;
/// Bytes of a frame sent to the controller: enough for ARP and neighbour discovery after several
/// tags.
const REPORT_LEN: u16 = 256;
const REPORT: Action = Action::Output { port: PortNo::CONTROLLER, max_len: REPORT_LEN };

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_wire::EtherType;

    #[test]
    fn matches_that_mean_the_same_are_the_same() {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let ours = Match::new().with(Oxm::EthDst(mac.into())).with(Oxm::EthType(EtherType::IPV4));
        let theirs = Match::new()
            .with(Oxm::EthType(EtherType::IPV4))
            .with(Oxm::EthDst(Masked::with_mask(mac, MacAddr::BROADCAST)));
        assert_eq!(FlowId::new(FORWARD, 1, ours.clone()), FlowId::new(FORWARD, 1, theirs));
        assert_ne!(FlowId::new(FORWARD, 1, ours.clone()), FlowId::new(FORWARD, 2, ours));
    }

    #[test]
    fn cookies_tell_whose_and_what_for() {
        let cookie = Cookie::new(Kind::TapHost, 7);
        assert_eq!(cookie.0, 0x7470_8002_0000_0007);
        assert!(cookie.is_ours() && cookie.is(Kind::TapHost) && !cookie.is(Kind::Source));
        assert!(!Cookie(0).is_ours() && !Cookie(u64::MAX).is_ours());
        let (value, mask) = OUR_TAPS;
        assert_eq!(cookie.0 & mask, value);
        assert_ne!(Cookie::new(Kind::Source, 0).0 & mask, value);
    }

    #[test]
    fn what_is_said_is_understood() {
        for outcome in [
            Outcome::Drop,
            Outcome::Admit,
            Outcome::Forward,
            Outcome::Report,
            Outcome::Show,
            Outcome::Output(PortNo(3)),
            Outcome::Flood(Flood::All),
            Outcome::flood(&Flood::Ports([PortNo(1), PortNo(2)].into())),
            Outcome::flood(&Flood::Ports([PortNo(1)].into())),
            Outcome::flood(&Flood::Ports([].into())),
            Outcome::Group(GroupId(9)),
        ] {
            assert_eq!(Outcome::read(&outcome.instructions()), Some(outcome));
        }
        assert_eq!(Outcome::read(&[Instruction::ClearActions]), None);
    }

    #[test]
    fn flow_mods_are_ones_that_switches_take() {
        let id = FlowId::new(SOURCE, 7, Match::new().with(Oxm::InPort(PortNo(1))));
        let rule = Rule { idle_timeout: 300, ..Rule::new(Kind::Source, 0, Outcome::Forward) };
        let add = rule.add(&id);
        assert_eq!(add.check(), Ok(()));
        assert!(add.flags.contains(FlowModFlags::SEND_FLOW_REM));
        let delete = id.delete();
        assert_eq!(delete.check(), Ok(()));
        assert_eq!((delete.cookie ^ add.cookie) & delete.cookie_mask, 0);
    }
}
