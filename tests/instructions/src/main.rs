//! Repeats one kind of late work on frames, for a tool that counts instructions.
//!
//! ```text
//! instructions              the loop that sums bytes here, then the names of all cases, each with
//!                           the packets or operations of one turn
//! instructions CASE TURNS   does it so many times
//! ```
//!
//! Counts of two runs of different length differ by the work alone. Everything is deterministic: no
//! clock, no random numbers, and addresses do not matter.

mod forward;
mod guest;
mod tap;
mod train;

use std::hint::black_box;
use std::process::ExitCode;

use tapswitch_offload::coalesce::{Coalescer, Place};
use tapswitch_offload::{InPlace, Segments};
use tapswitch_wire::checksum::{Implementation, Sum, update};
use tapswitch_wire::{EtherType, NetHeader, NetHeaderFlags, Tag, tags};

use forward::BURST;
// Only for its feature: see the manifest.
use rustix as _;
use train::{HEADROOM, SEGMENTS, Train};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let Some(name) = args.next() else {
        println!("{}", Implementation::best());
        CASES.iter().for_each(|(name, units, _)| println!("{units} {name}"));
        return ExitCode::SUCCESS;
    };
    let turns = args.next().and_then(|text| text.parse().ok());
    let case = CASES.iter().find(|(case, ..)| *case == name);
    let (Some((_, _, work)), Some(turns)) = (case, turns) else {
        eprintln!("usage: instructions [CASE TURNS]; without arguments it names the cases");
        return ExitCode::FAILURE;
    };
    work(turns);
    ExitCode::SUCCESS
}

