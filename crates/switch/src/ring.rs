//! The kernel's rings of a tap device: frames sent to the device wait there until a worker reads
//! them.
//!
//! A frame that finds its ring full is lost, unless the device has back-pressure
//! (`IFF_BACKPRESSURE`, Linux 7.3): then it waits in the qdisc in front of the ring, which slows
//! down the sender, up to its socket. This needs a qdisc that can hold packets. If a device that
//! the switch created has none, it gets one; a device that the user created is left unchanged.
//!
//! Each queue has a ring for as many frames as the interface's transmit queue (`txqueuelen`). It is
//! allocated when a file is attached, and again when the length changes, so the order does not
//! matter as long as nothing is sent.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use tapswitch_netlink::{Link, LinkError, Netlink, Qdisc, QdiscSpec};
use tapswitch_tap as tap;

use crate::PortSpec;
use crate::command::shell_word;
use crate::open_error::unless_permitted;
use crate::port_spec::Backpressure;

/// The rings of an open tap device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// The switch created the device.
    is_ours: bool,
    /// The device has `IFF_BACKPRESSURE`; `None` if the kernel does not support it.
    backpressure: Option<bool>,
    /// The device has back-pressure, and packets can wait in front of the rings.
    waits: bool,
    /// Losses before the switch opened the device.
    dropped_before: u64,
}

/// The rings of a tap device, one per queue, in which frames wait for the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingReport {
    /// Frames per ring; a train counts as one.
    pub length: u32,
    /// What happens to packets that do not fit a ring.
    pub backpressure: RingBackpressure,
    /// The qdisc in front of the rings; one per queue if it starts with `mq`.
    pub qdisc: String,
    /// Packets that wait in it now.
    pub waiting: u32,
    /// Packets that it has dropped since it was set up.
    pub shed: u64,
    /// Frames lost since the port was opened because a ring was full; `ring_full` among the port's
    /// drops.
    pub ring_full: u64,
    /// Queues opened by other programs: frames that they read are missing at the port, and frames
    /// that they send are not checked.
    pub foreign_queues: u32,
    /// How often their number has grown since the port was opened.
    pub joins: u64,
}

/// What happens to a packet that does not fit a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RingBackpressure {
    /// It waits in the qdisc.
    InForce,
    /// It could wait, but there is no qdisc: it is dropped.
    NoQueueing,
    /// It is dropped.
    Off,
    /// It is dropped: this kernel has no `IFF_BACKPRESSURE`.
    Unavailable,
}

impl RingBackpressure {
    /// The name for reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InForce => "in force",
            Self::NoQueueing => "no qdisc",
            Self::Off => "off",
            Self::Unavailable => "not in this kernel",
        }
    }
}

impl Ring {
    /// The state of `device`; `is_ours` if the switch has just created it.
    ///
    /// # Errors
    /// If the device is gone.
    pub(crate) fn of(device: &tap::Device, is_ours: bool) -> Result<Self, tap::SettingError> {
        let is_set = device.flags()?.contains(tap::Flags::BACKPRESSURE);
        let backpressure = device.capabilities().has_backpressure().then_some(is_set);
        Ok(Self { is_ours, backpressure, waits: false, dropped_before: 0 })
    }

    /// Configures the rings by `spec`, before anything is sent to them.
    pub(crate) fn set(
        self,
        spec: &PortSpec,
        netlink: &mut Netlink,
        before: &Link,
    ) -> Result<(), LinkError> {
        let name = spec.name();
        let asked = spec.ring.length.map(|length| self.lossless(spec, length.get()));
        let wanted = asked.or_else(|| self.fitting(spec));
        match wanted.filter(|length| *length != before.txqueuelen) {
            None => Ok(()),
            Some(length) if asked.is_some() => netlink.set_txqueuelen(name, length),
            Some(length) => {
                let remedy = format!("link set {} txqueuelen {length}", shell_word(name));
                unless_permitted(spec, netlink.set_txqueuelen(name, length), &remedy)
            }
        }
    }

    /// The ring length of a device that the switch created. If the ring drops, one that holds as
    /// much as is read ahead, until the switch is scheduled; `None` if that makes no difference.
    /// Otherwise a short one: what waits in front of it is scheduled by flow and limited by its
    /// qdisc, what waits in it is not. In a guest with Linux 7.3, 200 Mb/s behind a tunnel and one
    /// TCP flow without delay, 99 % of the packets of another flow took 70 ms through a ring of
    /// 1000 and 19 ms through one of 100, at the same rate.
    fn fitting(self, spec: &PortSpec) -> Option<u32> {
        let count = u32::try_from(spec.pressure.ahead / PACKET_LEN).unwrap_or(u32::MAX);
        match self.backpressure {
            _ if !self.is_ours => None,
            Some(true) => Some(SHORT_LENGTH),
            _ => (count > USUAL_LENGTH).then(|| count.min(LENGTH_MAX)),
        }
    }

    /// The length that the user asked for, or the next one that loses nothing.
    fn lossless(self, spec: &PortSpec, asked: u32) -> u32 {
        let length = tap::lossless_ring_length(asked);
        if length == asked || self.backpressure != Some(true) {
            return asked;
        }
        tracing::warn!(
            "port {spec}: its rings hold {length} frames: at {asked}, Linux sometimes loses one \
             despite IFF_BACKPRESSURE"
        );
        length
    }

