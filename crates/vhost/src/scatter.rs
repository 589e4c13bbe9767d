//! Frames of a guest to a file descriptor, such as a tap device's, straight from its memory.

use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use crate::net::Part;

/// Writes `parts` by one writev(2), and returns how many bytes were taken.
///
/// # Errors
/// What the kernel said; [`Errno::TOOBIG`] for more than [`MAX_PIECES`] parts. `EFAULT` when the
/// VMM has taken the memory away.
#[inline]
pub fn write_parts<'p>(
    fd: impl AsFd,
    parts: impl Iterator<Item = Part<'p>>,
) -> Result<usize, Errno> {
    let mut pieces =
        [const { libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 } }; MAX_PIECES];
    let mut count = 0;
    for part in parts {
        let (start, len) = match part {
            Part::Ours(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
            Part::Guest(bytes) => (bytes.as_ptr().as_ptr(), bytes.len()),
        };
        let piece = pieces.get_mut(count).ok_or(Errno::TOOBIG)?;
        *piece = libc::iovec { iov_base: start.cast::<c_void>(), iov_len: len };
        count += 1;
    }
    let count = i32::try_from(count).map_err(|_| Errno::TOOBIG)?;
    // SAFETY: the first `count` pieces are set, and their bytes are mapped as long as the parts are
    // borrowed. The kernel only reads them; a guest that writes meanwhile garbles its own frame.
    let written = unsafe { libc::writev(fd.as_fd().as_raw_fd(), pieces.as_ptr(), count) };
    usize::try_from(written)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

/// Most parts that are written together.
pub const MAX_PIECES: usize = 128;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn parts_arrive_in_order() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let parts = [&b"of "[..], b"", b"a guest"].map(Part::Ours);
        assert_eq!(write_parts(&ours, parts.into_iter()), Ok(10));
        drop(ours);
        let mut text = String::new();
        theirs.read_to_string(&mut text).unwrap();
        assert_eq!(text, "of a guest");
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let many = std::iter::repeat_n(Part::Ours(b"x"), MAX_PIECES + 1);
        assert_eq!(write_parts(&ours, many), Err(Errno::TOOBIG));
        drop(theirs);
        assert_eq!(write_parts(&ours, [Part::Ours(b"x")].into_iter()), Err(Errno::PIPE));
    }
}
