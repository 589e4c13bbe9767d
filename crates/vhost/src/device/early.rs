//! Messages that are handled before the `vhost` crate's handler, which would end the session.
//!
//! - Enabling rings before features are set. QEMU enables the first pair of queues when it creates
//!   the device, long before a driver accepts features. That is valid, because protocol features
//!   are already negotiated ("Ring states" and `VHOST_USER_SET_VRING_ENABLE` of the vhost-user
//!   specification); but the handler requires that features were set.
//! - Announcements of a migrated guest that does not announce itself (`VHOST_USER_SEND_RARP`),
//!   which the handler does not implement.

use std::io;
use std::os::fd::AsFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::arrival::{HEADER_LEN, read_u32};

/// The request of such a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Enables or disables a ring.
    Enable { index: u32, on: bool },
    /// Announces the station with this address.
    Announce([u8; 6]),
}

/// A received message of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Early {
    pub(super) request: Request,
    number: u32,
    wants_reply: bool,
}

impl Early {
    /// Receives the next message, which has arrived, if it is of this kind: an announcement, or one
    /// that enables a ring while features are not set (`is_set`). Any other message, and the end of
    /// the connection, is left to the handler.
    ///
    /// # Errors
    /// If the connection cannot be read.
    pub(super) fn take(stream: impl AsFd, is_set: bool) -> io::Result<Option<Self>> {
        let mut bytes = [0; LEN];
        let header = &mut bytes[..HEADER_LEN];
        let (len, _) = recv(&stream, header, RecvFlags::PEEK)?;
        let is_one = match read_u32(&bytes, 0) {
            SET_VRING_ENABLE => !is_set,
            SEND_RARP => true,
            _ => false,
        };
        if len < HEADER_LEN || !is_one || read_u32(&bytes, 8) as usize != LEN - HEADER_LEN {
            return Ok(None);
        }
        let (len, _) = recv(&stream, &mut bytes, RecvFlags::WAITALL)?;
        Ok((len == LEN).then(|| Self::parse(&bytes)))
    }

    fn parse(bytes: &[u8; LEN]) -> Self {
        let [.., a, b, c, d, e, f, _, _] = *bytes;
        let number = read_u32(bytes, 0);
        let request = match number {
            SEND_RARP => Request::Announce([a, b, c, d, e, f]),
            _ => Request::Enable { index: read_u32(bytes, 12), on: read_u32(bytes, 16) != 0 },
        };
        Self { request, number, wants_reply: read_u32(bytes, 4) & NEED_REPLY != 0 }
    }

    /// Sends the result, if a reply was requested.
    ///
    /// # Errors
    /// If the connection cannot be written.
    pub(super) fn answer(self, stream: impl AsFd, is_done: bool) -> io::Result<()> {
        if self.wants_reply {
            let words = [self.number, VERSION | REPLY, 8, u32::from(!is_done), 0];
            let bytes = words.map(u32::to_ne_bytes).concat();
            send(stream, &bytes, SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }
}

/// A header, followed by the ring's index and state, or by an address and two bytes.
const LEN: usize = HEADER_LEN + 8;
const SET_VRING_ENABLE: u32 = 18;
const SEND_RARP: u32 = 19;
/// Flags in a header.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn message(request: u32, flags: u32, body: &[u32]) -> Vec<u8> {
        let len = u32::try_from(4 * body.len()).unwrap();
        let words = [&[request, flags, len], body].concat();
        words.into_iter().flat_map(u32::to_ne_bytes).collect()
    }

    #[test]
    fn only_this_message_is_taken() {
        let (mut monitor, ours) = UnixStream::pair().unwrap();
        monitor.write_all(&message(18, VERSION, &[3, 1])).unwrap();
        let other = message(2, VERSION, &[0, 0]);
        monitor.write_all(&other).unwrap();
        let request = Request::Enable { index: 3, on: true };
        let enable = Early { request, number: 18, wants_reply: false };
        assert_eq!(Early::take(&ours, false).unwrap(), Some(enable));
        assert_eq!(Early::take(&ours, false).unwrap(), None);
        let mut left = vec![0; other.len()];
        (&ours).read_exact(&mut left).unwrap();
        assert_eq!(left, other);
    }

    /// Once features are set, the handler enables rings; it never handles announcements.
    #[test]
    fn announcements_are_taken_at_any_time() {
        let (mut monitor, ours) = UnixStream::pair().unwrap();
        let (first, last) = (u32::from_ne_bytes([2, 0, 0, 0]), u32::from_ne_bytes([0, 9, 0, 0]));
        for is_set in [false, true] {
            monitor.write_all(&message(19, VERSION, &[first, last])).unwrap();
            let taken = Early::take(&ours, is_set).unwrap().unwrap();
            assert_eq!(taken.request, Request::Announce([2, 0, 0, 0, 0, 9]));
        }
        monitor.write_all(&message(18, VERSION, &[3, 1])).unwrap();
        assert_eq!(Early::take(&ours, true).unwrap(), None);
    }

    #[test]
    fn odd_lengths_and_ends_are_left_to_the_handler() {
        let (mut monitor, ours) = UnixStream::pair().unwrap();
        monitor.write_all(&message(18, VERSION, &[3])).unwrap();
        drop(monitor);
        assert_eq!(Early::take(&ours, false).unwrap(), None);
        let mut left = Vec::new();
        (&ours).read_to_end(&mut left).unwrap();
        assert_eq!(left.len(), 16);
        assert_eq!(Early::take(&ours, false).unwrap(), None, "the connection has ended");
    }

    #[test]
    fn who_wants_an_answer_gets_one() {
        let (mut monitor, ours) = UnixStream::pair().unwrap();
        for (number, is_done, code) in [(18, true, 0), (18, false, 1), (19, true, 0)] {
            monitor.write_all(&message(number, VERSION | NEED_REPLY, &[0, 0])).unwrap();
            let early = Early::take(&ours, false).unwrap().unwrap();
            early.answer(&ours, is_done).unwrap();
            let mut answer = [0; 20];
            monitor.read_exact(&mut answer).unwrap();
            assert_eq!(answer.to_vec(), message(number, VERSION | REPLY, &[code, 0]));
        }
    }
}
