//! Where both switches refuse messages for other reasons, or one of them does not, and why.

use tapswitch_openflow::{ErrorKind, ErrorType, MessageType};

use crate::messages::Sent;

/// Whether both answer a message alike, or differ on purpose.
pub(crate) fn are_alike(sent: &Sent, theirs: Option<&ErrorKind>, ours: Option<&ErrorKind>) -> bool {
    let (theirs, ours) = (theirs.copied(), ours.copied());
    let of = |list: &[(MessageType, ErrorKind)], kind| {
        list.iter().any(|(of, known)| *of as u8 == sent.message_type && *known == kind)
    };
    match (theirs, ours) {
        _ if theirs == ours => true,
        // It looks for groups only where a modification finds rules.
        (None, Some(ErrorKind::OFPBAC_BAD_OUT_GROUP)) if sent.modifies_rules() => true,
        // Of several mistakes of a meter either says another first; of one alone both say the same
        // (`meters_are_refused_alike`).
        (Some(_), Some(_)) if sent.message_type == MessageType::MeterMod as u8 => true,
        // It looks at who asks before it reads what for.
        (Some(ErrorKind::OFPBRC_IS_SLAVE), Some(_)) => true,
        // It says of the message that its length is wrong, we of the part that does not add up
        // (1.3.5 §7.5.4).
        (Some(ErrorKind::OFPBRC_BAD_LEN), Some(ours)) if PARTS.contains(&ours) => true,
        // Of several mistakes we say first that it is no command, group, match or action of ours.
        (Some(_), Some(ours)) if FIRST.contains(&ours) => true,
        // Words of its own, and ports above its 16 bits.
        (Some(ErrorKind { error_type: ErrorType::EXPERIMENTER, .. }), Some(_)) => true,
        (Some(ErrorKind::OFPBMC_BAD_VALUE), Some(_)) => true,
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
];

/// Reasons of Open vSwitch, and ours for the same message.
const OTHERS: &[(ErrorKind, ErrorKind)] = &[
    // What it knows beside OpenFlow 1.3 has values that can be wrong.
    (ErrorKind::OFPBMC_BAD_WILDCARDS, ErrorKind::OFPBMC_BAD_FIELD),
    // The message ends within the header of its match: there is no match yet.
    (ErrorKind::OFPBMC_BAD_LEN, ErrorKind::OFPBRC_BAD_LEN),
    // A field that there is with a length that it has not: to Open vSwitch it may be another field.
    (ErrorKind::OFPBMC_BAD_FIELD, ErrorKind::OFPBMC_BAD_LEN),
    (ErrorKind::OFPBAC_BAD_SET_TYPE, ErrorKind::OFPBAC_BAD_SET_LEN),
    (ErrorKind::OFPBMC_BAD_LEN, ErrorKind::OFPBAC_BAD_SET_LEN),
    (ErrorKind::OFPBAC_BAD_SET_LEN, ErrorKind::OFPBAC_BAD_SET_ARGUMENT),
    // Two mistakes: no such field, and bytes behind it; no such kind of match, and its length.
    (ErrorKind::OFPBAC_BAD_SET_LEN, ErrorKind::OFPBAC_BAD_SET_TYPE),
    (ErrorKind::OFPBMC_BAD_LEN, ErrorKind::OFPBMC_BAD_TYPE),
    // It looks at the match before it reads on.
    (ErrorKind::OFPBMC_DUP_FIELD, ErrorKind::OFPBAC_BAD_LEN),
    // Its word for ports that cannot be changed, and no notice of bits that no port has.
    (ErrorKind::OFPBAC_BAD_OUT_PORT, ErrorKind::OFPPMFC_BAD_PORT),
    (ErrorKind::OFPPMFC_BAD_PORT, ErrorKind::OFPPMFC_BAD_CONFIG),
    (ErrorKind::OFPPMFC_BAD_PORT, ErrorKind::OFPPMFC_BAD_ADVERTISE),
    (ErrorKind::OFPPMFC_BAD_HW_ADDR, ErrorKind::OFPPMFC_BAD_CONFIG),
    (ErrorKind::OFPPMFC_BAD_HW_ADDR, ErrorKind::OFPPMFC_BAD_ADVERTISE),
    // Its words for ports in requests, watches of groups that watch nothing, and meters.
    (ErrorKind::OFPBAC_BAD_OUT_PORT, ErrorKind::OFPBRC_BAD_PORT),
    (ErrorKind::OFPBAC_BAD_OUT_PORT, ErrorKind::OFPQOFC_BAD_PORT),
    (ErrorKind::OFPGMFC_WATCH_UNSUPPORTED, ErrorKind::OFPGMFC_BAD_WATCH),
    // It looks at ports while it reads, where we look at the whole message.
    (ErrorKind::OFPBAC_BAD_OUT_PORT, ErrorKind::OFPGMFC_BAD_WATCH),
    (ErrorKind::OFPGMFC_GROUP_EXISTS, ErrorKind::OFPBAC_BAD_OUT_PORT),
    (ErrorKind::OFPGMFC_UNKNOWN_GROUP, ErrorKind::OFPBAC_BAD_OUT_PORT),
    (ErrorKind::OFPBAC_BAD_SET_TYPE, ErrorKind::OFPBAC_BAD_SET_ARGUMENT),
    // It looks for groups last.
    (ErrorKind::OFPBAC_BAD_OUT_PORT, ErrorKind::OFPBAC_BAD_OUT_GROUP),
    (ErrorKind::OFPBRC_BUFFER_UNKNOWN, ErrorKind::OFPBAC_BAD_OUT_GROUP),
    (ErrorKind::OFPBAC_BAD_SET_ARGUMENT, ErrorKind::OFPBAC_BAD_OUT_GROUP),
    (ErrorKind::OFPGMFC_INVALID_GROUP, ErrorKind::OFPBAC_BAD_OUT_GROUP),
    // Padding that is not zero is no argument to it.
    (ErrorKind::OFPBAC_BAD_SET_ARGUMENT, ErrorKind::OFPGMFC_BAD_WATCH),
    (ErrorKind::OFPBAC_BAD_SET_ARGUMENT, ErrorKind::OFPBAC_BAD_SET_TYPE),
];

/// What we refuse alone.
const STRICTER: &[(MessageType, ErrorKind)] = &[
    // Packets without a whole Ethernet header, and from where none can come.
    (MessageType::PacketOut, ErrorKind::OFPBRC_BAD_PACKET),
    (MessageType::PacketOut, ErrorKind::OFPBRC_BAD_PORT),
    // Fields of its own, VLANs without the bit that says that there is a tag, and masks of bits
    // that a VLAN has not.
    (MessageType::FlowMod, ErrorKind::OFPBMC_BAD_FIELD),
    (MessageType::FlowMod, ErrorKind::OFPBMC_BAD_MASK),
    (MessageType::FlowMod, ErrorKind::OFPBMC_BAD_VALUE),
    // Port 0, which is none of OpenFlow's, and those above 4095.
    (MessageType::PacketOut, ErrorKind::OFPBAC_BAD_OUT_PORT),
    (MessageType::FlowMod, ErrorKind::OFPBAC_BAD_OUT_PORT),
    (MessageType::GroupMod, ErrorKind::OFPBAC_BAD_OUT_PORT),
    // Table 255 as the next one.
    (MessageType::FlowMod, ErrorKind::OFPBIC_BAD_TABLE_ID),
    // MPLS and actions of earlier versions.
    (MessageType::PacketOut, ErrorKind::OFPBAC_BAD_TYPE),
    (MessageType::FlowMod, ErrorKind::OFPBAC_BAD_TYPE),
    (MessageType::GroupMod, ErrorKind::OFPBAC_BAD_TYPE),
    // Groups that are not there.
    (MessageType::GroupMod, ErrorKind::OFPBAC_BAD_OUT_GROUP),
    (MessageType::GroupMod, ErrorKind::OFPGMFC_BAD_WATCH),
    // Commands that later versions have.
    (MessageType::GroupMod, ErrorKind::OFPGMFC_BAD_COMMAND),
    // There is nothing left to configure in a table, and there are as many as either says: table
    // 254 is none of them. Fragments are not put together, and some lengths are reserved.
    (MessageType::TableMod, ErrorKind::OFPTMFC_BAD_CONFIG),
    (MessageType::TableMod, ErrorKind::OFPTMFC_BAD_TABLE),
    (MessageType::SetConfig, ErrorKind::OFPSCFC_BAD_FLAGS),
    (MessageType::SetConfig, ErrorKind::OFPSCFC_BAD_LEN),
    // Meters without a number to be deleted, and bands of those that are, if they are broken.
    (MessageType::MeterMod, ErrorKind::OFPMMFC_INVALID_METER),
    (MessageType::MeterMod, ErrorKind::OFPBRC_BAD_LEN),
    // It passes over what a slave configures.
    (MessageType::SetConfig, ErrorKind::OFPBRC_IS_SLAVE),
    // Bytes behind a request; ports and meters that are not there.
    (MessageType::MultipartRequest, ErrorKind::OFPBRC_BAD_LEN),
    (MessageType::MultipartRequest, ErrorKind::OFPBRC_BAD_PORT),
    (MessageType::MultipartRequest, ErrorKind::OFPMMFC_UNKNOWN_METER),
];

/// What Open vSwitch refuses alone.
const LAXER: &[(MessageType, ErrorKind)] = &[
    // A meter without a unit is one of kilobits, one without bands counts, and some remark.
    (MessageType::MeterMod, ErrorKind::OFPMMFC_BAD_FLAGS),
    (MessageType::MeterMod, ErrorKind::OFPMMFC_OUT_OF_BANDS),
    (MessageType::MeterMod, ErrorKind::OFPMMFC_BAD_BAND),
    // Its ports have 16 bits.
    (MessageType::FlowMod, ErrorKind::OFPBAC_BAD_OUT_PORT),
    (MessageType::FlowMod, ErrorKind::OFPBMC_BAD_VALUE),
    (MessageType::MultipartRequest, ErrorKind::OFPBAC_BAD_OUT_PORT),
    // Clear-actions with actions, which have no meaning: we take none.
    (MessageType::FlowMod, ErrorKind::OFPBIC_BAD_LEN),
    // Padding must be zero.
    (MessageType::FlowMod, ErrorKind::OFPBAC_BAD_SET_ARGUMENT),
    (MessageType::GroupMod, ErrorKind::OFPBAC_BAD_SET_ARGUMENT),
    // Buckets of groups of any type may watch.
    (MessageType::GroupMod, ErrorKind::OFPGMFC_WATCH_UNSUPPORTED),
];
