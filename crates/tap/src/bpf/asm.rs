//! A small eBPF assembler: instructions, labels, and jumps resolved at the end.
//!
//! It supports only what the programs of this crate need. [`Assembler::finish`] reports mistakes
//! that only show at the end (an unbound label, a jump that is too far), so that no wrong program
//! reaches the kernel.
//!
//! **References:** Linux `Documentation/bpf/standardization/instruction-set.rst` (RFC 9669).

use std::os::fd::{AsRawFd, BorrowedFd};

use thiserror::Error;

/// The instructions so far, and the positions of the labels.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<Instruction>,
    /// Position of each label's instruction, once bound.
    labels: Vec<Option<usize>>,
    /// Jumps: position and target.
    jumps: Vec<(usize, Label)>,
    /// The first label that was bound twice.
    bound_twice: Option<Label>,
}

impl Assembler {
    /// Creates a jump target, to be bound later.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds `label` to the next instruction.
    pub(crate) fn bind(&mut self, label: Label) {
        if self.labels[label.0].replace(self.code.len()).is_some() {
            self.bound_twice.get_or_insert(label);
        }
    }

    /// `dst = dst op src` in 64 bits. An immediate is sign-extended.
    pub(crate) fn alu(&mut self, op: Alu, dst: Reg, src: impl Into<Operand>) {
        self.operate(CLASS_ALU64 | op as u8, dst, 0, src.into());
    }

    /// `dst = dst op src` in 32 bits; the upper half of `dst` becomes zero.
    pub(crate) fn alu32(&mut self, op: Alu, dst: Reg, src: impl Into<Operand>) {
        self.operate(CLASS_ALU | op as u8, dst, 0, src.into());
    }

    /// `dst = src`.
    pub(crate) fn mov(&mut self, dst: Reg, src: impl Into<Operand>) {
        self.alu(Alu::Mov, dst, src);
    }

    /// `dst = value`: two instructions long.
    pub(crate) fn mov_u64(&mut self, dst: Reg, value: u64) {
        let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
        self.wide(
            dst,
            PSEUDO_NONE,
            i32::from_le_bytes([a, b, c, d]),
            i32::from_le_bytes([e, f, g, h]),
        );
    }

    /// `dst =` the map, as helpers expect it.
    pub(crate) fn mov_map(&mut self, dst: Reg, map: BorrowedFd<'_>) {
        self.wide(dst, PSEUDO_MAP_FD, map.as_raw_fd(), 0);
    }

    /// `dst = *(size *)(base + offset)`, zero-extended.
    pub(crate) fn load(&mut self, size: Size, dst: Reg, base: Reg, offset: i16) {
        self.push(CLASS_LDX | MODE_MEM | size as u8, dst, base, offset, 0);
    }

    /// `*(size *)(base + offset) = src`.
    pub(crate) fn store(&mut self, size: Size, base: Reg, offset: i16, src: impl Into<Operand>) {
        match src.into() {
            Operand::Reg(src) => {
                self.push(CLASS_STX | MODE_MEM | size as u8, base, src, offset, 0);
            }
            Operand::Imm(imm) => {
                self.push(CLASS_ST | MODE_MEM | size as u8, base, Reg::R0, offset, imm);
            }
        }
    }

    /// Converts the lower two bytes of `reg` from network to native byte order; the rest is zero.
    pub(crate) fn swap_big_endian(&mut self, reg: Reg) {
        self.push(CLASS_ALU | OP_END | SOURCE_REG, reg, Reg::R0, 0, 16);
    }

