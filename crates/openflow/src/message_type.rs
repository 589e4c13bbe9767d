//! Message types (OpenFlow 1.3.5 §7.1).

use std::fmt;

/// Defines [`MessageType`] and its conversions to numbers and names.
macro_rules! message_types {
    ($($variant:ident = $number:literal, $name:literal, $spec:literal;)*) => {
        /// Type of a message (`ofp_type`, §7.1).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum MessageType {
            $(#[doc = concat!("`", $spec, "`")] $variant = $number,)*
        }

        impl MessageType {
            /// Every type, indexed by its number.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The spec's name in lower case.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

message_types! {
    Hello = 0, "hello", "OFPT_HELLO";
    Error = 1, "error", "OFPT_ERROR";
    EchoRequest = 2, "echo_request", "OFPT_ECHO_REQUEST";
    EchoReply = 3, "echo_reply", "OFPT_ECHO_REPLY";
    Experimenter = 4, "experimenter", "OFPT_EXPERIMENTER";
    FeaturesRequest = 5, "features_request", "OFPT_FEATURES_REQUEST";
    FeaturesReply = 6, "features_reply", "OFPT_FEATURES_REPLY";
    GetConfigRequest = 7, "get_config_request", "OFPT_GET_CONFIG_REQUEST";
    GetConfigReply = 8, "get_config_reply", "OFPT_GET_CONFIG_REPLY";
    SetConfig = 9, "set_config", "OFPT_SET_CONFIG";
    PacketIn = 10, "packet_in", "OFPT_PACKET_IN";
    FlowRemoved = 11, "flow_removed", "OFPT_FLOW_REMOVED";
    PortStatus = 12, "port_status", "OFPT_PORT_STATUS";
    PacketOut = 13, "packet_out", "OFPT_PACKET_OUT";
    FlowMod = 14, "flow_mod", "OFPT_FLOW_MOD";
    GroupMod = 15, "group_mod", "OFPT_GROUP_MOD";
    PortMod = 16, "port_mod", "OFPT_PORT_MOD";
    TableMod = 17, "table_mod", "OFPT_TABLE_MOD";
    MultipartRequest = 18, "multipart_request", "OFPT_MULTIPART_REQUEST";
    MultipartReply = 19, "multipart_reply", "OFPT_MULTIPART_REPLY";
    BarrierRequest = 20, "barrier_request", "OFPT_BARRIER_REQUEST";
    BarrierReply = 21, "barrier_reply", "OFPT_BARRIER_REPLY";
    QueueGetConfigRequest = 22, "queue_get_config_request", "OFPT_QUEUE_GET_CONFIG_REQUEST";
    QueueGetConfigReply = 23, "queue_get_config_reply", "OFPT_QUEUE_GET_CONFIG_REPLY";
    RoleRequest = 24, "role_request", "OFPT_ROLE_REQUEST";
    RoleReply = 25, "role_reply", "OFPT_ROLE_REPLY";
    GetAsyncRequest = 26, "get_async_request", "OFPT_GET_ASYNC_REQUEST";
    GetAsyncReply = 27, "get_async_reply", "OFPT_GET_ASYNC_REPLY";
    SetAsync = 28, "set_async", "OFPT_SET_ASYNC";
    MeterMod = 29, "meter_mod", "OFPT_METER_MOD";
}

impl MessageType {
    /// The type with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

impl fmt::Display for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_is_the_index() {
        for (index, &message_type) in MessageType::ALL.iter().enumerate() {
            assert_eq!(index, message_type as usize);
        }
        assert_eq!(MessageType::from_number(29), Some(MessageType::MeterMod));
        assert_eq!(MessageType::from_number(30), None);
    }
}
