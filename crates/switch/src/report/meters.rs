//! Reports of meters and of the traffic they measured.

use serde::{Deserialize, Serialize};
use tapswitch_datapath::{Band, Meter, Millis, Pipeline};
use tapswitch_openflow::METER_CONTROLLER;

use super::CountReport;

/// A meter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeterReport {
    /// Id, or `controller`.
    pub meter: String,
    /// Its unit and options, with the names of `ovs-ofctl`: `kbps` or `pktps`, `burst`, `stats`.
    pub flags: Vec<String>,
    /// Number of rules that use it.
    pub flows: usize,
    /// Measured traffic. Bytes are those of packets on the wire, each packet of a train with its
    /// headers.
    pub count: CountReport,
    /// Its bands in order.
    pub bands: Vec<BandReport>,
    /// Seconds since it was added.
    pub age_s: u64,
}

/// A band of a meter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BandReport {
    /// The band in the syntax of `ovs-ofctl`.
    pub band: String,
    /// Rate in the unit of the meter.
    pub rate: u32,
    /// Traffic that it dropped or marked.
    pub count: CountReport,
}

/// All meters.
pub(crate) fn meters(pipeline: &Pipeline, now: Millis) -> Vec<MeterReport> {
    let report = |meter: &Meter| MeterReport {
        meter: match meter.id {
            METER_CONTROLLER => "controller".to_owned(),
            id => id.to_string(),
        },
        flags: meter.flags.words().map(Into::into).collect(),
        flows: pipeline.rules_through(meter.id),
        count: meter.counters.totals().into(),
        bands: meter.bands.iter().map(band_report).collect(),
        age_s: now.since(meter.created).0 / 1000,
    };
    pipeline.snapshot().meters.iter().map(|meter| report(meter)).collect()
}

fn band_report(band: &Band) -> BandReport {
    BandReport {
        band: band.spec.to_string(),
        rate: band.spec.rate,
        count: band.counters.totals().into(),
    }
}
