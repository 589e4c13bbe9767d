//! Actions (OpenFlow 1.3.5 §5.12, §7.2.5).

use std::fmt;

use tapswitch_wire::EtherType;

use crate::codec::{Codec, Reader, Writer, padding};
use crate::fault::Fault;
use crate::oxm::OxmValue;
use crate::{Delivery, ErrorKind, GroupId, Oxm, PortNo, Shape};

mod check;
mod copies;

pub(crate) use check::Place;

/// One action (`ofp_action_header`, §7.2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `OFPAT_OUTPUT`: send to a port.
    Output {
        /// Which port.
        port: PortNo,
        /// For the controller port: bytes to send of a buffered packet, at most
        /// [`CONTROLLER_MAX_LEN`], or [`CONTROLLER_MAX_LEN_NO_BUFFER`].
        max_len: u16,
    },
    /// `OFPAT_COPY_TTL_OUT`: TTL from the second header to the first.
    CopyTtlOut,
    /// `OFPAT_COPY_TTL_IN`: TTL from the first header to the second.
    CopyTtlIn,
    /// `OFPAT_SET_MPLS_TTL`.
    SetMplsTtl(u8),
    /// `OFPAT_DEC_MPLS_TTL`.
    DecMplsTtl,
    /// `OFPAT_PUSH_VLAN`: add a tag of this TPID in front of the others.
    PushVlan(EtherType),
    /// `OFPAT_POP_VLAN`: remove the outermost tag.
    PopVlan,
    /// `OFPAT_PUSH_MPLS`: add a label of this EtherType.
    PushMpls(EtherType),
    /// `OFPAT_POP_MPLS`: remove the outermost label; the payload has this EtherType.
    PopMpls(EtherType),
    /// `OFPAT_SET_QUEUE`: queue for the output that follows.
    SetQueue(u32),
    /// `OFPAT_GROUP`: process by a group.
    Group(GroupId),
    /// `OFPAT_SET_NW_TTL`: set the TTL of IP.
    SetNwTtl(u8),
    /// `OFPAT_DEC_NW_TTL`: decrement the TTL of IP.
    DecNwTtl,
    /// `OFPAT_SET_FIELD`: set a header field.
    SetField(Oxm),
    /// `OFPAT_PUSH_PBB`: add a PBB service tag.
    PushPbb(EtherType),
    /// `OFPAT_POP_PBB`: remove the outer PBB service tag.
    PopPbb,
    /// `OFPAT_EXPERIMENTER`.
    Experimenter {
        /// Experimenter id.
        experimenter: u32,
        /// Data after the experimenter id.
        data: Vec<u8>,
    },
    /// An action that OpenFlow 1.3 does not define.
    Unknown {
        /// `type` of the action.
        kind: u16,
        /// Data after the action's header.
        data: Vec<u8>,
    },
}

impl Action {
    /// Output to `port`; whole packets for the controller.
    pub const fn output(port: PortNo) -> Self {
        Self::Output { port, max_len: CONTROLLER_MAX_LEN_NO_BUFFER }
    }
}

