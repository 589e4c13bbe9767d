//! Errors of frames that cannot be prepared for a port without offloads.

use tapswitch_wire::MetadataError;

/// Error of segmentation or of completing a checksum. The frame's sender is at fault, except for
/// [`Train`](Self::Train), [`NotATrain`](Self::NotATrain), [`Scattered`](Self::Scattered) and
/// [`Headroom`](Self::Headroom), which are errors of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OffloadError {
    /// The metadata contradicts itself or the frame's length.
    #[error("invalid metadata: {0}; drop the frame")]
    Metadata(#[from] MetadataError),
    /// The checksum field, or the start of the sum, is not within the headers.
    #[error("csum_start or csum_offset points beyond the headers; drop the frame")]
    ChecksumOutsideHeaders,
    /// The checksum is not that of the frame's TCP or UDP header.
    #[error("csum_start or csum_offset does not point at the TCP or UDP checksum; drop the train")]
    ChecksumPlace,
    /// A UDP train, or one in a tunnel, requires a partial checksum (virtio 1.2 §5.1.6.2.1).
    #[error("a UDP or tunnelled train without a partial checksum; drop the train")]
    ChecksumMissing,
    /// The headers end before the end of the TCP or UDP header, or are invalid.
    #[error("the headers end before the end of the TCP or UDP header; drop the train")]
    Headers,
    /// `gso_type` and the headers disagree about the protocol.
    #[error("gso_type does not match the protocol of the headers; drop the train")]
    Protocol,
    /// A train that is a fragment of an IP packet.
    #[error("the IP header says that the train is a fragment; drop the train")]
    Fragment,
    /// An unsupported kind of train.
    #[error("{0} cannot be cut; have the sender turn that offload off")]
    Unsupported(&'static str),
    /// With this `gso_size`, a packet's length exceeds the length field of IP.
    #[error("gso_size makes packets longer than IP allows; drop the train")]
    SegmentTooLong,
    /// A datagram to be fragmented is longer than IP can reassemble.
    #[error("the datagram is longer than IP allows; drop it")]
    DatagramTooLong,
    /// `gso_size` of a datagram to be fragmented is not a multiple of 8, the unit of IP's offsets,
    /// or is too small for the headers that only the first fragment has.
    #[error("gso_size is not a valid fragment length; drop the datagram")]
    FragmentSize,
    /// More bytes than any sender puts into a train.
    #[error("the train is longer than 1 MiB; drop it")]
    TrainTooLong,
    /// A packet's payload is in more than two parts.
    #[error("the payload of a packet is in more than two parts; join them first")]
    Scattered,
    /// Segmentation in place needs bytes before the frame for a fragment header.
    #[error("no room in front of the frame for a fragment header; leave 8 bytes")]
    Headroom,
    /// A frame to be segmented is not a train.
    #[error("the frame is not a train; complete its checksum instead")]
    NotATrain,
    /// A train has no single checksum.
    #[error("a train needs a checksum per packet; cut it instead")]
    Train,
}
