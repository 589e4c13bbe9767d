//! The kernel's rings of a tap device: frames that were sent to it wait there until a worker reads
//! them.
//!
//! A frame that finds a ring full is lost, unless the device has back-pressure (`IFF_BACKPRESSURE`,
//! Linux 7.3): then it waits in the queueing discipline in front, which slows down whoever sends,
//! up to the socket. That takes a discipline in which something can wait. A device that the switch
//! made gets one when it has none; one that somebody else prepared is left as it is.
//!
//! Each queue has its ring, of as many frames as the interface's transmit queue (`txqueuelen`). It
//! is laid out when a file is attached, and anew when the length changes, so it does not matter
//! which comes first, as long as nobody sends.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use tapswitch_netlink::{Link, LinkError, Namespace, Netlink, Qdisc, QdiscSpec};
use tapswitch_tap as tap;

use crate::PortSpec;
use crate::open_error::unless_permitted;
use crate::port_spec::Backpressure;

/// The rings of a tap device that is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    /// The switch made the device.
    is_ours: bool,
    /// The device has `IFF_BACKPRESSURE`; `None` when the kernel has it not.
    backpressure: Option<bool>,
    /// And packets can wait in front of the rings.
    waits: bool,
    /// What others lost before the switch came.
    dropped_before: u64,
}

/// The rings of a tap device, one for each queue, in which frames wait for the switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RingReport {
    /// Frames that each ring holds; a train is one.
    pub length: u32,
    /// Whether packets wait that a ring has no room for.
    pub backpressure: RingBackpressure,
    /// The queueing discipline in front of the rings; for each queue one when it starts with `mq`.
    pub qdisc: String,
    /// Packets that wait there now.
    pub waiting: u32,
    /// Packets that it dropped since it was set.
    pub shed: u64,
    /// Frames that were lost since the port was opened because a ring was full, as
    /// `ring_full` among the port's drops.
    pub ring_full: u64,
    /// Queues that other programs have opened: what they read, the port does not get, and what they
    /// send nobody checks.
    pub foreign_queues: u32,
    /// How often there came to be more of them since the port was opened.
    pub joins: u64,
}

/// What becomes of a packet that a ring has no room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RingBackpressure {
    /// It waits in the queueing discipline.
    InForce,
    /// It would wait, but there is no queueing discipline: it is dropped.
    NoQueueing,
    /// It is dropped.
    Off,
    /// It is dropped: this kernel has no `IFF_BACKPRESSURE`.
    Unavailable,
}

impl RingBackpressure {
    /// In a word, or a few.
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
    /// What `device` has; `is_ours` when the switch has made it just now.
    ///
    /// # Errors
    /// When the device is gone.
    pub(crate) fn of(device: &tap::Device, is_ours: bool) -> Result<Self, tap::SettingError> {
        let is_set = device.flags()?.contains(tap::Flags::BACKPRESSURE);
        let backpressure = device.capabilities().has_backpressure().then_some(is_set);
        Ok(Self { is_ours, backpressure, waits: false, dropped_before: 0 })
    }

    /// Lets the rings be as `spec` wants them, before anything is sent to them.
    pub(crate) fn set(
        self,
        spec: &PortSpec,
        netlink: &mut Netlink,
        before: &Link,
    ) -> Result<(), LinkError> {
        let name = spec.name();
        let asked = spec.ring.length.map(NonZeroU32::get);
        let wanted = asked.or_else(|| self.fitting(spec));
        match wanted.filter(|length| *length != before.txqueuelen) {
            None => Ok(()),
            Some(length) if asked.is_some() => netlink.set_txqueuelen(name, length),
            Some(length) => {
                let remedy = format!("run `ip link set {name} txqueuelen {length}` as root");
                unless_permitted(spec, netlink.set_txqueuelen(name, length), &remedy)
            }
        }
    }

    /// How long rings must be that hold, until the switch gets a processor, what is read ahead
    /// then. None where it makes no difference.
    fn fitting(self, spec: &PortSpec) -> Option<u32> {
        let count = u32::try_from(spec.pressure.ahead / PACKET_LEN).unwrap_or(u32::MAX);
        let drops = self.is_ours && self.backpressure != Some(true);
        (drops && count > USUAL_LENGTH).then(|| count.min(LENGTH_MAX))
    }

    /// Sees to it that packets can wait, as far as that is the switch's to decide, and remembers
    /// what was lost up to now. The device is up: it has its discipline since then.
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

    /// True when the switch has made the device.
    pub(crate) const fn is_ours(self) -> bool {
        self.is_ours
    }

    /// True when what finds a ring full waits: there is nothing to be gained by reading ahead.
    pub(crate) fn waits(self) -> bool {
        self.waits
    }

    /// How the rings of the interface with `index` are now; `None` when it is gone.
    pub(crate) fn report(self, namespace: &Namespace, index: u32) -> Option<RingReport> {
        let mut netlink = Netlink::open(namespace).ok()?;
        let link = netlink.link_by_index(index).ok()?;
        let qdiscs = netlink.qdiscs(&link.name).ok()?;
        let root = qdiscs.iter().find(|qdisc| qdisc.is_root());
        Some(RingReport {
            length: link.txqueuelen,
            backpressure: self.state(&qdiscs),
            qdisc: name_of(&qdiscs),
            waiting: root.map_or(0, |root| root.qlen),
            shed: root.map_or(0, |root| root.drops),
            ring_full: link.stats.tx_dropped.saturating_sub(self.dropped_before),
            foreign_queues: 0,
            joins: 0,
        })
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

/// About the length of the packets of a mixture, in bytes.
const PACKET_LEN: usize = 1024;
/// Frames in the ring of a new device (Linux `TUN_READQ_SIZE` and Ethernet's default).
const USUAL_LENGTH: u32 = 1000;
/// A ring costs eight bytes a frame, for each queue.
const LENGTH_MAX: u32 = 65_536;

/// What is wanted of the kernel.
pub(crate) const fn wish(spec: &PortSpec) -> tap::Wish {
    match spec.ring.backpressure {
        Backpressure::Auto => tap::Wish::IfAvailable,
        Backpressure::On => tap::Wish::Required,
        Backpressure::Off => tap::Wish::Off,
    }
}

/// True when packets can wait in front of each queue. Some kernels are built without any
/// discipline, and then tell of none.
fn can_wait(qdiscs: &[Qdisc]) -> bool {
    !qdiscs.is_empty() && qdiscs.iter().all(|qdisc| qdisc.kind != "noqueue")
}

/// Gives the device the first discipline that this kernel has.
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

/// Name of the discipline, with that of the queues below `mq`.
pub(crate) fn name_of(qdiscs: &[Qdisc]) -> String {
    let root = qdiscs.iter().find(|qdisc| qdisc.is_root()).map_or("none", |root| &root.kind);
    match qdiscs.iter().find(|qdisc| !qdisc.is_root() && root == "mq") {
        Some(below) => format!("{root} {}", below.kind),
        None => root.to_owned(),
    }
}

/// Where packets may wait, the best first: fair to flows and marking; fair; there with every kernel
/// that has any.
const DISCIPLINES: [&str; 3] = ["fq_codel", "fq", "pfifo_fast"];
