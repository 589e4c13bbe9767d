//! The control plane: hosts, TAP policies and their translation to OpenFlow, without I/O.
//!
//! [`Control`] is told what switches say and hands out what to send them. It learns where hosts
//! are, connects them, and turns [`TapPolicy`]s into groups of type ALL, whose first bucket is the
//! original path and whose others lead to monitors, plus the rules that point there. The same
//! messages drive our switch and Open vSwitch; to a switch that says it is ours, two extensions
//! (`docs/openflow.md`) also say what copies are owed and ask what became of them.
//!
//! ```text
//!  packet-in, port-status ─▶ hosts, ports ─┐
//!  policies, filters ─▶ regions ─▶ overlap ┴▶ translate ─▶ desired ─┐
//!  what the switch told it holds ──────────────────────▶ held ──────┴▶ difference ─▶ messages
//!  flow-removed, counters ─▶ ledger
//! ```
//!
//! **What holds.**
//! - A frame is forwarded as without policies, and copied once to each distinct monitor of the
//!   policies that it matches; while rules change, too.
//! - Only rules with our mark are changed or deleted, and only groups of our numbers.
//! - A controller that starts again, or a switch that connects again, gets only the difference.
//! - At rest, a policy's matched frames are its copied frames.
//! - Everything that grows with what others send is bounded by [`Limits`].
//! - Switches may be wired in any way: links are found by LLDP, floods go on a tree, and copies
//!   travel to monitors of other switches with a tag of their own (`docs/adr/0019`).
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
//! No I/O, no clock, no `unsafe`; `datapath` is known to the tests alone.
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
pub use text::{ParseTextError, parse_switch_name};
pub use time::{Millis, UnixTime};
pub use word::{Direction, EthType, IpProto, Vlan};
