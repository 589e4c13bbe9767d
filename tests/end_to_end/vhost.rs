//! Virtual machines behind `vhost:` ports: Linux 6.1 and 7.3 in QEMU, with frames in the guests'
//! memory.
//!
//! Each file boots a few machines and tests many things on them, because a boot takes seconds.

mod errors;
mod iperf;
mod lab;
mod life;
mod machine;
mod moved;
mod restart;
mod rings;
mod successor;
mod talk;
