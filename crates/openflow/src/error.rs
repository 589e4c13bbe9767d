//! Error types and codes of OpenFlow (1.3.5 §7.4.4).

use std::fmt;

/// Type and code of an error message. Unknown values are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorKind {
    /// Which part failed.
    pub error_type: ErrorType,
    /// Code; its meaning depends on the type.
    pub code: u16,
}

/// Error type (`ofp_error_type`, §7.4.4). Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct ErrorType(pub u16);

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}/{}", self.error_type, self.code),
        }
    }
}

impl fmt::Debug for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ErrorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "error type {}", self.0),
        }
    }
}

/// Defines the constants of [`ErrorType`] and [`ErrorKind`] and their names.
macro_rules! error_kinds {
    ($($(#[$type_doc:meta])* $type_name:ident = $type:literal {
        $($(#[$doc:meta])* $name:ident = $code:literal,)*
    })*) => {
        impl ErrorType {
            $($(#[$type_doc])* pub const $type_name: Self = Self($type);)*

            /// The spec's name.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$type_name => Some(concat!("OFPET_", stringify!($type_name))),)*
                    _ => None,
                }
            }
        }

        impl ErrorKind {
            $($($(#[$doc])* pub const $name: Self = Self {
                error_type: ErrorType::$type_name,
                code: $code,
            };)*)*

            /// The spec's name.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $($(Self::$name => Some(stringify!($name)),)*)*
                    _ => None,
                }
            }
        }
    };
}

