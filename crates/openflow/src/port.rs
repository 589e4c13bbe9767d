//! Ports: description, status and modification (OpenFlow 1.3.5 §7.2.1, §7.3.4.3, §7.4.3).

use bitflags::{Flags as _, bitflags};
use tapswitch_wire::MacAddr;

use crate::codec::{flags_codec, layout_codec, newtype_codec};
use crate::{CheckError, ErrorKind, PortNo, Text};

/// Description of a port (`ofp_port`, §7.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Number of the port.
    pub port_no: PortNo,
    /// MAC address.
    pub hw_addr: MacAddr,
    /// Name, by convention that of the interface.
    pub name: Text<16>,
    /// Administrative configuration.
    pub config: PortConfig,
    /// State of the link.
    pub state: PortState,
    /// Features in use.
    pub curr: PortFeatures,
    /// Features that the port advertises.
    pub advertised: PortFeatures,
    /// Features that the port supports.
    pub supported: PortFeatures,
    /// Features that the other end advertises.
    pub peer: PortFeatures,
    /// Current bit rate in kbit/s.
    pub curr_speed: u32,
    /// Highest bit rate in kbit/s.
    pub max_speed: u32,
}

impl Port {
    /// A port with default configuration and no features.
    pub fn new(port_no: PortNo, hw_addr: MacAddr, name: &str, state: PortState) -> Self {
        let (config, features) = (PortConfig::empty(), PortFeatures::empty());
        Self {
            port_no,
            hw_addr,
            name: Text::new(name),
            config,
            state,
            curr: features,
            advertised: features,
            supported: features,
            peer: features,
            curr_speed: 0,
            max_speed: 0,
        }
    }
}

layout_codec!(Port {
    port_no,
    pad 4,
    hw_addr,
    pad 2,
    name,
    config,
    state,
    curr,
    advertised,
    supported,
    peer,
    curr_speed,
    max_speed,
});

/// `OFPT_PORT_STATUS`: a port was added, removed or changed (§7.4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// The change.
    pub reason: PortReason,
    /// The port after the change.
    pub desc: Port,
}

layout_codec!(PortStatus {
    reason,
    pad 7,
    desc,
});

/// Change of a port (`ofp_port_reason`, §7.4.3). Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PortReason(pub u8);

impl PortReason {
    /// The port was added.
    pub const ADD: Self = Self(0);
    /// The port was removed.
    pub const DELETE: Self = Self(1);
    /// An attribute of the port changed.
    pub const MODIFY: Self = Self(2);
}

newtype_codec!(PortReason);

/// `OFPT_PORT_MOD`: change a port's behaviour (§7.3.4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMod {
    /// The port.
    pub port_no: PortNo,
    /// Its MAC address, which guards against a reused number.
    pub hw_addr: MacAddr,
    /// New values of the bits in `mask`.
    pub config: PortConfig,
    /// Bits to change.
    pub mask: PortConfig,
    /// Features to advertise; empty to leave them as they are.
    pub advertise: PortFeatures,
}

impl PortMod {
    /// Validates port number and bits.
    pub fn check(&self) -> Result<(), CheckError> {
        let refuse = |kind, text: String| Err(CheckError::new(kind, format!("port_mod: {text}")));
        if !self.port_no.is_real() && self.port_no != PortNo::LOCAL {
            let text = format!("port {} cannot be modified", self.port_no);
            return refuse(ErrorKind::OFPPMFC_BAD_PORT, text);
        }
        if (self.config | self.mask).contains_unknown_bits() {
            let text = format!("unknown bits in {:?}", self.config | self.mask);
            return refuse(ErrorKind::OFPPMFC_BAD_CONFIG, text);
        }
        if self.advertise.contains_unknown_bits() {
            let text = format!("unknown bits in {:?}", self.advertise);
            return refuse(ErrorKind::OFPPMFC_BAD_ADVERTISE, text);
        }
        Ok(())
    }
}

layout_codec!(PortMod {
    port_no,
    pad 4,
    hw_addr,
    pad 2,
    config,
    mask,
    advertise,
    pad 4,
});

bitflags! {
    /// Administrative configuration of a port (`ofp_port_config`, §7.2.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortConfig: u32 {
        /// Administratively down.
        const PORT_DOWN = 1 << 0;
        /// Drop all packets that arrive.
        const NO_RECV = 1 << 2;
        /// Drop packets forwarded to the port.
        const NO_FWD = 1 << 5;
        /// Send no packet-in for the port.
        const NO_PACKET_IN = 1 << 6;
    }
}

bitflags! {
    /// State of a port's link (`ofp_port_state`, §7.2.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortState: u32 {
        /// No physical link.
        const LINK_DOWN = 1 << 0;
        /// A protocol outside OpenFlow blocks floods to the port; explicit output works.
        const BLOCKED = 1 << 1;
        /// Live for fast failover groups.
        const LIVE = 1 << 2;
        /// tapswitch extension: the port sends no frames with an S-tag, or only some of them.
        const NO_SERVICE_TAGS = 1 << 31;
    }
}

bitflags! {
    /// Features of a port (`ofp_port_features`, §7.2.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PortFeatures: u32 {
        /// 10 Mbit/s half duplex.
        const RATE_10MB_HD = 1 << 0;
        /// 10 Mbit/s full duplex.
        const RATE_10MB_FD = 1 << 1;
        /// 100 Mbit/s half duplex.
        const RATE_100MB_HD = 1 << 2;
        /// 100 Mbit/s full duplex.
        const RATE_100MB_FD = 1 << 3;
        /// 1 Gbit/s half duplex.
        const RATE_1GB_HD = 1 << 4;
        /// 1 Gbit/s full duplex.
        const RATE_1GB_FD = 1 << 5;
        /// 10 Gbit/s full duplex.
        const RATE_10GB_FD = 1 << 6;
        /// 40 Gbit/s full duplex.
        const RATE_40GB_FD = 1 << 7;
        /// 100 Gbit/s full duplex.
        const RATE_100GB_FD = 1 << 8;
        /// 1 Tbit/s full duplex.
        const RATE_1TB_FD = 1 << 9;
        /// A rate not in this list.
        const RATE_OTHER = 1 << 10;
        /// Copper medium.
        const COPPER = 1 << 11;
        /// Fibre medium.
        const FIBER = 1 << 12;
        /// Auto-negotiation.
        const AUTONEG = 1 << 13;
        /// Pause.
        const PAUSE = 1 << 14;
        /// Asymmetric pause.
        const PAUSE_ASYM = 1 << 15;
    }
}

flags_codec!(PortConfig, PortState, PortFeatures);
