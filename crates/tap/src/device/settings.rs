//! Settings that can change while the device exists.

use std::num::NonZeroU32;

use rustix::io::Errno;
use tapswitch_wire::MacAddr;

use super::Device;
use crate::capabilities::negotiate;
use crate::{Kind, LinkType, Offloads, SettingError, ioctl};

/// Byte order of the fields in the network header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Native byte order: the default of Linux, and what [`NetHeader`](crate::NetHeader) uses.
    #[default]
    Native,
    /// Little-endian (`TUNSETVNETLE`, Linux 3.19), as in virtio 1.0 and later.
    Little,
    /// Big-endian (`TUNSETVNETBE`, Linux 4.2 with `CONFIG_TUN_VNET_CROSS_LE`), as legacy virtio
    /// guests use on a big-endian processor.
    Big,
}

impl Device {
    /// Changes the offloads for received frames to the best set within `at_most` that the kernel
    /// and the header support, and returns it. Applies immediately to all queues, including those
    /// of other programs.
    ///
    /// # Errors
    /// If the device was deleted.
    pub fn set_offloads(&mut self, at_most: Offloads) -> Result<Offloads, SettingError> {
        let cap = at_most.within(self.prefix.net_header);
        let outcome = negotiate(&self.queues[0], cap);
        self.capabilities.receive = outcome.map_err(self.failed("TUNSETOFFLOAD"))?;
        Ok(self.capabilities.receive)
    }

    /// Sets the MAC address of the interface (`SIOCSIFHWADDR`), even while it is up. Needs a queue
    /// but no privilege.
    ///
    /// # Errors
    /// [`SettingError::Refused`] for a group address; [`SettingError::NotATap`].
    pub fn set_mac(&self, mac: MacAddr) -> Result<(), SettingError> {
        let what = "the MAC address";
        self.must_be_tap(what)?;
        let LinkType(link_type) = self.link_type()?;
        let outcome = ioctl::set_hardware_address(&self.queues[0], link_type, mac.0);
        outcome.map_err(|errno| match errno {
            Errno::ADDRNOTAVAIL => self.refused(what, "use a unicast address other than zero"),
            Errno::BUSY => self.interface_up(what),
            _ => self.failed(what)(errno),
        })
    }

    /// The link type of the interface (`SIOCGIFHWADDR`).
    ///
    /// # Errors
    /// If the device was deleted.
    pub fn link_type(&self) -> Result<LinkType, SettingError> {
        let outcome = ioctl::hardware_address(&self.queues[0]);
        outcome.map(|(link_type, _)| LinkType(link_type)).map_err(self.failed("SIOCGIFHWADDR"))
    }

    /// Sets the link type of the interface (`TUNSETLINK`). From Linux 5.13 on, this also changes
    /// the length of its hardware address.
    ///
    /// # Errors
    /// [`SettingError::InterfaceUp`].
    pub fn set_link_type(&self, link_type: LinkType) -> Result<(), SettingError> {
        let what = "the link type";
        ioctl::set_link_type(&self.queues[0], link_type.0).map_err(|errno| match errno {
            Errno::BUSY => self.interface_up(what),
            _ => self.failed(what)(errno),
        })
    }

    /// Sets the carrier (`TUNSETCARRIER`, Linux 5.0). Without a carrier, the kernel transmits
    /// nothing and programs that monitor links see the link down.
    ///
    /// # Errors
    /// [`SettingError::NoQueue`] if `on` is true and all queues are detached.
    pub fn set_carrier(&self, on: bool) -> Result<(), SettingError> {
        ioctl::set_carrier(&self.queues[0], on).map_err(|errno| match errno {
            Errno::PERM => SettingError::NoQueue { name: self.name.to_string() },
            _ => self.failed("the carrier")(errno),
        })
    }

    /// Sets whether the device outlives its last queue (`TUNSETPERSIST`). Without an owner or a
    /// group, any user may open the device up to Linux 6.18, and only `CAP_NET_ADMIN` on Linux 7.3.
    ///
    /// # Errors
    /// [`SettingError::FilterUnsafe`] while a classic filter is attached.
    pub fn set_persistent(&self, on: bool) -> Result<(), SettingError> {
        if on && self.classic_filter {
            let (name, what) = (self.name.to_string(), "persistent");
            return Err(SettingError::FilterUnsafe { name, what });
        }
        ioctl::set_persistent(&self.queues[0], on).map_err(self.failed("TUNSETPERSIST"))
    }

