//! Writing a guest's frames directly from its memory to a file descriptor, such as a tap device's
//! or a tunnel's.

use std::cell::RefCell;
use std::ffi::c_void;
use std::os::fd::{AsFd, AsRawFd};

use libc::iovec;
use rustix::io::Errno;

use crate::net::Part;

/// Writes `parts` by one writev(2), and returns how many bytes were taken. If there are more than
/// [`MAX_PIECES`], the last ones are first copied into one.
///
/// # Errors
/// The kernel's error; `EFAULT` if the VMM has truncated the memory.
#[inline]
pub fn write_parts<'p>(
    fd: impl AsFd,
    parts: impl Iterator<Item = Part<'p>>,
) -> Result<usize, Errno> {
    with_pieces(parts, |pieces| write(&fd, pieces))
}

/// Sends `parts` to a socket by one sendmsg(2), with `control` messages (cmsg(3)), if any.
///
/// # Errors
/// As [`write_parts`].
#[inline]
pub fn send_parts<'p>(
    fd: impl AsFd,
    parts: impl Iterator<Item = Part<'p>>,
    control: &[u8],
) -> Result<usize, Errno> {
    with_pieces(parts, |pieces| match control {
        [] => write(&fd, pieces),
        _ => send(&fd, pieces, control),
    })
}

/// Calls `send` with the pieces of `parts`, the last ones of many copied together.
#[inline]
fn with_pieces<'p>(
    mut parts: impl Iterator<Item = Part<'p>>,
    send: impl FnOnce(&[iovec]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut pieces = [EMPTY; MAX_PIECES];
    let mut count = 0;
    for (piece, part) in pieces[..MAX_PIECES - 1].iter_mut().zip(parts.by_ref()) {
        *piece = piece_of(part);
        count += 1;
    }
    // The zip above takes a place first: no part is lost when the places are used up.
    match parts.next() {
        None => send(&pieces[..count]),
        Some(next) => with_many(&mut pieces, std::iter::once(next).chain(parts), send),
    }
}

/// Calls `send` with all but the last place filled, and the `rest` copied into that.
#[cold]
#[inline(never)]
fn with_many<'p>(
    pieces: &mut [iovec; MAX_PIECES],
    rest: impl Iterator<Item = Part<'p>>,
    send: impl FnOnce(&[iovec]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let send_with = |room: &RefCell<Vec<u8>>| {
        let mut room = room.borrow_mut();
        room.clear();
        rest.for_each(|part| part.append_to(&mut room));
        pieces[MAX_PIECES - 1] = piece_of(Part::Ours(&room));
        send(pieces)
    };
    // A thread that ends sends no more.
    ROOM.try_with(send_with).unwrap_or(Err(Errno::TOOBIG))
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
    // SAFETY: the pieces are set by the callers above, who hold the parts that they were made of,
    // so their bytes are mapped. The kernel only reads them; a guest that writes meanwhile garbles
    // its own frame.
    let written = unsafe { libc::writev(fd.as_fd().as_raw_fd(), pieces.as_ptr(), count) };
    taken(written)
}

#[inline]
fn send(fd: impl AsFd, pieces: &[iovec], control: &[u8]) -> Result<usize, Errno> {
    // SAFETY: (some C libraries pad the struct with private fields, so it cannot be written out.)
    // It consists of integers and pointers, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut();
    message.msg_iovlen = pieces.len() as _;
    message.msg_control = control.as_ptr().cast_mut().cast::<c_void>();
    message.msg_controllen = control.len() as _;
    // SAFETY: as in `write`; the control messages are passed with their length, and outlive the
    // call.
    let sent = unsafe { libc::sendmsg(fd.as_fd().as_raw_fd(), &raw const message, 0) };
    taken(sent)
}

/// The result of a system call.
#[inline]
fn taken(outcome: isize) -> Result<usize, Errno> {
    usize::try_from(outcome)
        .map_err(|_| Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO))
}

thread_local! {
    /// A reusable buffer for the last ones of many parts.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

const EMPTY: iovec = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
/// Maximum number of pieces in one call.
pub const MAX_PIECES: usize = 128;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::UdpSocket;
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

    /// `UDP_SEGMENT` (udp(7)): ten bytes for each datagram.
    #[test]
    fn control_messages_go_along() {
        let sockets = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let [ours, theirs] = &sockets;
        ours.connect(theirs.local_addr().unwrap()).unwrap();
        let len = size_of::<libc::cmsghdr>() + 2;
        let kind = [libc::SOL_UDP, 103].map(libc::c_int::to_ne_bytes).concat();
        let control = [&len.to_ne_bytes()[..], &kind, &10u16.to_ne_bytes(), &[0; 6]].concat();
        let parts = || [&[1; 8][..], &[2; 12]].map(Part::Ours).into_iter();
        assert_eq!(send_parts(ours, parts(), &control), Ok(20));
        assert_eq!(send_parts(ours, parts(), &[]), Ok(20));
        let lens = [0; 3].map(|_| theirs.recv(&mut [0; 100]).unwrap());
        assert_eq!(lens, [10, 10, 20]);
    }

    #[test]
    fn what_cannot_be_written_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(write_parts(&ours, [Part::Ours(b"x")].into_iter()), Err(Errno::PIPE));
    }
}
