//! Intended differences between the two switches, and why. Everything not listed here must be
//! equal.
//!
//! Some differences cannot be recognised in the results, so frames and pipelines are generated to
//! avoid them: see the constants.

use std::collections::HashSet;
use std::ops::Range;

use tapswitch_openflow::multipart::{FlowStats, GroupDesc, GroupStats};
use tapswitch_openflow::{
    Action, Body, FlowMod, FlowModCommand, GroupId, GroupModCommand, GroupType, Instruction, Match,
    OxmField, PortConfig, PortNo, TableId,
};
use tapswitch_wire::{EtherType, ip_proto};

use crate::pipeline::TABLES;
use crate::steps::Step;

/// The EtherType behind three tags. Open vSwitch parses two and takes the third for the payload's
/// type, our switch parses four (`docs/vlan.md`): no rule matches either.
pub(crate) const BEHIND_THREE_TAGS: EtherType = EtherType(0x4321);

/// Protocols and ports of first fragments of IPv4. By default, Open vSwitch matches them with ports
/// 0 in each table, and also with ICMP type 0.
pub(crate) const FIRST_FRAGMENTS: (&[u8], &[u16]) = (&[6, 17, 132, 47], &[0]);

/// Protocols of first fragments of IPv6. If an address is set in those, Open vSwitch does not
/// update the checksums of TCP, UDP and ICMPv6.
pub(crate) const FIRST_FRAGMENTS6: &[u8] = &[ip_proto::SCTP];

/// Protocols of later fragments of IPv4. Open vSwitch sets the checksum of TCP and UDP and the type
/// of ICMP in those, although they have none.
pub(crate) const LATER_FRAGMENTS: &[u8] = &[ip_proto::SCTP, 47];

/// The protocol of later fragments of IPv6. Open vSwitch matches 44, the fragment header's own
/// number, our switch the protocol that the header names, as for IPv4: no rule matches either.
pub(crate) const LATER_FRAGMENTS6: u8 = 253;

