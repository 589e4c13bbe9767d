//! Tests of the agent's reaction to each message: outcomes, refusals, events. The clock is a
//! number.

mod changes;
mod meters;
mod packets;
mod ports;
mod rules;
mod statistics;
mod timeouts;

use tapswitch_datapath::{
    Arrival, Claim, DropReason, Egress, Forwarder, Frame, HEADROOM, Millis, PacketInClaim,
    PacketInOrigin, Port, Sent, Sighting, Station, View, VlanKey, WorkerIndex,
};
use tapswitch_openflow::multipart::FlowStatsRequest;
use tapswitch_openflow::{
    Action, Body, Bucket, DatapathId, ErrorKind, FlowMod, FlowModCommand, FlowModFlags, GroupId,
    GroupMod, GroupModCommand, GroupType, Instruction, Match, Message, MultipartReplyBody,
    MultipartRequest, MultipartRequestBody, PortNo, TableId,
};
use tapswitch_wire::{MacAddr, NetHeader};

use super::{Agent, Identity, Outcome, Refusal};

/// When the agent of [`agent`] was started.
const START: Millis = Millis(1_000_000);

/// An agent with one worker and the ports 1, 2 and 3.
fn agent() -> Agent {
    let identity = Identity { datapath_id: DatapathId(0x42), name: "br0".into() };
    let mut agent = Agent::new(identity, crate::Learning::Outer, 1, START);
    for number in 1..=3 {
        agent.handle_port(port(number));
    }
    agent
}

/// A port that has been up since the agent was started.
fn port(number: u32) -> Port {
    let port = Port::new(PortNo(number), format!("eth{number}"), mac(number), 1500, 2);
    Port { created: START, ..port }
}

/// The MAC address of a port.
fn mac(number: u32) -> MacAddr {
    let [.., last] = number.to_be_bytes();
    MacAddr([2, 0, 0, 0, 0xff, last])
}

/// Milliseconds after the start.
fn after(ms: u64) -> Millis {
    Millis(START.0 + ms)
}

/// The outcome of a message, which is checked first as a connection does.
fn handle(agent: &mut Agent, body: Body, now: Millis) -> Result<Outcome, Refusal> {
    let message = Message { xid: 7, body };
    message.check().map_err(|error| Refusal { kind: error.kind, text: error.text })?;
    agent.handle_message(&message, now)
}

/// The outcome of a message that the agent accepts.
fn send_at(agent: &mut Agent, body: Body, now: Millis) -> Outcome {
    handle(agent, body, now).unwrap()
}

fn send(agent: &mut Agent, body: Body) -> Outcome {
    send_at(agent, body, START)
}

/// Sends a message without a reply or event.
fn apply(agent: &mut Agent, body: Body) {
    let outcome = send(agent, body);
    assert!(outcome.replies.is_empty() && outcome.events.is_empty(), "{outcome:?}");
    assert!(outcome.packet_out.is_none() && outcome.error.is_none(), "{outcome:?}");
}

/// Why the agent refuses a message; nothing may have changed.
fn refusal(agent: &mut Agent, body: Body) -> ErrorKind {
    let before = agent.pipeline().snapshot().clone();
    let refusal = handle(agent, body, START).unwrap_err();
    let unchanged = describe_all(&before) == describe_all(agent.pipeline().snapshot());
    assert!(unchanged, "{}: refused, and yet something changed", refusal.text);
    assert!(!refusal.text.is_empty());
    refusal.kind
}

fn describe_all(snapshot: &tapswitch_datapath::Snapshot) -> String {
    let rules = snapshot.tables(TableId::ALL).flat_map(|(_, table)| table.iter());
    let rules: Vec<_> = rules.map(|rule| (rule.priority, &rule.matching, rule.cookie)).collect();
    let groups: Vec<_> = snapshot.groups.iter().map(|group| &group.buckets).collect();
    let ports: Vec<_> = snapshot.ports.iter().map(|port| (port.number, port.config)).collect();
    let meters: Vec<_> = snapshot.meters.iter().map(|meter| (meter.id, &meter.bands)).collect();
    format!("{rules:?} {groups:?} {ports:?} {meters:?}")
}

