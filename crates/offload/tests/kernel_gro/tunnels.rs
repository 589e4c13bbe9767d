//! Packets inside tunnels.

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use tapswitch_wire::tcp;

use crate::kernel::{Kernel, skip};
use crate::packets::around::{Around, Kind};
use crate::packets::{ACK, C_TAG, Checksum, Ip, Packet, S_TAG, coalesce, frames, interleave};

#[test]
fn streams_in_every_kind_of_tunnel() {
    let Some((kernel, tunnels)) = kernel() else { return };
    for (around, packet) in pairs(&kernel, &tunnels) {
        let packet = packet.inside(&around);
        for (size, count) in [(1, 5), (1400, 50), (1000, 70)] {
            kernel.compare(&packet.clone().sized(size).stream(count));
        }
        let mut packets = packet.clone().sized(700).stream(4);
        packets[3].payload.truncate(1);
        packets.extend(packets[3].next().sized(700).stream(2));
        kernel.compare(&packets);
        kernel.compare(&packet.with(Checksum::Partial).stream(3));
    }
}

#[test]
fn fields_around_packets_that_differ() {
    type Change = fn(&mut Around);
    let changes: &[Change] = &[
        |a| a.tos ^= 1,
        |a| a.tos ^= 0x40,
        |a| a.ttl -= 1,
        |a| a.id += 1,
        |a| a.flow += 1,
        |a| a.checksum = Checksum::None,
        |a| set_v4(a, |_, fragment| *fragment ^= 0x4000),
    ];
    let since_6_10: &[Change] = &[
        |a| set_v4(a, |id, _| *id = id.wrapping_sub(1)),
        |a| set_v4(a, |id, _| *id = id.wrapping_add(5)),
    ];
    let Some((kernel, tunnels)) = kernel() else { return };
    // Before, only the innermost identification was compared.
    let later = if release() >= (6, 10) { since_6_10 } else { &[] };
    for around in tunnels {
        for change in changes.iter().chain(later) {
            for at in [0, 2] {
                let mut packets = Packet::tcp_v4().inside(&around).sized(200).stream(5);
                packets[at].around.iter_mut().for_each(change);
                kernel.compare(&packets);
            }
        }
    }
}

#[test]
fn fields_inside_that_differ() {
    type Change = fn(&mut Packet);
    let changes: &[Change] = &[
        |p| p.tos ^= 1,
        |p| p.ttl -= 1,
        |p| p.payload.push(7),
        |p| p.payload.truncate(1),
        |p| p.flow += 1,
        |p| p.checksum = Checksum::Partial,
        |p| *p = p.clone().flags(ACK | tcp::PSH),
        |p| set_inner_v4(p, |id| *id = id.wrapping_add(5)),
    ];
    let Some((kernel, tunnels)) = kernel() else { return };
    for (around, packet) in pairs(&kernel, &tunnels) {
        for change in changes {
            let mut packets = packet.clone().inside(&around).sized(200).stream(5);
            change(&mut packets[2]);
            kernel.compare(&packets);
        }
    }
}

#[test]
fn tags_outside_and_inside() {
    let Some((kernel, tunnels)) = kernel() else { return };
    if !kernel.sees_through_tags() {
        return skip("this kernel has no 8021q");
    }
    for around in tunnels {
        for (outside, inside) in
            [(&[S_TAG, C_TAG][..], &[][..]), (&[], &[C_TAG]), (&[C_TAG], &[C_TAG])]
        {
            let around = Around { tags: inside.to_vec(), ..around.clone() };
            let packet = Packet::tcp_v6().inside(&around).tagged(outside).sized(1300);
            kernel.compare(&packet.stream(5));
        }
    }
}

#[test]
fn random_flows_in_tunnels() {
    let Some((kernel, tunnels)) = kernel() else { return };
    let kinds = pairs(&kernel, &tunnels).map(|(around, packet)| packet.inside(&around));
    let kinds: Vec<_> = kinds.collect();
    let kernel = RefCell::new(kernel);
    let cases = if tapswitch_guest::inside().is_some() { 40 } else { 200 };
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 20, ..Config::default() };
    let run = TestRunner::new(config).run(&batches(kinds), |packets| {
        kernel.borrow_mut().compare(&packets);
        Ok(())
    });
    run.unwrap();
}

