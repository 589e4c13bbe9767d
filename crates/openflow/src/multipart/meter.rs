//! Statistics, configuration and features of meters (OpenFlow 1.3.5 §7.3.5.12 to §7.3.5.14).

use crate::codec::{Codec, Reader, Writer, layout_codec};
use crate::fault::{Fault, Within};
use crate::{MeterBand, MeterFlags};

/// Counters of a meter (`ofp_meter_stats`, §7.3.5.12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterStats {
    /// The meter.
    pub meter_id: u32,
    /// Flow entries that use it.
    pub flow_count: u32,
    /// Packets processed.
    pub packet_in_count: u64,
    /// Bytes processed.
    pub byte_in_count: u64,
    /// Its age, whole seconds.
    pub duration_sec: u32,
    /// Its age, nanoseconds beyond the seconds.
    pub duration_nsec: u32,
    /// Counters of each band.
    pub band_stats: Vec<MeterBandStats>,
}

impl Codec for MeterStats {
    fn encode(&self, w: &mut Writer<'_>) {
        let start = w.position();
        w.put(&self.meter_id);
        w.measured(start, |w| {
            w.pad(6);
            w.put(&self.flow_count);
            w.put(&self.packet_in_count);
            w.put(&self.byte_in_count);
            w.put(&self.duration_sec);
            w.put(&self.duration_nsec);
            w.put(&self.band_stats);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let meter_id = r.take()?;
        let len: u16 = r.take()?;
        let mut body = r.sub_after(len, LEN_FIELD_END).within("meter")?;
        body.skip(6)?;
        Ok(Self {
            meter_id,
            flow_count: body.take()?,
            packet_in_count: body.take()?,
            byte_in_count: body.take()?,
            duration_sec: body.take()?,
            duration_nsec: body.take()?,
            band_stats: body.take().within("meter")?,
        })
    }
}

/// Counters of a band (`ofp_meter_band_stats`, §7.3.5.12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterBandStats {
    /// Packets that the band applied to.
    pub packet_band_count: u64,
    /// Bytes that the band applied to.
    pub byte_band_count: u64,
}

layout_codec!(MeterBandStats { packet_band_count, byte_band_count });

/// Configuration of a meter (`ofp_meter_config`, §7.3.5.13).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// Units and options.
    pub flags: MeterFlags,
    /// The meter.
    pub meter_id: u32,
    /// Its bands.
    pub bands: Vec<MeterBand>,
}

layout_codec!(MeterConfig sized {
    flags,
    meter_id,
    bands,
});

/// Capabilities of meters (`ofp_meter_features`, §7.3.5.14).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterFeatures {
    /// Maximum number of meters.
    pub max_meter: u32,
    /// Bit *b* is set for each band type *b* supported.
    pub band_types: u32,
    /// Bits of [`MeterFlags`] supported.
    pub capabilities: u32,
    /// Maximum number of bands in a meter.
    pub max_bands: u8,
    /// Highest colour value.
    pub max_color: u8,
}

layout_codec!(MeterFeatures {
    max_meter,
    band_types,
    capabilities,
    max_bands,
    max_color,
    pad 2,
});

/// Offset of the end of the length field in a meter's statistics.
const LEN_FIELD_END: usize = 6;
