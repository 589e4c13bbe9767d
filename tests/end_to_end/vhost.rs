//! Virtual machines behind `vhost:` ports: Linux 6.1 and 7.3 in QEMU, whose frames the switch takes
//! from their memory and puts there.
//!
//! Each file boots a few machines and asks them many things, as a boot takes seconds.

mod lab;
mod machine;
mod rings;
mod talk;
