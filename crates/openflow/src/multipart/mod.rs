//! Multipart messages: statistics and descriptions that may exceed one message (OpenFlow 1.3.5
//! §7.3.5).

use crate::codec::{Codec, Reader, Writer, layout_codec};
use crate::fault::{Fault, Within};
use crate::{CheckError, ErrorKind, Experimenter, GroupId, LedgerRequest, Port, PortNo, Text};

mod flow;
mod group;
mod meter;
mod port;
mod split;
mod table;

pub use flow::{AggregateStats, FlowStats, FlowStatsRequest};
pub use group::{BucketCounter, GroupCapabilities, GroupDesc, GroupFeatures, GroupStats};
pub use meter::{MeterBandStats, MeterConfig, MeterFeatures, MeterStats};
pub use port::{PortStats, QueueStats, QueueStatsRequest};
pub use split::AppendError;
pub use table::{ActionId, InstructionId, OxmId, TableFeatures, TableFeaturesProperty, TableStats};

/// `OFPT_MULTIPART_REQUEST` (`ofp_multipart_request`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartRequest {
    /// `OFPMPF_REQ_MORE`: more parts of this request follow.
    pub more: bool,
    /// The request.
    pub body: MultipartRequestBody,
}

impl MultipartRequest {
    /// A request in one part.
    pub const fn new(body: MultipartRequestBody) -> Self {
        Self { more: false, body }
    }

    /// Validates the request.
    pub fn check(&self) -> Result<(), CheckError> {
        match &self.body {
            MultipartRequestBody::Flow(request) | MultipartRequestBody::Aggregate(request) => {
                request.match_fields.check()
            }
            MultipartRequestBody::TableFeatures(tables) => {
                tables.iter().try_for_each(TableFeatures::check)
            }
            MultipartRequestBody::Experimenter(body) => LedgerRequest::of(body).map(|_| ()),
            _ => Ok(()),
        }
    }
}

impl Codec for MultipartRequest {
    fn encode(&self, w: &mut Writer<'_>) {
        encode_header(self.body.kind(), self.more, w);
        self.body.encode_body(w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let (kind, more) = decode_header(r)?;
        let body = MultipartRequestBody::decode_body(kind, r)?;
        Ok(Self { more, body })
    }
}

/// Body of a multipart request (`ofp_multipart_type`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartRequestBody {
    /// `OFPMP_DESC`: description of the switch.
    Desc,
    /// `OFPMP_FLOW`: flow entries, one by one.
    Flow(FlowStatsRequest),
    /// `OFPMP_AGGREGATE`: flow entries, summed up.
    Aggregate(FlowStatsRequest),
    /// `OFPMP_TABLE`: counters of tables.
    Table,
    /// `OFPMP_PORT_STATS`: counters of a port, or of [`PortNo::ANY`].
    PortStats(PortNo),
    /// `OFPMP_QUEUE`: counters of queues.
    Queue(QueueStatsRequest),
    /// `OFPMP_GROUP`: counters of a group, or of [`GroupId::ALL`].
    Group(GroupId),
    /// `OFPMP_GROUP_DESC`: descriptions of the groups.
    GroupDesc,
    /// `OFPMP_GROUP_FEATURES`: capabilities of groups.
    GroupFeatures,
    /// `OFPMP_METER`: counters of a meter, or of [`crate::METER_ALL`].
    Meter(u32),
    /// `OFPMP_METER_CONFIG`: configuration of a meter, or of all with [`crate::METER_ALL`].
    MeterConfig(u32),
    /// `OFPMP_METER_FEATURES`: capabilities of meters.
    MeterFeatures,
    /// `OFPMP_TABLE_FEATURES`: capabilities of tables; a query if empty, else the features to set.
    TableFeatures(Vec<TableFeatures>),
    /// `OFPMP_PORT_DESC`: descriptions of the ports.
    PortDesc,
    /// `OFPMP_EXPERIMENTER`.
    Experimenter(Experimenter),
}

