//! Filtering of asynchronous messages (OpenFlow 1.3.5 §6.3.7, §7.3.10).

use tapswitch_openflow::{AsyncConfig, Body, ControllerRole};

/// Whether a controller with this configuration and role receives `body`. Messages that are not
/// asynchronous are always sent.
pub fn wants(config: &AsyncConfig, role: ControllerRole, body: &Body) -> bool {
    let masks = match role {
        ControllerRole::Slave => config.slave,
        _ => config.master,
    };
    let (mask, reason) = match body {
        Body::PacketIn(packet_in) => (masks.packet_in, packet_in.reason.0),
        Body::PortStatus(port_status) => (masks.port_status, port_status.reason.0),
        Body::FlowRemoved(flow_removed) => (masks.flow_removed, flow_removed.reason.0),
        _ => return true,
    };
    1u32.checked_shl(reason.into()).is_some_and(|bit| mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_openflow::{BufferId, Match, PacketIn, PacketInReason, TableId};

    fn packet_in(reason: u8) -> Body {
        Body::PacketIn(PacketIn {
            buffer_id: BufferId::NO_BUFFER,
            total_len: 0,
            reason: PacketInReason(reason),
            table_id: TableId(0),
            cookie: 0,
            match_fields: Match::new(),
            data: Vec::new(),
        })
    }

    #[test]
    fn the_role_picks_the_mask_and_the_reason_the_bit() {
        let config = AsyncConfig::default();
        let no_match = packet_in(PacketInReason::NO_MATCH.0);
        assert!(wants(&config, ControllerRole::Equal, &no_match));
        assert!(wants(&config, ControllerRole::Master, &no_match));
        assert!(!wants(&config, ControllerRole::Slave, &no_match));
        let invalid_ttl = packet_in(PacketInReason::INVALID_TTL.0);
        assert!(!wants(&config, ControllerRole::Master, &invalid_ttl));
    }

    #[test]
    fn reasons_beyond_the_mask_are_not_wanted() {
        let mut config = AsyncConfig::default();
        config.master.packet_in = u32::MAX;
        assert!(wants(&config, ControllerRole::Equal, &packet_in(31)));
        assert!(!wants(&config, ControllerRole::Equal, &packet_in(32)));
    }

    #[test]
    fn replies_are_always_wanted() {
        assert!(wants(&AsyncConfig::default(), ControllerRole::Slave, &Body::BarrierReply));
    }
}
