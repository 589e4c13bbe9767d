//! Requests about links, addresses, routes and neighbours of one namespace.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVeth, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
    VlanProtocol,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::nsid::{NsidAttribute, NsidMessage};
use netlink_packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::error::Failure;
use crate::request::Connection;
use crate::{Link, LinkError, Namespace, survey};

/// An rtnetlink connection to one namespace; usable from any thread. Each method is one request and
/// blocks until the kernel has answered, typically some ten microseconds; deleting a link may take
/// milliseconds. Changes need `CAP_NET_ADMIN`.
///
/// # Errors
/// All methods return a [`LinkError`] that names the interface, the namespace and the cause.
#[derive(Debug)]
pub struct Netlink {
    pub(crate) connection: Connection,
    namespace: Namespace,
}

impl Netlink {
    /// Connects to `namespace`.
    ///
    /// # Errors
    /// If the namespace cannot be entered or no socket can be opened.
    pub fn open(namespace: &Namespace) -> Result<Self, LinkError> {
        let connection = namespace.enter(Connection::open)?.map_err(|cause| {
            LinkError::new("open rtnetlink", "", namespace.label(), cause.into())
        })?;
        Ok(Self { connection, namespace: namespace.clone() })
    }

    /// All interfaces that can be parsed; [`Self::unread_count`] returns the number of the others.
    ///
    /// # Errors
    /// If interfaces change faster than they can be listed.
    pub fn links(&mut self) -> Result<Vec<Link>, LinkError> {
        let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
        match self.connection.dump(all) {
            Ok(answer) => Ok(answer.into_iter().filter_map(link_in).collect()),
            Err(failure) => Err(self.error("list the interfaces", "", failure)),
        }
    }

    /// Number of objects in the last answer that could not be parsed, such as an interface whose
    /// name is not UTF-8: Linux allows any bytes.
    pub fn unread_count(&self) -> usize {
        self.connection.unread()
    }

    /// Returns the interface `name`.
    ///
    /// # Errors
    /// [`LinkError::NotFound`].
    pub fn link(&mut self, name: &str) -> Result<Link, LinkError> {
        self.one_link(named(name), name)
    }

    /// Returns the interface with `index`.
    ///
    /// # Errors
    /// [`LinkError::NotFound`].
    pub fn link_by_index(&mut self, index: u32) -> Result<Link, LinkError> {
        let mut message = LinkMessage::default();
        message.header.index = index;
        self.one_link(message, &format!("with index {index}"))
    }