    /// Calls a kernel helper: arguments in r1 to r5, which it clobbers, result in r0.
    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(CLASS_JMP | OP_CALL, Reg::R0, Reg::R0, 0, helper as i32);
    }

    /// Continues at `target`.
    pub(crate) fn jump(&mut self, target: Label) {
        self.jumps.push((self.code.len(), target));
        self.push(CLASS_JMP | OP_JA, Reg::R0, Reg::R0, 0, 0);
    }

    /// Continues at `target` if `left cond right`, in 64 bits unsigned. An immediate is
    /// sign-extended.
    pub(crate) fn branch(
        &mut self,
        cond: Cond,
        left: Reg,
        right: impl Into<Operand>,
        target: Label,
    ) {
        self.jumps.push((self.code.len(), target));
        self.operate(CLASS_JMP | cond as u8, left, 0, right.into());
    }

    /// Ends the program; r0 is its result.
    pub(crate) fn exit(&mut self) {
        self.push(CLASS_JMP | OP_EXIT, Reg::R0, Reg::R0, 0, 0);
    }

    /// Returns the program with all jumps resolved, without unreachable instructions, which the
    /// kernel refuses.
    pub(crate) fn finish(self) -> Result<Vec<Instruction>, AssembleError> {
        if let Some(label) = self.bound_twice {
            return Err(AssembleError::BoundTwice { label: label.0 });
        }
        let targets = self.targets()?;
        let is_live = live(&self.code, &targets);
        // The new position of each instruction.
        let places = is_live
            .iter()
            .scan(0, |count, live| {
                let place = *count;
                *count += usize::from(*live);
                Some(place)
            })
            .collect::<Vec<_>>();
        let mut code = Vec::new();
        for at in (0..self.code.len()).filter(|at| is_live[*at]) {
            let offset = match targets[at] {
                Some(target) => jump_offset(places[at], places[target])?,
                None => self.code[at].offset,
            };
            code.push(Instruction { offset, ..self.code[at] });
        }
        if code.len() > MAX_INSTRUCTIONS {
            return Err(AssembleError::TooLong { count: code.len() });
        }
        Ok(code)
    }

    /// The jump target of each instruction.
    fn targets(&self) -> Result<Vec<Option<usize>>, AssembleError> {
        let mut targets = vec![None; self.code.len()];
        for (at, label) in &self.jumps {
            let is_there = |target: &usize| *target < self.code.len();
            let target = self.labels[label.0].filter(is_there);
            let unbound = AssembleError::Unbound { label: label.0, at: *at };
            targets[*at] = Some(target.ok_or(unbound)?);
        }
        Ok(targets)
    }

    fn operate(&mut self, code: u8, dst: Reg, offset: i16, src: Operand) {
        match src {
            Operand::Reg(src) => self.push(code | SOURCE_REG, dst, src, offset, 0),
            Operand::Imm(imm) => self.push(code, dst, Reg::R0, offset, imm),
        }
    }

    fn wide(&mut self, dst: Reg, pseudo: Reg, low: i32, high: i32) {
        self.push(CLASS_LD | MODE_IMM | Size::Double as u8, dst, pseudo, 0, low);
        self.push(0, Reg::R0, Reg::R0, 0, high);
    }

    fn push(&mut self, code: u8, dst: Reg, src: Reg, offset: i16, imm: i32) {
        self.code.push(Instruction { code, registers: registers(dst, src), offset, imm });
    }
}

/// For each instruction, whether it is reachable from the first.
fn live(code: &[Instruction], targets: &[Option<usize>]) -> Vec<bool> {
    let mut is_live = vec![false; code.len()];
    let mut next = vec![0];
    while let Some(at) = next.pop() {
        if is_live.get(at).is_none_or(|live| *live) {
            continue;
        }
        is_live[at] = true;
        next.extend(targets[at]);
        if !code[at].ends_a_path() {
            next.push(at + 1);
        }
    }
    is_live
}

/// A jump offset is relative to the next instruction.
fn jump_offset(at: usize, target: usize) -> Result<i16, AssembleError> {
    let distance = target.cast_signed() - at.cast_signed() - 1;
    i16::try_from(distance).map_err(|_| AssembleError::TooFar { at, target })
}

/// `struct bpf_insn` of `include/uapi/linux/bpf.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    /// Two bit fields of four bits.
    registers: u8,
    offset: i16,
    imm: i32,
}

impl Instruction {
    /// True if execution never continues with the next instruction.
    const fn ends_a_path(self) -> bool {
        self.code == CLASS_JMP | OP_JA || self.code == CLASS_JMP | OP_EXIT
    }
}

/// The kernel declares `dst:4, src:4`; compilers allocate bit fields from the low end on
/// little-endian machines, from the high end on others.
const fn registers(dst: Reg, src: Reg) -> u8 {
    let (dst, src) = (dst as u8, src as u8);
    if cfg!(target_endian = "little") { dst | src << 4 } else { dst << 4 | src }
}

