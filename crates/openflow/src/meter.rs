//! Meters: modification (OpenFlow 1.3.5 §7.3.4.4).

use std::fmt;

use bitflags::{Flags as _, bitflags};

use crate::codec::{Codec, Reader, Writer, closed_codec, flags_codec, layout_codec};
use crate::fault::Fault;
use crate::{CheckError, ErrorKind};

/// `OFPT_METER_MOD` (`ofp_meter_mod`, §7.3.4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// The command.
    pub command: MeterModCommand,
    /// Units and options.
    pub flags: MeterFlags,
    /// The meter; [`METER_ALL`] to delete all.
    pub meter_id: u32,
    /// Its bands.
    pub bands: Vec<MeterBand>,
}

impl MeterMod {
    /// Validates the message; what depends on the switch's meters is not checked.
    pub fn check(&self) -> Result<(), CheckError> {
        let refuse = |kind, text: String| Err(CheckError::new(kind, format!("meter_mod: {text}")));
        let deletes = self.command == MeterModCommand::Delete;
        let id = self.meter_id;
        let is_virtual = matches!(id, METER_SLOWPATH | METER_CONTROLLER);
        let is_real = (1..=METER_MAX).contains(&id);
        if !(is_real || is_virtual || deletes && id == METER_ALL) {
            let text = format!("{id} is not a valid meter ID");
            return refuse(ErrorKind::OFPMMFC_INVALID_METER, text);
        }
        if deletes {
            return Ok(());
        }
        if self.flags.contains_unknown_bits()
            || self.flags.contains(MeterFlags::KBPS | MeterFlags::PKTPS)
        {
            let text = format!("{:?} cannot be", self.flags);
            return refuse(ErrorKind::OFPMMFC_BAD_FLAGS, text);
        }
        match self.bands.iter().find(|band| !band.kind.is_standard()) {
            Some(band) => {
                refuse(ErrorKind::OFPMMFC_BAD_BAND, format!("unknown band {:?}", band.kind))
            }
            None => Ok(()),
        }
    }
}

layout_codec!(MeterMod { command, flags, meter_id, bands });

/// Command of a meter-mod (`ofp_meter_mod_command`). Unknown ones are rejected when decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum MeterModCommand {
    /// Add a meter.
    Add = 0,
    /// Replace the bands of a meter.
    Modify = 1,
    /// Delete a meter and the flow entries that use it.
    Delete = 2,
}

closed_codec!(
    MeterModCommand: u16,
    OFPMMFC_BAD_COMMAND,
    "command",
    [Add, Modify, Delete]
);

bitflags! {
    /// Units and options of a meter (`ofp_meter_flags`, §7.3.4.4).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MeterFlags: u16 {
        /// Rates are in kbit/s.
        const KBPS = 1 << 0;
        /// Rates are in packets per second.
        const PKTPS = 1 << 1;
        /// Burst sizes are used.
        const BURST = 1 << 2;
        /// Collect statistics.
        const STATS = 1 << 3;
    }
}

flags_codec!(MeterFlags);

impl MeterFlags {
    /// Names of the flags in the syntax of `ovs-ofctl`. Rates are in kbit/s unless stated.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        let unit = if self.contains(Self::PKTPS) { "pktps" } else { "kbps" };
        let options = [(Self::BURST, "burst"), (Self::STATS, "stats")];
        let options = options.into_iter().filter(move |(flag, _)| self.contains(*flag));
        std::iter::once(unit).chain(options.map(|(_, word)| word))
    }
}

/// Band of a meter (`ofp_meter_band_header`, §7.3.4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterBand {
    /// Rate above which the band applies, in kbit/s or packets per second.
    pub rate: u32,
    /// Burst size that passes, in kbit or packets.
    pub burst_size: u32,
    /// Type of the band.
    pub kind: MeterBandKind,
}

/// Type of a meter band (`ofp_meter_band_type`, §7.3.4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeterBandKind {
    /// `OFPMBT_DROP`: drop the packet.
    Drop,
    /// `OFPMBT_DSCP_REMARK`: raise the drop precedence in the DSCP field.
    DscpRemark {
        /// Number of precedence levels to add.
        prec_level: u8,
    },
    /// `OFPMBT_EXPERIMENTER`.
    Experimenter {
        /// Experimenter id.
        experimenter: u32,
        /// Data after the experimenter id.
        data: Vec<u8>,
    },
    /// A band that OpenFlow 1.3 does not define.
    Unknown {
        /// `type` of the band.
        kind: u16,
        /// Data after the band's header.
        data: Vec<u8>,
    },
}

