//! Network namespaces, links, addresses and routes over rtnetlink, ethtool and sysfs.
//!
//! The main types:
//!
//! - [`Namespace`]: creates, opens, lists and deletes network namespaces where `ip netns` keeps
//!   them, and runs a closure or a program inside one. The calling thread is never moved.
//! - [`Netlink`]: a blocking rtnetlink connection *into* a namespace: lists and changes links,
//!   creates veth pairs, adds addresses, sets queueing disciplines and `ethtool` features. For
//!   set-up and tests, at a few hundred requests per second.
//! - [`Sysfs`]: settings of interfaces that only `/sys/class/net` has, in any namespace.
//! - [`LinkMonitor`]: a non-blocking subscription to link changes, for an event loop.
//!
//! ```no_run
//! use tapswitch_netlink::{Namespace, Netlink};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let blue = Namespace::create("blue")?;
//! let mut here = Netlink::open(&Namespace::current()?)?;
//! here.create_veth("port1", "eth0", &blue)?;
//! here.set_up("port1")?;
//!
//! let mut there = Netlink::open(&blue)?;
//! there.add_address("eth0", "10.0.0.1".parse()?, 24)?;
//! there.set_up("eth0")?;
//! blue.command("ping").args(["-c1", "10.0.0.2"]).status()?;
//! # Ok(())
//! # }
//! ```
//!
//! **References:** namespaces(7), rtnetlink(7), netdevice(7), ip-netns(8).
//!
//! **Out of scope:** IPv4/IPv6 configuration beyond addresses, one default route and permanent
//! neighbours; traffic control beyond the root queueing discipline; anything per packet.

mod address;
mod error;
mod ethtool;
mod feature;
mod link;
mod monitor;
mod namespace;
mod netlink;
mod qdisc;
mod request;
mod route;
mod survey;
mod sysfs;
mod tun;

pub use address::Address;
pub use error::LinkError;
pub use feature::{Feature, FeatureState};
pub use link::{Link, LinkStats, OperState};
pub use monitor::{LinkEvent, LinkMonitor, Moved};
pub use namespace::{Namespace, NamespaceError, OwnedNamespace, die_with_parent};
pub use netlink::Netlink;
pub use qdisc::{Qdisc, QdiscSpec};
pub use survey::{Survey, survey};
pub use sysfs::Sysfs;
pub use tun::{TunInfo, TunKind};
