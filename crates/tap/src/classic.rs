//! Classic socket filters.

/// One instruction of a classic BPF program (`struct sock_filter`, `include/uapi/linux/filter.h`;
/// bpf(4) of BSD, "FILTER MACHINE").
///
/// The program sees what the kernel sends to the device, from the Ethernet header on, and answers
/// how many bytes of it to keep: zero drops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ClassicInstruction {
    /// What to do.
    pub code: u16,
    /// Instructions to skip when a comparison holds.
    pub jump_true: u8,
    /// Instructions to skip when it does not.
    pub jump_false: u8,
    /// The operand.
    pub operand: u32,
}

impl ClassicInstruction {
    /// Ends the program: keep so many bytes of the frame (`BPF_RET | BPF_K`).
    #[must_use]
    pub const fn keep(bytes: u32) -> Self {
        Self { code: 0x06, jump_true: 0, jump_false: 0, operand: bytes }
    }

    /// Reads 16 bits of the frame at `offset` bytes (`BPF_LD | BPF_H | BPF_ABS`).
    #[must_use]
    pub const fn load_u16(offset: u32) -> Self {
        Self { code: 0x28, jump_true: 0, jump_false: 0, operand: offset }
    }

    /// Skips so many instructions depending on whether what was read is `value`
    /// (`BPF_JMP | BPF_JEQ | BPF_K`).
    #[must_use]
    pub const fn if_equal(value: u32, jump_true: u8, jump_false: u8) -> Self {
        Self { code: 0x15, jump_true, jump_false, operand: value }
    }
}
