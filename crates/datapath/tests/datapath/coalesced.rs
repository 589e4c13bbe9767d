//! Trains whose payload lies in several places.
#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests may stop at the first surprise"
)]

use crate::common::{Switch, apply, mac, out};
use tapswitch_datapath::vlan::{PortMode, Trunk, VidSet};
use tapswitch_datapath::{Arrival, DropReason, HEADROOM, Parts, View};
use tapswitch_openflow::{Action, Bucket, GroupId, GroupType, Oxm, PortNo};
use tapswitch_wire::{GsoType, NetHeader};

const META: NetHeader =
    NetHeader { gso_type: GsoType::TCPV4, gso_size: 1000, hdr_len: 54, ..NetHeader::PLAIN };

/// A TCP train of three packets: the first one, and the payloads of the others.
fn train() -> (Vec<u8>, [Vec<u8>; 2]) {
    let mut first = crate::common::tcp().bytes()[..54].to_vec();
    first[16..18].copy_from_slice(&2540u16.to_be_bytes());
    first.extend([1; 1000]);
    (first, [vec![2; 1000], vec![3; 500]])
}

/// Sends the train into port 1, a burst of its own; returns its bytes.
fn receive(switch: &mut Switch) -> Vec<u8> {
    switch.out.sent.clear();
    let (first, [second, third]) = train();
    let mut buf = [vec![0; HEADROOM], first.clone()].concat();
    let base = buf.len();
    buf.extend([&[9; 100][..], &second, &[9; 70], &third].concat());
    let ranges = [base + 100..base + 1100, base + 1170..base + 1670];
    let (head, tail) = buf.split_at_mut(base);
    let parts = Parts::new(tail, base, &ranges);
    let snapshot = switch.pipeline.snapshot().clone();
    let mode = snapshot.ports.find(PortNo(1)).and_then(|port| port.mode.as_deref());
    let arrival =
        Arrival { in_port: PortNo(1), meta: META, buf: head, start: HEADROOM, beyond_len: 0 };
    let view = View { snapshot: &snapshot, macs: switch.macs.table(), now: switch.now };
    let more = Some(&parts);
    let arrival = match mode {
        Some(mode) => switch.forwarder.admit(view, mode, arrival, more),
        None => Some(arrival),
    };
    if let Some(arrival) = arrival {
        switch.forwarder.handle_coalesced(view, arrival, more, &mut switch.out);
    }
    switch.end_burst();
    [first, second, third].concat()
}

#[test]
fn every_packet_that_arrived_counts() {
    let mut switch = Switch::new(2);
    switch.flow(0, 1, &[], &[apply(&[out(2)])]);
    let sent = receive(&mut switch);
    assert!(switch.sent(2) == sent);
    let [rx, tx] = [switch.port(1).counters.rx(), switch.port(2).counters.tx()];
    assert_eq!((rx.frames, rx.packets, rx.bytes), (1, 3, sent.len() as u64));
    assert_eq!(rx, tx);
}

#[test]
fn so_they_do_when_the_port_refuses_them() {
    let mut switch = Switch::new(2);
    let trunk = PortMode::Trunk(Trunk { vlans: VidSet::all(), native: None });
    switch.set_port(1, |port| port.mode = Some(trunk.into()));
    receive(&mut switch);
    let rx = switch.port(1).counters.rx();
    assert_eq!((rx.frames, rx.packets), (1, 3));
    assert_eq!(switch.drops(1, DropReason::VlanFiltered), 1);
}

#[test]
fn copies_share_all_of_the_payload() {
    let mut switch = Switch::new(3);
    let rewritten = vec![Action::SetField(Oxm::EthDst(mac(9).into())), out(3)];
    switch.group(1, GroupType::All, vec![Bucket::new(rewritten), Bucket::new(vec![out(2)])]);
    switch.flow(0, 1, &[], &[apply(&[Action::Group(GroupId(1))])]);
    let sent = receive(&mut switch);
    assert!(switch.sent(2) == sent);
    let copy = switch.sent(3);
    assert_eq!(copy[..6], mac(9).0);
    assert!(copy[6..] == sent[6..]);
}
