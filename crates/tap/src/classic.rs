//! Classic socket filters.

/// One instruction of a classic BPF program (`struct sock_filter`, `include/uapi/linux/filter.h`;
/// bpf(4) of BSD, "FILTER MACHINE").
///
/// The program sees each frame that the kernel transmits to the device, from the Ethernet header
/// on, and returns the number of bytes to keep; zero drops the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ClassicInstruction {
    /// Opcode.
    pub code: u16,
    /// Number of instructions to skip if a comparison is true.
    pub jump_true: u8,
    /// Number of instructions to skip if it is false.
    pub jump_false: u8,
    /// Operand.
    pub operand: u32,
}

impl ClassicInstruction {
    /// Ends the program and keeps `bytes` bytes of the frame (`BPF_RET | BPF_K`).
    #[must_use]
    pub const fn keep(bytes: u32) -> Self {
        Self { code: 0x06, jump_true: 0, jump_false: 0, operand: bytes }
    }

    /// Loads 16 bits of the frame at `offset` (in bytes) (`BPF_LD | BPF_H | BPF_ABS`).
    #[must_use]
    pub const fn load_u16(offset: u32) -> Self {
        Self { code: 0x28, jump_true: 0, jump_false: 0, operand: offset }
    }

    /// Skips instructions depending on whether the loaded value equals `value`
    /// (`BPF_JMP | BPF_JEQ | BPF_K`).
    #[must_use]
    pub const fn if_equal(value: u32, jump_true: u8, jump_false: u8) -> Self {
        Self { code: 0x15, jump_true, jump_false, operand: value }
    }
}
