//! The part of a program that parses the headers of a frame: [`super::headers`] as instructions.
//!
//! Registers: r6 is the context, r7 the offset in the frame, r9 the protocol; r8 is not used.
//! Parsed headers are stored at fixed offsets of the stack ([`slot`]). Each layer ends with a jump
//! to one of the labels passed to it.
//!
//! There are no loops: repeated elements are unrolled. With `CAP_BPF` but without `CAP_PERFMON`,
//! the verifier also explores speculative execution, and so never sees a loop end. For the same
//! reason, no address is computed from the contents of a frame, nothing is read before it is
//! written, and [`forget`] is used where paths join.
//!
//! The cost is determined by the number of calls that copy bytes to the stack, hardly by their
//! length: 15 ns a call for 2 as for 44 bytes, measured on Linux 6.18 with an AMD EPYC (and 7 ns
//! for a load of up to 4 bytes by the classic instructions, which end the program if the frame is
//! shorter). So each layer first loads everything that a typical frame has at once, and falls back
//! to less if the frame is shorter: one call for an Ethernet header with up to six tags, one for an
//! IP header without options together with the ports.

use std::os::fd::BorrowedFd;

use super::asm::{Alu, Assembler, Cond, Helper, Label, Reg, Size};
use super::headers;

/// Stack offsets, from its end.
pub(crate) mod slot {
    /// Both MAC addresses and the type after them; then, in a typical frame, what follows: an IPv4
    /// header and ports, placed so that its addresses are aligned. 38 bytes.
    pub(crate) const ETHERNET: i16 = -62;
    /// What follows an Ethernet header without tags.
    pub(crate) const PLAIN_IP: i16 = ETHERNET + 14;
    /// The IP header, 20 or 40 bytes, followed in a typical packet by 4 bytes of ports.
    pub(crate) const IP: i16 = -112;
    /// Source and destination port; zeros if there are none.
    pub(crate) const PORTS: i16 = -116;
    /// The type after the last parsed tag; 0 if there are too many.
    pub(crate) const ETHER_TYPE: i16 = -118;
    /// The first bytes of an extension header, and temporary values.
    pub(crate) const SCRATCH: i16 = -128;
    /// Below this the stack is free.
    pub(crate) const END: i16 = SCRATCH;
}

/// Exits of the link layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkExits {
    /// The Ethernet header is incomplete.
    pub(crate) truncated: Label,
    /// Not IP.
    pub(crate) other: Label,
    pub(crate) ipv4: Label,
    pub(crate) ipv6: Label,
    /// Optional: IPv4 without tags (nor options, on a tun device), of which 20 bytes and 4 of ports
    /// are in [`slot::PLAIN_IP`]; r7 is still the start of the link layer.
    pub(crate) plain_ipv4: Option<Label>,
}

/// Exits of the IP layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IpExits {
    /// Not an IP header.
    pub(crate) broken: Label,
    /// No ports are available; r9 is the protocol.
    pub(crate) portless: Label,
    /// TCP, UDP or SCTP (r9), whose header starts at r7.
    pub(crate) ported: Label,
}

/// Ethernet at r7 and its tags. If `accelerated`, the tag that the kernel keeps outside of the
/// frame counts as the first. At the exits, r7 is the offset of the network layer.
pub(crate) fn ethernet(asm: &mut Assembler, accelerated: bool, exits: LinkExits) {
    let [short, typed] = [asm.label(), asm.label()];
    let one_by_one = (0..=headers::MAX_TAGS).map(|_| asm.label()).collect::<Vec<_>>();
    load_bytes(asm, 0, slot::ETHERNET, 38, Some(short));
    for count in 0..TAGS_AT_ONCE {
        let tag = asm.label();
        asm.load(Size::Half, Reg::R1, Reg::R10, slot::ETHERNET + 12 + 4 * count);
        if let Some(plain) = exits.plain_ipv4.filter(|_| count == 0) {
            asm.branch(Cond::Equal, Reg::R1, big_endian(headers::IPV4), plain);
        }
        branch_if_tag(asm, tag);
        asm.jump(typed);
        asm.bind(tag);
        asm.alu(Alu::Add, Reg::R7, 4);
    }
    asm.jump(one_by_one[usize::from(TAGS_AT_ONCE.unsigned_abs())]);

    asm.bind(short);
    load_bytes(asm, 0, slot::ETHERNET, 14, Some(exits.truncated));
    tags(asm, accelerated, &one_by_one, typed, exits.other);

    asm.bind(typed);
    asm.store(Size::Half, Reg::R10, slot::ETHER_TYPE, Reg::R1);
    asm.alu(Alu::Add, Reg::R7, 14);
    asm.branch(Cond::Equal, Reg::R1, big_endian(headers::IPV4), exits.ipv4);
    asm.branch(Cond::Equal, Reg::R1, big_endian(headers::IPV6), exits.ipv6);
    asm.jump(exits.other);
}