    /// Ensures that packets can wait if the device is the switch's own, and records earlier losses.
    /// The device is up, so it has its default qdisc.
    pub(crate) fn check(
        &mut self,
        spec: &PortSpec,
        netlink: &mut Netlink,
        link: &Link,
    ) -> Result<(), LinkError> {
        self.dropped_before = link.stats.tx_dropped;
        if self.backpressure != Some(true) {
            return Ok(());
        }
        self.waits = can_wait(&netlink.qdiscs(spec.name())?);
        if self.waits {
            return Ok(());
        }
        if self.is_ours {
            self.waits = true;
            return set_queueing(spec, netlink);
        }
        let (name, place) = (spec.name(), netlink.namespace().label());
        tracing::warn!(
            "port {spec}: frames that do not fit into the ring of {name} will be dropped, despite \
             IFF_BACKPRESSURE: they cannot wait without a queueing discipline, and the device was \
             not created by the switch; fix: tapswitch device set {name} --qdisc fq_codel (in \
             {place})"
        );
        Ok(())
    }

    /// True if the switch created the device.
    pub(crate) const fn is_ours(self) -> bool {
        self.is_ours
    }

    /// True if frames wait when a ring is full: reading ahead then has no benefit.
    pub(crate) fn waits(self) -> bool {
        self.waits
    }

    /// The current state of the rings of an interface with these qdiscs.
    pub(crate) fn report(self, link: &Link, qdiscs: &[Qdisc]) -> RingReport {
        let root = qdiscs.iter().find(|qdisc| qdisc.is_root());
        RingReport {
            length: link.txqueuelen,
            backpressure: self.state(qdiscs),
            qdisc: name_of(qdiscs),
            waiting: root.map_or(0, |root| root.qlen),
            shed: root.map_or(0, |root| root.drops),
            ring_full: link.stats.tx_dropped.saturating_sub(self.dropped_before),
            foreign_queues: 0,
            joins: 0,
        }
    }

    fn state(self, qdiscs: &[Qdisc]) -> RingBackpressure {
        match self.backpressure {
            None => RingBackpressure::Unavailable,
            Some(false) => RingBackpressure::Off,
            Some(true) if can_wait(qdiscs) => RingBackpressure::InForce,
            Some(true) => RingBackpressure::NoQueueing,
        }
    }
}

/// Typical mean packet length in bytes.
const PACKET_LEN: usize = 1024;
/// Ring length of a device with back-pressure: some bursts, of packets or trains.
const SHORT_LENGTH: u32 = 16;
/// Ring length of a new device (Linux `TUN_READQ_SIZE` and Ethernet's default).
const USUAL_LENGTH: u32 = 1000;
/// Limit of the ring length: a ring takes eight bytes per frame, for each queue.
const LENGTH_MAX: u32 = 65_536;

/// True if `length` is what [`Ring::set`] sets for `spec`.
pub(crate) fn is_as_asked(spec: &PortSpec, length: u32) -> bool {
    let asked = spec.ring.length.map(NonZeroU32::get);
    asked.is_some_and(|asked| length == asked || length == tap::lossless_ring_length(asked))
}

/// The feature requested from the kernel.
pub(crate) const fn wish(spec: &PortSpec) -> tap::Wish {
    match spec.ring.backpressure {
        Backpressure::Auto => tap::Wish::IfAvailable,
        Backpressure::On => tap::Wish::Required,
        Backpressure::Off => tap::Wish::Off,
    }
}

/// True if packets can wait in front of each queue. Kernels built without qdiscs report none.
fn can_wait(qdiscs: &[Qdisc]) -> bool {
    !qdiscs.is_empty() && qdiscs.iter().all(|qdisc| qdisc.kind != "noqueue")
}

/// Sets the first of [`DISCIPLINES`] that this kernel supports.
fn set_queueing(spec: &PortSpec, netlink: &mut Netlink) -> Result<(), LinkError> {
    let name = spec.name();
    let mut refused = None;
    for kind in DISCIPLINES {
        match netlink.set_qdisc(name, &QdiscSpec::new(kind)) {
            Ok(()) => return Ok(()),
            Err(error @ LinkError::NotFound { .. }) => return Err(error),
            Err(error) => refused = Some(error),
        }
    }
    let error = refused.map_or_else(String::new, |error| error.to_string());
    tracing::warn!(
        "port {spec}: frames that do not fit into the ring of {name} will be dropped: this kernel \
         has no queueing discipline in which they could wait ({error})"
    );
    Ok(())
}

/// Name of the qdisc, with that of the queues below `mq`.
pub(crate) fn name_of(qdiscs: &[Qdisc]) -> String {
    let root = qdiscs.iter().find(|qdisc| qdisc.is_root()).map_or("none", |root| &root.kind);
    match qdiscs.iter().find(|qdisc| !qdisc.is_root() && root == "mq") {
        Some(below) => format!("{root} {}", below.kind),
        None => root.to_owned(),
    }
}

/// Qdiscs that can hold packets, in order of preference: fair with ECN marking; fair; available in
/// every kernel with qdiscs.
const DISCIPLINES: [&str; 3] = ["fq_codel", "fq", "pfifo_fast"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_as_asked_as_such_or_lossless() {
        let spec: PortSpec = "1=tap:a,txqueuelen=3".parse().unwrap();
        assert_eq!([2, 3, 4].map(|length| is_as_asked(&spec, length)), [false, true, true]);
        assert!(!is_as_asked(&"1=tap:a".parse().unwrap(), 4));
    }
}
