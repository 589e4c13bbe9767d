//! Frames of a guest to a file descriptor, such as a tap device's, straight from its memory.

use std::cell::RefCell;
use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd};

use libc::iovec;
use rustix::io::Errno;

use crate::net::Part;

/// Writes `parts` by one writev(2), and returns how many bytes were taken. The last ones of many
/// ([`MAX_PIECES`]) are copied together first.
///
/// # Errors
/// What the kernel said; `EFAULT` when the VMM has taken the memory away.
#[inline]
pub fn write_parts<'p>(
    fd: impl AsFd,
    mut parts: impl Iterator<Item = Part<'p>>,
) -> Result<usize, Errno> {
    let mut pieces = [EMPTY; MAX_PIECES];
    let mut count = 0;
    for (piece, part) in pieces[..MAX_PIECES - 1].iter_mut().zip(parts.by_ref()) {
        *piece = piece_of(part);
        count += 1;
    }
    // The zip above has asked for places first: no part is lost where those end.
    match parts.next() {
        None => write(fd, &pieces[..count]),
        Some(next) => write_many(fd, &mut pieces, std::iter::once(next).chain(parts)),
    }
}

/// Writes the first pieces, but the last place, and behind them the `rest` in one piece.
#[cold]
#[inline(never)]
fn write_many<'p>(
    fd: impl AsFd,
    pieces: &mut [iovec; MAX_PIECES],
    rest: impl Iterator<Item = Part<'p>>,
) -> Result<usize, Errno> {
    let write_with = |room: &RefCell<Vec<u8>>| {
        let mut room = room.borrow_mut();
        room.clear();
        rest.for_each(|part| part.append_to(&mut room));
        pieces[MAX_PIECES - 1] = piece_of(Part::Ours(&room));
        write(fd, pieces)
    };
    // A thread that ends writes no more.
    ROOM.try_with(write_with).unwrap_or(Err(Errno::TOOBIG))
}

#[inline]
fn piece_of(part: Part<'_>) -> iovec {
    let (start, len) = match part {
        Part::Ours(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
        Part::Guest(bytes) => (bytes.as_ptr().as_ptr(), bytes.len()),
    };
    iovec { iov_base: start.cast::<c_void>(), iov_len: len }
}

#[inline]
fn write(fd: impl AsFd, pieces: &[iovec]) -> Result<usize, Errno> {
    let count = i32::try_from(pieces.len()).map_err(|_| Errno::TOOBIG)?;
    // SAFETY: the pieces are set by the callers above, who hold the parts that they were made of:
    // their bytes are mapped. The kernel only reads them; a guest that writes meanwhile garbles its
    // own frame.
    let written = unsafe { libc::writev(fd.as_fd().as_raw_fd(), pieces.as_ptr(), count) };
    usize::try_from(written)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

thread_local! {
    /// Where the last ones of many parts lie together: used again and again, as long as a frame.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

const EMPTY: iovec = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
/// Most pieces that are written together.
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
    fn any_number_of_parts_arrives_in_order() {
        let bytes: Vec<u8> = (0..=255).collect();
        for count in [MAX_PIECES - 1, MAX_PIECES, MAX_PIECES + 1, 256] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let parts = bytes.chunks(1).take(count).map(Part::Ours);
            assert_eq!(write_parts(&ours, parts), Ok(count));
            drop(ours);
            let mut arrived = Vec::new();
            theirs.read_to_end(&mut arrived).unwrap();
            assert_eq!(arrived, bytes[..count]);
        }
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(write_parts(&ours, [Part::Ours(b"x")].into_iter()), Err(Errno::PIPE));
    }
}
