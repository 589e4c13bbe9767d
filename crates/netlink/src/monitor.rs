//! Reports when interfaces of a namespace appear, disappear or change.
//!
//! The kernel multicasts each change to the group `RTNLGRP_LINK` (rtnetlink(7)). A subscriber that
//! does not read in time loses messages and gets `ENOBUFS`, once. The messages still queued then
//! are older than the lost ones, so they are discarded and the caller is told to list the links
//! again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_packet_core::NetlinkPayload;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rustix::io::Errno;

use crate::request::messages;
use crate::{Link, LinkError, Namespace};

/// A change of the interfaces of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "events are few and soon gone, most are this one")]
pub enum LinkEvent {
    /// The interface is new or has changed; this is its current state. May be repeated.
    Changed(Link),
    /// The interface was deleted, or moved to another namespace.
    Deleted {
        /// Its former index.
        index: u32,
        /// Its former name.
        name: String,
        /// Its new location, if it was moved to another namespace.
        moved: Option<Moved>,
    },
    /// Anything may have changed: list the links again ([`crate::Netlink::links`]). Always the
    /// first event of a monitor, and sent after lost messages.
    Resync,
}

/// Destination of a moved interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// ID of the new namespace, as seen from the old one: see [`crate::Netlink::find_namespace`].
    pub namespace_id: i32,
    /// Its index there.
    pub index: u32,
}

impl Moved {
    /// Extracts it from the message about a removed link.
    fn in_message(link: &LinkMessage) -> Option<Self> {
        let mut namespace_id = None;
        let mut index = link.header.index;
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::NewNetnsId(id) => namespace_id = Some(*id),
                LinkAttribute::NewIfIndex(other) => index = u32::try_from(*other).unwrap_or(index),
                _ => {}
            }
        }
        Some(Self { namespace_id: namespace_id?, index })
    }
}

/// A non-blocking subscription to the link changes of one namespace. Wait until it is readable,
/// then call [`Self::poll_event`] until it returns `None`.
#[derive(Debug)]
pub struct LinkMonitor {
    socket: Socket,
    /// Events read from the socket and not yet returned.
    pending: VecDeque<LinkEvent>,
}

impl LinkMonitor {
    /// Subscribes to the changes in `namespace`. Needs no privilege beyond entering it.
    ///
    /// # Errors
    /// If the namespace cannot be entered or no socket can be opened.
    pub fn open(namespace: &Namespace) -> Result<Self, LinkError> {
        let socket = namespace.enter(subscribe)?.map_err(|cause| {
            LinkError::new("watch interfaces", "", namespace.label(), cause.into())
        })?;
        Ok(Self { socket, pending: VecDeque::from([LinkEvent::Resync]) })
    }

    /// Returns the next event, or `None` if there is none. Never blocks.
    ///
    /// # Errors
    /// If the socket fails, which on Linux only happens without memory.
    pub fn poll_event(&mut self) -> io::Result<Option<LinkEvent>> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Ok(Some(event));
            }
            match self.socket.recv_from_full() {
                Ok((datagram, _)) => self.pending.extend(events(&datagram)),
                Err(cause) => match Errno::from_io_error(&cause) {
                    Some(Errno::AGAIN) => return Ok(None),
                    Some(Errno::NOBUFS) => {
                        self.discard_queued()?;
                        return Ok(Some(LinkEvent::Resync));
                    }
                    _ => return Err(cause),
                },
            }
        }
    }

    /// Discards the kernel's queued messages.
    #[cold]
    fn discard_queued(&self) -> io::Result<()> {
        loop {
            match self.socket.recv_from_full() {
                Ok(_) => {}
                Err(cause) => match Errno::from_io_error(&cause) {
                    Some(Errno::AGAIN) => return Ok(()),
                    Some(Errno::NOBUFS) => {}
                    _ => return Err(cause),
                },
            }
        }
    }
}

impl AsFd for LinkMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for LinkMonitor {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn subscribe() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.set_non_blocking(true)?;
    socket.set_rx_buf_sz(RECEIVE_BUFFER_LEN)?;
    socket.bind_auto()?;
    socket.add_membership(RTNLGRP_LINK)?;
    Ok(socket)
}

/// The events of one datagram. A message that cannot be parsed may be any change.
fn events(datagram: &[u8]) -> impl Iterator<Item = LinkEvent> {
    messages(datagram).filter_map(|message| match message {
        Ok(message) => event(message.payload),
        Err(_) => Some(LinkEvent::Resync),
    })
}

/// The group also carries changes of bridge ports, in the same format but with the family
/// `AF_BRIDGE`: there "deleted" means that the port left the bridge.
fn event(payload: NetlinkPayload<RouteNetlinkMessage>) -> Option<LinkEvent> {
    let about_link = |link: &LinkMessage| link.header.interface_family == AddressFamily::Unspec;
    match payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) if about_link(&link) => {
            Some(LinkEvent::Changed(Link::from_message(link)))
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) if about_link(&link) => {
            let moved = Moved::in_message(&link);
            let Link { index, name, .. } = Link::from_message(link);
            Some(LinkEvent::Deleted { index, name, moved })
        }
        _ => None,
    }
}

/// Link changes (`include/uapi/linux/rtnetlink.h`).
const RTNLGRP_LINK: u32 = 1;
/// Requested receive buffer in bytes: some 400 changes of about 2.5 KiB each, as the kernel doubles
/// the number. Linux limits it to `net.core.rmem_max`; overruns are handled.
const RECEIVE_BUFFER_LEN: usize = 512 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::NetlinkMessage;

    fn datagram(message: RouteNetlinkMessage) -> Vec<u8> {
        let mut packet = NetlinkMessage::from(message);
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        bytes
    }

    fn link(index: u32, family: AddressFamily) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.header.interface_family = family;
        message
    }

    #[test]
    fn several_messages_of_one_datagram_are_all_told() {
        let mut bytes = datagram(RouteNetlinkMessage::NewLink(link(3, AddressFamily::Unspec)));
        bytes.extend(datagram(RouteNetlinkMessage::DelLink(link(3, AddressFamily::Unspec))));
        let told = events(&bytes).collect::<Vec<_>>();
        assert!(matches!(&told[0], LinkEvent::Changed(link) if link.index == 3));
        assert!(matches!(told[1], LinkEvent::Deleted { index: 3, .. }));
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn leaving_a_bridge_is_not_being_deleted() {
        let bytes = datagram(RouteNetlinkMessage::DelLink(link(3, AddressFamily::Bridge)));
        assert_eq!(events(&bytes).count(), 0);
    }

    #[test]
    fn what_cannot_be_read_asks_for_a_fresh_look() {
        assert_eq!(events(&[0xff; 32]).collect::<Vec<_>>(), [LinkEvent::Resync]);
    }
}
