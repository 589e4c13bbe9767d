//! Token buckets: what passes when, alone and with several workers at once.

use tapswitch_openflow::METER_SLOWPATH;

use super::*;

const KILOBIT: i64 = 1000;

fn bucket(rate: u32, burst_size: u32) -> TokenBucket {
    let band = MeterBand { rate, burst_size, kind: MeterBandKind::Drop };
    TokenBucket::new(&band, burst_size > 0, Millis(0))
}

fn share(each: i64) -> Share {
    Share { first: each, all: each }
}

/// How many of `each` pass at `now`, until one does not.
fn drain(bucket: &TokenBucket, each: i64, now: u64) -> i64 {
    (0..).take_while(|_| bucket.take(share(each), Millis(now))).count().try_into().unwrap()
}

#[test]
fn a_bucket_gives_its_burst_and_then_its_rate() {
    let bucket = bucket(1000, 50); // packets per second, packets
    assert_eq!(drain(&bucket, PACKET, 0), 50);
    for now in 1..=20 {
        assert_eq!(drain(&bucket, PACKET, now), 1);
    }
    assert_eq!(drain(&bucket, PACKET, 30), 10);
    assert_eq!(drain(&bucket, PACKET, 1000), 50, "no more than the burst");
}

#[test]
fn a_rate_of_less_than_one_per_tick_is_kept() {
    let bucket = bucket(3, 1); // one in 334 ms
    let passed: Vec<u64> = (0..1400).filter(|&now| drain(&bucket, PACKET, now) == 1).collect();
    assert_eq!(passed, [0, 334, 668, 1002, 1336]);
}

#[test]
fn bits_are_counted_as_bits() {
    let bucket = bucket(8, 24); // 1000 bytes per second, 3000 bytes
    assert_eq!(drain(&bucket, 8 * KILOBIT, 0), 3);
    assert_eq!(drain(&bucket, 8 * KILOBIT, 999), 0);
    assert_eq!(drain(&bucket, 8 * KILOBIT, 1000), 1);
}

#[test]
fn without_a_burst_there_is_one_of_a_second() {
    assert_eq!(drain(&bucket(70, 0), PACKET, 0), 70);
    let band = MeterBand { rate: 70, burst_size: 9, kind: MeterBandKind::Drop };
    let unflagged = TokenBucket::new(&band, false, Millis(0));
    assert_eq!(drain(&unflagged, PACKET, 0), 70, "without OFPMF_BURST the size means nothing");
}

/// The clock of workers advances in steps: a shallower bucket would lose tokens of one step.
#[test]
fn a_burst_below_a_tick_counts_as_a_tick() {
    let bucket = bucket(10_000, 1);
    assert_eq!(drain(&bucket, PACKET, 0), 100);
    assert_eq!((1..=100).map(|tick| drain(&bucket, PACKET, tick * 10)).sum::<i64>(), 10_000);
}

#[test]
fn a_packet_larger_than_the_bucket_passes_when_that_is_full() {
    let bucket = bucket(10, 1); // 10 bits per ms, a kilobit
    let passed: Vec<u64> = (0..5000).filter(|&now| drain(&bucket, 12_000, now) == 1).collect();
    assert_eq!(passed, [0, 1200, 2400, 3600, 4800], "12 kilobits in 1.2 s are the rate");
}

#[test]
fn a_train_passes_as_its_first_packet_and_owes_the_rest() {
    let bucket = bucket(1000, 50);
    let train = |packets| Share { first: PACKET, all: packets * PACKET };
    assert_eq!(drain(&bucket, PACKET, 0), 50);
    assert!(!bucket.take(train(45), Millis(0)));
    assert!(bucket.take(train(45), Millis(1)), "there is enough for one");
    for now in 1..=45 {
        assert!(!bucket.take(share(PACKET), Millis(now)), "{now}");
    }
    assert!(bucket.take(share(PACKET), Millis(46)), "45 packets are paid");
}

#[test]
fn no_clock_and_no_rate_overflows() {
    let bucket = bucket(u32::MAX, u32::MAX);
    assert!(bucket.take(Share { first: 1, all: i64::MAX }, Millis(0)));
    assert!(!bucket.take(share(1), Millis(1)), "there is a debt to be paid");
    assert!(bucket.take(share(1), Millis(u64::MAX)));
    let left = drain(&bucket, 1 << 40, 0);
    assert_eq!(left, 3, "time that goes back brings nothing, and takes nothing");
}

/// Each millisecond is filled in once and each token taken once, however many workers there are.
#[test]
fn workers_share_a_bucket_to_the_last_token() {
    let bucket = bucket(1000, 1000);
    assert_eq!(drain(&bucket, PACKET, 0), 1000);
    let one = || (1..=2000).map(|now| drain(&bucket, PACKET, now)).sum::<i64>();
    let passed = std::thread::scope(|scope| {
        let workers = [(); 4].map(|()| scope.spawn(one));
        workers.map(|worker| worker.join().unwrap()).into_iter().sum::<i64>()
    });
    assert_eq!(passed + drain(&bucket, PACKET, 2000), 2000);
}

fn meter_mod(command: MeterModCommand, meter_id: u32, bands: &[MeterBandKind]) -> MeterMod {
    let band = |kind: &MeterBandKind| MeterBand { rate: 1, burst_size: 0, kind: kind.clone() };
    let bands = bands.iter().map(band).collect();
    MeterMod { command, flags: MeterFlags::PKTPS, meter_id, bands }
}

fn change(table: &mut MeterTable, spec: &MeterMod) -> Result<Vec<u32>, ErrorKind> {
    table.check_mod(spec)?;
    Ok(table.handle_mod(spec, Millis(7), 1))
}

