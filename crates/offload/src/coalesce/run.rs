//! A run: packets of one flow that follow each other, and the train that they make.

use std::ops::Range;

use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{
    GsoType, NetHeader, NetHeaderFlags, ethernet, ip_proto, ipv4, ipv6, read_u16, read_u32, tcp,
    udp, write_u16, write_u32,
};

use super::around;
use super::headers::{Headers, LEN_MAX as HEADERS_LEN_MAX};
use super::template::Template;
use super::{NONE, Place, Unit};
use crate::SplitOptions;
use crate::layers::Outer;
use crate::tunnel::Tunnel;

/// Packets of one flow that follow each other.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Metadata of the first frame, later of the train.
    meta: NetHeader,
    pub(super) headers: Headers,
    /// Index of the template of its headers.
    pub(super) template: usize,
    /// True when it is in a tunnel.
    is_inside: bool,
    /// What the tunnel around it needs, known once a second packet has come.
    tunnel: Option<Tunnel>,
    /// Where the first frame lies.
    start: usize,
    end: usize,
    /// Index in the batch of the first frame.
    pub(super) first: u32,
    /// Index in the batch of the last one.
    pub(super) tail: u32,
    /// The next older run of the bucket.
    pub(super) older: u32,
    /// Run of the frame that followed this run's last frame, which predicts it for the next time;
    /// initially this run itself.
    pub(super) follower: u32,
    state: State,
    /// Packets on the wire so far.
    packets: u32,
    /// Payload bytes of each packet but the last.
    size: u32,
    /// Payload bytes so far.
    payload_len: u32,
    /// Of the first packet; zero for IPv6.
    identification: u16,
    /// Of the first packet; zero for UDP.
    sequence: u32,
    /// Flags of the first packet; zero for UDP.
    first_flags: u8,
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
    ipv4: u16,
    /// The pseudo-header without length.
    pseudo_header: Sum,
}

