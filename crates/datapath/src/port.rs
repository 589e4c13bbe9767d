//! The ports as the datapath sees them: what may be sent where, and counters.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tapswitch_openflow::{PortConfig, PortNo, PortState};
use tapswitch_wire::MacAddr;

use crate::counters::{Slots, bump, bump_shared};
use crate::traffic::Traffic;
use crate::vlan::PortMode;
use crate::{DropCounters, DropReason, Gauge, Millis, WorkerIndex};

/// Highest port number, besides [`PortNo::LOCAL`].
pub const MAX_PORT: u32 = 4095;
/// An index that no port has.
const NOWHERE: usize = usize::MAX;
/// Default envelope: bytes of an S-tag around a C-tag.
pub const DEFAULT_ENVELOPE: u16 = 8;

/// One port.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its number.
    pub number: PortNo,
    /// Name of its interface.
    pub name: String,
    /// Its MAC address.
    pub hw_addr: MacAddr,
    /// Configuration by the administrator and the controller.
    pub config: PortConfig,
    /// State of its link.
    pub state: PortState,
    /// Largest payload of a frame in bytes, without tags; of a train, of each packet.
    pub mtu: u32,
    /// Maximum bytes of tags of a frame in addition to its payload, whatever the length of that:
    /// the envelope of IEEE 802.3as.
    pub envelope: u16,
    /// Maximum bytes behind the Ethernet header that the device behind the port accepts, tags
    /// included except an outermost C-tag. If that is less than [`Self::mtu`] plus
    /// [`Self::envelope`], full-size frames have room for fewer tags than short ones.
    pub room: u32,
    /// VLAN mode. Without a mode the port is a member of all VLANs, and frames look outside as they
    /// do inside.
    pub mode: Option<Arc<PortMode>>,
    /// When it was added.
    pub created: Millis,
    /// Counters, shared by all versions of this port.
    pub counters: Arc<PortCounters>,
}

impl Port {
    /// A port that is up since the origin of time, with the default envelope, without a mode, and
    /// with counters for `workers` writers.
    pub fn new(number: PortNo, name: String, hw_addr: MacAddr, mtu: u32, workers: usize) -> Self {
        let counters = Arc::new(PortCounters::new(workers));
        let (config, state) = (PortConfig::empty(), PortState::LIVE);
        let (envelope, room, mode) = (DEFAULT_ENVELOPE, u32::MAX, None);
        let created = Millis::default();
        Self { number, name, hw_addr, config, state, mtu, envelope, room, mode, created, counters }
    }

    /// Maximum bytes of tags of a full-size frame.
    pub fn full_size_envelope(&self) -> u16 {
        let room = self.room.saturating_sub(self.mtu);
        self.envelope.min(u16::try_from(room).unwrap_or(u16::MAX))
    }

    /// True if frames can pass: the port is neither down by configuration nor without a link.
    pub fn is_live(&self) -> bool {
        !self.config.contains(PortConfig::PORT_DOWN) && !self.state.contains(PortState::LINK_DOWN)
    }

    /// True if floods are sent here. A blocked port gets only what names it (OpenFlow 1.3.5 §4.5,
    /// §7.2.1): a port for copies would otherwise get other traffic among them. This applies to ALL
    /// as to FLOOD, because ALL stands for the ports that can be used.
    pub fn is_flooded(&self) -> bool {
        !self.state.contains(PortState::BLOCKED)
    }

    /// Why a frame may not leave here, if so.
    pub fn egress_refusal(&self) -> Option<DropReason> {
        if !self.is_live() {
            Some(DropReason::PortDown)
        } else if self.config.contains(PortConfig::NO_FWD) {
            Some(DropReason::PortNoForward)
        } else {
            None
        }
    }

    /// True if frames that come in here must be dropped.
    pub fn refuses_ingress(&self) -> bool {
        self.config.intersects(PortConfig::NO_RECV | PortConfig::PORT_DOWN)
    }
}

/// All ports at one moment.
#[derive(Clone, Debug, Default)]
pub struct Ports {
    /// By number; index 0, which is not a port number, is [`PortNo::LOCAL`].
    by_number: Vec<Option<Arc<Port>>>,
    /// Numbers of the ports that take floods in order, [`PortNo::LOCAL`] last.
    flooded: Vec<PortNo>,
}

impl Ports {
    /// The port with this number.
    #[inline]
    pub fn find(&self, number: PortNo) -> Option<&Arc<Port>> {
        self.by_number.get(Self::place(number))?.as_ref()
    }

    /// Index of the port with this number in [`Self::places`].
    #[inline]
    pub(crate) fn place(number: PortNo) -> usize {
        match number {
            PortNo::LOCAL => 0,
            PortNo(0) => NOWHERE,
            PortNo(number) => number as usize,
        }
    }

