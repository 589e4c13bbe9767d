//! What a device shall be.

use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};

use crate::{DeviceName, Flags, HeaderLen, Kind, LinkType, NamePattern, Offloads, Prefix, Wish};

/// What a device shall be. Starts from what suits most: a tap device with one queue, made
/// exclusively, a header of 12 bytes and every offload that it can carry.
///
/// ```
/// use std::num::NonZeroU16;
/// use tapswitch_tap::{Config, HeaderLen, Kind, Offloads, Wish};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let fast = Config::new("tap0".parse()?).queues(NonZeroU16::new(4).ok_or("no queue")?);
/// let plain = Config::new("tap1".parse()?).offloads(Offloads::empty());
/// let vpn = Config::numbered("vpn%d".parse()?).kind(Kind::Tun).backpressure(Wish::IfAvailable);
/// let bytes = Config::numbered("bare%d".parse()?).net_header(HeaderLen::None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) name: NameWish,
    pub(crate) kind: Kind,
    pub(crate) prefix: Prefix,
    pub(crate) queues: NonZeroU16,
    pub(crate) multi_queue: bool,
    pub(crate) exclusive: bool,
    pub(crate) follow_existing: bool,
    pub(crate) offloads: Offloads,
    pub(crate) carrier: bool,
    pub(crate) napi: bool,
    pub(crate) napi_fragments: bool,
    pub(crate) backpressure: Wish,
    pub(crate) send_buffer_len: u32,
    pub(crate) index: Option<NonZeroU32>,
    pub(crate) link_type: Option<LinkType>,
    pub(crate) persistent: Option<bool>,
    pub(crate) owner: Option<u32>,
    pub(crate) group: Option<u32>,
}

/// Which name the device shall have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NameWish {
    /// This one.
    Fixed(DeviceName),
    /// The first of these that is free.
    Numbered(NamePattern),
}

impl fmt::Display for NameWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl NameWish {
    /// As `TUNSETIFF` wants it.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Fixed(name) => name.as_str(),
            Self::Numbered(pattern) => pattern.as_str(),
        }
    }
}

impl Config {
    /// A device called `name`.
    #[must_use]
    pub const fn new(name: DeviceName) -> Self {
        Self::with_name(NameWish::Fixed(name))
    }

    /// A device whose name the kernel completes with the first number that is free, such as `tap3`
    /// of `tap%d`; [`Device::name`](crate::Device::name) tells which. It is made, never opened.
    #[must_use]
    pub const fn numbered(pattern: NamePattern) -> Self {
        Self::with_name(NameWish::Numbered(pattern))
    }

    const fn with_name(name: NameWish) -> Self {
        Self {
            name,
            kind: Kind::Tap,
            prefix: Prefix { packet_info: false, net_header: HeaderLen::V1 },
            queues: NonZeroU16::MIN,
            multi_queue: false,
            exclusive: true,
            follow_existing: false,
            offloads: Offloads::DEFAULT,
            carrier: true,
            napi: false,
            napi_fragments: false,
            backpressure: Wish::Off,
            send_buffer_len: UNLIMITED,
            index: None,
            link_type: None,
            persistent: None,
            owner: None,
            group: None,
        }
    }

