//! The steering program.
//!
//! Its three paths, the most common first:
//! 1. TCP, UDP or SCTP over IPv4 without tags, options or fragmentation: one copy of the headers.
//! 2. Everything else, layer by layer (`bpf/layers.rs`): two copies with up to six tags or IPv6,
//!    and one more for each rare element.
//! 3. VXLAN: one copy for its header, and the same again for the inner frame.
//!
//! All end with r8 = the sum over both ends, which is mixed, reduced to a bucket, looked up and
//! counted.

use std::num::NonZeroU16;
use std::os::fd::BorrowedFd;

use crate::bpf::asm::{Alu, AssembleError, Assembler, Cond, Instruction, Label, Reg, Size};
use crate::bpf::headers::{self, Link};
use crate::bpf::layers::{
    self, Amount, IpExits, IpVersion, LinkExits, big_endian, load_bytes, slot,
};
use crate::steering::FlowHash;
use crate::steering::hash::{MAX_TUNNELS, MIX, SPREAD, UDP_LEN, VXLAN_LEN, VXLAN_VALID};
use crate::steering::table::BUCKET_BITS;

/// The program for `flow_hash`, with its maps.
pub(super) fn assemble(
    flow_hash: FlowHash,
    table: BorrowedFd<'_>,
    counters: BorrowedFd<'_>,
) -> Result<Vec<Instruction>, AssembleError> {
    let mut asm = Assembler::default();
    let (outer, sum) = (asm.label(), asm.label());
    let mut program = Program { asm, vxlan_port: flow_hash.vxlan_port, outer, sum };
    program.frames(flow_hash.link);
    let mut asm = program.asm;
    asm.bind(outer);
    asm.load(Size::Double, Reg::R8, Reg::R10, OUTER_SUM);
    asm.bind(sum);
    pick_queue(&mut asm, table);
    count(&mut asm, counters);
    asm.finish()
}

/// The parser of the program.
struct Program {
    asm: Assembler,
    vxlan_port: Option<NonZeroU16>,
    /// Target when only the outer headers are used.
    outer: Label,
    /// Target with the sum in r8.
    sum: Label,
}

/// Targets at the end of parsing one frame.
#[derive(Clone, Copy)]
struct Ends {
    /// The IPv4 header and the ports are in their slots.
    v4: Label,
    /// As `v4`, but addresses and ports are in r2 to r5.
    v4_known: Label,
    /// The IPv6 header and the ports are in their slots.
    v6: Label,
    /// Not IP.
    no_ip: Label,
}

impl Program {
    /// The frame and its inner frames. Each has its own instructions: a loop would need a counter
    /// across calls, which verifiers before Linux 6.3 cannot track.
    fn frames(&mut self, link: Link) {
        self.asm.mov(Reg::R6, Reg::R1);
        self.asm.mov(Reg::R7, 0);
        let tunnels = if self.vxlan_port.is_some() { MAX_TUNNELS } else { 0 };
        for tunnels_left in (0..=tunnels).rev() {
            let is_outermost = tunnels_left == tunnels;
            let link = if is_outermost { link } else { Link::Ethernet };
            let ends = Ends {
                v4: self.asm.label(),
                v4_known: self.asm.label(),
                v6: self.asm.label(),
                no_ip: self.asm.label(),
            };
            if is_outermost {
                self.asm.store(Size::Double, Reg::R10, OUTER_SUM, 0);
            }
            self.layers(link, is_outermost, tunnels_left > 0, ends);
            self.sums(link, tunnels_left > 0, ends);
        }
    }

    /// With `may_hold`, r9 is 1 at the ends if r7 is the start of a UDP header with the VXLAN port,
    /// else 0.
    fn layers(&mut self, link: Link, is_outermost: bool, may_hold: bool, ends: Ends) {
        let [ipv4, ipv6, plain] = [self.asm.label(), self.asm.label(), self.asm.label()];
        let exits = LinkExits {
            truncated: self.outer,
            other: ends.no_ip,
            ipv4,
            ipv6,
            plain_ipv4: Some(plain),
        };
        match link {
            Link::Ethernet => layers::ethernet(&mut self.asm, is_outermost, exits),
            Link::Ip => layers::packet(&mut self.asm, exits),
        }
        self.asm.bind(plain);
        self.plain_ipv4(link, may_hold, ipv4, ends);
        let versions = [(ipv4, IpVersion::V4, ends.v4), (ipv6, IpVersion::V6, ends.v6)];
        for (start, version, end) in versions {
            let [ported, portless] = [self.asm.label(), self.asm.label()];
            self.asm.bind(start);
            let exits = IpExits { broken: ends.no_ip, portless, ported };
            layers::ip(&mut self.asm, version, exits);
            self.asm.bind(ported);
            layers::forget(&mut self.asm, &[Reg::R9]);
            self.find_vxlan(may_hold, portless, end);
            self.asm.bind(portless);
            self.asm.mov(Reg::R9, 0);
            self.asm.jump(end);
        }
    }

