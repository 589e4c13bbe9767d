//! Waiting for the whole of a message.
//!
//! A stream has no boundaries, so a message may arrive in pieces: its header, its payload, or parts
//! of them. The `vhost` crate's handler expects each payload in one piece and refuses the message
//! otherwise, and a short header cannot be told from another message. So nothing is read before all
//! of the message has arrived, which takes one look if it was sent at once, as it usually is.
//!
//! A VMM may wait between two messages for as long as it likes, but not within one: [`PATIENCE`].
//!
//! Limits: the pieces wait in the socket, so the sender's buffer bounds their number: 278 of a byte
//! by default (Linux 6.18). Descriptors belong to a header's first piece: if that is shorter than
//! the header, the rest is not waited for, as it cannot be examined without taking the descriptors.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};
use rustix::io::{Errno, ioctl_fionread, retry_on_intr};
use rustix::net::{RecvFlags, recv};

/// Waits until a message has arrived as a whole, or until the connection ends. A message that is
/// longer than any valid one is left to the reader, which refuses it by its header.
///
/// # Errors
/// [`ArrivalError`].
pub(super) fn whole_message(stream: impl AsFd) -> Result<(), ArrivalError> {
    // Blocks until there is anything.
    match missing(&stream)? {
        None => Ok(()),
        Some(_) => rest(stream, PATIENCE),
    }
}

/// Waits for the rest of a message.
#[cold]
fn rest(stream: impl AsFd, patience: Duration) -> Result<(), ArrivalError> {
    // Reports each arrival, although what arrived before has not been read.
    let edges = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poll, &stream, epoll::EventData::new_u64(0), edges)?;
    let deadline = Instant::now() + patience;
    while let Some(missing) = missing(&stream)? {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(missing.into());
        }
        let mut events = [epoll::Event { flags: edges, data: epoll::EventData::new_u64(0) }];
        let left = Timespec::try_from(left).ok();
        let count = match epoll::wait(&poll, &mut events, left.as_ref()) {
            Err(Errno::INTR) => 0,
            outcome => outcome?,
        };
        let flags = events.iter().take(count).map(|event| event.flags);
        if flags.fold(epoll::EventFlags::empty(), |all, one| all | one).intersects(ENDED) {
            return Ok(());
        }
    }
    Ok(())
}

/// What has not arrived of the next message, if anything: nothing if the connection has ended, or
/// if the length is invalid. Blocks until there is a first byte.
fn missing(stream: impl AsFd) -> io::Result<Option<Missing>> {
    let mut header = [0; HEADER_LEN];
    let look = || recv(&stream, &mut header, RecvFlags::PEEK).map(|(len, _)| len);
    let len = retry_on_intr(look)?;
    if len == 0 {
        return Ok(None);
    }
    let here = usize::try_from(ioctl_fionread(&stream)?).unwrap_or(usize::MAX);
    let is_header = len == HEADER_LEN;
    let payload_len = if is_header { read_u32(&header, 8) as usize } else { 0 };
    let expected = HEADER_LEN + payload_len;
    let is_missing = here < expected && payload_len <= PAYLOAD_LEN_MAX;
    Ok(is_missing.then_some(Missing { here, expected, request: read_u32(&header, 0), is_header }))
}

/// A message of which only a part is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Missing {
    /// Bytes that have arrived.
    here: usize,
    /// Bytes of the message, or of its header until that is here.
    expected: usize,
    request: u32,
    is_header: bool,
}

/// Why there is no whole message.
#[derive(Debug, thiserror::Error)]
pub(super) enum ArrivalError {
    /// The rest of a message does not arrive.
    #[error(
        "{what}: {here} of {expected} bytes arrived, and no more for {} s; the VMM must send \
         the rest of a message that it has begun",
        PATIENCE.as_secs()
    )]
    Late {
        /// The message.
        what: String,
        /// Bytes that have arrived.
        here: usize,
        /// Bytes of the message, or of its header.
        expected: usize,
    },
    /// The connection cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<Errno> for ArrivalError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl From<Missing> for ArrivalError {
    fn from(Missing { here, expected, request, is_header }: Missing) -> Self {
        let what = match is_header {
            true => format!("request {request}"),
            false => "the header of a request".to_owned(),
        };
        Self::Late { what, here, expected }
    }
}

/// The word at offset `at` of a message, in native byte order ("Message Specification").
pub(super) fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    u32::from_ne_bytes(word.copied().unwrap_or_default())
}

/// Request, flags and payload length ("Message Specification").
pub(super) const HEADER_LEN: usize = 12;
/// The longest payload that the handler accepts.
const PAYLOAD_LEN_MAX: usize = 4096;
/// Time within which the rest of a message must arrive. A VMM sends it at once, unless its host is
/// overloaded.
const PATIENCE: Duration = Duration::from_secs(10);
const ENDED: epoll::EventFlags =
    epoll::EventFlags::HUP.union(epoll::EventFlags::RDHUP).union(epoll::EventFlags::ERR);

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A message with this many bytes of payload.
    fn message(len: usize) -> Vec<u8> {
        let header = [19, 1, u32::try_from(len).unwrap()].map(u32::to_ne_bytes).concat();
        [header, vec![7; len]].concat()
    }

    fn sent(bytes: &[u8]) -> (UnixStream, UnixStream) {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        theirs.write_all(bytes).unwrap();
        (theirs, ours)
    }

    #[test]
    fn what_is_missing_is_known_from_the_header() {
        let whole = message(8);
        for here in 1..whole.len() {
            let (_theirs, ours) = sent(&whole[..here]);
            let expected = if here < HEADER_LEN { HEADER_LEN } else { whole.len() };
            let missing = missing(&ours).unwrap().unwrap();
            assert_eq!((missing.here, missing.expected), (here, expected));
            assert_eq!(missing.is_header, here >= HEADER_LEN);
        }
        for more in [&[][..], &[1], &whole] {
            let (_theirs, ours) = sent(&[&whole, more].concat());
            assert_eq!(missing(&ours).unwrap(), None);
        }
    }

    #[test]
    fn an_end_and_an_invalid_length_are_left_to_the_reader() {
        let whole = message(8);
        let (theirs, ours) = sent(&[]);
        drop(theirs);
        whole_message(&ours).unwrap();
        for here in 1..whole.len() {
            let (theirs, ours) = sent(&whole[..here]);
            drop(theirs);
            whole_message(&ours).unwrap();
        }
        let (_theirs, ours) = sent(&message(PAYLOAD_LEN_MAX + 1)[..HEADER_LEN]);
        whole_message(&ours).unwrap();
    }

    /// As many pieces as bytes, each of which arrives while the rest is waited for.
    #[test]
    fn a_message_is_whole_after_its_last_piece() {
        let whole = message(100);
        let (mut theirs, ours) = sent(&whole[..1]);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| whole_message(&ours));
            for byte in &whole[1..] {
                assert!(!waiting.is_finished());
                theirs.write_all(&[*byte]).unwrap();
                std::thread::yield_now();
            }
            waiting.join().unwrap().unwrap();
        });
        assert_eq!(ioctl_fionread(&ours).unwrap(), whole.len() as u64);
    }

    #[test]
    fn a_rest_that_does_not_come_is_not_waited_for_without_limit() {
        let late = |len| {
            let (_theirs, ours) = sent(&message(8)[..len]);
            rest(&ours, Duration::from_millis(1)).unwrap_err().to_string()
        };
        assert!(late(15).starts_with("request 19: 15 of 20 bytes arrived, and no more"));
        assert!(late(5).starts_with("the header of a request: 5 of 12 bytes arrived"));
    }
}
