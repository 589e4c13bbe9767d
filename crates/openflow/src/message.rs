//! Messages: a transaction id and one of thirty bodies (OpenFlow 1.3.5 §7.1).

use crate::codec::{Reader, Writer};
use crate::fault::{Fault, Within};
use crate::header::{Header, VERSION, encode_framed};
use crate::{
    AsyncConfig, CheckError, DecodeError, EncodeError, ErrorKind, ErrorMessage, Experimenter,
    FeaturesReply, FlowMod, FlowRemoved, GroupMod, HeaderError, Hello, MessageError, MessageType,
    MeterMod, MultipartReply, MultipartRequest, PacketIn, PacketOut, PortMod, PortStatus,
    QueueGetConfigReply, QueueGetConfigRequest, RoleMessage, StartsSuffice, SwitchConfig, TableMod,
};

/// One OpenFlow message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Transaction id: a reply carries that of its request.
    pub xid: u32,
    /// The body.
    pub body: Body,
}

impl Message {
    /// Decodes one message; `bytes` must be exactly the message.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let header = whole_header(bytes)?;
        let body = bytes.get(Header::LEN..).unwrap_or_default();
        let mut r = Reader::new(body, Header::LEN, ErrorKind::OFPBRC_BAD_LEN);
        let body = Body::decode(&header, &mut r).map_err(|fault| fault.into_error(header.xid))?;
        Ok(Self { xid: header.xid, body })
    }

    /// Appends the encoded message to `out`, which is unchanged if this fails.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        let mut w = Writer::new(out);
        let message_type = self.body.message_type() as u8;
        let header = (self.body.version(), message_type, self.xid);
        encode_framed(header, &mut w, |w| self.body.encode(w));
        let result = w.finish();
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    /// Validates the message as far as its own content allows. What depends on the switch's state,
    /// such as whether a group exists, is left to the switch.
    ///
    /// Decoding is more lenient, so that any message can be printed or passed on; a switch checks a
    /// message before it acts on it.
    pub fn check(&self) -> Result<(), CheckError> {
        match &self.body {
            Body::SetConfig(config) => config.check(),
            Body::PacketOut(packet_out) => packet_out.check(),
            Body::FlowMod(flow_mod) => flow_mod.check(),
            Body::GroupMod(group_mod) => group_mod.check(),
            Body::PortMod(port_mod) => port_mod.check(),
            Body::TableMod(table_mod) => table_mod.check(),
            Body::MeterMod(meter_mod) => meter_mod.check(),
            Body::MultipartRequest(request) => request.check(),
            Body::Experimenter(body) => StartsSuffice::of(body).map(|_| ()),
            _ => Ok(()),
        }
    }
}

impl MessageError {
    /// The error message to send back for the message `failed`.
    pub fn reply(&self, failed: &[u8]) -> Message {
        Message { xid: self.xid, body: Body::Error(ErrorMessage::about(self.kind, failed)) }
    }
}

/// Body of a message (`ofp_type`, §7.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// `OFPT_HELLO`: first message of both ends.
    Hello(Hello),
    /// `OFPT_ERROR`: a message failed.
    Error(ErrorMessage),
    /// `OFPT_ECHO_REQUEST`: liveness check.
    EchoRequest(Vec<u8>),
    /// `OFPT_ECHO_REPLY`: carries the request's data.
    EchoReply(Vec<u8>),
    /// `OFPT_EXPERIMENTER`: a vendor extension.
    Experimenter(Experimenter),
    /// `OFPT_FEATURES_REQUEST`: asks for datapath id and capabilities.
    FeaturesRequest,
    /// `OFPT_FEATURES_REPLY`.
    FeaturesReply(FeaturesReply),
    /// `OFPT_GET_CONFIG_REQUEST`.
    GetConfigRequest,
    /// `OFPT_GET_CONFIG_REPLY`.
    GetConfigReply(SwitchConfig),
    /// `OFPT_SET_CONFIG`.
    SetConfig(SwitchConfig),
    /// `OFPT_PACKET_IN`: a packet for the controller.
    PacketIn(PacketIn),
    /// `OFPT_FLOW_REMOVED`: a flow entry was removed.
    FlowRemoved(FlowRemoved),
    /// `OFPT_PORT_STATUS`: a port was added, removed or changed.
    PortStatus(PortStatus),
    /// `OFPT_PACKET_OUT`: a packet from the controller.
    PacketOut(PacketOut),
    /// `OFPT_FLOW_MOD`: change flow entries.
    FlowMod(FlowMod),
    /// `OFPT_GROUP_MOD`: change a group.
    GroupMod(GroupMod),
    /// `OFPT_PORT_MOD`: change a port.
    PortMod(PortMod),
    /// `OFPT_TABLE_MOD`: change a table.
    TableMod(TableMod),
    /// `OFPT_MULTIPART_REQUEST`.
    MultipartRequest(MultipartRequest),
    /// `OFPT_MULTIPART_REPLY`.
    MultipartReply(MultipartReply),
    /// `OFPT_BARRIER_REQUEST`: complete all earlier messages, then reply.
    BarrierRequest,
    /// `OFPT_BARRIER_REPLY`.
    BarrierReply,
    /// `OFPT_QUEUE_GET_CONFIG_REQUEST`.
    QueueGetConfigRequest(QueueGetConfigRequest),
    /// `OFPT_QUEUE_GET_CONFIG_REPLY`.
    QueueGetConfigReply(QueueGetConfigReply),
    /// `OFPT_ROLE_REQUEST`.
    RoleRequest(RoleMessage),
    /// `OFPT_ROLE_REPLY`.
    RoleReply(RoleMessage),
    /// `OFPT_GET_ASYNC_REQUEST`.
    GetAsyncRequest,
    /// `OFPT_GET_ASYNC_REPLY`.
    GetAsyncReply(AsyncConfig),
    /// `OFPT_SET_ASYNC`.
    SetAsync(AsyncConfig),
    /// `OFPT_METER_MOD`: change a meter.
    MeterMod(MeterMod),
}

