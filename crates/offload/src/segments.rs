//! Cutting a train into wire packets.
//!
//! What changes from packet to packet, after Linux's software segmentation:
//!
//! | field | value |
//! |---|---|
//! | lengths in IPv4, IPv6 and UDP | of this packet |
//! | IPv4 identification | one more for each packet, "don't fragment" or not |
//! | TCP sequence number | of the packet's first byte |
//! | FIN, PSH | on the last packet only |
//! | CWR | on the first packet only, ECN bit or not (RFC 3168 §6.1.2) |
//! | checksums | complete |
//!
//! Everything else is repeated: tags, IP options, extension headers, TCP options.
//!
//! **Lengths that lie.** The frame's bytes decide, as in Linux: everything behind the headers is
//! payload, whatever the IP and UDP lengths say. (The UDP length is taken out of the partial
//! checksum again, where its sender put it.) A train shorter than Ethernet's minimum would thus
//! have its padding cut along; no sender makes one. A train that fits one packet is passed on as
//! it is, but for the checksum, so there a padded frame stays what it was.

use tapswitch_wire::{
    EtherType, GsoType, NetHeader, Parsed, ethernet, ip_proto, ipv4, ipv6, parse, read_u16, tcp,
    udp,
};

use crate::OffloadError;
use crate::checksum::Place;
use crate::rewrite::{Network, Position, Tcp, Udp};

/// The packets of a train, one after the other. Each is as [`NetHeader::PLAIN`] says: nothing is
/// left undone.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    /// Headers of the train, Ethernet through TCP or UDP.
    headers: &'a [u8],
    /// Payload that no packet has taken yet; the first part is empty only when both are.
    rest: [&'a [u8]; 2],
    /// Payload bytes of each packet but the last, at least 1.
    size: u16,
    /// Packets given out.
    index: u32,
    /// Packets still to come.
    remaining: u32,
    work: Work,
}

impl<'a> Segments<'a> {
    /// Takes the train `headers ++ payload`. All headers through TCP or UDP lie within `headers`,
    /// and any part of the payload may follow them there.
    ///
    /// # Errors
    /// Anything but [`OffloadError::Train`]. Nothing that this accepts fails later.
    pub fn new(
        meta: &NetHeader,
        headers: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Self, OffloadError> {
        let frame_len = headers.len() + payload.len();
        if !meta.is_train() {
            return Err(OffloadError::NotATrain);
        }
        if frame_len > TRAIN_LEN_MAX {
            return Err(OffloadError::TrainTooLong);
        }
        meta.check(frame_len)?;
        let parsed = parse(headers).map_err(|_| OffloadError::Headers)?;
        let upper = Upper::new(meta, headers, &parsed)?;
        let (headers, head_of_payload) = headers.split_at(usize::from(parsed.layout.end));
        let remaining = meta.wire_packets(frame_len - headers.len());
        let work = if remaining == 1 {
            Work::whole(meta, headers.len())?
        } else {
            Work::cut(meta, headers, upper, frame_len)?
        };
        Ok(Self {
            headers,
            rest: in_order(head_of_payload, payload),
            size: meta.gso_size,
            index: 0,
            remaining,
            work,
        })
    }

    /// Writes the next packet's headers to the start of `headers_out` and lends its payload.
    ///
    /// Returns `None` after the last packet, and also, without going on, when `headers_out` is
    /// shorter than [`headers_len`](Self::headers_len).
    #[inline]
    pub fn next(&mut self, headers_out: &mut [u8]) -> Option<Segment<'a>> {
        // 1. TCP: header copy, 6 stores (IPv4) or 4 (IPv6), one pass over the payload.
        // 2. UDP: the same with one store less.
        // 3. A train of one packet: header copy, one pass for the checksum if it is partial.
        let headers_len = self.headers.len();
        let out = headers_out.get_mut(..headers_len)?;
        self.remaining = self.remaining.checked_sub(1)?;
        let position = Position {
            index: self.index,
            offset: self.index.wrapping_mul(u32::from(self.size)),
            is_last: self.remaining == 0,
        };
        let payload = self.take();
        out.copy_from_slice(self.headers);
        let frame_len = headers_len + payload[0].len() + payload[1].len();
        self.work.write(out, payload, frame_len, position);
        self.index += 1;
        Some(Segment { headers_len, payload })
    }

