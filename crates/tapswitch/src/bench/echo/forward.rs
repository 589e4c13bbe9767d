//! The forwarder: two tun devices in two namespaces, and one thread that forwards between them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use tapswitch_netlink::{Namespace, Netlink};

use crate::bench::cores::stay_on;

use super::means::{self, Means};
use super::measure::{Sample, Window, measure};
use super::ready::announce;

type Failure = Box<dyn std::error::Error>;

/// What to connect, and how.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Forward {
    pub(super) means: Means,
    /// Names of the namespaces.
    pub(super) between: [String; 2],
    pub(super) core: usize,
    pub(super) window: Window,
}

impl Forward {
    /// Forwards until the measurement is over and no more frames arrive.
    pub(super) fn run(&self) -> Result<Sample, Failure> {
        let namespaces = self.namespaces()?;
        let mut mover = means::forwarder(self.means, &namespaces, INTERFACE)
            .map_err(|error| error.to_string())?;
        for (namespace, address) in namespaces.iter().zip(ADDRESSES) {
            let mut netlink = Netlink::open(namespace)?;
            netlink.add_address(INTERFACE, IpAddr::V4(address), 24)?;
            netlink.set_up(INTERFACE)?;
        }
        stay_on(self.core)?;
        announce();
        let sample = measure(mover.as_mut(), &OnceLock::new(), self.window);
        Ok(sample.map_err(|error| error.to_string())?)
    }

    fn namespaces(&self) -> Result<[Namespace; 2], Failure> {
        let [a, b] = &self.between;
        Ok([Namespace::open(a)?, Namespace::open(b)?])
    }
}

/// Name of the device in either namespace.
pub(super) const INTERFACE: &str = "forward0";
/// Addresses of the devices.
pub(super) const ADDRESSES: [Ipv4Addr; 2] =
    [Ipv4Addr::new(10, 31, 0, 1), Ipv4Addr::new(10, 31, 0, 2)];