/// The tags one by one, with an entry for each number of tags already parsed. Continues at `typed`
/// with the type in r1.
fn tags(asm: &mut Assembler, accelerated: bool, entries: &[Label], typed: Label, other: Label) {
    let too_many = asm.label();
    for (count, entry) in entries.iter().enumerate() {
        asm.bind(*entry);
        load_bytes(asm, 12, slot::ETHER_TYPE, 2, Some(other));
        asm.load(Size::Half, Reg::R1, Reg::R10, slot::ETHER_TYPE);
        let tags_left = entries.len() - 1 - count;
        let tag = if tags_left == 0 { too_many } else { asm.label() };
        branch_if_tag(asm, tag);
        asm.jump(typed);
        if tags_left == 0 {
            break;
        }
        asm.bind(tag);
        if accelerated && tags_left == 1 {
            // With an accelerated tag, the last permitted tag would be one too many.
            asm.load(Size::Word, Reg::R1, Reg::R6, context::VLAN_PRESENT);
            asm.branch(Cond::NotEqual, Reg::R1, 0, too_many);
        }
        asm.alu(Alu::Add, Reg::R7, 4);
    }
    asm.bind(too_many);
    asm.store(Size::Half, Reg::R10, slot::ETHER_TYPE, 0);
    asm.jump(other);
}

/// An IP packet at the start of the frame, where r7 is 0.
pub(crate) fn packet(asm: &mut Assembler, exits: LinkExits) {
    let [short, version] = [asm.label(), asm.label()];
    load_bytes(asm, 0, slot::PLAIN_IP, 24, Some(short));
    asm.load(Size::Byte, Reg::R1, Reg::R10, slot::PLAIN_IP);
    if let Some(plain) = exits.plain_ipv4 {
        asm.branch(Cond::Equal, Reg::R1, PLAIN_VERSION_IHL, plain);
    }
    asm.jump(version);

    asm.bind(short);
    load_bytes(asm, 0, slot::SCRATCH, 1, None);
    asm.load(Size::Byte, Reg::R1, Reg::R10, slot::SCRATCH);
    asm.bind(version);
    asm.alu(Alu::ShiftRight, Reg::R1, 4);
    asm.store(Size::Half, Reg::R10, slot::ETHER_TYPE, big_endian(headers::IPV4));
    asm.branch(Cond::Equal, Reg::R1, 4, exits.ipv4);
    asm.store(Size::Half, Reg::R10, slot::ETHER_TYPE, big_endian(headers::IPV6));
    asm.branch(Cond::Equal, Reg::R1, 6, exits.ipv6);
    asm.store(Size::Half, Reg::R10, slot::ETHER_TYPE, 0);
    asm.jump(exits.other);
}

/// A version of IP.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum IpVersion {
    V4 = 4,
    V6 = 6,
}

/// An IP header at r7, and what precedes the ports.
pub(crate) fn ip(asm: &mut Assembler, version: IpVersion, exits: IpExits) {
    match version {
        IpVersion::V4 => ipv4(asm, exits),
        IpVersion::V6 => ipv6(asm, exits),
    }
}

fn ipv4(asm: &mut Assembler, exits: IpExits) {
    let [short, general] = [asm.label(), asm.label()];
    load_bytes(asm, 0, slot::IP, 24, Some(short));
    asm.load(Size::Byte, Reg::R1, Reg::R10, slot::IP);
    asm.branch(Cond::NotEqual, Reg::R1, PLAIN_VERSION_IHL, general);
    asm.load(Size::Word, Reg::R2, Reg::R10, slot::IP + 20);
    asm.alu(Alu::Add, Reg::R7, 20);
    asm.store(Size::Word, Reg::R10, slot::PORTS, Reg::R2);
    ipv4_protocol(asm, exits.ported, exits.portless);

    asm.bind(short);
    load_bytes(asm, 0, slot::IP, 20, Some(exits.broken));
    asm.load(Size::Byte, Reg::R1, Reg::R10, slot::IP);
    asm.bind(general);
    asm.mov(Reg::R2, Reg::R1);
    asm.alu(Alu::And, Reg::R2, 0xf0);
    asm.branch(Cond::NotEqual, Reg::R2, 0x40, exits.broken);
    asm.alu(Alu::And, Reg::R1, 0x0f);
    asm.branch(Cond::Less, Reg::R1, 5, exits.broken);
    asm.alu(Alu::ShiftLeft, Reg::R1, 2);
    asm.alu(Alu::Add, Reg::R7, Reg::R1);
    let read_ports = asm.label();
    ipv4_protocol(asm, read_ports, exits.portless);
    asm.bind(read_ports);
    load_bytes(asm, 0, slot::PORTS, 4, Some(exits.portless));
    asm.jump(exits.ported);
}

