//! NORMAL: a learning switch.

use tapswitch_datapath::DropReason;
use tapswitch_openflow::{Action, PortNo};

use crate::common::{Ip, Switch, apply, mac, tcp};

const CUSTOMER_TAG: u32 = 0x8100_60c8;

#[test]
fn normal_learns_and_forwards() {
    let mut switch = Switch::new(3);
    switch.flow(0, 0, &[], &[apply(&[Action::output(PortNo::NORMAL)])]);
    let reply = Ip { src: 2, dst: 1, ..tcp() };
    assert_eq!(switch.receive(1, &tcp().bytes()), [2, 3], "nobody is known yet");
    assert_eq!(switch.receive(2, &reply.bytes()), [1]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2]);
    let tagged = Ip { tags: vec![CUSTOMER_TAG], ..tcp() };
    assert_eq!(switch.receive(1, &tagged.bytes()), [2, 3], "another VLAN, another world");
    assert_eq!(switch.receive(3, &tcp().bytes()), [2], "the station moved");
    assert_eq!(switch.receive(2, &reply.bytes()), [3]);
}

/// Wherever the sender was before.
#[test]
fn normal_does_not_forward_a_frame_to_its_sender() {
    let mut switch = Switch::new(3);
    switch.flow(0, 0, &[], &[apply(&[Action::output(PortNo::NORMAL)])]);
    let echo = Ip { src: 1, dst: 1, ..tcp() };
    assert!(switch.receive(1, &echo.bytes()).is_empty(), "nobody is known yet");
    assert!(switch.receive(2, &echo.bytes()).is_empty(), "the station moved");
    assert_eq!(switch.drops(1, DropReason::InputPort), 1);
    assert_eq!(switch.drops(2, DropReason::InputPort), 1);
}

#[test]
fn normal_floods_to_the_switch_itself_too() {
    let mut switch = Switch::new(2);
    let local = tapswitch_datapath::Port::new(PortNo::LOCAL, "br0".into(), mac(9), 1500, 1);
    assert!(switch.pipeline.set_port(local));
    switch.flow(0, 0, &[], &[apply(&[Action::output(PortNo::NORMAL)])]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2, PortNo::LOCAL.0]);
    let reply = Ip { src: 2, dst: 1, ..tcp() };
    assert_eq!(switch.receive(PortNo::LOCAL.0, &reply.bytes()), [1]);
    assert_eq!(switch.receive(1, &tcp().bytes()), [PortNo::LOCAL.0], "and is learnt there");
}

#[test]
fn normal_keeps_to_its_side_of_the_bridge() {
    let mut switch = Switch::new(2);
    switch.flow(0, 0, &[], &[apply(&[Action::output(PortNo::NORMAL)])]);
    let mut lldp = tcp().bytes();
    lldp[..6].copy_from_slice(&[0x01, 0x80, 0xc2, 0, 0, 0x0e]);
    assert!(switch.receive(1, &lldp).is_empty());
    assert_eq!(switch.drops(1, DropReason::BridgeReserved), 1);
    assert!(switch.out.sightings.is_empty());
}

#[test]
fn standalone_forwards_without_rules() {
    let mut switch = Switch::new(3);
    switch.flow(0, 1, &[], &[]);
    switch.pipeline.set_standalone(true);
    assert_eq!(switch.receive(1, &tcp().bytes()), [2, 3]);
    switch.pipeline.set_standalone(false);
    assert!(switch.receive(1, &tcp().bytes()).is_empty(), "the rules are still there");
}
