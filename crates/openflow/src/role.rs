//! Controller roles and asynchronous messages (OpenFlow 1.3.5 §6.3.7, §7.3.9, §7.3.10).

use crate::codec::{Codec, Reader, Writer, closed_codec, layout_codec};
use crate::fault::Fault;
use crate::{FlowRemovedReason, PacketInReason, PortReason};

/// `OFPT_ROLE_REQUEST` and `OFPT_ROLE_REPLY` (`ofp_role_request`, §7.3.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleMessage {
    /// The role requested or held.
    pub role: ControllerRole,
    /// Generation number of the master election; the switch rejects stale ones.
    pub generation_id: u64,
}

layout_codec!(RoleMessage {
    role,
    pad 4,
    generation_id,
});

/// Role of a controller (`ofp_controller_role`). Unknown values are rejected when decoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ControllerRole {
    /// Query the current role.
    NoChange = 0,
    /// Full access, shared with others.
    #[default]
    Equal = 1,
    /// Full access, exclusive.
    Master = 2,
    /// Read-only access.
    Slave = 3,
}

closed_codec!(
    ControllerRole: u32,
    OFPRRFC_BAD_ROLE,
    "role",
    [NoChange, Equal, Master, Slave]
);

/// `OFPT_GET_ASYNC_REPLY` and `OFPT_SET_ASYNC` (`ofp_async_config`, §7.3.10): which asynchronous
/// messages a controller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncConfig {
    /// While the controller is master or equal: the first word of each pair on the wire.
    pub master: AsyncMask,
    /// While the controller is slave: the second word of each pair.
    pub slave: AsyncMask,
}

impl Default for AsyncConfig {
    /// Initial configuration of a connection (§7.3.10): a slave receives port-status only; the
    /// others receive everything except packet-in for an invalid TTL.
    fn default() -> Self {
        Self {
            master: AsyncMask {
                packet_in: 1 << PacketInReason::NO_MATCH.0 | 1 << PacketInReason::ACTION.0,
                port_status: AsyncMask::ALL_PORT_REASONS,
                flow_removed: 1 << FlowRemovedReason::IDLE_TIMEOUT.0
                    | 1 << FlowRemovedReason::HARD_TIMEOUT.0
                    | 1 << FlowRemovedReason::DELETE.0
                    | 1 << FlowRemovedReason::GROUP_DELETE.0,
            },
            slave: AsyncMask {
                packet_in: 0,
                port_status: AsyncMask::ALL_PORT_REASONS,
                flow_removed: 0,
            },
        }
    }
}

impl Codec for AsyncConfig {
    fn encode(&self, w: &mut Writer<'_>) {
        for mask in [
            |mask: &AsyncMask| mask.packet_in,
            |mask: &AsyncMask| mask.port_status,
            |mask: &AsyncMask| mask.flow_removed,
        ] {
            w.put(&mask(&self.master));
            w.put(&mask(&self.slave));
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut config = Self { master: AsyncMask::default(), slave: AsyncMask::default() };
        (config.master.packet_in, config.slave.packet_in) = (r.take()?, r.take()?);
        (config.master.port_status, config.slave.port_status) = (r.take()?, r.take()?);
        (config.master.flow_removed, config.slave.flow_removed) = (r.take()?, r.take()?);
        Ok(config)
    }
}

/// Wanted reasons of each asynchronous message: bit *r* for reason *r*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsyncMask {
    /// Bits of [`PacketInReason`].
    pub packet_in: u32,
    /// Bits of [`PortReason`].
    pub port_status: u32,
    /// Bits of [`FlowRemovedReason`].
    pub flow_removed: u32,
}

impl AsyncMask {
    /// Addition, removal and change of ports.
    pub const ALL_PORT_REASONS: u32 =
        1 << PortReason::ADD.0 | 1 << PortReason::DELETE.0 | 1 << PortReason::MODIFY.0;
}
