//! The contents of a packet-in: reason, cookie, and what rules have written (OpenFlow 1.3.5
//! §7.4.1).
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic fails a test"
)]

use crate::common::{Switch, apply, goto, ip, matching, out, tcp, write};
use tapswitch_datapath::{DropReason, PacketInOrigin};
use tapswitch_openflow::{
    Action, Bucket, FlowMod, FlowModCommand, GroupId, GroupType, Instruction, Masked, Oxm,
    PacketInReason, PortConfig, PortNo, TableId,
};

const ASK: Action = Action::Output { port: PortNo::CONTROLLER, max_len: 128 };
const NO_COOKIE: u64 = u64::MAX;

/// Adds a rule with the cookie 7.
fn flow(switch: &mut Switch, table: u8, priority: u16, instructions: &[Instruction]) {
    let fields: &[Oxm] = if priority > 0 { &[ip()] } else { &[] };
    let change = FlowMod {
        table_id: TableId(table),
        priority,
        cookie: 7,
        match_fields: matching(fields),
        instructions: instructions.to_vec(),
        ..FlowMod::new(FlowModCommand::Add)
    };
    switch.pipeline.handle_flow_mod(&change, switch.now).unwrap();
}

/// The origin in the packet-in of one frame.
fn told(switch: &mut Switch) -> PacketInOrigin {
    switch.out.packet_ins.clear();
    switch.receive(1, &tcp().bytes());
    let [(origin, _)] = &switch.out.packet_ins[..] else { panic!("{:?}", switch.out.packet_ins) };
    *origin
}

#[test]
fn a_port_may_keep_what_no_rule_knows_from_the_controller() {
    let mut switch = Switch::new(2);
    flow(&mut switch, 0, 0, &[apply(&[ASK])]);
    assert_eq!(told(&mut switch).reason, PacketInReason::NO_MATCH);
    switch.set_port(1, |port| port.config = PortConfig::NO_PACKET_IN);
    switch.receive(1, &tcp().bytes());
    assert_eq!(switch.out.packet_ins.len(), 1);
    assert_eq!(switch.drops(1, DropReason::PortNoPacketIn), 1);
    // A rule's own output to the controller is not withheld.
    flow(&mut switch, 0, 1, &[apply(&[ASK])]);
    let origin = told(&mut switch);
    assert_eq!((origin.reason, origin.cookie), (PacketInReason::ACTION, 7));
}

#[test]
fn fields_of_the_pipeline_are_told() {
    let mut switch = Switch::new(2);
    let note = Instruction::WriteMetadata { metadata: 0xabc, mask: 0xfff };
    let tunnel = Action::SetField(Oxm::TunnelId(Masked::exact(9)));
    flow(&mut switch, 0, 0, &[apply(&[tunnel]), note, goto(1)]);
    flow(&mut switch, 1, 1, &[apply(&[ASK])]);
    let origin = told(&mut switch);
    assert_eq!((origin.metadata, origin.tunnel_id), (0xabc, 9));
    assert_eq!((origin.table_id, origin.in_port), (TableId(1), PortNo(1)));
}

#[test]
fn what_no_rule_sends_has_no_cookie() {
    let mut switch = Switch::new(2);
    switch.packet_out(PortNo::CONTROLLER, &tcp().bytes(), &[ASK]);
    assert_eq!(switch.out.packet_ins[0].0.cookie, NO_COOKIE);
    flow(&mut switch, 0, 1, &[write(&[ASK]), goto(1)]);
    flow(&mut switch, 1, 0, &[]);
    let origin = told(&mut switch);
    assert_eq!((origin.reason, origin.cookie), (PacketInReason::ACTION, NO_COOKIE));
}

/// A group is not a table-miss rule, whichever rule leads to it; copies are identified by the
/// cookie.
#[test]
fn a_bucket_has_the_cookie_of_its_rule() {
    let mut switch = Switch::new(2);
    let buckets = vec![Bucket::new(vec![out(2)]), Bucket::new(vec![ASK])];
    switch.group(1, GroupType::All, buckets);
    flow(&mut switch, 0, 0, &[apply(&[Action::Group(GroupId(1))])]);
    let origin = told(&mut switch);
    assert_eq!((origin.reason, origin.cookie), (PacketInReason::ACTION, 7));
}