impl MultipartRequestBody {
    /// `type` of the multipart (`ofp_multipart_type`).
    pub const fn kind(&self) -> u16 {
        match self {
            Self::Desc => kind::DESC,
            Self::Flow(_) => kind::FLOW,
            Self::Aggregate(_) => kind::AGGREGATE,
            Self::Table => kind::TABLE,
            Self::PortStats(_) => kind::PORT_STATS,
            Self::Queue(_) => kind::QUEUE,
            Self::Group(_) => kind::GROUP,
            Self::GroupDesc => kind::GROUP_DESC,
            Self::GroupFeatures => kind::GROUP_FEATURES,
            Self::Meter(_) => kind::METER,
            Self::MeterConfig(_) => kind::METER_CONFIG,
            Self::MeterFeatures => kind::METER_FEATURES,
            Self::TableFeatures(_) => kind::TABLE_FEATURES,
            Self::PortDesc => kind::PORT_DESC,
            Self::Experimenter(_) => kind::EXPERIMENTER,
        }
    }

    /// Appends the body after the multipart's header.
    fn encode_body(&self, w: &mut Writer<'_>) {
        match self {
            Self::Desc
            | Self::Table
            | Self::GroupDesc
            | Self::GroupFeatures
            | Self::MeterFeatures
            | Self::PortDesc => {}
            Self::Flow(request) | Self::Aggregate(request) => w.put(request),
            Self::PortStats(port) => encode_padded(port, w),
            Self::Queue(request) => w.put(request),
            Self::Group(group) => encode_padded(group, w),
            Self::Meter(meter) | Self::MeterConfig(meter) => encode_padded(meter, w),
            Self::TableFeatures(tables) => w.put(tables),
            Self::Experimenter(experimenter) => w.put(experimenter),
        }
    }

    /// Decodes the body after the header of a multipart of this type.
    fn decode_body(kind: u16, r: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(match kind {
            kind::DESC => Self::Desc,
            kind::FLOW => Self::Flow(r.take().within("flow")?),
            kind::AGGREGATE => Self::Aggregate(r.take().within("aggregate")?),
            kind::TABLE => Self::Table,
            kind::PORT_STATS => Self::PortStats(decode_padded(r).within("port_stats")?),
            kind::QUEUE => Self::Queue(r.take().within("queue")?),
            kind::GROUP => Self::Group(decode_padded(r).within("group")?),
            kind::GROUP_DESC => Self::GroupDesc,
            kind::GROUP_FEATURES => Self::GroupFeatures,
            kind::METER => Self::Meter(decode_padded(r).within("meter")?),
            kind::METER_CONFIG => Self::MeterConfig(decode_padded(r).within("meter_config")?),
            kind::METER_FEATURES => Self::MeterFeatures,
            kind::TABLE_FEATURES => Self::TableFeatures(decode_table_features(r)?),
            kind::PORT_DESC => Self::PortDesc,
            kind::EXPERIMENTER => Self::Experimenter(r.take().within("experimenter")?),
            kind => return Err(unknown_kind(kind, r)),
        })
    }
}

/// `OFPT_MULTIPART_REPLY` (`ofp_multipart_reply`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartReply {
    /// `OFPMPF_REPLY_MORE`: more parts of this reply follow.
    pub more: bool,
    /// The reply.
    pub body: MultipartReplyBody,
}

impl MultipartReply {
    /// A reply in one part.
    pub const fn new(body: MultipartReplyBody) -> Self {
        Self { more: false, body }
    }
}

