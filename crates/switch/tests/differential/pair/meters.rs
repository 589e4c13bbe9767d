//! Comparison of meters: both switches pass as many frames of a burst, and report the same.
//!
//! The tokens that a bucket gains depend on the duration of the test, which is measured: the burst
//! size passes, and at most what the duration adds to it.

use std::fmt;
use std::ops::RangeInclusive;

use tapswitch_openflow::{MeterBand, MeterBandKind, MeterFlags, MeterMod, MeterModCommand};

use super::*;
use crate::random::Random;
use crate::seeds;

#[test]
fn meters_measure_alike() {
    let Some(mut pair) = Pair::start() else { return };
    for seed in seeds(1).step_by(STEP) {
        let case = Metered::random(&mut Random::new(seed));
        let begun = pair.sides.each_mut().map(|side| set_up(side, &case));
        // Otherwise it may use cached state.
        pair.ovs.settle();
        let sides = pair.sides.each_mut().into_iter().zip(begun);
        let measured: Vec<_> = sides.map(|(side, begun)| measure(side, &case, begun)).collect();
        let [theirs, ours] = &measured[..] else { panic!("two sides") };
        for (name, measured) in [("Open vSwitch", theirs), ("tapswitch", ours)] {
            let allowed = case.passes(measured.elapsed);
            let what = format!("seed {seed}, {name}: {measured:?} of {case}, {allowed:?}");
            assert!(allowed.contains(&measured.passed), "{what}");
            assert_eq!(measured.seen, (case.count, case.count * case.len), "{what}");
            assert_eq!(measured.applied + measured.passed, case.count, "{what}");
        }
        assert_eq!(theirs.told, ours.told, "seed {seed}: {case}");
    }
}

/// Both refuse the same meters, except for those that only our switch supports.
#[test]
fn meters_are_refused_alike() {
    let Some(mut pair) = Pair::start() else { return };
    let [theirs, ours] = pair.sides.each_mut().map(refusals);
    assert_eq!(theirs, ours);
    assert!(theirs.iter().filter(|answer| answer.is_some()).count() >= 9, "{theirs:?}");
}

/// A meter, and a burst of frames of one length.
struct Metered {
    meter: MeterMod,
    count: u64,
    len: u64,
}

impl Metered {
    fn random(random: &mut Random) -> Self {
        let unit = random.pick(&[MeterFlags::KBPS, MeterFlags::PKTPS]);
        // Room for at least one frame: with less, our switch alone passes a frame that finds the
        // bucket full.
        let least = if unit == MeterFlags::KBPS { 13 } else { 1 };
        let mut bands = Vec::new();
        for rate in [3, 1, 2].into_iter().take(random.pick(&[1, 2, 3])) {
            let burst_size = least * random.pick(&[1, 2, 3, 5, 9]);
            bands.push(MeterBand { rate, burst_size, kind: MeterBandKind::Drop });
        }
        let flags = unit | MeterFlags::BURST | MeterFlags::STATS;
        let meter = MeterMod { command: MeterModCommand::Add, flags, meter_id: METER, bands };
        Self { meter, count: 12, len: random.pick(&[60, 600, 1514]) }
    }

    /// The number of frames that pass in this time; with several bands, those that all of them
    /// pass.
    fn passes(&self, elapsed: Duration) -> RangeInclusive<u64> {
        let cost = match self.meter.flags.contains(MeterFlags::PKTPS) {
            true => 1000,
            false => self.len * 8,
        };
        // Clocks advance in steps; that of Open vSwitch is one millisecond.
        let elapsed_ms = u64::try_from((elapsed + CLOCK_STEP).as_millis()).unwrap();
        let of = |band: &MeterBand, ms| {
            (u64::from(band.burst_size) * 1000 + u64::from(band.rate) * ms) / cost
        };
        let of_all = |ms| self.meter.bands.iter().map(|band| of(band, ms)).min();
        let [least, most] = [0, elapsed_ms].map(|ms| of_all(ms).unwrap().min(self.count));
        least..=most
    }
}

impl fmt::Display for Metered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames of {} bytes through {:?}", self.count, self.len, self.meter)
    }
}

/// A switch's results.
#[derive(Debug)]
struct Measured {
    passed: u64,
    /// Packets and bytes seen by the meter.
    seen: (u64, u64),
    /// Packets dropped by its bands.
    applied: u64,
    elapsed: Duration,
    /// Its reports of meters and rules, before and after the meter is deleted.
    told: Vec<String>,
}

/// Adds the meter and a rule for it. Returns the time at which that began.
fn set_up(side: &mut Side, case: &Metered) -> Instant {
    side.clear();
    let begun = Instant::now();
    side.peer.send(Body::MeterMod(case.meter.clone()));
    side.peer.send(Body::FlowMod(metered_rule()));
    side.peer.send(Body::FlowMod(fence_rule()));
    assert_eq!(side.peer.barrier(), []);
    begun
}

fn measure(side: &mut Side, case: &Metered, begun: Instant) -> Measured {
    let mut frame = [MacAddr([2, 0, 0, 0, 0, 9]).0, [2; 6]].concat();
    // IEEE 802 local experimental.
    frame.extend([0x88, 0xb5]);
    frame.resize(usize::try_from(case.len).unwrap(), 0);
    (0..case.count).for_each(|_| side.end(1).send(&frame));
    pass_fences(side);
    let elapsed = begun.elapsed();
    let passed = side.end(TO).receive().len() as u64;
    let (seen, applied) = counted(side);
    let mut told = described(side);
    side.peer.send(delete_meters(METER));
    assert_eq!(side.peer.barrier(), []);
    told.extend(described(side));
    Measured { passed, seen, applied, elapsed, told }
}

