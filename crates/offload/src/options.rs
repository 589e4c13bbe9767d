//! Options for segmentation.

/// Options that a train's metadata does not determine. The default is that of Linux's software
/// segmentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitOptions {
    /// Identification of the packets' IPv4 headers; in a tunnel, of the inner ones.
    pub id: IdRule,
    /// Identification of the outer IPv4 headers of a train in a tunnel.
    pub outer_id: IdRule,
    /// Mixed into the identification of IPv6 fragments (UFO). Two similar datagrams in flight at
    /// the same time must not have the same one (RFC 8200 §4.5), so increment it for each, from an
    /// unpredictable start (RFC 7739).
    pub fragment_seed: u32,
    /// What becomes of the train's partial checksum.
    pub checksum: ChecksumRule,
}

/// How the IPv4 identification changes from packet to packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdRule {
    /// Incremented for each packet.
    #[default]
    Increment,
    /// Equal in all packets with "don't fragment", as from a sender whose packets need none (RFC
    /// 6864 §4.1; Linux's `TSO_MANGLEID` and trains made of such packets). Without that flag it is
    /// incremented nevertheless: fragments of two packets must not be reassembled into one.
    Fixed,
}

/// Whether the TCP or UDP checksums of the packets are complete; in a tunnel, the inner ones. All
/// other checksums are always complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChecksumRule {
    /// Complete in all packets. This reads the payload.
    #[default]
    Complete,
    /// Partial if the train's own checksum is: each packet has the sum of its own pseudo-header,
    /// and metadata that says so ([`Segments::net_header`](crate::Segments::net_header)). A train
    /// with no partial checksum becomes complete packets, and so do IP fragments, which share one
    /// checksum.
    Partial,
}
