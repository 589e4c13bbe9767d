//! Meters and their bands.

use tapswitch_switch::report::MeterReport;

use crate::table::{grouped, print, table};

/// Prints all meters, each followed by its bands.
pub(super) fn meters(reports: &[MeterReport]) {
    let columns = ["METER ", "FLAGS", "FLOWS ", "BAND", "FRAMES ", "PACKETS ", "BYTES ", "AGE "];
    let mut rows = table(&columns);
    for meter in reports {
        rows.add_row([
            meter.meter.clone(),
            meter.flags.join(" "),
            grouped(meter.flows as u64),
            String::new(),
            grouped(meter.count.frames),
            grouped(meter.count.packets),
            grouped(meter.count.bytes),
            format!("{}s", meter.age_s),
        ]);
        for band in &meter.bands {
            rows.add_row([
                String::new(),
                String::new(),
                String::new(),
                band.band.clone(),
                grouped(band.count.frames),
                grouped(band.count.packets),
                grouped(band.count.bytes),
            ]);
        }
    }
    print(&rows, "no meters");
}
