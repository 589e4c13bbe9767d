//! State of one network interface.

use netlink_packet_route::link::{
    InfoData, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, State, Stats64,
};

use crate::TunInfo;

/// State of one network interface when the kernel was queried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Link {
    /// Index, unique in its namespace.
    pub index: u32,
    /// Name, at most 15 bytes.
    pub name: String,
    /// MAC address; `None` if it does not have six bytes, as on a tun device.
    pub mac: Option<[u8; 6]>,
    /// Maximum payload in bytes after the Ethernet header.
    pub mtu: u32,
    /// Minimum and maximum MTU of the driver (Linux 4.19); zero for no bound.
    pub mtu_bounds: (u32, u32),
    /// Administratively up (`IFF_UP`).
    pub up: bool,
    /// Up and operational according to the kernel (`IFF_RUNNING`).
    pub running: bool,
    /// The driver sees a carrier (`IFF_LOWER_UP`).
    pub lower_up: bool,
    /// Operational state (RFC 2863).
    pub oper_state: OperState,
    /// Length of the transmit queue in packets; on a tap device the length of each queue's ring.
    pub txqueuelen: u32,
    /// Driver such as `veth`, `tun`, `bridge`; `None` for hardware.
    pub kind: Option<String>,
    /// Link type (`ARPHRD_*`, `include/uapi/linux/if_arp.h`): 1 for Ethernet, 65534 for IP packets
    /// without a header.
    pub link_type: u16,
    /// Properties of a tun or tap device, `None` for all others.
    pub tun: Option<TunInfo>,
    /// VLAN identifier of a `vlan` interface.
    pub vlan: Option<u16>,
    /// Index of the interface below it, for a `vlan` for example; `None` if that is in another
    /// namespace.
    pub lower: Option<u32>,
    /// Index of the bridge, bond or the like that it is a port of (`IFLA_MASTER`).
    pub controller: Option<u32>,
    /// Kind of its root queueing discipline; see [`crate::Qdisc`] for details.
    pub qdisc: Option<String>,
    /// Maximum length in bytes of a train that the network stack builds for it (`gso_max_size`).
    pub gso_max_size: Option<u32>,
    /// Maximum length in bytes of a train that its driver supports (Linux 5.19).
    pub tso_max_size: Option<u32>,
    /// Maximum length in bytes of a train that received packets are joined into (Linux 5.19).
    pub gro_max_size: Option<u32>,
    /// Number of allocated transmit queues; on a tun device 1 or 256, however many are open.
    pub tx_queues: Option<u32>,
    /// Number of allocated receive queues.
    pub rx_queues: Option<u32>,
    /// Number of users that requested promiscuous mode.
    pub promiscuity: u32,
    /// Carrier as set by its driver or program (`IFLA_CARRIER`).
    pub carrier: Option<bool>,
    /// Alias set by the administrator (`ip link set alias`), at most 255 bytes.
    pub alias: Option<String>,
    /// Counters since the interface was created.
    pub stats: LinkStats,
}

impl Link {
    pub(crate) fn from_message(message: LinkMessage) -> Self {
        let flags = message.header.flags;
        let mut link = Self {
            index: message.header.index,
            up: flags.contains(LinkFlags::Up),
            running: flags.contains(LinkFlags::Running),
            lower_up: flags.contains(LinkFlags::LowerUp),
            link_type: message.header.link_layer_type.into(),
            ..Self::default()
        };
        let is_abroad = |it: &LinkAttribute| matches!(it, LinkAttribute::LinkNetNsId(_));
        let lower_is_abroad = message.attributes.iter().any(is_abroad);
        for attribute in message.attributes {
            link.set(attribute);
        }
        link.lower.take_if(|_| lower_is_abroad);
        link
    }

