//! The filter program: parse, evaluate the rules, then keep, truncate or drop.
//!
//! While the rules are evaluated, r8 is the IP version or 0 if the frame is not IP, r9 the
//! protocol, and r7 the offset of the transport header or 0 if there are no ports. No helper is
//! called, so r0 to r5 are free.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;

use tapswitch_wire::MacAddr;

use super::{End, FilterConfig, Rule, TRANSPORT_LEN};
use crate::bpf::asm::{Alu, AssembleError, Assembler, Cond, Instruction, Label, Reg, Size};
use crate::bpf::headers::Link;
use crate::bpf::layers::{self, Amount, IpExits, IpVersion, LinkExits, big_endian, context, slot};

/// The program for `config`, with its map.
pub(super) fn assemble(
    config: &FilterConfig,
    counters: BorrowedFd<'_>,
) -> Result<Vec<Instruction>, AssembleError> {
    let mut asm = Assembler::default();
    let [matched, unmatched] = [asm.label(), asm.label()];
    asm.mov(Reg::R6, Reg::R1);
    asm.mov(Reg::R7, 0);
    if !config.rules.is_empty() {
        clear_slots(&mut asm);
        walk(&mut asm, config.link, unmatched);
    } else if let Some(snap_len) = config.snap_len.filter(|_| !config.keep_matching) {
        // Without rules, headers are only needed for frames that may be truncated.
        layers::load_frame_len(&mut asm, Reg::R2, Reg::R1);
        asm.branch(Cond::LessOrEqual, Reg::R2, i32::from(snap_len), unmatched);
        walk(&mut asm, config.link, unmatched);
    }
    for rule in &config.rules {
        try_rule(&mut asm, rule, matched);
    }
    asm.jump(unmatched);
    let (kept, dropped) =
        if config.keep_matching { (matched, unmatched) } else { (unmatched, matched) };
    asm.bind(kept);
    keep(&mut asm, config, counters);
    asm.bind(dropped);
    drop_frame(&mut asm, counters);
    asm.finish()
}

/// The verifier cannot see that rules only read fields that this frame has.
fn clear_slots(asm: &mut Assembler) {
    for at in (slot::IP..slot::IP + 40).step_by(8) {
        asm.store(Size::Double, Reg::R10, at, 0);
    }
    asm.store(Size::Word, Reg::R10, slot::PORTS, 0);
}

/// Parses the headers. A frame with an incomplete link-layer header matches no rule.
fn walk(asm: &mut Assembler, link: Link, unmatched: Label) {
    let [other, ipv4, ipv6, facts] = std::array::from_fn(|_| asm.label());
    let truncated = asm.label();
    let exits = LinkExits { truncated, other, ipv4, ipv6, plain_ipv4: None };
    match link {
        Link::Ethernet => layers::ethernet(asm, true, exits),
        Link::Ip => layers::packet(asm, exits),
    }
    for (start, version) in [(ipv4, IpVersion::V4), (ipv6, IpVersion::V6)] {
        let [ported, portless] = [asm.label(), asm.label()];
        asm.bind(start);
        layers::ip(asm, version, IpExits { broken: other, portless, ported });
        asm.bind(portless);
        asm.mov(Reg::R7, 0);
        asm.bind(ported);
        asm.mov(Reg::R8, version as i32);
        asm.jump(facts);
    }
    asm.bind(truncated);
    asm.mov(Reg::R7, 0);
    asm.jump(unmatched);

    asm.bind(other);
    asm.mov(Reg::R7, 0);
    asm.mov(Reg::R8, 0);
    asm.mov(Reg::R9, 0);
    asm.bind(facts);
    layers::forget(asm, &[Reg::R7, Reg::R8, Reg::R9]);
}

