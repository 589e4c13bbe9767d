//! Tunnels: VXLAN, GRE and ERSPAN.

use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use tapswitch_datapath::Frame;
use tapswitch_tunnel::{self as tunnel, GrePort, VxlanPort};
use tapswitch_vhost::{self as vhost, Part};

use super::{CutPacket, SOCKET_LEN_MIN, SendFault, Transmit, bare_all, flow};
use crate::beyond::Beyond;

/// A GRE or ERSPAN tunnel as one worker sends to it.
#[derive(Clone, Debug)]
pub(crate) struct GreTx {
    pub(crate) port: Arc<GrePort>,
    /// Bytes to which the current packets are truncated; `None` if they are not.
    pub(crate) cut: Option<usize>,
}

impl Transmit for Arc<VxlanPort> {
    #[expect(clippy::inline_always, reason = "see Forwarder::handle")]
    #[inline(always)]
    fn transmit(&mut self, frame: &mut Frame<'_>) -> Result<(), SendFault> {
        Ok(self.send(flow(frame.head()), &[frame.head(), frame.rest()].map(IoSlice::new))?)
    }

    fn transmit_gathered(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
    ) -> Result<(), SendFault> {
        let head = frame.head();
        Ok(self.send_by(flow(head), head, |fd, header, control| {
            send_behind(fd, header, control, frame, beyond)
        })?)
    }

    fn transmit_packets(&mut self, packets: &[CutPacket<'_>]) -> (usize, Result<(), SendFault>) {
        let pieces: [_; tunnel::MAX_PACKETS] = bare_all(packets);
        let flow = packets.first().map_or(0, |first| flow(first.bare_pieces()[0]));
        counted(self.send_packets(flow, &pieces[..packets.len()]), packets.len())
    }

    #[inline]
    fn socket_lens(&self) -> Option<RangeInclusive<usize>> {
        let count = tunnel::SENDERS;
        Some(count * SOCKET_LEN_MIN..=count * tunnel::SEND_BUFFER_LEN)
    }

    fn set_socket_len(&self, len: usize) -> io::Result<()> {
        self.set_send_buffer_len(len)
    }
}

impl Transmit for GreTx {
    #[expect(clippy::inline_always, reason = "see Forwarder::handle")]
    #[inline(always)]
    fn transmit(&mut self, frame: &mut Frame<'_>) -> Result<(), SendFault> {
        Ok(self.port.send(&[frame.head(), frame.rest()].map(IoSlice::new), self.cut)?)
    }

    fn transmit_gathered(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
    ) -> Result<(), SendFault> {
        let write = |fd: BorrowedFd<'_>, header: &[u8], control: &[u8]| {
            send_behind(fd, header, control, frame, beyond)
        };
        Ok(self.port.send_by(frame.head(), frame.len(), self.cut, write)?)
    }

    fn transmit_packets(&mut self, packets: &[CutPacket<'_>]) -> (usize, Result<(), SendFault>) {
        let pieces: [_; tunnel::GRE_MAX_PACKETS] = bare_all(packets);
        let mut lens = [0; tunnel::GRE_MAX_PACKETS];
        lens.iter_mut().zip(packets).for_each(|(len, packet)| *len = packet.len);
        let cut = tunnel::Cut::Each(&lens[..packets.len()]);
        counted(self.port.send_packets(&pieces[..packets.len()], cut), packets.len())
    }

    #[inline]
    fn socket_lens(&self) -> Option<RangeInclusive<usize>> {
        Some(SOCKET_LEN_MIN..=tunnel::SEND_BUFFER_LEN)
    }

    fn set_socket_len(&self, len: usize) -> io::Result<()> {
        self.port.set_send_buffer_len(len)
    }

    fn set_cut(&mut self, cut: Option<usize>) {
        self.cut = cut;
    }
}

/// Sends a frame as one datagram behind the tunnel's header.
fn send_behind(
    fd: BorrowedFd<'_>,
    header: &[u8],
    control: &[u8],
    frame: &Frame<'_>,
    beyond: Beyond<'_>,
) -> rustix::io::Result<usize> {
    let head = [header, frame.head()].into_iter();
    let parts = head.chain(frame.parts()).map(Part::Ours).chain(beyond.parts());
    vhost::send_parts(fd, parts, control)
}

fn counted(
    outcome: Result<(), (usize, tunnel::SendError)>,
    count: usize,
) -> (usize, Result<(), SendFault>) {
    match outcome {
        Ok(()) => (count, Ok(())),
        Err((sent, error)) => (sent, Err(error.into())),
    }
}
