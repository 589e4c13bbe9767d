//! Encoder and decoder for OpenFlow 1.3.5 messages (ONF TS-023).
//!
//! The crate covers all of version 1.3: every message, match field, action, instruction, multipart
//! and error. Unknown values (experimenters, later fields) are kept as bytes, so
//! [`Message::decode`] followed by [`Message::encode`] loses nothing but padding. The enums are
//! exhaustive on purpose: version 1.3 does not change any more.
//!
//! **Three steps, three errors.** [`frame_len`] finds the message boundaries in a byte stream; a
//! [`HeaderError`] ends the connection. [`Message::decode`] decodes one message; a [`MessageError`]
//! holds the OpenFlow error to send back, and the connection stays up. [`Message::check`] validates
//! the content: prerequisites, ranges, unknown fields and flags. Decoding does not validate, so
//! that a message can be printed even if no switch would accept it.
//!
//! ```
//! use tapswitch_openflow::{
//!     Action, Body, FlowMod, FlowModCommand, Instruction, Match, Message, Oxm, PortNo, frame_len,
//! };
//!
//! let flow_mod = FlowMod {
//!     match_fields: Match::new().with(Oxm::InPort(PortNo(1))),
//!     instructions: vec![Instruction::ApplyActions(vec![Action::output(PortNo(2))])],
//!     ..FlowMod::new(FlowModCommand::Add)
//! };
//! assert_eq!(flow_mod.to_string(), "add table=0,priority=32768,in_port=1 actions=output:2");
//!
//! let message = Message { xid: 1, body: Body::FlowMod(flow_mod) };
//! message.check()?;
//! let mut bytes = Vec::new();
//! message.encode(&mut bytes)?;
//! assert_eq!(frame_len(&bytes)?, Some(bytes.len()));
//! assert_eq!(Message::decode(&bytes)?, message);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! No I/O, no clock, no `unsafe`, and no panic on any input. Memory is bounded by the size of the
//! message (at most 65,535 bytes): no allocation depends on a length that the peer claims.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "test data"))]

mod action;
mod codec;
mod config;
mod delivery;
mod error;
mod error_message;
mod experimenter;
mod fault;
mod features;
mod flow;
mod group;
mod header;
mod hello;
mod id;
mod instruction;
mod ledger;
mod matching;
mod message;
mod message_type;
mod meter;
pub mod multipart;
mod oxm;
mod packet;
mod port;
mod queue;
mod relayed;
mod role;
mod shape;
mod starts;
mod table;

pub use action::{Action, CONTROLLER_MAX_LEN, CONTROLLER_MAX_LEN_NO_BUFFER};
pub use config::{ConfigFlags, DEFAULT_MISS_SEND_LEN, SwitchConfig};
pub use delivery::{Delivery, EXPERIMENTER, MANUFACTURER, ParseDeliveryError};
pub use error::{ErrorKind, ErrorType};
pub use error_message::ErrorMessage;
pub use experimenter::Experimenter;
pub use fault::{CheckError, DecodeError, EncodeError, HeaderError, MessageError};
pub use features::{Capabilities, FeaturesReply};
pub use flow::{
    DEFAULT_PRIORITY, FlowMod, FlowModCommand, FlowModFlags, FlowRemoved, FlowRemovedReason,
};
pub use group::{Bucket, GroupMod, GroupModCommand, GroupType};
pub use header::{Header, MAX_MESSAGE_LEN, VERSION, frame_len};
pub use hello::{Hello, HelloElement};
pub use id::{BufferId, DatapathId, GroupId, PortNo, TableId, Text, in_one_line};
pub use instruction::Instruction;
pub use ledger::{BucketDrops, BucketLedger, LedgerRequest};
pub use matching::Match;
pub use message::{Body, Message};
pub use message_type::MessageType;
pub use meter::{
    METER_ALL, METER_CONTROLLER, METER_MAX, METER_SLOWPATH, MeterBand, MeterBandKind, MeterFlags,
    MeterMod, MeterModCommand,
};
pub use multipart::{MultipartReply, MultipartReplyBody, MultipartRequest, MultipartRequestBody};
pub use oxm::{Context, Masked, Oxm, OxmField, VID_NONE, VID_PRESENT};
pub use packet::{PacketIn, PacketInReason, PacketOut};
pub use port::{Port, PortConfig, PortFeatures, PortMod, PortReason, PortState, PortStatus};
pub use queue::{
    PacketQueue, QUEUE_ALL, QueueGetConfigReply, QueueGetConfigRequest, QueueProperty,
};
pub use relayed::Relayed;
pub use role::{AsyncConfig, AsyncMask, ControllerRole, RoleMessage};
pub use shape::{ParseShapeError, Shape};
pub use starts::StartsSuffice;
pub use table::{TABLE_CONFIG_DEPRECATED, TableMod};