/// A position in a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(usize);

/// A register. r0 is the result, r1 to r5 are arguments and clobbered by a call, r6 to r9 are
/// preserved, r10 is the end of the 512-byte stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Reg {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    R10,
}

/// The right operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand {
    Reg(Reg),
    Imm(i32),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i32> for Operand {
    fn from(imm: i32) -> Self {
        Self::Imm(imm)
    }
}

/// Arithmetic operation.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Alu {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xa0,
    Mov = 0xb0,
}

/// Jump condition.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Cond {
    Equal = 0x10,
    Greater = 0x20,
    /// `left & right != 0`.
    AnyBit = 0x40,
    NotEqual = 0x50,
    Less = 0xa0,
    LessOrEqual = 0xb0,
}

/// Size of a load or store.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Size {
    Word = 0x00,
    Half = 0x08,
    Byte = 0x10,
    Double = 0x18,
}

/// Helpers by their numbers in `include/uapi/linux/bpf.h`.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(crate) enum Helper {
    /// `void *bpf_map_lookup_elem(map, const void *key)`, null if there is no such element.
    MapLookup = 1,
    /// `int bpf_skb_load_bytes(skb, u32 offset, void *to, u32 len)`; if the frame is shorter, the
    /// result is not zero and `to` is filled with zeros.
    SkbLoadBytes = 26,
}

/// Why a program could not be assembled: a bug in its source, or too many instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum AssembleError {
    #[error("instruction {at} jumps to label {label}, which is not defined")]
    Unbound { label: usize, at: usize },
    #[error("label {label} is defined twice")]
    BoundTwice { label: usize },
    #[error("the jump from instruction {at} to {target} exceeds 32767 instructions")]
    TooFar { at: usize, target: usize },
    #[error("{count} instructions exceed Linux's limit of {MAX_INSTRUCTIONS}")]
    TooLong { count: usize },
}

/// `BPF_COMPLEXITY_LIMIT_INSNS` (Linux 5.2).
const MAX_INSTRUCTIONS: usize = 1_000_000;

