//! Small frames through the datapath, to ports that accept everything.

use std::hint::black_box;
use std::sync::Arc;

use tapswitch_datapath::{
    Arrival, Claim, DropReason, Egress, Forwarder, Frame, HEADROOM, MacTable, Millis,
    PacketInClaim, PacketInOrigin, Pipeline, Port, Sent, Sighting, View, WorkerIndex,
};
use tapswitch_openflow::{
    Action, Bucket, FlowMod, FlowModCommand, GroupId, GroupMod, GroupModCommand, GroupType,
    Instruction, PortNo,
};
use tapswitch_wire::{MacAddr, NetHeader};

/// Frames per burst.
pub(crate) const BURST: u32 = 32;

/// Forwards the frame to port 2.
pub(crate) fn forward(frame: &[u8], turns: u32) {
    run(&[Action::output(PortNo(2))], frame, turns);
}

/// Forwards the frame to port 2, and a copy to port 3.
pub(crate) fn copy(frame: &[u8], turns: u32) {
    run(&[Action::Group(GroupId(1))], frame, turns);
}

fn run(actions: &[Action], frame: &[u8], turns: u32) {
    let pipeline = pipeline(actions);
    let (snapshot, macs) = (pipeline.snapshot().clone(), Arc::<MacTable>::default());
    let view = View { snapshot: &snapshot, macs: &macs, now: Millis(1000) };
    let mut forwarder = Forwarder::new(WorkerIndex(0));
    let mut buf = [&[0; HEADROOM][..], frame].concat();
    for _ in 0..turns {
        for _ in 0..BURST {
            let (in_port, meta, buf) = (PortNo(1), NetHeader::PLAIN, black_box(&mut buf[..]));
            let arrival = Arrival { in_port, meta, buf, start: HEADROOM, beyond_len: 0 };
            forwarder.handle(view, arrival, &mut Taker);
        }
        forwarder.end_burst(view.now);
    }
}

/// Three ports, a group of type ALL with outputs to the last two, and one rule.
pub(crate) fn pipeline(actions: &[Action]) -> Pipeline {
    let mut pipeline = Pipeline::new(1);
    for number in 1..=3 {
        let port = Port::new(PortNo(number), format!("p{number}"), MacAddr::ZERO, 1500, 1);
        pipeline.set_port(port);
    }
    let bucket = |number| Bucket::new(vec![Action::output(PortNo(number))]);
    let group = GroupMod {
        command: GroupModCommand::Add,
        group_type: GroupType::All,
        group_id: GroupId(1),
        buckets: vec![bucket(2), bucket(3)],
    };
    let rule = FlowMod {
        instructions: vec![Instruction::ApplyActions(actions.to_vec())],
        ..FlowMod::new(FlowModCommand::Add)
    };
    // The pipeline accepts both; if not, the instruction count would reveal it.
    let _ = pipeline.handle_group_mod(&group, Millis(0));
    let _ = pipeline.handle_flow_mod(&rule, Millis(0));
    pipeline
}

/// Ports that accept everything.
struct Taker;

impl Egress for Taker {
    #[inline]
    fn transmit(
        &mut self,
        port: PortNo,
        frame: &mut Frame<'_>,
        claim: &Claim<'_>,
    ) -> Result<Sent, DropReason> {
        black_box((port, frame.head()));
        // As in a switch without full ports, which does not use the claim.
        if frame.is_empty() {
            black_box(claim.delivery());
        }
        Ok(Sent::Now)
    }

    fn transmit_part(
        &mut self,
        port: PortNo,
        frame: &mut Frame<'_>,
        claim: &Claim<'_>,
        snaplen: usize,
    ) -> Result<Sent, DropReason> {
        black_box(snaplen);
        self.transmit(port, frame, claim)
    }

    fn packet_in(
        &mut self,
        _: &PacketInOrigin,
        _: &Frame<'_>,
        _: Option<&PacketInClaim<'_>>,
    ) -> Result<Sent, DropReason> {
        Ok(Sent::Now)
    }

    fn learn(&mut self, _: Sighting) {}
}

/// A frame of 60 bytes, UDP over IPv4, behind `tags` tags.
pub(crate) fn udp_ipv4(tags: usize) -> Vec<u8> {
    let ip = [0x45, 0, 0, 46, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    frame(tags, [0x08, 0x00], &[&ip[..], &UDP].concat())
}

/// The same over IPv6.
pub(crate) fn udp_ipv6(tags: usize) -> Vec<u8> {
    let mut ip = [0; 40];
    ip[..8].copy_from_slice(&[0x60, 0, 0, 0, 0, 8, 17, 64]);
    (ip[8], ip[23], ip[24], ip[39]) = (0xfd, 1, 0xfd, 2);
    frame(tags, [0x86, 0xdd], &[&ip[..], &UDP].concat())
}

fn frame(tags: usize, eth_type: [u8; 2], packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    (0..tags).for_each(|_| frame.extend([0x81, 0x00, 0, 100]));
    frame.extend(eth_type);
    frame.extend(packet);
    frame.resize(frame.len().max(60), 0);
    frame
}

const UDP: [u8; 8] = [0x30, 0x39, 0, 53, 0, 8, 0, 0];
