//! The way out of the datapath, implemented by its caller.

use tapswitch_openflow::{PacketInReason, PortNo, TableId};

use crate::{Claim, DropReason, Frame, PacketInClaim, Sent, Sighting};

/// The ports and the controller, as one worker reaches them.
pub trait Egress {
    /// Sends one frame out of `port`, or keeps it until it can be sent. The port is live, the frame
    /// fits its MTU and envelope, and has its outer tags. `claim` is what it counts for.
    ///
    /// # Errors
    /// Why nothing of the frame was sent. It counts as dropped at the port for this reason.
    fn transmit(
        &mut self,
        port: PortNo,
        frame: &mut Frame<'_>,
        claim: &Claim<'_>,
    ) -> Result<Sent, DropReason>;

    /// As [`Self::transmit`], but sends only the first `snaplen` bytes of each packet that the
    /// frame makes on the wire, with the contents that they would have there; MTU and envelope
    /// apply to these bytes. The number is also in the claim's bucket ([`Claim::snaplen`]), for
    /// frames that were kept.
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

    /// Hands a frame to the controller. An implementation that passes it on later makes it wait by
    /// `claim`; without a claim the frame is already counted.
    ///
    /// # Errors
    /// Why the controller does not get it. Nothing waits then.
    fn packet_in(
        &mut self,
        origin: &PacketInOrigin,
        frame: &Frame<'_>,
        claim: Option<&PacketInClaim<'_>>,
    ) -> Result<Sent, DropReason>;

    /// Reports a station that is not at this port in the MAC table.
    fn learn(&mut self, sighting: Sighting);
}

/// Why a frame goes to the controller, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInOrigin {
    /// Reason of the packet-in.
    pub reason: PacketInReason,
    /// Ingress port.
    pub in_port: PortNo,
    /// Table of the rule that sends it.
    pub table_id: TableId,
    /// Cookie of that rule.
    pub cookie: u64,
    /// Bytes by which a buffered packet would be represented. None is buffered, so this concerns
    /// only controllers that said that the start of a packet suffices.
    pub max_len: u16,
    /// Bytes that the enclosing buckets keep of each packet; `None` for all.
    pub snaplen: Option<u16>,
    /// Metadata, as rules have written it.
    pub metadata: u64,
    /// Tunnel identifier, as rules have set it.
    pub tunnel_id: u64,
}