    /// Sets the user ID that may open the device without `CAP_NET_ADMIN` (`TUNSETOWNER`).
    ///
    /// # Errors
    /// [`SettingError::Refused`] if the user namespace does not map it.
    pub fn set_owner(&self, user: u32) -> Result<(), SettingError> {
        ioctl::set_owner(&self.queues[0], user).map_err(|errno| match errno {
            Errno::INVAL => self.refused("the owner", "name a user of this user namespace"),
            _ => self.failed("TUNSETOWNER")(errno),
        })
    }

    /// Sets the group ID that may open the device without `CAP_NET_ADMIN` (`TUNSETGROUP`, Linux
    /// 2.6.23).
    ///
    /// # Errors
    /// [`SettingError::Refused`] if the user namespace does not map it.
    pub fn set_group(&self, group: u32) -> Result<(), SettingError> {
        ioctl::set_group(&self.queues[0], group).map_err(|errno| match errno {
            Errno::INVAL => self.refused("the group", "name a group of this user namespace"),
            _ => self.failed("TUNSETGROUP")(errno),
        })
    }

    /// Length in bytes of the first queue's send buffer (`TUNGETSNDBUF`, Linux 2.6.30); 2147483647
    /// means unlimited.
    ///
    /// # Errors
    /// If the device was deleted.
    pub fn send_buffer_len(&self) -> Result<u32, SettingError> {
        ioctl::send_buffer_len(&self.queues[0]).map_err(self.failed("TUNGETSNDBUF"))
    }

    /// Sets the length in bytes of the send buffer of each attached queue (`TUNSETSNDBUF`, Linux
    /// 2.6.30), including those of other programs: see
    /// [`Config::send_buffer_len`](crate::Config::send_buffer_len). `None` means unlimited, the
    /// only setting with the fast path for short frames on a tap device. Do not change it on a tun
    /// device with a [`Vhost`](crate::Vhost) engine.
    ///
    /// # Errors
    /// If the device was deleted.
    pub fn set_send_buffer_len(&self, bytes: Option<NonZeroU32>) -> Result<(), SettingError> {
        let unlimited = crate::config::UNLIMITED;
        let len = bytes.map_or(unlimited, |bytes| bytes.get().min(unlimited));
        ioctl::set_send_buffer_len(&self.queues[0], len).map_err(self.failed("TUNSETSNDBUF"))
    }

    /// Byte order of the network header (`TUNGETVNETLE`, `TUNGETVNETBE`).
    ///
    /// # Errors
    /// If the device was deleted.
    pub fn byte_order(&self) -> Result<ByteOrder, SettingError> {
        let queue = &self.queues[0];
        if ioctl::little_endian(queue).map_err(self.failed("TUNGETVNETLE"))? {
            return Ok(ByteOrder::Little);
        }
        match ioctl::big_endian(queue) {
            Ok(true) => Ok(ByteOrder::Big),
            Ok(false) | Err(ioctl::BYTE_ORDER_IS_FIXED) => Ok(ByteOrder::Native),
            Err(errno) => Err(self.failed("TUNGETVNETBE")(errno)),
        }
    }

    /// Sets the byte order of the network header, for frames that are passed on unchanged.
    /// [`NetHeader`](crate::NetHeader) decodes the native order only.
    ///
    /// # Errors
    /// [`SettingError::Refused`] for [`ByteOrder::Big`] if the kernel does not support it.
    pub fn set_byte_order(&self, order: ByteOrder) -> Result<(), SettingError> {
        let queue = &self.queues[0];
        match ioctl::set_big_endian(queue, order == ByteOrder::Big) {
            Err(ioctl::BYTE_ORDER_IS_FIXED) if order == ByteOrder::Big => {
                let remedy = "it must be built with CONFIG_TUN_VNET_CROSS_LE";
                return Err(self.refused("big-endian headers", remedy));
            }
            Ok(()) | Err(ioctl::BYTE_ORDER_IS_FIXED) => {}
            Err(errno) => return Err(self.failed("TUNSETVNETBE")(errno)),
        }
        let outcome = ioctl::set_little_endian(queue, order == ByteOrder::Little);
        outcome.map_err(self.failed("TUNSETVNETLE"))
    }

    pub(super) fn must_be_tap(&self, what: &'static str) -> Result<(), SettingError> {
        match self.kind {
            Kind::Tap => Ok(()),
            Kind::Tun => Err(SettingError::NotATap { name: self.name.to_string(), what }),
        }
    }

    pub(super) fn refused(&self, what: &'static str, remedy: &'static str) -> SettingError {
        SettingError::Refused { name: self.name.to_string(), what, remedy }
    }

    fn interface_up(&self, what: &'static str) -> SettingError {
        SettingError::InterfaceUp { name: self.name.to_string(), what }
    }
}