/// Continues at `matched` if the frame matches `rule`.
fn try_rule(asm: &mut Assembler, rule: &Rule, matched: Label) {
    let next = asm.label();
    if let Some(ether_type) = rule.ether_type {
        asm.load(Size::Half, Reg::R1, Reg::R10, slot::ETHER_TYPE);
        asm.branch(Cond::NotEqual, Reg::R1, big_endian(ether_type), next);
    }
    if let Some((end, mac)) = rule.mac {
        let places = [slot::ETHERNET + 6, slot::ETHERNET];
        at_end(asm, end, places, next, |asm, at, fail| compare_mac(asm, mac, at, fail));
    }
    if let Some((end, address, prefix_len)) = rule.network {
        try_network(asm, (end, address, prefix_len), next);
    }
    if let Some(protocol) = rule.protocol {
        copy(asm, Reg::R8);
        asm.branch(Cond::Equal, Reg::R1, 0, next);
        copy(asm, Reg::R9);
        asm.branch(Cond::NotEqual, Reg::R1, i32::from(protocol), next);
    }
    if let Some((end, ports)) = &rule.ports {
        copy(asm, Reg::R7);
        asm.branch(Cond::Equal, Reg::R1, 0, next);
        let places = [slot::PORTS, slot::PORTS + 2];
        at_end(asm, *end, places, next, |asm, at, fail| compare_port(asm, ports, at, fail));
    }
    asm.jump(matched);
    asm.bind(next);
}

/// r1 = `reg`, which is less than 65536. The verifier does not apply to `reg` what a comparison of
/// r1 tells it: otherwise it would explore all rules again for each outcome of each comparison.
fn copy(asm: &mut Assembler, reg: Reg) {
    asm.mov(Reg::R1, reg);
    asm.alu(Alu::And, Reg::R1, 0xffff);
}

fn try_network(asm: &mut Assembler, (end, address, len): (End, IpAddr, u8), next: Label) {
    let (version, places, bytes) = match address {
        IpAddr::V4(address) => (4, [slot::IP + 12, slot::IP + 16], address.octets().to_vec()),
        IpAddr::V6(address) => (6, [slot::IP + 8, slot::IP + 24], address.octets().to_vec()),
    };
    copy(asm, Reg::R8);
    asm.branch(Cond::NotEqual, Reg::R1, version, next);
    at_end(asm, end, places, next, |asm, at, fail| compare_prefix(asm, &bytes, len, at, fail));
}

/// Emits the comparison for the selected end; `[source, destination]` are the offsets. Falls
/// through if it is true, else continues at `next`.
fn at_end(
    asm: &mut Assembler,
    end: End,
    [src, dst]: [i16; 2],
    next: Label,
    compare: impl Fn(&mut Assembler, i16, Label),
) {
    match end {
        End::Source => compare(asm, src, next),
        End::Destination => compare(asm, dst, next),
        End::Either => {
            let [holds, other] = [asm.label(), asm.label()];
            compare(asm, src, other);
            asm.jump(holds);
            asm.bind(other);
            compare(asm, dst, next);
            asm.bind(holds);
        }
    }
}

fn compare_mac(asm: &mut Assembler, MacAddr([a, b, c, d, e, f]): MacAddr, at: i16, fail: Label) {
    for (offset, half) in [(0, [a, b]), (2, [c, d]), (4, [e, f])] {
        asm.load(Size::Half, Reg::R1, Reg::R10, at + offset);
        asm.branch(Cond::NotEqual, Reg::R1, big_endian(u16::from_be_bytes(half)), fail);
    }
}

/// Compares the first `len` bits, in words as stored in memory.
fn compare_prefix(asm: &mut Assembler, address: &[u8], len: u8, at: i16, fail: Label) {
    let words = address.chunks_exact(4).zip((at..).step_by(4)).zip((0..).step_by(32));
    for ((word, at), bits_before) in words {
        let bits = u32::from(len).saturating_sub(bits_before).min(32);
        let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
        let Some(wanted) = word.first_chunk().filter(|_| mask != 0) else {
            return;
        };
        let wanted = u32::from_be_bytes(*wanted) & mask;
        asm.load(Size::Word, Reg::R1, Reg::R10, at);
        asm.alu32(Alu::And, Reg::R1, mask.to_be().cast_signed());
        asm.alu32(Alu::Mov, Reg::R2, wanted.to_be().cast_signed());
        asm.branch(Cond::NotEqual, Reg::R1, Reg::R2, fail);
    }
}

fn compare_port(asm: &mut Assembler, ports: &RangeInclusive<u16>, at: i16, fail: Label) {
    asm.load(Size::Half, Reg::R1, Reg::R10, at);
    asm.swap_big_endian(Reg::R1);
    asm.branch(Cond::Less, Reg::R1, i32::from(*ports.start()), fail);
    asm.branch(Cond::Greater, Reg::R1, i32::from(*ports.end()), fail);
}

