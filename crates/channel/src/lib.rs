//! The OpenFlow connection as a state machine, for both ends, without I/O (OpenFlow 1.3.5 §6.3).
//!
//! [`ControllerConnection`] and [`SwitchConnection`] are the two ends of one byte stream. They own
//! no socket, no thread and no clock; the caller does. Each has four kinds of methods:
//!
//! - getters, which take `&self`;
//! - `handle_*` for input: bytes, the end of the stream, or the passing of time;
//! - commands: `send`, `reply`, `notify`, `refuse`;
//! - `poll_*` for output. After any of the above, first take events until there are none, because
//!   messages are processed as events are taken; then write the bytes of
//!   [`poll_transmit`](ControllerConnection::poll_transmit), report how many were written with
//!   `handle_transmitted`, and call `handle_timeout` no later than `poll_timeout`.
//!
//! ```text
//!  handle_bytes ──▶ link: frames, hello, echo, errors ──▶ end: requests, roles ──▶ poll_event
//!  poll_transmit ◀── outbox ◀── splitting of multiparts ◀── send, reply, notify, refuse
//! ```
//!
//! Everything that needs no decision is done here: hello and version negotiation, echo replies,
//! probing a silent peer, error messages for malformed, unknown or forbidden messages, joining and
//! splitting of multiparts, the features handshake (controller), roles and asynchronous masks
//! (switch).
//!
//! **Limits.** An unread message has at most 65,535 bytes; unsent bytes, incomplete multiparts and
//! unanswered requests are limited by [`Config`] and constants. A peer that exceeds them gets an
//! error, and then is disconnected with a [`CloseReason`]. A controller that sends requests faster
//! than the switch answers has to wait: see [`SwitchConnection::is_busy`].
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