    /// Whether it carries Ethernet frames (the default) or IP packets (`IFF_TUN`).
    #[must_use]
    pub const fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Puts four bytes of [`PacketInfo`](crate::PacketInfo) in front of each frame (no
    /// `IFF_NO_PI`). Worth it for a tun device that carries other protocols than IP, and to be told
    /// when a buffer was too short.
    #[must_use]
    pub const fn packet_info(mut self, on: bool) -> Self {
        self.prefix.packet_info = on;
        self
    }

    /// Length of the network header in front of each frame (`IFF_VNET_HDR`, `TUNSETVNETHDRSZ`,
    /// Linux 2.6.35); 12 bytes unless told otherwise. It bounds the offloads: without a header
    /// there are none, and below [`HeaderLen::Tunnel`] there are no trains in tunnels.
    #[must_use]
    pub const fn net_header(mut self, len: HeaderLen) -> Self {
        self.prefix.net_header = len;
        self
    }

    /// Number of queues, each a file descriptor of its own; Linux takes at most 256. More than one
    /// implies [`Self::multi_queue`]. The kernel spreads what it sends by flow, and follows the
    /// queue on which a flow was last written (Linux 3.8).
    ///
    /// Making many takes time: each takes the lock of all network configuration, and on most
    /// kernels waits until no processor uses the former number of queues.
    #[must_use]
    pub const fn queues(mut self, queues: NonZeroU16) -> Self {
        self.queues = queues;
        self
    }

    /// Lets the device have several queues (`IFF_MULTI_QUEUE`, Linux 3.8) though only one is opened
    /// now.
    ///
    /// Any program that may open the device can then take a share of its frames, at any time;
    /// before Linux 7.3 that is every user's where neither [`Self::owner`] nor [`Self::group`] is
    /// set. See [`Device::foreign_queues`](crate::Device::foreign_queues).
    #[must_use]
    pub const fn multi_queue(mut self, multi_queue: bool) -> Self {
        self.multi_queue = multi_queue;
        self
    }

    /// Makes the device afresh or fails (`IFF_TUN_EXCL`, the default, Linux 2.6.30). That concerns
    /// the making alone: whether others may join later is [`Self::owner`]'s affair. When `false`,
    /// a persistent device of that name is opened if there is one: it must have the same
    /// [`Self::kind`] and [`Self::multi_queue`], and what its former user left behind is reset.
    #[must_use]
    pub const fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// Opens a persistent device as it was made when that differs from [`Self::multi_queue`]: the
    /// open is tried again with that flag turned round. Implies `exclusive(false)`. More than one
    /// queue cannot be had of a device that was made with one.
    #[must_use]
    pub const fn follow_existing(mut self, follow: bool) -> Self {
        self.follow_existing = follow;
        if follow {
            self.exclusive = false;
        }
        self
    }

    /// The most that the kernel may leave undone in frames that are received
    /// (`TUNSETOFFLOAD`, Linux 2.6.27). Fewer mean that it completes checksums and cuts trains
    /// before they are queued. What the kernel or the [header](Self::net_header) cannot is left
    /// out; [`Device::capabilities`](crate::Device::capabilities) tells what remains.
    #[must_use]
    pub const fn offloads(mut self, at_most: Offloads) -> Self {
        self.offloads = at_most;
        self
    }

    /// Whether the device starts with a carrier (the default). Without one, programs that watch
    /// links wait until [`Device::set_carrier`](crate::Device::set_carrier) says that frames will
    /// be answered (`IFF_NO_CARRIER`, Linux 6.1).
    #[must_use]
    pub const fn carrier(mut self, on: bool) -> Self {
        self.carrier = on;
        self
    }

    /// Passes what is sent through NAPI (`IFF_NAPI`, Linux 4.15). A write costs the half more; but
    /// when `gro_flush_timeout` of the interface is set, the kernel joins packets to trains (GRO).
    #[must_use]
    pub const fn napi(mut self, on: bool) -> Self {
        self.napi = on;
        self
    }

    /// Makes each piece of a gathered write a fragment of the packet (`IFF_NAPI_FRAGS`, Linux
    /// 4.15), of a page at most. For tests of the network stack: needs [`Self::napi`], a tap
    /// device, and `CAP_NET_ADMIN` in the first user namespace.
    #[must_use]
    pub const fn napi_fragments(mut self, on: bool) -> Self {
        self.napi_fragments = on;
        self
    }

    /// Lets a full ring stop the queueing discipline instead of dropping (`IFF_BACKPRESSURE`,
    /// Linux 7.3). Without effect while the interface has no queueing discipline (`noqueue`).
    #[must_use]
    pub const fn backpressure(mut self, wish: Wish) -> Self {
        self.backpressure = wish;
        self
    }

    /// Bytes of frames that were sent and that the kernel still holds, before a send is
    /// [`Full`](crate::SendError::Full) (`TUNSETSNDBUF`, Linux 2.6.30); unlimited unless told
    /// otherwise. A limit costs a tap device its fast path: each frame is copied to memory that is
    /// allocated for it alone, as it always is on a tun device.
    #[must_use]
    pub const fn send_buffer_len(mut self, bytes: NonZeroU32) -> Self {
        self.send_buffer_len = if bytes.get() > UNLIMITED { UNLIMITED } else { bytes.get() };
        self
    }

    /// Index that the interface shall have when it is made (`TUNSETIFINDEX`, Linux 3.12).
    #[must_use]
    pub const fn index(mut self, index: NonZeroU32) -> Self {
        self.index = Some(index);
        self
    }

    /// What the interface claims to be (`TUNSETLINK`), for programs that capture other than
    /// Ethernet and IP; unless told otherwise Ethernet, or for a tun device
    /// [nothing](LinkType::NONE). A device that is there must be down to change it.
    #[must_use]
    pub const fn link_type(mut self, link_type: LinkType) -> Self {
        self.link_type = Some(link_type);
        self
    }

    /// Whether the device stays when its last queue is closed (`TUNSETPERSIST`). A device that is
    /// opened stays as it was unless this is called; one that is made goes. Give it an
    /// [owner](Self::owner) or a [group](Self::group): one that has neither may be opened by any
    /// user before Linux 7.3, and by nobody without `CAP_NET_ADMIN` from then on.
    #[must_use]
    pub const fn persistent(mut self, on: bool) -> Self {
        self.persistent = Some(on);
        self
    }

    /// The only user who may open the device, or attach a queue to it, without `CAP_NET_ADMIN`
    /// (`TUNSETOWNER`), by number.
    #[must_use]
    pub const fn owner(mut self, user: u32) -> Self {
        self.owner = Some(user);
        self
    }

    /// The only group that may open the device without `CAP_NET_ADMIN` (`TUNSETGROUP`, Linux
    /// 2.6.23), by number. With an owner too, it takes both.
    #[must_use]
    pub const fn group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    pub(crate) const fn is_multi_queue(&self) -> bool {
        self.multi_queue || self.queues.get() > 1
    }

    /// The flags of `TUNSETIFF` but for back-pressure and exclusiveness.
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = self.kind.flag();
        flags.set(Flags::NO_PI, !self.prefix.packet_info);
        flags.set(Flags::VNET_HDR, self.prefix.net_header != HeaderLen::None);
        flags.set(Flags::MULTI_QUEUE, self.is_multi_queue());
        flags.set(Flags::NO_CARRIER, !self.carrier);
        flags.set(Flags::NAPI, self.napi);
        flags.set(Flags::NAPI_FRAGS, self.napi_fragments);
        flags
    }

