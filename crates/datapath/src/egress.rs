//! The ways out of the datapath, as whoever runs it provides them.

use tapswitch_openflow::{PacketInReason, PortNo, TableId};

use crate::{Claim, DropReason, Frame, PacketInClaim, Sent, Sighting};

/// The ports and the controller, as one worker reaches them.
pub trait Egress {
    /// Sends one frame out of `port`, which is live and whose MTU and envelope it fits, or keeps it
    /// until it can be sent. Its tags are those that it has outside. `claim` says for whom.
    ///
    /// # Errors
    /// Why nothing of the frame went out. It counts as dropped there for this reason.
    fn transmit(
        &mut self,
        port: PortNo,
        frame: &mut Frame<'_>,
        claim: &Claim<'_>,
    ) -> Result<Sent, DropReason>;

    /// As [`Self::transmit`], but of each packet that the frame makes on the wire the first
    /// `snaplen` bytes, as they would be there; what fits is judged by these. The claim's bucket
    /// says so ([`Claim::snaplen`]), to be asked again for a frame that was kept.
    ///
    /// # Errors
    /// As for [`Self::transmit`].
    fn transmit_part(
        &mut self,
        port: PortNo,
        frame: &mut Frame<'_>,
        claim: &Claim<'_>,
        snaplen: usize,
    ) -> Result<Sent, DropReason>;

    /// Hands a frame to the controller. Whoever takes it, to be carried on by others, lets it wait
    /// by `claim`; without one it is counted already.
    ///
    /// # Errors
    /// Why the controller does not get it. Then nothing waits.
    fn packet_in(
        &mut self,
        origin: &PacketInOrigin,
        frame: &Frame<'_>,
        claim: Option<&PacketInClaim<'_>>,
    ) -> Result<Sent, DropReason>;

    /// Notes a station that the MAC table does not know there.
    fn learn(&mut self, sighting: Sighting);
}

/// Why and where a frame goes to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInOrigin {
    /// Why.
    pub reason: PacketInReason,
    /// Port where the frame came in.
    pub in_port: PortNo,
    /// Table whose rule sends it.
    pub table_id: TableId,
    /// Cookie of that rule.
    pub cookie: u64,
    /// Bytes of the frame that the controller wants.
    pub max_len: u16,
    /// What rules have noted about it.
    pub metadata: u64,
    /// Its tunnel, as rules have set it.
    pub tunnel_id: u64,
}
