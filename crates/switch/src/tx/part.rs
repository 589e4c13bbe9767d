//! Sending the first bytes of each packet, for buckets with truncated copies.
//!
//! A monitor shall see the first bytes of packets as they are on the wire. So a train is cut into
//! packets first, and checksums are completed over the whole packet before it is truncated. This
//! reads the payload once more, which is cheap compared to a system call per packet. (A port that
//! completed the checksum itself would compute it over the truncated packet.)
//!
//! A frame whose packets are all short enough is sent like any other, trains whole.

use tapswitch_datapath::{DropReason, Frame, HEADROOM};
use tapswitch_offload::{ChecksumRule, complete_checksum};
use tapswitch_vhost::Part;
use tapswitch_wire::{Layout, NetHeader};

use super::TxPort;
use crate::beyond::Beyond;

impl TxPort {
    /// Sends the first `snaplen` bytes of each packet of `frame`, whose remaining bytes are
    /// `beyond`, except the first `done` packets, which were sent before.
    pub(super) fn send_part(
        &mut self,
        frame: &mut Frame<'_>,
        beyond: Beyond<'_>,
        snaplen: usize,
        done: u32,
    ) -> Result<(), DropReason> {
        if done == 0 && frame.packet_len() <= snaplen {
            return self.send(frame, beyond);
        }
        if self.device.is_file() {
            return self.record_part(frame, beyond, snaplen, done);
        }
        self.device.set_cut(Some(snaplen));
        let sent = match frame.meta.is_train() {
            true => self.cut_to(frame, beyond, done, snaplen, ChecksumRule::Complete),
            false => self.send_truncated(frame, beyond, snaplen),
        };
        self.device.set_cut(None);
        sent
    }

    /// A file also records the packets' original lengths.
    fn record_part(
        &mut self,
        frame: &mut Frame<'_>,
        beyond: Beyond<'_>,
        snaplen: usize,
        done: u32,
    ) -> Result<(), DropReason> {
        self.device.set_cut(Some(snaplen));
        let sent = match done {
            0 => self.send(frame, beyond),
            done => self.send_cut(frame, beyond, done),
        };
        self.device.set_cut(None);
        sent
    }

    fn send_truncated(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
        snaplen: usize,
    ) -> Result<(), DropReason> {
        let mut part = std::mem::take(&mut self.part);
        let layout = truncated(frame.layout(), snaplen);
        let sent = match self.fill_part(&mut part, frame, beyond, snaplen) {
            Ok(()) => {
                let mut packet = Frame::new(NetHeader::PLAIN, layout, &mut part, HEADROOM, 0);
                self.device.send(&mut packet, Beyond::NONE).map_err(DropReason::from)
            }
            Err(reason) => Err(reason),
        };
        self.part = part;
        sent
    }

    /// Writes the first bytes of a packet to `part`, behind headroom, with its checksum complete.
    fn fill_part(
        &mut self,
        part: &mut Vec<u8>,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
        snaplen: usize,
    ) -> Result<(), DropReason> {
        part.clear();
        part.resize(HEADROOM, 0);
        part.extend_from_slice(frame.head());
        if frame.meta.needs_checksum() {
            let rest = beyond.rest(frame, &mut self.fetched);
            let mut meta = frame.meta;
            complete_checksum(&mut meta, &mut part[HEADROOM..], rest)
                .map_err(|_| DropReason::CannotSegment)?;
        }
        let end = HEADROOM + snaplen;
        for piece in frame.parts().map(Part::Ours).chain(beyond.parts()) {
            if part.len() >= end {
                break;
            }
            piece.append_to(part);
        }
        part.truncate(end);
        Ok(())
    }
}

/// The layout, limited to layers within the first `snaplen` bytes.
fn truncated(layout: &Layout, snaplen: usize) -> Layout {
    let end = u16::try_from(snaplen).unwrap_or(u16::MAX);
    Layout {
        network: layout.network.min(end),
        transport: layout.transport.filter(|at| *at <= end),
        end: layout.end.min(end),
        ..*layout
    }
}

#[cfg(test)]
mod tests;
