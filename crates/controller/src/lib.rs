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
//! connection was cut off silently, is not kept waiting. But when the older one gives a sign of
//! life within [`Config::takeover_after`] the newer one is refused, since then there are two
//! switches with the same datapath id, which would throw each other out for ever.
//!
//! **Several controllers** may share a store in etcd. One of them leads, by a lease; the others
//! stay connected to all switches, and take over when it is gone: `cluster`, `hub::duty`.
//!
//! **The end.** When the server stops it closes its connections and changes nothing: the switches
//! forward and copy on by the rules that they have.
#![forbid(unsafe_code)]

mod audit;
mod caller;
mod change;
mod clock;
mod cluster;
mod config;
mod connection;
mod copies;
mod error;
mod etcd;
pub mod exposition;
mod handle;
mod hub;
mod journal;
mod keeper;
pub mod metrics;
mod neighbour;
mod net;
mod news;
mod owed;
mod page;
mod places;
mod random;
mod rehearsals;
mod reload;
mod rest;
mod server;
mod store;
mod tickets;
mod tls;
mod tokens;
mod told;
mod words;

pub use audit::{ChainError, Verifier};
pub use caller::{Caller, Role};
pub use change::{Applied, How};
pub use cluster::{ClusterReport, ClusterRole, EtcdConfig, EtcdTls, Leader, ParseEtcdError};
pub use config::Config;
pub use error::{BindError, RequestError};
pub use handle::Handle;
pub use keeper::Origin;
pub use rest::RestConfig;
pub use server::Server;
pub use store::{Identity, StoreConfig, StoreError};
pub use tapswitch_tls::{TlsError, TlsFiles};
pub use tokens::{NewToken, TokenError};
pub use words::{in_words, quoted};
