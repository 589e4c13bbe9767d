//! A switch without I/O: our datapath, and the part of an OpenFlow agent that the control plane
//! needs.

use std::collections::{BTreeMap, HashMap};

use tapswitch_datapath::{
    Arrival, Claim, Counters, DropReason, Egress, FlowEntry, Forwarder, Frame, HEADROOM,
    MacLearning, Millis, PacketInClaim, PacketInOrigin, Pipeline, Port, Removal, Sent, Sighting,
    View, WorkerIndex,
};
use tapswitch_openflow::multipart::{
    BucketCounter, Desc, FlowStats, GroupCapabilities, GroupDesc, GroupFeatures, GroupStats,
    PortStats,
};
use tapswitch_openflow::*;
use tapswitch_wire::{GsoType, MacAddr, NetHeader, NetHeaderFlags};

/// Frames sent by the switch.
#[derive(Debug, Default)]
struct Recorder {
    /// Port that takes nothing.
    full: Option<u32>,
    sent: Vec<(u32, Vec<u8>)>,
    packet_ins: Vec<(PacketInOrigin, Vec<u8>)>,
}

impl Egress for Recorder {
    fn transmit(
        &mut self,
        port: PortNo,
        frame: &mut Frame<'_>,
        _: &Claim<'_>,
    ) -> Result<Sent, DropReason> {
        if self.full == Some(port.0) {
            return Err(DropReason::EgressFull);
        }
        self.sent.push((port.0, bytes(frame)));
        Ok(Sent::Now)
    }

    fn transmit_part(
        &mut self,
        port: PortNo,
        frame: &mut Frame<'_>,
        claim: &Claim<'_>,
        snaplen: usize,
    ) -> Result<Sent, DropReason> {
        let sent = self.transmit(port, frame, claim)?;
        self.sent.last_mut().into_iter().for_each(|(_, bytes)| bytes.truncate(snaplen));
        Ok(sent)
    }

    fn packet_in(
        &mut self,
        origin: &PacketInOrigin,
        frame: &Frame<'_>,
        _: Option<&PacketInClaim<'_>>,
    ) -> Result<Sent, DropReason> {
        self.packet_ins.push((*origin, bytes(frame)));
        Ok(Sent::Now)
    }

    fn learn(&mut self, _: Sighting) {}
}

fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    [frame.head(), frame.rest()].concat()
}

/// A switch. Its messages to the controller are queued in `said`.
pub(crate) struct Model {
    pub(crate) id: u64,
    pub(crate) pipeline: Pipeline,
    forwarder: Forwarder,
    macs: MacLearning,
    pub(crate) now: Millis,
    pub(crate) said: Vec<Message>,
    /// Frames sent by packet-out, by port.
    pub(crate) emitted: Vec<(u32, Vec<u8>)>,
    /// Changes received.
    pub(crate) changes: Vec<Body>,
    /// Changes to reject.
    pub(crate) refuse: Option<fn(&Body) -> Option<ErrorKind>>,
    /// Sends no flow-removed.
    pub(crate) is_mute_on_removal: bool,
    /// Requests that it never answers.
    pub(crate) ignores: Option<fn(&MultipartRequestBody) -> bool>,
    /// Number of these.
    pub(crate) ignored: usize,
    /// Never answers barriers.
    pub(crate) ignores_barriers: bool,
    /// Is a foreign switch without our extensions.
    pub(crate) is_foreign: bool,
    /// Whether the controller has said that it only looks at packets, on this connection.
    pub(crate) starts_suffice: bool,
    /// Port that takes nothing.
    pub(crate) full: Option<u32>,
    /// While copies are queued: how many of each bucket have left the queue.
    out: Option<HashMap<(GroupId, u32), u64>>,
    /// Reported egress drops of each port.
    pub(crate) tx_dropped: u64,
    /// Reported group features.
    pub(crate) group_features: GroupFeatures,
}

