//! Tells when interfaces of a namespace come, go or change.
//!
//! The kernel multicasts each change to the group `RTNLGRP_LINK` (rtnetlink(7)). A subscriber that
//! does not read in time loses messages and learns so by `ENOBUFS`, once. What is still queued
//! then is older than what was lost, so it is thrown away and the caller told to look afresh.

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

/// What happened to the interfaces of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "events are few and soon gone, most are this one")]
pub enum LinkEvent {
    /// The interface is new or something about it changed; this is how it is now. Repeats happen.
    Changed(Link),
    /// The interface is gone: deleted, or moved to another namespace.
    Deleted {
        /// Its index while it was here.
        index: u32,
        /// Its name while it was here.
        name: String,
        /// Where it is now, with all that it is, if it was moved to another namespace.
        moved: Option<Moved>,
    },
    /// Anything may have happened: list the links afresh ([`crate::Netlink::links`]). Always the
    /// first event of a monitor, and the answer to messages lost.
    Resync,
}

/// Where an interface was moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// What the namespace that it left knows the other one by: see
    /// [`crate::Netlink::find_namespace`].
    pub namespace_id: i32,
    /// Its index there.
    pub index: u32,
}

impl Moved {
    /// What is said of it in a message of a link that is gone.
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

/// A non-blocking subscription to the link changes of one namespace. Wait for it to be readable,
/// then call [`Self::poll_event`] until it answers `None`.
#[derive(Debug)]
pub struct LinkMonitor {
    socket: Socket,
    /// Events read from the socket, not yet told.
    pending: VecDeque<LinkEvent>,
}

impl LinkMonitor {
    /// Subscribes to the changes in `namespace`. Needs no privilege beyond entering it.
    ///
    /// # Errors
    /// When the namespace cannot be entered or no socket can be opened.
    pub fn open(namespace: &Namespace) -> Result<Self, LinkError> {
        let socket = namespace.enter(subscribe)?.map_err(|cause| {
            LinkError::new("watch interfaces", "", namespace.label(), cause.into())
        })?;
        Ok(Self { socket, pending: VecDeque::from([LinkEvent::Resync]) })
    }

    /// The next event, or `None` when there is none now. Never blocks.
    ///
    /// # Errors
    /// When the socket fails, which Linux does only for want of memory.
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

    /// Throws away what the kernel has queued.
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

/// The events of one datagram. A message that cannot be parsed may hold any change.
fn events(datagram: &[u8]) -> impl Iterator<Item = LinkEvent> {
    messages(datagram).filter_map(|message| match message {
        Ok(message) => event(message.payload),
        Err(_) => Some(LinkEvent::Resync),
    })
}

/// The group also carries changes of bridge ports, in the same words but with the family
/// `AF_BRIDGE`: there "deleted" means "left the bridge".
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
/// Asked-for receive buffer in bytes: some 400 changes of about 2.5 KiB each, as the kernel
/// doubles the number. Linux caps it at `net.core.rmem_max`; overrun is handled.
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
