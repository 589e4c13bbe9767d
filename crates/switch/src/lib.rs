//! The switch: workers that forward frames, the ports they forward through, and the OpenFlow agent
//! that configures them.
//!
//! ```text
//!   controllers, tools ─ TCP, TLS ─ peer tasks ──► server task (owns the agent) ◄── reports ─┐
//!                                                   │ snapshots, errands                  │
//!   tap queues, sockets, guests ◄────────────► worker threads ────────────────────────────┘
//! ```
//! [`Switch::start`] opens what a [`Config`] describes, [`Switch::run`] serves until it is stopped,
//! and a [`Handle`] answers queries meanwhile. Everything except the workers runs on the caller's
//! tokio runtime.
//!
//! Ports are added and removed while the switch runs ([`Handle::add_port`],
//! [`Handle::remove_port`]); port numbers range from 1 to 4095. The number of workers is fixed at
//! the start.

pub mod account;
mod agent;
mod ahead;
mod allowance;
mod announcement;
mod bell;
mod beyond;
mod borrowed;
mod clock;
mod command;
mod config;
mod connect;
mod cores;
mod credits;
mod device;
mod egress;
mod envelope;
mod fate;
mod foreign;
mod gro;
mod guest;
mod handle;
mod inquiry;
mod interface;
mod links;
mod lost;
mod names;
mod open_error;
mod paths;
mod pauses;
mod peer;
mod places;
mod port_spec;
mod ports;
mod recorder;
pub mod report;
mod restless;
mod ring;
mod rx;
mod server;
mod shared;
mod shed;
mod socket_file;
mod steering;
mod store;
mod switch;
#[cfg(test)]
mod test_frames;
mod tls;
mod tun;
mod tunnel;
mod tx;
mod worker;

pub use command::{ip_command, no_interface, shell_word};
pub use config::{
    Config, ConfigError, Endpoint, FailMode, Learning, ParseEndpointError, ParseFailModeError,
    ParseLearningError, Tls, Transport,
};
pub use cores::{CORE_COUNT_MAX, usable_cores};
pub use envelope::MtuError;
pub use gro::{Gro, ParseGroError};
pub use guest::OpenGuestError;
pub use handle::{Handle, Stopped};
pub use links::WatchError;
pub use open_error::{OpenPortError, Unopened};
pub use port_spec::{
    Backpressure, GreSpec, GuestSocket, ParsePortError, Pausing, PcapngSpec, PortKind, PortSpec,
    Pressure, RingSpec, SocketAccess, SocketSide, VxlanSpec, parse_port_number,
};
pub use ports::{AddPortError, RemovePortError};
pub use recorder::OpenFileError;
pub use server::WorkerEnded;
pub use socket_file::{ClearError, SocketFile};
pub use switch::{StartError, Switch};
pub use tapswitch_openflow::DatapathId;
pub use tapswitch_tls::{ParsePeerNameError, PeerName, TlsError};
pub use tapswitch_vhost::MORE_FILES;
#[doc(hidden)]
pub use worker::LoneWorker;
