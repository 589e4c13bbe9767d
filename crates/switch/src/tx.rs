//! How a worker sends: whole where the port takes the frame as it is, cut and completed where not.
//!
//! 1. The frame is contiguous with room in front (nearly all): its metadata is written in front of
//!    it, one system call.
//! 2. A copy with headers of its own: header and payload as an iovec pair.
//! 3. A train that was coalesced: an iovec of its headers and payloads.
//! 4. A train of a kind that the port does not take: cut into packets, each an iovec.

use std::io::IoSlice;
use std::sync::Arc;

use tapswitch_datapath::{DropReason, Frame, MAX_PORT};
use tapswitch_netdev as netdev;
use tapswitch_offload::Segments;
use tapswitch_openflow::PortNo;
use tapswitch_tap as tap;
use tapswitch_wire::{GsoType, NET_HEADER_LEN, NetHeader};

/// The ports as one worker sends to them.
#[derive(Debug, Default)]
pub(crate) struct TxPorts {
    /// By number; [`PortNo::LOCAL`] in the place of number 0.
    by_number: Vec<Option<TxPort>>,
}

impl TxPorts {
    pub(crate) fn insert(&mut self, number: PortNo, port: TxPort) {
        let index = index(number);
        if index > MAX_PORT as usize {
            return;
        }
        if self.by_number.len() <= index {
            self.by_number.resize_with(index + 1, || None);
        }
        self.by_number[index] = Some(port);
    }

    #[inline]
    pub(crate) fn find(&mut self, number: PortNo) -> Option<&mut TxPort> {
        self.by_number.get_mut(index(number))?.as_mut()
    }
}

#[inline]
fn index(number: PortNo) -> usize {
    if number == PortNo::LOCAL { 0 } else { number.0 as usize }
}

/// One port as one worker sends to it.
#[derive(Debug)]
pub(crate) struct TxPort {
    device: TxDevice,
    /// Kinds of trains that the port takes whole. Shrinks when the kernel refuses one.
    whole: TrainKinds,
}

/// What is behind a port.
#[derive(Debug)]
pub(crate) enum TxDevice {
    Tap(Arc<tap::Queue>),
    Netdev(Arc<netdev::PacketPort>),
}

/// Kinds of trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrainKinds {
    pub(crate) tcp_v4: bool,
    pub(crate) tcp_v6: bool,
    pub(crate) udp: bool,
}

impl TrainKinds {
    #[inline]
    fn contains(self, kind: GsoType) -> bool {
        match kind.kind() {
            GsoType::TCPV4 => self.tcp_v4,
            GsoType::TCPV6 => self.tcp_v6,
            GsoType::UDP_L4 => self.udp,
            _ => false,
        }
    }

    fn remove(&mut self, kind: GsoType) {
        match kind.kind() {
            GsoType::TCPV4 => self.tcp_v4 = false,
            GsoType::TCPV6 => self.tcp_v6 = false,
            _ => self.udp = false,
        }
    }
}

impl From<tap::Offloads> for TrainKinds {
    fn from(offloads: tap::Offloads) -> Self {
        Self {
            tcp_v4: offloads.contains(tap::Offloads::TSO4),
            tcp_v6: offloads.contains(tap::Offloads::TSO6),
            udp: offloads.contains(tap::Offloads::USO),
        }
    }
}

impl From<netdev::Capabilities> for TrainKinds {
    fn from(capabilities: netdev::Capabilities) -> Self {
        Self { tcp_v4: true, tcp_v6: true, udp: capabilities.send_udp_trains }
    }
}

impl TxPort {
    pub(crate) fn new(device: TxDevice, whole: TrainKinds) -> Self {
        Self { device, whole }
    }

    /// Sends `frame`, all of whose bytes are ours.
    #[expect(clippy::inline_always, reason = "see Forwarder::handle")]
    #[inline(always)]
    pub(crate) fn send(&mut self, frame: &mut Frame<'_>) -> Result<(), DropReason> {
        if frame.meta.is_train() && !self.whole.contains(frame.meta.gso_type) {
            return self.send_cut(frame);
        }
        match self.device.send(frame) {
            Err(SendFault::Rejected) if frame.meta.is_train() => {
                // One that cannot be cut either is bad itself, and says nothing about its kind.
                self.send_cut(frame)?;
                self.whole.remove(frame.meta.gso_type);
                Ok(())
            }
            sent => sent.map_err(DropReason::from),
        }
    }

    /// Cuts the train and sends its packets one by one. A packet that fails takes the rest along:
    /// the receiver misses the end of the train, not its middle.
    #[cold]
    fn send_cut(&mut self, frame: &Frame<'_>) -> Result<(), DropReason> {
        let mut room = Vec::new();
        let mut packets = Segments::new(&frame.meta, frame.head(), frame.joined(&mut room))
            .map_err(|_| DropReason::CannotSegment)?;
        let mut headers = vec![0; packets.headers_len()];
        while let Some(packet) = packets.next(&mut headers) {
            let [first, second] = packet.payload;
            self.device.send_packet([&headers[..packet.headers_len], first, second])?;
        }
        Ok(())
    }
}