impl Sums {
    /// True when the IPv4 checksum is what cutting would write: all words add up to zero, of which
    /// all ones is another form.
    #[inline]
    fn is_right_v4(&self, fields: &Fields) -> bool {
        let words = [self.ipv4, fields.ip_len, fields.identification, fields.ip_checksum];
        let sum: u32 = words.into_iter().map(u32::from).sum();
        sum.is_multiple_of(0xffff) && fields.ip_checksum != 0xffff
    }
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
        outer: Option<Outer>,
        index: u32,
    ) -> Self {
        let run = Self::with_state(place, headers, index, State::Untested);
        let run = Self { is_inside: outer.is_some(), ..run };
        let fields = Fields::read(&headers, frame);
        let payload_len = to_u32(frame.len() - run.headers_len());
        let Some(size) = run.size_of(&place.meta, payload_len) else {
            return Self { state: State::Ended, ..run };
        };
        let Fields { identification, sequence, flags: first_flags, .. } = fields;
        let packets = payload_len.div_ceil(size);
        let run = Self { size, packets, payload_len, identification, sequence, first_flags, ..run };
        let may_go_on = payload_len.is_multiple_of(size)
            && packets < TCP_PACKETS_MAX
            && fields.flags & ENDING == 0
            && fields.are_true(&headers, frame)
            && is_clear(&place.meta, &headers);
        Self { state: if may_go_on { State::Untested } else { State::Ended }, ..run }
    }

    /// Payload bytes of each packet of a frame with `payload_len` of them, when it may begin a
    /// train.
    fn size_of(&self, meta: &NetHeader, payload_len: u32) -> Option<u32> {
        let size = if meta.is_train() { u32::from(meta.gso_size) } else { payload_len };
        let is_kind = !meta.is_train() || self.is_own_train(meta);
        (is_kind && size > 0 && payload_len > 0).then_some(size)
    }

    /// True for a train of this run's kind. Linux makes none of UDP trains, and of one with the ECN
    /// bit the packets differ in CWR.
    fn is_own_train(&self, meta: &NetHeader) -> bool {
        self.headers.is_tcp && !self.is_inside && meta.gso_type == self.headers.gso_type()
    }

    fn with_state(place: &Place, headers: Headers, index: u32, state: State) -> Self {
        Self {
            meta: place.meta,
            headers,
            template: 0,
            is_inside: false,
            tunnel: None,
            start: place.start,
            end: place.end,
            first: index,
            tail: index,
            older: NONE,
            follower: NONE,
            state,
            packets: 1,
            size: 0,
            payload_len: 0,
            identification: 0,
            sequence: 0,
            first_flags: 0,
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
        let mut unit = Unit {
            first: self.first as usize,
            meta: self.meta,
            outer_transport: 0,
            inner_network: 0,
            parts: &parts[self.parts.clone()],
        };
        if let Some(tunnel) = self.tunnel.as_ref().filter(|_| !unit.parts.is_empty()) {
            let (at, bits, _) = tunnel.metadata();
            unit.outer_transport = to_u16(at);
            unit.inner_network = if bits == 0 { 0 } else { self.headers.network };
        }
        unit
    }

    /// True when `frame` is a packet of this run's flow.
    #[inline]
    pub(super) fn has(&self, templates: &[Template], buf: &[u8], frame: &[u8]) -> bool {
        let outer = templates.get(self.template).and_then(|template| template.outer.as_ref());
        self.headers.is_same_flow(outer, &buf[self.start..self.end], frame)
    }

    /// Lets no packet join any more.
    pub(super) fn end(&mut self) {
        self.state = State::Ended;
    }

    /// Takes `frame` if it is the next packet and fit for the train. `template` is that of the
    /// run's headers.
    #[inline]
    pub(super) fn join(
        &mut self,
        template: &Template,
        buf: &[u8],
        meta: &NetHeader,
        frame: &[u8],
    ) -> bool {
        let first = &buf[self.start..self.end];
        if self.state == State::Open && template.is_foretold(first, frame) {
            return self.join_foretold(meta, frame);
        }
        let outer = template.outer.as_ref();
        if self.state == State::Ended
            || self.ports(first) != self.ports(frame)
            || !template.is_equal(first, frame)
            || !outer.is_none_or(|outer| around::has_own_checksum(outer, frame))
        {
            return false;
        }
        let fields = Fields::read(&self.headers, frame);
        let payload_len = to_u32(frame.len() - self.headers_len());
        let packets = match meta.is_train() {
            false => u32::from(payload_len <= self.size),
            true => self.packets_of(meta, payload_len),
        };
        let is_fit = payload_len > 0
            && packets > 0
            && self.is_next(&fields)
            && fields.are_true(&self.headers, frame)
            && is_clear(meta, &self.headers)
            && self.headers_len() + (self.payload_len + payload_len) as usize <= LEN_MAX;
        if !is_fit {
            return false;
        }
        let is_right = self.is_tested(outer, first)
            && self.has_right_checksums(meta, frame, &fields)
            && self.is_right_around(outer, frame, self.packets);
        if !is_right {
            // It is of this flow, and behind it nothing else may join.
            self.end();
            return false;
        }
        self.go_on(packets, payload_len, fields.flags);
        true
    }

    /// Both ports, by which packets of most other flows are told apart at little cost.
    #[inline]
    fn ports<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8; 4]> {
        frame.get(self.transport()..)?.first_chunk()
    }

    /// As [`Self::join`], for a packet whose headers are what was foretold.
    #[inline]
    fn join_foretold(&mut self, meta: &NetHeader, frame: &[u8]) -> bool {
        let upper = &frame[self.transport()..];
        let checksum = read_u16(upper, self.headers.checksum_offset());
        let flags = if self.headers.is_tcp { upper[tcp::field::FLAGS] } else { 0 };
        let is_fit = frame.len() == self.headers_len() + self.size as usize
            && !meta.is_train()
            && is_clear(meta, &self.headers)
            && (checksum != 0 || self.headers.is_tcp)
            && self.headers_len() + (self.payload_len + self.size) as usize <= LEN_MAX
            && self.has_right_sum(meta, upper, checksum);
        if is_fit {
            self.go_on(1, self.size, flags);
        }
        is_fit
    }

    /// Notes that a frame has joined.
    #[inline]
    fn go_on(&mut self, packets: u32, payload_len: u32, flags: u8) {
        self.packets += packets;
        self.payload_len += payload_len;
        self.last_flags = flags & LAST_ONLY;
        let max = if self.headers.is_tcp { TCP_PACKETS_MAX } else { UDP_PACKETS_MAX };
        let is_full = self.packets >= max;
        let is_short = payload_len != packets * self.size;
        if is_short || is_full || flags & ENDING != 0 {
            self.state = State::Ended;
        }
    }

    /// Makes the first packet's headers what is foretold of the next one's, a full packet alone
    /// even where the first frame is a train; [`Self::finish`] puts that right.
    #[inline]
    pub(super) fn foretell(&self, buf: &mut [u8]) {
        let frame = &mut buf[self.start..self.end];
        let (network, transport) = (self.network(), self.transport());
        if let Some(tunnel) = &self.tunnel {
            let frame_len = frame.len();
            tunnel.write_network(frame, frame_len, self.packets);
        }
        let len = self.headers_len() + self.size as usize - network;
        let ip = &mut frame[network..];
        if self.headers.is_v4 {
            let identification = self.identification.wrapping_add(low_half(self.packets));
            let len = to_u16(len);
            let sum = Sum::from_partial(self.sums.ipv4).add(len).add(identification);
            write_u16(ip, ipv4::field::TOTAL_LENGTH, len);
            write_u16(ip, ipv4::field::IDENTIFICATION, identification);
            write_u16(ip, ipv4::field::CHECKSUM, sum.checksum());
        } else {
            write_u16(ip, ipv6::field::PAYLOAD_LENGTH, to_u16(len - ipv6::HEADER_LEN));
        }
        if self.headers.is_tcp {
            let tcp = &mut frame[transport..];
            let sequence = self.sequence.wrapping_add(self.payload_len);
            write_u32(tcp, tcp::field::SEQUENCE, sequence);
        }
    }

    /// The packets that a train with `payload_len` bytes of payload brings; zero when it may not
    /// join.
    #[cold]
    fn packets_of(&self, meta: &NetHeader, payload_len: u32) -> u32 {
        let is_own = self.is_own_train(meta) && u32::from(meta.gso_size) == self.size;
        let packets = payload_len.div_ceil(self.size);
        if is_own && self.packets + packets <= TCP_PACKETS_MAX { packets } else { 0 }
    }

    /// The numbers that change from packet to packet are those of the next one.
    #[inline]
    fn is_next(&self, fields: &Fields) -> bool {
        let identification = match self.headers.is_v4 {
            true => self.identification.wrapping_add(low_half(self.packets)),
            false => 0,
        };
        let sequence = match self.headers.is_tcp {
            true => self.sequence.wrapping_add(self.payload_len),
            false => 0,
        };
        fields.identification == identification && fields.sequence == sequence
    }

    /// What the first packet's headers must become for the train, and its metadata.
    pub(super) fn finish(&mut self, buf: &mut [u8]) {
        let frame = &mut buf[self.start..self.end];
        let (network, transport) = (self.network(), self.transport());
        let total = self.headers_len() + self.payload_len as usize;
        if self.headers.is_v4 {
            let len = to_u16(total - network);
            let sum = Sum::from_partial(self.sums.ipv4).add(len).add(self.identification);
            write_u16(frame, network + ipv4::field::TOTAL_LENGTH, len);
            write_u16(frame, network + ipv4::field::IDENTIFICATION, self.identification);
            write_u16(frame, network + ipv4::field::CHECKSUM, sum.checksum());
        } else {
            let len = to_u16(total - network - ipv6::HEADER_LEN);
            write_u16(frame, network + ipv6::field::PAYLOAD_LENGTH, len);
        }
        let len = to_u16(total - transport);
        let partial = self.sums.pseudo_header.add(len).partial();
        write_u16(frame, transport + self.headers.checksum_offset(), partial);
        if self.headers.is_tcp {
            write_u32(frame, transport + tcp::field::SEQUENCE, self.sequence);
            frame[transport + tcp::field::FLAGS] = self.first_flags | self.last_flags;
        } else {
            write_u16(frame, transport + udp::field::LENGTH, len);
        }
        if let Some(tunnel) = &self.tunnel {
            tunnel.write_train(frame, total);
        }
        self.meta = self.train_meta();
    }

    fn train_meta(&self) -> NetHeader {
        // No ECN bit: all packets have CWR, or none has.
        let kind = self.headers.gso_type();
        let (_, bits, flags) = self.tunnel.as_ref().map_or((0, 0, 0), Tunnel::metadata);
        NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM | flags,
            gso_type: GsoType(kind.0 | bits),
            hdr_len: self.headers.end,
            gso_size: to_u16(self.size as usize),
            csum_start: self.headers.transport,
            csum_offset: to_u16(self.headers.checksum_offset()),
        }
    }

    /// True when the checksums of the run's first packet are right.
    #[inline]
    fn is_tested(&mut self, outer: Option<&Outer>, first: &[u8]) -> bool {
        if self.state == State::Untested {
            self.test(outer, first);
        }
        self.state == State::Open
    }

    #[cold]
    fn test(&mut self, outer: Option<&Outer>, first: &[u8]) {
        let options = SplitOptions::default();
        let tunnel = |outer| Tunnel::new(first, outer, self.transport(), &options);
        self.tunnel = outer.map(tunnel);
        self.sums = self.common_sums(first);
        let fields = Fields::read(&self.headers, first);
        let is_right = self.has_right_checksums(&self.meta, first, &fields)
            && self.is_right_around(outer, first, 0);
        self.state = if is_right { State::Open } else { State::Ended };
    }

    fn common_sums(&self, first: &[u8]) -> Sums {
        let ip = &first[self.network()..self.transport()];
        if !self.headers.is_v4 {
            let (src, dst) = (&ip[ipv6::field::SRC], &ip[ipv6::field::DST]);
            let pseudo_header = pseudo_header_v6(src, dst, self.protocol(), 0);
            return Sums { ipv4: 0, pseudo_header };
        }
        let ipv4 = Sum::of(ip)
            .remove(read_u16(ip, ipv4::field::TOTAL_LENGTH))
            .remove(read_u16(ip, ipv4::field::IDENTIFICATION))
            .remove(read_u16(ip, ipv4::field::CHECKSUM));
        let (src, dst) = (&ip[ipv4::field::SRC], &ip[ipv4::field::DST]);
        Sums { ipv4: ipv4.partial(), pseudo_header: pseudo_header_v4(src, dst, self.protocol(), 0) }
    }

    /// True when the checksums of `frame` are what cutting would write.
    #[inline]
    fn has_right_checksums(&self, meta: &NetHeader, frame: &[u8], fields: &Fields) -> bool {
        if self.headers.is_v4 && !self.sums.is_right_v4(fields) {
            return false;
        }
        self.has_right_sum(meta, &frame[self.transport()..], fields.checksum)
    }

    /// True when the headers of the tunnel around `frame` are what cutting would write around the
    /// packet at `index`.
    #[inline]
    fn is_right_around(&self, outer: Option<&Outer>, frame: &[u8], index: u32) -> bool {
        match (outer, &self.tunnel) {
            (Some(outer), Some(tunnel)) => self.is_written(outer, tunnel, frame, index),
            _ => true,
        }
    }

    #[cold]
    fn is_written(&self, outer: &Outer, tunnel: &Tunnel, frame: &[u8], index: u32) -> bool {
        let mut written = [0; HEADERS_LEN_MAX];
        let Some(headers) = frame.get(..self.transport()) else {
            return false;
        };
        let written = &mut written[..headers.len()];
        written.copy_from_slice(headers);
        written[around::varying(outer)].fill(0);
        tunnel.write(written, frame.len(), index, self.sums.pseudo_header);
        written == headers
    }

    /// True when the `checksum` of `upper`, TCP or UDP and payload, is what cutting would write.
    #[inline]
    fn has_right_sum(&self, meta: &NetHeader, upper: &[u8], checksum: u16) -> bool {
        if meta.needs_checksum() {
            let pseudo_header = self.sums.pseudo_header.add(to_u16(upper.len()));
            return checksum == pseudo_header.partial();
        }
        // Of a train without a partial checksum, it is made from nothing.
        // Of nested checksums, whoever vouches speaks of the outer one.
        let is_valid = meta.flags & NetHeaderFlags::DATA_VALID != 0 && !self.is_inside;
        let is_vouched = meta.is_train() || is_valid;
        (!self.headers.is_tcp || checksum != 0xffff) && (is_vouched || self.is_right_sum(upper))
    }

    /// One pass over TCP or UDP and payload.
    #[inline(never)]
    fn is_right_sum(&self, upper: &[u8]) -> bool {
        let pseudo_header = self.sums.pseudo_header.add(to_u16(upper.len()));
        pseudo_header.add_bytes(upper).partial() == 0xffff
    }

    #[inline]
    fn protocol(&self) -> u8 {
        if self.headers.is_tcp { ip_proto::TCP } else { ip_proto::UDP }
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

/// The fields that differ between packets of a train, as they are in one packet. Those that its
/// headers do not have are zero.
#[derive(Clone, Copy, Debug, Default)]
struct Fields {
    /// What the IP header says of the length.
    ip_len: u16,
    /// Flags and offset of an IPv4 fragment.
    fragment: u16,
    identification: u16,
    ip_checksum: u16,
    sequence: u32,
    flags: u8,
    udp_len: u16,
    checksum: u16,
}

impl Fields {
    /// Reads those of `frame`, which has these headers.
    #[inline]
    fn read(headers: &Headers, frame: &[u8]) -> Self {
        let mut fields = Self::default();
        let (network, transport) = (usize::from(headers.network), usize::from(headers.transport));
        let Some(ip) = frame.get(network..).and_then(|ip| ip.first_chunk::<20>()) else {
            return fields;
        };
        if headers.is_v4 {
            fields.ip_len = read_u16(ip, ipv4::field::TOTAL_LENGTH);
            fields.identification = read_u16(ip, ipv4::field::IDENTIFICATION);
            fields.fragment = read_u16(ip, ipv4::field::FRAGMENT);
            fields.ip_checksum = read_u16(ip, ipv4::field::CHECKSUM);
        } else {
            fields.ip_len = read_u16(ip, ipv6::field::PAYLOAD_LENGTH);
        }
        let upper = frame.get(transport..).unwrap_or_default();
        if headers.is_tcp {
            let Some(tcp) = upper.first_chunk::<20>() else { return fields };
            fields.sequence = read_u32(tcp, tcp::field::SEQUENCE);
            fields.flags = tcp[tcp::field::FLAGS];
            fields.checksum = read_u16(tcp, tcp::field::CHECKSUM);
        } else {
            let Some(udp) = upper.first_chunk::<8>() else { return fields };
            fields.udp_len = read_u16(udp, udp::field::LENGTH);
            fields.checksum = read_u16(udp, udp::field::CHECKSUM);
        }
        fields
    }

    /// The lengths in the headers are those of the frame, flags of fragments that nobody uses are
    /// not set, and UDP has a checksum.
    #[inline]
    fn are_true(&self, headers: &Headers, frame: &[u8]) -> bool {
        let behind = |at: u16| frame.len() - usize::from(at);
        let ip_len = match headers.is_v4 {
            true => behind(headers.network),
            false => behind(headers.network) - ipv6::HEADER_LEN,
        };
        let is_true_udp =
            || self.checksum != 0 && usize::from(self.udp_len) == behind(headers.transport);
        usize::from(self.ip_len) == ip_len
            && self.fragment & !ipv4::DONT_FRAGMENT == 0
            && (headers.is_tcp || is_true_udp())
    }
}

/// A partial checksum, if there is one, is that of TCP or UDP, and nothing unknown is said.
#[inline]
fn is_clear(meta: &NetHeader, headers: &Headers) -> bool {
    const KNOWN: u8 = NetHeaderFlags::NEEDS_CSUM | NetHeaderFlags::DATA_VALID;
    let is_own = meta.csum_start == headers.transport
        && usize::from(meta.csum_offset) == headers.checksum_offset();
    meta.flags & !KNOWN == 0 && (is_own || !meta.needs_checksum())
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
/// Most packets of a TCP train: a train that any metadata could describe, headers and all.
#[expect(clippy::cast_possible_truncation, reason = "a few thousand")]
const TCP_PACKETS_MAX: u32 = NetHeader::PACKETS_MAX as u32 / 2;
/// Most packets of a UDP train (Linux `UDP_GRO_CNT_MAX`).
const UDP_PACKETS_MAX: u32 = 64;
/// Longest train in bytes: 65,535 behind the Ethernet header (Linux `GRO_LEGACY_MAX_SIZE`).
const LEN_MAX: usize = 65_535 + ethernet::HEADER_LEN;
