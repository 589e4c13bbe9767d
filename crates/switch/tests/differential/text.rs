//! A switch's messages as comparable lines: without ages, sorted, and in one format.

use tapswitch_openflow::multipart::{BucketCounter, FlowStats, GroupDesc, GroupStats, PortStats};
use tapswitch_openflow::{Body, FlowRemoved, Match, Oxm, OxmField, PacketIn};

use crate::known;

/// Rules, one per line, and their counters in the same order.
pub(crate) struct Rules {
    pub(crate) rules: Vec<String>,
    pub(crate) counters: Vec<String>,
}

pub(crate) fn rules(all: Vec<FlowStats>) -> Rules {
    let mut lines: Vec<_> = all.into_iter().map(rule).collect();
    lines.sort();
    let counters = lines.iter().map(|(rule, counted)| format!("{counted}: {rule}")).collect();
    Rules { rules: lines.into_iter().map(|(rule, _)| rule).collect(), counters }
}

fn rule(rule: FlowStats) -> (String, String) {
    let counted = counted(rule.packet_count, rule.byte_count);
    let matching = matching(&rule.match_fields);
    let flags = rule.flags;
    let rest = FlowStats {
        duration_sec: 0,
        duration_nsec: 0,
        packet_count: 0,
        byte_count: 0,
        match_fields: Match::new(),
        ..rule
    };
    (format!("{matching} flags={flags:?} {rest}"), counted)
}

/// Fields in order, without full masks and without fields whose mask is zero.
fn matching(matching: &Match) -> String {
    let mut fields: Vec<_> = matching.iter().filter_map(field).collect();
    fields.sort();
    fields.join(",")
}

fn field(oxm: &Oxm) -> Option<String> {
    let Some((field, value, mask)) = oxm.parts() else { return Some(format!("{oxm:?}")) };
    match mask {
        Some(0) => None,
        Some(mask) if mask.count_ones() < width(field) => {
            Some(format!("{field:?}={value:#x}/{mask:#x}"))
        }
        _ => Some(format!("{field:?}={value:#x}")),
    }
}

/// Width in bits of a field that can be masked.
fn width(field: OxmField) -> u32 {
    use OxmField::*;
    match field {
        VlanVid => 13,
        Ipv6Flabel => 20,
        Ipv4Src | Ipv4Dst | ArpSpa | ArpTpa => 32,
        EthDst | EthSrc | ArpSha | ArpTha => 48,
        Metadata | TunnelId => 64,
        _ => 128,
    }
}

pub(crate) fn groups(groups: &[GroupDesc]) -> Vec<String> {
    let mut lines: Vec<_> = groups.iter().map(ToString::to_string).collect();
    lines.sort();
    lines
}

fn counted(packets: u64, bytes: u64) -> String {
    format!("{packets} packets {bytes} bytes")
}

/// A line of counts without bytes.
pub(crate) fn without_bytes(line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let is_count = |at: usize| words.get(at + 1).is_some_and(|next| next.starts_with("bytes"));
    let kept = (0..words.len()).filter(|at| !is_count(*at)).map(|at| words[at]);
    kept.collect::<Vec<_>>().join(" ")
}

/// The counters of groups.
pub(crate) fn group_counters(groups: &[GroupStats], described: &[GroupDesc]) -> Vec<String> {
    let line = |group: &GroupStats| {
        let of = |bucket: &BucketCounter| counted(bucket.packet_count, bucket.byte_count);
        let buckets: Vec<_> = group.bucket_stats.iter().map(of).collect();
        let uses = known::uses(group, described);
        let it = described.iter().find(|it| it.group_id == group.group_id).unwrap();
        let own = known::counts_alike(it.group_type)
            .then(|| counted(group.packet_count, group.byte_count));
        format!("group {}, is used {uses:?}: {own:?}, {buckets:?}", group.group_id)
    };
    let mut lines: Vec<_> = groups.iter().map(line).collect();
    lines.sort();
    lines
}

/// What a port counted between two readings.
pub(crate) fn port_counters(before: &PortStats, after: &PortStats) -> String {
    let received = counted(after.rx_packets - before.rx_packets, after.rx_bytes - before.rx_bytes);
    let sent = counted(after.tx_packets - before.tx_packets, after.tx_bytes - before.tx_bytes);
    format!("port {}: received {received}, sent {sent}", after.port_no)
}

/// A flow-removed message.
pub(crate) fn removed(event: &Body) -> Option<String> {
    let Body::FlowRemoved(removed) = event else { return None };
    let matching = matching(&removed.match_fields);
    let rest = FlowRemoved {
        duration_sec: 0,
        duration_nsec: 0,
        packet_count: 0,
        byte_count: 0,
        match_fields: Match::new(),
        ..removed.clone()
    };
    let counted = counted(removed.packet_count, removed.byte_count);
    Some(format!("{counted}: {matching} {rest:?}"))
}

pub(crate) fn frame(port: u32, bytes: &[u8]) -> String {
    format!("port {port}: {}", hex(bytes))
}

pub(crate) fn packet_in(event: &Body) -> Option<String> {
    let Body::PacketIn(told) = event else { return None };
    let PacketIn { total_len, reason, table_id, cookie, match_fields, data, .. } = told;
    let matching = matching(match_fields);
    Some(format!(
        "packet-in, reason {}, table {table_id}, cookie {cookie:#x}, {matching}, \
         {total_len} bytes: {}",
        reason.0,
        hex(data)
    ))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