impl Action {
    /// `type` of the action (`ofp_action_type`, §7.2.5).
    pub const fn kind(&self) -> u16 {
        match self {
            Self::Output { .. } => kind::OUTPUT,
            Self::CopyTtlOut => kind::COPY_TTL_OUT,
            Self::CopyTtlIn => kind::COPY_TTL_IN,
            Self::SetMplsTtl(_) => kind::SET_MPLS_TTL,
            Self::DecMplsTtl => kind::DEC_MPLS_TTL,
            Self::PushVlan(_) => kind::PUSH_VLAN,
            Self::PopVlan => kind::POP_VLAN,
            Self::PushMpls(_) => kind::PUSH_MPLS,
            Self::PopMpls(_) => kind::POP_MPLS,
            Self::SetQueue(_) => kind::SET_QUEUE,
            Self::Group(_) => kind::GROUP,
            Self::SetNwTtl(_) => kind::SET_NW_TTL,
            Self::DecNwTtl => kind::DEC_NW_TTL,
            Self::SetField(_) => kind::SET_FIELD,
            Self::PushPbb(_) => kind::PUSH_PBB,
            Self::PopPbb => kind::POP_PBB,
            Self::Experimenter { .. } => kind::EXPERIMENTER,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    /// Appends the body after the action's header.
    fn encode_body(&self, w: &mut Writer<'_>) {
        match self {
            Self::Output { port, max_len } => {
                w.put(port);
                w.put(max_len);
                w.pad(6);
            }
            Self::SetMplsTtl(ttl) | Self::SetNwTtl(ttl) => {
                w.put(ttl);
                w.pad(3);
            }
            Self::PushVlan(eth_type)
            | Self::PushMpls(eth_type)
            | Self::PopMpls(eth_type)
            | Self::PushPbb(eth_type) => {
                w.put(eth_type);
                w.pad(2);
            }
            Self::SetQueue(queue_id) => w.put(queue_id),
            Self::Group(group_id) => w.put(group_id),
            Self::SetField(oxm) => w.put(oxm),
            Self::Experimenter { experimenter, data } => {
                w.put(experimenter);
                w.put(data);
            }
            Self::Unknown { data, .. } => w.put(data),
            Self::CopyTtlOut
            | Self::CopyTtlIn
            | Self::DecMplsTtl
            | Self::PopVlan
            | Self::DecNwTtl
            | Self::PopPbb => w.pad(4),
        }
    }

    /// Decodes the body after the header of an action of this type.
    fn decode_body(kind: u16, body: &mut Reader<'_>) -> Result<Self, Fault> {
        Ok(match kind {
            kind::OUTPUT => {
                let (port, max_len) = (body.take()?, body.take()?);
                body.skip(6)?;
                Self::Output { port, max_len }
            }
            kind::COPY_TTL_OUT => decode_bare(Self::CopyTtlOut, body)?,
            kind::COPY_TTL_IN => decode_bare(Self::CopyTtlIn, body)?,
            kind::SET_MPLS_TTL => Self::SetMplsTtl(decode_padded(3, body)?),
            kind::DEC_MPLS_TTL => decode_bare(Self::DecMplsTtl, body)?,
            kind::PUSH_VLAN => Self::PushVlan(decode_padded(2, body)?),
            kind::POP_VLAN => decode_bare(Self::PopVlan, body)?,
            kind::PUSH_MPLS => Self::PushMpls(decode_padded(2, body)?),
            kind::POP_MPLS => Self::PopMpls(decode_padded(2, body)?),
            kind::SET_QUEUE => Self::SetQueue(body.take()?),
            kind::GROUP => Self::Group(body.take()?),
            kind::SET_NW_TTL => Self::SetNwTtl(decode_padded(3, body)?),
            kind::DEC_NW_TTL => decode_bare(Self::DecNwTtl, body)?,
            kind::SET_FIELD => Self::SetField(decode_set_field(body)?),
            kind::PUSH_PBB => Self::PushPbb(decode_padded(2, body)?),
            kind::POP_PBB => decode_bare(Self::PopPbb, body)?,
            kind::EXPERIMENTER => {
                Self::Experimenter { experimenter: body.take()?, data: body.take()? }
            }
            kind => Self::Unknown { kind, data: body.take()? },
        })
    }
}

impl Codec for Action {
    fn encode(&self, w: &mut Writer<'_>) {
        w.aligned("action", |w| match self {
            Self::SetField(_) => w.tlv_with_pad(self.kind(), |w| self.encode_body(w)),
            _ => w.tlv(self.kind(), |w| self.encode_body(w)),
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        r.aligned_tlv("action", ErrorKind::OFPBAC_BAD_LEN, Self::decode_body)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output { port, max_len } if *port == PortNo::CONTROLLER => {
                write!(f, "CONTROLLER:{max_len}")
            }
            Self::Output { port, .. } if port.is_real() => write!(f, "output:{port}"),
            Self::Output { port, .. } => port.fmt(f),
            Self::CopyTtlOut => f.write_str("copy_ttl_out"),
            Self::CopyTtlIn => f.write_str("copy_ttl_in"),
            Self::SetMplsTtl(ttl) => write!(f, "set_mpls_ttl({ttl})"),
            Self::DecMplsTtl => f.write_str("dec_mpls_ttl"),
            Self::PushVlan(eth_type) => write!(f, "push_vlan:{:#06x}", eth_type.0),
            Self::PopVlan => f.write_str("pop_vlan"),
            Self::PushMpls(eth_type) => write!(f, "push_mpls:{:#06x}", eth_type.0),
            Self::PopMpls(eth_type) => write!(f, "pop_mpls:{:#06x}", eth_type.0),
            Self::SetQueue(queue_id) => write!(f, "set_queue:{queue_id}"),
            Self::Group(group_id) => write!(f, "group:{group_id}"),
            Self::SetNwTtl(ttl) => write!(f, "mod_nw_ttl:{ttl}"),
            Self::DecNwTtl => f.write_str("dec_ttl"),
            Self::SetField(oxm) => write_set_field(f, oxm),
            Self::PushPbb(eth_type) => write!(f, "push_pbb:{:#06x}", eth_type.0),
            Self::PopPbb => f.write_str("pop_pbb"),
            Self::Experimenter { experimenter, data } => {
                if let Some(delivery) = Delivery::of(self) {
                    return write_delivery(f, delivery);
                }
                if let Some(shape) = Shape::of(self) {
                    return shape.fmt(f);
                }
                write!(f, "experimenter({experimenter:#010x},{} bytes)", data.len())
            }
            Self::Unknown { kind, data } => write!(f, "action({kind},{} bytes)", data.len()),
        }
    }
}

fn decode_bare(action: Action, body: &mut Reader<'_>) -> Result<Action, Fault> {
    body.skip(4)?;
    Ok(action)
}

fn decode_padded<T: Codec>(padding: usize, body: &mut Reader<'_>) -> Result<T, Fault> {
    let value = body.take()?;
    body.skip(padding)?;
    Ok(value)
}

fn decode_set_field(body: &mut Reader<'_>) -> Result<Oxm, Fault> {
    let len = body.len();
    body.within("set_field", ErrorKind::OFPBAC_BAD_SET_LEN, |body| {
        let oxm = body.take().map_err(|fault: Fault| {
            fault.replace(ErrorKind::OFPBMC_BAD_MASK, ErrorKind::OFPBAC_BAD_SET_ARGUMENT)
        })?;
        let expected = padding(len - body.len() + ACTION_HEADER_LEN);
        if body.len() != expected {
            let text = format!("{} bytes of padding, expected {expected}", body.len());
            return Err(body.bad_len(text));
        }
        body.skip(expected)?;
        Ok(oxm)
    })
}

fn write_set_field(f: &mut fmt::Formatter<'_>, oxm: &Oxm) -> fmt::Result {
    write!(f, "set_field:{}", OxmValue(oxm))?;
    match oxm.field() {
        Some(field) => write!(f, "->{}", field.info().text),
        None => Ok(()),
    }
}

fn write_delivery(f: &mut fmt::Formatter<'_>, delivery: Delivery) -> fmt::Result {
    match delivery {
        Delivery::Lossless { stall_ms: stall_ms @ 1.. } => {
            write!(f, "deliver:lossless({stall_ms} ms)")
        }
        _ => write!(f, "deliver:{delivery}"),
    }
}

/// Prints actions in the syntax of `ovs-ofctl`: an empty list is `drop`.
pub(crate) fn write_list(f: &mut fmt::Formatter<'_>, actions: &[Action]) -> fmt::Result {
    if actions.is_empty() {
        return f.write_str("drop");
    }
    for (index, action) in actions.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(f, "{comma}{action}")?;
    }
    Ok(())
}

/// Numbers of the actions (`ofp_action_type`, §7.2.5).
mod kind {
    pub(super) const OUTPUT: u16 = 0;
    pub(super) const COPY_TTL_OUT: u16 = 11;
    pub(super) const COPY_TTL_IN: u16 = 12;
    pub(super) const SET_MPLS_TTL: u16 = 15;
    pub(super) const DEC_MPLS_TTL: u16 = 16;
    pub(super) const PUSH_VLAN: u16 = 17;
    pub(super) const POP_VLAN: u16 = 18;
    pub(super) const PUSH_MPLS: u16 = 19;
    pub(super) const POP_MPLS: u16 = 20;
    pub(super) const SET_QUEUE: u16 = 21;
    pub(super) const GROUP: u16 = 22;
    pub(super) const SET_NW_TTL: u16 = 23;
    pub(super) const DEC_NW_TTL: u16 = 24;
    pub(super) const SET_FIELD: u16 = 25;
    pub(super) const PUSH_PBB: u16 = 26;
    pub(super) const POP_PBB: u16 = 27;
    pub(super) const EXPERIMENTER: u16 = 0xffff;
}

/// `type` and `len` of an action.
const ACTION_HEADER_LEN: usize = 4;
/// Maximum bytes of a buffered packet in an output action (`OFPCML_MAX`, §7.2.5).
pub const CONTROLLER_MAX_LEN: u16 = 0xffe5;
/// Sends the whole packet to the controller, unbuffered (`OFPCML_NO_BUFFER`, §7.2.5).
pub const CONTROLLER_MAX_LEN_NO_BUFFER: u16 = 0xffff;
