//! Ports in namespaces that were deleted, or whose container has ended.
//!
//! A namespace lives as long as a file descriptor refers to it, or to a socket or device that was
//! opened in it. A port holds all of these. So the namespace would outlive its name and its
//! processes, with a host that answers pings and receives copies, next to the new owner of the
//! name. The kernel does not report this, so the switch checks once a second what the name of each
//! namespace refers to. If it refers to another namespace or none, the port releases everything in
//! the old one, and is gone.

use std::collections::HashMap;

use tapswitch_datapath::Millis;
use tapswitch_netlink::Namespace;
use tapswitch_openflow::PortNo;

use crate::clock;
use crate::command::shell_word;
use crate::device::Device;
use crate::ports::Ports;
use crate::server::{Server, Waiting};
use crate::worker::Errand;

impl Ports {
    /// Starts the periodic check if the new port has a namespace with a name, or a tunnel whose
    /// route may be lost.
    pub(crate) fn follow(&mut self, device: &Device) {
        if device.is_looked_at() {
            self.look_at.get_or_insert(next_look());
        }
    }

    /// The ports whose namespace is no longer the one its name refers to. A name that cannot be
    /// resolved for other reasons counts as unchanged.
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
    /// Checks what the kernel does not report.
    pub(crate) fn look(&mut self) {
        self.follow_names();
        self.follow_paths();
        let is_one = self.ports.devices.iter().any(Device::is_looked_at);
        self.ports.look_at = is_one.then(next_look);
    }

    /// Checks what the names of the ports' namespaces refer to.
    pub(crate) fn follow_names(&mut self) {
        self.ports.astray().into_iter().for_each(|number| self.lose_namespace(number));
    }

    /// The port stays, as one whose interface is gone. Workers release the device, and the switch
    /// closes it when they all have.
    fn lose_namespace(&mut self, number: PortNo) {
        let Some(device) = self.ports.find_mut(number) else { return };
        let lost = device.let_go();
        let spec = &lost.spec;
        tracing::warn!(
            "port {spec}: its namespace is gone: it was deleted, or its container has exited, and \
             netns= names another one or none; when it exists again, attach the port: `tapswitch \
             port remove {number}`, then `tapswitch port add {}`",
            shell_word(&spec.to_string())
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