#[test]
fn what_differs_on_purpose_in_tunnels() {
    let Some((kernel, tunnels)) = kernel() else { return };
    for around in tunnels.iter().filter(|around| around.is_udp()) {
        let mut fixed = Packet::tcp_v4().inside(around).sized(100).stream(4);
        let dont_fragment = |around: &mut Around| {
            set_v4(around, |id, fragment| (*id, *fragment) = (7, 0x4000));
        };
        fixed.iter_mut().for_each(|packet| packet.around.iter_mut().for_each(dont_fragment));
        let is_v4 = matches!(around.ip, Ip::V4 { .. });
        let (theirs, ours) = if is_v4 { (1, 4) } else { (1, 1) };
        assert_eq!(coalesce(&frames(&fixed)).len(), ours);
        kernel.until_untouched(
            || kernel.forward(&frames(&fixed)).len() == theirs,
            || format!("the kernel does not make {theirs} in {around:?}"),
        );
    }
}

/// Up to five interleaved flows, with some packets unusual, missing or out of order.
fn batches(kinds: Vec<Packet>) -> impl Strategy<Value = Vec<Packet>> {
    let flows = vec((select(kinds), 1usize..1400, 1usize..12), 1..6);
    let oddities = vec((any::<Index>(), 0u8..8), 0..5);
    let swaps = vec((any::<Index>(), any::<Index>()), 0..3);
    (flows, vec(any::<Index>(), 60), oddities, swaps).prop_map(|(flows, order, oddities, swaps)| {
        let stream = |((packet, size, count), flow): ((Packet, usize, usize), u8)| {
            packet.of_flow(flow).sized(size).stream(count)
        };
        let mut packets = interleave(flows.into_iter().zip(0..).map(stream), &order);
        for (index, oddity) in oddities {
            make_odd(index.get_mut(&mut packets), oddity);
        }
        if release() >= (6, 10) {
            for (one, other) in swaps {
                let (one, other) = (one.index(packets.len()), other.index(packets.len()));
                packets.swap(one, other);
            }
        }
        packets
    })
}

fn make_odd(packet: &mut Packet, oddity: u8) {
    let Some(around) = &mut packet.around else { return };
    match oddity {
        0 => packet.checksum = Checksum::Partial,
        1 => packet.checksum = Checksum::Vouched,
        2 => packet.tos ^= 3,
        3 => around.tos ^= 3,
        4 => around.ttl -= 1,
        5 => set_v4(around, |_, fragment| *fragment ^= 0x4000),
        6 => *packet = packet.clone().flags(ACK | tcp::PSH),
        _ => packet.payload.truncate(1),
    }
}

/// A kernel, and the tunnels inside which it forms trains. `None`, with a message, if there are
/// none.
fn kernel() -> Option<(Kernel, Vec<Around>)> {
    let kernel = Kernel::new()?;
    kernel.make_tunnels();
    let tunnels: Vec<_> = Around::of_every_kind()
        .into_iter()
        // Linux compares the checksum before the key instead of the key.
        .filter(|around| {
            let has_key = matches!(around.kind, Kind::Gre { key: true, .. });
            !has_key || around.checksum == Checksum::None
        })
        // Linux 6.1 computes a train's outer UDP checksum from the inner addresses.
        .filter(|around| {
            let has_checksum = around.is_udp() && around.checksum == Checksum::Right;
            !has_checksum || release() >= (6, 10)
        })
        .filter(|around| {
            let is_seen = kernel.sees_inside(around);
            if !is_seen {
                let version = if matches!(around.ip, Ip::V4 { .. }) { 4 } else { 6 };
                skip(&format!("no trains are made in {:?} over IPv{version}", around.kind));
            }
            is_seen
        })
        .collect();
    (!tunnels.is_empty()).then_some((kernel, tunnels))
}

/// Each tunnel with each kind of packet that the kernel describes.
fn pairs<'a>(
    kernel: &Kernel,
    tunnels: &'a [Around],
) -> impl Iterator<Item = (Around, Packet)> + use<'a> {
    let kinds = kernel.kinds();
    tunnels.iter().flat_map(move |around| kinds.clone().into_iter().map(|p| (around.clone(), p)))
}

/// Version of the kernel.
fn release() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn set_v4(around: &mut Around, action: impl FnOnce(&mut u16, &mut u16)) {
    if let Ip::V4 { id, fragment, .. } = &mut around.ip {
        action(id, fragment);
    }
}

fn set_inner_v4(packet: &mut Packet, action: impl FnOnce(&mut u16)) {
    if let Ip::V4 { id, .. } = &mut packet.ip {
        action(id);
    }
}
