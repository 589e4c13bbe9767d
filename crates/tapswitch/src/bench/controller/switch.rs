//! A simulated switch: the switch's end of OpenFlow over TCP, with real tables of rules and groups,
//! which forwards only the frames for link discovery.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tapswitch_channel::{Config, SwitchConnection, SwitchEvent, only_asks};
use tapswitch_openflow::multipart::{
    BucketCounter, Desc, FlowStats, GroupCapabilities, GroupDesc, GroupFeatures, GroupStats,
};
use tapswitch_openflow::*;
use tapswitch_wire::{EtherType, MacAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// An external event for a switch.
#[derive(Debug)]
pub(super) enum Input {
    /// A frame arrived on the link at this port.
    Frame { port: u32, frame: Vec<u8> },
    /// The port's link went down or up.
    Link { port: u32, is_up: bool },
    /// A host behind this port requests another one's address, or answers it.
    Host { port: u32, mac: MacAddr, ip: [u8; 4], to: Option<MacAddr> },
}

/// State shared by all switches.
#[derive(Debug)]
pub(super) struct World {
    /// Links: from switch and port to switch and port.
    pub(super) cables: HashMap<(u64, u32), (u64, u32)>,
    pub(super) inboxes: HashMap<u64, mpsc::UnboundedSender<Input>>,
    /// Rules and groups added, changed or deleted, over all switches.
    pub(super) changes: AtomicU64,
    /// Number of rules in all switches.
    pub(super) rules: AtomicU64,
}

/// One switch.
pub(super) struct Switch {
    pub(super) id: u64,
    pub(super) ports: u32,
    pub(super) world: Arc<World>,
    pub(super) inbox: mpsc::UnboundedReceiver<Input>,
}

#[derive(Default)]
struct Tables {
    rules: HashMap<(TableId, u16, Match), FlowMod>,
    /// Cookies of the rules that send frames of these types to the controller.
    shown: HashMap<EtherType, u64>,
    groups: HashMap<GroupId, GroupMod>,
    /// Ports without a link.
    down: Vec<u32>,
}

impl Switch {
    /// Serves one connection to its end.
    pub(super) async fn run(mut self, controller: SocketAddr) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(controller).await?;
        stream.set_nodelay(true)?;
        let mut channel = SwitchConnection::new(Config::default(), Instant::now());
        let mut tables = Tables::default();
        let mut buf = vec![0; 64 << 10];
        loop {
            while let Some(event) = channel.poll_event() {
                match event {
                    SwitchEvent::Request(message) => {
                        self.answer(&mut channel, &message, &mut tables);
                    }
                    SwitchEvent::RoleRequest { xid, request } => {
                        // The controller has disconnected.
                        let _ = channel.answer_role(xid, request, Err(ErrorKind::OFPBRC_BAD_TYPE));
                    }
                    SwitchEvent::Closed(_) => return Ok(()),
                    _ => {}
                }
            }
            let bytes = channel.poll_transmit().to_vec();
            stream.write_all(&bytes).await?;
            channel.handle_transmitted(bytes.len(), Instant::now());
            let deadline = channel.poll_timeout().map(tokio::time::Instant::from_std);
            let timeout = async {
                match deadline {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                len = stream.read(&mut buf) => match len? {
                    0 => channel.handle_eof(),
                    len => {
                        let bytes = buf.get(..len).unwrap_or_default();
                        channel.handle_bytes(bytes, Instant::now());
                    }
                },
                Some(input) = self.inbox.recv() => {
                    self.handle(input, &mut channel, &mut tables);
                    // Pending events are sent together.
                    while let Ok(input) = self.inbox.try_recv() {
                        self.handle(input, &mut channel, &mut tables);
                    }
                }
                () = timeout => channel.handle_timeout(Instant::now()),
            }
        }
    }

    fn handle(&self, input: Input, channel: &mut SwitchConnection, tables: &mut Tables) {
        let body = match input {
            Input::Frame { port, frame } => tables.packet_in(port, frame),
            Input::Host { port, mac, ip, to } => tables.packet_in(port, arp(mac, ip, to)),
            Input::Link { port, is_up } => {
                tables.down.retain(|down| *down != port);
                tables.down.extend((!is_up).then_some(port));
                let desc = describe_port(port, is_up);
                Some(Body::PortStatus(PortStatus { reason: PortReason::MODIFY, desc }))
            }
        };
        if let Some(body) = body {
            // The controller has disconnected.
            let _ = channel.notify(body);
        }
    }

    fn answer(&self, channel: &mut SwitchConnection, message: &Message, tables: &mut Tables) {
        let reply = match &message.body {
            Body::FeaturesRequest => Body::FeaturesReply(FeaturesReply {
                datapath_id: DatapathId(self.id),
                n_buffers: 0,
                n_tables: 254,
                auxiliary_id: 0,
                capabilities: Capabilities::FLOW_STATS,
            }),
            Body::BarrierRequest => Body::BarrierReply,
            Body::MultipartRequest(request) => {
                Body::MultipartReply(MultipartReply::new(self.describe(&request.body, tables)))
            }
            Body::FlowMod(change) => return self.change_rule(channel, change, tables),
            Body::GroupMod(change) => return self.change_group(change, tables),
            Body::PacketOut(out) => return self.send(out, tables),
            // The controller no longer waits for answers.
            body if only_asks(body) => {
                let _ = channel.refuse(message, ErrorKind::OFPBRC_BAD_TYPE);
                return;
            }
            _ => return,
        };
        // The controller has disconnected.
        let _ = channel.reply(message.xid, reply);
    }

    /// Sends a frame over the links.
    fn send(&self, out: &PacketOut, tables: &Tables) {
        for action in &out.actions {
            let Action::Output { port, .. } = action else { continue };
            let Some((peer, at)) = self.world.cables.get(&(self.id, port.0)) else { continue };
            if let Some(inbox) = self.world.inboxes.get(peer)
                && !tables.down.contains(&port.0)
            {
                // The switch has ended.
                let _ = inbox.send(Input::Frame { port: *at, frame: out.data.clone() });
            }
        }
    }

    fn change_group(&self, change: &GroupMod, tables: &mut Tables) {
        self.world.changes.fetch_add(1, Ordering::Relaxed);
        match change.command {
            GroupModCommand::Delete => _ = tables.groups.remove(&change.group_id),
            _ => _ = tables.groups.insert(change.group_id, change.clone()),
        }
    }

    fn change_rule(&self, channel: &mut SwitchConnection, change: &FlowMod, tables: &mut Tables) {
        self.world.changes.fetch_add(1, Ordering::Relaxed);
        let key = (change.table_id, change.priority, change.match_fields.clone());
        if let Some(kind) = shown_kind(change) {
            match change.command.deletes() {
                true => _ = tables.shown.remove(&kind),
                false => _ = tables.shown.insert(kind, change.cookie),
            }
        }
        if !change.command.deletes() {
            if tables.rules.insert(key, change.clone()).is_none() {
                self.world.rules.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        let Some(rule) = tables.rules.remove(&key) else { return };
        self.world.rules.fetch_sub(1, Ordering::Relaxed);
        if rule.flags.contains(FlowModFlags::SEND_FLOW_REM) {
            // The controller has disconnected.
            let _ = channel.notify(Body::FlowRemoved(removed(&rule)));
        }
    }

    fn describe(&self, request: &MultipartRequestBody, tables: &Tables) -> MultipartReplyBody {
        match request {
            MultipartRequestBody::PortDesc => {
                let ports =
                    (1..=self.ports).map(|port| describe_port(port, !tables.down.contains(&port)));
                MultipartReplyBody::PortDesc(ports.collect())
            }
            MultipartRequestBody::Flow(wanted) => {
                let is_ours =
                    |rule: &&FlowMod| (rule.cookie ^ wanted.cookie) & wanted.cookie_mask == 0;
                let rules = tables.rules.values().filter(is_ours);
                MultipartReplyBody::Flow(rules.map(flow_stats).collect())
            }
            MultipartRequestBody::GroupDesc => {
                let groups = tables.groups.values().map(|group| GroupDesc {
                    group_type: group.group_type,
                    group_id: group.group_id,
                    buckets: group.buckets.clone(),
                });
                MultipartReplyBody::GroupDesc(groups.collect())
            }
            MultipartRequestBody::Group(wanted) => {
                let groups = tables.groups.values();
                let groups = groups.filter(|g| *wanted == GroupId::ALL || *wanted == g.group_id);
                MultipartReplyBody::Group(groups.map(group_stats).collect())
            }
            MultipartRequestBody::PortStats(_) => MultipartReplyBody::PortStats(Vec::new()),
            MultipartRequestBody::GroupFeatures => {
                MultipartReplyBody::GroupFeatures(GroupFeatures {
                    types: 0b1111,
                    capabilities: GroupCapabilities::all(),
                    max_groups: [u32::MAX; 4],
                    actions: [u32::MAX; 4],
                })
            }
            _ => MultipartReplyBody::Desc(Box::new(Desc {
                mfr_desc: "simulated".into(),
                ..Desc::default()
            })),
        }
    }
}

impl Tables {
    /// The packet-in for a frame, if a rule requests it.
    fn packet_in(&self, port: u32, data: Vec<u8>) -> Option<Body> {
        let &[a, b] = data.get(12..14)? else { return None };
        let cookie = *self.shown.get(&EtherType(u16::from_be_bytes([a, b])))?;
        Some(Body::PacketIn(PacketIn {
            buffer_id: BufferId::NO_BUFFER,
            total_len: u16::try_from(data.len()).ok()?,
            reason: PacketInReason::ACTION,
            table_id: TableId(0),
            cookie,
            match_fields: Match::new().with(Oxm::InPort(PortNo(port))),
            data,
        }))
    }
}

/// The type of frames that a rule sends to the controller, if it does.
fn shown_kind(rule: &FlowMod) -> Option<EtherType> {
    let mut kinds = rule.match_fields.iter().filter_map(|field| match field {
        Oxm::EthType(kind) => Some(*kind),
        _ => None,
    });
    kinds.next().filter(|_| rule.table_id == TableId(0))
}

fn describe_port(number: u32, is_up: bool) -> Port {
    let [.., a, b] = number.to_be_bytes();
    let state = if is_up { PortState::LIVE } else { PortState::LINK_DOWN };
    Port::new(PortNo(number), MacAddr([2, 0xfe, 0, 0, a, b]), &format!("p{number}"), state)
}

fn flow_stats(rule: &FlowMod) -> FlowStats {
    FlowStats {
        table_id: rule.table_id,
        duration_sec: 0,
        duration_nsec: 0,
        priority: rule.priority,
        idle_timeout: rule.idle_timeout,
        hard_timeout: 0,
        flags: rule.flags,
        cookie: rule.cookie,
        packet_count: 0,
        byte_count: 0,
        match_fields: rule.match_fields.clone(),
        instructions: rule.instructions.clone(),
    }
}

fn group_stats(group: &GroupMod) -> GroupStats {
    let none = BucketCounter { packet_count: 0, byte_count: 0 };
    GroupStats {
        group_id: group.group_id,
        ref_count: 1,
        packet_count: 0,
        byte_count: 0,
        duration_sec: 0,
        duration_nsec: 0,
        bucket_stats: vec![none; group.buckets.len()],
    }
}

fn removed(rule: &FlowMod) -> FlowRemoved {
    FlowRemoved {
        cookie: rule.cookie,
        priority: rule.priority,
        reason: FlowRemovedReason::DELETE,
        table_id: rule.table_id,
        duration_sec: 0,
        duration_nsec: 0,
        idle_timeout: rule.idle_timeout,
        hard_timeout: 0,
        packet_count: 0,
        byte_count: 0,
        match_fields: rule.match_fields.clone(),
    }
}

/// A host requests the first address of its network, or answers another one.
fn arp(mac: MacAddr, ip: [u8; 4], to: Option<MacAddr>) -> Vec<u8> {
    let operation = if to.is_some() { 2 } else { 1 };
    let mut frame = [to.unwrap_or(MacAddr::BROADCAST).0, mac.0].concat();
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend(mac.0);
    frame.extend(ip);
    frame.extend(to.unwrap_or(MacAddr::ZERO).0);
    frame.extend([10, 0, 0, 1]);
    frame
}