    /// Length in bytes of the headers of each packet: what [`next`](Self::next) writes.
    #[inline]
    pub fn headers_len(&self) -> usize {
        self.headers.len()
    }

    /// Packets still to come.
    #[inline]
    pub fn remaining(&self) -> u32 {
        self.remaining
    }

    /// Takes the payload of the next packet out of the rest.
    #[inline]
    fn take(&mut self) -> [&'a [u8]; 2] {
        let size = usize::from(self.size);
        let [first, second] = self.rest;
        if let Some((head, first)) = first.split_at_checked(size) {
            self.rest = in_order(first, second);
            return [head, &[]];
        }
        let (tail, second) = second.split_at(second.len().min(size - first.len()));
        self.rest = [second, &[]];
        [first, tail]
    }
}

/// One packet of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Bytes of headers that were written.
    pub headers_len: usize,
    /// The payload, in this order. The second part is empty unless the packet's payload began in
    /// the train's `headers` and ends in its `payload`.
    pub payload: [&'a [u8]; 2],
}

impl Segment<'_> {
    /// Length of the packet as a frame in bytes.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.headers_len + self.payload[0].len() + self.payload[1].len()
    }
}

/// What is done to the headers of each packet.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// Nothing but completing the checksum.
    Whole(Option<Place>),
    Tcp(Network, Tcp),
    Udp(Network, Udp),
}

impl Work {
    fn whole(meta: &NetHeader, headers_len: usize) -> Result<Self, OffloadError> {
        let place = meta.needs_checksum().then(|| Place::new(meta, headers_len)).transpose()?;
        Ok(Self::Whole(place))
    }

    fn cut(
        meta: &NetHeader,
        headers: &[u8],
        upper: Upper,
        frame_len: usize,
    ) -> Result<Self, OffloadError> {
        let Upper { at, network_at, .. } = upper;
        let network = match upper.version {
            Version::V4 => Network::v4(headers, network_at, at),
            Version::V6 => Network::V6 { at: network_at },
        };
        let longest = network.length(headers.len() + usize::from(meta.gso_size));
        if longest > usize::from(u16::MAX) {
            return Err(OffloadError::SegmentTooLong);
        }
        if upper.protocol == ip_proto::UDP {
            return Ok(Self::Udp(network, Udp::new(headers, at)));
        }
        let len = u32::try_from(frame_len - at).map_err(|_| OffloadError::TrainTooLong)?;
        let partial_of_len = meta.needs_checksum().then_some(len);
        let tcp = Tcp::new(headers, at, &network, partial_of_len);
        Ok(Self::Tcp(network, tcp))
    }

    #[inline]
    fn write(&self, headers: &mut [u8], payload: [&[u8]; 2], frame_len: usize, position: Position) {
        match self {
            Self::Tcp(network, tcp) => {
                network.write(headers, frame_len, position.index);
                tcp.write(headers, payload, position);
            }
            Self::Udp(network, udp) => {
                network.write(headers, frame_len, position.index);
                udp.write(headers, payload);
            }
            Self::Whole(Some(place)) => place.complete(headers, payload),
            Self::Whole(None) => {}
        }
    }
}

/// The headers from IP on, found to be what the metadata says.
#[derive(Clone, Copy, Debug)]
struct Upper {
    version: Version,
    /// Start of the IP header.
    network_at: usize,
    /// [`ip_proto::TCP`] or [`ip_proto::UDP`].
    protocol: u8,
    /// Start of the TCP or UDP header.
    at: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V4,
    V6,
}

