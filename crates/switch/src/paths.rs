//! Tunnels without a path: without a route to the remote end, or without their local address.
//!
//! A tunnel has no link, and nothing reports whether the remote end is alive. But without a route
//! no packet reaches it, and without the local address none comes back. Then the port is down, so
//! that rules that watch it use another path.
//!
//! A tunnel is opened only once there is a path: its sockets are created then and given to workers.
//!
//! Paths are checked once a second. The switch does not subscribe to routes, because a router that
//! learns a hundred thousand of them would cause as many messages. If an interface in a tunnel's
//! namespace changes, they are checked after [`SOON_MS`], because the kernel reports interfaces
//! before it changes routes.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use tapswitch_datapath::Millis;
use tapswitch_netlink::Namespace;
use tapswitch_openflow::PortNo;
use tapswitch_tunnel::has_address;

use crate::clock;
use crate::device::Device;
use crate::ports::Ports;
use crate::server::Server;
use crate::tunnel::Look;

impl Ports {
    /// Schedules a check of tunnels after a change in this namespace.
    pub(crate) fn look_soon(&mut self, namespace: usize) {
        let mut tunnels = self.devices.iter().filter_map(Device::tunnel);
        if tunnels.any(|tunnel| tunnel.namespace_index == namespace) {
            let soon = Millis(clock::coarse().0 + SOON_MS);
            self.look_at = Some(self.look_at.map_or(soon, |due| due.min(soon)));
        }
    }

    /// Tunnels whose path disappeared, returned, or appeared for the first time.
    fn changed_paths(&mut self) -> Vec<(PortNo, Look)> {
        let (gone, mut changed) = (self.gone_addresses(), Vec::new());
        for device in &mut self.devices {
            let number = device.spec.number;
            let Some(tunnel) = device.tunnel_mut() else { continue };
            let is_gone = |local| gone.contains(&(tunnel.namespace_index, local));
            let has_address = !tunnel.local_ip().is_some_and(is_gone);
            match tunnel.look(has_address) {
                Look::Same => {}
                look => changed.push((number, look)),
            }
        }
        changed
    }

    /// Local addresses of tunnels that no longer exist in their namespace. Entering a namespace
    /// needs a thread: one for all tunnels there.
    fn gone_addresses(&self) -> HashSet<(usize, IpAddr)> {
        let mut asked: HashMap<usize, (&Namespace, HashSet<IpAddr>)> = HashMap::new();
        for tunnel in self.devices.iter().filter_map(Device::tunnel) {
            let unasked = (tunnel.namespace(), HashSet::new());
            let (_, addresses) = asked.entry(tunnel.namespace_index).or_insert(unasked);
            addresses.extend(tunnel.local_ip());
        }
        let mut gone = HashSet::new();
        for (number, (namespace, addresses)) in asked {
            let look = || addresses.into_iter().filter(|it| !has_address(*it)).collect::<Vec<_>>();
            // If the namespace cannot be entered, the addresses count as present.
            let here = namespace.enter(look).unwrap_or_default();
            gone.extend(here.into_iter().map(|address| (number, address)));
        }
        gone
    }
}

impl Server {
    /// Checks the paths of all tunnels, and updates their ports.
    pub(crate) fn follow_paths(&mut self) {
        for (number, look) in self.ports.changed_paths() {
            if look == Look::Opened {
                self.begin_port(number);
            }
            self.update_port(number);
        }
    }
}

/// Delay of a check after an interface has changed, and minimum time between such checks.
const SOON_MS: u64 = 50;