    /// Sets `name` up.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn set_up(&mut self, name: &str) -> Result<(), LinkError> {
        let mut message = named(name);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.set_link(message, name, format_args!("set {name} up"))
    }

    /// Sets `name` down.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn set_down(&mut self, name: &str) -> Result<(), LinkError> {
        let mut message = named(name);
        message.header.change_mask = LinkFlags::Up;
        self.set_link(message, name, format_args!("set {name} down"))
    }

    /// Sets the MTU of `name` in bytes. Taps support 68 to 65521, veths up to 65535.
    ///
    /// # Errors
    /// [`LinkError::Refused`] with the supported range if the driver does not support the size.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<(), LinkError> {
        let message = with(named(name), LinkAttribute::Mtu(mtu));
        let set = self.set_link(message, name, format_args!("set the MTU of {name} to {mtu}"));
        set.map_err(|error| self.with_mtu_bounds(name, error))
    }

    /// Adds the supported range: the kernel's message only says that there is one.
    fn with_mtu_bounds(&mut self, name: &str, error: LinkError) -> LinkError {
        match (error, self.link(name).map(|link| link.mtu_bounds)) {
            (LinkError::Refused { action, namespace, reason, source }, Ok((least, most @ 1..))) => {
                let reason = format!("{reason}; it allows {least} to {most} bytes");
                LinkError::Refused { action, namespace, reason, source }
            }
            (error, _) => error,
        }
    }

    /// Sets the alias of `name` (`IFLA_IFALIAS`, at most 255 bytes); an empty text removes it.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn set_alias(&mut self, name: &str, alias: &str) -> Result<(), LinkError> {
        let message = with(named(name), LinkAttribute::IfAlias(alias.to_owned()));
        self.set_link(message, name, format_args!("set the alias of {name}"))
    }

    /// Sets the MAC address of `name`.
    ///
    /// # Errors
    /// [`LinkError::Refused`] for a group address.
    pub fn set_mac(&mut self, name: &str, mac: [u8; 6]) -> Result<(), LinkError> {
        let message = with(named(name), LinkAttribute::Address(mac.to_vec()));
        self.set_link(message, name, format_args!("set the MAC address of {name}"))
    }

    /// Sets the length of the transmit queue of `name` in packets; on a tap device this resizes the
    /// rings that programs read from, even while it is up.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn set_txqueuelen(&mut self, name: &str, count: u32) -> Result<(), LinkError> {
        let message = with(named(name), LinkAttribute::TxQueueLen(count));
        let set =
            self.set_link(message, name, format_args!("set the queue length of {name} to {count}"));
        // Without memory for such rings, a tun device refuses by a notifier, which becomes EPERM.
        set.map_err(|error| with_reason(error, TOO_LONG))
    }

    /// Sets the carrier of `name` (`IFLA_CARRIER`): whether the other end of the link is connected.
    /// A tun device supports this while a queue is attached, from Linux 5.0 on.
    ///
    /// # Errors
    /// [`LinkError::Refused`] if the driver does not allow setting the carrier, or not now.
    pub fn set_carrier(&mut self, name: &str, carrier: bool) -> Result<(), LinkError> {
        let message = with(named(name), LinkAttribute::Carrier(carrier.into()));
        let state = if carrier { "on" } else { "off" };
        let set = self.set_link(message, name, format_args!("set the carrier of {name} {state}"));
        set.map_err(|error| with_reason(error, NO_QUEUE))
    }

    /// Renames `name`; before Linux 6.2 it must be down.
    ///
    /// # Errors
    /// [`LinkError::Exists`] if the new name is in use.
    pub fn rename(&mut self, name: &str, new_name: &str) -> Result<(), LinkError> {
        let link = self.link(name)?;
        let mut message = LinkMessage::default();
        message.header.index = link.index;
        let message = with(message, LinkAttribute::IfName(new_name.to_owned()));
        self.set_link(message, name, format_args!("rename {name} to {new_name}"))
    }

    /// Moves `name` into another namespace. It goes down and loses its addresses.
    ///
    /// # Errors
    /// [`LinkError::Exists`] if the name is in use there.
    pub fn move_to_namespace(&mut self, name: &str, to: &Namespace) -> Result<(), LinkError> {
        let target = LinkAttribute::NetNsFd(to.as_fd().as_raw_fd());
        let action = format_args!("move {name} to namespace {}", to.label());
        self.set_link(with(named(name), target), name, action)
    }

    /// Creates a veth pair: `name` here and `peer` in `peer_namespace`, both down. Deleting either
    /// deletes both.
    ///
    /// # Errors
    /// [`LinkError::Exists`] if one of the names is in use.
    pub fn create_veth(
        &mut self,
        name: &str,
        peer: &str,
        peer_namespace: &Namespace,
    ) -> Result<(), LinkError> {
        let there = LinkAttribute::NetNsFd(peer_namespace.as_fd().as_raw_fd());
        let info = LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(with(named(peer), there)))),
        ]);
        self.create(
            with(named(name), info),
            name,
            format_args!("create the veth pair {name} and {peer}"),
        )
    }

    /// Creates the VLAN interface `name` on `lower`, for frames with the 802.1Q tag `id`.
    ///
    /// # Errors
    /// [`LinkError::Exists`] if the name is in use, [`LinkError::NotFound`] if `lower` does not
    /// exist.
    pub fn create_vlan(&mut self, name: &str, lower: &str, id: u16) -> Result<(), LinkError> {
        self.create_tagged(name, lower, VlanProtocol::Ieee8021Q, id)
    }

    /// As [`Self::create_vlan`], for the 802.1ad tag `id` (Linux 3.10).
    ///
    /// # Errors
    /// As [`Self::create_vlan`].
    pub fn create_service_vlan(
        &mut self,
        name: &str,
        lower: &str,
        id: u16,
    ) -> Result<(), LinkError> {
        self.create_tagged(name, lower, VlanProtocol::Ieee8021Ad, id)
    }

    fn create_tagged(
        &mut self,
        name: &str,
        lower: &str,
        protocol: VlanProtocol,
        id: u16,
    ) -> Result<(), LinkError> {
        let index = self.link(lower)?.index;
        let data = InfoData::Vlan(vec![InfoVlan::Id(id), InfoVlan::Protocol(protocol)]);
        let info = vec![LinkInfo::Kind(InfoKind::Vlan), LinkInfo::Data(data)];
        let message = with(named(name), LinkAttribute::Link(index));
        let message = with(message, LinkAttribute::LinkInfo(info));
        self.create(message, name, format_args!("create {name} for VLAN {id} of {lower}"))
    }

    /// Creates a bridge called `name`, down and without ports.
    ///
    /// # Errors
    /// [`LinkError::Exists`] if the name is in use.
    pub fn create_bridge(&mut self, name: &str) -> Result<(), LinkError> {
        let info = LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]);
        let message = with(named(name), info);
        self.create(message, name, format_args!("create the bridge {name}"))
    }

    /// Makes `name` a port of the bridge `bridge`.
    ///
    /// # Errors
    /// [`LinkError::NotFound`] if either does not exist.
    pub fn set_bridge(&mut self, name: &str, bridge: &str) -> Result<(), LinkError> {
        let index = self.link(bridge)?.index;
        let message = with(named(name), LinkAttribute::Controller(index));
        self.set_link(message, name, format_args!("add {name} to {bridge}"))
    }

    /// Deletes `name`. Hardware cannot be deleted.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn delete(&mut self, name: &str) -> Result<(), LinkError> {
        self.ask(RouteNetlinkMessage::DelLink(named(name)), 0, name, format_args!("delete {name}"))
    }

    /// Adds a default route via the router `via`, which must be in a subnet of an interface that is
    /// up.
    ///
    /// # Errors
    /// [`LinkError::Refused`] if the router is not reachable.
    pub fn add_default_route(&mut self, via: IpAddr) -> Result<(), LinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(via);
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.scope = RouteScope::Universe;
        message.header.kind = RouteType::Unicast;
        message.attributes = vec![RouteAttribute::Gateway(via.into())];
        self.ask(
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_EXCL,
            "",
            format_args!("add the default route via {via}"),
        )
    }

    /// Sets a permanent neighbour entry for `ip` on `name`, so that no ARP or neighbour discovery
    /// is needed. Replaces an existing entry.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn set_neighbour(&mut self, name: &str, ip: IpAddr, mac: [u8; 6]) -> Result<(), LinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(ip);
        message.header.ifindex = self.link(name)?.index;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::Destination(ip.into()),
            NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
        ];
        self.ask(
            RouteNetlinkMessage::NewNeighbour(message),
            NLM_F_CREATE | NLM_F_REPLACE,
            name,
            format_args!("set the neighbour {ip} on {name}"),
        )
    }

    /// The namespace of this connection.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn one_link(&mut self, message: LinkMessage, name: &str) -> Result<Link, LinkError> {
        let answer = match self.connection.ask(RouteNetlinkMessage::GetLink(message), 0) {
            Ok(answer) => answer,
            Err(failure) => return Err(self.error("look up an interface", name, failure)),
        };
        if self.connection.unread() > 0 {
            let cause = io::Error::new(io::ErrorKind::InvalidData, "a name is not UTF-8");
            return Err(self.error("look up an interface", name, cause.into()));
        }
        answer.into_iter().find_map(link_in).ok_or_else(|| LinkError::NotFound {
            name: name.to_owned(),
            namespace: self.namespace.label().to_owned(),
        })
    }

    fn set_link(
        &mut self,
        message: LinkMessage,
        name: &str,
        action: fmt::Arguments<'_>,
    ) -> Result<(), LinkError> {
        self.ask(RouteNetlinkMessage::SetLink(message), 0, name, action)
    }

    fn create(
        &mut self,
        message: LinkMessage,
        name: &str,
        action: fmt::Arguments<'_>,
    ) -> Result<(), LinkError> {
        let flags = NLM_F_CREATE | NLM_F_EXCL;
        self.ask(RouteNetlinkMessage::NewLink(message), flags, name, action)
    }

    pub(crate) fn ask(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        name: &str,
        action: fmt::Arguments<'_>,
    ) -> Result<(), LinkError> {
        let outcome = self.connection.ask(message, flags);
        outcome.map(drop).map_err(|failure| self.error(action, name, failure))
    }

    /// The namespace with this ID in the current one, if it is among those that can be found
    /// ([`survey()`]).
    pub fn find_namespace(&mut self, id: i32) -> Option<Namespace> {
        // Negative IDs are invalid.
        let id = Some(id).filter(|id| *id >= 0);
        let is_it = |namespace: &Namespace| id.is_some() && self.namespace_id(namespace) == id;
        survey().namespaces.into_iter().find(is_it)
    }

    /// The ID of another namespace in this one; `None` if it has none or it cannot be queried.
    fn namespace_id(&mut self, namespace: &Namespace) -> Option<i32> {
        let fd = u32::try_from(namespace.as_fd().as_raw_fd()).ok()?;
        let mut message = NsidMessage::default();
        message.attributes.push(NsidAttribute::Fd(fd));
        let answer = self.connection.ask(RouteNetlinkMessage::GetNsId(message), 0).ok()?;
        let said = answer.into_iter().find_map(|message| match message {
            RouteNetlinkMessage::NewNsId(message) => Some(message.attributes),
            _ => None,
        });
        said?.into_iter().find_map(|attribute| match attribute {
            NsidAttribute::Id(id) => Some(id),
            _ => None,
        })
    }

    pub(crate) fn error(
        &self,
        action: impl fmt::Display,
        name: &str,
        failure: Failure,
    ) -> LinkError {
        LinkError::new(action, name, self.namespace.label(), failure)
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

/// A message about the interface `name`.
fn named(name: &str) -> LinkMessage {
    with(LinkMessage::default(), LinkAttribute::IfName(name.to_owned()))
}

fn with(mut message: LinkMessage, attribute: LinkAttribute) -> LinkMessage {
    message.attributes.push(attribute);
    message
}

pub(crate) fn family(ip: IpAddr) -> AddressFamily {
    match ip {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn link_in(message: RouteNetlinkMessage) -> Option<Link> {
    match message {
        RouteNetlinkMessage::NewLink(link) => Some(Link::from_message(link)),
        _ => None,
    }
}

/// With the privilege, `EPERM` has another cause: `reason`.
fn with_reason(error: LinkError, reason: &str) -> LinkError {
    match error {
        LinkError::NotPermitted { action, namespace } if rustix::process::geteuid().is_root() => {
            LinkError::not_permitted(action, namespace, reason)
        }
        error => error,
    }
}

const TOO_LONG: &str =
    "not permitted, or the ring is too long for the kernel's memory: use a shorter one";
const NO_QUEUE: &str =
    "not permitted, or it is a tun device without an attached queue: its program must attach one";
