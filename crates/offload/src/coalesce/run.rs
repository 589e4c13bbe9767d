//! A run: packets of one flow that follow each other, and the train that they make.

use std::ops::Range;

use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{
    GsoType, NetHeader, NetHeaderFlags, ethernet, ip_proto, ipv4, ipv6, read_u16, read_u32, tcp,
    udp, write_u16,
};

use super::headers::Headers;
use super::{NONE, Place, Unit};

/// Packets of one flow that follow each other.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Metadata of the first frame, later of the train.
    meta: NetHeader,
    headers: Headers,
    /// Where the first frame lies.
    start: usize,
    end: usize,
    /// Index in the batch of the first frame.
    pub(super) first: u32,
    /// Index in the batch of the last one.
    pub(super) tail: u32,
    /// The next older run of the bucket.
    pub(super) older: u32,
    state: State,
    /// Packets on the wire so far.
    packets: u32,
    /// Payload bytes of each packet but the last.
    size: u32,
    /// Payload bytes so far.
    payload_len: u32,
    /// FIN and PSH of the last packet.
    last_flags: u8,
    /// What is summed of each packet, known once a second one has come.
    sums: Sums,
    /// Where its payloads are listed.
    pub(super) parts: Range<usize>,
}

/// Whether a run goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It may, if the checksums of its first packet are right.
    Untested,
    /// It may.
    Open,
    /// It has ended.
    Ended,
}

/// Sums that all packets of a run have in common.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// The IPv4 header without length, identification and checksum.
    ipv4: Sum,
    /// The pseudo-header without length.
    pseudo_header: Sum,
}

impl Run {
    /// The frame at `index` of the batch, of no flow.
    pub(super) fn alone(meta: NetHeader, index: u32) -> Self {
        let place = Place { meta, ..Place::default() };
        Self::with_state(&place, Headers::default(), index, State::Ended)
    }

    /// What begins with `frame`, which lies at `place` and is at `index` of the batch.
    pub(super) fn new(
        place: &Place,
        frame: &[u8],
        headers: Headers,
        index: u32,
        older: u32,
    ) -> Self {
        let run = Self { older, ..Self::with_state(place, headers, index, State::Untested) };
        let Some((size, packets)) = run.shape(&place.meta, frame) else {
            return Self { state: State::Ended, ..run };
        };
        let payload_len = to_u32(frame.len() - run.headers_len());
        let run = Self { size, packets, payload_len, ..run };
        let ends = run.ends_with(frame, &place.meta, payload_len, payload_len);
        Self { state: if ends { State::Ended } else { State::Untested }, ..run }
    }

    fn with_state(place: &Place, headers: Headers, index: u32, state: State) -> Self {
        Self {
            meta: place.meta,
            headers,
            start: place.start,
            end: place.end,
            first: index,
            tail: index,
            older: NONE,
            state,
            packets: 1,
            size: 0,
            payload_len: 0,
            last_flags: 0,
            sums: Sums::default(),
            parts: 0..0,
        }
    }

    /// Length in bytes of the headers of each packet.
    #[inline]
    pub(super) fn headers_len(&self) -> usize {
        usize::from(self.headers.end)
    }

