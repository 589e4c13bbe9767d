//! A scripted switch: the switch's end of the channel over TCP, with a table of rules and no
//! forwarding.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tapswitch_channel::{Config, ConnectionId, Roles, SwitchConnection, SwitchEvent};
use tapswitch_openflow::multipart::{
    BucketCounter, FlowStats, GroupDesc, GroupFeatures, GroupStats, PortStats,
};
use tapswitch_openflow::*;
use tapswitch_wire::MacAddr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::running::within;

/// Tables and behaviour of a switch. Survives its connections.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) rules: BTreeMap<String, FlowMod>,
    pub(crate) groups: BTreeMap<GroupId, GroupMod>,
    /// Number of changes of rules and groups.
    pub(crate) changes: usize,
    /// Count of every copying rule and every bucket.
    pub(crate) counted: u64,
    /// Bytes received and sent at each port.
    pub(crate) port_bytes: u64,
    /// Rejects rules of this priority.
    pub(crate) refused_priority: Option<u16>,
    /// Rejects copying rules.
    pub(crate) refuses_copies: bool,
    /// Holds replies to barriers back.
    pub(crate) is_mute: bool,
    /// Holds replies with counters of single groups back.
    pub(crate) holds_counters: bool,
    /// The requests for these: transaction id and body.
    pub(crate) held_counters: Vec<(u32, MultipartRequestBody)>,
    /// Barriers to be answered with the next message once it is not mute any more.
    held_barriers: Vec<u32>,
}

/// A connected switch.
pub(crate) struct Script {
    pub(crate) state: Arc<Mutex<State>>,
    says: mpsc::UnboundedSender<Body>,
    task: JoinHandle<()>,
}

impl Script {
    /// Connects switch `id` with four ports.
    pub(crate) async fn connect(id: u64, address: SocketAddr) -> Self {
        Self::connect_again(id, address, Arc::default()).await
    }

    /// Connects switch `id` with its former tables.
    pub(crate) async fn connect_again(
        id: u64,
        address: SocketAddr,
        state: Arc<Mutex<State>>,
    ) -> Self {
        Self::on(id, TcpStream::connect(address).await.unwrap(), state)
    }

    /// Runs switch `id` on this stream.
    pub(crate) fn on(
        id: u64,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        state: Arc<Mutex<State>>,
    ) -> Self {
        let (says, said) = mpsc::unbounded_channel();
        let task = tokio::spawn(run(id, stream, state.clone(), said));
        Self { state, says, task }
    }

    /// Sends an unsolicited message.
    pub(crate) fn say(&self, body: Body) {
        self.says.send(body).unwrap();
    }

    /// Closes the connection.
    pub(crate) async fn disconnect(self) -> Arc<Mutex<State>> {
        drop(self.says);
        within(self.task).await.unwrap();
        self.state
    }

    /// Waits until the controller closes the connection.
    pub(crate) async fn closed(self) {
        within(self.task).await.unwrap();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.task.is_finished()
    }

    /// Cookie of the only copying rule.
    pub(crate) fn tap_cookie(&self) -> u64 {
        let state = self.state.lock().unwrap();
        state.rules.values().find(|rule| makes_copies(rule)).unwrap().cookie
    }

    /// Number of copying rules.
    pub(crate) fn tap_count(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.rules.values().filter(|rule| makes_copies(rule)).count()
    }
}