impl Codec for MultipartReply {
    fn encode(&self, w: &mut Writer<'_>) {
        encode_header(self.body.kind(), self.more, w);
        self.body.encode_body(w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let (kind, more) = decode_header(r)?;
        let body = MultipartReplyBody::decode_body(kind, r)?;
        Ok(Self { more, body })
    }
}

/// Body of a multipart reply (`ofp_multipart_type`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartReplyBody {
    /// `OFPMP_DESC`.
    Desc(Box<Desc>),
    /// `OFPMP_FLOW`.
    Flow(Vec<FlowStats>),
    /// `OFPMP_AGGREGATE`.
    Aggregate(AggregateStats),
    /// `OFPMP_TABLE`.
    Table(Vec<TableStats>),
    /// `OFPMP_PORT_STATS`.
    PortStats(Vec<PortStats>),
    /// `OFPMP_QUEUE`.
    Queue(Vec<QueueStats>),
    /// `OFPMP_GROUP`.
    Group(Vec<GroupStats>),
    /// `OFPMP_GROUP_DESC`.
    GroupDesc(Vec<GroupDesc>),
    /// `OFPMP_GROUP_FEATURES`.
    GroupFeatures(GroupFeatures),
    /// `OFPMP_METER`.
    Meter(Vec<MeterStats>),
    /// `OFPMP_METER_CONFIG`.
    MeterConfig(Vec<MeterConfig>),
    /// `OFPMP_METER_FEATURES`.
    MeterFeatures(MeterFeatures),
    /// `OFPMP_TABLE_FEATURES`.
    TableFeatures(Vec<TableFeatures>),
    /// `OFPMP_PORT_DESC`.
    PortDesc(Vec<Port>),
    /// `OFPMP_EXPERIMENTER`.
    Experimenter(Experimenter),
}

impl MultipartReplyBody {
    /// `type` of the multipart (`ofp_multipart_type`).
    pub const fn kind(&self) -> u16 {
        match self {
            Self::Desc(_) => kind::DESC,
            Self::Flow(_) => kind::FLOW,
            Self::Aggregate(_) => kind::AGGREGATE,
            Self::Table(_) => kind::TABLE,
            Self::PortStats(_) => kind::PORT_STATS,
            Self::Queue(_) => kind::QUEUE,
            Self::Group(_) => kind::GROUP,
            Self::GroupDesc(_) => kind::GROUP_DESC,
            Self::GroupFeatures(_) => kind::GROUP_FEATURES,
            Self::Meter(_) => kind::METER,
            Self::MeterConfig(_) => kind::METER_CONFIG,
            Self::MeterFeatures(_) => kind::METER_FEATURES,
            Self::TableFeatures(_) => kind::TABLE_FEATURES,
            Self::PortDesc(_) => kind::PORT_DESC,
            Self::Experimenter(_) => kind::EXPERIMENTER,
        }
    }

    /// Appends the body after the multipart's header.
    fn encode_body(&self, w: &mut Writer<'_>) {
        match self {
            Self::Desc(desc) => w.put(&**desc),
            Self::Flow(flows) => w.put(flows),
            Self::Aggregate(aggregate) => w.put(aggregate),
            Self::Table(tables) => w.put(tables),
            Self::PortStats(ports) => w.put(ports),
            Self::Queue(queues) => w.put(queues),
            Self::Group(groups) => w.put(groups),
            Self::GroupDesc(groups) => w.put(groups),
            Self::GroupFeatures(features) => w.put(features),
            Self::Meter(meters) => w.put(meters),
            Self::MeterConfig(meters) => w.put(meters),
            Self::MeterFeatures(features) => w.put(features),
            Self::TableFeatures(tables) => w.put(tables),
            Self::PortDesc(ports) => w.put(ports),
            Self::Experimenter(experimenter) => w.put(experimenter),
        }
    }

