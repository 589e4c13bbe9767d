//! Messages that the two switches refuse for different reasons, or only one of them refuses, and
//! why. "OVS" is Open vSwitch.

use tapswitch_openflow::{ErrorKind, ErrorType, MessageType};

use crate::messages::Sent;

/// Whether both respond to a message alike, or differ on purpose.
pub(crate) fn are_alike(sent: &Sent, theirs: Option<&ErrorKind>, ours: Option<&ErrorKind>) -> bool {
    let (theirs, ours) = (theirs.copied(), ours.copied());
    let of = |list: &[(MessageType, ErrorKind)], kind| {
        list.iter().any(|(of, known)| *of as u8 == sent.message_type && *known == kind)
    };
    match (theirs, ours) {
        _ if theirs == ours => true,
        // OVS checks groups only if a modification finds rules.
        (None, Some(ErrorKind::OFPBAC_BAD_OUT_GROUP)) if sent.modifies_rules() => true,
        // Of several errors in a meter-mod, each may report another first; a single one is reported
        // alike (`meters_are_refused_alike`).
        (Some(_), Some(_)) if sent.message_type == MessageType::MeterMod as u8 => true,
        // OVS checks the role of the sender before it decodes the message.
        (Some(ErrorKind::OFPBRC_IS_SLAVE), Some(_)) => true,
        // OVS reports a wrong length of the message, our switch the part that is inconsistent
        // (1.3.5 §7.4.4).
        (Some(ErrorKind::OFPBRC_BAD_LEN), Some(ours)) if PARTS.contains(&ours) => true,
        // Of several errors, our switch first reports an unknown command, group, match or action.
        (Some(_), Some(ours)) if FIRST.contains(&ours) => true,
        // OVS's own error codes, and ports above its 16 bits.
        (Some(ErrorKind { error_type: ErrorType::EXPERIMENTER, .. }), Some(_)) => true,
        (Some(ErrorKind::OFPBMC_BAD_VALUE), Some(_)) => true,
        // OVS checks the match before it reads on.
        (Some(ErrorKind::OFPBMC_DUP_FIELD), Some(_)) => true,
        // OVS checks groups last: it had no reason to refuse what our switch refuses.
        (Some(ErrorKind::OFPBAC_BAD_OUT_GROUP), Some(ours)) if of(STRICTER, ours) => true,
        (Some(theirs), Some(ours)) => OTHERS.contains(&(theirs, ours)),
        (None, Some(ours)) => of(STRICTER, ours),
        (Some(theirs), None) => of(LAXER, theirs),
        (None, None) => true,
    }
}

const PARTS: &[ErrorKind] = &[
    ErrorKind::OFPBMC_BAD_LEN,
    ErrorKind::OFPBIC_BAD_LEN,
    ErrorKind::OFPBAC_BAD_LEN,
    ErrorKind::OFPTFFC_BAD_LEN,
    ErrorKind::OFPGMFC_BAD_BUCKET,
];

const FIRST: &[ErrorKind] = &[
    ErrorKind::OFPGMFC_GROUP_EXISTS,
    ErrorKind::OFPGMFC_UNKNOWN_GROUP,
    ErrorKind::OFPGMFC_BAD_COMMAND,
    ErrorKind::OFPFMFC_BAD_COMMAND,
    ErrorKind::OFPBMC_BAD_VALUE,
    ErrorKind::OFPBMC_BAD_MASK,
    ErrorKind::OFPBAC_BAD_TYPE,
    // OVS checks groups last.
    ErrorKind::OFPBAC_BAD_OUT_GROUP,
];

