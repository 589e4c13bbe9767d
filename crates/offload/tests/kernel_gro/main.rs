//! Comparison with Linux's GRO.
//!
//! Packets are written into a tap device with NAPI, whose `gro_flush_timeout` makes them wait for
//! others; a packet socket on the device receives what the stack receives. That must be identical
//! to the result of [`Coalescer`](tapswitch_offload::Coalescer) for the same packets in one batch:
//! the same trains with the same metadata, byte for byte.
//!
//! The kernel flushes trains at each clock tick, and we at the end of a batch. So a comparison is
//! repeated until no tick disturbs it; a real difference appears each time. Intended differences
//! are documented in `coalesce` and omitted here, except in the last test, which checks them.
//!
//! Needs root and `/dev/net/tun`; otherwise the tests print `SKIP:` and pass. Tags need the
//! kernel's `8021q`, and most tunnels need their devices, so all tests also run in a guest.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod kernel;
#[path = "../packets/mod.rs"]
mod packets;
mod tunnels;

use std::cell::RefCell;

use kernel::{Kernel, skip};
use packets::{
    ACK, C_TAG, Checksum, ECE, Ip, Packet, S_TAG, SYN, URG, Upper, coalesce, frames, interleave,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};
use tapswitch_guest::{Rig, Series};
use tapswitch_helpers::kernel_version;
use tapswitch_wire::{ipv6, tcp};

const LINUX_7_3: Rig = Rig::new(Series::V7_3).modules(MODULES).programs(&["ip"]);

const LINUX_6_1: Rig = Rig::new(Series::V6_1).modules(MODULES).programs(&["ip"]);

const MODULES: &[&str] = &["tun", "8021q", "vxlan", "geneve", "ip_gre", "ip6_gre"];

#[test]
fn all_tests_of_this_file_pass_on_linux_6_1() {
    LINUX_6_1.test_all();
}

#[test]
fn all_tests_of_this_file_pass_on_linux_7_3() {
    LINUX_7_3.test_all();
}

#[test]
fn streams_of_every_kind() {
    let Some(kernel) = Kernel::new() else { return };
    for packet in kernel.kinds() {
        for (size, count) in [(1, 5), (100, 2), (1448, 45), (1448, 50), (1000, 70)] {
            kernel.compare(&packet.clone().sized(size).stream(count));
        }
        let mut packets = packet.clone().sized(700).stream(4);
        packets[3].payload.truncate(1);
        packets.extend(packets[3].next().sized(700).stream(2));
        kernel.compare(&packets);
    }
}

#[test]
fn fields_that_differ() {
    type Change = fn(&mut Packet);
    let changes: &[Change] = &[
        |p| p.tos ^= 1,
        |p| p.tos ^= 0x40,
        |p| p.ttl -= 1,
        |p| p.payload.push(7),
        |p| p.payload.truncate(1),
        |p| p.checksum = Checksum::Partial,
        |p| set_v4(p, |id, _| *id = id.wrapping_sub(1)),
        |p| set_v4(p, |id, _| *id = id.wrapping_add(5)),
        |p| set_v4(p, |_, fragment| *fragment = 0),
        |p| set_v4(p, |_, fragment| *fragment = 0xc000),
        |p| p.flow += 1,
    ];
    let of_tcp: &[Change] = &[
        |p| set_tcp(p, |seq, _, _, _| *seq += 1),
        |p| set_tcp(p, |seq, _, _, _| *seq -= 1),
        |p| set_tcp(p, |_, ack, _, _| *ack += 1),
        |p| set_tcp(p, |_, _, window, _| *window += 1),
        |p| set_tcp(p, |_, _, _, options| options[7] ^= 1),
        |p| set_tcp(p, |_, _, _, options| options.truncate(8)),
        |p| set_tcp(p, |_, _, _, options| options.extend([1; 4])),
        |p| *p = p.clone().flags(ACK | SYN),
        |p| *p = p.clone().flags(ACK | URG),
        |p| *p = p.clone().flags(ACK | ECE),
        |p| *p = p.clone().flags(ACK | tcp::PSH),
        |p| *p = p.clone().flags(ACK | tcp::FIN),
        |p| p.payload.clear(),
        |p| p.padding = 6,
    ];
    let Some(kernel) = Kernel::new() else { return };
    for packet in kernel.kinds() {
        let is_tcp = matches!(packet.upper, Upper::Tcp { .. });
        for change in changes.iter().chain(if is_tcp { of_tcp } else { &[] }) {
            for at in [0, 2] {
                let mut packets = packet.clone().sized(200).stream(5);
                change(&mut packets[at]);
                kernel.compare(&packets);
            }
        }
    }
}

#[test]
fn cwr_is_a_bit_of_a_counter() {
    let Some(kernel) = Kernel::new() else { return };
    if kernel_version() < (7, 3) {
        return skip("Linux 6.18 takes CWR on the first packet only");
    }
    for packet in [Packet::tcp_v4(), Packet::tcp_v6()] {
        for marked in [0..5, 0..1, 2..5, 2..3] {
            let mut packets = packet.clone().sized(200).stream(5);
            packets[marked].iter_mut().for_each(|p| *p = p.clone().flags(ACK | tcp::CWR));
            kernel.compare(&packets);
        }
    }
}

