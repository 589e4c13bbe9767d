//! Answers to multipart requests (OpenFlow 1.3.5 §7.3.5).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tapswitch_datapath::{
    Counters, DropReason, FlowEntry, Group, GroupBucket, MAX_GROUPS, MatchKey, Millis, Pipeline,
    Port, Snapshot, TABLE_COUNT,
};
use tapswitch_openflow::multipart::{
    AggregateStats, BucketCounter, Desc, FlowStats, FlowStatsRequest, GroupCapabilities, GroupDesc,
    GroupFeatures, GroupStats, MultipartReply, PortStats, QueueStatsRequest, TableStats,
};
use tapswitch_openflow::{
    Action, Body, BucketDrops, BucketLedger, EXPERIMENTER, ErrorKind, GroupId, LedgerRequest,
    MANUFACTURER, MultipartReplyBody as Reply, MultipartRequestBody as Request, PortNo, QUEUE_ALL,
    TableId,
};

use super::{Agent, Refusal, describe, duration, meters, table_features};

impl Agent {
    /// Answers one request.
    pub(super) fn statistics(&self, request: &Request, now: Millis) -> Result<Reply, Refusal> {
        let snapshot = self.pipeline().snapshot();
        Ok(match request {
            Request::Desc => Reply::Desc(Box::new(self.desc())),
            Request::Flow(request) => Reply::Flow(flows(snapshot, request, now)?),
            Request::Aggregate(request) => Reply::Aggregate(aggregate(snapshot, request)?),
            Request::Table => Reply::Table(tables(snapshot)),
            Request::PortStats(port) => Reply::PortStats(self.ports(*port, now)?),
            Request::PortDesc => {
                Reply::PortDesc(snapshot.ports.iter().map(|port| describe(port)).collect())
            }
            Request::Queue(request) => queues(snapshot, *request)?,
            Request::Group(id) => Reply::Group(groups(self.pipeline(), *id, now)?),
            Request::GroupDesc => Reply::GroupDesc(group_descriptions(snapshot)),
            Request::GroupFeatures => Reply::GroupFeatures(group_features()),
            Request::Meter(id) => Reply::Meter(meters::statistics(self.pipeline(), *id, now)?),
            Request::MeterConfig(id) => Reply::MeterConfig(meters::configurations(snapshot, *id)?),
            Request::MeterFeatures => Reply::MeterFeatures(meters::features()),
            Request::TableFeatures(wanted) if wanted.is_empty() => {
                Reply::TableFeatures(table_features::all())
            }
            // Table features cannot be changed, by no switch's configuration (OpenFlow 1.3.5
            // §7.3.5.5.1).
            Request::TableFeatures(_) => return Err(ErrorKind::OFPBRC_BAD_LEN.into()),
            Request::Experimenter(body) => {
                let asked = LedgerRequest::of(body).map_err(|error| error.kind)?;
                let buckets = ledgers(snapshot, asked.group_id);
                Reply::Experimenter(BucketLedger::experimenter(&buckets))
            }
        })
    }

    fn desc(&self) -> Desc {
        Desc {
            mfr_desc: MANUFACTURER.into(),
            hw_desc: "Linux tap and AF_PACKET ports".into(),
            sw_desc: env!("CARGO_PKG_VERSION").into(),
            serial_num: "None".into(),
            dp_desc: self.identity.name.as_str().into(),
        }
    }

    fn ports(&self, wanted: PortNo, now: Millis) -> Result<Vec<PortStats>, Refusal> {
        let ports = &self.pipeline().snapshot().ports;
        match wanted {
            PortNo::ANY => Ok(ports.iter().map(|port| port_stats(port, now)).collect()),
            number => {
                let port = ports.find(number).ok_or(ErrorKind::OFPBRC_BAD_PORT)?;
                Ok(vec![port_stats(port, now)])
            }
        }
    }
}

