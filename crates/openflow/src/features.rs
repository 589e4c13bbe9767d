//! Datapath id and capabilities of a switch (OpenFlow 1.3.5 §7.3.1).

use bitflags::bitflags;

use crate::DatapathId;
use crate::codec::{flags_codec, layout_codec};

/// `OFPT_FEATURES_REPLY` (`ofp_switch_features`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeaturesReply {
    /// Unique id of the datapath.
    pub datapath_id: DatapathId,
    /// Packets that the switch can buffer at once.
    pub n_buffers: u32,
    /// Number of flow tables.
    pub n_tables: u8,
    /// 0 for the main connection, else the number of the auxiliary one (§6.3.8).
    pub auxiliary_id: u8,
    /// Capabilities.
    pub capabilities: Capabilities,
}

layout_codec!(FeaturesReply {
    datapath_id,
    n_buffers,
    n_tables,
    auxiliary_id,
    pad 2,
    capabilities,
    pad 4,
});

bitflags! {
    /// Capabilities of a switch (`ofp_capabilities`, §7.3.1).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Capabilities: u32 {
        /// Statistics of flows.
        const FLOW_STATS = 1 << 0;
        /// Statistics of tables.
        const TABLE_STATS = 1 << 1;
        /// Statistics of ports.
        const PORT_STATS = 1 << 2;
        /// Statistics of groups.
        const GROUP_STATS = 1 << 3;
        /// Reassembly of IP fragments.
        const IP_REASM = 1 << 5;
        /// Statistics of queues.
        const QUEUE_STATS = 1 << 6;
        /// The switch itself blocks ports to prevent loops.
        const PORT_BLOCKED = 1 << 8;
    }
}

flags_codec!(Capabilities);