    /// True if a port can have this number.
    pub(crate) const fn can_be(number: PortNo) -> bool {
        matches!(number, PortNo::LOCAL | PortNo(1..=MAX_PORT))
    }

    /// The ports by index.
    pub(crate) fn places(&self) -> &[Option<Arc<Port>>] {
        &self.by_number
    }

    /// All ports, ordered by number, [`PortNo::LOCAL`] first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Port>> {
        self.by_number.iter().flatten()
    }

    /// The ports of ALL and FLOOD: every standard port (OpenFlow 1.3.5 §4.5), which includes
    /// [`PortNo::LOCAL`] (§4.2), except those that take no floods ([`Port::is_flooded`]).
    #[inline]
    pub fn flooded(&self) -> &[PortNo] {
        &self.flooded
    }

    /// Adds or replaces a port. Returns `false` if its number is not that of a port.
    pub(crate) fn insert(&mut self, port: Port) -> bool {
        if !Self::can_be(port.number) {
            return false;
        }
        let index = Self::place(port.number);
        if self.by_number.len() <= index {
            self.by_number.resize(index + 1, None);
        }
        self.by_number[index] = Some(Arc::new(port));
        self.note_flooded();
        true
    }

    /// Removes a port.
    pub(crate) fn remove(&mut self, number: PortNo) -> Option<Arc<Port>> {
        let port = self.by_number.get_mut(Self::place(number))?.take();
        self.note_flooded();
        port
    }

    fn note_flooded(&mut self) {
        let (local, others) = self.by_number.split_at(self.by_number.len().min(1));
        let flooded = others.iter().chain(local).flatten().filter(|port| port.is_flooded());
        self.flooded = flooded.map(|port| port.number).collect();
    }
}

/// Traffic and drops of a port.
pub struct PortCounters {
    slots: Slots<Slot>,
    drops: DropCounters,
    queued: Gauge,
    ahead: Gauge,
    oversize: Oversize<AtomicUsize>,
}

impl PortCounters {
    /// All zero, for `workers` writers.
    pub fn new(workers: usize) -> Self {
        Self {
            slots: Slots::new(workers),
            drops: DropCounters::new(workers),
            queued: Gauge::new(workers),
            ahead: Gauge::new(workers),
            oversize: Oversize::default(),
        }
    }

    /// Counts received frames.
    pub(crate) fn add_rx(&self, worker: WorkerIndex, traffic: Traffic) {
        match self.slots.of(worker) {
            Some(slot) => slot.rx.add(traffic, bump),
            None => self.slots.shared().rx.add(traffic, bump_shared),
        }
    }

    /// Counts sent frames.
    pub(crate) fn add_tx(&self, worker: WorkerIndex, traffic: Traffic) {
        match self.slots.of(worker) {
            Some(slot) => slot.tx.add(traffic, bump),
            None => self.slots.shared().tx.add(traffic, bump_shared),
        }
    }

    /// Counts the ends of frames that came in here: see [`Self::ends`].
    pub(crate) fn add_ends(&self, worker: WorkerIndex, count: u64) {
        self.count(worker, |slot| &slot.ends, count);
    }

    /// Counts a frame that the switch itself consumed, at its ingress or egress port.
    pub(crate) fn add_consumed(&self, worker: WorkerIndex) {
        self.count(worker, |slot| &slot.consumed, 1);
    }

    /// Counts received frames that were dropped.
    #[cold]
    pub fn refuse(&self, worker: WorkerIndex, traffic: Traffic, reason: DropReason) {
        self.add_rx(worker, traffic);
        self.add_ends(worker, traffic.frames);
        self.add_drops(worker, reason, traffic.frames);
    }

    /// Counts a consumed frame as lost on its way to the controller.
    pub(crate) fn lose_consumed(&self, worker: WorkerIndex, reason: DropReason) {
        self.count(worker, |slot| &slot.consumed, 1u64.wrapping_neg());
        self.add_drop(worker, reason);
    }

    fn count(&self, worker: WorkerIndex, counter: impl Fn(&Slot) -> &AtomicU64, by: u64) {
        match self.slots.of(worker) {
            Some(slot) => bump(counter(slot), by),
            None => bump_shared(counter(self.slots.shared()), by),
        }
    }

    /// Counts a drop at this port.
    #[inline]
    pub fn add_drop(&self, worker: WorkerIndex, reason: DropReason) {
        self.add_drops(worker, reason, 1);
    }

    /// Counts several drops at this port.
    #[inline]
    pub(crate) fn add_drops(&self, worker: WorkerIndex, reason: DropReason, count: u64) {
        self.drops.add_all(worker, reason, count);
    }

    /// Records the size of a frame that did not fit. This is rare, so all workers share one record.
    #[cold]
    pub(crate) fn note_oversize(&self, size: Oversize<usize>) {
        self.oversize.payload.fetch_max(size.payload, Ordering::Relaxed);
        self.oversize.tags.fetch_max(size.tags, Ordering::Relaxed);
    }