    /// The fast path for headers at their usual offsets. Continues at `general` for all others.
    fn plain_ipv4(&mut self, link: Link, may_hold: bool, general: Label, ends: Ends) {
        let asm = &mut self.asm;
        let [not_plain, ported, plain_ports] = [asm.label(), asm.label(), asm.label()];
        let link_len = if link == Link::Ethernet { 14 } else { 0 };
        asm.load(Size::Byte, Reg::R1, Reg::R10, slot::PLAIN_IP);
        asm.branch(Cond::NotEqual, Reg::R1, layers::PLAIN_VERSION_IHL, not_plain);
        asm.load(Size::Half, Reg::R1, Reg::R10, slot::PLAIN_IP + 6);
        asm.branch(Cond::AnyBit, Reg::R1, big_endian(headers::IPV4_FRAGMENT), not_plain);
        asm.load(Size::Byte, Reg::R9, Reg::R10, slot::PLAIN_IP + 9);
        asm.load(Size::Word, Reg::R2, Reg::R10, slot::PLAIN_IP + 12);
        asm.load(Size::Word, Reg::R3, Reg::R10, slot::PLAIN_IP + 16);
        asm.load(Size::Half, Reg::R4, Reg::R10, slot::PLAIN_IP + 20);
        asm.load(Size::Half, Reg::R5, Reg::R10, slot::PLAIN_IP + 22);
        for protocol in headers::PORTED.into_iter().filter(|protocol| *protocol != headers::UDP) {
            asm.branch(Cond::Equal, Reg::R9, i32::from(protocol), plain_ports);
        }
        asm.branch(Cond::Equal, Reg::R9, i32::from(headers::UDP), ported);
        asm.bind(not_plain);
        asm.alu(Alu::Add, Reg::R7, link_len);
        asm.jump(general);

        asm.bind(ported);
        if let Some(port) = self.vxlan_port.filter(|_| may_hold) {
            asm.branch(Cond::NotEqual, Reg::R5, big_endian(port.get()), plain_ports);
            asm.mov(Reg::R9, 1);
            asm.alu(Alu::Add, Reg::R7, link_len + 20);
            asm.jump(ends.v4_known);
        }
        asm.bind(plain_ports);
        asm.mov(Reg::R9, 0);
        asm.jump(ends.v4_known);
    }

    /// Continues at `end` for the VXLAN port, else falls through or continues at `plain`, which
    /// must follow.
    fn find_vxlan(&mut self, may_hold: bool, plain: Label, end: Label) {
        if let Some(port) = self.vxlan_port.filter(|_| may_hold) {
            self.asm.branch(Cond::NotEqual, Reg::R9, i32::from(headers::UDP), plain);
            self.asm.load(Size::Half, Reg::R1, Reg::R10, slot::PORTS + 2);
            self.asm.branch(Cond::NotEqual, Reg::R1, big_endian(port.get()), plain);
            self.asm.mov(Reg::R9, 1);
            self.asm.jump(end);
        }
    }

    /// Computes the sum for each end of parsing. With `may_hold`, falls through with r7 at the
    /// inner frame.
    fn sums(&mut self, link: Link, may_hold: bool, ends: Ends) {
        self.asm.bind(ends.no_ip);
        match link {
            Link::Ethernet => sum_ethernet(&mut self.asm),
            Link::Ip => self.asm.mov(Reg::R8, 0),
        }
        self.asm.jump(self.sum);

        let vxlan = self.asm.label();
        self.asm.bind(ends.v6);
        layers::forget(&mut self.asm, &[Reg::R7, Reg::R9]);
        sum_v6(&mut self.asm);
        if may_hold {
            self.asm.branch(Cond::NotEqual, Reg::R9, 0, vxlan);
        }
        self.asm.jump(self.sum);

        self.asm.bind(ends.v4);
        layers::forget(&mut self.asm, &[Reg::R7, Reg::R9]);
        load_v4(&mut self.asm);
        self.asm.bind(ends.v4_known);
        sum_v4(&mut self.asm);
        if may_hold {
            self.asm.branch(Cond::Equal, Reg::R9, 0, self.sum);
            self.asm.bind(vxlan);
            self.enter_tunnel();
        } else {
            self.asm.jump(self.sum);
        }
    }

    /// With a valid VXLAN header, moves r7 from the UDP header to the inner frame and stores the
    /// sum of the outer headers.
    fn enter_tunnel(&mut self) {
        let asm = &mut self.asm;
        let inside = asm.label();
        load_bytes(asm, UDP_LEN.into(), slot::SCRATCH, 1, Some(self.sum));
        asm.load(Size::Byte, Reg::R1, Reg::R10, slot::SCRATCH);
        asm.branch(Cond::AnyBit, Reg::R1, i32::from(VXLAN_VALID), inside);
        asm.jump(self.sum);
        asm.bind(inside);
        asm.store(Size::Double, Reg::R10, OUTER_SUM, Reg::R8);
        asm.alu(Alu::Add, Reg::R7, i32::from(UDP_LEN + VXLAN_LEN));
    }
}

