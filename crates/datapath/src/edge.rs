//! Drop reasons: every frame that does not leave through a port ends under exactly one of these
//! names, and is counted there.

use std::fmt;

/// Why a frame, or one of its copies, was dropped.
///
/// The names are part of the interface: counters, tables and metrics show them unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The frame ends inside its Ethernet header, or was cut short by the port.
    Truncated,
    /// The kernel took a frame off the port's queue and lost it.
    IngressLost,
    /// Received by a port for IP without Ethernet, and not an IP packet.
    IngressNotIp,
    /// Sent by a guest on a queue that its VMM has disabled, or not enabled yet.
    QueueDisabled,
    /// Received by a tunnel, and not a datagram of its encapsulation.
    NotEncapsulated,
    /// Received by a tunnel, and of another network (VNI).
    WrongTunnel,
    /// Marked by routers on its way through a tunnel, while its sender is not ECN-capable: dropped
    /// as they would have dropped it (RFC 6040 §4.2).
    OuterCongested,
    /// The offload metadata cannot be true, such as a checksum outside the frame.
    BadMetadata,
    /// The ingress port has `OFPPC_NO_RECV` or `OFPPC_PORT_DOWN` set.
    PortNoReceive,
    /// The ingress port's mode does not accept a frame with these tags: see [`crate::vlan`].
    VlanFiltered,
    /// An IP fragment, while `OFPC_FRAG_DROP` is set (OpenFlow 1.3.5 §7.3.2).
    Fragment,
    /// No rule matched in a table without a table-miss rule (OpenFlow 1.3.5 §5.4).
    TableMiss,
    /// The matching rules have no output: dropped by policy.
    NoOutput,
    /// A rule decrements a TTL that is already 0 or 1.
    InvalidTtl,
    /// A band of a meter drops what exceeds its rate (OpenFlow 1.3.5 §5.7).
    Metered,
    /// Addressed to the bridge group (IEEE 802.1Q-2022 §8.6.3), which NORMAL must not forward.
    BridgeReserved,
    /// The only output is the ingress port (OpenFlow 1.3.5 §7.2.1, `OFPP_IN_PORT`).
    InputPort,
    /// The group has no bucket, or no live one.
    NoLiveBucket,
    /// The rule names a group that was deleted.
    NoSuchGroup,
    /// Groups, or meters that remark, chain deeper than the switch follows, or groups need more
    /// steps than it executes.
    TooDeep,
    /// An action does not apply to the frame.
    BadAction,
    /// Output to the controller by a table-miss rule, while the ingress port has
    /// `OFPPC_NO_PACKET_IN` set.
    PortNoPacketIn,
    /// Output to the controller while none is connected.
    NoController,
    /// Output to the controller while its queue is full.
    ControllerQueueFull,
    /// The egress port does not exist.
    NoSuchPort,
    /// The egress port is down, by configuration or by link; or it is a file that had reached its
    /// limit when the frame was to be written.
    PortDown,
    /// The egress port has `OFPPC_NO_FWD` set.
    PortNoForward,
    /// The egress port's mode makes it no member of the frame's VLAN: see [`crate::vlan`]. Floods
    /// skip such a port, which is not a drop.
    VlanNotMember,
    /// The payload does not fit the egress port's MTU, or the tags do not fit its envelope (IEEE
    /// 802.3as).
    Oversize,
    /// The train cannot be cut, or a partial checksum cannot be completed, for a port that does not
    /// take it.
    CannotSegment,
    /// The egress port's queue is full, and no sender waits for it: see
    /// [`Delivery`](tapswitch_openflow::Delivery).
    EgressFull,
    /// The egress port has taken nothing for longer than senders wait for it, and its queue is
    /// full.
    EgressStalled,
    /// A copy that was left out by sampling, or under pressure by the contract
    /// `sample-on-pressure`.
    SampledOut,
    /// The frame waited for a port that was removed, or for its disk, or was read ahead from such a
    /// port; or the switch stopped meanwhile.
    PortRemoved,
    /// The egress port takes IP packets without Ethernet, and this is another protocol, or an IP
    /// packet in a VLAN.
    NotIp,
    /// The egress port takes IP packets without Ethernet, and the frame is addressed to another
    /// station.
    NotAddressed,
    /// The kernel refused the frame on the egress port.
    EgressRejected,
    /// The egress port's device is gone or failed.
    EgressFailed,
}

