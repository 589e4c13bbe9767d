//! The OpenFlow agent: the switch's reaction to each message. No I/O, no clock.
//!
//! [`Agent::handle_message`] takes one message and returns an [`Outcome`]: replies, notifications
//! for every controller, and work for the workers. The caller publishes the new tables to the
//! workers before it sends the replies, so that an answer is never ahead of its effect.

mod meters;
mod statistics;
mod table_features;
#[cfg(test)]
mod tests;

use tapswitch_datapath::{
    MacLearning, Millis, PacketInOrigin, Pipeline, Port, Removal, Restless, Sighting, TABLE_COUNT,
};
use tapswitch_openflow::{
    Body, BufferId, Capabilities, ConfigFlags, DatapathId, ErrorKind, FeaturesReply, FlowMod,
    FlowModFlags, FlowRemoved, GroupMod, Masked, Match, Message, MeterMod, MultipartReply, Oxm,
    PacketIn, PacketOut, PortMod, PortNo, PortReason, PortStatus, QueueGetConfigReply,
    StartsSuffice, SwitchConfig, TableId, TableMod,
};

use crate::config::Learning;
pub(crate) use statistics::in_standard_words;

/// The switch's identity in OpenFlow.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Unique id of the datapath.
    pub(crate) datapath_id: DatapathId,
    /// Name of the bridge.
    pub(crate) name: String,
}

/// The tables and the messages about them.
#[derive(Debug)]
pub(crate) struct Agent {
    identity: Identity,
    pipeline: Pipeline,
    macs: MacLearning,
    config: SwitchConfig,
    /// Time of the next sweep for silent stations.
    next_sweep: Millis,
}

/// The outcome of a message.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Replies, to be sent with the message's xid.
    pub(crate) replies: Vec<Body>,
    /// Notifications for every controller that wants them.
    pub(crate) events: Vec<Body>,
    /// Removed rules, to be reported when no worker uses them any more.
    pub(crate) gone: Vec<Gone>,
    /// A packet to send.
    pub(crate) packet_out: Option<PacketOut>,
    /// A barrier reply is due when the workers have caught up.
    pub(crate) barrier: bool,
    /// The part of the message that failed, although the rest was done.
    pub(crate) error: Option<ErrorKind>,
}

/// A removed rule with the flag to report that (OpenFlow 1.3.5 §7.4.2). Workers may count for it
/// until they use the tables without it.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    removal: Removal,
    at: Millis,
}

impl Gone {
    fn of(removals: Vec<Removal>, at: Millis) -> Vec<Self> {
        let wanted = |removal: &Removal| removal.entry.flags.contains(FlowModFlags::SEND_FLOW_REM);
        removals.into_iter().filter(wanted).map(|removal| Self { removal, at }).collect()
    }

    /// The flow-removed message, with the current counters.
    pub(crate) fn message(&self) -> Body {
        let Removal { entry, reason } = &self.removal;
        let totals = entry.counters.totals();
        let (duration_sec, duration_nsec) = duration(self.at.since(entry.created));
        Body::FlowRemoved(FlowRemoved {
            cookie: entry.cookie,
            priority: entry.priority,
            reason: *reason,
            table_id: entry.table_id,
            duration_sec,
            duration_nsec,
            idle_timeout: entry.idle_timeout,
            hard_timeout: entry.hard_timeout,
            packet_count: totals.packets,
            byte_count: totals.bytes,
            match_fields: entry.matching.clone(),
        })
    }
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The error for the sender.
    pub(crate) kind: ErrorKind,
    /// The explanation for the log.
    pub(crate) text: String,
}

impl Agent {
    pub(crate) fn new(identity: Identity, learning: Learning, workers: usize, now: Millis) -> Self {
        let macs = MacLearning::new(MAC_AGE_LIMIT, MAC_COUNT_LIMIT);
        Self {
            identity,
            // The agent counts as well: drops of packets that it could not pass on.
            pipeline: Pipeline::new(workers + 1),
            macs: macs.by_stack(learning == Learning::Stack),
            config: SwitchConfig::default(),
            next_sweep: Millis(now.0 + MAC_SWEEP.0),
        }
    }

