//! Tunnels whose way has gone: the route to the other end, or the address at this one.
//!
//! A tunnel has no link of its own, and whether the other end is there nobody tells. But without a
//! route, or without the address that the other end sends to, nothing gets there or comes back, and
//! rules that watch the port are to take another way. So such a port is down.
//!
//! Nor is it open before there is one: its sockets are made then, and workers get them.
//!
//! The switch looks once a second, as nothing is watched but interfaces: a router that learns a
//! hundred thousand routes would have it listen to each. When an interface beside a tunnel changes
//! it looks at once, or nearly so: the kernel tells of the interface before it has changed routes.

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
    /// Looks soon at the tunnels in a namespace where something has changed.
    pub(crate) fn look_soon(&mut self, namespace: usize) {
        let mut tunnels = self.devices.iter().filter_map(Device::tunnel);
        if tunnels.any(|tunnel| tunnel.namespace_index == namespace) {
            let soon = Millis(clock::coarse().0 + SOON_MS);
            self.look_at = Some(self.look_at.map_or(soon, |due| due.min(soon)));
        }
    }

    /// The tunnels whose way has gone, or is there again or for the first time.
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

    /// Addresses of tunnels that are none of their namespace's any more. To look into a namespace
    /// takes a thread: one for all tunnels there.
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
            // Who cannot look knows no better than before.
            let here = namespace.enter(look).unwrap_or_default();
            gone.extend(here.into_iter().map(|address| (number, address)));
        }
        gone
    }
}

impl Server {
    /// Looks whether ways lead to the other ends of tunnels.
    pub(crate) fn follow_paths(&mut self) {
        for (number, look) in self.ports.changed_paths() {
            if look == Look::Opened {
                self.begin_port(number);
            }
            self.update_port(number);
        }
    }
}

/// Between a change of an interface and a look at routes. Looks follow each other no faster.
const SOON_MS: u64 = 50;
