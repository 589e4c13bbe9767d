//! IP fragments, while a controller has them dropped (OpenFlow 1.3.5 §7.3.2).

use crate::common::{Switch, apply, out, udp};
use tapswitch_datapath::DropReason;
use tapswitch_openflow::{Action, PortNo};
use tapswitch_wire::EtherType;

/// Flags and offset: more fragments; an offset of 8 bytes; neither.
const FIRST: [u8; 2] = [0x20, 0];
const LATER: [u8; 2] = [0, 1];
const WHOLE: [u8; 2] = [0x40, 0];

/// A switch that forwards all frames from port 1 to port 2.
fn switch() -> Switch {
    let mut switch = Switch::new(3);
    switch.flow(0, 1, &[], &[apply(&[out(2)])]);
    switch
}

fn ipv4(fragment: [u8; 2]) -> Vec<u8> {
    let mut frame = udp().bytes();
    frame[20..22].copy_from_slice(&fragment);
    frame
}

/// A UDP packet with a fragment header with this offset and flag.
fn ipv6(fragment: [u8; 2]) -> Vec<u8> {
    let mut frame = udp().bytes()[..12].to_vec();
    frame.extend(EtherType::IPV6.0.to_be_bytes());
    frame.extend([0x60, 0, 0, 0, 0, 16, 44, 64]);
    frame.extend([0x20; 32]);
    frame.extend([17, 0, fragment[0], fragment[1], 0, 0, 0, 1]);
    frame.extend([0; 8]);
    frame
}

#[test]
fn fragments_are_dropped_by_name_as_long_as_a_controller_wants_it() {
    let mut switch = switch();
    let fragments = [ipv4(FIRST), ipv4(LATER), ipv6([0, 1]), ipv6([0, 8])];
    for frame in &fragments {
        assert_eq!(switch.receive(1, frame), [2]);
    }
    switch.pipeline.set_drops_fragments(true);
    for (count, frame) in (1..).zip(&fragments) {
        assert!(switch.receive(1, frame).is_empty(), "{frame:02x?}");
        assert_eq!(switch.drops(1, DropReason::Fragment), count);
        assert_eq!(switch.receive(1, &ipv4(WHOLE)), [2], "what is whole passes");
    }
    switch.pipeline.set_drops_fragments(false);
    for frame in &fragments {
        assert_eq!(switch.receive(1, frame), [2]);
    }
}

/// In a packet-out, only the output to the tables drops the fragment.
#[test]
fn a_fragment_of_a_controllers_gets_to_no_table() {
    let mut switch = switch();
    switch.pipeline.set_drops_fragments(true);
    let outputs = [Action::output(PortNo::TABLE), out(3)];
    assert_eq!(switch.packet_out(PortNo(1), &ipv4(LATER), &outputs), [3]);
    assert_eq!(switch.drops(1, DropReason::Fragment), 1);
}