/// Port statistics count frames as packets, a train as one, like the kernel's interface counters.
/// Rules, groups and buckets count the packets on the wire.
fn port_stats(port: &Port, now: Millis) -> PortStats {
    let (duration_sec, duration_nsec) = duration(now.since(port.created));
    let (rx, tx, drops) = (port.counters.rx(), port.counters.tx(), port.counters.drops());
    let malformed = drops.count(DropReason::Truncated) + drops.count(DropReason::BadMetadata);
    let sum = |wanted: fn(DropReason) -> bool| -> u64 {
        drops.by_reason().filter(|&(reason, _)| wanted(reason)).map(|(_, count)| count).sum()
    };
    PortStats {
        port_no: port.number,
        rx_packets: rx.frames,
        tx_packets: tx.frames,
        rx_bytes: rx.bytes,
        tx_bytes: tx.bytes,
        rx_dropped: sum(|reason| {
            use DropReason::{IngressLost, PortNoReceive, QueueDisabled};
            use DropReason::{NotEncapsulated, OuterCongested, WrongTunnel};
            let is_of_tunnel = matches!(reason, NotEncapsulated | WrongTunnel | OuterCongested);
            is_of_tunnel || matches!(reason, PortNoReceive | IngressLost | QueueDisabled)
        }),
        tx_dropped: sum(DropReason::is_egress),
        rx_errors: malformed,
        tx_errors: drops.count(DropReason::EgressRejected),
        rx_frame_err: malformed,
        rx_over_err: 0,
        rx_crc_err: 0,
        collisions: 0,
        duration_sec,
        duration_nsec,
    }
}

/// The rules selected by a request, by table and priority.
fn select(snapshot: &Snapshot, request: &FlowStatsRequest) -> Result<Vec<Arc<FlowEntry>>, Refusal> {
    if request.table_id != TableId::ALL && request.table_id.0 >= TABLE_COUNT {
        return Err(ErrorKind::OFPBRC_BAD_TABLE_ID.into());
    }
    let key = MatchKey::new(&request.match_fields).map_err(|_| ErrorKind::OFPBMC_BAD_FIELD)?;
    let wanted = |rule: &&Arc<FlowEntry>| {
        rule.key.is_within(&key)
            && (rule.cookie ^ request.cookie) & request.cookie_mask == 0
            && rule.outputs_to(request.out_port)
            && rule.uses_group(request.out_group)
    };
    let tables = snapshot.tables(request.table_id);
    let mut rules: Vec<_> =
        tables.flat_map(|(_, table)| table.iter()).filter(wanted).cloned().collect();
    rules.sort_by_key(|rule| (rule.table_id, std::cmp::Reverse(rule.priority), rule.created));
    Ok(rules)
}

fn flows(
    snapshot: &Snapshot,
    request: &FlowStatsRequest,
    now: Millis,
) -> Result<Vec<FlowStats>, Refusal> {
    let stats = |rule: Arc<FlowEntry>| {
        let totals = rule.counters.totals();
        let (duration_sec, duration_nsec) = duration(now.since(rule.created));
        FlowStats {
            table_id: rule.table_id,
            duration_sec,
            duration_nsec,
            priority: rule.priority,
            idle_timeout: rule.idle_timeout,
            hard_timeout: rule.hard_timeout,
            flags: rule.flags,
            cookie: rule.cookie,
            packet_count: totals.packets,
            byte_count: totals.bytes,
            match_fields: rule.matching.clone(),
            instructions: rule.instructions.to_vec(),
        }
    };
    Ok(select(snapshot, request)?.into_iter().map(stats).collect())
}

fn aggregate(snapshot: &Snapshot, request: &FlowStatsRequest) -> Result<AggregateStats, Refusal> {
    let rules = select(snapshot, request)?;
    let mut sum = AggregateStats {
        flow_count: u32::try_from(rules.len()).unwrap_or(u32::MAX),
        ..AggregateStats::default()
    };
    for rule in rules {
        let totals = rule.counters.totals();
        sum.packet_count += totals.packets;
        sum.byte_count += totals.bytes;
    }
    Ok(sum)
}

fn tables(snapshot: &Snapshot) -> Vec<TableStats> {
    let stats = |(table_id, table): (TableId, &Arc<tapswitch_datapath::FlowTable>)| {
        let (lookup_count, matched_count) = table.counters().totals();
        let active_count = u32::try_from(table.count()).unwrap_or(u32::MAX);
        TableStats { table_id, active_count, lookup_count, matched_count }
    };
    snapshot.tables(TableId::ALL).map(stats).collect()
}

/// Ports have no OpenFlow queues, so a request for all of them returns none.
fn queues(snapshot: &Snapshot, request: QueueStatsRequest) -> Result<Reply, Refusal> {
    let known = request.port_no == PortNo::ANY || snapshot.ports.find(request.port_no).is_some();
    match (known, request.queue_id) {
        (false, _) => Err(ErrorKind::OFPQOFC_BAD_PORT.into()),
        (true, QUEUE_ALL) => Ok(Reply::Queue(Vec::new())),
        (true, _) => Err(ErrorKind::OFPQOFC_BAD_QUEUE.into()),
    }
}