/// Permitted properties of frames for a pipeline.
#[derive(Clone, Copy)]
pub(crate) struct Frames {
    /// Open vSwitch has room for two tags: the innermost is lost if one more is pushed.
    pub(crate) tags_max: usize,
    /// Whether headers of IP and ARP may be truncated. Open vSwitch takes their TTL for 0 and
    /// reports that it expired, and sets fields of ARP that are not there.
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

/// Whether both switches execute these messages alike, which holds for all generated ones. Pushed
/// tags get values: without them, Open vSwitch uses zeroes, and our switch the values of the tag
/// below, as OpenFlow requires (1.3.5 §5.12.1). A set that decrements the TTL has an output:
/// otherwise Open vSwitch executes nothing of it. No set both decrements the TTL and pushes a tag:
/// it decrements first, and if the TTL expires the tag has no values.
pub(crate) fn are_comparable(messages: &[Body]) -> bool {
    if interrupts_with_set(messages) {
        return false;
    }
    let mut sets = messages.iter().flat_map(|body| lists(body, set));
    let mut lists = messages.iter().flat_map(|body| lists(body, list));
    let is_fine = |set: &[Action]| {
        leads_somewhere(set) && !counts_down_behind_tag(set) && !sets_popped_tag(set)
    };
    sets.all(is_fine) && lists.all(has_values)
}

/// Whether a set, which pops first, sets fields of a tag that may be gone then. Open vSwitch adds a
/// tag to a packet without one, our switch does not (1.3.5 §7.2.5: undefined).
pub(crate) fn sets_popped_tag(set: &[Action]) -> bool {
    let pushes = set.iter().any(|it| matches!(it, Action::PushVlan(_)));
    set.contains(&Action::PopVlan) && !pushes && set.iter().any(sets_tag)
}

/// Whether an action sets a field of a tag.
pub(crate) fn sets_tag(action: &Action) -> bool {
    let Action::SetField(oxm) = action else { return false };
    matches!(oxm.field(), Some(OxmField::VlanVid | OxmField::VlanPcp))
}

/// Whether actions may lead to a SELECT group while there is an action set. Open vSwitch 3.1 then
/// interrupts them (see [`is_miss_behind_select`]), and ends with a failed assertion if what is
/// left of them is shorter than the set (`recirc_alloc_id__`).
fn interrupts_with_set(messages: &[Body]) -> bool {
    let changes = || {
        messages.iter().filter_map(|body| match body {
            Body::FlowMod(change) => Some(change),
            _ => None,
        })
    };
    let selecting = selecting(messages);
    let leads = |it: &Action| matches!(it, Action::Group(id) if selecting.contains(id));
    let later = changes().filter(|change| change.table_id != TableId(0));
    let mut lists = later.flat_map(|change| change.instructions.iter().filter_map(applied));
    let goes_on = |it: &Instruction| matches!(it, Instruction::GotoTable(_));
    let writes_on = |FlowMod { instructions, .. }: &FlowMod| {
        instructions.iter().any(goes_on) && instructions.iter().any(|it| set(it).is_some())
    };
    changes().any(writes_on) && lists.any(|list| list.iter().any(leads))
}

/// The groups of type SELECT, and those that lead to one.
fn selecting(messages: &[Body]) -> HashSet<GroupId> {
    let groups = || {
        messages.iter().filter_map(|body| match body {
            Body::GroupMod(change) => Some(change),
            _ => None,
        })
    };
    let selects = groups().filter(|group| group.group_type == GroupType::Select);
    let mut found: HashSet<_> = selects.map(|group| group.group_id).collect();
    loop {
        let leads = |it: &Action| matches!(it, Action::Group(id) if found.contains(id));
        let more = groups()
            .filter(|group| group.buckets.iter().flat_map(|bucket| &bucket.actions).any(leads));
        let all = more.map(|group| group.group_id).chain(found.iter().copied());
        let all: HashSet<_> = all.collect();
        if all.len() == found.len() {
            return found;
        }
        found = all;
    }
}

/// Drops the sets of a case where that would happen.
pub(crate) fn without_interrupts(messages: &mut [Body], meanwhile: &mut [Body]) {
    if interrupts_with_set(&[&*messages, &*meanwhile].concat()) {
        messages.iter_mut().chain(meanwhile).for_each(without_set);
    }
}

fn without_set(body: &mut Body) {
    if let Body::FlowMod(change) = body {
        change.instructions.retain(|it| set(it).is_none());
    }
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

/// Table-miss rules that drop, for tables without one. Otherwise Open vSwitch executes the action
/// set of such a frame, which OpenFlow drops (1.3.5 §5.4).
pub(crate) fn misses(rules: &[FlowStats], tables: Range<u8>, cookie: u64) -> Vec<FlowMod> {
    let is_miss = |rule: &FlowStats| rule.priority == 0 && rule.match_fields == Match::new();
    let has_miss = |table| rules.iter().any(|rule| is_miss(rule) && rule.table_id == table);
    let tables = tables.map(TableId).filter(|table| !has_miss(*table));
    let add = FlowMod::new(FlowModCommand::Add);
    tables.map(|table_id| FlowMod { table_id, cookie, priority: 0, ..add.clone() }).collect()
}

/// Replaces the reason of packet-ins of the controller's own packets. Open vSwitch reports that an
/// action sent them even if it was the table-miss rule, for which OpenFlow has a separate reason
/// (1.3.5 §7.4.1).
pub(crate) fn without_reason(lines: &mut [String]) {
    let told = lines.iter_mut().filter(|line| line.starts_with("packet-in, reason 0"));
    told.for_each(|line| *line = line.replacen("reason 0", "reason 1", 1));
}

/// Whether packet-ins of a table's table-miss entry may differ in their reason. Open vSwitch
/// spreads the flows of a SELECT group by a hash that its datapath computes, for which it
/// interrupts the actions. When it continues with those behind the group, it no longer knows that
/// the rule is the table-miss entry, which the reason must tell (1.3.5 §5.4, §7.4.1).
fn is_miss_behind_select(messages: &[Body], table: TableId) -> bool {
    let is_select = |id| {
        messages.iter().any(|body| match body {
            Body::GroupMod(group) => group.group_id == id && group.group_type == GroupType::Select,
            _ => false,
        })
    };
    let asks_behind = |actions: &[Action]| {
        let group = actions.iter().position(|it| matches!(it, Action::Group(id) if is_select(*id)));
        let rest = group.map_or(&[][..], |at| &actions[at..]);
        rest.iter().any(|it| matches!(it, Action::Output { port: PortNo::CONTROLLER, .. }))
    };
    let is_one = |change: &FlowMod| {
        let has_priority = change.priority == 0 || change.command == FlowModCommand::Modify;
        has_priority && change.match_fields == Match::new() && change.table_id == table
    };
    messages.iter().any(|body| match body {
        Body::FlowMod(change) if is_one(change) => {
            change.instructions.iter().filter_map(applied).any(asks_behind)
        }
        _ => false,
    })
}

/// Replaces the reason of their packet-ins where that is the only difference, and known.
pub(crate) fn with_misses(theirs: &mut [String], ours: &[String], messages: &[Body]) {
    let tables = (0..TABLES).map(TableId);
    let tables: Vec<_> = tables.filter(|table| is_miss_behind_select(messages, *table)).collect();
    for (theirs, ours) in theirs.iter_mut().zip(ours) {
        let mut tables = tables.iter();
        let is_miss =
            tables.any(|it| ours.starts_with(&format!("packet-in, reason 0, table {it},")));
        if is_miss && *theirs == ours.replacen("reason 0", "reason 1", 1) {
            theirs.clone_from(ours);
        }
    }
}

/// Removes the packet-ins that Open vSwitch sends for the table-miss entry although the port is
/// configured to send none (1.3.5 §7.2.1).
pub(crate) fn without_misses(lines: &mut Vec<String>) {
    lines.retain(|line| !line.starts_with("packet-in, reason 0"));
}

/// The ingress port of a packet-out; another one if a port is configured to receive nothing, or to
/// send no packet-ins, in these steps. As the port does not receive the packet, our switch forwards
/// it; Open vSwitch drops it (1.3.5 §7.2.1), and its packet-ins have another reason
/// ([`without_reason`]).
pub(crate) fn entry(port: PortNo, steps: &[Step]) -> PortNo {
    let differs =
        |config: PortConfig| config.intersects(PortConfig::NO_RECV | PortConfig::NO_PACKET_IN);
    let differ = |step: &Step| matches!(step, Step::Port { config, .. } if differs(*config));
    if steps.iter().any(differ) { PortNo::CONTROLLER } else { port }
}

/// Whether both count the same frames: Open vSwitch counts frames for rules although they come in
/// on a port that is configured to receive none (1.3.5 §7.2.1).
pub(crate) fn count_alike(steps: &[Step]) -> bool {
    let receives = |step: &Step| match step {
        Step::Port { config, .. } => !config.contains(PortConfig::NO_RECV),
        _ => true,
    };
    steps.iter().all(receives)
}

/// Whether both count the same at ports: a port configured down gets no frames in Open vSwitch,
/// which sets the interface down; our switch counts them as dropped.
pub(crate) fn count_ports_alike(steps: &[Step]) -> bool {
    let is_down = |step: &Step| match step {
        Step::Port { config, .. } => config.contains(PortConfig::PORT_DOWN),
        _ => false,
    };
    !steps.iter().any(is_down)
}

/// Whether both count the same for groups: a modified group keeps its counters (1.3.5 §6.5), but
/// restarts them in Open vSwitch.
pub(crate) fn count_groups_alike(steps: &[Step]) -> bool {
    let modifies = |step: &Step| match step {
        Step::Change(Body::GroupMod(change)) => change.command == GroupModCommand::Modify,
        _ => false,
    };
    !steps.iter().any(modifies)
}

/// Whether both count the same bytes: behind actions that change the length of a frame, Open
/// vSwitch still counts the received length.
pub(crate) fn count_bytes_alike(messages: &[Body]) -> bool {
    let changes = |action: &Action| matches!(action, Action::PushVlan(_) | Action::PopVlan);
    count(messages, changes) == 0
}

fn count(messages: &[Body], wanted: impl Fn(&Action) -> bool) -> usize {
    let lists = messages.iter().flat_map(|body| lists(body, list));
    lists.flatten().filter(|action| wanted(action)).count()
}

/// The lists of actions of a message that `of` selects from its instructions.
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

fn applied(instruction: &Instruction) -> Option<&[Action]> {
    match instruction {
        Instruction::ApplyActions(list) => Some(list),
        _ => None,
    }
}

fn list(instruction: &Instruction) -> Option<&[Action]> {
    match instruction {
        Instruction::ApplyActions(list) | Instruction::WriteActions(list) => Some(list),
        _ => None,
    }
}

/// Whether both sent the controller the same, or sent the same frame. In our switch, a packet-in
/// from the action set has no rule's cookie, as several rules may have written the set (OpenFlow
/// 1.3.5 §7.4.1), and the last table. Open vSwitch reports cookie and table of the first rule.
pub(crate) fn are_alike(theirs: &str, ours: &str) -> bool {
    let is_of_set = ours.contains("cookie 0xffffffffffffffff");
    theirs == ours || is_of_set && without_rule(theirs) == without_rule(ours)
}

fn without_rule(line: &str) -> String {
    let is_told = |part: &&str| !["table ", "cookie "].iter().any(|name| part.starts_with(name));
    line.split(", ").filter(is_told).collect::<Vec<_>>().join(", ")
}

/// Whether a port is the bridge's local port, which Open vSwitch always has, and our switch only on
/// request.
pub(crate) fn is_of_bridge(port: PortNo) -> bool {
    port == PortNo::LOCAL
}

/// Whether both count the same for a group itself. Open vSwitch does not count a frame for which a
/// group with selection has no bucket; OpenFlow counts what the group processed (1.3.5 §7.3.5.9).
pub(crate) const fn counts_alike(group_type: GroupType) -> bool {
    matches!(group_type, GroupType::All | GroupType::Indirect)
}

/// Whether a group is used, as far as both report it. Open vSwitch counts actions, OpenFlow rules
/// and groups (1.3.5 §7.3.5.9). `None` for a group to which another group refers, which Open
/// vSwitch does not count at all.
pub(crate) fn uses(group: &GroupStats, described: &[GroupDesc]) -> Option<bool> {
    let to_it = Action::Group(group.group_id);
    let mut buckets = described.iter().flat_map(|group| &group.buckets);
    let is_led_to = buckets.any(|bucket| bucket.actions.contains(&to_it));
    (!is_led_to).then_some(group.ref_count > 0)
}