const CLASS_LD: u8 = 0x00;
const CLASS_LDX: u8 = 0x01;
const CLASS_ST: u8 = 0x02;
const CLASS_STX: u8 = 0x03;
const CLASS_ALU: u8 = 0x04;
const CLASS_JMP: u8 = 0x05;
const CLASS_ALU64: u8 = 0x07;
const MODE_IMM: u8 = 0x00;
const MODE_MEM: u8 = 0x60;
const OP_JA: u8 = 0x00;
const OP_CALL: u8 = 0x80;
const OP_END: u8 = 0xd0;
const OP_EXIT: u8 = 0x90;
/// The right operand is a register, not the immediate.
const SOURCE_REG: u8 = 0x08;
/// In place of a source register: the meaning of the 64-bit value.
const PSEUDO_NONE: Reg = Reg::R0;
const PSEUDO_MAP_FD: Reg = Reg::R1;

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(instruction: Instruction) -> [u8; 8] {
        let [o0, o1] = instruction.offset.to_le_bytes();
        let [i0, i1, i2, i3] = instruction.imm.to_le_bytes();
        [instruction.code, instruction.registers, o0, o1, i0, i1, i2, i3]
    }

    #[test]
    fn instructions_are_those_of_the_specification() {
        let mut asm = Assembler::default();
        asm.mov(Reg::R6, Reg::R1);
        asm.alu(Alu::Add, Reg::R7, -4);
        asm.alu32(Alu::And, Reg::R3, 0xff);
        asm.load(Size::Half, Reg::R2, Reg::R10, -4);
        asm.store(Size::Word, Reg::R10, -8, Reg::R9);
        asm.store(Size::Double, Reg::R10, -16, 0);
        asm.swap_big_endian(Reg::R4);
        asm.mov_u64(Reg::R1, 0x1122_3344_5566_7788);
        asm.call(Helper::SkbLoadBytes);
        asm.exit();
        if cfg!(target_endian = "big") {
            return;
        }
        let expected: [[u8; 8]; 11] = [
            [0xbf, 0x16, 0, 0, 0, 0, 0, 0],
            [0x07, 0x07, 0, 0, 0xfc, 0xff, 0xff, 0xff],
            [0x54, 0x03, 0, 0, 0xff, 0, 0, 0],
            [0x69, 0xa2, 0xfc, 0xff, 0, 0, 0, 0],
            [0x63, 0x9a, 0xf8, 0xff, 0, 0, 0, 0],
            [0x7a, 0x0a, 0xf0, 0xff, 0, 0, 0, 0],
            [0xdc, 0x04, 0, 0, 16, 0, 0, 0],
            [0x18, 0x01, 0, 0, 0x88, 0x77, 0x66, 0x55],
            [0x00, 0x00, 0, 0, 0x44, 0x33, 0x22, 0x11],
            [0x85, 0x00, 0, 0, 26, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ];
        let code = asm.finish().unwrap();
        assert_eq!(code.into_iter().map(bytes).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn jumps_go_forward_and_backward() {
        let mut asm = Assembler::default();
        let end = asm.label();
        let start = asm.label();
        asm.bind(start);
        asm.branch(Cond::Equal, Reg::R0, 0, end);
        asm.jump(start);
        asm.bind(end);
        asm.exit();
        let code = asm.finish().unwrap();
        assert_eq!((code[0].offset, code[1].offset), (1, -2));
    }

    #[test]
    fn what_nothing_leads_to_is_left_out() {
        let mut asm = Assembler::default();
        let [end, nobody] = [asm.label(), asm.label()];
        asm.branch(Cond::Equal, Reg::R1, 0, end);
        asm.mov_u64(Reg::R0, 1 << 40);
        asm.jump(end);
        asm.bind(nobody);
        asm.mov(Reg::R0, 7);
        asm.jump(nobody);
        asm.bind(end);
        asm.exit();
        let code = asm.finish().unwrap();
        assert_eq!(code.len(), 5);
        assert_eq!((code[0].offset, code[3].offset), (3, 0));
    }

    #[test]
    fn a_jump_that_is_too_far_is_refused_not_wrapped() {
        for (between, fits) in [(32_767, true), (32_768, false)] {
            let mut asm = Assembler::default();
            let end = asm.label();
            asm.branch(Cond::Equal, Reg::R1, 0, end);
            (0..between).for_each(|_| asm.mov(Reg::R0, 0));
            asm.bind(end);
            asm.exit();
            let expected = AssembleError::TooFar { at: 0, target: between + 1 };
            assert_eq!(asm.finish().err(), (!fits).then_some(expected));
        }
        let mut asm = Assembler::default();
        let start = asm.label();
        asm.bind(start);
        (0..32_768).for_each(|_| asm.mov(Reg::R0, 0));
        asm.jump(start);
        assert_eq!(asm.finish().err(), Some(AssembleError::TooFar { at: 32_768, target: 0 }));
    }

    #[test]
    fn labels_are_in_one_place() {
        let mut asm = Assembler::default();
        let nowhere = asm.label();
        asm.jump(nowhere);
        asm.exit();
        assert_eq!(asm.finish().err(), Some(AssembleError::Unbound { label: 0, at: 0 }));

        let mut asm = Assembler::default();
        let behind_all = asm.label();
        asm.jump(behind_all);
        asm.bind(behind_all);
        assert_eq!(asm.finish().err(), Some(AssembleError::Unbound { label: 0, at: 0 }));

        let mut asm = Assembler::default();
        let label = asm.label();
        asm.bind(label);
        asm.bind(label);
        asm.exit();
        assert_eq!(asm.finish().err(), Some(AssembleError::BoundTwice { label: 0 }));
    }

    #[test]
    fn a_program_that_is_too_long_is_refused() {
        let mut asm = Assembler::default();
        (0..MAX_INSTRUCTIONS).for_each(|_| asm.mov(Reg::R0, 0));
        asm.exit();
        let expected = AssembleError::TooLong { count: MAX_INSTRUCTIONS + 1 };
        assert_eq!(asm.finish().err(), Some(expected));
    }
}
