//! Tests that a truncated frame equals the beginning of the frame sent whole.

use super::super::tests::{ALL, NONE, Wire, finished_ports, with_frame};
use super::*;
use crate::test_frames::tcp_train;
use crate::tx::Takes;

/// Sends `sent` whole and then its first `snaplen` bytes, and returns what arrived: twice the
/// packets that the port makes of it.
fn both(
    wire: &Wire,
    port: &mut TxPort,
    sent: &(NetHeader, Vec<u8>),
    snaplen: usize,
) -> [Vec<(NetHeader, Vec<u8>)>; 2] {
    let whole = |frame: &mut Frame<'_>| {
        let count = frame.wire_packets() as usize;
        let mut finishing = wire.port(Takes::NOTHING);
        (finishing.send(frame, Beyond::NONE), count)
    };
    let (outcome, count) = with_frame(sent, whole);
    assert_eq!(outcome, Ok(()));
    let packets = wire.received(count);
    let outcome = with_frame(sent, |frame| port.send_part(frame, Beyond::NONE, snaplen, 0));
    assert_eq!(outcome, Ok(()));
    [packets, wire.received(count)]
}

#[test]
fn each_packet_begins_as_it_does_on_a_wire() {
    for (wire, mut port) in finished_ports() {
        let plain = (NetHeader::PLAIN, tcp_train(700, 0).1);
        for sent in [plain, tcp_train(700, 0), tcp_train(2500, 1000), tcp_train(60_001, 1000)] {
            for snaplen in [14, 40, 64, 128, 553, 555] {
                let [whole, parts] = both(&wire, &mut port, &sent, snaplen);
                for ((_, whole), (header, part)) in whole.iter().zip(&parts) {
                    assert_eq!(*header, NetHeader::PLAIN);
                    assert!(*part == whole[..whole.len().min(snaplen)], "{snaplen}: other bytes");
                }
            }
        }
    }
}

#[test]
fn what_is_short_enough_goes_as_it_is() {
    let Some(wire) = Wire::new() else { return };
    let mut port = wire.port(ALL);
    let train = tcp_train(2500, 1000);
    for snaplen in [1054, 65_535] {
        let sent = with_frame(&train, |frame| port.send_part(frame, Beyond::NONE, snaplen, 0));
        assert_eq!(sent, Ok(()));
        let (header, received) = wire.received(1).remove(0);
        assert!(header.is_train() && received == train.1, "whole");
    }
    let packet = tcp_train(300, 0);
    let sent = with_frame(&packet, |frame| port.send_part(frame, Beyond::NONE, 354, 0));
    let (header, received) = wire.received(1).remove(0);
    assert!(sent == Ok(()) && header.needs_checksum() && received == packet.1);
}

#[test]
fn the_frame_stays_as_it_was_and_so_does_a_copy_with_headers_of_its_own() {
    let Some(wire) = Wire::new() else { return };
    let mut port = wire.port(NONE);
    let sent = tcp_train(900, 0);
    with_frame(&sent, |frame| {
        assert_eq!(port.send_part(frame, Beyond::NONE, 100, 0), Ok(()));
        assert_eq!((frame.meta, frame.head()), (sent.0, &sent.1[..]));
        let mut scratch = Vec::new();
        let mut copy = frame.fork(&mut scratch);
        assert_eq!(port.send_part(&mut copy, Beyond::NONE, 100, 0), Ok(()));
        assert_eq!(copy.head(), &sent.1[..54]);
    });
    let parts = wire.received(2);
    assert!(parts[0].1.len() == 100 && parts[0] == parts[1]);
}

#[test]
fn packets_that_went_out_before_do_not_go_again() {
    let Some(wire) = Wire::new() else { return };
    let mut port = wire.port(ALL);
    let [_, all] = both(&wire, &mut port, &tcp_train(4000, 1000), 80);
    let train = tcp_train(4000, 1000);
    let sent = with_frame(&train, |frame| port.send_part(frame, Beyond::NONE, 80, 3));
    assert_eq!((sent, &wire.received(1)[..]), (Ok(()), &all[3..]));
}