impl Model {
    /// A switch with ports 1 to `ports`, named p1, p2, ...
    pub(crate) fn new(id: u64, ports: u32) -> Self {
        let mut model = Self {
            id,
            pipeline: Pipeline::new(1),
            forwarder: Forwarder::new(WorkerIndex(0)),
            macs: MacLearning::new(Millis(300_000), 16),
            now: Millis(1000),
            said: Vec::new(),
            emitted: Vec::new(),
            changes: Vec::new(),
            refuse: None,
            is_mute_on_removal: false,
            ignores: None,
            ignores_barriers: false,
            ignored: 0,
            is_foreign: false,
            starts_suffice: false,
            full: None,
            out: None,
            tx_dropped: 0,
            group_features: GroupFeatures {
                types: 0b1111,
                capabilities: GroupCapabilities::all(),
                max_groups: [1000; 4],
                actions: [u32::MAX; 4],
            },
        };
        (1..=ports).for_each(|port| model.add_port(port));
        model.said.clear();
        model
    }

    pub(crate) fn features(&self) -> FeaturesReply {
        FeaturesReply {
            datapath_id: DatapathId(self.id),
            n_buffers: 0,
            n_tables: 254,
            auxiliary_id: 0,
            capabilities: Capabilities::FLOW_STATS,
        }
    }

    pub(crate) fn add_port(&mut self, number: u32) {
        let mac = MacAddr([2, 0xff, 0, 0, 0, number as u8]);
        let port = Port::new(PortNo(number), format!("p{number}"), mac, 1500, 1);
        self.say_port(PortReason::ADD, &port);
        assert!(self.pipeline.set_port(port));
    }

    pub(crate) fn remove_port(&mut self, number: u32) {
        let port = self.pipeline.remove_port(PortNo(number)).unwrap();
        self.say_port(PortReason::DELETE, &port);
    }

    pub(crate) fn set_link(&mut self, number: u32, is_up: bool) {
        self.set_state(number, if is_up { PortState::LIVE } else { PortState::LINK_DOWN });
    }

    pub(crate) fn set_state(&mut self, number: u32, state: PortState) {
        let port = Port::clone(self.pipeline.snapshot().ports.find(PortNo(number)).unwrap());
        let port = Port { state, ..port };
        self.say_port(PortReason::MODIFY, &port);
        assert!(self.pipeline.set_port(port));
    }

    /// Sets a port up, with or without a mode that sends no S-tags.
    pub(crate) fn set_mode(&mut self, number: u32, passes_tags: bool) {
        let mut port = Port::clone(self.pipeline.snapshot().ports.find(PortNo(number)).unwrap());
        port.state = PortState::LIVE;
        port.state.set(PortState::NO_SERVICE_TAGS, !passes_tags);
        self.say_port(PortReason::MODIFY, &port);
        assert!(self.pipeline.set_port(port));
    }

    /// Loses all rules and groups, as in a restart.
    pub(crate) fn lose_tables(&mut self) {
        let mut pipeline = Pipeline::new(1);
        for port in self.pipeline.snapshot().ports.iter() {
            pipeline.set_port(Port::clone(port));
        }
        self.out = self.out.take().map(|_| HashMap::new());
        self.pipeline = pipeline;
        self.forwarder = Forwarder::new(WorkerIndex(0));
    }

    /// From here on all copies are reported as queued; or none any more.
    pub(crate) fn let_copies_wait(&mut self, wait: bool) {
        self.out = None;
        let told = self.ledgers(GroupId::ALL).into_iter();
        let out = told.map(|told| ((told.group_id, told.bucket), told.delivered.packet_count));
        self.out = wait.then(|| out.collect());
    }

    /// Receives a frame. Returns the frames sent, by port.
    pub(crate) fn receive(&mut self, port: u32, frame: &[u8]) -> Vec<(u32, Vec<u8>)> {
        self.receive_with(NetHeader::PLAIN, port, frame)
    }