/// Fails for a single group that does not exist (OpenFlow 1.3.5 §7.3.5.9); `OFPG_ALL` may select
/// none.
fn groups(pipeline: &Pipeline, wanted: GroupId, now: Millis) -> Result<Vec<GroupStats>, Refusal> {
    let snapshot = pipeline.snapshot();
    if wanted != GroupId::ALL && snapshot.groups.find(wanted).is_none() {
        return Err(ErrorKind::OFPGMFC_UNKNOWN_GROUP.into());
    }
    let mut chains: HashMap<GroupId, usize> = HashMap::new();
    for group in snapshot.groups.iter().flat_map(|group| group.chained().collect::<BTreeSet<_>>()) {
        *chains.entry(group).or_default() += 1;
    }
    let is_wanted = |group: &&Arc<Group>| wanted == GroupId::ALL || group.id == wanted;
    let stats = |group: &Arc<Group>| {
        let totals = group.counters.totals();
        let (duration_sec, duration_nsec) = duration(now.since(group.created));
        let references = pipeline.rules_to(group.id) + chains.get(&group.id).unwrap_or(&0);
        GroupStats {
            group_id: group.id,
            ref_count: u32::try_from(references).unwrap_or(u32::MAX),
            packet_count: totals.packets,
            byte_count: totals.bytes,
            duration_sec,
            duration_nsec,
            bucket_stats: group.buckets.iter().map(|b| bucket_counter(&b.counters)).collect(),
        }
    };
    Ok(snapshot.groups.iter().filter(is_wanted).map(stats).collect())
}

/// The outcome of each bucket's copies, in packets on the wire: their number does not change where
/// trains are cut or joined between switches. A group that does not exist has none.
///
/// The processed packets are read last: copies may be missing because they are in progress, but
/// there are never more outcomes than packets.
fn ledgers(snapshot: &Snapshot, wanted: GroupId) -> Vec<BucketLedger> {
    let is_wanted = |group: &&Arc<Group>| wanted == GroupId::ALL || group.id == wanted;
    let ledger = |group: &Group, index: usize, bucket: &GroupBucket| {
        let drops = bucket.packet_drops.by_reason();
        let drops =
            drops.map(|(reason, count)| BucketDrops { reason: reason.name().into(), count });
        let (delivered, drops) = (bucket_counter(&bucket.delivered), drops.collect());
        let queued = bucket.queued.packets();
        let bucket_index = u32::try_from(index).unwrap_or(u32::MAX);
        let processed = bucket_counter(&bucket.counters);
        BucketLedger {
            group_id: group.id,
            bucket: bucket_index,
            processed,
            delivered,
            queued,
            drops,
        }
    };
    let groups = snapshot.groups.iter().filter(is_wanted);
    let buckets = groups.flat_map(|group| {
        let buckets = group.buckets.iter().enumerate();
        buckets.map(move |(index, bucket)| ledger(group, index, bucket))
    });
    buckets.collect()
}

fn bucket_counter(counters: &Counters) -> BucketCounter {
    let totals = counters.totals();
    BucketCounter { packet_count: totals.packets, byte_count: totals.bytes }
}

fn group_descriptions(snapshot: &Snapshot) -> Vec<GroupDesc> {
    let desc = |group: &Arc<Group>| GroupDesc {
        group_type: group.kind,
        group_id: group.id,
        buckets: group.buckets.iter().map(|bucket| bucket.spec.clone()).collect(),
    };
    snapshot.groups.iter().map(desc).collect()
}

/// A reply without our extensions of OpenFlow 1.3: buckets of a TAP are described as paths.
pub(crate) fn in_standard_words(mut reply: Body) -> Body {
    if let Body::MultipartReply(MultipartReply { body: Reply::GroupDesc(groups), .. }) = &mut reply
    {
        let buckets = groups.iter_mut().flat_map(|group| &mut group.buckets);
        buckets.for_each(|bucket| bucket.actions.retain(|action| !is_ours(action)));
    }
    reply
}

const fn is_ours(action: &Action) -> bool {
    matches!(action, Action::Experimenter { experimenter: EXPERIMENTER, .. })
}

fn group_features() -> GroupFeatures {
    let actions = tapswitch_datapath::ACTION_KINDS.iter().map(|kind| 1 << kind).sum();
    GroupFeatures {
        types: 0b1111,
        capabilities: GroupCapabilities::SELECT_WEIGHT
            | GroupCapabilities::SELECT_LIVENESS
            // Loops are refused, but a group that others refer to may be deleted, together with
            // these: so there are no checks in the sense of this field (OpenFlow 1.3.5 §7.3.5.11).
            | GroupCapabilities::CHAINING,
        max_groups: [u32::try_from(MAX_GROUPS).unwrap_or(u32::MAX); 4],
        actions: [actions; 4],
    }
}
