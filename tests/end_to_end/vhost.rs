//! Virtual machines behind `vhost:` ports: Linux 6.1 and 7.3 in QEMU, whose frames the switch takes
//! from their memory and puts there.
//!
//! Each file boots a few machines and asks them many things, as a boot takes seconds.

mod errors;
mod iperf;
mod lab;
mod life;
mod machine;
mod moved;
mod restart;
mod rings;
mod talk;