impl MeterBand {
    /// Appends the common fields of bands after type and length.
    fn encode_rates(&self, w: &mut Writer<'_>) {
        w.put(&self.rate);
        w.put(&self.burst_size);
    }
}

impl Codec for MeterBand {
    fn encode(&self, w: &mut Writer<'_>) {
        w.tlv(self.kind.number(), |w| {
            self.encode_rates(w);
            match &self.kind {
                MeterBandKind::Drop => w.pad(4),
                MeterBandKind::DscpRemark { prec_level } => {
                    w.put(prec_level);
                    w.pad(3);
                }
                MeterBandKind::Experimenter { experimenter, data } => {
                    w.put(experimenter);
                    w.put(data);
                }
                MeterBandKind::Unknown { data, .. } => w.put(data),
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        r.within("band", ErrorKind::OFPBRC_BAD_LEN, |r| {
            let (kind, mut body) = r.tlv()?;
            let (rate, burst_size) = (body.take()?, body.take()?);
            let kind = MeterBandKind::decode(kind, &mut body)?;
            body.finish()?;
            Ok(Self { rate, burst_size, kind })
        })
    }
}

/// In the syntax of `ovs-ofctl`.
impl fmt::Display for MeterBand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            MeterBandKind::Drop => f.write_str("type=drop")?,
            MeterBandKind::DscpRemark { .. } => f.write_str("type=dscp_remark")?,
            kind => write!(f, "type={}", kind.number())?,
        }
        write!(f, " rate={}", self.rate)?;
        if self.burst_size > 0 {
            write!(f, " burst_size={}", self.burst_size)?;
        }
        match self.kind {
            MeterBandKind::DscpRemark { prec_level } => write!(f, " prec_level={prec_level}"),
            _ => Ok(()),
        }
    }
}

impl MeterBandKind {
    /// Whether the spec defines the band.
    const fn is_standard(&self) -> bool {
        matches!(self, Self::Drop | Self::DscpRemark { .. })
    }

    const fn number(&self) -> u16 {
        match self {
            Self::Drop => DROP,
            Self::DscpRemark { .. } => DSCP_REMARK,
            Self::Experimenter { .. } => EXPERIMENTER,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    fn decode(kind: u16, body: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(match kind {
            DROP => {
                body.skip(4)?;
                Self::Drop
            }
            DSCP_REMARK => {
                let prec_level = body.take()?;
                body.skip(3)?;
                Self::DscpRemark { prec_level }
            }
            EXPERIMENTER => Self::Experimenter { experimenter: body.take()?, data: body.take()? },
            kind => Self::Unknown { kind, data: body.take()? },
        })
    }
}

/// `OFPMBT_DROP`.
const DROP: u16 = 1;
/// `OFPMBT_DSCP_REMARK`.
const DSCP_REMARK: u16 = 2;
/// `OFPMBT_EXPERIMENTER`.
const EXPERIMENTER: u16 = 0xffff;

/// Highest number of a real meter (`OFPM_MAX`).
pub const METER_MAX: u32 = 0xffff_0000;
/// The meter of packets for a slow path (`OFPM_SLOWPATH`).
pub const METER_SLOWPATH: u32 = 0xffff_fffd;
/// The meter of packets to the controller (`OFPM_CONTROLLER`).
pub const METER_CONTROLLER: u32 = 0xffff_fffe;
/// Every meter, in requests (`OFPM_ALL`).
pub const METER_ALL: u32 = 0xffff_ffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_and_flags_are_told_in_the_words_of_ovs_ofctl() {
        let band = |burst_size, kind| MeterBand { rate: 100, burst_size, kind }.to_string();
        assert_eq!(band(0, MeterBandKind::Drop), "type=drop rate=100");
        assert_eq!(band(9, MeterBandKind::Drop), "type=drop rate=100 burst_size=9");
        let remark = band(9, MeterBandKind::DscpRemark { prec_level: 2 });
        assert_eq!(remark, "type=dscp_remark rate=100 burst_size=9 prec_level=2");
        let unknown = band(0, MeterBandKind::Unknown { kind: 7, data: vec![1] });
        assert_eq!(unknown, "type=7 rate=100");
        let words = |flags: MeterFlags| flags.words().collect::<Vec<_>>().join(" ");
        assert_eq!(words(MeterFlags::empty()), "kbps");
        assert_eq!(words(MeterFlags::all() - MeterFlags::KBPS), "pktps burst stats");
    }
}