async fn run(
    id: u64,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    state: Arc<Mutex<State>>,
    mut said: mpsc::UnboundedReceiver<Body>,
) {
    let mut channel = SwitchConnection::new(Config::default(), Instant::now());
    let mut roles = Roles::new();
    let mut buf = vec![0; 64 << 10];
    loop {
        // First, as messages after a barrier follow its reply.
        answer_held(&mut channel, &mut state.lock().unwrap());
        while let Some(event) = channel.poll_event() {
            match event {
                SwitchEvent::Request(message) => {
                    answer(id, &mut channel, &message, &mut state.lock().unwrap());
                }
                SwitchEvent::Closed(_) => return,
                SwitchEvent::Ready => {}
                SwitchEvent::RoleRequest { xid, request } => {
                    let answer = roles.handle_request(ConnectionId(0), channel.role(), request);
                    channel.answer_role(xid, request, answer).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        let bytes = channel.poll_transmit().to_vec();
        if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        channel.handle_transmitted(bytes.len(), Instant::now());
        tokio::select! {
            len = stream.read(&mut buf) => match len {
                Ok(0) | Err(_) => channel.handle_eof(),
                Ok(len) => channel.handle_bytes(&buf[..len], Instant::now()),
            },
            body = said.recv() => match body {
                Some(body) => assert!(channel.notify(body).unwrap()),
                None => return,
            },
        }
    }
}

fn answer_held(channel: &mut SwitchConnection, state: &mut State) {
    if !state.is_mute {
        for xid in std::mem::take(&mut state.held_barriers) {
            channel.reply(xid, Body::BarrierReply).unwrap();
        }
    }
    if !state.holds_counters {
        for (xid, request) in std::mem::take(&mut state.held_counters) {
            let reply = MultipartReply::new(describe(&request, state));
            channel.reply(xid, Body::MultipartReply(reply)).unwrap();
        }
    }
}

fn answer(id: u64, channel: &mut SwitchConnection, message: &Message, state: &mut State) {
    let reply = match &message.body {
        Body::FeaturesRequest => Body::FeaturesReply(features(id)),
        Body::BarrierRequest if state.is_mute => return state.held_barriers.push(message.xid),
        Body::BarrierRequest => Body::BarrierReply,
        Body::MultipartRequest(request)
            if state.holds_counters && is_of_one_group(&request.body) =>
        {
            return state.held_counters.push((message.xid, request.body.clone()));
        }
        Body::MultipartRequest(request) => {
            Body::MultipartReply(MultipartReply::new(describe(&request.body, state)))
        }
        Body::FlowMod(change) => {
            state.changes += 1;
            let is_copying = !change.command.deletes() && makes_copies(change);
            if state.refused_priority == Some(change.priority)
                || (state.refuses_copies && is_copying)
            {
                return channel.refuse(message, ErrorKind::OFPFMFC_TABLE_FULL).unwrap();
            }
            return change_rule(channel, change, state);
        }
        Body::GroupMod(change) => {
            state.changes += 1;
            match change.command {
                GroupModCommand::Delete => _ = state.groups.remove(&change.group_id),
                _ => _ = state.groups.insert(change.group_id, change.clone()),
            }
            return;
        }
        // Its ports are not connected.
        Body::PacketOut(_) => return,
        other => panic!("{other:?}"),
    };
    channel.reply(message.xid, reply).unwrap();
}

fn change_rule(channel: &mut SwitchConnection, change: &FlowMod, state: &mut State) {
    let key = format!("{}/{}/{}", change.table_id, change.priority, change.match_fields);
    if !change.command.deletes() {
        state.rules.insert(key, change.clone());
        return;
    }
    let Some(rule) = state.rules.remove(&key) else { return };
    if rule.flags.contains(FlowModFlags::SEND_FLOW_REM) {
        let stats = flow_stats(&rule, state.counted);
        let removed = FlowRemoved {
            cookie: stats.cookie,
            priority: stats.priority,
            reason: FlowRemovedReason::DELETE,
            table_id: stats.table_id,
            duration_sec: 0,
            duration_nsec: 0,
            idle_timeout: stats.idle_timeout,
            hard_timeout: 0,
            packet_count: stats.packet_count,
            byte_count: stats.byte_count,
            match_fields: stats.match_fields,
        };
        assert!(channel.notify(Body::FlowRemoved(removed)).unwrap());
    }
}

fn describe(request: &MultipartRequestBody, state: &State) -> MultipartReplyBody {
    match request {
        MultipartRequestBody::Desc => MultipartReplyBody::Desc(Box::default()),
        MultipartRequestBody::PortStats(_) => {
            MultipartReplyBody::PortStats((1..=4).map(|number| port_stats(number, state)).collect())
        }
        MultipartRequestBody::GroupFeatures => {
            MultipartReplyBody::GroupFeatures(GroupFeatures::default())
        }
        MultipartRequestBody::PortDesc => {
            MultipartReplyBody::PortDesc((1..=4).map(|number| port(number, true)).collect())
        }
        MultipartRequestBody::Flow(wanted) => {
            let stats = state.rules.values().map(|rule| flow_stats(rule, state.counted));
            let is_wanted =
                |rule: &FlowStats| (rule.cookie ^ wanted.cookie) & wanted.cookie_mask == 0;
            MultipartReplyBody::Flow(stats.filter(is_wanted).collect())
        }
        MultipartRequestBody::GroupDesc => {
            let desc = state.groups.values().map(|group| GroupDesc {
                group_type: group.group_type,
                group_id: group.group_id,
                buckets: group.buckets.clone(),
            });
            MultipartReplyBody::GroupDesc(desc.collect())
        }
        MultipartRequestBody::Group(wanted) => {
            let groups = state.groups.values();
            let groups = groups.filter(|g| *wanted == GroupId::ALL || *wanted == g.group_id);
            let stats = groups.map(|group| GroupStats {
                group_id: group.group_id,
                ref_count: 1,
                packet_count: state.counted,
                byte_count: state.counted * 100,
                duration_sec: 0,
                duration_nsec: 0,
                bucket_stats: vec![bucket(state.counted); group.buckets.len()],
            });
            MultipartReplyBody::Group(stats.collect())
        }
        other => panic!("{other:?}"),
    }
}

fn is_of_one_group(request: &MultipartRequestBody) -> bool {
    matches!(request, MultipartRequestBody::Group(group) if *group != GroupId::ALL)
}

fn port_stats(number: u32, state: &State) -> PortStats {
    PortStats {
        port_no: PortNo(number),
        rx_packets: state.port_bytes / 100,
        tx_packets: state.port_bytes / 100,
        rx_bytes: state.port_bytes,
        tx_bytes: state.port_bytes,
        rx_dropped: 0,
        tx_dropped: 0,
        rx_errors: u64::MAX,
        tx_errors: u64::MAX,
        rx_frame_err: u64::MAX,
        rx_over_err: u64::MAX,
        rx_crc_err: u64::MAX,
        collisions: u64::MAX,
        duration_sec: 1,
        duration_nsec: 0,
    }
}

fn flow_stats(rule: &FlowMod, counted: u64) -> FlowStats {
    let counted = if makes_copies(rule) { counted } else { 0 };
    FlowStats {
        table_id: rule.table_id,
        duration_sec: 0,
        duration_nsec: 0,
        priority: rule.priority,
        idle_timeout: rule.idle_timeout,
        hard_timeout: 0,
        flags: rule.flags,
        cookie: rule.cookie,
        packet_count: counted,
        byte_count: counted * 100,
        match_fields: rule.match_fields.clone(),
        instructions: rule.instructions.clone(),
    }
}

fn makes_copies(rule: &FlowMod) -> bool {
    rule.instructions.iter().any(|instruction| match instruction {
        Instruction::ApplyActions(actions) => matches!(actions[..], [Action::Group(_)]),
        _ => false,
    })
}

fn bucket(counted: u64) -> BucketCounter {
    BucketCounter { packet_count: counted, byte_count: counted * 100 }
}

fn features(id: u64) -> FeaturesReply {
    FeaturesReply {
        datapath_id: DatapathId(id),
        n_buffers: 0,
        n_tables: 2,
        auxiliary_id: 0,
        capabilities: Capabilities::empty(),
    }
}

fn port(number: u32, is_up: bool) -> Port {
    let state = if is_up { PortState::LIVE } else { PortState::LINK_DOWN };
    let hw_addr = MacAddr([2, 0xff, 0, 0, 0, number as u8]);
    Port::new(PortNo(number), hw_addr, &format!("p{number}"), state)
}

/// A port has lost or regained its link.
pub(crate) fn port_status(number: u32, is_up: bool) -> Body {
    Body::PortStatus(PortStatus { reason: PortReason::MODIFY, desc: port(number, is_up) })
}

/// Host 10.0.0.`host` at port `port` sends an ARP request for another host.
pub(crate) fn arp(host: u8, port: u32) -> Body {
    let mut data = [[0xff; 6], [2, 0, 0, 0, 0, host]].concat();
    data.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, host, 10, 0, 0, host]);
    data.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 99]);
    packet_in(data, port)
}

