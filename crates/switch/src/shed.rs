//! Losses below a port on an existing interface, or a tunnel: in the interface's qdisc or its
//! driver.
//!
//! When there is no room for a frame, the kernel returns an error, and the frame is sent again
//! later (see `tx::queue`). It returns no error for packets of a train that was cut below the
//! socket, nor for packets that a qdisc accepts and drops later: the port counts them as sent. The
//! interface's counters include both kinds.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tapswitch_netlink::{Link, LinkError, Namespace, Netlink, Qdisc};

use crate::inquiry::Inquiry;
use crate::ring::name_of;

/// The qdisc of a port's interface that the switch did not create, or of a tunnel's egress
/// interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueingReport {
    /// The qdisc; one per queue if it starts with `mq`.
    pub qdisc: String,
    /// Packets that wait in it now.
    pub waiting: u32,
    /// Packets that it or the driver dropped silently since the port was opened, of any sender; for
    /// a tunnel, since its packets leave there. Packets refused with an error are sent again, and
    /// not included.
    pub shed: u64,
}

/// Losses before the port was opened.
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

    /// The report of an interface with these qdiscs. `refused` of its drops were returned to the
    /// switch as errors.
    pub(crate) fn report(self, link: &Link, qdiscs: &[Qdisc], refused: u64) -> QueueingReport {
        let dropped = dropped(link, qdiscs).saturating_sub(self.dropped_before);
        let root = qdiscs.iter().find(|qdisc| qdisc.is_root());
        QueueingReport {
            qdisc: name_of(qdiscs),
            waiting: root.map_or(0, |root| root.qlen),
            shed: dropped.saturating_sub(refused),
        }
    }
}

/// The egress interface of a tunnel's packets.
#[derive(Debug)]
pub(crate) struct Underlay {
    namespace: Namespace,
    to: IpAddr,
    from: IpAddr,
    now: Mutex<Option<Egress>>,
}

/// An egress interface, and its counters when it became that.
#[derive(Clone, Copy, Debug)]
struct Egress {
    index: u32,
    below: Below,
    refused_before: u64,
}

impl Underlay {
    /// The underlay of packets to `to` from `from` in `namespace`.
    pub(crate) fn new(namespace: Namespace, to: IpAddr, from: IpAddr) -> Self {
        let underlay = Self { namespace, to, from, now: Mutex::default() };
        underlay.find(0);
        underlay
    }

    /// The report of the current egress interface; `None` while there is no route. `refused` of its
    /// drops were returned to the switch as errors.
    pub(crate) fn report(&self, inquiry: &mut Inquiry, refused: u64) -> Option<QueueingReport> {
        let Egress { index, below, refused_before } = self.find(refused)?;
        let (link, qdiscs) = inquiry.interface(&self.namespace, index)?;
        // A concurrent report may have found the interface with a later count.
        Some(below.report(&link, qdiscs, refused.saturating_sub(refused_before)))
    }

    /// A different interface starts from zero.
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