    fn set(&mut self, attribute: LinkAttribute) {
        match attribute {
            LinkAttribute::IfName(name) => self.name = name,
            LinkAttribute::Address(bytes) => self.mac = bytes.try_into().ok(),
            LinkAttribute::Mtu(mtu) => self.mtu = mtu,
            LinkAttribute::MinMtu(mtu) => self.mtu_bounds.0 = mtu,
            LinkAttribute::MaxMtu(mtu) => self.mtu_bounds.1 = mtu,
            LinkAttribute::TxQueueLen(len) => self.txqueuelen = len,
            LinkAttribute::OperState(state) => self.oper_state = state.into(),
            LinkAttribute::Stats64(stats) => self.stats = stats.into(),
            LinkAttribute::LinkInfo(info) => info.into_iter().for_each(|item| self.set_info(item)),
            LinkAttribute::Link(index) => self.lower = Some(index),
            LinkAttribute::Controller(index) => self.controller = Some(index),
            LinkAttribute::Qdisc(kind) => self.qdisc = Some(kind),
            LinkAttribute::GsoMaxSize(len) => self.gso_max_size = Some(len),
            LinkAttribute::TsoMaxSize(len) => self.tso_max_size = Some(len),
            LinkAttribute::GroMaxSize(len) => self.gro_max_size = Some(len),
            LinkAttribute::NumTxQueues(count) => self.tx_queues = Some(count),
            LinkAttribute::NumRxQueues(count) => self.rx_queues = Some(count),
            LinkAttribute::Promiscuity(count) => self.promiscuity = count,
            LinkAttribute::Carrier(carrier) => self.carrier = Some(carrier != 0),
            LinkAttribute::IfAlias(alias) => self.alias = Some(alias).filter(|it| !it.is_empty()),
            _ => {}
        }
    }

    fn set_info(&mut self, info: LinkInfo) {
        match info {
            LinkInfo::Kind(kind) => self.kind = Some(kind.to_string()),
            LinkInfo::Data(InfoData::Tun(attributes)) => {
                self.tun = Some(TunInfo::from_attributes(&attributes));
            }
            LinkInfo::Data(InfoData::Vlan(attributes)) => {
                self.vlan = attributes.iter().find_map(|attribute| match attribute {
                    InfoVlan::Id(id) => Some(*id),
                    _ => None,
                });
            }
            _ => {}
        }
    }
}

/// Operational state of an interface (RFC 2863, `IF_OPER_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OperState {
    /// Not reported by the driver; always the case for tap devices and `lo`.
    #[default]
    Unknown,
    /// Hardware is missing.
    NotPresent,
    /// Down.
    Down,
    /// Down because of the interface below it.
    LowerLayerDown,
    /// In a test mode.
    Testing,
    /// Waits for an external event, such as 802.1X.
    Dormant,
    /// Up.
    Up,
}

impl From<State> for OperState {
    fn from(state: State) -> Self {
        match state {
            State::NotPresent => Self::NotPresent,
            State::Down => Self::Down,
            State::LowerLayerDown => Self::LowerLayerDown,
            State::Testing => Self::Testing,
            State::Dormant => Self::Dormant,
            State::Up => Self::Up,
            _ => Self::Unknown,
        }
    }
}

/// Counters of an interface from the view of the *kernel*: on a tap device `rx` counts frames that
/// a program wrote, and `tx_dropped` frames that no program read in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkStats {
    /// Packets received; a train counts as one on most virtual interfaces.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received with an error.
    pub rx_errors: u64,
    /// Failed to be sent.
    pub tx_errors: u64,
    /// Received and dropped.
    pub rx_dropped: u64,
    /// Dropped instead of sent.
    pub tx_dropped: u64,
    /// Group-addressed frames received.
    pub multicast: u64,
}

impl From<Stats64> for LinkStats {
    fn from(stats: Stats64) -> Self {
        Self {
            rx_packets: stats.rx_packets,
            tx_packets: stats.tx_packets,
            rx_bytes: stats.rx_bytes,
            tx_bytes: stats.tx_bytes,
            rx_errors: stats.rx_errors,
            tx_errors: stats.tx_errors,
            rx_dropped: stats.rx_dropped,
            tx_dropped: stats.tx_dropped,
            multicast: stats.multicast,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_becomes_a_link() {
        let mut message = LinkMessage::default();
        message.header.index = 7;
        message.header.flags = LinkFlags::Up | LinkFlags::Running;
        message.attributes = vec![
            LinkAttribute::IfName("eth0".to_owned()),
            LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]),
            LinkAttribute::Mtu(9000),
            LinkAttribute::OperState(State::Up),
        ];
        let link = Link::from_message(message);
        assert_eq!((link.index, link.name.as_str(), link.mtu), (7, "eth0", 9000));
        assert_eq!(link.mac, Some([2, 0, 0, 0, 0, 1]));
        assert!(link.up && link.running && !link.lower_up);
        assert_eq!(link.oper_state, OperState::Up);
    }

    #[test]
    fn an_address_of_another_length_is_no_mac() {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::Address(vec![0; 20])];
        assert_eq!(Link::from_message(message).mac, None);
    }
}
