//! What is lost below a port on somebody's interface, or a tunnel: in the queueing discipline of
//! the interface, or its driver.
//!
//! Of a frame for which there is no room the kernel says so, and it is sent again later (see
//! `tx::queue`). Of the packets of a train that was cut below, and of what a discipline takes and
//! drops later, it says nothing: they were sent, as far as the port's counters know. It counts
//! both kinds.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tapswitch_netlink::{Link, LinkError, Namespace, Netlink, Qdisc};

use crate::ring::name_of;

/// What is in front of the interface of a port that the switch has not made, or of the one by which
/// the packets of a tunnel leave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueingReport {
    /// Its queueing discipline; for each queue one when it starts with `mq`.
    pub qdisc: String,
    /// Packets that wait there now.
    pub waiting: u32,
    /// Packets that it, or the driver, dropped without a word since the port was opened, whoever
    /// sent them; under a tunnel, since its packets leave there. Those that the switch was told of
    /// are sent again, and not among them.
    pub shed: u64,
}

/// What was lost before the port was opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Below {
    dropped_before: u64,
}

impl Below {
    /// The interface as it is now.
    pub(crate) fn of(netlink: &mut Netlink, name: &str) -> Result<Self, LinkError> {
        let link = netlink.link(name)?;
        let dropped_before = dropped(&link, &netlink.qdiscs(name)?);
        Ok(Self { dropped_before })
    }

    /// What is to be told of the interface with `index`; none when it is gone. Of what was dropped
    /// there, the switch was told of so many as `refused`.
    pub(crate) fn report(
        self,
        namespace: &Namespace,
        index: u32,
        refused: u64,
    ) -> Option<QueueingReport> {
        let mut netlink = Netlink::open(namespace).ok()?;
        let link = netlink.link_by_index(index).ok()?;
        let qdiscs = netlink.qdiscs(&link.name).ok()?;
        let dropped = dropped(&link, &qdiscs).saturating_sub(self.dropped_before);
        let root = qdiscs.iter().find(|qdisc| qdisc.is_root());
        Some(QueueingReport {
            qdisc: name_of(&qdiscs),
            waiting: root.map_or(0, |root| root.qlen),
            shed: dropped.saturating_sub(refused),
        })
    }
}

/// The interface by which a tunnel's packets leave.
#[derive(Debug)]
pub(crate) struct Underlay {
    namespace: Namespace,
    to: IpAddr,
    from: IpAddr,
    now: Mutex<Option<Egress>>,
}

/// An interface, since packets leave by it.
#[derive(Clone, Copy, Debug)]
struct Egress {
    index: u32,
    below: Below,
    refused_before: u64,
}

impl Underlay {
    /// Of packets to `to` from `from` in `namespace`.
    pub(crate) fn new(namespace: Namespace, to: IpAddr, from: IpAddr) -> Self {
        let underlay = Self { namespace, to, from, now: Mutex::default() };
        underlay.find(0);
        underlay
    }

    /// What is to be told of the interface by which packets leave now; none while there is no
    /// route. Of what was dropped there, the switch was told of so many as `refused`.
    pub(crate) fn report(&self, refused: u64) -> Option<QueueingReport> {
        let Egress { index, below, refused_before } = self.find(refused)?;
        // Another report may have found the interface, with a later number.
        below.report(&self.namespace, index, refused.saturating_sub(refused_before))
    }

    /// Another interface than before starts from nothing.
    fn find(&self, refused: u64) -> Option<Egress> {
        let mut netlink = Netlink::open(&self.namespace).ok()?;
        let index = netlink.egress(self.to, self.from).ok()?;
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(egress) = now.filter(|egress| egress.index == index) {
            return Some(egress);
        }
        let name = netlink.link_by_index(index).ok()?.name;
        let below = Below::of(&mut netlink, &name).ok()?;
        *now = Some(Egress { index, below, refused_before: refused });
        *now
    }
}

/// Packets that the interface has dropped instead of sent.
fn dropped(link: &Link, qdiscs: &[Qdisc]) -> u64 {
    let root = qdiscs.iter().find(|qdisc| qdisc.is_root());
    link.stats.tx_dropped + root.map_or(0, |root| root.drops)
}
