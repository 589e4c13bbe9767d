//! Why a frame cannot be given to a port without offloads.

use tapswitch_wire::MetadataError;

/// Why a train cannot be cut or a checksum not completed. The frame's sender is at fault, except
/// for [`Train`](Self::Train), [`NotATrain`](Self::NotATrain), [`Scattered`](Self::Scattered) and
/// [`Headroom`](Self::Headroom), which are the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OffloadError {
    /// The metadata contradicts itself or the frame's length.
    #[error("invalid metadata: {0}; drop the frame")]
    Metadata(#[from] MetadataError),
    /// The checksum field, or the start of what it sums, does not lie in the headers.
    #[error("csum_start or csum_offset points beyond the headers; drop the frame")]
    ChecksumOutsideHeaders,
    /// The checksum is not the one of the TCP or UDP header that the frame has.
    #[error("csum_start or csum_offset does not point at the TCP or UDP checksum; drop the train")]
    ChecksumPlace,
    /// A UDP train, or one in a tunnel, must come with a partial checksum
    /// (virtio 1.2 §5.1.6.2.1).
    #[error("a UDP or tunnelled train without a partial checksum; drop the train")]
    ChecksumMissing,
    /// The headers end before the TCP or UDP header does, or are no headers at all.
    #[error("the headers end before the end of the TCP or UDP header; drop the train")]
    Headers,
    /// `gso_type` names another protocol than the headers do.
    #[error("gso_type does not match the protocol of the headers; drop the train")]
    Protocol,
    /// A train that is a fragment of an IP packet.
    #[error("the IP header says that the train is a fragment; drop the train")]
    Fragment,
    /// A kind of train that is not cut here.
    #[error("{0} cannot be cut; have the sender turn that offload off")]
    Unsupported(&'static str),
    /// `gso_size` is so large that the length field of IP could not hold a packet's length.
    #[error("gso_size makes packets longer than IP allows; drop the train")]
    SegmentTooLong,
    /// A datagram to be cut into fragments is longer than any that IP can put together again.
    #[error("the datagram is longer than IP allows; drop it")]
    DatagramTooLong,
    /// `gso_size` of a datagram to be cut into fragments is no multiple of 8, the unit in which IP
    /// counts, or does not hold the headers that only the first fragment has.
    #[error("gso_size is not a valid fragment length; drop the datagram")]
    FragmentSize,
    /// More bytes than any sender puts into a train.
    #[error("the train is longer than 1 MiB; drop it")]
    TrainTooLong,
    /// A packet's payload lies in more than two parts.
    #[error("the payload of a packet is in more than two parts; join them first")]
    Scattered,
    /// To be cut in place, the frame needs bytes in front of it for a fragment header.
    #[error("no room in front of the frame for a fragment header; leave 8 bytes")]
    Headroom,
    /// A frame that is not a train was to be cut.
    #[error("the frame is not a train; complete its checksum instead")]
    NotATrain,
    /// A train was to get one checksum over all its packets.
    #[error("a train needs a checksum per packet; cut it instead")]
    Train,
}
