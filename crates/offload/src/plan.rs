//! The header changes for each packet of a train, determined once for all of them.

use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{
    GsoType, LongNetHeader, MetadataError, NetHeader, NetHeaderFlags, ip_proto, tcp, udp, write_u16,
};

use crate::checksum::{Place, sum_of_payload};
use crate::fragments::Fragments;
use crate::layers::Layers;
use crate::rewrite::{Network, Position, Tcp, Udp, checked_len};
use crate::tunnel::Tunnel;
use crate::{ChecksumRule, OffloadError, SplitOptions};

/// How a train is segmented.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// End of the train's headers.
    pub(crate) headers_end: usize,
    /// Bytes after the headers of each packet except the last, at least 1; for fragments, after the
    /// headers that each of them has.
    pub(crate) size: u16,
    /// Number of packets.
    pub(crate) count: u32,
    /// Metadata of each packet.
    pub(crate) meta: NetHeader,
    pub(crate) work: Work,
}

/// Kind of change to each packet's headers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Only the checksum is completed.
    Whole(Option<Place>),
    /// The train's headers are repeated.
    Cut(Network, Upper, Option<Tunnel>),
    /// The IP header is repeated.
    Fragments(Fragments),
}

/// The transport header.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Upper {
    Tcp(Tcp),
    Udp(Udp),
}

impl Plan {
    /// For the train of `frame_len` bytes at the start of `headers`. `payload_sum` returns the sum
    /// of the bytes after the headers, given their offset.
    pub(crate) fn new(
        meta: &LongNetHeader,
        options: &SplitOptions,
        headers: &[u8],
        frame_len: usize,
        payload_sum: impl FnOnce(usize) -> Sum,
    ) -> Result<Self, OffloadError> {
        check(meta, frame_len)?;
        let layers = Layers::find(meta, headers)?;
        let headers = &headers[..layers.end];
        if meta.base.gso_type.kind() == GsoType::UDP {
            let sum = payload_sum(layers.end);
            return Self::fragments(&meta.base, options, headers, &layers, frame_len, sum);
        }
        let count = meta.base.wire_packets(frame_len - layers.end);
        let work = if count == 1 && layers.outer.is_none() {
            Work::whole(&meta.base, options, layers.end)?
        } else {
            Work::cut(&meta.base, options, headers, &layers, frame_len)?
        };
        let (size, meta) = (meta.base.gso_size, packet_meta(&meta.base, options));
        Ok(Self { headers_end: layers.end, size, count, meta, work })
    }

    fn fragments(
        meta: &NetHeader,
        options: &SplitOptions,
        headers: &[u8],
        layers: &Layers,
        frame_len: usize,
        sum: Sum,
    ) -> Result<Self, OffloadError> {
        let payload_len = frame_len - layers.end;
        let payload = (sum, payload_len);
        let fragments = Fragments::new(layers, headers, meta.gso_size, payload, options)?;
        let carried = fragments.first_only_len() + payload_len;
        // A datagram has at most 8,192 fragments.
        let count = carried.div_ceil(usize::from(meta.gso_size));
        let (headers_end, size) = (layers.end, meta.gso_size);
        Ok(match u32::try_from(count).unwrap_or(u32::MAX) {
            0 | 1 => {
                let work = Work::whole(meta, options, layers.end)?;
                Self { headers_end, size, count: 1, meta: packet_meta(meta, options), work }
            }
            count => {
                let work = Work::Fragments(fragments);
                Self { headers_end, size, count, meta: NetHeader::PLAIN, work }
            }
        })
    }

    /// The sum of a packet's `payload`, for [`write`](Self::write). Computed before all other
    /// values of the packet: a call in the middle of writing would make the compiler save them.
    #[expect(clippy::inline_always, reason = "see Self::write")]
    #[inline(always)]
    pub(crate) fn sum(&self, payload: [&[u8]; 2]) -> Sum {
        let is_summed = matches!(self.work, Work::Cut(..)) && !self.meta.needs_checksum();
        if is_summed { sum_of_payload(payload) } else { Sum::ZERO }
    }

    /// The same for a middle packet, whose `payload` is in one part.
    #[inline]
    pub(crate) fn sum_of_part(&self, payload: &[u8]) -> Sum {
        if self.meta.needs_checksum() { Sum::ZERO } else { Sum::of(payload) }
    }

