//! Packets between switch and controller (OpenFlow 1.3.5 §7.3.7, §7.4.1).

use crate::action::Place;
use crate::codec::{Codec, Reader, Writer, layout_codec, newtype_codec};
use crate::fault::Fault;
use crate::{Action, BufferId, CheckError, ErrorKind, Match, PortNo, TableId};

/// `OFPT_PACKET_IN`: a packet for the controller (§7.4.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// Buffer with the packet.
    pub buffer_id: BufferId,
    /// Length in bytes of the whole packet.
    pub total_len: u16,
    /// Why the packet is sent.
    pub reason: PacketInReason,
    /// Table of the entry that sent the packet.
    pub table_id: TableId,
    /// Cookie of the entry that sent the packet; all ones if there is none.
    pub cookie: u64,
    /// Pipeline fields of the packet; at least its ingress port.
    pub match_fields: Match,
    /// The packet's first bytes.
    pub data: Vec<u8>,
}

layout_codec!(PacketIn {
    buffer_id,
    total_len,
    reason,
    table_id,
    cookie,
    match_fields,
    pad 2,
    data,
});

/// Why a packet is sent to the controller (`ofp_packet_in_reason`). Unknown values are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PacketInReason(pub u8);

impl PacketInReason {
    /// The table-miss entry sent it.
    pub const NO_MATCH: Self = Self(0);
    /// An output action sent it.
    pub const ACTION: Self = Self(1);
    /// Its TTL expired.
    pub const INVALID_TTL: Self = Self(2);
}

newtype_codec!(PacketInReason);

/// `OFPT_PACKET_OUT`: a packet from the controller (§7.3.7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// Buffered packet to send, or none to send `data`.
    pub buffer_id: BufferId,
    /// Ingress port to assume, or [`PortNo::CONTROLLER`].
    pub in_port: PortNo,
    /// Actions for the packet; an empty list drops it.
    pub actions: Vec<Action>,
    /// The packet, if it is not a buffered one.
    pub data: Vec<u8>,
}

impl PacketOut {
    /// Sends `data` by `actions`, with the controller as ingress port.
    pub fn new(data: Vec<u8>, actions: Vec<Action>) -> Self {
        Self { buffer_id: BufferId::NO_BUFFER, in_port: PortNo::CONTROLLER, actions, data }
    }

    /// Validates the ingress port and the actions.
    pub fn check(&self) -> Result<(), CheckError> {
        let port = self.in_port;
        if !port.is_real() && port != PortNo::CONTROLLER && port != PortNo::LOCAL {
            let text = format!("packet_out: no packet arrives on port {port}");
            return Err(CheckError::new(ErrorKind::OFPBRC_BAD_PORT, text));
        }
        Action::check_all(&self.actions, Place::PacketOut)
    }
}

impl Codec for PacketOut {
    fn encode(&self, w: &mut Writer<'_>) {
        w.put(&self.buffer_id);
        w.put(&self.in_port);
        let start = w.position() + ACTIONS_GAP_LEN;
        w.measured(start, |w| {
            w.pad(6);
            w.put(&self.actions);
        });
        w.put(&self.data);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let (buffer_id, in_port) = (r.take()?, r.take()?);
        let actions_len: u16 = r.take()?;
        r.skip(6)?;
        let mut actions =
            r.within("actions", ErrorKind::OFPBAC_BAD_LEN, |r| r.sub(actions_len.into()))?;
        Ok(Self { buffer_id, in_port, actions: actions.take()?, data: r.take()? })
    }
}

/// `actions_len` and the padding after it, which it does not count.
const ACTIONS_GAP_LEN: usize = 8;