impl TxDevice {
    #[expect(clippy::inline_always, reason = "see Forwarder::handle")]
    #[inline(always)]
    fn send(&self, frame: &mut Frame<'_>) -> Result<(), SendFault> {
        if frame.more().is_some() {
            return self.send_gathered(frame);
        }
        match self {
            Self::Tap(queue) => send_tap(queue, frame),
            Self::Netdev(port) => {
                Ok(port.send(&frame.meta, &[frame.head(), frame.rest()].map(IoSlice::new))?)
            }
        }
    }

    /// Sends a frame whose payload lies in several places. The pieces are large, or there are few
    /// enough bytes for their number not to matter.
    #[inline(never)]
    fn send_gathered(&self, frame: &Frame<'_>) -> Result<(), SendFault> {
        let meta = frame.meta.encode();
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let bytes = [&meta[..], frame.head()].into_iter().chain(frame.parts());
        let mut count = 0;
        for (piece, bytes) in pieces.iter_mut().zip(bytes) {
            *piece = IoSlice::new(bytes);
            count += 1;
        }
        if frame.parts().count() + 2 > count {
            return Err(SendFault::Rejected);
        }
        match self {
            Self::Tap(queue) => Ok(queue.send_vectored(&pieces[..count])?),
            Self::Netdev(port) => Ok(port.send_gathered(&frame.meta, &pieces[1..count])?),
        }
    }

    /// Sends a packet with nothing left undone.
    fn send_packet(&self, parts: [&[u8]; 3]) -> Result<(), SendFault> {
        let [headers, first, second] = parts.map(IoSlice::new);
        match self {
            Self::Tap(queue) => {
                let meta = NetHeader::PLAIN.encode();
                Ok(queue.send_vectored(&[IoSlice::new(&meta), headers, first, second])?)
            }
            Self::Netdev(port) => Ok(port.send(&NetHeader::PLAIN, &[headers, first, second])?),
        }
    }
}

#[expect(clippy::inline_always, reason = "see Forwarder::handle")]
#[inline(always)]
fn send_tap(queue: &tap::Queue, frame: &mut Frame<'_>) -> Result<(), SendFault> {
    let meta = frame.meta.encode();
    let rest = frame.rest();
    let Some(head) = frame.head_with_prefix(NET_HEADER_LEN) else {
        return send_tap_scattered(queue, &meta, frame);
    };
    head[..NET_HEADER_LEN].copy_from_slice(&meta);
    if rest.is_empty() {
        return Ok(queue.send(head)?);
    }
    Ok(queue.send_vectored(&[IoSlice::new(head), IoSlice::new(rest)])?)
}

/// For a frame whose tags have used up the headroom.
#[cold]
fn send_tap_scattered(
    queue: &tap::Queue,
    meta: &[u8; NET_HEADER_LEN],
    frame: &Frame<'_>,
) -> Result<(), SendFault> {
    Ok(queue.send_vectored(&[&meta[..], frame.head(), frame.rest()].map(IoSlice::new))?)
}

/// Most pieces that a frame is sent in: metadata, headers, what is shared of its first packet, and
/// the payloads of the others of a batch.
const PIECES_MAX: usize = 3 + crate::gro::BATCH_COUNT;

/// Why a device did not take a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendFault {
    Down,
    Oversize,
    Full,
    Rejected,
    Failed,
}

impl From<tap::SendError> for SendFault {
    #[cold]
    fn from(error: tap::SendError) -> Self {
        match error {
            tap::SendError::Down => Self::Down,
            tap::SendError::Full | tap::SendError::NoMemory => Self::Full,
            tap::SendError::Rejected => Self::Rejected,
            _ => Self::Failed,
        }
    }
}

impl From<netdev::SendError> for SendFault {
    #[cold]
    fn from(error: netdev::SendError) -> Self {
        match error {
            netdev::SendError::Down => Self::Down,
            netdev::SendError::Oversize => Self::Oversize,
            netdev::SendError::Full | netdev::SendError::Congested => Self::Full,
            netdev::SendError::Rejected => Self::Rejected,
            _ => Self::Failed,
        }
    }
}

impl From<SendFault> for DropReason {
    #[cold]
    fn from(fault: SendFault) -> Self {
        match fault {
            SendFault::Down => Self::PortDown,
            SendFault::Oversize => Self::Oversize,
            SendFault::Full => Self::EgressFull,
            SendFault::Rejected => Self::EgressRejected,
            SendFault::Failed => Self::EgressFailed,
        }
    }
}

#[cfg(test)]
mod tests;