/// Errors of OVS, and ours for the same message.
const OTHERS: &[(ErrorKind, ErrorKind)] = &[
    // Fields that OVS supports in addition to OpenFlow 1.3 have values that can be invalid.
    (ErrorKind::OFPBMC_BAD_WILDCARDS, ErrorKind::OFPBMC_BAD_FIELD),
    // The message ends within the header of its match: there is no match yet.
    (ErrorKind::OFPBMC_BAD_LEN, ErrorKind::OFPBRC_BAD_LEN),
    // An existing field with a wrong length: OVS takes it for another field.
    (ErrorKind::OFPBMC_BAD_FIELD, ErrorKind::OFPBMC_BAD_LEN),
    (ErrorKind::OFPBMC_BAD_WILDCARDS, ErrorKind::OFPBMC_BAD_LEN),
    (ErrorKind::OFPBAC_BAD_SET_TYPE, ErrorKind::OFPBAC_BAD_SET_LEN),
    (ErrorKind::OFPBMC_BAD_LEN, ErrorKind::OFPBAC_BAD_SET_LEN),
    (ErrorKind::OFPBAC_BAD_SET_LEN, ErrorKind::OFPBAC_BAD_SET_ARGUMENT),
    // Two errors: an unknown field with excess bytes; an unknown type of match with a wrong length.
    (ErrorKind::OFPBAC_BAD_SET_LEN, ErrorKind::OFPBAC_BAD_SET_TYPE),
    (ErrorKind::OFPBMC_BAD_LEN, ErrorKind::OFPBMC_BAD_TYPE),
    // Bytes that are no actions: OVS looks at their type before their length, which is 0.
    (ErrorKind::OFPBAC_BAD_EXPERIMENTER, ErrorKind::OFPBAC_BAD_LEN),
    // OVS divides a flow-mod into instructions before it decodes their actions.
    (ErrorKind::OFPBIC_BAD_LEN, ErrorKind::OFPBAC_BAD_LEN),
    // OVS's error for ports that cannot be changed; it does not check undefined config bits.
    (ErrorKind::OFPBAC_BAD_OUT_PORT, ErrorKind::OFPPMFC_BAD_PORT),
    (ErrorKind::OFPPMFC_BAD_PORT, ErrorKind::OFPPMFC_BAD_CONFIG),
    (ErrorKind::OFPPMFC_BAD_PORT, ErrorKind::OFPPMFC_BAD_ADVERTISE),
    (ErrorKind::OFPPMFC_BAD_HW_ADDR, ErrorKind::OFPPMFC_BAD_CONFIG),
    (ErrorKind::OFPPMFC_BAD_HW_ADDR, ErrorKind::OFPPMFC_BAD_ADVERTISE),
    // OVS's errors for ports in requests, for groups whose buckets watch nothing, and for meters.
    (ErrorKind::OFPBAC_BAD_OUT_PORT, ErrorKind::OFPBRC_BAD_PORT),
    (ErrorKind::OFPBAC_BAD_OUT_PORT, ErrorKind::OFPQOFC_BAD_PORT),
    (ErrorKind::OFPGMFC_WATCH_UNSUPPORTED, ErrorKind::OFPGMFC_BAD_WATCH),
    // OVS checks ports while it decodes, our switch after decoding the whole message.
    (ErrorKind::OFPBAC_BAD_OUT_PORT, ErrorKind::OFPGMFC_BAD_WATCH),
    (ErrorKind::OFPGMFC_GROUP_EXISTS, ErrorKind::OFPBAC_BAD_OUT_PORT),
    (ErrorKind::OFPGMFC_UNKNOWN_GROUP, ErrorKind::OFPBAC_BAD_OUT_PORT),
    (ErrorKind::OFPBAC_BAD_SET_TYPE, ErrorKind::OFPBAC_BAD_SET_ARGUMENT),
    // Table features that are sent: OVS checks the table, and then says that it does not permit
    // them, which is for a switch that could be configured to (1.3.5 §7.3.5.5.1).
    (ErrorKind::OFPTFFC_BAD_TABLE, ErrorKind::OFPBRC_BAD_LEN),
    (ErrorKind::OFPTFFC_EPERM, ErrorKind::OFPBRC_BAD_LEN),
    // A configuration by a slave: OVS checks it, and ignores it if it is valid (see below).
    (ErrorKind::OFPSCFC_BAD_FLAGS, ErrorKind::OFPBRC_IS_SLAVE),
    // OVS does not treat padding that is not zero as an invalid argument.
    (ErrorKind::OFPBAC_BAD_SET_ARGUMENT, ErrorKind::OFPGMFC_BAD_WATCH),
    (ErrorKind::OFPBAC_BAD_SET_ARGUMENT, ErrorKind::OFPBAC_BAD_SET_TYPE),
];

