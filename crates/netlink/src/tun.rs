//! Properties of a tun or tap device (`IFLA_TUN_*`, `include/uapi/linux/if_link.h`, Linux 4.17).
//!
//! Netlink does not report the length of the network header, `IFF_NAPI`, `IFF_BACKPRESSURE` and the
//! attached programs. The flags are in the file `tun_flags` of [`crate::Sysfs`].

use netlink_packet_core::Nla;
use netlink_packet_route::link::InfoTun;

/// Properties of a tun or tap device when the kernel was queried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TunInfo {
    /// Ethernet frames or IP packets.
    pub kind: TunKind,
    /// User who may open it without `CAP_NET_ADMIN`; `None` if unset.
    pub owner: Option<u32>,
    /// Group that may open it without `CAP_NET_ADMIN`; `None` if unset.
    pub group: Option<u32>,
    /// Each frame starts with four bytes of protocol information (no `IFF_NO_PI`).
    pub packet_info: bool,
    /// Each frame starts with a virtio network header (`IFF_VNET_HDR`).
    pub net_header: bool,
    /// Outlives its last file (`TUNSETPERSIST`).
    pub persistent: bool,
    /// May have several queues (`IFF_MULTI_QUEUE`).
    pub multi_queue: bool,
    /// Number of attached queues. Reported for multi-queue devices only.
    pub queues: Option<u32>,
    /// Number of open but detached queues (`TUNSETQUEUE`). Reported for multi-queue devices only.
    pub disabled_queues: Option<u32>,
}

/// Type of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TunKind {
    /// Ethernet frames (`IFF_TAP`).
    #[default]
    Tap,
    /// IP packets (`IFF_TUN`).
    Tun,
}

impl TunInfo {
    pub(crate) fn from_attributes(attributes: &[InfoTun]) -> Self {
        let mut info = Self::default();
        for attribute in attributes {
            let mut value = vec![0; attribute.value_len()];
            attribute.emit_value(&mut value);
            info.set(attribute.kind(), &value);
        }
        info
    }

    fn set(&mut self, kind: u16, value: &[u8]) {
        let flag = value.first().is_some_and(|&byte| byte != 0);
        let number = value.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes));
        match kind {
            OWNER => self.owner = number,
            GROUP => self.group = number,
            TYPE if value.first() == Some(&IFF_TUN) => self.kind = TunKind::Tun,
            PI => self.packet_info = flag,
            VNET_HDR => self.net_header = flag,
            PERSIST => self.persistent = flag,
            MULTI_QUEUE => self.multi_queue = flag,
            NUM_QUEUES => self.queues = number,
            NUM_DISABLED_QUEUES => self.disabled_queues = number,
            _ => {}
        }
    }
}

const OWNER: u16 = 1;
const GROUP: u16 = 2;
const TYPE: u16 = 3;
const PI: u16 = 4;
const VNET_HDR: u16 = 5;
const PERSIST: u16 = 6;
const MULTI_QUEUE: u16 = 7;
const NUM_QUEUES: u16 = 8;
const NUM_DISABLED_QUEUES: u16 = 9;
/// `include/uapi/linux/if_tun.h`.
const IFF_TUN: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_understood() {
        let mut info = TunInfo::default();
        for (kind, value) in [
            (OWNER, &[0xe8, 3, 0, 0][..]),
            (TYPE, &[1]),
            (PI, &[1]),
            (VNET_HDR, &[0]),
            (MULTI_QUEUE, &[1]),
            (NUM_QUEUES, &3_u32.to_ne_bytes()),
            (99, &[1, 2, 3]),
        ] {
            info.set(kind, value);
        }
        let owner = Some(u32::from_ne_bytes([0xe8, 3, 0, 0]));
        let expected = TunInfo {
            kind: TunKind::Tun,
            owner,
            packet_info: true,
            multi_queue: true,
            queues: Some(3),
            ..TunInfo::default()
        };
        assert_eq!(info, expected);
    }

    #[test]
    fn short_attributes_are_no_panic() {
        let mut info = TunInfo::default();
        (0..=12).for_each(|kind| info.set(kind, &[]));
        assert_eq!(info, TunInfo::default());
    }
}