    /// Writes the fields of the packet at `position` into `headers`, a copy of the train's. `sum`
    /// is that of its payload.
    #[expect(
        clippy::inline_always,
        reason = "so that what is known of the packet stays in registers"
    )]
    #[inline(always)]
    pub(crate) fn write(
        &self,
        headers: &mut [u8],
        payload: [&[u8]; 2],
        sum: Sum,
        position: Position,
    ) {
        let frame_len = headers.len() + payload[0].len() + payload[1].len();
        if let Work::Cut(..) = self.work {
            self.write_cut(headers, frame_len, sum, position);
        } else {
            self.write_rare(headers, payload, frame_len, position);
        }
    }

    /// As [`Self::write`], for a packet of a segmented train.
    #[expect(clippy::inline_always, reason = "see Self::write")]
    #[inline(always)]
    pub(crate) fn write_cut(
        &self,
        headers: &mut [u8],
        frame_len: usize,
        sum: Sum,
        position: Position,
    ) {
        // 1. TCP: 6 stores (IPv4) or 4 (IPv6).
        // 2. UDP: one store less.
        // 3. A partial checksum: stored over the complete one, which is that of no payload.
        // 4. In a tunnel: up to 5 more stores, and one pass over its headers. These are the same
        //    with a partial checksum inside.
        let Work::Cut(network, upper, tunnel) = &self.work else {
            return;
        };
        network.write(headers, frame_len, position.index);
        match upper {
            Upper::Tcp(tcp) => tcp.write(headers, frame_len, sum, position),
            Upper::Udp(udp) => udp.write(headers, frame_len, sum),
        }
        if self.meta.needs_checksum() {
            upper.write_partial(headers, frame_len);
        }
        if let Some(tunnel) = tunnel {
            tunnel.write(headers, frame_len, position.index, upper.pseudo_header());
        }
    }

    #[cold]
    fn write_rare(
        &self,
        headers: &mut [u8],
        payload: [&[u8]; 2],
        frame_len: usize,
        position: Position,
    ) {
        match &self.work {
            Work::Whole(Some(place)) => place.complete(headers, payload),
            Work::Fragments(fragments) => fragments.stamp(headers, frame_len, position),
            Work::Whole(None) | Work::Cut(..) => {}
        }
    }

    /// The packet at `index`.
    #[inline]
    pub(crate) fn position(&self, index: u32) -> Position {
        Position {
            index,
            offset: index.wrapping_mul(u32::from(self.size)),
            is_last: index + 1 == self.count,
        }
    }
}

impl Work {
    fn whole(
        meta: &NetHeader,
        options: &SplitOptions,
        headers_len: usize,
    ) -> Result<Self, OffloadError> {
        let place = meta.needs_checksum().then(|| Place::new(meta, headers_len)).transpose()?;
        Ok(Self::Whole(place.filter(|_| options.checksum == ChecksumRule::Complete)))
    }

    fn cut(
        meta: &NetHeader,
        options: &SplitOptions,
        headers: &[u8],
        layers: &Layers,
        frame_len: usize,
    ) -> Result<Self, OffloadError> {
        let Layers { outer, ip, .. } = *layers;
        let network = Network::new(headers, &ip, options.id);
        let tunnel = outer.map(|outer| Tunnel::new(headers, &outer, ip.upper_at, options));
        let longest = frame_len.min(headers.len() + usize::from(meta.gso_size));
        let outermost = outer.map_or(ip, |outer| outer.ip);
        if outermost.length(longest) > usize::from(u16::MAX) {
            return Err(OffloadError::SegmentTooLong);
        }
        let upper = Upper::new(meta, headers, layers, &network, frame_len)?;
        Ok(Self::Cut(network, upper, tunnel))
    }
}

impl Upper {
    fn new(
        meta: &NetHeader,
        headers: &[u8],
        layers: &Layers,
        network: &Network,
        frame_len: usize,
    ) -> Result<Self, OffloadError> {
        let at = layers.ip.upper_at;
        if layers.ip.protocol == ip_proto::UDP {
            return Ok(Self::Udp(Udp::new(headers, at)));
        }
        let len = u32::try_from(frame_len - at).map_err(|_| OffloadError::TrainTooLong)?;
        let partial_of_len = meta.needs_checksum().then_some(len);
        let has_ecn = meta.gso_type.has_ecn();
        Ok(Self::Tcp(Tcp::new(headers, at, network, partial_of_len, has_ecn)))
    }

    /// Sum of the pseudo-header without a length.
    fn pseudo_header(&self) -> Sum {
        match self {
            Self::Tcp(tcp) => tcp.pseudo_header(),
            Self::Udp(udp) => udp.pseudo_header(),
        }
    }

    /// Stores the partial checksum of a packet, a frame of `frame_len` bytes.
    fn write_partial(&self, headers: &mut [u8], frame_len: usize) {
        let (at, field) = match self {
            Self::Tcp(tcp) => (tcp.at, tcp::field::CHECKSUM),
            Self::Udp(udp) => (udp.at, udp::field::CHECKSUM),
        };
        let sum = self.pseudo_header().add(checked_len(frame_len - at));
        write_u16(headers, at + field, sum.partial());
    }
}

/// The metadata of each packet of a train that does not become fragments.
fn packet_meta(train: &NetHeader, options: &SplitOptions) -> NetHeader {
    if options.checksum == ChecksumRule::Complete || !train.needs_checksum() {
        return NetHeader::PLAIN;
    }
    let NetHeader { csum_start, csum_offset, .. } = *train;
    NetHeader { flags: NetHeaderFlags::NEEDS_CSUM, csum_start, csum_offset, ..NetHeader::PLAIN }
}

/// Checks that precede parsing of the headers.
fn check(meta: &LongNetHeader, frame_len: usize) -> Result<(), OffloadError> {
    if !meta.base.is_train() {
        return Err(OffloadError::NotATrain);
    }
    if frame_len > TRAIN_LEN_MAX {
        return Err(OffloadError::TrainTooLong);
    }
    if meta.inner_network != 0 {
        return Ok(meta.check(frame_len)?);
    }
    // A short network header flags a tunnel without its position, which the headers must show.
    let gso_type = meta.base.gso_type;
    if gso_type.tunnel() == GsoType::UDP_TUNNEL {
        return Err(MetadataError::Tunnel.into());
    }
    Ok(NetHeader { gso_type: gso_type.inner(), ..meta.base }.check(frame_len)?)
}

/// Maximum length of a train in bytes: twice the maximum of any Linux interface (`GSO_MAX_SIZE` is
/// 512 KiB). Limits the packets of one train.
pub const TRAIN_LEN_MAX: usize = 1 << 20;
