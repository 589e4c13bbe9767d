//! The OpenFlow controller's server: accepts connections of switches and runs `tapswitch_control`.
//!
//! ```text
//!  TCP ─▶ connection task ──bounded──▶ hub: owns Control  ──bounded──▶ connection task ─▶ TCP
//!         (OpenFlow channel)            ▲
//!  Handle ──────────requests────────────┘
//! ```
//!
//! One task, the hub, owns all state and never waits. Each connection has a task with the
//! controller's end of the OpenFlow channel. If a switch sends faster than the hub processes, its
//! connection is not read for a while; a switch that does not read is disconnected when its queue
//! is full. Neither delays other switches.
//!
//! **Two connections of one switch.** The newer one wins, so that a switch that restarted or lost
//! its connection silently need not wait. But if the older one shows a sign of life within
//! [`Config::takeover_after`], the newer one is refused: then two switches have the same datapath
//! id, and would replace each other forever.
//!
//! **Several controllers** may share a store in etcd. One of them leads by a lease; the others stay
//! connected to all switches and take over when it is gone: `election`, `hub::duty`. A switch that
//! only a follower has is led through it: `relay`.
//!
//! **Shutdown.** The server closes its connections and changes nothing: the switches continue to
//! forward and copy by their rules.
#![forbid(unsafe_code)]

mod audit;
mod blueprint;
mod caller;
mod change;
mod clock;
mod cluster;
mod config;
mod connection;
mod copies;
mod election;
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
mod relay;
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
pub use cluster::{ClusterReport, ClusterRole, Leader};
pub use config::{Config, RestConfig};
pub use error::{BindError, RequestError};
pub use etcd::{EtcdConfig, EtcdTls, ParseEtcdError};
pub use handle::Handle;
pub use reload::Reloader;
pub use server::Server;
pub use store::{Identity, Origin, StoreConfig, StoreError};
pub use tapswitch_tls::{TlsError, TlsFiles};
pub use tokens::{NewToken, TokenError};
pub use words::{in_words, quoted};
