//! The control plane: hosts, TAP policies and their translation to OpenFlow, without I/O.
//!
//! [`Control`] takes messages from switches and returns messages to send. It learns where hosts
//! are, connects them, and translates [`TapPolicy`]s to groups of type ALL and rules that refer to
//! them: the first bucket of a group is the original path, the others lead to monitors. The same
//! messages drive tapswitch and Open vSwitch; a switch that identifies itself as tapswitch also
//! gets two extensions (`docs/openflow.md`): the delivery contract of copies, and a request for
//! their ledger.
//!
//! ```text
//!  packet-in, port-status ─▶ hosts, ports ─┐
//!  policies, filters ─▶ regions ─▶ overlap ┴▶ translate ─▶ desired ─┐
//!  tables read from the switch ────────────────────────▶ held ──────┴▶ difference ─▶ messages
//!  flow-removed, counters ─▶ ledger
//! ```
//!
//! **Invariants.**
//! - A frame is forwarded as without policies, and copied once to each distinct monitor of the
//!   policies that it matches, also while rules change.
//! - Only rules with our cookie and groups with ids in our range are changed or deleted.
//! - After a restart of the controller or a reconnect of a switch, only the difference is sent.
//! - At rest, the matched and the copied frames of a policy are equal in number.
//! - All state that grows with received traffic is bounded by [`Limits`].
//! - Switches may be cabled in any way: links are found by LLDP, floods follow a spanning tree, and
//!   copies travel to monitors at other switches with a VLAN tag of their own (`docs/adr/0019`).
//!
//! ```
//! use tapswitch_control::{Control, Limits, TapPolicy, WhenMissing};
//!
//! let mut control = Control::new(Limits::default());
//! let web = TapPolicy { dst_port: Some(80.into()), ..TapPolicy::new("web", "0x1/3".parse()?) };
//! let refused = control.add_policy(web.clone(), WhenMissing::Refuse).unwrap_err();
//! let text = "monitor 0x1/3: no switch is connected; point one at this controller";
//! assert_eq!(refused.to_string(), text);
//! control.add_policy(web, WhenMissing::Wait)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! No I/O, no clock, no `unsafe`; only the tests depend on `datapath`.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "test data"))]

mod control;
mod desired;
mod detail;
mod error;
mod event;
mod exit;
mod expiry;
mod fabric;
mod family;
mod filter;
mod group;
mod hash;
mod held;
mod hosts;
mod index;
mod learn;
mod ledger;
mod limits;
mod monitor;
mod outbox;
mod overlap;
mod place;
mod policy;
mod port_range;
mod ports;
mod prefix;
mod proof;
mod question;
mod region;
mod report;
mod resolve;
mod routes;
mod rule;
mod shared;
mod switch;
mod tags;
mod text;
mod time;
mod translate;
mod ways;
mod word;

pub use control::{
    Change, Control, Judged, Look, Plan, Proof, SwitchChange, Transmit, Verdict, WhenMissing,
};
pub use detail::{
    BucketReport, GroupReport, PortCounters, PortDetail, PortLoad, Purpose, RuleReport, Standing,
    SwitchDetails,
};
pub use error::{BudgetError, MonitorError, PolicyError};
pub use event::{Event, ShownCopy, StatsToken};
pub use expiry::Expiry;
pub use filter::{Filter, FilterError};
pub use limits::{Discovery, Limits, VidRange};
pub use monitor::{MonitorSpec, Monitors};
pub use outbox::Ticket;
pub use policy::{Point, Sample, Schedule, Tagging, TapPolicy, Transport, cut_text};
pub use port_range::PortRange;
pub use prefix::IpPrefix;
pub use report::{
    Copied, Counts, HopReport, HostReport, LinkReport, MonitorPort, PathReport, PolicyReport,
    PolicyState, PortReport, PortRole, SwitchReport,
};
pub use text::{ParseTextError, counted, parse_switch_name};
pub use time::{Millis, UnixTime};
pub use word::{Direction, EthType, IpProto, Vlan};