    /// Decodes the body after the header of a multipart of this type.
    fn decode_body(kind: u16, r: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(match kind {
            kind::DESC => Self::Desc(Box::new(r.take().within("desc")?)),
            kind::FLOW => Self::Flow(r.take().within("flow")?),
            kind::AGGREGATE => Self::Aggregate(r.take().within("aggregate")?),
            kind::TABLE => Self::Table(r.take().within("table")?),
            kind::PORT_STATS => Self::PortStats(r.take().within("port_stats")?),
            kind::QUEUE => Self::Queue(r.take().within("queue")?),
            kind::GROUP => Self::Group(r.take().within("group")?),
            kind::GROUP_DESC => Self::GroupDesc(r.take().within("group_desc")?),
            kind::GROUP_FEATURES => Self::GroupFeatures(r.take().within("group_features")?),
            kind::METER => Self::Meter(r.take().within("meter")?),
            kind::METER_CONFIG => Self::MeterConfig(r.take().within("meter_config")?),
            kind::METER_FEATURES => Self::MeterFeatures(r.take().within("meter_features")?),
            kind::TABLE_FEATURES => Self::TableFeatures(decode_table_features(r)?),
            kind::PORT_DESC => Self::PortDesc(r.take().within("port_desc")?),
            kind::EXPERIMENTER => Self::Experimenter(r.take().within("experimenter")?),
            kind => return Err(unknown_kind(kind, r)),
        })
    }
}

/// Description of the switch (`ofp_desc`, §7.3.5.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desc {
    /// Manufacturer.
    pub mfr_desc: Text<256>,
    /// Hardware.
    pub hw_desc: Text<256>,
    /// Software.
    pub sw_desc: Text<256>,
    /// Serial number.
    pub serial_num: Text<32>,
    /// Readable description of the datapath.
    pub dp_desc: Text<256>,
}

layout_codec!(Desc { mfr_desc, hw_desc, sw_desc, serial_num, dp_desc });

fn encode_header(kind: u16, more: bool, w: &mut Writer<'_>) {
    w.put(&kind);
    w.put(&u16::from(more));
    w.pad(4);
}

fn decode_header(r: &mut Reader<'_>) -> Result<(u16, bool), Fault> {
    let kind = r.take()?;
    let flags: u16 = r.take()?;
    r.skip(4)?;
    Ok((kind, flags & MORE != 0))
}

fn encode_padded<T: Codec>(value: &T, w: &mut Writer<'_>) {
    w.put(value);
    w.pad(4);
}

fn decode_padded<T: Codec>(r: &mut Reader<'_>) -> Result<T, Fault> {
    let value = r.take()?;
    r.skip(4)?;
    Ok(value)
}

/// Decodes table features; wrong lengths have an error kind of their own.
fn decode_table_features(r: &mut Reader<'_>) -> Result<Vec<TableFeatures>, Fault> {
    r.within("table_features", ErrorKind::OFPTFFC_BAD_LEN, Reader::take)
}

#[cold]
fn unknown_kind(kind: u16, r: &Reader<'_>) -> Fault {
    let text = format!("unknown type of multipart {kind}");
    r.fault(ErrorKind::OFPBRC_BAD_MULTIPART, text)
}

/// `OFPMPF_REQ_MORE` and `OFPMPF_REPLY_MORE`.
const MORE: u16 = 1;

/// Numbers of the multiparts (`ofp_multipart_type`).
mod kind {
    pub(super) const DESC: u16 = 0;
    pub(super) const FLOW: u16 = 1;
    pub(super) const AGGREGATE: u16 = 2;
    pub(super) const TABLE: u16 = 3;
    pub(super) const PORT_STATS: u16 = 4;
    pub(super) const QUEUE: u16 = 5;
    pub(super) const GROUP: u16 = 6;
    pub(super) const GROUP_DESC: u16 = 7;
    pub(super) const GROUP_FEATURES: u16 = 8;
    pub(super) const METER: u16 = 9;
    pub(super) const METER_CONFIG: u16 = 10;
    pub(super) const METER_FEATURES: u16 = 11;
    pub(super) const TABLE_FEATURES: u16 = 12;
    pub(super) const PORT_DESC: u16 = 13;
    pub(super) const EXPERIMENTER: u16 = 0xffff;
}