    /// What has become of it. `parts` are those of all runs.
    pub(super) fn unit<'a>(&self, parts: &'a [Range<usize>]) -> Unit<'a> {
        Unit { first: self.first as usize, meta: self.meta, parts: &parts[self.parts.clone()] }
    }

    /// True when `frame` is a packet of this run's flow.
    #[inline]
    pub(super) fn has(&self, buf: &[u8], frame: &[u8]) -> bool {
        self.headers.is_same_flow(&buf[self.start..self.end], frame)
    }

    /// Takes `frame`, a packet of this run's flow, if it is the next one and fit for the train.
    #[inline]
    pub(super) fn join(&mut self, buf: &[u8], meta: &NetHeader, frame: &[u8]) -> bool {
        let first = &buf[self.start..self.end];
        if self.state == State::Ended || !self.follows(first, frame) {
            return false;
        }
        let Some((size, packets)) = self.shape(meta, frame) else {
            return false;
        };
        let payload_len = to_u32(frame.len() - self.headers_len());
        // The last packet may be shorter than the others, those of a train behind it may not.
        let is_fit = if meta.is_train() { size == self.size } else { size <= self.size };
        if !is_fit || self.len_behind_ethernet() + payload_len as usize > LEN_MAX {
            return false;
        }
        if !(self.is_tested(first) && self.has_right_checksums(meta, frame)) {
            return false;
        }
        self.packets += packets;
        self.payload_len += payload_len;
        if self.headers.is_tcp {
            self.last_flags = frame[self.transport() + tcp::field::FLAGS] & LAST_ONLY;
        }
        if self.ends_with(frame, meta, payload_len, self.size) {
            self.state = State::Ended;
        }
        true
    }

    /// What the first packet's headers must become for the train, and its metadata.
    pub(super) fn finish(&mut self, buf: &mut [u8]) {
        let frame = &mut buf[self.start..self.end];
        let (network, transport) = (self.network(), self.transport());
        let total = self.headers_len() + self.payload_len as usize;
        if self.headers.is_v4 {
            let len = to_u16(total - network);
            let identification = read_u16(frame, network + ipv4::field::IDENTIFICATION);
            let checksum = self.sums.ipv4.add(len).add(identification).checksum();
            write_u16(frame, network + ipv4::field::TOTAL_LENGTH, len);
            write_u16(frame, network + ipv4::field::CHECKSUM, checksum);
        } else {
            let len = to_u16(total - network - ipv6::HEADER_LEN);
            write_u16(frame, network + ipv6::field::PAYLOAD_LENGTH, len);
        }
        let len = to_u16(total - transport);
        let partial = self.sums.pseudo_header.add(len).partial();
        write_u16(frame, transport + self.checksum_offset(), partial);
        if self.headers.is_tcp {
            frame[transport + tcp::field::FLAGS] |= self.last_flags;
        } else {
            write_u16(frame, transport + udp::field::LENGTH, len);
        }
        self.meta = self.train_meta(frame);
    }

    fn train_meta(&self, frame: &[u8]) -> NetHeader {
        let kind = self.kind();
        let has_cwr =
            self.headers.is_tcp && frame[self.transport() + tcp::field::FLAGS] & tcp::CWR != 0;
        NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM,
            gso_type: GsoType(if has_cwr { kind.0 | GsoType::ECN } else { kind.0 }),
            hdr_len: self.headers.end,
            gso_size: to_u16(self.size as usize),
            csum_start: self.headers.transport,
            csum_offset: to_u16(self.checksum_offset()),
        }
    }

    /// Payload bytes of each packet of `frame`, and how many packets it is, when it may be in a
    /// train at all: lengths are true, metadata and headers agree.
    #[inline]
    fn shape(&self, meta: &NetHeader, frame: &[u8]) -> Option<(u32, u32)> {
        let payload_len = frame.len().checked_sub(self.headers_len()).filter(|len| *len > 0)?;
        if !self.has_true_lengths(frame) || !self.has_clear_metadata(meta) {
            return None;
        }
        if !meta.is_train() {
            return Some((to_u32(payload_len), 1));
        }
        let is_kind = self.headers.is_tcp && meta.gso_type.kind() == self.kind();
        (is_kind && meta.gso_size > 0)
            .then(|| (u32::from(meta.gso_size), meta.wire_packets(payload_len)))
    }

    /// The lengths in the headers are those of the frame, and fragment bits that nobody uses are
    /// not set.
    #[inline]
    fn has_true_lengths(&self, frame: &[u8]) -> bool {
        let (network, transport) = (self.network(), self.transport());
        let of_ip = if self.headers.is_v4 {
            let fragment = read_u16(frame, network + ipv4::field::FRAGMENT);
            let len = read_u16(frame, network + ipv4::field::TOTAL_LENGTH);
            fragment & !ipv4::DONT_FRAGMENT == 0 && usize::from(len) == frame.len() - network
        } else {
            let len = read_u16(frame, network + ipv6::field::PAYLOAD_LENGTH);
            usize::from(len) == frame.len() - network - ipv6::HEADER_LEN
        };
        let of_udp = || {
            let len = read_u16(frame, transport + udp::field::LENGTH);
            let checksum = read_u16(frame, transport + udp::field::CHECKSUM);
            usize::from(len) == frame.len() - transport && checksum != 0
        };
        of_ip && (self.headers.is_tcp || of_udp())
    }

    /// A partial checksum, if there is one, is that of TCP or UDP, and nothing else is said.
    #[inline]
    fn has_clear_metadata(&self, meta: &NetHeader) -> bool {
        const KNOWN: u8 = NetHeaderFlags::NEEDS_CSUM | NetHeaderFlags::DATA_VALID;
        let is_own = meta.csum_start == self.headers.transport
            && usize::from(meta.csum_offset) == self.checksum_offset();
        meta.flags & !KNOWN == 0 && (is_own || !meta.needs_checksum())
    }

    /// Everything but lengths and checksums says that `frame` is the next packet of the run that
    /// began with `first`.
    #[inline]
    fn follows(&self, first: &[u8], frame: &[u8]) -> bool {
        let network = self.network();
        let is_next_of_ip = if self.headers.is_v4 {
            self.follows_v4(&first[network..], &frame[network..])
        } else {
            first[network..network + 2] == frame[network..network + 2]
                && first[network + ipv6::field::HOP_LIMIT]
                    == frame[network + ipv6::field::HOP_LIMIT]
        };
        let transport = self.transport();
        is_next_of_ip
            && (!self.headers.is_tcp || self.follows_tcp(&first[transport..], &frame[transport..]))
            && (self.headers.is_tcp || self.packets < UDP_PACKETS_MAX)
    }

    #[inline]
    fn follows_v4(&self, first: &[u8], other: &[u8]) -> bool {
        let identification = read_u16(first, ipv4::field::IDENTIFICATION);
        first[ipv4::field::TOS] == other[ipv4::field::TOS]
            && first[ipv4::field::TTL] == other[ipv4::field::TTL]
            && read_u16(first, ipv4::field::FRAGMENT) == read_u16(other, ipv4::field::FRAGMENT)
            && read_u16(other, ipv4::field::IDENTIFICATION)
                == identification.wrapping_add(low_half(self.packets))
    }

    #[inline]
    fn follows_tcp(&self, first: &[u8], other: &[u8]) -> bool {
        /// Data offset, flags and window without the flags that need not be equal.
        const COMPARED: u32 = !(((tcp::CWR | LAST_ONLY) as u32) << 16);
        let word = |tcp: &[u8]| read_u32(tcp, tcp::field::DATA_OFFSET);
        let header_len = self.headers_len() - self.transport();
        let sequence = read_u32(first, tcp::field::SEQUENCE).wrapping_add(self.payload_len);
        (word(first) ^ word(other)) & COMPARED == 0
            && other[tcp::field::FLAGS] & tcp::CWR == 0
            && read_u32(other, tcp::field::SEQUENCE) == sequence
            && first[tcp::field::ACKNOWLEDGEMENT..][..4]
                == other[tcp::field::ACKNOWLEDGEMENT..][..4]
            && other.len() >= header_len
            && first[URGENT_POINTER..header_len] == other[URGENT_POINTER..header_len]
    }

    /// True when no packet can come behind `frame`, which has `payload_len` bytes of payload in a
    /// run of packets of `size`.
    #[inline]
    fn ends_with(&self, frame: &[u8], meta: &NetHeader, payload_len: u32, size: u32) -> bool {
        if !self.headers.is_tcp {
            return payload_len != size || self.packets >= UDP_PACKETS_MAX;
        }
        let is_short = match meta.is_train() {
            true => !payload_len.is_multiple_of(u32::from(meta.gso_size).max(1)),
            false => payload_len < size,
        };
        is_short || frame[self.transport() + tcp::field::FLAGS] & ENDING != 0
    }

    /// True when the checksums of the run's first packet are right.
    #[inline]
    fn is_tested(&mut self, first: &[u8]) -> bool {
        if self.state == State::Untested {
            self.sums = self.common_sums(first);
            let meta = self.meta;
            let is_right = self.has_right_checksums(&meta, first);
            self.state = if is_right { State::Open } else { State::Ended };
        }
        self.state == State::Open
    }

    fn common_sums(&self, first: &[u8]) -> Sums {
        let ip = &first[self.network()..self.transport()];
        if !self.headers.is_v4 {
            let (src, dst) = (&ip[ipv6::field::SRC], &ip[ipv6::field::DST]);
            let pseudo_header = pseudo_header_v6(src, dst, self.protocol(), 0);
            return Sums { ipv4: Sum::ZERO, pseudo_header };
        }
        let ipv4 = Sum::of(ip)
            .remove(read_u16(ip, ipv4::field::TOTAL_LENGTH))
            .remove(read_u16(ip, ipv4::field::IDENTIFICATION))
            .remove(read_u16(ip, ipv4::field::CHECKSUM));
        let (src, dst) = (&ip[ipv4::field::SRC], &ip[ipv4::field::DST]);
        Sums { ipv4, pseudo_header: pseudo_header_v4(src, dst, self.protocol(), 0) }
    }

    /// True when the checksums of `frame` are what cutting would write.
    #[inline]
    fn has_right_checksums(&self, meta: &NetHeader, frame: &[u8]) -> bool {
        let (network, transport) = (self.network(), self.transport());
        if self.headers.is_v4 {
            let sum = self
                .sums
                .ipv4
                .add(read_u16(frame, network + ipv4::field::TOTAL_LENGTH))
                .add(read_u16(frame, network + ipv4::field::IDENTIFICATION));
            if sum.checksum() != read_u16(frame, network + ipv4::field::CHECKSUM) {
                return false;
            }
        }
        let upper = &frame[transport..];
        let pseudo_header = self.sums.pseudo_header.add(to_u16(upper.len()));
        let field = read_u16(upper, self.checksum_offset());
        if meta.needs_checksum() {
            return field == pseudo_header.partial();
        }
        // Of a train without a partial checksum, it is made from nothing.
        let is_vouched = meta.is_train() || meta.flags & NetHeaderFlags::DATA_VALID != 0;
        (!self.headers.is_tcp || field != 0xffff)
            && (is_vouched || pseudo_header.add_bytes(upper).partial() == 0xffff)
    }

    /// Length of the train so far in bytes, without the Ethernet header.
    #[inline]
    fn len_behind_ethernet(&self) -> usize {
        self.headers_len() - ethernet::HEADER_LEN + self.payload_len as usize
    }

    #[inline]
    fn kind(&self) -> GsoType {
        match (self.headers.is_tcp, self.headers.is_v4) {
            (true, true) => GsoType::TCPV4,
            (true, false) => GsoType::TCPV6,
            (false, _) => GsoType::UDP_L4,
        }
    }

    #[inline]
    fn protocol(&self) -> u8 {
        if self.headers.is_tcp { ip_proto::TCP } else { ip_proto::UDP }
    }

    #[inline]
    fn checksum_offset(&self) -> usize {
        if self.headers.is_tcp { tcp::field::CHECKSUM } else { udp::field::CHECKSUM }
    }

    #[inline]
    fn network(&self) -> usize {
        usize::from(self.headers.network)
    }

    #[inline]
    fn transport(&self) -> usize {
        usize::from(self.headers.transport)
    }
}

/// Narrows a length that was checked against [`LEN_MAX`].
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "checked where the bytes are taken")]
const fn to_u16(len: usize) -> u16 {
    len as u16
}

/// Narrows the length of a payload whose packet's length field says the same.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "an IP packet has at most 65,575 bytes")]
const fn to_u32(len: usize) -> u32 {
    len as u32
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "identifications wrap")]
const fn low_half(packets: u32) -> u16 {
    packets as u16
}

/// Flags that only a train's last packet may have.
const LAST_ONLY: u8 = tcp::FIN | tcp::PSH;
/// Flags of a packet behind which no other joins (Linux `tcp_gro_receive`).
const ENDING: u8 = LAST_ONLY | SYN | RST | URG;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const URG: u8 = 0x20;
/// Where the urgent pointer lies, in bytes from the TCP header; options follow.
const URGENT_POINTER: usize = 18;
/// Most packets of a UDP train (Linux `UDP_GRO_CNT_MAX`).
const UDP_PACKETS_MAX: u32 = 64;
/// Longest train in bytes, without the Ethernet header (Linux `GRO_LEGACY_MAX_SIZE`).
const LEN_MAX: usize = 65_535;
