//! One blocking rtnetlink connection: a request, and the kernel's answers.
//!
//! Every request asks for an acknowledgement, and a dump ends with `NLMSG_DONE`; either ends the
//! exchange. A dump that the kernel marks as interrupted by a concurrent change (`NLM_F_DUMP_INTR`)
//! is repeated (netlink(7); Linux `Documentation/userspace-api/netlink/intro.rst`).

use std::io;
use std::num::NonZeroI32;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{
    DefaultNla, ErrorMessage, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_DUMP, NLM_F_DUMP_INTR,
    NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, Nla, NlasIterator, Parseable, parse_string,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::io::Errno;

use crate::error::Failure;

/// A connection to rtnetlink in the namespace of the thread that opened it.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    /// Sequence number of the last request.
    sequence: u32,
    /// Number of objects in the last answer that were skipped because they cannot be parsed.
    unread: usize,
}

impl Connection {
    pub(crate) fn open() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Error messages as text, without a copy of the request: Linux 4.12, optional.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self { socket, sequence: 0, unread: 0 })
    }

    /// Sends `message` and returns the messages of the answer, none for a plain acknowledgement.
    pub(crate) fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, Failure> {
        let mut packet = NetlinkMessage::from(message);
        packet.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        for _ in 0..DUMP_TRIES {
            self.sequence = self.sequence.wrapping_add(1);
            packet.header.sequence_number = self.sequence;
            self.send(&mut packet)?;
            if let Some(answer) = self.collect()? {
                return Ok(answer);
            }
        }
        Err(io::Error::from(Errno::AGAIN).into())
    }

    /// Requests all objects of the type of `message`.
    pub(crate) fn dump(
        &mut self,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, Failure> {
        self.ask(message, NLM_F_DUMP)
    }

    /// Number of objects in the last answer that could not be parsed.
    pub(crate) fn unread(&self) -> usize {
        self.unread
    }

    fn send(&self, packet: &mut NetlinkMessage<RouteNetlinkMessage>) -> io::Result<()> {
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    /// Reads up to the end of the answer; `None` if the dump was interrupted.
    fn collect(&mut self) -> Result<Option<Vec<RouteNetlinkMessage>>, Failure> {
        let mut answer = Vec::new();
        let mut torn = false;
        self.unread = 0;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for message in messages(&datagram) {
                let NetlinkMessage { header, payload, .. } = match message {
                    Ok(message) => message,
                    // One interface with an odd name must not hide all others.
                    Err(Unread { is_object: true, .. }) => {
                        self.unread += 1;
                        continue;
                    }
                    Err(Unread { cause, .. }) => return Err(cause.into()),
                };
                if header.sequence_number != self.sequence {
                    continue;
                }
                torn |= header.flags & NLM_F_DUMP_INTR != 0;
                match payload {
                    NetlinkPayload::InnerMessage(inner) => answer.push(inner),
                    NetlinkPayload::Error(error) => {
                        check(error.code, || explanation(header.flags, &error))?;
                        return Ok(Some(answer));
                    }
                    NetlinkPayload::Done(done) => {
                        check(NonZeroI32::new(done.code), || None)?;
                        return Ok((!torn).then_some(answer));
                    }
                    _ => {}
                }
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A message that cannot be parsed.
#[derive(Debug)]
pub(crate) struct Unread {
    /// It concerns an object, such as an interface, and is neither the end of an answer nor an
    /// error.
    is_object: bool,
    cause: io::Error,
}

/// The messages of one datagram. One that cannot be parsed becomes an error and parsing continues;
/// an invalid header ends the datagram with an error.
pub(crate) fn messages(
    datagram: &[u8],
) -> impl Iterator<Item = Result<NetlinkMessage<RouteNetlinkMessage>, Unread>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest);
        let header = header(rest);
        rest = header.and_then(|(len, _)| rest.get(aligned(len)..)).unwrap_or_default();
        Some(message.map_err(|cause| Unread {
            is_object: header.is_some_and(|(_, kind)| kind >= FIRST_OBJECT),
            cause: io::Error::new(io::ErrorKind::InvalidData, cause),
        }))
    })
}

/// Length and type of the message at the start of `bytes` (`struct nlmsghdr`), if there is one.
fn header(bytes: &[u8]) -> Option<(u32, u16)> {
    let len = u32::from_ne_bytes(*bytes.first_chunk()?);
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let is_whole = usize::try_from(len).is_ok_and(|len| HEADER_LEN <= len && len <= bytes.len());
    is_whole.then_some((len, kind))
}

/// Offset of the next message (`NLMSG_ALIGN`).
fn aligned(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX).saturating_add(3) & !3
}

/// The kernel's error number is negative; zero means success.
fn check(
    code: Option<NonZeroI32>,
    message: impl FnOnce() -> Option<String>,
) -> Result<(), Failure> {
    let Some(code) = code else { return Ok(()) };
    Err(Failure {
        source: io::Error::from_raw_os_error(code.get().saturating_abs()),
        message: message(),
    })
}

/// The kernel's error message (`NLMSGERR_ATTR_MSG`), after the header of the refused request.
fn explanation(flags: u16, error: &ErrorMessage) -> Option<String> {
    const NLMSGERR_ATTR_MSG: u16 = 1;
    const REQUEST_HEADER_LEN: usize = 16;
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    NlasIterator::new(error.header.get(REQUEST_HEADER_LEN..)?)
        .filter_map(|attribute| DefaultNla::parse(&attribute.ok()?).ok())
        .find(|attribute| attribute.kind() == NLMSGERR_ATTR_MSG)
        .and_then(|attribute| {
            let mut text = vec![0; attribute.value_len()];
            attribute.emit_value(&mut text);
            parse_string(&text).ok()
        })
}

/// Length of `struct nlmsghdr` in bytes.
const HEADER_LEN: usize = 16;
/// Lower types are netlink's own (`NLMSG_MIN_TYPE`), those from here on rtnetlink's.
const FIRST_OBJECT: u16 = 16;
/// Number of attempts for an interrupted dump. Interfaces that change faster than they can be
/// listed are an error worth reporting.
const DUMP_TRIES: usize = 16;

#[cfg(test)]
mod tests {
    use netlink_packet_route::link::{LinkAttribute, LinkMessage};

    use super::*;

    #[test]
    fn rubbish_ends_a_datagram_instead_of_looping() {
        let lengths = messages(&[0xff; 20]).count();
        assert_eq!(lengths, 1);
        assert!(messages(&[0; 64]).all(|message| message.is_err()));
        assert_eq!(messages(&[]).count(), 0);
    }

    #[test]
    fn a_message_that_cannot_be_parsed_hides_no_other() {
        let message = |name: &[u8; 4]| {
            let mut link = LinkMessage::default();
            link.attributes = vec![LinkAttribute::IfName("abc".to_owned())];
            let mut packet = NetlinkMessage::from(RouteNetlinkMessage::NewLink(link));
            packet.finalize();
            let mut bytes = vec![0; packet.buffer_len()];
            packet.serialize(&mut bytes);
            let at = bytes.len() - name.len();
            bytes[at..].copy_from_slice(name);
            bytes
        };
        let datagram = [message(b"t\xffp\0"), message(b"tap\0")].concat();
        let [odd, sound] = messages(&datagram).collect::<Vec<_>>().try_into().unwrap();
        assert!(odd.unwrap_err().is_object);
        assert!(sound.is_ok());
    }

    #[test]
    fn messages_start_at_multiples_of_four() {
        assert_eq!((aligned(16), aligned(17), aligned(20)), (16, 20, 20));
    }
}
