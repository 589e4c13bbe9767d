//! Configuration of a device to create or open.

use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};

use crate::{DeviceName, Flags, HeaderLen, Kind, LinkType, NamePattern, Offloads, Prefix, Wish};

/// Describes a device to create or open. The default is a new tap device with one queue, a network
/// header of 12 bytes, and every offload that the kernel and the header support.
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

/// The requested name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NameWish {
    /// Exactly this name.
    Fixed(DeviceName),
    /// The first free name that matches this pattern.
    Numbered(NamePattern),
}

impl fmt::Display for NameWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl NameWish {
    /// The name as passed to `TUNSETIFF`.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Fixed(name) => name.as_str(),
            Self::Numbered(pattern) => pattern.as_str(),
        }
    }
}

impl Config {
    /// Configures a device called `name`.
    #[must_use]
    pub const fn new(name: DeviceName) -> Self {
        Self::with_name(NameWish::Fixed(name))
    }

    /// Configures a new device that the kernel numbers: `tap%d` becomes the first free name, such
    /// as `tap3`. [`Device::name`](crate::Device::name) returns it.
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

    /// Selects Ethernet frames (`IFF_TAP`, the default) or IP packets (`IFF_TUN`).
    #[must_use]
    pub const fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Enables four bytes of [`PacketInfo`](crate::PacketInfo) before each frame (absence of
    /// `IFF_NO_PI`). Useful for non-IP protocols on a tun device, and to detect truncated frames.
    #[must_use]
    pub const fn packet_info(mut self, on: bool) -> Self {
        self.prefix.packet_info = on;
        self
    }

    /// Sets the length of the network header before each frame (`IFF_VNET_HDR`; `TUNSETVNETHDRSZ`,
    /// Linux 2.6.35). The default is 12 bytes. The header limits the offloads: without one there
    /// are none, and trains in tunnels need [`HeaderLen::Tunnel`].
    #[must_use]
    pub const fn net_header(mut self, len: HeaderLen) -> Self {
        self.prefix.net_header = len;
        self
    }

    /// Sets the number of queues, each a file descriptor; Linux allows 256. More than one implies
    /// [`Self::multi_queue`]. The kernel distributes the frames by flow, and a flow follows the
    /// queue on which it was last written (Linux 3.8).
    ///
    /// Opening many queues takes time: each one takes the RTNL lock and, on most kernels, waits for
    /// an RCU grace period.
    #[must_use]
    pub const fn queues(mut self, queues: NonZeroU16) -> Self {
        self.queues = queues;
        self
    }

    /// Allows several queues (`IFF_MULTI_QUEUE`, Linux 3.8) even if only one is opened now.
    ///
    /// Any program with permission to open the device can then receive a share of its frames at any
    /// time. Before Linux 7.3 every user has that permission if neither [`Self::owner`] nor
    /// [`Self::group`] is set. See [`Device::foreign_queues`](crate::Device::foreign_queues).
    #[must_use]
    pub const fn multi_queue(mut self, multi_queue: bool) -> Self {
        self.multi_queue = multi_queue;
        self
    }

    /// Requires that the device is new (`IFF_TUN_EXCL`, Linux 2.6.30); the default. This only
    /// affects creation; [`Self::owner`] and [`Self::group`] restrict who may attach later. With
    /// `false`, an existing persistent device is opened instead: its [`Self::kind`] and
    /// [`Self::multi_queue`] must match, and the settings of its former user are reset.
    #[must_use]
    pub const fn exclusive(mut self, exclusive: bool) -> Self {
        self.exclusive = exclusive;
        self
    }

    /// Opens a persistent device even if it differs in [`Self::multi_queue`], by trying again with
    /// the opposite flag. Implies `exclusive(false)`. A device created with one queue cannot have
    /// more.
    #[must_use]
    pub const fn follow_existing(mut self, follow: bool) -> Self {
        self.follow_existing = follow;
        if follow {
            self.exclusive = false;
        }
        self
    }

    /// Limits the offloads for received frames (`TUNSETOFFLOAD`, Linux 2.6.27). The kernel
    /// completes checksums and segments trains that are not included before it queues them.
    /// Offloads that the kernel or the [header](Self::net_header) does not support are omitted;
    /// [`Device::capabilities`](crate::Device::capabilities) returns the result.
    #[must_use]
    pub const fn offloads(mut self, at_most: Offloads) -> Self {
        self.offloads = at_most;
        self
    }

    /// Sets whether the device starts with a carrier (the default). Without one (`IFF_NO_CARRIER`,
    /// Linux 6.1), programs that monitor links wait until
    /// [`Device::set_carrier`](crate::Device::set_carrier).
    #[must_use]
    pub const fn carrier(mut self, on: bool) -> Self {
        self.carrier = on;
        self
    }

    /// Passes written frames through NAPI (`IFF_NAPI`, Linux 4.15). A write costs about 50 % more,
    /// but GRO coalesces packets into trains if the interface's `gro_flush_timeout` is set.
    #[must_use]
    pub const fn napi(mut self, on: bool) -> Self {
        self.napi = on;
        self
    }

    /// Makes each part of a vectored write a fragment of the packet (`IFF_NAPI_FRAGS`, Linux
    /// 4.15), at most one page each. Intended for tests of the network stack: needs [`Self::napi`],
    /// a tap device, and `CAP_NET_ADMIN` in the initial user namespace.
    #[must_use]
    pub const fn napi_fragments(mut self, on: bool) -> Self {
        self.napi_fragments = on;
        self
    }

    /// Makes a full ring stop the queueing discipline instead of dropping (`IFF_BACKPRESSURE`,
    /// Linux 7.3). No effect while the interface has no queueing discipline (`noqueue`).
    #[must_use]
    pub const fn backpressure(mut self, wish: Wish) -> Self {
        self.backpressure = wish;
        self
    }

    /// Limits the bytes of written frames that the kernel holds before a send returns
    /// [`Full`](crate::SendError::Full) (`TUNSETSNDBUF`, Linux 2.6.30). Unlimited by default. A
    /// limit disables the fast path of tap devices: each frame is copied to memory allocated for it
    /// alone, as always on a tun device.
    #[must_use]
    pub const fn send_buffer_len(mut self, bytes: NonZeroU32) -> Self {
        self.send_buffer_len = if bytes.get() > UNLIMITED { UNLIMITED } else { bytes.get() };
        self
    }

    /// Sets the interface index of a new device (`TUNSETIFINDEX`, Linux 3.12).
    #[must_use]
    pub const fn index(mut self, index: NonZeroU32) -> Self {
        self.index = Some(index);
        self
    }

    /// Sets the link type (`TUNSETLINK`), for captures of other protocols than Ethernet and IP. The
    /// default is Ethernet for a tap device and [none](LinkType::NONE) for a tun device. An
    /// existing device must be down to change it.
    #[must_use]
    pub const fn link_type(mut self, link_type: LinkType) -> Self {
        self.link_type = Some(link_type);
        self
    }

    /// Sets whether the device outlives its last queue (`TUNSETPERSIST`). By default, a new device
    /// is not persistent, and an existing one is unchanged. Set an [owner](Self::owner) or a
    /// [group](Self::group): without either, any user may open the device before Linux 7.3, and
    /// only `CAP_NET_ADMIN` from then on.
    #[must_use]
    pub const fn persistent(mut self, on: bool) -> Self {
        self.persistent = Some(on);
        self
    }

    /// Sets the user ID that may open the device or attach a queue without `CAP_NET_ADMIN`
    /// (`TUNSETOWNER`).
    #[must_use]
    pub const fn owner(mut self, user: u32) -> Self {
        self.owner = Some(user);
        self
    }

    /// Sets the group ID that may open the device or attach a queue without `CAP_NET_ADMIN`
    /// (`TUNSETGROUP`, Linux 2.6.23). If an owner is set as well, both must match.
    #[must_use]
    pub const fn group(mut self, group: u32) -> Self {
        self.group = Some(group);
        self
    }

    pub(crate) const fn is_multi_queue(&self) -> bool {
        self.multi_queue || self.queues.get() > 1
    }

    /// Flags of `TUNSETIFF`, except backpressure and exclusive.
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

    /// Returns a contradiction within the configuration, and its remedy.
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

/// Maximum interface index: Linux uses an `int`.
const MAX_INDEX: u32 = i32::MAX.unsigned_abs();
/// Send buffer length that means unlimited (`INT_MAX`), in bytes.
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
