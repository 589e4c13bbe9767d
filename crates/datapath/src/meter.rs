//! The meter table (OpenFlow 1.3.5 §5.7): limits the rate of flows.
//!
//! A band is a token bucket that fills at the band's rate. A frame that finds enough tokens takes
//! them; one that does not *exceeds* the band, and takes none. Of the bands that it exceeds, the
//! one with the highest rate applies (§5.7.1).
//!
//! All workers share a bucket: its level and the time of its last filling are two atomics, so in
//! any period no more passes than the rate allows, plus one full bucket.
//!
//! - Packets count as on the wire: a train as the packets that it makes, each with its headers,
//!   without preamble and frame check sequence, like the counters of flows.
//! - A train is judged as a whole, since it is not cut here: it passes if there are tokens for one
//!   of its packets, and takes those for all. A bucket that is negative after that fills up first,
//!   so the rate holds in the long run, and a burst is longer by less than one train.
//! - A packet that is larger than the bucket passes when the bucket is full.
//! - A band without a burst size has one second's worth of its rate, as in Open vSwitch. The burst
//!   is at least [`TICK_MS`] at the band's rate, because the clock advances in steps of up to that.
//! - Statistics are collected with or without `OFPMF_STATS`.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use hashbrown::HashMap;
use tapswitch_openflow::{
    ErrorKind, METER_ALL, METER_CONTROLLER, METER_MAX, MeterBand, MeterBandKind, MeterFlags,
    MeterMod, MeterModCommand,
};

use crate::Frame;
use crate::counters::{Counters, Millis, WorkerIndex};
use crate::traffic::Traffic;

/// One meter.
#[derive(Debug)]
pub struct Meter {
    /// Its number.
    pub id: u32,
    /// Unit and options.
    pub flags: MeterFlags,
    /// Its bands, in the order of the message.
    pub bands: Box<[Band]>,
    /// Packets that it measured, bytes as on the wire.
    pub counters: Arc<Counters>,
    /// When it was added.
    pub created: Millis,
}

/// One band of a meter.
#[derive(Debug)]
pub struct Band {
    /// Its specification.
    pub spec: MeterBand,
    /// Packets that it applied to, bytes as on the wire.
    pub counters: Counters,
    bucket: TokenBucket,
}

/// The verdict of a meter on a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The frame continues unchanged.
    Pass,
    /// It continues with a drop precedence higher by so many levels.
    Remark(u8),
    /// It is dropped.
    Drop,
}

impl Meter {
    fn new(spec: &MeterMod, counters: Arc<Counters>, created: Millis, state: Start) -> Self {
        let has_burst = spec.flags.contains(MeterFlags::BURST);
        let band = |band: &MeterBand| Band {
            spec: band.clone(),
            counters: Counters::new(state.workers),
            bucket: TokenBucket::new(band, has_burst, state.now),
        };
        let bands = spec.bands.iter().map(band).collect();
        Self { id: spec.meter_id, flags: spec.flags, bands, counters, created }
    }

    /// Measures a frame and returns the verdict. Only the worker `worker` may call this.
    pub(crate) fn measure(&self, worker: WorkerIndex, frame: &Frame<'_>, now: Millis) -> Verdict {
        let (len, share) = (frame.wire_len(), self.share(frame));
        let traffic = Traffic::frame(len, frame.wire_packets());
        self.counters.add(worker, traffic, now);
        let mut applied: Option<&Band> = None;
        for band in &self.bands {
            // All bands measure, whichever applies.
            let is_beyond = !band.bucket.take(share, now);
            if is_beyond && applied.is_none_or(|other| other.spec.rate < band.spec.rate) {
                applied = Some(band);
            }
        }
        let Some(band) = applied else { return Verdict::Pass };
        band.counters.add(worker, traffic, now);
        band.verdict()
    }

    fn share(&self, frame: &Frame<'_>) -> Share {
        let bits = |len: usize| i64::try_from(len * 8).unwrap_or(i64::MAX);
        match self.flags.contains(MeterFlags::PKTPS) {
            true => Share { first: PACKET, all: PACKET * i64::from(frame.wire_packets()) },
            false => Share { first: bits(frame.packet_len()), all: bits(frame.wire_len()) },
        }
    }
}