/// Name, packets or operations per turn, and the function that runs so many turns.
type Case = (&'static str, u32, fn(u32));

const CASES: [Case; 22] = [
    ("sum-20-bytes", 1, |turns| sum(20, turns)),
    ("sum-1448-bytes", 1, |turns| sum(1448, turns)),
    ("update-4-bytes", 1, update_address),
    ("split-tcp-ipv4", SEGMENTS, |turns| split(&Train::tcp_ipv4(0), turns)),
    ("split-tcp-ipv4-2-tags", SEGMENTS, |turns| split(&Train::tcp_ipv4(2), turns)),
    ("split-udp-ipv6", SEGMENTS, |turns| split(&Train::udp_ipv6(0), turns)),
    ("split-in-place-tcp-ipv4", SEGMENTS, |turns| split_in_place(Train::tcp_ipv4(0), turns)),
    ("split-in-place-udp-ipv6", SEGMENTS, |turns| split_in_place(Train::udp_ipv6(0), turns)),
    ("coalesce-tcp-ipv4", SEGMENTS, |turns| {
        coalesce(&[Train::tcp_ipv4(0)], NetHeaderFlags::DATA_VALID, turns);
    }),
    ("coalesce-tcp-ipv4-9-flows", SEGMENTS, |turns| {
        let flows: [_; 9] = std::array::from_fn(|flow| Train::tcp_ipv4(0).of_flow(flow));
        coalesce(&flows, NetHeaderFlags::DATA_VALID, turns);
    }),
    ("coalesce-tcp-ipv4-2-tags", SEGMENTS, |turns| {
        coalesce(&[Train::tcp_ipv4(2)], NetHeaderFlags::DATA_VALID, turns);
    }),
    ("coalesce-udp-ipv6", SEGMENTS, |turns| {
        coalesce(&[Train::udp_ipv6(0)], NetHeaderFlags::DATA_VALID, turns);
    }),
    ("coalesce-tcp-ipv4-verified", SEGMENTS, |turns| coalesce(&[Train::tcp_ipv4(0)], 0, turns)),
    ("push-and-pop-a-tag", 1, push_and_pop),
    ("forward-udp-ipv4", BURST, |turns| forward::forward(&forward::udp_ipv4(0), turns)),
    ("forward-udp-ipv4-2-tags", BURST, |turns| forward::forward(&forward::udp_ipv4(2), turns)),
    ("forward-udp-ipv4-3-tags", BURST, |turns| forward::forward(&forward::udp_ipv4(3), turns)),
    ("forward-udp-ipv6", BURST, |turns| forward::forward(&forward::udp_ipv6(0), turns)),
    ("guest-to-guest-60-bytes", guest::RING_SIZE as u32, |turns| {
        guest::relay(guest::Kind::Split, turns);
    }),
    ("guest-to-guest-60-bytes-packed", guest::RING_SIZE as u32, |turns| {
        guest::relay(guest::Kind::Packed, turns);
    }),
    ("tap-to-tap-60-bytes", tap::BURST, tap::relay),
    ("copy-udp-ipv4", BURST, |turns| forward::copy(&forward::udp_ipv4(0), turns)),
];

fn sum(len: usize, turns: u32) {
    let data: Vec<u8> = (0..=u8::MAX).cycle().take(len).collect();
    for _ in 0..turns {
        black_box(Sum::of(black_box(&data)).checksum());
    }
}

fn update_address(turns: u32) {
    let (old, new) = ([10, 0, 0, 1], [192, 168, 1, 2]);
    for _ in 0..turns {
        black_box(update(black_box(0x1234), &black_box(old), &black_box(new)));
    }
}

fn split(train: &Train, turns: u32) {
    let mut headers = [0; 128];
    for _ in 0..turns {
        let segments = Segments::new(black_box(&train.meta), black_box(train.frame()), &[]);
        let Ok(mut segments) = segments else {
            return;
        };
        while let Some(segment) = segments.next(&mut headers) {
            black_box((segment, &headers));
        }
    }
}

fn split_in_place(mut train: Train, turns: u32) {
    let headers = train.frame()[..train.headers_len].to_vec();
    for _ in 0..turns {
        train.buf[HEADROOM..HEADROOM + headers.len()].copy_from_slice(&headers);
        let buf = black_box(&mut train.buf[..]);
        let Ok(mut packets) = InPlace::new(black_box(&train.meta), buf, HEADROOM) else {
            return;
        };
        while let Some(packet) = packets.next(0) {
            black_box(packet);
        }
    }
}

/// Packets of several flows in turn are joined to trains again.
fn coalesce(trains: &[Train], flags: u8, turns: u32) {
    let meta = NetHeader { flags, ..NetHeader::PLAIN };
    let (mut buf, mut batch) = (Vec::new(), Vec::new());
    let cut = trains.iter().map(|train| Segments::new(&train.meta, train.frame(), &[]));
    let Ok(mut flows) = cut.collect::<Result<Vec<_>, _>>() else {
        return;
    };
    let mut headers = [0; 128];
    for flow in (0..flows.len()).cycle().take(SEGMENTS as usize) {
        let Some(segment) = flows[flow].next(&mut headers) else {
            return;
        };
        let start = buf.len();
        buf.extend(&headers[..segment.headers_len]);
        buf.extend(segment.payload.concat());
        batch.push(Place { meta, start, end: buf.len() });
    }
    let firsts = batch[..trains.len()].iter().zip(trains);
    let firsts = firsts.map(|(place, train)| place.start..place.start + train.headers_len);
    let firsts: Vec<_> = firsts.map(|place| (buf[place.clone()].to_vec(), place)).collect();
    let mut coalescer = Coalescer::new(batch.len());
    for _ in 0..turns {
        firsts.iter().for_each(|(headers, place)| buf[place.clone()].copy_from_slice(headers));
        for unit in coalescer.coalesce(black_box(&mut buf), black_box(&batch)) {
            black_box(unit);
        }
    }
}

fn push_and_pop(turns: u32) {
    let mut train = Train::tcp_ipv4(1);
    let (tag, mut start) = (Tag::new(EtherType::SERVICE_VLAN, 300), HEADROOM);
    for _ in 0..turns {
        let buf = black_box(&mut train.buf[..]);
        black_box(tags::push(buf, &mut start, &mut train.meta, tag));
        black_box(tags::pop(buf, &mut start, &mut train.meta));
    }
}
