//! A device that the user created beforehand, which the switch uses and leaves behind.
//!
//! Such a device keeps its addresses and routes when the switch ends, which is its purpose.
//! Settings of the switch would stay as well, and the next program may rely on the old ones. So
//! MTU, ring length, header length and offloads are restored. The device stays up, as its routes
//! and most of its IPv6 addresses would be lost otherwise. A switch that was killed restores
//! nothing.

use std::sync::Arc;

use tapswitch_netlink::{Link, LinkError, Namespace, Netlink};
use tapswitch_tap as tap;

use crate::PortSpec;
use crate::ring::is_as_asked;

/// The previous state of a device. Dropping this restores it, once no worker reads the device.
#[derive(Debug)]
pub(crate) struct Borrowed {
    spec: PortSpec,
    namespace: Namespace,
    link: Link,
    found: Option<tap::Found>,
    queue: Arc<tap::Queue>,
}

impl Borrowed {
    /// The device of `spec` with its previous state in `link` and `found`; `queue` is one of its
    /// queues.
    pub(crate) fn new(
        spec: &PortSpec,
        namespace: &Namespace,
        (link, found): (Link, Option<tap::Found>),
        queue: Arc<tap::Queue>,
    ) -> Self {
        Self { spec: spec.clone(), namespace: namespace.clone(), link, found, queue }
    }

    fn put_back(&self) -> Result<(), LinkError> {
        let mut netlink = Netlink::open(&self.namespace)?;
        let now = netlink.link_by_index(self.link.index)?;
        // A value that the switch has not set belongs to somebody else.
        if self.spec.mtu.is_some_and(|ours| ours == now.mtu && ours != self.link.mtu) {
            netlink.set_mtu(&now.name, self.link.mtu)?;
        }
        if is_as_asked(&self.spec, now.txqueuelen) && now.txqueuelen != self.link.txqueuelen {
            netlink.set_txqueuelen(&now.name, self.link.txqueuelen)?;
        }
        Ok(())
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        match self.put_back() {
            Ok(()) => {}
            // The device is deleted or was moved.
            Err(LinkError::NotFound { .. }) => {}
            Err(error) => tracing::warn!(
                "port {}: cannot restore the settings of its device: {error}",
                self.spec
            ),
        }
        // A deleted device needs no header length.
        let _ = self.found.map(|found| found.put_back(&self.queue));
    }
}