    /// What in it contradicts itself, and the remedy.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        let numbered = matches!(self.name, NameWish::Numbered(_));
        match () {
            () if self.napi_fragments && !self.napi => {
                Some("NAPI fragments need NAPI: add napi(true)")
            }
            () if self.napi_fragments && self.kind == Kind::Tun => {
                Some("NAPI fragments are for tap devices only: leave napi_fragments out")
            }
            () if numbered && !self.exclusive => {
                Some("a numbered name is always a new device: leave exclusive(false) out")
            }
            () if self.owner == Some(u32::MAX) || self.group == Some(u32::MAX) => {
                Some("4294967295 is not a valid user or group ID: choose another")
            }
            () if self.index.is_some_and(|index| index.get() > MAX_INDEX) => {
                Some("an interface index is at most 2147483647: choose another, or none")
            }
            () => None,
        }
    }
}

/// The greatest index of an interface: Linux counts them as `int`.
const MAX_INDEX: u32 = i32::MAX.unsigned_abs();
/// What Linux takes as no limit of the send buffer (`INT_MAX`), in bytes.
pub(crate) const UNLIMITED: u32 = i32::MAX.unsigned_abs();

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new("tap0".parse().unwrap())
    }

    #[test]
    fn every_choice_has_its_flag() {
        let plain = Flags::TAP | Flags::NO_PI | Flags::VNET_HDR;
        assert_eq!(config().flags(), plain);
        for (config, flags) in [
            (config().kind(Kind::Tun), plain ^ Flags::TAP ^ Flags::TUN),
            (config().packet_info(true), plain ^ Flags::NO_PI),
            (config().net_header(HeaderLen::None), plain ^ Flags::VNET_HDR),
            (config().queues(NonZeroU16::new(2).unwrap()), plain ^ Flags::MULTI_QUEUE),
            (config().multi_queue(true), plain ^ Flags::MULTI_QUEUE),
            (config().carrier(false), plain ^ Flags::NO_CARRIER),
            (config().napi(true), plain ^ Flags::NAPI),
            (config().napi(true).napi_fragments(true), plain ^ Flags::NAPI ^ Flags::NAPI_FRAGS),
        ] {
            assert_eq!(config.flags(), flags, "{config:?}");
        }
    }

    #[test]
    fn contradictions_are_named() {
        assert_eq!(config().contradiction(), None);
        let numbered = Config::numbered("tap%d".parse().unwrap());
        assert_eq!(numbered.contradiction(), None);
        for (config, word) in [
            (config().napi_fragments(true), "napi(true)"),
            (config().kind(Kind::Tun).napi(true).napi_fragments(true), "tap devices"),
            (numbered.exclusive(false), "new device"),
            (config().owner(u32::MAX), "user or group ID"),
            (config().index(NonZeroU32::new(1 << 31).unwrap()), "interface index"),
        ] {
            assert!(config.contradiction().unwrap().contains(word), "{config:?}");
        }
    }
}