impl DropReason {
    /// All reasons, in the order in which they are counted.
    pub const ALL: [Self; 38] = [
        Self::Truncated,
        Self::IngressLost,
        Self::IngressNotIp,
        Self::QueueDisabled,
        Self::NotEncapsulated,
        Self::WrongTunnel,
        Self::OuterCongested,
        Self::BadMetadata,
        Self::PortNoReceive,
        Self::VlanFiltered,
        Self::Fragment,
        Self::TableMiss,
        Self::NoOutput,
        Self::InvalidTtl,
        Self::Metered,
        Self::BridgeReserved,
        Self::InputPort,
        Self::NoLiveBucket,
        Self::NoSuchGroup,
        Self::TooDeep,
        Self::BadAction,
        Self::PortNoPacketIn,
        Self::NoController,
        Self::ControllerQueueFull,
        Self::NoSuchPort,
        Self::PortDown,
        Self::PortNoForward,
        Self::VlanNotMember,
        Self::Oversize,
        Self::CannotSegment,
        Self::EgressFull,
        Self::EgressStalled,
        Self::SampledOut,
        Self::PortRemoved,
        Self::NotIp,
        Self::NotAddressed,
        Self::EgressRejected,
        Self::EgressFailed,
    ];
    /// Number of reasons.
    pub const COUNT: usize = Self::ALL.len();

    /// The name of the drop.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::IngressLost => "ingress_lost",
            Self::IngressNotIp => "ingress_not_ip",
            Self::QueueDisabled => "queue_disabled",
            Self::NotEncapsulated => "not_encapsulated",
            Self::WrongTunnel => "wrong_tunnel",
            Self::OuterCongested => "outer_congested",
            Self::BadMetadata => "bad_metadata",
            Self::PortNoReceive => "port_no_receive",
            Self::VlanFiltered => "vlan_filtered",
            Self::Fragment => "fragment",
            Self::TableMiss => "table_miss",
            Self::NoOutput => "no_output",
            Self::InvalidTtl => "invalid_ttl",
            Self::Metered => "metered",
            Self::BridgeReserved => "bridge_reserved",
            Self::InputPort => "input_port",
            Self::NoLiveBucket => "no_live_bucket",
            Self::NoSuchGroup => "no_such_group",
            Self::TooDeep => "too_deep",
            Self::BadAction => "bad_action",
            Self::PortNoPacketIn => "port_no_packet_in",
            Self::NoController => "no_controller",
            Self::ControllerQueueFull => "controller_queue_full",
            Self::NoSuchPort => "no_such_port",
            Self::PortDown => "port_down",
            Self::PortNoForward => "port_no_forward",
            Self::VlanNotMember => "vlan_not_member",
            Self::Oversize => "oversize",
            Self::CannotSegment => "cannot_segment",
            Self::EgressFull => "egress_full",
            Self::EgressStalled => "egress_stalled",
            Self::SampledOut => "sampled_out",
            Self::PortRemoved => "port_removed",
            Self::NotIp => "not_ip",
            Self::NotAddressed => "not_addressed",
            Self::EgressRejected => "egress_rejected",
            Self::EgressFailed => "egress_failed",
        }
    }

    /// True if the drop counts at the egress port, false if at the ingress port.
    pub const fn is_egress(self) -> bool {
        matches!(
            self,
            Self::PortDown
                | Self::PortNoForward
                | Self::VlanNotMember
                | Self::Oversize
                | Self::CannotSegment
                | Self::EgressFull
                | Self::EgressStalled
                | Self::SampledOut
                | Self::PortRemoved
                | Self::NotIp
                | Self::NotAddressed
                | Self::EgressRejected
                | Self::EgressFailed
        )
    }

    /// Position in [`Self::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_drop_reasons_has_each_of_them_once_and_no_other() {
        let page = include_str!("../../../docs/drops.md");
        let row = |line: &'static str| line.strip_prefix("| `")?.split_once('`');
        let mut listed: Vec<_> = page.lines().filter_map(row).map(|(name, _)| name).collect();
        // Includes what the kernel drops before the switch, which is not a reason of the datapath.
        let mut expected: Vec<_> = DropReason::ALL.map(DropReason::name).to_vec();
        expected.push("ring_full");
        listed.sort_unstable();
        expected.sort_unstable();
        assert_eq!(listed, expected);
    }

    #[test]
    fn the_page_of_drop_reasons_tells_at_which_port_each_is_counted() {
        let page = include_str!("../../../docs/drops.md");
        let (_, egress) = page.split_once("## Counted at the egress port").unwrap();
        let (egress, _) = egress.split_once("## Counted by the kernel").unwrap();
        for reason in DropReason::ALL {
            let is_there = egress.contains(&format!("\n| `{}` |", reason.name()));
            assert_eq!(is_there, reason.is_egress(), "{reason}");
        }
    }

    #[test]
    fn each_reason_has_its_own_place_and_name() {
        for (position, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), position);
            assert!(DropReason::ALL[..position].iter().all(|other| other.name() != reason.name()));
        }
    }
}
