//! Tests of meters: their changes, and their statistics.

use tapswitch_openflow::multipart::{MeterBandStats, MeterConfig, MeterFeatures, MeterStats};
use tapswitch_openflow::{
    FlowRemovedReason, METER_ALL, METER_CONTROLLER, MeterBand, MeterBandKind, MeterFlags, MeterMod,
    MeterModCommand, MultipartReplyBody as Reply, MultipartRequestBody as Request,
};

use super::*;

const ADD: MeterModCommand = MeterModCommand::Add;
const FLAGS: MeterFlags = MeterFlags::PKTPS.union(MeterFlags::BURST).union(MeterFlags::STATS);

fn drops(rate: u32, burst_size: u32) -> MeterBand {
    MeterBand { rate, burst_size, kind: MeterBandKind::Drop }
}

fn meter_mod(command: MeterModCommand, meter_id: u32, bands: Vec<MeterBand>) -> Body {
    Body::MeterMod(MeterMod { command, flags: FLAGS, meter_id, bands })
}

/// A rule with this cookie that sends frames to port 2, if a meter passes them.
fn metered(cookie: u64, meter: u32) -> FlowMod {
    let instructions = vec![Instruction::Meter(meter), Instruction::ApplyActions(output(2))];
    FlowMod { cookie, instructions, ..rule(5, Match::new(), vec![]) }
}

#[test]
fn a_meter_is_described_and_counts() {
    let mut agent = agent();
    let bands = vec![drops(1, 2), drops(9, 100)];
    apply(&mut agent, meter_mod(ADD, 7, bands.clone()));
    apply(&mut agent, meter_mod(ADD, METER_CONTROLLER, vec![]));
    add(&mut agent, metered(1, 7));
    (0..5).for_each(|_| forward(&agent, 1, after(250)));
    let of = |packet_band_count| MeterBandStats {
        packet_band_count,
        byte_band_count: packet_band_count * 100,
    };
    let stats = MeterStats {
        meter_id: 7,
        flow_count: 1,
        packet_in_count: 5,
        byte_in_count: 500,
        duration_sec: 1,
        duration_nsec: 500_000_000,
        band_stats: vec![of(3), of(0)],
    };
    let now = after(1500);
    assert_eq!(statistics(&mut agent, Request::Meter(7), now), Reply::Meter(vec![stats.clone()]));
    let all = statistics(&mut agent, Request::Meter(METER_ALL), now);
    let Reply::Meter(all) = all else { panic!("{all:?}") };
    assert_eq!((&all[0], all.len(), all[1].meter_id), (&stats, 2, METER_CONTROLLER));
    let config = MeterConfig { flags: FLAGS, meter_id: 7, bands };
    let described = statistics(&mut agent, Request::MeterConfig(7), now);
    assert_eq!(described, Reply::MeterConfig(vec![config]));
}

#[test]
fn what_meters_can_do_is_told() {
    let reply = statistics(&mut agent(), Request::MeterFeatures, START);
    let drop_and_remark = 1 << 1 | 1 << 2;
    let features = MeterFeatures {
        max_meter: 65_536,
        band_types: drop_and_remark,
        capabilities: 0b1111,
        max_bands: 8,
        max_color: 0,
    };
    assert_eq!(reply, Reply::MeterFeatures(features));
    for request in [Request::Meter(METER_ALL), Request::MeterConfig(METER_ALL)] {
        let reply = statistics(&mut agent(), request, START);
        assert!(reply == Reply::Meter(vec![]) || reply == Reply::MeterConfig(vec![]), "{reply:?}");
    }
}

#[test]
fn meters_that_cannot_be_are_refused() {
    let mut agent = agent();
    apply(&mut agent, meter_mod(ADD, 1, vec![]));
    let foreign = MeterBandKind::Experimenter { experimenter: 1, data: vec![] };
    let foreign = MeterBand { kind: foreign, ..drops(1, 1) };
    let unknown = MeterFlags::from_bits_retain(1 << 4);
    let unknown = MeterMod { command: ADD, flags: unknown, meter_id: 2, bands: vec![] };
    for (message, kind) in [
        (meter_mod(ADD, 1, vec![]), ErrorKind::OFPMMFC_METER_EXISTS),
        (meter_mod(MeterModCommand::Modify, 2, vec![]), ErrorKind::OFPMMFC_UNKNOWN_METER),
        (meter_mod(ADD, 0, vec![]), ErrorKind::OFPMMFC_INVALID_METER),
        (meter_mod(ADD, METER_ALL, vec![]), ErrorKind::OFPMMFC_INVALID_METER),
        (meter_mod(ADD, 2, vec![foreign]), ErrorKind::OFPMMFC_BAD_BAND),
        (meter_mod(ADD, 2, vec![drops(0, 0)]), ErrorKind::OFPMMFC_BAD_RATE),
        (meter_mod(ADD, 2, vec![drops(1, 1); 9]), ErrorKind::OFPMMFC_OUT_OF_BANDS),
        (Body::MeterMod(unknown), ErrorKind::OFPMMFC_BAD_FLAGS),
        (Body::FlowMod(metered(1, 2)), ErrorKind::OFPMMFC_UNKNOWN_METER),
        (Body::FlowMod(metered(1, METER_CONTROLLER)), ErrorKind::OFPMMFC_INVALID_METER),
    ] {
        assert_eq!(refusal(&mut agent, message.clone()), kind, "{message:?}");
    }
}

#[test]
fn the_rules_of_a_deleted_meter_go_and_tell() {
    let mut agent = agent();
    apply(&mut agent, meter_mod(ADD, 1, vec![]));
    add(&mut agent, telling(metered(0xa, 1)));
    add(&mut agent, telling(rule(6, Match::new(), output(2))));
    let outcome = send_at(&mut agent, meter_mod(MeterModCommand::Delete, 1, vec![]), after(1));
    let [gone] = &outcome.gone[..] else { panic!("{outcome:?}") };
    let Body::FlowRemoved(told) = gone.message() else { panic!("{gone:?}") };
    assert_eq!((told.cookie, told.reason), (0xa, FlowRemovedReason::DELETE));
    assert_eq!(all_cookies(&mut agent), [0]);
    for id in [1, METER_ALL] {
        apply(&mut agent, meter_mod(MeterModCommand::Delete, id, vec![]));
    }
}