    /// Handles one message of a controller. The connection has [checked](Message::check) its
    /// format; checks against the switch's state are made here.
    ///
    /// # Errors
    /// [`Refusal`], to be sent back as an error message. Nothing has then changed.
    pub(crate) fn handle_message(
        &mut self,
        message: &Message,
        now: Millis,
    ) -> Result<Outcome, Refusal> {
        match &message.body {
            Body::FlowMod(change) => self.flow_mod(change, now),
            Body::GroupMod(change) => self.group_mod(change, now),
            Body::PortMod(change) => self.port_mod(change),
            Body::TableMod(change) => table_mod(*change),
            Body::MeterMod(change) => self.meter_mod(change, now),
            Body::PacketOut(packet) => self.packet_out(packet),
            Body::BarrierRequest => Ok(Outcome { barrier: true, ..Outcome::default() }),
            Body::FeaturesRequest => Ok(reply(Body::FeaturesReply(self.features()))),
            Body::GetConfigRequest => Ok(reply(Body::GetConfigReply(self.config))),
            Body::SetConfig(config) => self.set_config(*config),
            Body::MultipartRequest(request) => {
                let body = self.statistics(&request.body, now)?;
                Ok(reply(Body::MultipartReply(MultipartReply::new(body))))
            }
            Body::QueueGetConfigRequest(request) => self.queue_config(request.port),
            // The server keeps it, as it concerns one connection.
            Body::Experimenter(body) => {
                StartsSuffice::of(body).map_err(|error| error.kind)?;
                Ok(Outcome::default())
            }
            // Replies to requests that are never sent here, and messages for controllers.
            _ => Err(ErrorKind::OFPBRC_BAD_TYPE.into()),
        }
    }

    /// Adds or replaces a port. Returns the notification for the controllers.
    pub(crate) fn handle_port(&mut self, port: Port) -> Body {
        let known = self.pipeline.snapshot().ports.find(port.number).is_some();
        let reason = if known { PortReason::MODIFY } else { PortReason::ADD };
        let status = PortStatus { reason, desc: describe(&port) };
        if !port.is_live() {
            self.macs.handle_port_down(port.number);
        }
        self.pipeline.set_port(port);
        Body::PortStatus(status)
    }

    /// Removes a port. Returns the notification for the controllers, if it existed.
    pub(crate) fn handle_port_removed(&mut self, number: PortNo) -> Option<Body> {
        let port = self.pipeline.remove_port(number)?;
        self.macs.handle_port_down(number);
        let status = PortStatus { reason: PortReason::DELETE, desc: describe(&port) };
        Some(Body::PortStatus(status))
    }

    /// Notes where a station is. Returns `true` if the MAC table has changed. Ignored for a removed
    /// port, on which a worker may have seen it: the entry would stay until it expires.
    pub(crate) fn handle_sighting(&mut self, sighting: Sighting, now: Millis) -> bool {
        let port = self.pipeline.snapshot().ports.find(sighting.port);
        if !port.is_some_and(|port| port.is_live()) {
            return false;
        }
        self.macs.handle_sighting(sighting, now)
    }

    /// Removes everything that has timed out. Returns the removed rules.
    pub(crate) fn handle_timeout(&mut self, now: Millis) -> Vec<Gone> {
        if self.next_sweep <= now {
            self.next_sweep = Millis(now.0 + MAC_SWEEP.0);
            self.macs.handle_timeout(now);
        }
        Gone::of(self.pipeline.handle_timeout(now), now)
    }

    /// The latest time at which [`Self::handle_timeout`] has work.
    pub(crate) fn poll_timeout(&self) -> Option<Millis> {
        let stations = (self.macs.table().count() > 0).then_some(self.next_sweep);
        [self.pipeline.poll_timeout(), stations].into_iter().flatten().min()
    }

    /// Enters or leaves fail-mode standalone.
    pub(crate) fn set_standalone(&mut self, standalone: bool) {
        self.pipeline.set_standalone(standalone);
    }

