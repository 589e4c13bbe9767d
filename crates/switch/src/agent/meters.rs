//! Replies about meters (OpenFlow 1.3.5 §7.3.5.12 to §7.3.5.14).
//!
//! Byte counts are of packets on the wire, as meters measure them: for a train they exceed those of
//! flow counters, which count its headers once.

use std::sync::Arc;

use tapswitch_datapath::{
    Band, MAX_BANDS, MAX_METERS, METER_BAND_KINDS, METER_FLAGS, Meter, Millis, Pipeline, Snapshot,
};
use tapswitch_openflow::multipart::{MeterBandStats, MeterConfig, MeterFeatures, MeterStats};
use tapswitch_openflow::{ErrorKind, METER_ALL};

use super::{Refusal, duration};

/// Counters of one meter, or of all.
pub(super) fn statistics(
    pipeline: &Pipeline,
    wanted: u32,
    now: Millis,
) -> Result<Vec<MeterStats>, Refusal> {
    let stats = |meter: &Meter| {
        let totals = meter.counters.totals();
        let (duration_sec, duration_nsec) = duration(now.since(meter.created));
        MeterStats {
            meter_id: meter.id,
            flow_count: u32::try_from(pipeline.rules_through(meter.id)).unwrap_or(u32::MAX),
            packet_in_count: totals.packets,
            byte_in_count: totals.bytes,
            duration_sec,
            duration_nsec,
            band_stats: meter.bands.iter().map(band_stats).collect(),
        }
    };
    Ok(select(pipeline.snapshot(), wanted)?.into_iter().map(|meter| stats(meter)).collect())
}

fn band_stats(band: &Band) -> MeterBandStats {
    let totals = band.counters.totals();
    MeterBandStats { packet_band_count: totals.packets, byte_band_count: totals.bytes }
}

/// Configuration of one meter, or of all, as added.
pub(super) fn configurations(
    snapshot: &Snapshot,
    wanted: u32,
) -> Result<Vec<MeterConfig>, Refusal> {
    let config = |meter: &Arc<Meter>| MeterConfig {
        flags: meter.flags,
        meter_id: meter.id,
        bands: meter.bands.iter().map(|band| band.spec.clone()).collect(),
    };
    Ok(select(snapshot, wanted)?.into_iter().map(config).collect())
}

/// Features of meters. There are no colours.
pub(super) fn features() -> MeterFeatures {
    MeterFeatures {
        max_meter: u32::try_from(MAX_METERS).unwrap_or(u32::MAX),
        band_types: METER_BAND_KINDS.iter().map(|kind| 1 << kind).sum(),
        capabilities: METER_FLAGS.bits().into(),
        max_bands: u8::try_from(MAX_BANDS).unwrap_or(u8::MAX),
        max_color: 0,
    }
}

/// Fails for a single meter that does not exist; `OFPM_ALL` may select none.
fn select(snapshot: &Snapshot, wanted: u32) -> Result<Vec<&Arc<Meter>>, Refusal> {
    if wanted == METER_ALL {
        return Ok(snapshot.meters.iter().collect());
    }
    let meter = snapshot.meters.find(wanted).ok_or(ErrorKind::OFPMMFC_UNKNOWN_METER)?;
    Ok(vec![meter])
}
