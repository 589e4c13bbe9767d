//! eBPF programs created at run time: assembled here, loaded with bpf(2), without a compiler.
//!
//! [`asm`] emits instructions, [`layers`] the part of a program that parses the headers of a frame;
//! [`Program`] and the maps are the loaded objects. The programs themselves are in
//! [`crate::steering`] and [`crate::filter`].
//!
//! **Requires** Linux 5.3 (a verifier that prunes irrelevant values; programs longer than 4096
//! instructions since 5.2) and `CAP_BPF` (before Linux 5.8 `CAP_SYS_ADMIN`), but no BTF, no libbpf
//! and no BPF file system. A tun device takes programs of type "socket filter", which may not
//! access a frame by pointers, so each access calls a helper that copies bytes to the stack.

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