impl Upper {
    /// Judges parsed `headers` by `meta`, which passed [`NetHeader::check`].
    fn new(
        meta: &NetHeader,
        headers: &[u8],
        Parsed { key, layout }: &Parsed,
    ) -> Result<Self, OffloadError> {
        let network_at = usize::from(layout.network);
        if network_at != ethernet::HEADER_LEN + usize::from(layout.tags) * ethernet::TAG_LEN {
            return Err(OffloadError::Unsupported("802.3 framing"));
        }
        let version = match key.eth_type() {
            EtherType::IPV4 => Version::V4,
            EtherType::IPV6 => Version::V6,
            _ => return Err(OffloadError::Protocol),
        };
        let protocol = protocol(meta.gso_type, version)?;
        let at = usize::from(layout.transport.ok_or(OffloadError::Headers)?);
        if key.ip_proto != protocol {
            return Err(OffloadError::Protocol);
        }
        let between = &headers[network_at..at];
        match version {
            Version::V4 => check_ipv4(between)?,
            Version::V6 => check_ipv6(between)?,
        }
        check_place(meta, protocol, at)?;
        Ok(Self { version, network_at, protocol, at })
    }
}

/// The protocol that a train of `gso_type` has over IP `version`.
fn protocol(gso_type: GsoType, version: Version) -> Result<u8, OffloadError> {
    match (gso_type.kind(), version) {
        (GsoType::TCPV4, Version::V4) | (GsoType::TCPV6, Version::V6) => Ok(ip_proto::TCP),
        (GsoType::UDP_L4, _) if !gso_type.has_ecn() => Ok(ip_proto::UDP),
        (GsoType::UDP, _) => Err(OffloadError::Unsupported("UFO")),
        _ => Err(OffloadError::Protocol),
    }
}

/// A fragment's packets would all claim the same place in the datagram.
fn check_ipv4(header: &[u8]) -> Result<(), OffloadError> {
    let fragment = read_u16(header, ipv4::field::FRAGMENT);
    if fragment & (ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET_MASK) != 0 {
        return Err(OffloadError::Fragment);
    }
    Ok(())
}

/// Only those extension headers may be there that can be repeated as they are: Linux cuts behind
/// hop-by-hop options, routing and destination options, and nothing else.
fn check_ipv6(headers: &[u8]) -> Result<(), OffloadError> {
    let mut protocol = headers[ipv6::field::NEXT_HEADER];
    let mut at = ipv6::HEADER_LEN;
    while let Some(&[next, units, option, ..]) = headers.get(at..) {
        match protocol {
            ipv6::HOP_BY_HOP if option == ipv6::OPTION_JUMBO => {
                return Err(OffloadError::Unsupported("an IPv6 jumbogram"));
            }
            ipv6::HOP_BY_HOP | ipv6::ROUTING | ipv6::DESTINATION_OPTIONS => {}
            ipv6::FRAGMENT => return Err(OffloadError::Fragment),
            _ => return Err(OffloadError::Unsupported("an IPv6 extension header")),
        }
        protocol = next;
        at += (usize::from(units) + 1) * 8;
    }
    Ok(())
}

/// The partial checksum must be the one of the transport header at `at`.
fn check_place(meta: &NetHeader, protocol: u8, at: usize) -> Result<(), OffloadError> {
    if !meta.needs_checksum() {
        // A TCP train without one gets its checksums from nothing, as in Linux.
        return match protocol {
            ip_proto::UDP => Err(OffloadError::ChecksumMissing),
            _ => Ok(()),
        };
    }
    let field = match protocol {
        ip_proto::UDP => udp::field::CHECKSUM,
        _ => tcp::field::CHECKSUM,
    };
    if usize::from(meta.csum_start) == at && usize::from(meta.csum_offset) == field {
        Ok(())
    } else {
        Err(OffloadError::ChecksumPlace)
    }
}

/// The parts with an empty one last.
#[inline]
fn in_order<'a>(first: &'a [u8], second: &'a [u8]) -> [&'a [u8]; 2] {
    if first.is_empty() { [second, &[]] } else { [first, second] }
}

/// Length in bytes of the longest train that is cut: twice what any Linux interface lets a sender
/// build (`GSO_MAX_SIZE` is 512 KiB). Bounds the packets of one train.
pub const TRAIN_LEN_MAX: usize = 1 << 20;
