//! What the caller may choose about cutting a train.

/// Choices that the metadata of a train does not make. The default is what Linux's software
/// segmentation does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SplitOptions {
    /// Identification of the packets' IPv4 headers; in a tunnel, of the inner ones.
    pub id: IdRule,
    /// Identification of the outer IPv4 headers of a train in a tunnel.
    pub outer_id: IdRule,
    /// Mixed into the identification of IPv6 fragments (UFO). Two datagrams that look alike and are
    /// under way at the same time must not have the same (RFC 8200 §4.5), so count up; start
    /// somewhere that others cannot foresee (RFC 7739).
    pub fragment_seed: u32,
}

/// What becomes of the identification of an IPv4 header from packet to packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdRule {
    /// One more for each packet.
    #[default]
    Increment,
    /// The same in all packets where "don't fragment" is set, as a sender does whose packets need
    /// none (RFC 6864 §4.1; Linux's `TSO_MANGLEID` and trains made of such packets). Without that
    /// flag it goes up nevertheless: fragments of two packets must not be taken for those of one.
    Fixed,
}
