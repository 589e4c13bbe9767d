//! The kinds of ports as one worker sends to them: what each does in its own way is [`Transmit`],
//! and [`TxDevice`] is any of them.
//!
//! A worker's ports are of a few kinds that are all known, and each frame asks for one: so a match
//! finds the kind, and what it does is compiled into the place that sends.

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

/// What is behind a port.
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

/// How frames are sent by one kind of port. None of these ever blocks.
pub(super) trait Transmit {
    /// Sends a frame all of which is its own.
    fn transmit(&mut self, frame: &mut Frame<'_>) -> Result<(), SendFault>;

    /// Sends a frame whose payload lies in several places, or in a guest's memory. The pieces are
    /// large, or there are few enough bytes for their number not to matter.
    fn transmit_gathered(&mut self, frame: &Frame<'_>, beyond: Beyond<'_>)
    -> Result<(), SendFault>;

    /// Sends what a train was cut into, until one fails. Returns how many were sent, and why no
    /// more.
    fn transmit_packets(&mut self, packets: &[CutPacket<'_>]) -> (usize, Result<(), SendFault>);

    /// How long the buffers may be, all together, of the sockets that this sends by. None where
    /// there are no such sockets.
    #[inline]
    fn socket_lens(&self) -> Option<RangeInclusive<usize>> {
        None
    }

    /// Sets that.
    fn set_socket_len(&self, _len: usize) -> io::Result<()> {
        Ok(())
    }

    /// Sets what the packets under way are cut to, for who tells the other end; none for all.
    fn set_cut(&mut self, _cut: Option<usize>) {}
}

/// Does the same with whatever kind it is.
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
        // What refuses it keeps the length that it has, which does no harm.
        let _ = of_any_kind!(self, port => Transmit::set_socket_len(port, len));
    }

    pub(super) fn set_cut(&mut self, cut: Option<usize>) {
        of_any_kind!(self, port => Transmit::set_cut(port, cut));
    }

    /// Rings or sockets among which frames are shared out by their flows: of a guest's, those that
    /// are held.
    pub(super) fn ring_count(&self) -> usize {
        match self {
            Self::Guest(guest) => guest.ring_count(),
            Self::Vxlan(_) => tapswitch_tunnel::SENDERS,
            _ => 1,
        }
    }

    /// Which of all of the port the one at this place among those is.
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

    /// True when there is more to do than to send: the port is a guest whose ring is not held, a
    /// file, or a tun device, which looks at frames first.
    #[inline]
    pub(super) fn wants_more(&self) -> bool {
        match self {
            Self::Guest(guest) => !guest.is_held(),
            Self::File(_) | Self::Tun(_) => true,
            _ => false,
        }
    }
}

/// The pieces of each packet, behind the network header; empty ones behind the last.
fn bare_all<'a, const COUNT: usize>(packets: &[CutPacket<'a>]) -> [[IoSlice<'a>; 3]; COUNT] {
    let mut pieces = [[IoSlice::new(&[]); 3]; COUNT];
    for (pieces, packet) in pieces.iter_mut().zip(packets) {
        *pieces = packet.bare();
    }
    pieces
}

/// Sends packets one by one. Returns how many were sent, and why no more.
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

/// The flow that a frame belongs to, alike for all that are to stay in order.
pub(super) fn flow(headers: &[u8]) -> u32 {
    parse(headers).map_or(0, |parsed| parsed.key.symmetric_hash())
}

/// A socket takes a train of any length as long as less than this is in it, twice, as the kernel
/// doubles it. So there is always one under way, and the next one comes before that has left.
const SOCKET_LEN_MIN: usize = 16 * 1024;
