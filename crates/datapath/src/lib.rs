//! The datapath: flow tables, groups, meters, the flow cache, and what is done to frames.
//!
//! State in, result out: no sockets, no clock, no threads. [`Pipeline`] owns the tables and applies
//! OpenFlow changes. Each worker has a [`Forwarder`], which processes frames against an immutable
//! [`Snapshot`] and reaches ports and controller through [`Egress`]. Nothing here depends on
//! whether a frame is in our memory or a guest's: see [`Frame`].
//!
//! Invariants:
//! - A frame that does not leave through a port, at once or later, is counted under one
//!   [`DropReason`].
//! - A rule change applies from the next frame that is processed against the new snapshot.
//! - The payload of a frame is never written, and never copied.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "test data")
)]

mod abilities;
mod action_set;
mod aqm;
mod cache;
mod claim;
mod compile;
mod counters;
mod edge;
mod egress;
mod expiry;
mod field;
mod forwarder;
mod frame;
mod glance;
mod group;
mod hash;
mod learning;
mod meter;
mod outlet;
mod pipeline;
mod port;
mod program;
mod random;
mod rewrite;
mod sampler;
mod table;
mod tally;
#[cfg(test)]
mod test_frames;
mod traffic;
mod validate;
pub mod vlan;

pub use abilities::{
    ACTION_KINDS, INSTRUCTION_KINDS, MATCH_FIELDS, METER_BAND_KINDS, METER_FLAGS, SET_FIELDS,
};
pub use aqm::{Codel, mark_ce};
pub use claim::{Claim, Loss, OwnedClaim, PacketInClaim, PacketInReceipt, Receipt, Sent};
pub use counters::{Counters, DropCounters, Gauge, Millis, Totals, WorkerIndex};
pub use edge::DropReason;
pub use egress::{Egress, PacketInOrigin};
pub use field::{MatchKey, UnsupportedField};
pub use forwarder::{Arrival, CacheStats, Forwarder, View};
pub use frame::{Frame, HEADROOM, Parts};
pub use group::{Group, GroupBucket, GroupTable, MAX_GROUPS};
pub use learning::{MacLearning, MacTable, Restless, Sighting, Station, VlanKey};
pub use meter::{Band, MAX_BANDS, MAX_METERS, Meter, MeterTable};
pub use pipeline::{MAX_RULES, Pipeline, Removal, Snapshot};
pub use port::{DEFAULT_ENVELOPE, MAX_PORT, Oversize, Port, PortCounters, Ports};
pub use random::Random;
pub use table::{FlowEntry, FlowTable, TABLE_COUNT, TableCounters};
pub use traffic::Traffic;
