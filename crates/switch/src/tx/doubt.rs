//! What a refused send means, and for how long that is remembered.
//!
//! The kernel's error codes are ambiguous. `EINVAL` for a train may mean that the kernel does not
//! know its kind, or that its metadata is invalid. `ENOBUFS` and `ENOMEM` from a packet socket may
//! mean that a queue is full, or that an interface without a queue could not cut a train. One
//! sender's frames must not harm others that use the port:
//!
//! - A train that Linux refuses for itself, whatever its kind, is never sent whole: see
//!   [`super::takes`].
//! - A kind of train that was refused, while its packets were taken, is cut for [`CUT_TIME`]; then
//!   the kernel is tried again. Until then no packet of a train has a partial checksum: that may be
//!   what was refused. A UDP train may have been refused for the number of its packets, which says
//!   nothing about others.
//! - A train that finds the port congested is checked: one that cannot be cut is dropped.
//! - A frame that has waited at the head of the queue for [`DOUBT_TIME`], with the port congested,
//!   is completed or cut here: its packets can then be refused only for lack of room.
//!
//! [`DOUBT_TIME`]: super::queue::DOUBT_TIME

use std::time::{Duration, Instant};

use tapswitch_datapath::{DropReason, Frame, HEADROOM};
use tapswitch_offload::ChecksumRule;
use tapswitch_wire::GsoType;

use super::queue::Waiting;
use super::takes::is_long_for_some;
use super::{PIECES_MAX, TxPort, segments};
use crate::beyond::Beyond;

impl TxPort {
    /// The drop reason of a frame that found the port congested.
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
        let rule = ChecksumRule::Complete;
        segments(&mut parts, frame, beyond, &mut self.fetched, rule).is_ok()
    }

    /// Notes that `frame`, a train, was refused, and that its packets were taken.
    #[cold]
    pub(super) fn note_refused(&mut self, frame: &Frame<'_>) {
        if !is_long_for_some(frame) {
            self.cut_kind(frame.meta.gso_type);
        }
    }

    /// Cuts trains of this kind for [`CUT_TIME`].
    pub(super) fn cut_kind(&mut self, kind: GsoType) {
        self.takes.remove_train(kind);
        self.cut_until = Some(Instant::now() + CUT_TIME);
    }

    /// Restores the offered offloads when [`CUT_TIME`] is over. Returns whether it did.
    pub(super) fn is_asked_again(&mut self) -> bool {
        if self.cut_until.is_none_or(|until| Instant::now() < until) {
            return false;
        }
        (self.takes, self.cut_until) = (self.offered, None);
        true
    }

    /// Completes or cuts and then sends a frame that has waited for long, if the port is congested
    /// and the frame itself may be the reason.
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
            self.send_cut_complete(&frame, Beyond::NONE)?;
            self.note_refused(&frame);
            return Ok(());
        }
        match meta.needs_checksum() {
            true => self.send_completed(&mut frame, Beyond::NONE),
            false => Err(DropReason::EgressFull),
        }
    }
}

/// One refused write per second is negligible, and so is cutting trains for a second.
const CUT_TIME: Duration = Duration::from_secs(1);