    /// The longest payload and the most tags of frames that did not fit; zero if all did.
    pub fn oversize(&self) -> Oversize<usize> {
        let Oversize { payload, tags } = &self.oversize;
        let read = |value: &AtomicUsize| value.load(Ordering::Relaxed);
        Oversize { payload: read(payload), tags: read(tags) }
    }

    /// Received frames.
    pub fn rx(&self) -> Traffic {
        self.slots.iter().map(|slot| slot.rx.read()).sum()
    }

    /// Sent frames.
    pub fn tx(&self) -> Traffic {
        self.slots.iter().map(|slot| slot.tx.read()).sum()
    }

    /// Ends of the frames that came in here: one for each port that was to send them, each time
    /// that the switch consumed one, and each drop. More than the received frames if some were
    /// copied or flooded.
    pub fn ends(&self) -> u64 {
        self.slots.iter().map(|slot| slot.ends.load(Ordering::Relaxed)).sum()
    }

    /// Frames that the switch itself consumed: received here for its controllers, or addressed to
    /// this port and answered by it.
    pub fn consumed(&self) -> u64 {
        let of = |slot: &Slot| slot.consumed.load(Ordering::Relaxed);
        self.slots.iter().map(of).fold(0, u64::wrapping_add)
    }

    /// Frames of this port that were read ahead and are not processed yet. They do not count as
    /// received.
    pub fn ahead(&self) -> &Gauge {
        &self.ahead
    }

    /// Frames that wait to be sent here.
    pub fn queued(&self) -> &Gauge {
        &self.queued
    }

    /// Drops: frames that came in here and were sent nowhere, and frames that should have been sent
    /// here.
    pub fn drops(&self) -> &DropCounters {
        &self.drops
    }
}

impl fmt::Debug for PortCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortCounters")
            .field("rx", &self.rx())
            .field("tx", &self.tx())
            .field("drops", &self.drops)
            .finish()
    }
}

/// Sizes of frames that did not fit a port, to be reported with what would fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oversize<T> {
    /// Bytes that the MTU limits: those behind the last tag; of a train, of its longest packet.
    pub payload: T,
    /// Bytes of tags.
    pub tags: T,
}

#[derive(Default)]
#[repr(align(64))]
struct Slot {
    rx: Direction,
    tx: Direction,
    ends: AtomicU64,
    consumed: AtomicU64,
}

#[derive(Default)]
struct Direction {
    frames: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Direction {
    #[inline]
    fn add(&self, traffic: Traffic, add: impl Fn(&AtomicU64, u64)) {
        add(&self.frames, traffic.frames);
        add(&self.packets, traffic.packets);
        add(&self.bytes, traffic.bytes);
    }

    fn read(&self) -> Traffic {
        Traffic {
            frames: self.frames.load(Ordering::Relaxed),
            packets: self.packets.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(number: PortNo) -> Port {
        Port::new(number, format!("p{number}"), MacAddr::ZERO, 1500, 1)
    }

    #[test]
    fn ports_are_found_by_number() {
        let mut ports = Ports::default();
        assert!(ports.insert(port(PortNo(3))) && ports.insert(port(PortNo::LOCAL)));
        assert!(!ports.insert(port(PortNo(0))) && !ports.insert(port(PortNo(MAX_PORT + 1))));
        assert_eq!(ports.find(PortNo(3)).unwrap().name, "p3");
        assert_eq!(ports.find(PortNo::LOCAL).unwrap().name, "pLOCAL");
        assert!(ports.find(PortNo(0)).is_none() && ports.find(PortNo(2)).is_none());
        assert_eq!(ports.flooded(), [PortNo(3), PortNo::LOCAL]);
        assert!(ports.remove(PortNo(3)).is_some() && ports.find(PortNo(3)).is_none());
        assert_eq!(ports.flooded(), [PortNo::LOCAL]);
        let state = PortState::LIVE | PortState::BLOCKED;
        assert!(ports.insert(Port { state, ..port(PortNo(3)) }) && ports.insert(port(PortNo(4))));
        assert_eq!(ports.flooded(), [PortNo(4), PortNo::LOCAL], "one that is blocked is left out");
        assert!(ports.insert(port(PortNo(1))));
        assert!(ports.find(PortNo(0)).is_none() && ports.remove(PortNo(0)).is_none());
    }

    #[test]
    fn configuration_and_link_close_a_port() {
        let mut port = port(PortNo(1));
        assert_eq!(port.egress_refusal(), None);
        port.config = PortConfig::NO_FWD | PortConfig::NO_RECV;
        assert_eq!(port.egress_refusal(), Some(DropReason::PortNoForward));
        assert!(port.refuses_ingress() && port.is_live());
        port.state = PortState::LINK_DOWN;
        assert_eq!(port.egress_refusal(), Some(DropReason::PortDown));
    }
}