    /// Receives a TCP/IPv4 train with this payload per packet.
    pub(crate) fn receive_train(
        &mut self,
        gso_size: u16,
        port: u32,
        frame: &[u8],
    ) -> Vec<(u32, Vec<u8>)> {
        let ip = frame.windows(2).position(|word| word == [0x08, 0x00]).unwrap() as u16 + 2;
        let (csum_start, csum_offset, hdr_len) = (ip + 20, 16, ip + 40);
        let meta = NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM,
            gso_type: GsoType::TCPV4,
            hdr_len,
            gso_size,
            csum_start,
            csum_offset,
        };
        self.receive_with(meta, port, frame)
    }

    fn receive_with(&mut self, meta: NetHeader, port: u32, frame: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let mut buf = [vec![0; HEADROOM], frame.to_vec()].concat();
        let arrival =
            Arrival { in_port: PortNo(port), meta, buf: &mut buf, start: HEADROOM, beyond_len: 0 };
        let snapshot = self.pipeline.snapshot().clone();
        let view = View { snapshot: &snapshot, macs: self.macs.table(), now: self.now };
        let mut out = Recorder { full: self.full, ..Recorder::default() };
        self.forwarder.handle(view, arrival, &mut out);
        self.forwarder.end_burst(self.now);
        for (origin, frame) in out.packet_ins {
            self.say(Body::PacketIn(packet_in(&origin, &frame, self.starts_suffice)));
        }
        out.sent.sort();
        out.sent
    }

    /// Advances time.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now = Millis(self.now.0 + ms);
        let removals = self.pipeline.handle_timeout(self.now);
        self.say_removals(removals);
    }

    /// Processes a message of the controller.
    pub(crate) fn handle(&mut self, message: Message) {
        let Message { xid, body } = message;
        if let Err(error) = self.try_handle(xid, &body) {
            let mut failed = Vec::new();
            Message { xid, body }.encode(&mut failed).unwrap();
            let body = Body::Error(ErrorMessage::about(error, &failed));
            self.said.push(Message { xid, body });
        }
    }

    fn try_handle(&mut self, xid: u32, body: &Body) -> Result<(), ErrorKind> {
        Message { xid, body: body.clone() }.check().map_err(|error| error.kind)?;
        if matches!(body, Body::FlowMod(_) | Body::GroupMod(_)) {
            self.changes.push(body.clone());
        }
        if let (Body::GroupMod(change), true) = (body, self.is_foreign) {
            let mut actions = change.buckets.iter().flat_map(|bucket| &bucket.actions);
            assert!(!actions.any(|action| Delivery::of(action).is_some()), "{change}");
        }
        if let Some(kind) = self.refuse.and_then(|refuse| refuse(body)) {
            return Err(kind);
        }
        let removals = match body {
            Body::FlowMod(change) => self.pipeline.handle_flow_mod(change, self.now)?,
            Body::GroupMod(change) => {
                if let Some(out) = &mut self.out {
                    // Its id may be reused.
                    out.retain(|(group, _), _| *group != change.group_id);
                }
                self.pipeline.handle_group_mod(change, self.now)?
            }
            Body::PacketOut(out) => {
                for action in &out.actions {
                    let Action::Output { port, .. } = action else { panic!("{action}") };
                    self.emitted.push((port.0, out.data.clone()));
                }
                return Ok(());
            }
            Body::Experimenter(body) => {
                assert!(!self.is_foreign, "others are not told what only ours understand");
                self.starts_suffice |= StartsSuffice::of(body).is_ok();
                return Ok(());
            }
            Body::BarrierRequest if self.ignores_barriers => return Ok(()),
            Body::BarrierRequest => {
                self.said.push(Message { xid, body: Body::BarrierReply });
                return Ok(());
            }
            Body::MultipartRequest(request)
                if self.ignores.is_some_and(|ignores| ignores(&request.body)) =>
            {
                self.ignored += 1;
                return Ok(());
            }
            Body::MultipartRequest(request) => {
                let reply = MultipartReply::new(self.describe(&request.body));
                self.said.push(Message { xid, body: Body::MultipartReply(reply) });
                return Ok(());
            }
            other => panic!("not for a switch: {other:?}"),
        };
        self.say_removals(removals);
        Ok(())
    }

    fn describe(&self, request: &MultipartRequestBody) -> MultipartReplyBody {
        let snapshot = self.pipeline.snapshot();
        match request {
            MultipartRequestBody::Desc => {
                let maker = if self.is_foreign { "Nicira, Inc." } else { MANUFACTURER };
                let desc = Desc { mfr_desc: maker.into(), ..Desc::default() };
                MultipartReplyBody::Desc(Box::new(desc))
            }
            MultipartRequestBody::Experimenter(body) => {
                assert!(!self.is_foreign, "others are not asked what only ours understand");
                let wanted = LedgerRequest::of(body).unwrap().group_id;
                MultipartReplyBody::Experimenter(BucketLedger::experimenter(&self.ledgers(wanted)))
            }
            MultipartRequestBody::PortStats(PortNo::ANY) => {
                let stats = snapshot.ports.iter().map(|port| self.port_stats(port));
                MultipartReplyBody::PortStats(stats.collect())
            }
            MultipartRequestBody::PortDesc => {
                MultipartReplyBody::PortDesc(snapshot.ports.iter().map(|port| desc(port)).collect())
            }
            MultipartRequestBody::Flow(wanted) => {
                let is_wanted =
                    |rule: &&FlowStats| (rule.cookie ^ wanted.cookie) & wanted.cookie_mask == 0;
                MultipartReplyBody::Flow(self.rules().iter().filter(is_wanted).cloned().collect())
            }
            MultipartRequestBody::GroupDesc => MultipartReplyBody::GroupDesc(self.groups()),
            MultipartRequestBody::GroupFeatures => {
                MultipartReplyBody::GroupFeatures(self.group_features)
            }
            MultipartRequestBody::Group(wanted) => {
                let groups = snapshot.groups.iter();
                let groups = groups.filter(|group| *wanted == GroupId::ALL || *wanted == group.id);
                let stats = groups.map(|group| {
                    let rules = snapshot.tables(TableId::ALL).flat_map(|(_, table)| table.iter());
                    let bucket_stats =
                        group.buckets.iter().map(|b| self.bucket_counter(&b.counters));
                    GroupStats {
                        group_id: group.id,
                        ref_count: rules.filter(|rule| rule.uses_group(group.id)).count() as u32,
                        packet_count: self.packets(&group.counters),
                        byte_count: group.counters.totals().bytes,
                        duration_sec: 0,
                        duration_nsec: 0,
                        bucket_stats: bucket_stats.collect(),
                    }
                });
                MultipartReplyBody::Group(stats.collect())
            }
            other => panic!("not asked by the control plane: {other:?}"),
        }
    }

    fn port_stats(&self, port: &Port) -> PortStats {
        PortStats {
            port_no: port.number,
            rx_packets: 0,
            tx_packets: 0,
            rx_bytes: 0,
            tx_bytes: 0,
            rx_dropped: 0,
            tx_dropped: self.tx_dropped,
            rx_errors: 0,
            tx_errors: 0,
            rx_frame_err: 0,
            rx_over_err: 0,
            rx_crc_err: 0,
            collisions: 0,
            duration_sec: 0,
            duration_nsec: 0,
        }
    }

    /// Ledgers of all buckets.
    fn ledgers(&self, wanted: GroupId) -> Vec<BucketLedger> {
        let groups = self.pipeline.snapshot().groups.iter();
        let groups = groups.filter(|group| wanted == GroupId::ALL || wanted == group.id);
        let buckets = groups.flat_map(|group| (0..).zip(&group.buckets).map(|at| (group.id, at)));
        let ledgers = buckets.map(|(group_id, (bucket, of))| {
            let (delivered, queued) =
                self.taken(group_id, bucket, self.bucket_counter(&of.delivered));
            let drops = of.packet_drops.by_reason();
            let drops = drops.map(|(reason, count)| (reason.name().into(), count));
            let drops = drops.map(|(reason, count)| BucketDrops { reason, count }).collect();
            let processed = self.bucket_counter(&of.counters);
            BucketLedger { group_id, bucket, processed, delivered, queued, drops }
        });
        ledgers.collect()
    }

    /// Of a bucket's sent copies: the number reported as delivered and as queued.
    fn taken(&self, group: GroupId, bucket: u32, left: BucketCounter) -> (BucketCounter, u64) {
        let Some(out) = &self.out else { return (left, 0) };
        let packet_count = out.get(&(group, bucket)).copied().unwrap_or_default();
        let byte_count = left.byte_count * packet_count / left.packet_count.max(1);
        (BucketCounter { packet_count, byte_count }, left.packet_count - packet_count)
    }

    /// All rules with counters.
    pub(crate) fn rules(&self) -> Vec<FlowStats> {
        let tables = self.pipeline.snapshot().tables(TableId::ALL);
        tables.flat_map(|(_, table)| table.iter()).map(|rule| self.flow_stats(rule)).collect()
    }

    /// All groups.
    pub(crate) fn groups(&self) -> Vec<GroupDesc> {
        let groups = self.pipeline.snapshot().groups.iter();
        let desc = |group: &std::sync::Arc<tapswitch_datapath::Group>| GroupDesc {
            group_type: group.kind,
            group_id: group.id,
            buckets: group.buckets.iter().map(|bucket| bucket.spec.clone()).collect(),
        };
        groups.map(desc).collect()
    }

    /// All rules and groups without counters, ages and group ids, sorted.
    pub(crate) fn state(&self) -> Vec<String> {
        let groups = self.groups();
        let texts: BTreeMap<_, _> = groups
            .iter()
            .map(|group| (format!("group:{}", group.group_id), buckets_text(group)))
            .collect();
        let rules = self.rules();
        let mut lines: Vec<_> = rules
            .iter()
            .map(|rule| {
                let fixed = FlowStats {
                    packet_count: 0,
                    byte_count: 0,
                    duration_sec: 0,
                    duration_nsec: 0,
                    ..rule.clone()
                };
                let text = fixed.to_string();
                texts.iter().fold(text, |text, (id, buckets)| text.replace(id.as_str(), buckets))
            })
            .collect();
        lines.extend(texts.into_values());
        lines.sort();
        lines
    }

    fn flow_stats(&self, rule: &FlowEntry) -> FlowStats {
        FlowStats {
            table_id: rule.table_id,
            duration_sec: 0,
            duration_nsec: 0,
            priority: rule.priority,
            idle_timeout: rule.idle_timeout,
            hard_timeout: rule.hard_timeout,
            flags: rule.flags,
            cookie: rule.cookie,
            packet_count: self.packets(&rule.counters),
            byte_count: rule.counters.totals().bytes,
            match_fields: rule.matching.clone(),
            instructions: rule.instructions.to_vec(),
        }
    }

    fn bucket_counter(&self, counters: &Counters) -> BucketCounter {
        BucketCounter { packet_count: self.packets(counters), byte_count: counters.totals().bytes }
    }

    /// Packets as this switch counts them: a foreign one counts a train as one.
    fn packets(&self, counters: &Counters) -> u64 {
        let counted = counters.totals();
        if self.is_foreign { counted.frames } else { counted.packets }
    }

    fn say(&mut self, body: Body) {
        self.said.push(Message { xid: 0, body });
    }

    fn say_port(&mut self, reason: PortReason, port: &Port) {
        self.say(Body::PortStatus(PortStatus { reason, desc: desc(port) }));
    }

    fn say_removals(&mut self, removals: Vec<Removal>) {
        for Removal { entry, reason } in removals {
            if entry.flags.contains(FlowModFlags::SEND_FLOW_REM) && !self.is_mute_on_removal {
                let stats = self.flow_stats(&entry);
                self.say(Body::FlowRemoved(FlowRemoved {
                    cookie: stats.cookie,
                    priority: stats.priority,
                    reason,
                    table_id: stats.table_id,
                    duration_sec: 0,
                    duration_nsec: 0,
                    idle_timeout: stats.idle_timeout,
                    hard_timeout: stats.hard_timeout,
                    packet_count: stats.packet_count,
                    byte_count: stats.byte_count,
                    match_fields: stats.match_fields,
                }));
            }
        }
    }
}

fn buckets_text(group: &GroupDesc) -> String {
    let group = GroupDesc { group_id: GroupId(0), ..group.clone() };
    format!("[{group}]")
}

fn packet_in(origin: &PacketInOrigin, frame: &[u8], starts_suffice: bool) -> PacketIn {
    let asked = starts_suffice.then_some(origin.max_len);
    let asked = asked.into_iter().chain(origin.snaplen).map(usize::from).min();
    let sent = asked.map_or(frame.len(), |asked| frame.len().min(asked));
    PacketIn {
        buffer_id: BufferId::NO_BUFFER,
        total_len: frame.len() as u16,
        reason: origin.reason,
        table_id: origin.table_id,
        cookie: origin.cookie,
        match_fields: Match::new().with(Oxm::InPort(origin.in_port)),
        data: frame[..sent].to_vec(),
    }
}

fn desc(port: &Port) -> tapswitch_openflow::Port {
    let Port { number, hw_addr, ref name, config, state, .. } = *port;
    tapswitch_openflow::Port {
        config,
        ..tapswitch_openflow::Port::new(number, hw_addr, name, state)
    }
}
