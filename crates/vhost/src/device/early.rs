//! Enabling rings before features are set.
//!
//! QEMU enables the first queue pair when it creates the device, long before a driver accepts
//! features; this is permitted once protocol features have been negotiated ("Ring states" and
//! `VHOST_USER_SET_VRING_ENABLE` in the vhost-user specification). The `vhost` crate's handler
//! requires the features and would end the session. So while no features are set, this message is
//! handled here.

use std::io;
use std::os::fd::AsFd;

use rustix::net::{RecvFlags, SendFlags, recv, send};

/// A message that enables or disables a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Enable {
    pub(super) index: u32,
    pub(super) on: bool,
    wants_reply: bool,
}

impl Enable {
    /// Waits for the next message and takes it if it is of this kind. Any other message, and the
    /// end of the connection, are left for the handler.
    ///
    /// # Errors
    /// If the connection cannot be read.
    pub(super) fn take(stream: impl AsFd) -> io::Result<Option<Self>> {
        let mut bytes = [0; LEN];
        let header = &mut bytes[..HEADER_LEN];
        let (len, _) = recv(&stream, header, RecvFlags::PEEK | RecvFlags::WAITALL)?;
        if len < HEADER_LEN || read_u32(&bytes, 0) != SET_VRING_ENABLE {
            return Ok(None);
        }
        if read_u32(&bytes, 8) as usize != LEN - HEADER_LEN {
            return Ok(None);
        }
        let (len, _) = recv(&stream, &mut bytes, RecvFlags::WAITALL)?;
        Ok((len == LEN).then(|| Self::parse(&bytes)))
    }

    fn parse(bytes: &[u8; LEN]) -> Self {
        let wants_reply = read_u32(bytes, 4) & NEED_REPLY != 0;
        Self { index: read_u32(bytes, 12), on: read_u32(bytes, 16) != 0, wants_reply }
    }

    /// Sends the result, if a reply was requested.
    ///
    /// # Errors
    /// If the connection cannot be written.
    pub(super) fn answer(self, stream: impl AsFd, is_done: bool) -> io::Result<()> {
        if self.wants_reply {
            let words = [SET_VRING_ENABLE, VERSION | REPLY, 8, u32::from(!is_done), 0];
            let bytes = words.map(u32::to_ne_bytes).concat();
            send(stream, &bytes, SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }
}

fn read_u32(bytes: &[u8; LEN], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Request, flags and payload length ("Message Specification"), in native byte order.
const HEADER_LEN: usize = 12;
/// A header, the ring's index, and whether to enable it.
const LEN: usize = HEADER_LEN + 8;
const SET_VRING_ENABLE: u32 = 18;
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
        let enable = Enable { index: 3, on: true, wants_reply: false };
        assert_eq!(Enable::take(&ours).unwrap(), Some(enable));
        assert_eq!(Enable::take(&ours).unwrap(), None);
        let mut left = vec![0; other.len()];
        (&ours).read_exact(&mut left).unwrap();
        assert_eq!(left, other);
    }

    #[test]
    fn odd_lengths_and_ends_are_left_to_the_handler() {
        let (mut monitor, ours) = UnixStream::pair().unwrap();
        monitor.write_all(&message(18, VERSION, &[3])).unwrap();
        drop(monitor);
        assert_eq!(Enable::take(&ours).unwrap(), None);
        let mut left = Vec::new();
        (&ours).read_to_end(&mut left).unwrap();
        assert_eq!(left.len(), 16);
        assert_eq!(Enable::take(&ours).unwrap(), None, "the connection has ended");
    }

    #[test]
    fn who_wants_an_answer_gets_one() {
        let (mut monitor, ours) = UnixStream::pair().unwrap();
        for (is_done, code) in [(true, 0), (false, 1)] {
            monitor.write_all(&message(18, VERSION | NEED_REPLY, &[0, 0])).unwrap();
            let enable = Enable::take(&ours).unwrap().unwrap();
            enable.answer(&ours, is_done).unwrap();
            let mut answer = [0; 20];
            monitor.read_exact(&mut answer).unwrap();
            assert_eq!(answer.to_vec(), message(18, VERSION | REPLY, &[code, 0]));
        }
    }
}
