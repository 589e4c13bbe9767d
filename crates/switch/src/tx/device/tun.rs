//! Tun devices, which take IP packets. The Ethernet header of a frame is kept in place, as other
//! ports may need it.

use std::io::IoSlice;

use tapswitch_datapath::Frame;
use tapswitch_vhost::{self as vhost, Part};
use tapswitch_wire::ethernet::HEADER_LEN;

use super::{CutPacket, SendFault, Transmit, until_one_fails};
use crate::beyond::Beyond;
use crate::tun::TunQueue;

impl Transmit for TunQueue {
    fn transmit(&mut self, frame: &mut Frame<'_>) -> Result<(), SendFault> {
        let meta = self.net_header(frame.meta).encode();
        let packet = frame.head().get(HEADER_LEN..).unwrap_or_default();
        let parts = [&meta[..self.net_header_len()], packet, frame.rest()];
        Ok(self.queue.send_vectored(&parts.map(IoSlice::new))?)
    }

    fn transmit_gathered(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
    ) -> Result<(), SendFault> {
        let meta = self.net_header(frame.meta).encode();
        let packet = frame.head().get(HEADER_LEN..).unwrap_or_default();
        let head = [&meta[..self.net_header_len()], packet].into_iter();
        let parts = head.chain(frame.parts()).map(Part::Ours).chain(beyond.parts());
        Ok(self.queue.send_by(|fd| vhost::write_parts(fd, parts))?)
    }

    fn transmit_packets(&mut self, packets: &[CutPacket<'_>]) -> (usize, Result<(), SendFault>) {
        until_one_fails(packets, |packet| {
            let meta = self.net_header(packet.meta).encode();
            let meta = &meta[..self.net_header_len()];
            let [headers, first, second] = packet.bare_pieces();
            let headers = headers.get(HEADER_LEN..).unwrap_or_default();
            let parts = [meta, headers, first, second];
            Ok(self.queue.send_vectored(&parts.map(IoSlice::new))?)
        })
    }
}
