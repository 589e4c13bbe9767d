//! Packet sockets on existing interfaces.

use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::sync::Arc;

use tapswitch_datapath::Frame;
use tapswitch_netdev::{self as netdev, PacketPort};
use tapswitch_vhost::{self as vhost, Part};
use tapswitch_wire::NetHeader;

use super::{CutPacket, SOCKET_LEN_MIN, SendFault, Transmit, bare_all};
use crate::beyond::Beyond;

impl Transmit for Arc<PacketPort> {
    #[expect(clippy::inline_always, reason = "see Forwarder::handle")]
    #[inline(always)]
    fn transmit(&mut self, frame: &mut Frame<'_>) -> Result<(), SendFault> {
        Ok(self.send(&frame.meta, &[frame.head(), frame.rest()].map(IoSlice::new))?)
    }

    fn transmit_gathered(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
    ) -> Result<(), SendFault> {
        let meta = frame.meta.encode();
        let head = [&meta[..netdev::SEND_HEADER_LEN], frame.head()].into_iter();
        let parts = head.chain(frame.parts()).map(Part::Ours).chain(beyond.parts());
        Ok(self.send_by(|fd| vhost::write_parts(fd, parts))?)
    }

    fn transmit_packets(&mut self, packets: &[CutPacket<'_>]) -> (usize, Result<(), SendFault>) {
        let pieces: [_; netdev::MAX_PACKETS] = bare_all(packets);
        // They are of one train, so their metadata is the same.
        let meta = packets.first().map_or(NetHeader::PLAIN, |first| first.meta);
        let (sent, outcome) = self.send_packets(&meta, &pieces[..packets.len()]);
        (sent, outcome.map_err(SendFault::from))
    }

    #[inline]
    fn socket_lens(&self) -> Option<RangeInclusive<usize>> {
        Some(SOCKET_LEN_MIN..=netdev::SEND_BUFFER_LEN)
    }

    fn set_socket_len(&self, len: usize) -> io::Result<()> {
        self.set_send_buffer_len(len)
    }
}