/// Messages that only our switch refuses.
const STRICTER: &[(MessageType, ErrorKind)] = &[
    // Packets without a complete Ethernet header, or with an impossible ingress port.
    (MessageType::PacketOut, ErrorKind::OFPBRC_BAD_PACKET),
    (MessageType::PacketOut, ErrorKind::OFPBRC_BAD_PORT),
    // OVS's own fields, VLANs without the bit that indicates a tag, and masks of bits that a VLAN
    // id does not have.
    (MessageType::FlowMod, ErrorKind::OFPBMC_BAD_FIELD),
    (MessageType::FlowMod, ErrorKind::OFPBMC_BAD_MASK),
    (MessageType::FlowMod, ErrorKind::OFPBMC_BAD_VALUE),
    // Port 0, which OpenFlow does not define, and ports above 4095.
    (MessageType::PacketOut, ErrorKind::OFPBAC_BAD_OUT_PORT),
    (MessageType::FlowMod, ErrorKind::OFPBAC_BAD_OUT_PORT),
    (MessageType::GroupMod, ErrorKind::OFPBAC_BAD_OUT_PORT),
    // Table 255 as the next table.
    (MessageType::FlowMod, ErrorKind::OFPBIC_BAD_TABLE_ID),
    // MPLS, and actions of earlier versions.
    (MessageType::PacketOut, ErrorKind::OFPBAC_BAD_TYPE),
    (MessageType::FlowMod, ErrorKind::OFPBAC_BAD_TYPE),
    (MessageType::GroupMod, ErrorKind::OFPBAC_BAD_TYPE),
    // Groups that lead to themselves: OVS notices when it executes them.
    (MessageType::GroupMod, ErrorKind::OFPGMFC_LOOP),
    // Groups that do not exist.
    (MessageType::GroupMod, ErrorKind::OFPBAC_BAD_OUT_GROUP),
    (MessageType::GroupMod, ErrorKind::OFPGMFC_BAD_WATCH),
    // Commands of later versions.
    (MessageType::GroupMod, ErrorKind::OFPGMFC_BAD_COMMAND),
    // Tables have no configuration, and table 254 exceeds the number that both announce. Fragments
    // are not reassembled, and some lengths are reserved.
    (MessageType::TableMod, ErrorKind::OFPTMFC_BAD_CONFIG),
    (MessageType::TableMod, ErrorKind::OFPTMFC_BAD_TABLE),
    (MessageType::SetConfig, ErrorKind::OFPSCFC_BAD_FLAGS),
    (MessageType::SetConfig, ErrorKind::OFPSCFC_BAD_LEN),
    // Deleting meters without an id, and malformed bands of meters to be deleted.
    (MessageType::MeterMod, ErrorKind::OFPMMFC_INVALID_METER),
    (MessageType::MeterMod, ErrorKind::OFPBRC_BAD_LEN),
    // OVS ignores configuration by a slave, which must not change the switch (1.3.5 §6.3.7).
    (MessageType::SetConfig, ErrorKind::OFPBRC_IS_SLAVE),
    // Excess bytes behind a request; ports, groups and meters that do not exist.
    (MessageType::MultipartRequest, ErrorKind::OFPBRC_BAD_LEN),
    (MessageType::MultipartRequest, ErrorKind::OFPGMFC_UNKNOWN_GROUP),
    (MessageType::MultipartRequest, ErrorKind::OFPBRC_BAD_PORT),
    (MessageType::MultipartRequest, ErrorKind::OFPMMFC_UNKNOWN_METER),
];

/// Messages that only OVS refuses.
const LAXER: &[(MessageType, ErrorKind)] = &[
    // A meter without a unit is in kilobits per second, one without bands only counts, and
    // DSCP-remark bands exist.
    (MessageType::MeterMod, ErrorKind::OFPMMFC_BAD_FLAGS),
    (MessageType::MeterMod, ErrorKind::OFPMMFC_OUT_OF_BANDS),
    (MessageType::MeterMod, ErrorKind::OFPMMFC_BAD_BAND),
    // OVS's ports have 16 bits.
    (MessageType::FlowMod, ErrorKind::OFPBAC_BAD_OUT_PORT),
    (MessageType::FlowMod, ErrorKind::OFPBMC_BAD_VALUE),
    (MessageType::MultipartRequest, ErrorKind::OFPBAC_BAD_OUT_PORT),
    // Padding must be zero.
    (MessageType::FlowMod, ErrorKind::OFPBAC_BAD_SET_ARGUMENT),
    (MessageType::GroupMod, ErrorKind::OFPBAC_BAD_SET_ARGUMENT),
    // Buckets of groups of any type may watch.
    (MessageType::GroupMod, ErrorKind::OFPGMFC_WATCH_UNSUPPORTED),
];
