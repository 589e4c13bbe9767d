//! A switch's replies as comparable lines: without ages, addresses and descriptions of the switch.

use tapswitch_openflow::multipart::{AggregateStats, GroupFeatures, PortStats, TableStats};
use tapswitch_openflow::{AsyncConfig, AsyncMask, Body, MultipartReplyBody, Port, PortState};

use crate::known;
use crate::text;

/// The lines of a reply; none for one that is not compared.
pub(crate) fn lines(answer: Body) -> Vec<String> {
    match answer {
        Body::MultipartReply(reply) => statistics(reply.body),
        Body::GetAsyncReply(config) => vec![async_config(config)],
        Body::RoleReply(_)
        | Body::GetConfigReply(_)
        | Body::QueueGetConfigReply(_)
        | Body::EchoReply(_) => vec![format!("{answer:?}")],
        _ => Vec::new(),
    }
}

/// Open vSwitch drops bits that OpenFlow does not define; our switch keeps them.
fn async_config(AsyncConfig { master, slave }: AsyncConfig) -> String {
    let known = |mask: AsyncMask| AsyncMask {
        packet_in: mask.packet_in & 7,
        port_status: mask.port_status & 7,
        flow_removed: mask.flow_removed & 15,
    };
    format!("{:?}, slave {:?}", known(master), known(slave))
}

fn statistics(body: MultipartReplyBody) -> Vec<String> {
    use MultipartReplyBody::*;
    match body {
        Flow(rules) => text::rules(rules).counters,
        Aggregate(AggregateStats { flow_count, packet_count, byte_count }) => {
            vec![format!("{flow_count} rules, {packet_count} packets, {byte_count} bytes")]
        }
        Table(tables) => {
            let line = |TableStats { table_id, active_count, .. }| {
                format!("table {table_id}: {active_count} rules")
            };
            tables.into_iter().map(line).collect()
        }
        PortStats(ports) => sorted(ports.iter().filter_map(port_stats)),
        PortDesc(ports) => sorted(ports.iter().filter_map(port)),
        Queue(queues) => vec![format!("{queues:?}")],
        Group(groups) => sorted(groups.iter().map(|group| {
            let buckets = group.bucket_stats.len();
            format!("group {}, {buckets} buckets", group.group_id)
        })),
        GroupDesc(groups) => text::groups(&groups),
        GroupFeatures(features) => vec![group_features(&features)],
        _ => Vec::new(),
    }
}

fn sorted(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines
}

fn port_stats(port: &PortStats) -> Option<String> {
    (!known::is_of_bridge(port.port_no)).then(|| format!("port {}", port.port_no))
}

fn port(port: &Port) -> Option<String> {
    let Port { port_no, name, config, state, .. } = port;
    let name = name.to_string();
    // Equal names, except for the letter of their side.
    let name = name.get(1..).unwrap_or_default();
    let state = *state & (PortState::LINK_DOWN | PortState::BLOCKED | PortState::LIVE);
    let line = format!("port {port_no}, {name}: {config:?}, {state:?}");
    (!known::is_of_bridge(*port_no)).then_some(line)
}

fn group_features(features: &GroupFeatures) -> String {
    format!("types {:#b}", features.types)
}
