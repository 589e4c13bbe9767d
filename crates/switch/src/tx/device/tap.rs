//! Tap devices, with and without network headers.

use std::io::IoSlice;
use std::sync::Arc;

use tapswitch_datapath::Frame;
use tapswitch_tap::Queue;
use tapswitch_vhost::{self as vhost, Part};
use tapswitch_wire::NET_HEADER_LEN;

use super::{CutPacket, SendFault, Transmit, until_one_fails};
use crate::beyond::Beyond;

/// A queue of a device without network headers: only the frame is written.
#[derive(Clone, Debug)]
pub(crate) struct BareTap(pub(crate) Arc<Queue>);

impl Transmit for Arc<Queue> {
    #[expect(clippy::inline_always, reason = "see Forwarder::handle")]
    #[inline(always)]
    fn transmit(&mut self, frame: &mut Frame<'_>) -> Result<(), SendFault> {
        let meta = frame.meta.encode();
        let rest = frame.rest();
        let Some(head) = frame.head_with_prefix(NET_HEADER_LEN) else {
            return send_scattered(self, &meta, frame);
        };
        head[..NET_HEADER_LEN].copy_from_slice(&meta);
        if rest.is_empty() {
            return Ok(self.send(head)?);
        }
        Ok(self.send_vectored(&[IoSlice::new(head), IoSlice::new(rest)])?)
    }

    fn transmit_gathered(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
    ) -> Result<(), SendFault> {
        send_gathered(self, &frame.meta.encode(), frame, beyond)
    }

    fn transmit_packets(&mut self, packets: &[CutPacket<'_>]) -> (usize, Result<(), SendFault>) {
        until_one_fails(packets, |packet| {
            Ok(self.send_vectored(&packet.with_header()[..packet.count()])?)
        })
    }
}

impl Transmit for BareTap {
    fn transmit(&mut self, frame: &mut Frame<'_>) -> Result<(), SendFault> {
        if frame.rest().is_empty() {
            return Ok(self.0.send(frame.head())?);
        }
        Ok(self.0.send_vectored(&[frame.head(), frame.rest()].map(IoSlice::new))?)
    }

    fn transmit_gathered(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
    ) -> Result<(), SendFault> {
        send_gathered(&self.0, &[], frame, beyond)
    }

    fn transmit_packets(&mut self, packets: &[CutPacket<'_>]) -> (usize, Result<(), SendFault>) {
        until_one_fails(packets, |packet| {
            Ok(self.0.send_vectored(&packet.bare()[..packet.count()])?)
        })
    }
}

/// For a frame whose tags have used up the headroom.
#[cold]
fn send_scattered(
    queue: &Queue,
    meta: &[u8; NET_HEADER_LEN],
    frame: &Frame<'_>,
) -> Result<(), SendFault> {
    Ok(queue.send_vectored(&[&meta[..], frame.head(), frame.rest()].map(IoSlice::new))?)
}

fn send_gathered(
    queue: &Queue,
    header: &[u8],
    frame: &Frame<'_>,
    beyond: Beyond<'_>,
) -> Result<(), SendFault> {
    let head = [header, frame.head()].into_iter();
    let parts = head.chain(frame.parts()).map(Part::Ours).chain(beyond.parts());
    Ok(queue.send_by(|fd| vhost::write_parts(fd, parts))?)
}