/// r2 to r5 = addresses and ports from their slots.
fn load_v4(asm: &mut Assembler) {
    asm.load(Size::Word, Reg::R2, Reg::R10, slot::IP + 12);
    asm.load(Size::Word, Reg::R3, Reg::R10, slot::IP + 16);
    asm.load(Size::Half, Reg::R4, Reg::R10, slot::PORTS);
    asm.load(Size::Half, Reg::R5, Reg::R10, slot::PORTS + 2);
}

/// r8 = the sum over addresses r2, r3 with ports r4, r5.
fn sum_v4(asm: &mut Assembler) {
    asm.mov_u64(Reg::R0, MIX);
    for (address, port) in [(Reg::R2, Reg::R4), (Reg::R3, Reg::R5)] {
        asm.alu(Alu::ShiftLeft, address, 16);
        asm.alu(Alu::Or, address, port);
        mix(asm, address);
    }
    asm.mov(Reg::R8, Reg::R2);
    asm.alu(Alu::Add, Reg::R8, Reg::R3);
}

/// r8 = the sum over the IPv6 header and the ports in their slots.
fn sum_v6(asm: &mut Assembler) {
    asm.mov_u64(Reg::R0, MIX);
    asm.mov(Reg::R8, 0);
    for (address, port) in [(slot::IP + 8, slot::PORTS), (slot::IP + 24, slot::PORTS + 2)] {
        asm.load(Size::Double, Reg::R2, Reg::R10, address);
        mix(asm, Reg::R2);
        for (size, at) in [(Size::Double, address + 8), (Size::Half, port)] {
            asm.load(size, Reg::R3, Reg::R10, at);
            asm.alu(Alu::Add, Reg::R2, Reg::R3);
            mix(asm, Reg::R2);
        }
        asm.alu(Alu::Add, Reg::R8, Reg::R2);
    }
}

/// r8 = the sum over the MAC addresses in their slot.
fn sum_ethernet(asm: &mut Assembler) {
    asm.mov_u64(Reg::R0, MIX);
    asm.mov(Reg::R8, 0);
    for address in [slot::ETHERNET, slot::ETHERNET + 6] {
        asm.load(Size::Half, Reg::R2, Reg::R10, address);
        for at in [address + 2, address + 4] {
            asm.alu(Alu::ShiftLeft, Reg::R2, 16);
            asm.load(Size::Half, Reg::R3, Reg::R10, at);
            asm.alu(Alu::Or, Reg::R2, Reg::R3);
        }
        mix(asm, Reg::R2);
        asm.alu(Alu::Add, Reg::R8, Reg::R2);
    }
}

/// Mixes `reg`; r0 is the multiplier, r1 is clobbered.
fn mix(asm: &mut Assembler, reg: Reg) {
    asm.alu(Alu::Mul, reg, Reg::R0);
    asm.mov(Reg::R1, reg);
    asm.alu(Alu::ShiftRight, Reg::R1, 32);
    asm.alu(Alu::Xor, reg, Reg::R1);
}

/// r7 = the table's entry for the sum r8.
fn pick_queue(asm: &mut Assembler, table: BorrowedFd<'_>) {
    let unused = i32::try_from(u64::BITS - BUCKET_BITS).unwrap_or_default();
    let no_entry = asm.label();
    asm.mov(Reg::R7, 0);
    asm.mov_u64(Reg::R1, SPREAD);
    asm.alu(Alu::Mul, Reg::R8, Reg::R1);
    asm.alu(Alu::ShiftRight, Reg::R8, unused);
    asm.store(Size::Word, Reg::R10, slot::SCRATCH, Reg::R8);
    layers::find_element(asm, table);
    // Every bucket has one, but the verifier requires the check.
    asm.branch(Cond::Equal, Reg::R0, 0, no_entry);
    asm.load(Size::Word, Reg::R7, Reg::R0, 0);
    asm.bind(no_entry);
}

/// Counts the frame for queue r7 and returns it.
fn count(asm: &mut Assembler, counters: BorrowedFd<'_>) {
    let uncounted = asm.label();
    asm.store(Size::Word, Reg::R10, slot::SCRATCH, Reg::R7);
    layers::find_element(asm, counters);
    asm.branch(Cond::Equal, Reg::R0, 0, uncounted);
    layers::load_frame_len(asm, Reg::R2, Reg::R1);
    layers::add_to_counter(asm, Reg::R0, 0, Amount::One);
    layers::add_to_counter(asm, Reg::R0, 1, Amount::Of(Reg::R2));
    asm.bind(uncounted);
    asm.mov(Reg::R0, Reg::R7);
    asm.exit();
}

/// The sum of the outer headers.
const OUTER_SUM: i16 = slot::END - 8;
