//! Ports in namespaces that were deleted, or whose container has ended.
//!
//! Whoever has a file of a namespace keeps it: one that leads to it, or a socket or a device that
//! was opened there. A port has all of these. So the namespace would live on after its name and its
//! processes are gone, with a host in it that answers pings and is given copies, beside the one
//! that has the name by then. Nothing tells of that; so the switch looks once a second where the
//! name of each namespace leads. When it leads elsewhere, or nowhere, the port lets go of all that
//! it has there, and is gone.

use std::collections::HashMap;

use tapswitch_datapath::Millis;
use tapswitch_netlink::Namespace;
use tapswitch_openflow::PortNo;

use crate::clock;
use crate::device::Device;
use crate::ports::Ports;
use crate::server::{Server, Waiting};
use crate::worker::Errand;

impl Ports {
    /// Sees to it that it is noticed when the namespace of a port that comes is not what its name
    /// leads to any more, or when a tunnel's way has gone.
    pub(crate) fn follow(&mut self, device: &Device) {
        if device.is_looked_at() {
            self.look_at.get_or_insert(next_look());
        }
    }

    /// The ports whose namespace is not what its name leads to now. One that cannot be looked at is
    /// taken to be.
    fn astray(&self) -> Vec<PortNo> {
        let (mut astray, mut found) = (Vec::new(), HashMap::new());
        for device in &self.devices {
            let Some((name, namespace)) = device.named_namespace() else { continue };
            let leads_to = *found.entry(name).or_insert_with(|| Namespace::identity_of(name).ok());
            if leads_to.is_some_and(|leads_to| leads_to != namespace.identity().ok()) {
                astray.push(device.spec.number);
            }
        }
        astray
    }
}

impl Server {
    /// Looks at what nothing tells of.
    pub(crate) fn look(&mut self) {
        self.follow_names();
        self.follow_paths();
        let is_one = self.ports.devices.iter().any(Device::is_looked_at);
        self.ports.look_at = is_one.then(next_look);
    }

    /// Looks where the names of the ports' namespaces lead.
    pub(crate) fn follow_names(&mut self) {
        self.ports.astray().into_iter().for_each(|number| self.lose_namespace(number));
    }

    /// The port stays, as one whose interface is gone; workers let go of what was behind it, and so
    /// does the switch when they have.
    fn lose_namespace(&mut self, number: PortNo) {
        let Some(device) = self.ports.find_mut(number) else { return };
        let lost = device.let_go();
        let spec = &lost.spec;
        tracing::warn!(
            "port {spec}: its namespace is gone: it was deleted, or its container has exited, and \
             netns= names another one or none; when it exists again, attach the port: `tapswitch \
             port remove {number}`, then `tapswitch port add {spec}`"
        );
        self.ports.unread(&lost);
        self.ports.watch_less();
        self.update_port(number);
        self.publish();
        let port = self.agent.pipeline().snapshot().ports.find(number);
        let counters = port.map(|port| port.counters.clone());
        for worker in &self.workers {
            worker.send(Errand::RemovePort(number, counters.clone()));
        }
        self.wait_for_workers(Waiting::LetGo(Box::new(lost)));
    }
}

fn next_look() -> Millis {
    Millis(clock::coarse().0 + LOOK_INTERVAL_MS)
}

const LOOK_INTERVAL_MS: u64 = 1000;