/// The reply to a multipart request.
fn statistics(agent: &mut Agent, request: MultipartRequestBody, now: Millis) -> MultipartReplyBody {
    let body = Body::MultipartRequest(MultipartRequest::new(request));
    let mut outcome = send_at(agent, body, now);
    match outcome.replies.pop() {
        Some(Body::MultipartReply(reply)) => reply.body,
        other => panic!("no multipart but {other:?}"),
    }
}

fn asks(request: MultipartRequestBody) -> Body {
    Body::MultipartRequest(MultipartRequest::new(request))
}

/// A rule of table 0.
fn rule(priority: u16, match_fields: Match, actions: Vec<Action>) -> FlowMod {
    FlowMod {
        priority,
        match_fields,
        instructions: vec![Instruction::ApplyActions(actions)],
        ..FlowMod::new(FlowModCommand::Add)
    }
}

fn add(agent: &mut Agent, rule: FlowMod) {
    apply(agent, Body::FlowMod(rule));
}

/// Sets the flag for a flow-removed message.
fn telling(rule: FlowMod) -> FlowMod {
    FlowMod { flags: rule.flags | FlowModFlags::SEND_FLOW_REM, ..rule }
}

fn output(port: u32) -> Vec<Action> {
    vec![Action::output(PortNo(port))]
}

fn group_mod(command: GroupModCommand, id: u32, kind: GroupType, buckets: Vec<Bucket>) -> Body {
    let group_id = GroupId(id);
    Body::GroupMod(GroupMod { command, group_type: kind, group_id, buckets })
}

/// Adds a group of type ALL that sends to some ports.
fn add_group(agent: &mut Agent, id: u32, ports: &[u32]) {
    let buckets = ports.iter().map(|&port| Bucket::new(output(port))).collect();
    apply(agent, group_mod(GroupModCommand::Add, id, GroupType::All, buckets));
}

/// Cookies of the selected rules, in the order of the reply.
fn cookies(agent: &mut Agent, request: FlowStatsRequest) -> Vec<u64> {
    match statistics(agent, MultipartRequestBody::Flow(request), START) {
        MultipartReplyBody::Flow(flows) => flows.iter().map(|flow| flow.cookie).collect(),
        other => panic!("{other:?}"),
    }
}

fn all_cookies(agent: &mut Agent) -> Vec<u64> {
    cookies(agent, FlowStatsRequest::default())
}

/// Forwards a received plain frame of 100 bytes.
fn forward(agent: &Agent, in_port: u32, now: Millis) {
    let mut frame = vec![0; HEADROOM + 100];
    frame[HEADROOM..HEADROOM + 14]
        .copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    let (in_port, meta) = (PortNo(in_port), NetHeader::PLAIN);
    let arrival = Arrival { in_port, meta, buf: &mut frame, start: HEADROOM, beyond_len: 0 };
    let view = View { snapshot: agent.pipeline().snapshot(), macs: agent.macs().table(), now };
    let mut forwarder = Forwarder::new(WorkerIndex(0));
    forwarder.handle(view, arrival, &mut Void);
    forwarder.end_burst(now);
}

fn station(last: u8) -> Station {
    Station { vlan: VlanKey::UNTAGGED, mac: MacAddr([2, 0, 0, 0, 0, last]) }
}

/// Ports that accept every frame, and a controller that accepts none.
struct Void;

impl Egress for Void {
    fn transmit(
        &mut self,
        _: PortNo,
        _: &mut Frame<'_>,
        _: &Claim<'_>,
    ) -> Result<Sent, DropReason> {
        Ok(Sent::Now)
    }

    fn transmit_part(
        &mut self,
        _: PortNo,
        _: &mut Frame<'_>,
        _: &Claim<'_>,
        _: usize,
    ) -> Result<Sent, DropReason> {
        Ok(Sent::Now)
    }

    fn packet_in(
        &mut self,
        _: &PacketInOrigin,
        _: &Frame<'_>,
        _: Option<&PacketInClaim<'_>>,
    ) -> Result<Sent, DropReason> {
        Err(DropReason::NoController)
    }

    fn learn(&mut self, _: Sighting) {}
}