/// r9 = the protocol; continues at `ported` if it has ports and the packet is not a fragment, else
/// at `portless`.
fn ipv4_protocol(asm: &mut Assembler, ported: Label, portless: Label) {
    let fragment = asm.label();
    asm.load(Size::Byte, Reg::R9, Reg::R10, slot::IP + 9);
    asm.load(Size::Half, Reg::R1, Reg::R10, slot::IP + 6);
    asm.branch(Cond::AnyBit, Reg::R1, big_endian(headers::IPV4_FRAGMENT), fragment);
    branch_if_one_of(asm, Reg::R9, &headers::PORTED, ported);
    asm.bind(fragment);
    asm.store(Size::Word, Reg::R10, slot::PORTS, 0);
    asm.jump(portless);
}

fn ipv6(asm: &mut Assembler, exits: IpExits) {
    let [short, plain, chain] = [asm.label(), asm.label(), asm.label()];
    load_bytes(asm, 0, slot::IP, 44, Some(short));
    ipv6_protocol(asm, exits.broken);
    branch_if_one_of(asm, Reg::R9, &headers::PORTED, plain);
    asm.jump(chain);

    asm.bind(plain);
    asm.load(Size::Word, Reg::R1, Reg::R10, slot::IP + 40);
    asm.store(Size::Word, Reg::R10, slot::PORTS, Reg::R1);
    asm.alu(Alu::Add, Reg::R7, 40);
    asm.jump(exits.ported);

    asm.bind(short);
    load_bytes(asm, 0, slot::IP, 40, Some(exits.broken));
    ipv6_protocol(asm, exits.broken);
    asm.bind(chain);
    asm.alu(Alu::Add, Reg::R7, 40);
    extensions(asm, exits);
}

fn ipv6_protocol(asm: &mut Assembler, broken: Label) {
    asm.load(Size::Byte, Reg::R1, Reg::R10, slot::IP);
    asm.alu(Alu::And, Reg::R1, 0xf0);
    asm.branch(Cond::NotEqual, Reg::R1, 0x60, broken);
    asm.load(Size::Byte, Reg::R9, Reg::R10, slot::IP + 6);
}

/// The extension header of type r9 at r7 and those after it.
fn extensions(asm: &mut Assembler, exits: IpExits) {
    let read_ports = asm.label();
    asm.store(Size::Word, Reg::R10, slot::PORTS, 0);
    for _ in 0..headers::MAX_EXTENSIONS {
        let extension = asm.label();
        branch_if_one_of(asm, Reg::R9, &headers::PORTED, read_ports);
        branch_if_one_of(asm, Reg::R9, &headers::EXTENSIONS, extension);
        asm.jump(exits.portless);
        asm.bind(extension);
        step_over_extension(asm, exits.portless);
    }
    branch_if_one_of(asm, Reg::R9, &headers::PORTED, read_ports);
    asm.jump(exits.portless);

    asm.bind(read_ports);
    load_bytes(asm, 0, slot::PORTS, 4, Some(exits.portless));
    asm.jump(exits.ported);
}

/// Adds the length of the extension header of type r9 at r7 to r7. r9 becomes the type of the next
/// header.
fn step_over_extension(asm: &mut Assembler, portless: Label) {
    let [fragment, authentication, next] = [asm.label(), asm.label(), asm.label()];
    forget(asm, &[Reg::R9]);
    load_bytes(asm, 0, slot::SCRATCH, 4, Some(portless));
    asm.mov(Reg::R2, Reg::R9);
    asm.load(Size::Byte, Reg::R9, Reg::R10, slot::SCRATCH);
    asm.load(Size::Byte, Reg::R1, Reg::R10, slot::SCRATCH + 1);
    asm.branch(Cond::Equal, Reg::R2, i32::from(headers::FRAGMENT), fragment);
    asm.branch(Cond::Equal, Reg::R2, i32::from(headers::AUTHENTICATION), authentication);
    asm.alu(Alu::Add, Reg::R1, 1);
    asm.alu(Alu::ShiftLeft, Reg::R1, 3);
    asm.alu(Alu::Add, Reg::R7, Reg::R1);
    asm.jump(next);

    asm.bind(authentication);
    asm.alu(Alu::Add, Reg::R1, 2);
    asm.alu(Alu::ShiftLeft, Reg::R1, 2);
    asm.alu(Alu::Add, Reg::R7, Reg::R1);
    asm.jump(next);

    asm.bind(fragment);
    asm.load(Size::Half, Reg::R1, Reg::R10, slot::SCRATCH + 2);
    asm.branch(Cond::AnyBit, Reg::R1, big_endian(headers::IPV6_FRAGMENT), portless);
    asm.alu(Alu::Add, Reg::R7, 8);
    asm.bind(next);
    forget(asm, &[Reg::R7]);
}