#[test]
fn meters_that_cannot_be_are_refused() {
    use MeterModCommand::{Add, Modify};
    let mut table = MeterTable::default();
    change(&mut table, &meter_mod(Add, 1, &[])).unwrap();
    let remark = |prec_level| MeterBandKind::DscpRemark { prec_level };
    let experimenter = MeterBandKind::Experimenter { experimenter: 1, data: vec![] };
    let controller = METER_CONTROLLER;
    let both = MeterFlags::KBPS | MeterFlags::PKTPS;
    let no_rate = MeterBand { rate: 0, burst_size: 1, kind: MeterBandKind::Drop };
    let no_rate = MeterMod { bands: vec![no_rate], ..meter_mod(Add, 2, &[]) };
    let two_units = MeterMod { flags: both, ..meter_mod(Add, 2, &[]) };
    for (spec, kind) in [
        (meter_mod(Add, 1, &[]), ErrorKind::OFPMMFC_METER_EXISTS),
        (meter_mod(Modify, 2, &[]), ErrorKind::OFPMMFC_UNKNOWN_METER),
        (meter_mod(Add, 0, &[]), ErrorKind::OFPMMFC_INVALID_METER),
        (meter_mod(Add, METER_MAX + 1, &[]), ErrorKind::OFPMMFC_INVALID_METER),
        (meter_mod(Modify, METER_ALL, &[]), ErrorKind::OFPMMFC_INVALID_METER),
        (meter_mod(Add, METER_SLOWPATH, &[]), ErrorKind::OFPMMFC_INVALID_METER),
        (no_rate, ErrorKind::OFPMMFC_BAD_RATE),
        (two_units, ErrorKind::OFPMMFC_BAD_FLAGS),
        (meter_mod(Add, 2, &[MeterBandKind::Drop, experimenter]), ErrorKind::OFPMMFC_BAD_BAND),
        (meter_mod(Add, 2, &[remark(0)]), ErrorKind::OFPMMFC_BAD_BAND_VALUE),
        (meter_mod(Add, controller, &[remark(1)]), ErrorKind::OFPMMFC_BAD_BAND),
        (meter_mod(Add, 2, &[const { MeterBandKind::Drop }; 9]), ErrorKind::OFPMMFC_OUT_OF_BANDS),
    ] {
        assert_eq!(change(&mut table, &spec), Err(kind), "{spec:?}");
    }
    assert_eq!(table.count(), 1);
    change(&mut table, &meter_mod(Add, 2, &[const { MeterBandKind::Drop }; 8])).unwrap();
    change(&mut table, &meter_mod(Add, controller, &[MeterBandKind::Drop])).unwrap();
    change(&mut table, &meter_mod(Add, METER_MAX, &[remark(9)])).unwrap();
}

#[test]
fn there_are_so_many_meters_and_no_more() {
    use MeterModCommand::{Add, Delete};
    let mut table = MeterTable::default();
    for id in 1..=u32::try_from(MAX_METERS).unwrap() {
        change(&mut table, &meter_mod(Add, id, &[])).unwrap();
    }
    let more = meter_mod(Add, METER_MAX, &[]);
    assert_eq!(change(&mut table, &more), Err(ErrorKind::OFPMMFC_OUT_OF_METERS));
    assert_eq!(change(&mut table, &meter_mod(Delete, 77, &[])), Ok(vec![77]));
    assert_eq!(change(&mut table, &meter_mod(Delete, 77, &[])), Ok(vec![]), "is no error");
    change(&mut table, &more).unwrap();
    assert_eq!(table.iter().map(|meter| meter.id).max(), Some(METER_MAX));
    let gone = change(&mut table, &meter_mod(Delete, METER_ALL, &[])).unwrap();
    assert_eq!((gone.len(), table.count(), table.iter().count()), (MAX_METERS, 0, 0));
}

#[test]
fn the_controllers_meter_goes_by_its_own_number_only() {
    use MeterModCommand::{Add, Delete};
    let mut table = MeterTable::default();
    for id in [METER_CONTROLLER, 1, 2] {
        change(&mut table, &meter_mod(Add, id, &[MeterBandKind::Drop])).unwrap();
    }
    let before = table.find(METER_CONTROLLER).unwrap().clone();
    let mut gone = change(&mut table, &meter_mod(Delete, METER_ALL, &[])).unwrap();
    gone.sort_unstable();
    assert_eq!((gone, table.count()), (vec![1, 2], 1));
    assert!(Arc::ptr_eq(&before, table.find(METER_CONTROLLER).unwrap()));
    let gone = change(&mut table, &meter_mod(Delete, METER_CONTROLLER, &[])).unwrap();
    assert_eq!((gone, table.count(), table.iter().count()), (vec![METER_CONTROLLER], 0, 0));
}

#[test]
fn a_meter_that_is_changed_goes_on_counting() {
    use MeterModCommand::{Add, Modify};
    let mut table = MeterTable::default();
    change(&mut table, &meter_mod(Add, 1, &[MeterBandKind::Drop])).unwrap();
    let before = table.find(1).unwrap().clone();
    before.counters.add(WorkerIndex(0), Traffic::frame(100, 1), Millis(8));
    let spec = meter_mod(Modify, 1, &[]);
    table.check_mod(&spec).unwrap();
    table.handle_mod(&spec, Millis(9), 1);
    let after = table.find(1).unwrap();
    assert_eq!((after.counters.totals().packets, after.created), (1, Millis(7)));
    assert_eq!((before.bands.len(), after.bands.len(), table.count()), (1, 0, 1));
}
