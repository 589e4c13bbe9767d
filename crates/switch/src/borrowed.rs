//! A device that somebody prepared, which the switch takes and leaves.
//!
//! It outlives the switch with its addresses and routes, which is what it is for. What the switch
//! sets for itself would outlive it as well, and the next program may count on what was there: so
//! MTU, length of the ring, header and offloads are put back as they were found. It stays up, as
//! routes and most addresses of IPv6 would go otherwise. A switch that was killed puts nothing
//! back.

use std::sync::Arc;

use tapswitch_netlink::{Link, LinkError, Namespace, Netlink};
use tapswitch_tap as tap;

use crate::PortSpec;

/// How a device was found. It is put back when this is dropped, which no worker reads it any more.
#[derive(Debug)]
pub(crate) struct Borrowed {
    spec: PortSpec,
    namespace: Namespace,
    link: Link,
    found: Option<tap::Found>,
    queue: Arc<tap::Queue>,
}

impl Borrowed {
    /// The device of `spec` that was as in `link`, and as `found`, and of which `queue` is one.
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
        // What is not as the switch has set it is somebody else's.
        if self.spec.mtu.is_some_and(|ours| ours == now.mtu && ours != self.link.mtu) {
            netlink.set_mtu(&now.name, self.link.mtu)?;
        }
        let ours = self.spec.ring.length.map(std::num::NonZeroU32::get);
        if ours.is_some_and(|ours| ours == now.txqueuelen && ours != self.link.txqueuelen) {
            netlink.set_txqueuelen(&now.name, self.link.txqueuelen)?;
        }
        Ok(())
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        match self.put_back() {
            Ok(()) => {}
            // It is gone, or went elsewhere.
            Err(LinkError::NotFound { .. }) => {}
            Err(error) => tracing::warn!(
                "port {}: cannot restore the settings of its device: {error}",
                self.spec
            ),
        }
        // One that is gone needs no header.
        let _ = self.found.map(|found| found.put_back(&self.queue));
    }
}