/// Waits until all frames sent before have been processed.
fn pass_fences(side: &mut Side) {
    for _ in 0..2 {
        side.fences += 1;
        let fence = fence(side.fences);
        side.end(1).send(&fence);
        until("the fence comes through", || {
            let is_there = side.end(FENCE_PORT).receive().contains(&fence);
            if !is_there {
                side.end(FENCE_PORT).wait();
            }
            is_there
        });
    }
}

/// Packets and bytes seen by the meter, and packets dropped by its bands.
fn counted(side: &mut Side) -> ((u64, u64), u64) {
    let reply = side.peer.statistics(MultipartRequestBody::Meter(METER));
    let MultipartReplyBody::Meter(meters) = reply else { panic!("{reply:?}") };
    let [meter] = &meters[..] else { panic!("{meters:?}") };
    assert_eq!(meter.flow_count, 1);
    let seen = (meter.packet_in_count, meter.byte_in_count);
    (seen, meter.band_stats.iter().map(|band| band.packet_band_count).sum())
}

fn described(side: &mut Side) -> Vec<String> {
    let reply = side.peer.statistics(MultipartRequestBody::MeterConfig(METER_ALL));
    let MultipartReplyBody::MeterConfig(meters) = reply else { panic!("{reply:?}") };
    let mut told: Vec<_> = meters.iter().map(|meter| format!("{meter:?}")).collect();
    told.extend(text::rules(side.rules()).rules);
    told
}

/// A rule that sends frames from port 1 through the meter to [`TO`].
fn metered_rule() -> FlowMod {
    let actions = Instruction::ApplyActions(vec![Action::output(PortNo(TO))]);
    FlowMod {
        match_fields: Match::new().with(Oxm::InPort(PortNo(1))),
        instructions: vec![Instruction::Meter(METER), actions],
        ..FlowMod::new(FlowModCommand::Add)
    }
}

/// Deletes one meter, or all.
pub(super) fn delete_meters(meter_id: u32) -> Body {
    let (command, flags) = (MeterModCommand::Delete, MeterFlags::KBPS);
    Body::MeterMod(MeterMod { command, flags, meter_id, bands: Vec::new() })
}

/// The refusal of each of some messages, in order.
fn refusals(side: &mut Side) -> Vec<Option<ErrorKind>> {
    use MeterModCommand::{Add, Modify};
    side.clear();
    let band = |rate, kind| MeterBand { rate, burst_size: 1, kind };
    let drop = || band(10, MeterBandKind::Drop);
    let unknown = || band(10, MeterBandKind::Unknown { kind: 9, data: vec![0; 4] });
    let meter = |command, flags, meter_id, bands| {
        Body::MeterMod(MeterMod { command, flags, meter_id, bands })
    };
    let (packets, both) = (MeterFlags::PKTPS, MeterFlags::PKTPS | MeterFlags::KBPS);
    let rule = |meter| {
        let instructions = vec![Instruction::Meter(meter)];
        Body::FlowMod(FlowMod { instructions, ..FlowMod::new(FlowModCommand::Add) })
    };
    let ask = |body| {
        let is_rule = matches!(body, Body::FlowMod(_));
        let sent = side.peer.send(body);
        let refused = side.peer.barrier();
        let told = refused.into_iter().find(|(xid, _)| *xid == sent);
        told.map(|(_, kind)| match kind {
            // A rule whose meter does not exist (1.3.5 §6.4): Open vSwitch has another error.
            ErrorKind::OFPMMFC_UNKNOWN_METER if is_rule => ErrorKind::OFPMMFC_INVALID_METER,
            kind => kind,
        })
    };
    let messages = [
        meter(Add, packets, 1, vec![drop(), drop()]),
        meter(Add, packets, 1, vec![drop()]),
        meter(Modify, packets, 1, vec![drop()]),
        meter(Modify, packets, 2, vec![drop()]),
        meter(Add, packets, METER_CONTROLLER, vec![drop()]),
        meter(Add, packets, 0, vec![drop()]),
        meter(Add, packets, METER_ALL, vec![drop()]),
        meter(Add, both, 3, vec![drop()]),
        meter(Add, packets | MeterFlags::from_bits_retain(16), 3, vec![drop()]),
        meter(Add, packets, 3, vec![band(0, MeterBandKind::Drop)]),
        meter(Add, packets, 3, vec![unknown()]),
        meter(Add, packets, 3, vec![drop(); 9]),
        meter(Add, packets, 3, vec![drop(); 8]),
        rule(1),
        rule(77),
        delete_meters(77),
        delete_meters(1),
        rule(1),
        delete_meters(METER_ALL),
        rule(3),
    ];
    let answers = messages.map(ask).to_vec();
    side.clear();
    answers
}

/// The meter of the cases.
const METER: u32 = 5;
/// The port to which the meter passes frames.
const TO: u32 = 2;
/// One meter is tested per this many pipelines.
const STEP: usize = 10;
/// A step of the kernel's coarse clock, plus a millisecond.
const CLOCK_STEP: Duration = Duration::from_millis(11);
