//! What it means when the kernel refuses a frame, and for how long that is believed.
//!
//! It has few words for it. `EINVAL` for a train may be due to its kind, which the kernel does not
//! know, or to what its sender says of it. `ENOBUFS` and `ENOMEM` of a packet socket may be due to
//! a queue that is full, or to a train that an interface without a queue was to cut and could not.
//! Whoever sends such frames must not harm the others that use the port:
//!
//! - A kind that was refused while the packets of the train were taken is cut for [`CUT_TIME`];
//!   then the kernel is asked again.
//! - A train that finds the port congested is looked at: one that nobody can cut is dropped.
//! - A frame that has waited at the head of the queue for [`DOUBT_TIME`], with the port congested,
//!   is finished here: its packets are refused for a lack of room alone.
//!
//! [`DOUBT_TIME`]: super::queue::DOUBT_TIME

use std::time::{Duration, Instant};

use tapswitch_datapath::{DropReason, Frame, HEADROOM};
use tapswitch_wire::GsoType;

use super::queue::Waiting;
use super::{PIECES_MAX, TxPort, segments};
use crate::beyond::Beyond;

impl TxPort {
    /// Why a frame that found the port congested was not sent.
    #[cold]
    pub(super) fn congested(&mut self, frame: &Frame<'_>, beyond: Beyond<'_>) -> DropReason {
        if frame.meta.is_train() && !self.can_cut(frame, beyond) {
            return DropReason::CannotSegment;
        }
        self.is_in_doubt = true;
        DropReason::EgressFull
    }

    fn can_cut(&mut self, frame: &Frame<'_>, beyond: Beyond<'_>) -> bool {
        let mut parts = [&[][..]; PIECES_MAX];
        segments(&mut parts, frame, beyond, &mut self.fetched).is_ok()
    }

    /// Cuts trains of this kind from now on, for a while.
    pub(super) fn cut_kind(&mut self, kind: GsoType) {
        self.takes.remove_train(kind);
        self.cut_until = Some(Instant::now() + CUT_TIME);
    }

    /// Whether the port may be asked again for what it has refused. Then it takes what it was said
    /// to take.
    pub(super) fn is_asked_again(&mut self) -> bool {
        if self.cut_until.is_none_or(|until| Instant::now() < until) {
            return false;
        }
        (self.takes, self.cut_until) = (self.offered, None);
        true
    }

    /// Finishes and sends a frame that has waited for long, if the port is congested and it may be
    /// the frame's fault.
    #[cold]
    pub(super) fn send_in_doubt(
        &mut self,
        bytes: &mut [u8],
        waiting: &Waiting,
    ) -> Result<(), DropReason> {
        let Waiting { meta, layout, done, snaplen, .. } = *waiting;
        let mut frame = Frame::new(meta, layout, bytes, HEADROOM, 0);
        let is_whole = done == 0 && snaplen.is_none_or(|snaplen| frame.packet_len() <= snaplen);
        if !std::mem::take(&mut self.is_in_doubt) || !is_whole {
            return Err(DropReason::EgressFull);
        }
        if meta.is_train() {
            self.send_cut(&frame, Beyond::NONE, 0)?;
            self.cut_kind(meta.gso_type);
            return Ok(());
        }
        match meta.needs_checksum() {
            true => self.send_completed(&mut frame, Beyond::NONE),
            false => Err(DropReason::EgressFull),
        }
    }
}

/// One refused write in so long is not felt, nor are trains that are cut for so long.
const CUT_TIME: Duration = Duration::from_secs(1);
