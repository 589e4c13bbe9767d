//! Where both switches differ on purpose, and why. What is not listed here must be the same.
//!
//! Some of it cannot be told apart behind a difference, so frames and pipelines are made that it
//! does not matter for: the constants say how.

use std::ops::Range;

use tapswitch_openflow::multipart::{FlowStats, GroupDesc, GroupStats};
use tapswitch_openflow::{
    Action, Body, FlowMod, FlowModCommand, GroupModCommand, GroupType, Instruction, Match,
    OxmField, PortConfig, PortNo, TableId,
};
use tapswitch_wire::{EtherType, ip_proto};

use crate::steps::Step;

/// What is behind three tags. Open vSwitch looks at two and takes the third for the payload's
/// type, we look at four (`docs/vlan.md`): no rule asks for either.
pub(crate) const BEHIND_THREE_TAGS: EtherType = EtherType(0x4321);

/// Protocols and ports of first fragments of IPv4. Open vSwitch takes the ports for 0 in each
/// table, also the type of ICMP, unless it is told otherwise by a word of its own.
pub(crate) const FIRST_FRAGMENTS: (&[u8], &[u16]) = (&[6, 17, 132, 47], &[0]);

/// The same of IPv6. Where another address is set in such, Open vSwitch leaves the checksum of TCP,
/// UDP and ICMPv6 as it was.
pub(crate) const FIRST_FRAGMENTS6: &[u8] = &[ip_proto::SCTP];

/// Protocols of later fragments of IPv4. Open vSwitch sets the checksum of TCP and UDP and the type
/// of ICMP in such, where there are none.
pub(crate) const LATER_FRAGMENTS: &[u8] = &[ip_proto::SCTP, 47];

/// The protocol of later fragments of IPv6. Open vSwitch says 44, the fragment header's own
/// number, we say what the header names, as for IPv4: no rule asks for either.
pub(crate) const LATER_FRAGMENTS6: u8 = 253;

/// What frames may be for a pipeline.
#[derive(Clone, Copy)]
pub(crate) struct Frames {
    /// Open vSwitch has room for two tags: the innermost is lost where one more is pushed.
    pub(crate) tags_max: usize,
    /// Headers of IP and ARP may be not whole. Open vSwitch takes the TTL of such for 0, and says
    /// that it ran out; it sets fields of ARP where none are.
    pub(crate) cut: bool,
}

impl Frames {
    pub(crate) fn of(messages: &[Body]) -> Self {
        let pushes = count(messages, |action| matches!(action, Action::PushVlan(_)));
        let tags_max = if pushes == 0 { 3 } else { 2_usize.saturating_sub(pushes) };
        let needs_header = |action: &Action| match action {
            Action::SetField(oxm) => matches!(oxm.field(), Some(OxmField::ArpOp)),
            other => *other == Action::DecNwTtl,
        };
        Self { tags_max, cut: count(messages, needs_header) == 0 }
    }
}

/// Whether these are messages of a kind that both carry out alike, as all are that are made at
/// random. Tags that are pushed have values: without, Open vSwitch has zeroes there, and we have
/// the values of the tag below, as OpenFlow has it (1.3.5 §5.11). What counts down the TTL leads
/// somewhere: else Open vSwitch does nothing of a set. No set does that and pushes a tag: it counts
/// down first, and where the TTL runs out the tag has no values.
pub(crate) fn are_comparable(messages: &[Body]) -> bool {
    let mut sets = messages.iter().flat_map(|body| lists(body, set));
    let mut lists = messages.iter().flat_map(|body| lists(body, list));
    sets.all(|set| leads_somewhere(set) && !counts_down_behind_tag(set)) && lists.all(has_values)
}

fn counts_down_behind_tag(set: &[Action]) -> bool {
    set.contains(&Action::DecNwTtl) && set.iter().any(|it| matches!(it, Action::PushVlan(_)))
}

fn leads_somewhere(set: &[Action]) -> bool {
    let leads = |it: &Action| matches!(it, Action::Output { .. } | Action::Group(_));
    !set.contains(&Action::DecNwTtl) || set.iter().any(leads)
}

fn has_values(list: &[Action]) -> bool {
    let sets = |field| {
        list.iter().any(|it| matches!(it, Action::SetField(oxm) if oxm.field() == Some(field)))
    };
    let pushes = list.iter().any(|it| matches!(it, Action::PushVlan(_)));
    !pushes || sets(OxmField::VlanVid) && sets(OxmField::VlanPcp)
}

/// Rules for what no other rule of a table is for, where there is none: drop it. Open vSwitch else
/// carries out the action set of such a frame, which OpenFlow has dropped (1.3.5 §5.4).
pub(crate) fn misses(rules: &[FlowStats], tables: Range<u8>, cookie: u64) -> Vec<FlowMod> {
    let is_miss = |rule: &FlowStats| rule.priority == 0 && rule.match_fields == Match::new();
    let has_miss = |table| rules.iter().any(|rule| is_miss(rule) && rule.table_id == table);
    let tables = tables.map(TableId).filter(|table| !has_miss(*table));
    let add = FlowMod::new(FlowModCommand::Add);
    tables.map(|table_id| FlowMod { table_id, cookie, priority: 0, ..add.clone() }).collect()
}

/// Why the controller is told of its own packet. Open vSwitch says of all that such a packet meets
/// that an action sent it, also of the table-miss entry, for which OpenFlow has a reason of its own
/// (1.3.5 §7.4.1).
pub(crate) fn without_reason(lines: &mut [String]) {
    let told = lines.iter_mut().filter(|line| line.starts_with("packet-in, reason 0"));
    told.for_each(|line| *line = line.replacen("reason 0", "reason 1", 1));
}