impl Band {
    fn verdict(&self) -> Verdict {
        match self.spec.kind {
            MeterBandKind::Drop => Verdict::Drop,
            MeterBandKind::DscpRemark { prec_level } => Verdict::Remark(prec_level),
            // Refused when the meter was added.
            MeterBandKind::Experimenter { .. } | MeterBandKind::Unknown { .. } => Verdict::Pass,
        }
    }
}

/// When a meter starts, and the number of its writers.
#[derive(Clone, Copy)]
struct Start {
    now: Millis,
    workers: usize,
}

/// What a frame takes from a bucket.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// For its first packet, which is one of its longest.
    first: i64,
    /// For all of its packets.
    all: i64,
}

/// The tokens of a band, in bits or thousandths of packets: in these units a rate in kbit/s or
/// packets per second is a whole number per millisecond.
#[derive(Debug)]
struct TokenBucket {
    per_ms: u64,
    depth: i64,
    /// Negative after a train that took more than there was.
    level: AtomicI64,
    filled_ms: AtomicU64,
}

impl TokenBucket {
    /// A full bucket.
    fn new(band: &MeterBand, has_burst: bool, now: Millis) -> Self {
        let burst = match has_burst && band.burst_size > 0 {
            true => i64::from(band.burst_size),
            false => i64::from(band.rate),
        };
        let depth = (burst * PER_BURST_UNIT).max(i64::from(band.rate) * TICK_MS);
        Self {
            per_ms: band.rate.into(),
            depth,
            level: AtomicI64::new(depth),
            filled_ms: AtomicU64::new(now.0),
        }
    }

    /// Takes the tokens for a frame, if there are enough.
    fn take(&self, share: Share, now: Millis) -> bool {
        self.fill(now);
        let needed = share.first.min(self.depth);
        let left = |level: i64| (level >= needed).then(|| level.saturating_sub(share.all));
        self.level.fetch_update(Relaxed, Relaxed, left).is_ok()
    }

    /// Adds the tokens of the time since the last filling, once for all workers: the worker that
    /// replaces the old time adds them. Another one may not see tokens that are just being added;
    /// it never sees too many.
    fn fill(&self, now: Millis) {
        let since = self.filled_ms.load(Relaxed);
        if now.0 <= since
            || self.filled_ms.compare_exchange(since, now.0, Relaxed, Relaxed).is_err()
        {
            return;
        }
        let gained = (now.0 - since).saturating_mul(self.per_ms);
        let gained = i64::try_from(gained).unwrap_or(i64::MAX);
        let filled = |level: i64| Some(level.saturating_add(gained).min(self.depth));
        // The closure always returns a level.
        let _ = self.level.fetch_update(Relaxed, Relaxed, filled);
    }
}

/// All meters at one moment.
///
/// Workers hold the previous version, so everything that a change touches is copied first: one part
/// of many, as for groups.
#[derive(Clone, Debug)]
pub struct MeterTable {
    parts: [Arc<HashMap<u32, Arc<Meter>>>; PARTS],
    count: usize,
}

impl Default for MeterTable {
    fn default() -> Self {
        Self { parts: std::array::from_fn(|_| Arc::default()), count: 0 }
    }
}

impl MeterTable {
    /// Adds, changes or deletes meters, by a change that [has been checked](Self::check_mod).
    /// Returns the deleted meters; rules that use them must be deleted too.
    ///
    /// A modified meter keeps its counters; its bands are new (§6.6).
    pub(crate) fn handle_mod(&mut self, spec: &MeterMod, now: Millis, workers: usize) -> Vec<u32> {
        if spec.command == MeterModCommand::Delete {
            return self.delete(spec.meter_id);
        }
        let known = self.find(spec.meter_id).map(|old| (old.counters.clone(), old.created));
        let (counters, created) = known.unwrap_or_else(|| (Arc::new(Counters::new(workers)), now));
        self.insert(Arc::new(Meter::new(spec, counters, created, Start { now, workers })));
        Vec::new()
    }

    fn insert(&mut self, meter: Arc<Meter>) {
        let replaced = Arc::make_mut(&mut self.parts[part(meter.id)]).insert(meter.id, meter);
        self.count += usize::from(replaced.is_none());
    }

    fn delete(&mut self, id: u32) -> Vec<u32> {
        if id == METER_ALL {
            return self.delete_all();
        }
        if self.find(id).is_none() {
            return Vec::new();
        }
        self.count -= 1;
        Arc::make_mut(&mut self.parts[part(id)]).remove(&id);
        vec![id]
    }

