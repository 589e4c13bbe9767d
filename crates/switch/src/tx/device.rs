//! The kinds of ports as one worker sends to them: [`Transmit`] is the interface, and [`TxDevice`]
//! is any of them.
//!
//! Every frame selects among a few known kinds of ports, so dispatch is a match, and the code of
//! each kind is inlined into the send path.

mod packet;
mod tap;
mod tun;
mod tunnel;

use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::sync::Arc;

use tapswitch_datapath::Frame;
use tapswitch_netdev::PacketPort;
use tapswitch_tap::Queue;
use tapswitch_tunnel::VxlanPort;
use tapswitch_wire::parse;

use super::fault::SendFault;
use super::{CutPacket, GuestTx};
use crate::beyond::Beyond;
use crate::recorder::RecorderTx;
use crate::tun::TunQueue;

pub(crate) use tap::BareTap;
pub(crate) use tunnel::GreTx;

/// The device behind a port.
#[derive(Clone, Debug)]
pub(crate) enum TxDevice {
    Tap(Arc<Queue>),
    BareTap(BareTap),
    Netdev(Arc<PacketPort>),
    Tun(TunQueue),
    Guest(GuestTx),
    Vxlan(Arc<VxlanPort>),
    Gre(GreTx),
    File(RecorderTx),
}

/// How one kind of port sends frames. No method blocks.
pub(super) trait Transmit {
    /// Sends a frame that is entirely in our own memory.
    fn transmit(&mut self, frame: &mut Frame<'_>) -> Result<(), SendFault>;

    /// Sends a frame whose payload is in several places, or in a guest's memory. The pieces are
    /// large, or the frame is so short that their number does not matter.
    fn transmit_gathered(&mut self, frame: &Frame<'_>, beyond: Beyond<'_>)
    -> Result<(), SendFault>;

    /// Sends the packets of a cut train until one fails. Returns how many were sent, and the error.
    fn transmit_packets(&mut self, packets: &[CutPacket<'_>]) -> (usize, Result<(), SendFault>);

    /// The range for the total buffer length of the port's sockets; `None` if it has no such
    /// sockets.
    #[inline]
    fn socket_lens(&self) -> Option<RangeInclusive<usize>> {
        None
    }

    /// Sets the sockets' total buffer length.
    fn set_socket_len(&self, _len: usize) -> io::Result<()> {
        Ok(())
    }

    /// Sets the length to which the current packets are truncated, for devices that tell the
    /// receiver; `None` if they are not.
    fn set_cut(&mut self, _cut: Option<usize>) {}
}

/// Evaluates the same expression for every kind.
macro_rules! of_any_kind {
    ($device:expr, $port:ident => $call:expr) => {
        match $device {
            TxDevice::Tap($port) => $call,
            TxDevice::BareTap($port) => $call,
            TxDevice::Netdev($port) => $call,
            TxDevice::Tun($port) => $call,
            TxDevice::Guest($port) => $call,
            TxDevice::Vxlan($port) => $call,
            TxDevice::Gre($port) => $call,
            TxDevice::File($port) => $call,
        }
    };
}

impl TxDevice {
    #[expect(clippy::inline_always, reason = "see Forwarder::handle")]
    #[inline(always)]
    pub(super) fn send(
        &mut self,
        frame: &mut Frame<'_>,
        beyond: Beyond<'_>,
    ) -> Result<(), SendFault> {
        if frame.behind_len() > 0 {
            return self.send_gathered(frame, beyond);
        }
        of_any_kind!(self, port => port.transmit(frame))
    }

    #[inline(never)]
    fn send_gathered(&mut self, frame: &Frame<'_>, beyond: Beyond<'_>) -> Result<(), SendFault> {
        of_any_kind!(self, port => port.transmit_gathered(frame, beyond))
    }

    pub(super) fn send_packets(
        &mut self,
        packets: &[CutPacket<'_>],
    ) -> (usize, Result<(), SendFault>) {
        of_any_kind!(self, port => port.transmit_packets(packets))
    }

    #[inline]
    pub(super) fn socket_lens(&self) -> Option<RangeInclusive<usize>> {
        of_any_kind!(self, port => port.socket_lens())
    }

    pub(super) fn set_socket_len(&self, len: usize) {
        // If it fails, the socket keeps its length, which does no harm.
        let _ = of_any_kind!(self, port => Transmit::set_socket_len(port, len));
    }

    pub(super) fn set_cut(&mut self, cut: Option<usize>) {
        of_any_kind!(self, port => Transmit::set_cut(port, cut));
    }

    /// Number of rings or sockets among which flows are distributed; for a guest, those that are
    /// held.
    pub(super) fn ring_count(&self) -> usize {
        match self {
            Self::Guest(guest) => guest.ring_count(),
            Self::Vxlan(_) => tapswitch_tunnel::SENDERS,
            _ => 1,
        }
    }

    /// The index, among all rings or sockets of the port, of the one at `place` among those.
    pub(super) fn ring_at(&self, place: usize) -> usize {
        match self {
            Self::Guest(guest) => guest.pair_at(place),
            Self::Vxlan(_) => place,
            _ => 0,
        }
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// True if sending needs preparation: a guest whose ring is not held, a file, or a tun device,
    /// which checks frames first.
    #[inline]
    pub(super) fn wants_more(&self) -> bool {
        match self {
            Self::Guest(guest) => !guest.is_held(),
            Self::File(_) | Self::Tun(_) => true,
            _ => false,
        }
    }
}

/// The pieces of each packet without the network header; the rest of the array is empty.
fn bare_all<'a, const COUNT: usize>(packets: &[CutPacket<'a>]) -> [[IoSlice<'a>; 3]; COUNT] {
    let mut pieces = [[IoSlice::new(&[]); 3]; COUNT];
    for (pieces, packet) in pieces.iter_mut().zip(packets) {
        *pieces = packet.bare();
    }
    pieces
}

/// Sends packets one by one. Returns how many were sent, and the error.
pub(super) fn until_one_fails(
    packets: &[CutPacket<'_>],
    mut send: impl FnMut(&CutPacket<'_>) -> Result<(), SendFault>,
) -> (usize, Result<(), SendFault>) {
    for (sent, packet) in packets.iter().enumerate() {
        if let Err(fault) = send(packet) {
            return (sent, Err(fault));
        }
    }
    (packets.len(), Ok(()))
}

/// The flow hash of a frame: equal for all frames that must stay in order.
pub(super) fn flow(headers: &[u8]) -> u32 {
    parse(headers).map_or(0, |parsed| parsed.key.symmetric_hash())
}

/// A socket takes a train of any length while it holds less than this, doubled by the kernel. So a
/// train is always in flight, and the next one is added before that has left.
const SOCKET_LEN_MIN: usize = 16 * 1024;