/// What Open vSwitch tells the controller of a frame that the table-miss entry sends there, though
/// its port is told to keep that to itself (1.3.5 §7.2.1).
pub(crate) fn without_misses(lines: &mut Vec<String>) {
    lines.retain(|line| !line.starts_with("packet-in, reason 0"));
}

/// The port by which a packet of the controller's is said to come in, where these steps tell a port
/// to receive nothing, or to keep from the controller what no rule is for: another one. It is not
/// received by the port, and so sent here; Open vSwitch drops it (1.3.5 §7.2.1). And what it tells
/// of it has another reason ([`without_reason`]).
pub(crate) fn entry(port: PortNo, steps: &[Step]) -> PortNo {
    let differs =
        |config: PortConfig| config.intersects(PortConfig::NO_RECV | PortConfig::NO_PACKET_IN);
    let differ = |step: &Step| matches!(step, Step::Port { config, .. } if differs(*config));
    if steps.iter().any(differ) { PortNo::CONTROLLER } else { port }
}

/// Whether both count the same frames: Open vSwitch counts those for rules that come in by a port
/// which is told to receive none (1.3.5 §7.2.1).
pub(crate) fn count_alike(steps: &[Step]) -> bool {
    let receives = |step: &Step| match step {
        Step::Port { config, .. } => !config.contains(PortConfig::NO_RECV),
        _ => true,
    };
    steps.iter().all(receives)
}

/// Whether both count the same at ports: where one is told to be down nothing reaches Open vSwitch,
/// which sets the interface down; we count what is dropped.
pub(crate) fn count_ports_alike(steps: &[Step]) -> bool {
    let is_down = |step: &Step| match step {
        Step::Port { config, .. } => config.contains(PortConfig::PORT_DOWN),
        _ => false,
    };
    !steps.iter().any(is_down)
}

/// Whether both count the same for groups: what one processed stays when it is modified (1.3.5
/// §6.5), and begins anew at Open vSwitch.
pub(crate) fn count_groups_alike(steps: &[Step]) -> bool {
    let modifies = |step: &Step| match step {
        Step::Change(Body::GroupMod(change)) => change.command == GroupModCommand::Modify,
        _ => false,
    };
    !steps.iter().any(modifies)
}

/// Whether both count the same bytes: behind actions that change the length of a frame, Open
/// vSwitch goes on with the length that it had when it came in.
pub(crate) fn count_bytes_alike(messages: &[Body]) -> bool {
    let changes = |action: &Action| matches!(action, Action::PushVlan(_) | Action::PopVlan);
    count(messages, changes) == 0
}

fn count(messages: &[Body], wanted: impl Fn(&Action) -> bool) -> usize {
    let lists = messages.iter().flat_map(|body| lists(body, list));
    lists.flatten().filter(|action| wanted(action)).count()
}

/// The lists of actions of a message, of rules such as `of` takes.
fn lists(body: &Body, of: fn(&Instruction) -> Option<&[Action]>) -> Vec<&[Action]> {
    match body {
        Body::FlowMod(flow_mod) => flow_mod.instructions.iter().filter_map(of).collect(),
        Body::GroupMod(group_mod) => {
            group_mod.buckets.iter().map(|bucket| bucket.actions.as_slice()).collect()
        }
        Body::PacketOut(packet) => vec![&packet.actions],
        _ => Vec::new(),
    }
}

fn set(instruction: &Instruction) -> Option<&[Action]> {
    match instruction {
        Instruction::WriteActions(list) => Some(list),
        _ => None,
    }
}

fn list(instruction: &Instruction) -> Option<&[Action]> {
    match instruction {
        Instruction::ApplyActions(list) | Instruction::WriteActions(list) => Some(list),
        _ => None,
    }
}

/// Whether both told the controller the same or sent the same frame. What the action set sends has
/// no rule's cookie here, since several rules may have written it (OpenFlow 1.3.5 §7.4.1), and the
/// last table. Open vSwitch says cookie and table of the first rule.
pub(crate) fn are_alike(theirs: &str, ours: &str) -> bool {
    let is_of_set = ours.contains("cookie 0xffffffffffffffff");
    theirs == ours || is_of_set && without_rule(theirs) == without_rule(ours)
}

fn without_rule(line: &str) -> String {
    let is_told = |part: &&str| !["table ", "cookie "].iter().any(|name| part.starts_with(name));
    line.split(", ").filter(is_told).collect::<Vec<_>>().join(", ")
}

/// Whether a port is the bridge's own, which Open vSwitch has always, and we have where it is asked
/// for.
pub(crate) fn is_of_bridge(port: PortNo) -> bool {
    port == PortNo::LOCAL
}

/// What a group counted itself. Open vSwitch counts no frame for a group without a bucket for it,
/// which those have that pick one; OpenFlow says what a group processed (1.3.5 §7.3.5.9).
pub(crate) const fn counts_alike(group_type: GroupType) -> bool {
    matches!(group_type, GroupType::All | GroupType::Indirect)
}

/// How often a group is used, as far as both say it: at all. Open vSwitch counts actions, OpenFlow
/// rules and groups (1.3.5 §7.3.5.9). Nothing of one that another group leads to, which Open
/// vSwitch does not count at all.
pub(crate) fn uses(group: &GroupStats, described: &[GroupDesc]) -> Option<bool> {
    let to_it = Action::Group(group.group_id);
    let mut buckets = described.iter().flat_map(|group| &group.buckets);
    let is_led_to = buckets.any(|bucket| bucket.actions.contains(&to_it));
    (!is_led_to).then_some(group.ref_count > 0)
}