impl Body {
    /// True for a flow-mod and a group-mod, which are answered only on failure (§7.3.4).
    pub const fn is_modification(&self) -> bool {
        matches!(self, Self::FlowMod(_) | Self::GroupMod(_))
    }

    /// `type` of the message.
    pub const fn message_type(&self) -> MessageType {
        match self {
            Self::Hello(_) => MessageType::Hello,
            Self::Error(_) => MessageType::Error,
            Self::EchoRequest(_) => MessageType::EchoRequest,
            Self::EchoReply(_) => MessageType::EchoReply,
            Self::Experimenter(_) => MessageType::Experimenter,
            Self::FeaturesRequest => MessageType::FeaturesRequest,
            Self::FeaturesReply(_) => MessageType::FeaturesReply,
            Self::GetConfigRequest => MessageType::GetConfigRequest,
            Self::GetConfigReply(_) => MessageType::GetConfigReply,
            Self::SetConfig(_) => MessageType::SetConfig,
            Self::PacketIn(_) => MessageType::PacketIn,
            Self::FlowRemoved(_) => MessageType::FlowRemoved,
            Self::PortStatus(_) => MessageType::PortStatus,
            Self::PacketOut(_) => MessageType::PacketOut,
            Self::FlowMod(_) => MessageType::FlowMod,
            Self::GroupMod(_) => MessageType::GroupMod,
            Self::PortMod(_) => MessageType::PortMod,
            Self::TableMod(_) => MessageType::TableMod,
            Self::MultipartRequest(_) => MessageType::MultipartRequest,
            Self::MultipartReply(_) => MessageType::MultipartReply,
            Self::BarrierRequest => MessageType::BarrierRequest,
            Self::BarrierReply => MessageType::BarrierReply,
            Self::QueueGetConfigRequest(_) => MessageType::QueueGetConfigRequest,
            Self::QueueGetConfigReply(_) => MessageType::QueueGetConfigReply,
            Self::RoleRequest(_) => MessageType::RoleRequest,
            Self::RoleReply(_) => MessageType::RoleReply,
            Self::GetAsyncRequest => MessageType::GetAsyncRequest,
            Self::GetAsyncReply(_) => MessageType::GetAsyncReply,
            Self::SetAsync(_) => MessageType::SetAsync,
            Self::MeterMod(_) => MessageType::MeterMod,
        }
    }

    /// Version in the header.
    const fn version(&self) -> u8 {
        match self {
            Self::Hello(hello) => hello.version,
            _ => VERSION,
        }
    }