    pub(crate) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    pub(crate) fn macs(&self) -> &MacLearning {
        &self.macs
    }

    /// A station that moves too often, if that is news.
    pub(crate) fn take_restless(&mut self) -> Option<Restless> {
        self.macs.take_restless()
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The reply to a features request (OpenFlow 1.3.5 §7.3.1). The switch has no packet buffers:
    /// controllers receive whole packets.
    pub(crate) fn features(&self) -> FeaturesReply {
        FeaturesReply {
            datapath_id: self.identity.datapath_id,
            n_buffers: 0,
            n_tables: TABLE_COUNT,
            auxiliary_id: 0,
            capabilities: Capabilities::FLOW_STATS
                | Capabilities::TABLE_STATS
                | Capabilities::PORT_STATS
                | Capabilities::GROUP_STATS,
        }
    }

    fn flow_mod(&mut self, change: &FlowMod, now: Millis) -> Result<Outcome, Refusal> {
        let mut outcome = went(self.pipeline.handle_flow_mod(change, now)?, now);
        // A deleting command ignores the buffer id (OpenFlow 1.3.5 §7.3.4.1).
        if change.buffer_id != BufferId::NO_BUFFER && !change.command.deletes() {
            // The rule is in force; the packet to apply it to was never buffered.
            outcome.error = Some(ErrorKind::OFPBRC_BUFFER_UNKNOWN);
        }
        Ok(outcome)
    }

    fn group_mod(&mut self, change: &GroupMod, now: Millis) -> Result<Outcome, Refusal> {
        Ok(went(self.pipeline.handle_group_mod(change, now)?, now))
    }

    fn meter_mod(&mut self, change: &MeterMod, now: Millis) -> Result<Outcome, Refusal> {
        Ok(went(self.pipeline.handle_meter_mod(change, now)?, now))
    }

    fn port_mod(&mut self, change: &PortMod) -> Result<Outcome, Refusal> {
        let found = self.pipeline.snapshot().ports.find(change.port_no);
        let mut port = Port::clone(found.ok_or(ErrorKind::OFPPMFC_BAD_PORT)?);
        if change.hw_addr != port.hw_addr {
            return Err(ErrorKind::OFPPMFC_BAD_HW_ADDR.into());
        }
        let config = port.config.difference(change.mask) | change.config & change.mask;
        if config == port.config {
            return Ok(Outcome::default());
        }
        port.config = config;
        let event = self.handle_port(port);
        Ok(Outcome { events: vec![event], ..Outcome::default() })
    }

    fn packet_out(&mut self, packet: &PacketOut) -> Result<Outcome, Refusal> {
        if packet.buffer_id != BufferId::NO_BUFFER {
            return Err(ErrorKind::OFPBRC_BUFFER_UNKNOWN.into());
        }
        let in_port = packet.in_port;
        let is_port = self.pipeline.snapshot().ports.find(in_port).is_some();
        if !is_port && in_port != PortNo::CONTROLLER {
            return Err(ErrorKind::OFPBRC_BAD_PORT.into());
        }
        if tapswitch_wire::parse(&packet.data).is_err() {
            return Err(ErrorKind::OFPBRC_BAD_PACKET.into());
        }
        self.pipeline.check_packet_out(&packet.actions)?;
        Ok(Outcome { packet_out: Some(packet.clone()), ..Outcome::default() })
    }

    fn set_config(&mut self, config: SwitchConfig) -> Result<Outcome, Refusal> {
        // Fragments are not reassembled, and `OFPC_IP_REASM` is not announced.
        if ![ConfigFlags::FRAG_NORMAL, ConfigFlags::FRAG_DROP].contains(&config.flags) {
            return Err(ErrorKind::OFPSCFC_BAD_FLAGS.into());
        }
        self.config = config;
        self.pipeline.set_drops_fragments(config.flags == ConfigFlags::FRAG_DROP);
        self.pipeline.set_miss_send_len(config.miss_send_len);
        Ok(Outcome::default())
    }

    /// Ports have no OpenFlow queues.
    fn queue_config(&self, port: PortNo) -> Result<Outcome, Refusal> {
        let known = port == PortNo::ANY || self.pipeline.snapshot().ports.find(port).is_some();
        if !known {
            return Err(ErrorKind::OFPQOFC_BAD_PORT.into());
        }
        Ok(reply(Body::QueueGetConfigReply(QueueGetConfigReply { port, queues: Vec::new() })))
    }
}

/// The message for a frame that the datapath sends to the controller. Its match contains the
/// pipeline fields that are not zero, which are not in the packet (OpenFlow 1.3.5 §7.4.1).
pub(crate) fn packet_in(origin: &PacketInOrigin, total_len: usize, data: Vec<u8>) -> PacketIn {
    let mut match_fields = Match::new().with(Oxm::InPort(origin.in_port));
    if origin.metadata != 0 {
        match_fields = match_fields.with(Oxm::Metadata(Masked::exact(origin.metadata)));
    }
    if origin.tunnel_id != 0 {
        match_fields = match_fields.with(Oxm::TunnelId(Masked::exact(origin.tunnel_id)));
    }
    PacketIn {
        buffer_id: BufferId::NO_BUFFER,
        total_len: u16::try_from(total_len).unwrap_or(u16::MAX),
        reason: origin.reason,
        table_id: origin.table_id,
        cookie: origin.cookie,
        match_fields,
        data,
    }
}

/// The OpenFlow description of a port (§7.2.1). A tap has no speed. A port with `OFPPC_PORT_DOWN`
/// is not live (§6.5).
pub(crate) fn describe(port: &Port) -> tapswitch_openflow::Port {
    use tapswitch_openflow::{PortConfig, PortFeatures, PortState};
    let is_down = port.config.contains(PortConfig::PORT_DOWN);
    let untrue = if is_down { PortState::LIVE } else { PortState::empty() };
    let passes_tags = port.mode.as_ref().is_none_or(|mode| mode.passes_service_tags());
    let mode = if passes_tags { PortState::empty() } else { PortState::NO_SERVICE_TAGS };
    tapswitch_openflow::Port {
        port_no: port.number,
        hw_addr: port.hw_addr,
        name: port.name.as_str().into(),
        config: port.config,
        state: port.state.difference(untrue) | mode,
        curr: PortFeatures::RATE_10GB_FD | PortFeatures::COPPER,
        advertised: PortFeatures::empty(),
        supported: PortFeatures::empty(),
        peer: PortFeatures::empty(),
        curr_speed: 10_000_000,
        max_speed: 0,
    }
}

fn reply(body: Body) -> Outcome {
    Outcome { replies: vec![body], ..Outcome::default() }
}

/// The outcome of a change that removed these rules.
fn went(removals: Vec<Removal>, now: Millis) -> Outcome {
    Outcome { gone: Gone::of(removals, now), ..Outcome::default() }
}

/// Tables have no configuration, so any request with a valid table succeeds.
fn table_mod(change: TableMod) -> Result<Outcome, Refusal> {
    let known = change.table_id == TableId::ALL || change.table_id.0 < TABLE_COUNT;
    known.then(Outcome::default).ok_or_else(|| ErrorKind::OFPTMFC_BAD_TABLE.into())
}

/// Milliseconds as seconds and nanoseconds.
fn duration(age: Millis) -> (u32, u32) {
    let seconds = u32::try_from(age.0 / 1000).unwrap_or(u32::MAX);
    let rest_ms = u32::try_from(age.0 % 1000).unwrap_or_default();
    (seconds, rest_ms * 1_000_000)
}

impl From<ErrorKind> for Refusal {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, text: format!("{kind:?}") }
    }
}

/// Stations are forgotten after five minutes (IEEE 802.1Q-2022 §8.8.3, the default).
const MAC_AGE_LIMIT: Millis = Millis(300_000);
/// Interval between sweeps for silent stations.
const MAC_SWEEP: Millis = Millis(30_000);
/// Limit of the MAC table of NORMAL; each station takes about a hundred bytes.
const MAC_COUNT_LIMIT: usize = 65_536;
