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
//! before it changes routes. A check costs a few system calls per tunnel and no thread
//! ([`tapswitch_tunnel::Probe`]), unless a tunnel is opened.

use tapswitch_datapath::Millis;
use tapswitch_openflow::PortNo;

use crate::clock;
use crate::device::Device;
use crate::ports::Ports;
use crate::server::Server;
use crate::tunnel::{Look, Tunnel};

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
        let mut changed = Vec::new();
        for device in &mut self.devices {
            let number = device.spec.number;
            match device.tunnel_mut().map(Tunnel::look) {
                None | Some(Look::Same) => {}
                Some(look) => changed.push((number, look)),
            }
        }
        changed
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