    /// Appends the body after the header.
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::FeaturesRequest
            | Self::GetConfigRequest
            | Self::BarrierRequest
            | Self::BarrierReply
            | Self::GetAsyncRequest => {}
            Self::Hello(hello) => hello.encode_body(w),
            Self::Error(error) => w.put(error),
            Self::EchoRequest(data) | Self::EchoReply(data) => w.put(data),
            Self::Experimenter(experimenter) => w.put(experimenter),
            Self::FeaturesReply(features) => w.put(features),
            Self::GetConfigReply(config) | Self::SetConfig(config) => w.put(config),
            Self::PacketIn(packet_in) => w.put(packet_in),
            Self::FlowRemoved(flow_removed) => w.put(flow_removed),
            Self::PortStatus(port_status) => w.put(port_status),
            Self::PacketOut(packet_out) => w.put(packet_out),
            Self::FlowMod(flow_mod) => w.put(flow_mod),
            Self::GroupMod(group_mod) => w.put(group_mod),
            Self::PortMod(port_mod) => w.put(port_mod),
            Self::TableMod(table_mod) => w.put(table_mod),
            Self::MultipartRequest(request) => w.put(request),
            Self::MultipartReply(reply) => w.put(reply),
            Self::QueueGetConfigRequest(request) => w.put(request),
            Self::QueueGetConfigReply(reply) => w.put(reply),
            Self::RoleRequest(role) | Self::RoleReply(role) => w.put(role),
            Self::GetAsyncReply(config) | Self::SetAsync(config) => w.put(config),
            Self::MeterMod(meter_mod) => w.put(meter_mod),
        }
    }

    /// Decodes the body after this header; it must use all bytes.
    fn decode(header: &Header, r: &mut Reader<'_>) -> Result<Self, Fault> {
        let message_type = known_type(header).within("header")?;
        let body = Self::decode_fields(message_type, header.version, r);
        body.and_then(|body| r.clone().finish().map(|()| body)).within(message_type.name())
    }

    fn decode_fields(
        message_type: MessageType,
        version: u8,
        r: &mut Reader<'_>,
    ) -> Result<Self, Fault> {
        Ok(match message_type {
            MessageType::Hello => Self::Hello(Hello::decode_body(version, r)?),
            MessageType::Error => Self::Error(r.take()?),
            MessageType::EchoRequest => Self::EchoRequest(r.take()?),
            MessageType::EchoReply => Self::EchoReply(r.take()?),
            MessageType::Experimenter => Self::Experimenter(r.take()?),
            MessageType::FeaturesRequest => Self::FeaturesRequest,
            MessageType::FeaturesReply => Self::FeaturesReply(r.take()?),
            MessageType::GetConfigRequest => Self::GetConfigRequest,
            MessageType::GetConfigReply => Self::GetConfigReply(r.take()?),
            MessageType::SetConfig => Self::SetConfig(r.take()?),
            MessageType::PacketIn => Self::PacketIn(r.take()?),
            MessageType::FlowRemoved => Self::FlowRemoved(r.take()?),
            MessageType::PortStatus => Self::PortStatus(r.take()?),
            MessageType::PacketOut => Self::PacketOut(r.take()?),
            MessageType::FlowMod => Self::FlowMod(r.take()?),
            MessageType::GroupMod => Self::GroupMod(r.take()?),
            MessageType::PortMod => Self::PortMod(r.take()?),
            MessageType::TableMod => Self::TableMod(r.take()?),
            MessageType::MultipartRequest => Self::MultipartRequest(r.take()?),
            MessageType::MultipartReply => Self::MultipartReply(r.take()?),
            MessageType::BarrierRequest => Self::BarrierRequest,
            MessageType::BarrierReply => Self::BarrierReply,
            MessageType::QueueGetConfigRequest => Self::QueueGetConfigRequest(r.take()?),
            MessageType::QueueGetConfigReply => Self::QueueGetConfigReply(r.take()?),
            MessageType::RoleRequest => Self::RoleRequest(r.take()?),
            MessageType::RoleReply => Self::RoleReply(r.take()?),
            MessageType::GetAsyncRequest => Self::GetAsyncRequest,
            MessageType::GetAsyncReply => Self::GetAsyncReply(r.take()?),
            MessageType::SetAsync => Self::SetAsync(r.take()?),
            MessageType::MeterMod => Self::MeterMod(r.take()?),
        })
    }
}

/// The header of `bytes`, if its length matches theirs.
fn whole_header(bytes: &[u8]) -> Result<Header, HeaderError> {
    let actual = bytes.len();
    let Some(header) = Header::peek(bytes) else {
        let len = Header::LEN;
        return Err(HeaderError::NotWhole { len, actual });
    };
    if usize::from(header.length) < Header::LEN {
        return Err(HeaderError::TooShort { len: header.length });
    }
    let len = usize::from(header.length);
    if len != actual {
        return Err(HeaderError::NotWhole { len, actual });
    }
    Ok(header)
}

/// The message type, if version and type are supported.
fn known_type(header: &Header) -> Result<MessageType, Fault> {
    let message_type = MessageType::from_number(header.message_type);
    if header.version != VERSION && message_type != Some(MessageType::Hello) {
        let text = format!("version {:#04x} is not {VERSION:#04x}", header.version);
        return Err(Fault::new(ErrorKind::OFPBRC_BAD_VERSION, 0, text));
    }
    message_type.ok_or_else(|| {
        let text = format!("unknown type {}", header.message_type);
        Fault::new(ErrorKind::OFPBRC_BAD_TYPE, 1, text)
    })
}
