//! eBPF programs made at run time: assembled here, loaded with bpf(2), no compiler in sight.
//!
//! [`asm`] makes instructions, [`layers`] the part of a program that walks the headers of a frame,
//! [`Program`] and the maps are what the kernel made of them. What the programs do is written in
//! [`crate::steering`] and [`crate::filter`].
//!
//! **Needs** Linux 5.3 (a verifier that follows which values matter, so that it need not explore
//! all others; programs longer than 4096 instructions came with 5.2), the privilege `CAP_BPF`
//! (before Linux 5.8 `CAP_SYS_ADMIN`), and no BTF, no libbpf, no file system. Programs of type
//! "socket filter" are what a tun device takes; they may not touch a frame by pointers, so each
//! access is a call of a helper that copies bytes to the stack.

pub(crate) mod asm;
mod attach;
mod error;
pub(crate) mod headers;
pub(crate) mod layers;
mod map;
mod program;
mod sys;

pub use attach::AttachError;
pub use error::BpfError;

pub(crate) use attach::Setter;
pub(crate) use map::{CounterMap, TableMap};
pub(crate) use program::Program;
