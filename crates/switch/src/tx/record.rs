//! Sending to a file: what the port takes waits in memory for the disk, and is settled there.

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
    /// Puts a frame into the buffer of a file, or the packets of it for which there is room.
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

    /// Sends as much of a frame as the one wants on whose behalf it is sent.
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

    /// Tells a file for whom the next packets are.
    pub(super) fn begin_record(&mut self, claim: &Claim<'_>) -> Result<(), DropReason> {
        match &mut self.device {
            TxDevice::File(file) => Ok(file.begin(claim).map_err(SendFault::from)?),
            _ => Ok(()),
        }
    }

    /// The port has all of a frame that has waited.
    pub(super) fn settle(&mut self, receipt: Receipt, at: Millis) {
        match &mut self.device {
            TxDevice::File(file) => file.end_waiting(receipt),
            _ => receipt.delivered(at),
        }
    }

    /// The same of the next packets of such a frame.
    pub(super) fn settle_part(&mut self, receipt: &mut Receipt, packets: u32, at: Millis) {
        match &mut self.device {
            TxDevice::File(file) => file.end_waiting_part(receipt, packets),
            _ => receipt.delivered_part(packets, at),
        }
    }

    /// What becomes of a frame that counts as `traffic`, of which `sent` packets went. Those that a
    /// file has are queued there.
    pub(super) fn loss(&self, traffic: Traffic, sent: u32, reason: DropReason) -> Loss {
        let dropped = u32::try_from(traffic.behind(sent).packets).unwrap_or(u32::MAX);
        Loss { sent: if self.device.is_file() { 0 } else { sent }, dropped, reason }
    }
}