error_kinds! {
    /// The hello protocol failed.
    HELLO_FAILED = 0 {
        /// No compatible version.
        OFPHFC_INCOMPATIBLE = 0,
        /// Permissions error.
        OFPHFC_EPERM = 1,
    }
    /// The request was not understood.
    BAD_REQUEST = 1 {
        /// The version of the header is not supported.
        OFPBRC_BAD_VERSION = 0,
        /// The type of the header is not supported.
        OFPBRC_BAD_TYPE = 1,
        /// The type of multipart is not supported.
        OFPBRC_BAD_MULTIPART = 2,
        /// The experimenter is not supported.
        OFPBRC_BAD_EXPERIMENTER = 3,
        /// The experimenter's type is not supported.
        OFPBRC_BAD_EXP_TYPE = 4,
        /// Permissions error.
        OFPBRC_EPERM = 5,
        /// A length is wrong for the type.
        OFPBRC_BAD_LEN = 6,
        /// The buffer was already used.
        OFPBRC_BUFFER_EMPTY = 7,
        /// The buffer does not exist.
        OFPBRC_BUFFER_UNKNOWN = 8,
        /// The table is invalid or does not exist.
        OFPBRC_BAD_TABLE_ID = 9,
        /// Denied because the controller is slave.
        OFPBRC_IS_SLAVE = 10,
        /// The port is invalid or missing.
        OFPBRC_BAD_PORT = 11,
        /// The packet is invalid.
        OFPBRC_BAD_PACKET = 12,
        /// The multipart request overflowed the buffer.
        OFPBRC_MULTIPART_BUFFER_OVERFLOW = 13,
    }
    /// An action cannot be done.
    BAD_ACTION = 2 {
        /// The action is unknown or not supported.
        OFPBAC_BAD_TYPE = 0,
        /// A length in the actions is wrong.
        OFPBAC_BAD_LEN = 1,
        /// The experimenter is unknown.
        OFPBAC_BAD_EXPERIMENTER = 2,
        /// The experimenter's action is unknown.
        OFPBAC_BAD_EXP_TYPE = 3,
        /// The output port is not valid.
        OFPBAC_BAD_OUT_PORT = 4,
        /// The argument is not valid.
        OFPBAC_BAD_ARGUMENT = 5,
        /// Permissions error.
        OFPBAC_EPERM = 6,
        /// There are too many actions.
        OFPBAC_TOO_MANY = 7,
        /// The queue is not valid.
        OFPBAC_BAD_QUEUE = 8,
        /// The group is not valid.
        OFPBAC_BAD_OUT_GROUP = 9,
        /// The action does not suit the match.
        OFPBAC_MATCH_INCONSISTENT = 10,
        /// The order of the actions is not supported.
        OFPBAC_UNSUPPORTED_ORDER = 11,
        /// The tag or its encapsulation is not supported.
        OFPBAC_BAD_TAG = 12,
        /// The field of a set-field action is not supported.
        OFPBAC_BAD_SET_TYPE = 13,
        /// The length in a set-field action is wrong.
        OFPBAC_BAD_SET_LEN = 14,
        /// The value of a set-field action is not valid.
        OFPBAC_BAD_SET_ARGUMENT = 15,
    }
    /// An instruction cannot be done.
    BAD_INSTRUCTION = 3 {
        /// The instruction is unknown.
        OFPBIC_UNKNOWN_INST = 0,
        /// The instruction is not supported.
        OFPBIC_UNSUP_INST = 1,
        /// The table to go to is not valid.
        OFPBIC_BAD_TABLE_ID = 2,
        /// The metadata value is not supported.
        OFPBIC_UNSUP_METADATA = 3,
        /// The metadata mask is not supported.
        OFPBIC_UNSUP_METADATA_MASK = 4,
        /// The experimenter is unknown.
        OFPBIC_BAD_EXPERIMENTER = 5,
        /// The experimenter's instruction is unknown.
        OFPBIC_BAD_EXP_TYPE = 6,
        /// A length in the instructions is wrong.
        OFPBIC_BAD_LEN = 7,
        /// Permissions error.
        OFPBIC_EPERM = 8,
    }
    /// A match is wrong.
    BAD_MATCH = 4 {
        /// The type of match is not supported.
        OFPBMC_BAD_TYPE = 0,
        /// A length in the match is wrong.
        OFPBMC_BAD_LEN = 1,
        /// The tag or its encapsulation is not supported.
        OFPBMC_BAD_TAG = 2,
        /// The mask of a link-layer address is not supported.
        OFPBMC_BAD_DL_ADDR_MASK = 3,
        /// The mask of a network address is not supported.
        OFPBMC_BAD_NW_ADDR_MASK = 4,
        /// The combination of masked and missing fields is not supported.
        OFPBMC_BAD_WILDCARDS = 5,
        /// The field is not supported.
        OFPBMC_BAD_FIELD = 6,
        /// The value is not supported.
        OFPBMC_BAD_VALUE = 7,
        /// The mask is not supported.
        OFPBMC_BAD_MASK = 8,
        /// A field lacks its prerequisite.
        OFPBMC_BAD_PREREQ = 9,
        /// A field occurs twice.
        OFPBMC_DUP_FIELD = 10,
        /// Permissions error.
        OFPBMC_EPERM = 11,
    }
    /// A flow-mod failed.
    FLOW_MOD_FAILED = 5 {
        /// Reason unspecified.
        OFPFMFC_UNKNOWN = 0,
        /// The table is full.
        OFPFMFC_TABLE_FULL = 1,
        /// The table does not exist.
        OFPFMFC_BAD_TABLE_ID = 2,
        /// An entry overlaps.
        OFPFMFC_OVERLAP = 3,
        /// Permissions error.
        OFPFMFC_EPERM = 4,
        /// The timeouts are not supported.
        OFPFMFC_BAD_TIMEOUT = 5,
        /// The command is unknown.
        OFPFMFC_BAD_COMMAND = 6,
        /// The flags are not supported.
        OFPFMFC_BAD_FLAGS = 7,
    }
    /// A group-mod failed.
    GROUP_MOD_FAILED = 6 {
        /// The group is there already.
        OFPGMFC_GROUP_EXISTS = 0,
        /// The group is not valid.
        OFPGMFC_INVALID_GROUP = 1,
        /// Unequal weights are not supported.
        OFPGMFC_WEIGHT_UNSUPPORTED = 2,
        /// The group table is full.
        OFPGMFC_OUT_OF_GROUPS = 3,
        /// There are too many buckets.
        OFPGMFC_OUT_OF_BUCKETS = 4,
        /// A group cannot output to a group.
        OFPGMFC_CHAINING_UNSUPPORTED = 5,
        /// The watched port or group cannot be watched.
        OFPGMFC_WATCH_UNSUPPORTED = 6,
        /// The groups would make a loop.
        OFPGMFC_LOOP = 7,
        /// The group does not exist.
        OFPGMFC_UNKNOWN_GROUP = 8,
        /// Another group forwards to the group.
        OFPGMFC_CHAINED_GROUP = 9,
        /// The type of group is not supported.
        OFPGMFC_BAD_TYPE = 10,
        /// The command is unknown.
        OFPGMFC_BAD_COMMAND = 11,
        /// A bucket is wrong.
        OFPGMFC_BAD_BUCKET = 12,
        /// The watched port or group is wrong.
        OFPGMFC_BAD_WATCH = 13,
        /// Permissions error.
        OFPGMFC_EPERM = 14,
    }
    /// A port-mod failed.
    PORT_MOD_FAILED = 7 {
        /// The port does not exist.
        OFPPMFC_BAD_PORT = 0,
        /// The MAC address is not that of the port.
        OFPPMFC_BAD_HW_ADDR = 1,
        /// The configuration is not valid.
        OFPPMFC_BAD_CONFIG = 2,
        /// The features to advertise are not valid.
        OFPPMFC_BAD_ADVERTISE = 3,
        /// Permissions error.
        OFPPMFC_EPERM = 4,
    }
    /// A table-mod failed.
    TABLE_MOD_FAILED = 8 {
        /// The table does not exist.
        OFPTMFC_BAD_TABLE = 0,
        /// The configuration is not valid.
        OFPTMFC_BAD_CONFIG = 1,
        /// Permissions error.
        OFPTMFC_EPERM = 2,
    }
    /// A request about queues failed.
    QUEUE_OP_FAILED = 9 {
        /// The port is not valid.
        OFPQOFC_BAD_PORT = 0,
        /// The queue does not exist.
        OFPQOFC_BAD_QUEUE = 1,
        /// Permissions error.
        OFPQOFC_EPERM = 2,
    }
    /// A set-config failed.
    SWITCH_CONFIG_FAILED = 10 {
        /// The flags are not valid.
        OFPSCFC_BAD_FLAGS = 0,
        /// The length of what is sent for a miss is not valid.
        OFPSCFC_BAD_LEN = 1,
        /// Permissions error.
        OFPSCFC_EPERM = 2,
    }
    /// A role request failed.
    ROLE_REQUEST_FAILED = 11 {
        /// The generation number is stale.
        OFPRRFC_STALE = 0,
        /// Roles cannot be changed.
        OFPRRFC_UNSUP = 1,
        /// The role is not valid.
        OFPRRFC_BAD_ROLE = 2,
    }
    /// A meter-mod failed.
    METER_MOD_FAILED = 12 {
        /// Reason unspecified.
        OFPMMFC_UNKNOWN = 0,
        /// The meter is there already.
        OFPMMFC_METER_EXISTS = 1,
        /// The meter is not valid.
        OFPMMFC_INVALID_METER = 2,
        /// The meter does not exist.
        OFPMMFC_UNKNOWN_METER = 3,
        /// The command is unknown.
        OFPMMFC_BAD_COMMAND = 4,
        /// The flags are not supported.
        OFPMMFC_BAD_FLAGS = 5,
        /// The rate is not supported.
        OFPMMFC_BAD_RATE = 6,
        /// The burst size is not supported.
        OFPMMFC_BAD_BURST = 7,
        /// The band is not supported.
        OFPMMFC_BAD_BAND = 8,
        /// The band's value is not supported.
        OFPMMFC_BAD_BAND_VALUE = 9,
        /// There are too many meters.
        OFPMMFC_OUT_OF_METERS = 10,
        /// There are too many bands.
        OFPMMFC_OUT_OF_BANDS = 11,
    }
    /// A change of table features failed.
    TABLE_FEATURES_FAILED = 13 {
        /// The table does not exist.
        OFPTFFC_BAD_TABLE = 0,
        /// The metadata mask is not valid.
        OFPTFFC_BAD_METADATA = 1,
        /// The property is unknown.
        OFPTFFC_BAD_TYPE = 2,
        /// A length in the properties is wrong.
        OFPTFFC_BAD_LEN = 3,
        /// The property's value is not supported.
        OFPTFFC_BAD_ARGUMENT = 4,
        /// Permissions error.
        OFPTFFC_EPERM = 5,
    }
    /// An experimenter's error; the code is the experimenter's type.
    EXPERIMENTER = 0xffff {}
}
