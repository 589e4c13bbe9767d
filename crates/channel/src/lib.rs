//! The OpenFlow connection as a state machine, both ends, without I/O (OpenFlow 1.3.5 §6.3).
//!
//! [`ControllerConnection`] and [`SwitchConnection`] are the two ends of one stream of bytes.
//! They own no socket, no thread and no clock: whoever does calls them. Each has the same four
//! kinds of methods:
//!
//! - getters, taking `&self`;
//! - `handle_*`: what came in, be it bytes, the end of the stream, or the passing of time;
//! - commands: `send`, `reply`, `notify`, `refuse`;
//! - `poll_*`: what goes out. After any of the above, first take the events until there is none,
//!   for messages are handled as events are taken; then write what
//!   [`poll_transmit`](ControllerConnection::poll_transmit) shows, report how much of it went with
//!   `handle_transmitted`, and call `handle_timeout` no later than `poll_timeout` says.
//!
//! ```text
//!  handle_bytes ──▶ link: frames, hello, echo, errors ──▶ end: requests, roles ──▶ poll_event
//!  poll_transmit ◀── outbox ◀── cutting of multiparts ◀── send, reply, notify, refuse
//! ```
//!
//! What needs no decision is done here: the hello and the version, echo replies, the probe of a
//! silent peer, error messages for what is malformed, unknown or not allowed, joining and cutting
//! of multiparts, the features handshake (controller), roles and asynchronous masks (switch).
//!
//! **Limits.** An unread message has at most 65,535 bytes; unsent bytes, joined multiparts and
//! requests without an answer are bounded by [`Config`] and the constants beside it. A peer that
//! does not keep them gets an error, then is cut off, with the [`CloseReason`] that says why. A
//! controller that asks faster than the switch answers has to wait: see
//! [`SwitchConnection::is_busy`].
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::cast_possible_truncation, reason = "test data"))]

mod asynchronous;
mod backoff;
mod config;
mod controller;
mod error;
mod frames;
mod keepalive;
mod link;
mod outbox;
mod pending;
mod reassembly;
mod roles;
mod switch;
mod window;

pub use asynchronous::wants;
pub use backoff::Backoff;
pub use config::Config;
pub use controller::{ControllerConnection, ControllerEvent};
pub use error::{CloseReason, Refusal, SendError};
pub use pending::MAX_PENDING;
pub use reassembly::MAX_OPEN_MULTIPARTS;
pub use roles::{ConnectionId, RoleChange, Roles};
pub use switch::{SwitchConnection, SwitchEvent, changes_state, only_asks};