    /// Deletes all meters, except for the virtual one (OpenFlow 1.3.5 §6.6).
    fn delete_all(&mut self) -> Vec<u32> {
        let (kept, gone): (Vec<_>, Vec<_>) =
            std::mem::take(self).all().cloned().partition(|meter| meter.id == METER_CONTROLLER);
        kept.into_iter().for_each(|meter| self.insert(meter));
        gone.into_iter().map(|meter| meter.id).collect()
    }

    /// Checks a change.
    ///
    /// # Errors
    /// The OpenFlow error to send back.
    pub(crate) fn check_mod(&self, spec: &MeterMod) -> Result<(), ErrorKind> {
        if spec.command == MeterModCommand::Delete {
            return Ok(());
        }
        check(spec)?;
        let is_known = self.find(spec.meter_id).is_some();
        match spec.command {
            MeterModCommand::Add if is_known => Err(ErrorKind::OFPMMFC_METER_EXISTS),
            MeterModCommand::Add if self.count >= MAX_METERS => {
                Err(ErrorKind::OFPMMFC_OUT_OF_METERS)
            }
            MeterModCommand::Modify if !is_known => Err(ErrorKind::OFPMMFC_UNKNOWN_METER),
            _ => Ok(()),
        }
    }

    /// The meter with this number.
    pub fn find(&self, id: u32) -> Option<&Arc<Meter>> {
        self.parts[part(id)].get(&id)
    }

    /// All meters, ordered by number.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Meter>> {
        let mut meters: Vec<_> = self.all().collect();
        meters.sort_by_key(|meter| meter.id);
        meters.into_iter()
    }

    /// Number of meters.
    pub fn count(&self) -> usize {
        self.count
    }

    /// All meters, in no order.
    fn all(&self) -> impl Iterator<Item = &Arc<Meter>> {
        self.parts.iter().flat_map(|part| part.values())
    }
}

/// True if a meter can have this number. `OFPM_SLOWPATH` is not allowed, as there is no slow path:
/// the first frame of a flow is processed by the worker that read it, like all others.
fn can_be(id: u32) -> bool {
    (1..=METER_MAX).contains(&id) || id == METER_CONTROLLER
}

fn check(spec: &MeterMod) -> Result<(), ErrorKind> {
    if !can_be(spec.meter_id) {
        return Err(ErrorKind::OFPMMFC_INVALID_METER);
    }
    if spec.flags.contains(MeterFlags::KBPS | MeterFlags::PKTPS) {
        return Err(ErrorKind::OFPMMFC_BAD_FLAGS);
    }
    if spec.bands.len() > MAX_BANDS {
        return Err(ErrorKind::OFPMMFC_OUT_OF_BANDS);
    }
    spec.bands.iter().try_for_each(|band| match band.kind {
        _ if band.rate == 0 => Err(ErrorKind::OFPMMFC_BAD_RATE),
        MeterBandKind::Drop => Ok(()),
        // The controller gets the packet as it came in.
        MeterBandKind::DscpRemark { .. } if spec.meter_id == METER_CONTROLLER => {
            Err(ErrorKind::OFPMMFC_BAD_BAND)
        }
        // It would change nothing.
        MeterBandKind::DscpRemark { prec_level: 0 } => Err(ErrorKind::OFPMMFC_BAD_BAND_VALUE),
        MeterBandKind::DscpRemark { .. } => Ok(()),
        MeterBandKind::Experimenter { .. } | MeterBandKind::Unknown { .. } => {
            Err(ErrorKind::OFPMMFC_BAD_BAND)
        }
    })
}

/// The part of the table that holds a meter. Controllers usually number them consecutively.
fn part(id: u32) -> usize {
    id as usize % PARTS
}

/// Thousandths of a packet in a packet.
const PACKET: i64 = 1000;
/// Tokens in a kilobit or a packet of a burst size.
const PER_BURST_UNIT: i64 = 1000;
/// Longest step of the workers' clock in milliseconds: that of a kernel with 100 ticks per second.
const TICK_MS: i64 = 10;
/// Parts of a table.
const PARTS: usize = 64;
/// Meters that the table holds; each costs a few hundred bytes.
pub const MAX_METERS: usize = 65_536;
/// Bands of a meter, as in Open vSwitch: each costs an atomic exchange per frame.
pub const MAX_BANDS: usize = 8;

#[cfg(test)]
mod tests;