/// Host `host` at port `port` sends a packet from 10.0.0.`src` with this TTL.
pub(crate) fn ipv4(host: u8, src: u8, ttl: u8, port: u32) -> Body {
    let mut data = [[2, 0, 0, 0, 0, 99], [2, 0, 0, 0, 0, host]].concat();
    data.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, ttl, 17, 0, 0, 10, 0, 0, src, 10, 0, 0, 99]);
    data.extend([0x9c, 0x40, 0, 53, 0, 8, 0, 0]);
    packet_in(data, port)
}

fn packet_in(data: Vec<u8>, port: u32) -> Body {
    Body::PacketIn(PacketIn {
        buffer_id: BufferId::NO_BUFFER,
        total_len: 42,
        reason: PacketInReason::ACTION,
        table_id: TableId(0),
        cookie: 0x7470_0001_0000_0000,
        match_fields: Match::new().with(Oxm::InPort(PortNo(port))),
        data,
    })
}

/// A switch that reads until it is taken over, and then only writes.
pub(crate) struct Deaf {
    stream: TcpStream,
    channel: SwitchConnection,
}

impl Deaf {
    /// Connects as switch `id` and reads until its base rules have arrived.
    pub(crate) async fn connect(id: u64, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        let mut channel = SwitchConnection::new(Config::default(), Instant::now());
        let mut state = State::default();
        let mut buf = vec![0; 4096];
        while state.rules.len() < 8 {
            let bytes = channel.poll_transmit().to_vec();
            stream.write_all(&bytes).await.unwrap();
            channel.handle_transmitted(bytes.len(), Instant::now());
            let len = stream.read(&mut buf).await.unwrap();
            channel.handle_bytes(&buf[..len], Instant::now());
            while let Some(event) = channel.poll_event() {
                if let SwitchEvent::Request(message) = event {
                    answer(id, &mut channel, &message, &mut state);
                }
            }
        }
        Self { stream, channel }
    }

    /// Sends a message; `false` if the connection is closed.
    pub(crate) async fn say(&mut self, body: Body) -> bool {
        assert!(self.channel.notify(body).unwrap());
        let bytes = self.channel.poll_transmit().to_vec();
        self.channel.handle_transmitted(bytes.len(), Instant::now());
        self.stream.write_all(&bytes).await.is_ok()
    }
}
