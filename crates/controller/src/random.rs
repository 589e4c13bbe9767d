//! Random bytes for keys and tokens, from the kernel.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills the buffer with random bytes (getrandom(2)).
///
/// # Errors
/// The kernel has no such system call.
pub(crate) fn fill(buf: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = buf.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match getrandom(rest, GetRandomFlags::empty()) {
            Ok(len) => filled += len,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
