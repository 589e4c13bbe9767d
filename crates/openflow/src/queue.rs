//! Port queues: configuration (OpenFlow 1.3.5 §7.2.2, §7.3.6).

use crate::PortNo;
use crate::codec::{Codec, Reader, Writer, layout_codec};
use crate::fault::{Fault, Within};

/// `OFPT_QUEUE_GET_CONFIG_REQUEST` (`ofp_queue_get_config_request`, §7.3.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueGetConfigRequest {
    /// The port; [`PortNo::ANY`] for all.
    pub port: PortNo,
}

layout_codec!(QueueGetConfigRequest {
    port,
    pad 4,
});

/// `OFPT_QUEUE_GET_CONFIG_REPLY` (`ofp_queue_get_config_reply`, §7.3.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueGetConfigReply {
    /// The port of the request.
    pub port: PortNo,
    /// Its queues.
    pub queues: Vec<PacketQueue>,
}

layout_codec!(QueueGetConfigReply {
    port,
    pad 4,
    queues,
});

/// Description of a queue (`ofp_packet_queue`, §7.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketQueue {
    /// Number of the queue on its port.
    pub queue_id: u32,
    /// The port.
    pub port: PortNo,
    /// Rates.
    pub properties: Vec<QueueProperty>,
}

impl Codec for PacketQueue {
    fn encode(&self, w: &mut Writer<'_>) {
        let start = w.position();
        w.put(&self.queue_id);
        w.put(&self.port);
        w.measured(start, |w| {
            w.pad(6);
            w.put(&self.properties);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let (queue_id, port) = (r.take()?, r.take()?);
        let len: u16 = r.take()?;
        let mut body = r.sub_after(len, LEN_FIELD_END).within("queue")?;
        body.skip(6)?;
        Ok(Self { queue_id, port, properties: body.take().within("queue")? })
    }
}

/// Property of a queue (`ofp_queue_properties`, §7.2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueProperty {
    /// `OFPQT_MIN_RATE`: guaranteed rate in tenths of a percent; above 1000 it is off.
    MinRate(u16),
    /// `OFPQT_MAX_RATE`: highest rate in tenths of a percent; above 1000 it is off.
    MaxRate(u16),
    /// `OFPQT_EXPERIMENTER`.
    Experimenter {
        /// Experimenter id.
        experimenter: u32,
        /// Data of the experimenter.
        data: Vec<u8>,
    },
    /// A property that OpenFlow 1.3 does not define.
    Unknown {
        /// `property` of the header.
        kind: u16,
        /// Data after the header.
        data: Vec<u8>,
    },
}

impl Codec for QueueProperty {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::MinRate(rate) => encode_rate(MIN_RATE, *rate, w),
            Self::MaxRate(rate) => encode_rate(MAX_RATE, *rate, w),
            Self::Experimenter { experimenter, data } => w.tlv(EXPERIMENTER, |w| {
                w.pad(4);
                w.put(experimenter);
                w.pad(4);
                w.put(data);
            }),
            Self::Unknown { kind, data } => w.tlv(*kind, |w| {
                w.pad(4);
                w.put(data);
            }),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let (kind, mut body) = r.tlv().within("property")?;
        body.skip(4).within("property")?;
        let property = match kind {
            MIN_RATE => Self::MinRate(decode_rate(&mut body)?),
            MAX_RATE => Self::MaxRate(decode_rate(&mut body)?),
            EXPERIMENTER => {
                let experimenter = body.take()?;
                body.skip(4)?;
                let data = body.take()?;
                Self::Experimenter { experimenter, data }
            }
            kind => Self::Unknown { kind, data: body.take()? },
        };
        body.finish().within("property")?;
        Ok(property)
    }
}

fn encode_rate(kind: u16, rate: u16, w: &mut Writer<'_>) {
    w.tlv(kind, |w| {
        w.pad(4);
        w.put(&rate);
        w.pad(6);
    });
}

fn decode_rate(body: &mut Reader<'_>) -> Result<u16, Fault> {
    let rate = body.take().within("rate")?;
    body.skip(6).within("rate")?;
    Ok(rate)
}

/// `OFPQT_MIN_RATE`.
const MIN_RATE: u16 = 1;
/// `OFPQT_MAX_RATE`.
const MAX_RATE: u16 = 2;
/// `OFPQT_EXPERIMENTER`.
const EXPERIMENTER: u16 = 0xffff;
/// Offset of the end of the length field in a queue's description.
const LEN_FIELD_END: usize = 10;

/// Every queue, in requests for statistics (`OFPQ_ALL`, §7.3.5.8).
pub const QUEUE_ALL: u32 = 0xffff_ffff;
