//! One blocking rtnetlink connection: a request out, the kernel's answers in.
//!
//! Every request asks for an acknowledgement, a dump ends with `NLMSG_DONE`; either ends the
//! exchange. A dump that the kernel marks as torn by a concurrent change (`NLM_F_DUMP_INTR`) is
//! asked again (netlink(7); Linux `Documentation/userspace-api/netlink/intro.rst`).

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
    /// Number of the latest request.
    sequence: u32,
}

impl Connection {
    pub(crate) fn open() -> io::Result<Self> {
        let socket = Socket::new(NETLINK_ROUTE)?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Explanations in words, without the request repeated: Linux 4.12, only for messages.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self { socket, sequence: 0 })
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

    /// Asks for every object of the kind of `message`.
    pub(crate) fn dump(
        &mut self,
        message: RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, Failure> {
        self.ask(message, NLM_F_DUMP)
    }

    fn send(&self, packet: &mut NetlinkMessage<RouteNetlinkMessage>) -> io::Result<()> {
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    /// Reads up to the end of the answer; `None` when it was torn.
    fn collect(&self) -> Result<Option<Vec<RouteNetlinkMessage>>, Failure> {
        let mut answer = Vec::new();
        let mut torn = false;
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            for message in messages(&datagram) {
                let NetlinkMessage { header, payload, .. } = message?;
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

/// The messages of one datagram. What cannot be parsed ends it with an error.
pub(crate) fn messages(
    datagram: &[u8],
) -> impl Iterator<Item = io::Result<NetlinkMessage<RouteNetlinkMessage>>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest);
        let len = message.as_ref().map_or(rest.len(), |message| aligned(message.header.length));
        rest = rest.get(len..).unwrap_or_default();
        Some(message.map_err(|cause| io::Error::new(io::ErrorKind::InvalidData, cause)))
    })
}

/// Where the next message starts (`NLMSG_ALIGN`).
fn aligned(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX).saturating_add(3) & !3
}

/// The kernel's number is negative; zero means success.
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

/// The kernel's own words (`NLMSGERR_ATTR_MSG`), behind the header of the refused request.
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

/// How often a torn dump is asked again. Interfaces that change faster than they can be listed
/// are a fault worth reporting.
const DUMP_TRIES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rubbish_ends_a_datagram_instead_of_looping() {
        let lengths = messages(&[0xff; 20]).count();
        assert_eq!(lengths, 1);
        assert!(messages(&[0; 64]).all(|message| message.is_err()));
        assert_eq!(messages(&[]).count(), 0);
    }

    #[test]
    fn messages_start_at_multiples_of_four() {
        assert_eq!((aligned(16), aligned(17), aligned(20)), (16, 20, 20));
    }
}
