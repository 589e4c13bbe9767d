//! Sending to a file: frames that the port takes wait in memory for the disk, and are settled
//! there.

use tapswitch_datapath::{Claim, DropReason, Frame, Loss, Millis, Receipt, Traffic};

use super::device::{Transmit, until_one_fails};
use super::{CutPacket, SendFault, TxDevice, TxPort};
use crate::beyond::Beyond;
use crate::recorder::RecorderTx;

impl Transmit for RecorderTx {
    fn transmit(&mut self, frame: &mut Frame<'_>) -> Result<(), SendFault> {
        Ok(self.send(frame, Beyond::NONE)?)
    }

    fn transmit_gathered(
        &mut self,
        frame: &Frame<'_>,
        beyond: Beyond<'_>,
    ) -> Result<(), SendFault> {
        Ok(self.send(frame, beyond)?)
    }

    fn transmit_packets(&mut self, packets: &[CutPacket<'_>]) -> (usize, Result<(), SendFault>) {
        until_one_fails(packets, |packet| Ok(self.send_pieces(packet.bare_pieces())?))
    }

    fn set_cut(&mut self, cut: Option<usize>) {
        Self::set_cut(self, cut);
    }
}

impl TxPort {
    /// Puts a frame into a file's buffer, or as many of its packets as there is room for.
    pub(super) fn record(
        &mut self,
        frame: &mut Frame<'_>,
        beyond: Beyond<'_>,
        claim: &Claim<'_>,
    ) -> Result<(), DropReason> {
        self.begin_record(claim)?;
        self.send_claimed(frame, beyond, claim)?;
        if let TxDevice::File(file) = &mut self.device {
            file.end(claim.traffic(frame));
        }
        Ok(())
    }

    /// Sends as many bytes of a frame as its claim asks for.
    pub(super) fn send_claimed(
        &mut self,
        frame: &mut Frame<'_>,
        beyond: Beyond<'_>,
        claim: &Claim<'_>,
    ) -> Result<(), DropReason> {
        match claim.snaplen() {
            Some(snaplen) => self.send_part(frame, beyond, snaplen, 0),
            None => self.send(frame, beyond),
        }
    }

    /// Sets the claim of the next packets in a file's buffer.
    pub(super) fn begin_record(&mut self, claim: &Claim<'_>) -> Result<(), DropReason> {
        match &mut self.device {
            TxDevice::File(file) => Ok(file.begin(claim).map_err(SendFault::from)?),
            _ => Ok(()),
        }
    }

    /// Settles a queued frame that the port has taken completely.
    pub(super) fn settle(&mut self, receipt: Receipt, at: Millis) {
        match &mut self.device {
            TxDevice::File(file) => file.end_waiting(receipt),
            _ => receipt.delivered(at),
        }
    }

    /// Settles the next `packets` of such a frame.
    pub(super) fn settle_part(&mut self, receipt: &mut Receipt, packets: u32, at: Millis) {
        match &mut self.device {
            TxDevice::File(file) => file.end_waiting_part(receipt, packets),
            _ => receipt.delivered_part(packets, at),
        }
    }

    /// The loss of a frame that counts as `traffic`, of which `sent` packets were sent. Packets in
    /// a file's buffer are still queued, and not counted as sent.
    pub(super) fn loss(&self, traffic: Traffic, sent: u32, reason: DropReason) -> Loss {
        let dropped = u32::try_from(traffic.behind(sent).packets).unwrap_or(u32::MAX);
        Loss { sent: if self.device.is_file() { 0 } else { sent }, dropped, reason }
    }
}
