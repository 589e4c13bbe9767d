//! Tests of meters between real ports: traffic above the rate is dropped, and reported.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use crate::common::*;
use tapswitch_openflow::{
    Body, FlowMod, FlowModCommand, Instruction, MeterBand, MeterBandKind, MeterFlags, MeterMod,
    MeterModCommand, MultipartReplyBody, MultipartRequestBody, PortNo,
};
use tapswitch_wire::NetHeader;

/// Frames that are sent at once.
const COUNT: u64 = 20;
/// Length of each frame: at a kilobit per second the next one may pass after twelve seconds.
const LEN: usize = 1514;

fn meter() -> Body {
    let band = MeterBand { rate: 1, burst_size: 1, kind: MeterBandKind::Drop };
    Body::MeterMod(MeterMod {
        command: MeterModCommand::Add,
        flags: MeterFlags::KBPS | MeterFlags::BURST,
        meter_id: 1,
        bands: vec![band],
    })
}

fn metered() -> Body {
    let actions = Instruction::ApplyActions(vec![output(2)]);
    Body::FlowMod(FlowMod {
        match_fields: in_port(1),
        instructions: vec![Instruction::Meter(1), actions],
        ..FlowMod::new(FlowModCommand::Add)
    })
}

#[test]
fn what_is_beyond_the_rate_is_dropped_and_told() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(2);
    lab.switch.controller().apply(vec![meter(), metered()]);
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    let (a, b) = (Capture::open(lab.host(1)), Capture::open(lab.host(2)));
    for _ in 0..COUNT {
        a.send(&NetHeader::PLAIN, &frame(to, from, &[], LEN));
    }
    let switch = &lab.switch;
    let dropped = || switch.drops(1, "metered");
    until("all frames are seen", || switch.port(2).tx.frames + dropped() >= COUNT);
    lab.settle();
    let dropped = dropped();
    // All could pass only if each took twelve seconds.
    assert!((1..COUNT).contains(&dropped), "{dropped}");
    b.receive(|bytes| bytes.starts_with(&to.0));
    let mut controller = switch.controller();
    let reply = controller.statistics(MultipartRequestBody::Meter(1));
    let MultipartReplyBody::Meter(meters) = reply else { panic!("{reply:?}") };
    let told = (meters[0].flow_count, meters[0].packet_in_count, meters[0].byte_in_count);
    assert_eq!(told, (1, COUNT, COUNT * LEN as u64));
    assert_eq!(meters[0].band_stats[0].packet_band_count, dropped);
    let reports = runtime().block_on(switch.handle().meters()).unwrap();
    let (meter, band) = (&reports[0], &reports[0].bands[0]);
    assert_eq!((&*meter.meter, meter.flows, meter.count.packets), ("1", 1, COUNT));
    assert_eq!(meter.flags, ["kbps", "burst"]);
    assert_eq!((&*band.band, band.count.packets), ("type=drop rate=1 burst_size=1", dropped));
    let drops = runtime().block_on(switch.handle().drops()).unwrap();
    let told = drops.iter().find(|drop| drop.reason == "metered").unwrap();
    assert!(told.remedy.as_ref().unwrap().contains("show meters"), "{told:?}");
    switch.check_books();
}

/// The controller's own meter: a frame that is not sent to the controller is still forwarded.
#[test]
fn the_controllers_meter_ends_no_frame_that_goes_elsewhere() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(2);
    let meter = match meter() {
        Body::MeterMod(meter) => {
            MeterMod { meter_id: tapswitch_openflow::METER_CONTROLLER, ..meter }
        }
        other => panic!("{other:?}"),
    };
    let both = vec![output(PortNo::CONTROLLER.0), output(2)];
    let rule = Body::FlowMod(rule(1, in_port(1), both));
    let mut controller = lab.switch.controller();
    controller.apply(vec![Body::MeterMod(meter), rule]);
    let (from, to) = (lab.host_mut(1).mac(), lab.host_mut(2).mac());
    let a = Capture::open(lab.host(1));
    for _ in 0..COUNT {
        a.send(&NetHeader::PLAIN, &frame(to, from, &[], LEN));
    }
    until("all frames went their way", || lab.switch.port(2).tx.frames >= COUNT);
    controller.packet_in(|packet| packet.data.starts_with(&to.0));
    assert!((1..COUNT).contains(&lab.switch.drops(1, "metered")));
    lab.switch.check_books();
}
