//! Boots another Linux kernel in QEMU and runs tests in it.
//!
//! Features of a Linux release can be tested on a machine that does not run it. Debian provides the
//! kernels, QEMU emulates the processor, so neither root nor `/dev/kvm` is needed; a boot takes
//! about five seconds. README.md beside this crate explains how to use it, and how to look inside
//! by hand.
//!
//! A test states what it needs as a [`Rig`], and is written as if it ran there already:
//!
//! ```no_run
//! use tapswitch_guest::{Rig, Series};
//!
//! const LINUX_7_3: Rig = Rig::new(Series::V7_3).modules(&["tun"]);
//!
//! #[test]
//! fn the_device_is_there() {
//!     LINUX_7_3.test(|| assert!(std::path::Path::new("/dev/net/tun").exists()));
//! }
//!
//! #[test]
//! fn all_tests_of_this_file_pass_on_linux_7_3() {
//!     LINUX_7_3.test_all();
//! }
//! # fn main() {}
//! ```
//!
//! At a lower level, [`Kernel`] obtains a kernel and [`Guest`] runs any program in it.
//!
//! **How it works.** A test binary copies itself into the guest with the libraries that it needs,
//! and runs there with an environment variable that says so ([`inside`]). One boot serves all tests
//! of a binary that share a rig. Results are reported over a serial port of their own, so no output
//! has to be parsed.
//!
//! **Not supported:** files or a network shared with the host; guests of other architectures.
//! Devices are added by [`Guest::qemu_args`].

#![forbid(unsafe_code)]

mod cpio;
mod error;
mod forks;
mod guest;
mod kernel;
mod packages;
mod rig;
mod root;
mod sources;

use std::io::{self, Write};

pub use error::{Error, Tail};
pub use forks::{NoForks, forking};
pub use guest::{Guest, Outcome, Running};
pub use kernel::{Kernel, Series, cache};
pub use rig::{Rig, inside};

/// Reports that a test is skipped: past the harness, which would capture `println!`, and as one
/// line in one piece.
pub fn skip(reason: impl std::fmt::Display) {
    let _ = io::stdout().write_all(format!("\nSKIP: {reason}\n").as_bytes());
}

/// A file in the guest. Lines that are written to it are in [`Outcome::told`].
pub const REPORT: &str = "/dev/ttyS2";