/// Counts a frame, truncates it if configured, and ends the program.
fn keep(asm: &mut Assembler, config: &FilterConfig, counters: BorrowedFd<'_>) {
    let whole = asm.label();
    see(asm, counters, whole);
    if let Some(snap_len) = config.snap_len {
        cut(asm, snap_len, config.cut_trains, whole);
    }
    asm.bind(whole);
    asm.load(Size::Word, Reg::R0, Reg::R6, context::LEN);
    asm.exit();
}

/// Ends the program if the frame is longer than the part to keep, else continues at `whole`. r4 is
/// the frame's length, r9 points to the counters.
fn cut(asm: &mut Assembler, snap_len: u16, cut_trains: bool, whole: Label) {
    let [is_long_enough, no_transport] = [asm.label(), asm.label()];
    // r5 = length of an accelerated tag; r7 and the result do not include it.
    asm.mov(Reg::R5, Reg::R4);
    asm.load(Size::Word, Reg::R1, Reg::R6, context::LEN);
    asm.alu(Alu::Sub, Reg::R5, Reg::R1);
    asm.mov(Reg::R2, i32::from(snap_len));
    asm.branch(Cond::Equal, Reg::R7, 0, no_transport);
    asm.alu(Alu::Add, Reg::R7, i32::from(TRANSPORT_LEN));
    asm.alu(Alu::Add, Reg::R7, Reg::R5);
    asm.branch(Cond::LessOrEqual, Reg::R7, Reg::R2, is_long_enough);
    asm.mov(Reg::R2, Reg::R7);
    asm.bind(is_long_enough);
    asm.bind(no_transport);
    asm.branch(Cond::LessOrEqual, Reg::R4, Reg::R2, whole);
    if !cut_trains {
        leave_trains(asm, whole);
    }
    asm.alu(Alu::Sub, Reg::R4, Reg::R2);
    layers::add_to_counter(asm, Reg::R9, sum::CUT, Amount::One);
    layers::add_to_counter(asm, Reg::R9, sum::CUT_BYTES, Amount::Of(Reg::R4));
    asm.mov(Reg::R0, Reg::R2);
    asm.alu(Alu::Sub, Reg::R0, Reg::R5);
    asm.exit();
}

fn leave_trains(asm: &mut Assembler, whole: Label) {
    let no_train = asm.label();
    asm.load(Size::Word, Reg::R1, Reg::R6, context::GSO_SIZE);
    asm.branch(Cond::Equal, Reg::R1, 0, no_train);
    layers::add_to_counter(asm, Reg::R9, sum::WHOLE_TRAINS, Amount::One);
    asm.jump(whole);
    asm.bind(no_train);
}

/// Counts a dropped frame, and ends the program.
fn drop_frame(asm: &mut Assembler, counters: BorrowedFd<'_>) {
    let uncounted = asm.label();
    see(asm, counters, uncounted);
    layers::add_to_counter(asm, Reg::R9, sum::DROPPED, Amount::One);
    layers::add_to_counter(asm, Reg::R9, sum::DROPPED_BYTES, Amount::Of(Reg::R4));
    asm.bind(uncounted);
    asm.mov(Reg::R0, 0);
    asm.exit();
}

/// Counts a frame: r9 = the counters, r4 = the frame's length. Continues at `fail` without
/// counters, which cannot happen but the verifier requires the check.
fn see(asm: &mut Assembler, counters: BorrowedFd<'_>, fail: Label) {
    asm.store(Size::Word, Reg::R10, slot::SCRATCH, 0);
    layers::find_element(asm, counters);
    asm.branch(Cond::Equal, Reg::R0, 0, fail);
    asm.mov(Reg::R9, Reg::R0);
    layers::load_frame_len(asm, Reg::R4, Reg::R1);
    layers::add_to_counter(asm, Reg::R9, sum::FRAMES, Amount::One);
    layers::add_to_counter(asm, Reg::R9, sum::BYTES, Amount::Of(Reg::R4));
}

/// Indices of the sums.
mod sum {
    pub(super) const FRAMES: i16 = 0;
    pub(super) const BYTES: i16 = 1;
    pub(super) const DROPPED: i16 = 2;
    pub(super) const DROPPED_BYTES: i16 = 3;
    pub(super) const CUT: i16 = 4;
    pub(super) const CUT_BYTES: i16 = 5;
    pub(super) const WHOLE_TRAINS: i16 = 6;
}

/// Number of sums.
pub(super) const SUMS: usize = 7;
