//! The OpenFlow controller's server: accepts switches and drives `tapswitch_control` with them.
//!
//! ```text
//!  TCP ─▶ connection task ──bounded──▶ hub: owns Control  ──bounded──▶ connection task ─▶ TCP
//!         (OpenFlow channel)            ▲
//!  Handle ──────────requests────────────┘
//! ```
//!
//! One task, the hub, owns everything that is known; it waits for nobody. Each connection has a
//! task of its own with the controller's end of the OpenFlow channel. A switch that sends faster
//! than the hub takes is read from later; a switch that does not read is disconnected when too
//! much waits for it. Neither holds up the others.
//!
//! **Two connections of one switch.** The newer one counts: a switch that starts again, or whose
//! connection was cut off silently, is not kept waiting. Only when the older one is younger than
//! [`Config::takeover_after`] is the newer one refused, since then there are two switches with the
//! same datapath id, which would throw each other out for ever.
//!
//! **The end.** When the server stops it closes its connections and changes nothing: the switches
//! forward and copy on by the rules that they have.
#![forbid(unsafe_code)]

mod config;
mod connection;
mod error;
mod handle;
mod hub;
mod server;
mod tickets;

pub use config::Config;
pub use error::{BindError, RequestError};
pub use handle::Handle;
pub use server::Server;