#[test]
fn extension_headers() {
    let Some(kernel) = Kernel::new() else { return };
    for chain in [
        &[ipv6::HOP_BY_HOP][..],
        &[ipv6::ROUTING],
        &[ipv6::DESTINATION_OPTIONS; 3],
        &[ipv6::HOP_BY_HOP, ipv6::ROUTING, ipv6::DESTINATION_OPTIONS],
        &[ipv6::FRAGMENT],
        &[135],
    ] {
        for mut packet in kernel.kinds() {
            if matches!(packet.ip, Ip::V4 { .. }) {
                continue;
            }
            packet.ip = Ip::V6 { label: 5, extensions: chain.to_vec() };
            kernel.compare(&packet.sized(300).stream(4));
        }
    }
}

#[test]
fn the_longest_trains() {
    let Some(kernel) = Kernel::new() else { return };
    for packet in kernel.kinds() {
        for size in [32_741, 32_742, 21_827, 21_828, 16_000] {
            kernel.compare(&packet.clone().sized(size).stream(5));
        }
    }
}

#[test]
fn tags() {
    let Some(kernel) = Kernel::new() else { return };
    if !kernel.sees_through_tags() {
        return skip("this kernel has no 8021q");
    }
    for packet in kernel.kinds() {
        for tags in [&[C_TAG][..], &[S_TAG], &[S_TAG, C_TAG], &[C_TAG, C_TAG, S_TAG]] {
            let packet = packet.clone().tagged(tags).sized(1400);
            kernel.compare(&packet.stream(5));
            let other = packet.clone().tagged(&[&tags[1..], &[C_TAG ^ 0x2001]].concat());
            let packets = [&packet, &other, &packet.next(), &other.next()].map(Packet::clone);
            kernel.compare(&packets);
        }
    }
}

#[test]
fn random_flows() {
    let Some(kernel) = Kernel::new() else { return };
    let kinds = kernel.kinds();
    let kernel = RefCell::new(kernel);
    let cases = if tapswitch_guest::inside().is_some() { 40 } else { 200 };
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let run = TestRunner::new(config).run(&batches(kinds), |packets| {
        kernel.borrow_mut().compare(&packets);
        Ok(())
    });
    run.unwrap();
}

#[test]
fn what_differs_on_purpose() {
    let Some(kernel) = Kernel::new() else { return };
    let mut fixed = Packet::tcp_v4().sized(100).stream(4);
    fixed.iter_mut().for_each(|packet| set_v4(packet, |id, _| *id = 7));
    let mut urgent = Packet::tcp_v6().sized(100).stream(4);
    if let Upper::Tcp { urgent, .. } = &mut urgent[2].upper {
        *urgent = 9;
    }
    let mut wrong = Packet::tcp_v6().sized(100).stream(3);
    wrong.insert(1, wrong[1].clone().with(Checksum::Wrong));
    for (packets, theirs, ours) in [(fixed, 1, 4), (urgent, 1, 3), (wrong, 2, 3)] {
        assert_eq!(coalesce(&frames(&packets)).len(), ours);
        kernel.until_untouched(
            || kernel.forward(&frames(&packets)).len() == theirs,
            || format!("the kernel does not make {theirs} of {packets:?}"),
        );
    }
}

/// Up to five interleaved flows, with some packets unusual, missing or out of order.
fn batches(kinds: Vec<Packet>) -> impl Strategy<Value = Vec<Packet>> {
    let flows = vec((select(kinds), 1usize..1400, 1usize..12), 1..6);
    let oddities = vec((any::<Index>(), 0u8..12), 0..5);
    let swaps = vec((any::<Index>(), any::<Index>()), 0..3);
    let lost = vec(any::<Index>(), 0..2);
    (flows, vec(any::<Index>(), 60), oddities, swaps, lost).prop_map(
        |(flows, order, oddities, swaps, lost)| {
            let stream = |((packet, size, count), flow): ((Packet, usize, usize), u8)| {
                packet.of_flow(flow).sized(size).stream(count)
            };
            let mut packets = interleave(flows.into_iter().zip(0..).map(stream), &order);
            for (index, oddity) in oddities {
                make_odd(index.get_mut(&mut packets), oddity);
            }
            for (one, other) in swaps {
                let (one, other) = (one.index(packets.len()), other.index(packets.len()));
                packets.swap(one, other);
            }
            for index in lost {
                if packets.len() > 1 {
                    packets.remove(index.index(packets.len()));
                }
            }
            packets
        },
    )
}

fn make_odd(packet: &mut Packet, oddity: u8) {
    let is_tcp = matches!(packet.upper, Upper::Tcp { .. });
    match oddity {
        0 => packet.checksum = Checksum::Partial,
        1 => packet.checksum = Checksum::Vouched,
        2 if is_tcp => packet.padding = 7,
        3 => packet.tos ^= 3,
        4 => packet.ttl -= 1,
        5 => set_v4(packet, |_, fragment| *fragment = 0),
        6 => *packet = packet.clone().flags(ACK | tcp::PSH),
        7 => *packet = packet.clone().flags(SYN),
        8 => packet.payload.truncate(1),
        9 if is_tcp => packet.payload.clear(),
        10 => set_tcp(packet, |_, _, window, _| *window += 1),
        _ => packet.payload.push(1),
    }
}

fn set_v4(packet: &mut Packet, action: impl FnOnce(&mut u16, &mut u16)) {
    if let Ip::V4 { id, fragment, .. } = &mut packet.ip {
        action(id, fragment);
    }
}

fn set_tcp(packet: &mut Packet, action: impl FnOnce(&mut u32, &mut u32, &mut u16, &mut Vec<u8>)) {
    if let Upper::Tcp { seq, ack, window, options, .. } = &mut packet.upper {
        action(seq, ack, window, options);
    }
}