/// Copies `len` bytes at r7 + `ahead` to the stack at `slot`. If the frame is shorter, writes zeros
/// there, and continues at `fail` if given.
pub(crate) fn load_bytes(
    asm: &mut Assembler,
    ahead: i32,
    slot: i16,
    len: i32,
    fail: Option<Label>,
) {
    asm.mov(Reg::R1, Reg::R6);
    asm.mov(Reg::R2, Reg::R7);
    if ahead != 0 {
        asm.alu(Alu::Add, Reg::R2, ahead);
    }
    asm.mov(Reg::R3, Reg::R10);
    asm.alu(Alu::Add, Reg::R3, i32::from(slot));
    asm.mov(Reg::R4, len);
    asm.call(Helper::SkbLoadBytes);
    if let Some(fail) = fail {
        asm.branch(Cond::NotEqual, Reg::R0, 0, fail);
    }
}

/// `dst =` length in bytes of the frame as read from the device, including an accelerated tag.
pub(crate) fn load_frame_len(asm: &mut Assembler, dst: Reg, spare: Reg) {
    let no_tag = asm.label();
    asm.load(Size::Word, dst, Reg::R6, context::LEN);
    asm.load(Size::Word, spare, Reg::R6, context::VLAN_PRESENT);
    asm.branch(Cond::Equal, spare, 0, no_tag);
    asm.alu(Alu::Add, dst, 4);
    asm.bind(no_tag);
}

/// Looks up the map element whose key is in the scratch slot; r0 is its address or null.
pub(crate) fn find_element(asm: &mut Assembler, map: BorrowedFd<'_>) {
    asm.mov(Reg::R2, Reg::R10);
    asm.alu(Alu::Add, Reg::R2, i32::from(slot::SCRATCH));
    asm.mov_map(Reg::R1, map);
    asm.call(Helper::MapLookup);
}

/// Adds `amount` to the counter `index` of the set at `base`.
pub(crate) fn add_to_counter(asm: &mut Assembler, base: Reg, index: i16, amount: Amount) {
    let at = index * 8;
    asm.load(Size::Double, Reg::R1, base, at);
    match amount {
        Amount::One => asm.alu(Alu::Add, Reg::R1, 1),
        Amount::Of(reg) => asm.alu(Alu::Add, Reg::R1, reg),
    }
    asm.store(Size::Double, base, at, Reg::R1);
}

/// Amount to add to a counter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Amount {
    One,
    Of(Reg),
}

/// Makes the verifier forget the values of `regs`, so that it treats joining paths as one instead
/// of exploring each to the end. r1 is clobbered.
pub(crate) fn forget(asm: &mut Assembler, regs: &[Reg]) {
    asm.load(Size::Word, Reg::R1, Reg::R6, context::LEN);
    for reg in regs {
        // The verifier does not see that this changes nothing.
        asm.alu(Alu::Xor, *reg, Reg::R1);
        asm.alu(Alu::Xor, *reg, Reg::R1);
    }
}

fn branch_if_tag(asm: &mut Assembler, target: Label) {
    for tag_type in headers::TAG_TYPES {
        asm.branch(Cond::Equal, Reg::R1, big_endian(tag_type), target);
    }
}

fn branch_if_one_of(asm: &mut Assembler, reg: Reg, values: &[u8], target: Label) {
    for value in values {
        asm.branch(Cond::Equal, reg, i32::from(*value), target);
    }
}

/// A big-endian value as a two-byte load returns it.
pub(crate) fn big_endian(value: u16) -> i32 {
    i32::from(value.to_be())
}

/// Offsets in `struct __sk_buff`.
pub(crate) mod context {
    /// Length of the frame in bytes, without an accelerated tag.
    pub(crate) const LEN: i16 = 0;
    /// Not zero if there is an accelerated tag.
    pub(crate) const VLAN_PRESENT: i16 = 20;
    /// Segment size of a train in bytes, zero if the frame is not a train (Linux 5.7).
    pub(crate) const GSO_SIZE: i16 = 176;
}

/// Number of tags whose types are within the first load of an Ethernet frame.
const TAGS_AT_ONCE: i16 = 6;
/// IPv4 without options.
pub(crate) const PLAIN_VERSION_IHL: i32 = 0x45;
const _: () = assert!(12 + 4 * TAGS_AT_ONCE <= 38, "the type behind the last tag is needed");
const _: () = assert!(slot::PLAIN_IP % 8 == 0 && slot::IP % 8 == 0 && slot::SCRATCH % 8 == 0);
const _: () = assert!(slot::IP + 44 <= slot::ETHERNET && slot::PORTS + 4 <= slot::IP);
const _: () = assert!(slot::ETHER_TYPE + 2 <= slot::PORTS && slot::SCRATCH + 8 <= slot::ETHER_TYPE);
