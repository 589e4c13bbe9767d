//! A run: consecutive packets of one flow, and the train that they form.

use std::ops::Range;

use tapswitch_wire::checksum::{Sum, pseudo_header_v4, pseudo_header_v6};
use tapswitch_wire::{
    GsoType, NetHeader, NetHeaderFlags, ethernet, ip_proto, ipv4, ipv6, read_u16, read_u32, tcp,
    udp, write_u16,
};

use super::around;
use super::headers::{Headers, LEN_MAX as HEADERS_LEN_MAX, is_right_checksum_v4};
use super::next::{Next, Nexts, Numbers};
use super::template::Template;
use super::{NONE, Place, Unit};
use crate::SplitOptions;
use crate::layers::Outer;
use crate::tunnel::Tunnel;

/// Consecutive packets of one flow.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Metadata of the first frame, later of the train.
    meta: NetHeader,
    pub(super) headers: Headers,
    /// Index of the template of its headers.
    pub(super) template: usize,
    /// Whether it is in a tunnel.
    is_inside: bool,
    /// State of the outer tunnel, set with the second packet.
    tunnel: Option<Tunnel>,
    /// Position of the first frame.
    start: usize,
    end: usize,
    /// Index of the first frame in the batch.
    pub(super) first: u32,
    /// Index of the last frame.
    pub(super) tail: u32,
    /// Index of the prediction for the next packet; [`NONE`] before the second one.
    pub(super) next: u32,
    /// Next older run of the bucket.
    pub(super) older: u32,
    /// Run of the frame that followed this run's last frame, which predicts it for the next time;
    /// initially this run itself.
    pub(super) follower: u32,
    state: State,
    /// Number of wire packets so far.
    packets: u32,
    /// Payload bytes of each packet except the last.
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
    /// Constant sums of the packets, set with the second packet.
    sums: Sums,
    /// Its payloads in the list.
    pub(super) parts: Range<usize>,
}

/// Whether further packets may join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// They may, if the checksums of the first packet are valid.
    Untested,
    /// They may.
    Open,
    /// They may not.
    Ended,
}

/// Sums that are equal in all packets of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    /// IPv4 header without length, identification and checksum.
    ipv4: u16,
    /// Pseudo-header without length.
    pseudo_header: Sum,
}

impl Sums {
    /// Whether the IPv4 checksum is the one that segmentation would write.
    #[inline]
    fn is_right_v4(&self, fields: &Fields) -> bool {
        let words = [self.ipv4, fields.ip_len, fields.identification];
        is_right_checksum_v4(words.into_iter().map(u32::from).sum(), fields.ip_checksum)
    }
}

impl Run {
    /// A single frame at `place` and at `index` of the batch, of no flow.
    #[inline]
    pub(super) fn alone(place: &Place, index: u32) -> Self {
        Self {
            meta: place.meta,
            headers: Headers::default(),
            template: 0,
            is_inside: false,
            tunnel: None,
            start: place.start,
            end: place.end,
            first: index,
            tail: index,
            next: NONE,
            older: NONE,
            follower: NONE,
            state: State::Ended,
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

    /// Starts a run with `frame`, which was [alone](Self::alone) and has headers like `template`,
    /// at `index`. In place: a run that is moved soon after it was made waits for its smallest
    /// fields.
    pub(super) fn start(&mut self, frame: &[u8], template: &Template, index: usize) {
        self.headers = template.headers;
        self.template = index;
        self.is_inside = template.outer.is_some();
        let payload_len = to_u32(frame.len() - self.headers_len());
        let Some(size) = self.size_of(&self.meta, payload_len) else {
            return;
        };
        let fields = Fields::read(&self.headers, frame);
        (self.size, self.payload_len) = (size, payload_len);
        let is_whole = size == payload_len || payload_len.is_multiple_of(size);
        self.packets = if size == payload_len { 1 } else { payload_len.div_ceil(size) };
        (self.identification, self.sequence) = (fields.identification, fields.sequence);
        self.first_flags = fields.flags;
        let may_go_on = is_whole
            && self.packets < TCP_PACKETS_MAX
            && fields.flags & ENDING == 0
            && fields.are_true(&self.headers, frame)
            && is_clear(&self.meta, &self.headers);
        if may_go_on {
            self.state = State::Untested;
        }
    }

    /// Payload bytes of each packet of a frame with `payload_len` bytes, if it may start a train.
    fn size_of(&self, meta: &NetHeader, payload_len: u32) -> Option<u32> {
        let size = if meta.is_train() { u32::from(meta.gso_size) } else { payload_len };
        let is_kind = !meta.is_train() || self.is_own_train(meta);
        (is_kind && size > 0 && payload_len > 0).then_some(size)
    }

    /// Whether the frame is a train of this run's kind. Linux does not join UDP trains; and the
    /// packets of a train with the ECN bit differ in CWR.
    fn is_own_train(&self, meta: &NetHeader) -> bool {
        self.headers.is_tcp && !self.is_inside && meta.gso_type == self.headers.gso_type()
    }

    /// Length in bytes of each packet's headers.
    #[inline]
    pub(super) fn headers_len(&self) -> usize {
        usize::from(self.headers.end)
    }

    /// The result. `parts` are those of all runs.
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

    /// Whether `frame` is of this run's flow.
    #[inline]
    pub(super) fn has(&self, templates: &[Template], buf: &[u8], frame: &[u8]) -> bool {
        let outer = templates.get(self.template).and_then(|template| template.outer.as_ref());
        self.headers.is_same_flow(outer, &buf[self.start..self.end], frame)
    }

    /// Ends the run.
    pub(super) fn end(&mut self) {
        self.state = State::Ended;
        self.next = NONE;
    }

    /// Adds `frame` if it is the next packet and fits the train. `template` is that of the run's
    /// headers.
    pub(super) fn join(
        &mut self,
        nexts: &mut Nexts,
        template: &Template,
        buf: &[u8],
        meta: &NetHeader,
        frame: &[u8],
    ) -> bool {
        if let Some(next) = nexts.get_mut(self.next)
            && self.join_as(next, meta, frame)
        {
            return true;
        }
        let first = &buf[self.start..self.end];
        if !self.join_other(template, first, meta, frame) {
            return false;
        }
        self.foretell(nexts, template, first);
        true
    }

    /// The same for a packet that is not as predicted.
    fn join_other(
        &mut self,
        template: &Template,
        first: &[u8],
        meta: &NetHeader,
        frame: &[u8],
    ) -> bool {
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
            // It is of this flow, so nothing after it may join.
            self.end();
            return false;
        }
        self.go_on(packets, payload_len, fields.flags);
        true
    }

    /// Both ports, which distinguish most other flows at low cost.
    #[inline]
    fn ports<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8; 4]> {
        frame.get(self.transport()..)?.first_chunk()
    }

    #[inline(never)]
    fn join_as(&mut self, next: &mut Next, meta: &NetHeader, frame: &[u8]) -> bool {
        self.join_next(next, meta, frame)
    }

    /// As [`Self::join`], for the packet that is predicted as `next`. If it returns false,
    /// [`Self::join`] may still succeed.
    #[expect(clippy::inline_always, reason = "so that pointers stay in registers")]
    #[inline(always)]
    pub(super) fn join_next(&mut self, next: &mut Next, meta: &NetHeader, frame: &[u8]) -> bool {
        let Some((checksum, flags)) = next.numbers.read(&self.headers, frame) else {
            return false;
        };
        let is_next = next.is_like(frame)
            && self.is_numbered_around(frame)
            && self.has_checksum(&next.numbers.pseudo_header, meta, frame, checksum);
        if is_next {
            self.packets += 1;
            self.payload_len += self.size;
            if next.numbers.advance(self.size, flags & LAST_ONLY) {
                self.next = NONE;
                self.settle(flags);
            }
        }
        is_next
    }

    /// Whether `checksum` of a single packet, with this sum of the pseudo-header, is the one that
    /// segmentation would write.
    #[inline]
    fn has_checksum(
        &self,
        pseudo_header: &Sum,
        meta: &NetHeader,
        frame: &[u8],
        checksum: u16,
    ) -> bool {
        match meta.flags {
            _ if meta.is_train() => false,
            NetHeaderFlags::DATA_VALID if !self.is_inside => true,
            0 | NetHeaderFlags::DATA_VALID => {
                pseudo_header.add_bytes(&frame[self.transport()..]).is_valid()
            }
            _ => {
                meta.needs_checksum()
                    && is_clear(meta, &self.headers)
                    && checksum == pseudo_header.partial()
            }
        }
    }

    /// Whether the outer IP header of `frame`, if any, has the next number.
    #[inline]
    fn is_numbered_around(&self, frame: &[u8]) -> bool {
        match &self.tunnel {
            Some(tunnel) => tunnel.has_network(frame, self.packets),
            None => true,
        }
    }

    /// Updates the state after a frame has joined.
    #[inline]
    fn go_on(&mut self, packets: u32, payload_len: u32, flags: u8) {
        self.packets += packets;
        self.payload_len += payload_len;
        self.settle(flags);
        if payload_len != packets * self.size {
            self.end();
        }
    }

    /// Ends the run if its last packet has flags that end a train, or is the last one that a train
    /// may have.
    fn settle(&mut self, flags: u8) {
        self.last_flags = flags & LAST_ONLY;
        if self.packets >= self.packets_max() || flags & ENDING != 0 {
            self.end();
        }
    }

    #[inline]
    fn packets_max(&self) -> u32 {
        if self.headers.is_tcp { TCP_PACKETS_MAX } else { UDP_PACKETS_MAX }
    }

    /// Predicts the next packet, if it may be a full one.
    fn foretell(&mut self, nexts: &mut Nexts, template: &Template, first: &[u8]) {
        let frame_len = self.headers_len() + self.size as usize;
        let room = to_u32(LEN_MAX - self.headers_len()) - self.payload_len;
        if self.state != State::Open || first.len() != frame_len || room < self.size {
            return;
        }
        let ip_len = to_u16(frame_len - self.network());
        let numbers = Numbers {
            left: self.packets_max().saturating_sub(self.packets),
            room,
            frame_len,
            identification: self.identification.wrapping_add(low_half(self.packets)),
            ipv4: u32::from(self.sums.ipv4) + u32::from(ip_len),
            sequence: self.sequence.wrapping_add(self.payload_len),
            pseudo_header: self.sums.pseudo_header.add(to_u16(frame_len - self.transport())),
        };
        match nexts.get_mut(self.next) {
            Some(next) => next.numbers = numbers,
            None => {
                let added = nexts.add(|next| next.set(template, first, numbers));
                self.next = added.unwrap_or(NONE);
            }
        }
    }

    /// Number of packets in a train with `payload_len` bytes of payload; 0 if it may not join.
    #[cold]
    fn packets_of(&self, meta: &NetHeader, payload_len: u32) -> u32 {
        let is_own = self.is_own_train(meta) && u32::from(meta.gso_size) == self.size;
        let packets = payload_len.div_ceil(self.size);
        if is_own && self.packets + packets <= TCP_PACKETS_MAX { packets } else { 0 }
    }

    /// Advances the predicted numbers to the next packet.
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

    /// Writes the train's headers into the first packet, and its metadata.
    pub(super) fn finish(&mut self, buf: &mut [u8]) {
        let frame = &mut buf[self.start..self.end];
        let (network, transport) = (self.network(), self.transport());
        let total = self.headers_len() + self.payload_len as usize;
        if self.headers.is_v4 {
            let len = to_u16(total - network);
            let sum = Sum::from_partial(self.sums.ipv4).add(len).add(self.identification);
            write_u16(frame, network + ipv4::field::TOTAL_LENGTH, len);
            write_u16(frame, network + ipv4::field::CHECKSUM, sum.checksum());
        } else {
            let len = to_u16(total - network - ipv6::HEADER_LEN);
            write_u16(frame, network + ipv6::field::PAYLOAD_LENGTH, len);
        }
        let len = to_u16(total - transport);
        let partial = self.sums.pseudo_header.add(len).partial();
        write_u16(frame, transport + self.headers.checksum_offset(), partial);
        if self.headers.is_tcp {
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
        // No ECN bit: CWR is set in all packets or in none.
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

    /// Whether the checksums of the run's first packet are valid.
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

    /// Whether the checksums of `frame` are those that segmentation would write.
    #[inline]
    fn has_right_checksums(&self, meta: &NetHeader, frame: &[u8], fields: &Fields) -> bool {
        if self.headers.is_v4 && !self.sums.is_right_v4(fields) {
            return false;
        }
        self.has_right_sum(meta, &frame[self.transport()..], fields.checksum)
    }

    /// Whether the outer headers of `frame` are those that segmentation would write for the packet
    /// at `index`.
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

    /// Whether `checksum` of `upper`, TCP or UDP with payload, is the one that segmentation would
    /// write.
    #[inline]
    fn has_right_sum(&self, meta: &NetHeader, upper: &[u8], checksum: u16) -> bool {
        if meta.needs_checksum() {
            let pseudo_header = self.sums.pseudo_header.add(to_u16(upper.len()));
            return checksum == pseudo_header.partial();
        }
        // A train without a partial checksum gets it computed from scratch. If checksums are
        // nested, the metadata refers to the outer one.
        let is_valid = meta.flags & NetHeaderFlags::DATA_VALID != 0 && !self.is_inside;
        let is_vouched = meta.is_train() || is_valid;
        (!self.headers.is_tcp || checksum != 0xffff) && (is_vouched || self.is_right_sum(upper))
    }

    /// Sums TCP or UDP and payload in one pass.
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

/// Values of the fields that differ between packets of a train, from one packet. Absent fields are
/// zero.
#[derive(Clone, Copy, Debug, Default)]
struct Fields {
    /// Length field of the IP header.
    ip_len: u16,
    /// Flags and fragment offset of IPv4.
    fragment: u16,
    identification: u16,
    ip_checksum: u16,
    sequence: u32,
    flags: u8,
    udp_len: u16,
    checksum: u16,
}

impl Fields {
    /// Reads the fields of `frame`, which has these headers.
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

    /// Whether the length fields match the frame, unused fragment flags are clear, and UDP has a
    /// checksum.
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

/// Whether a partial checksum, if any, is that of TCP or UDP, and no unknown flag is set.
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

/// Narrows the length of a payload that matches the packet's length field.
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
pub(super) const LAST_ONLY: u8 = tcp::FIN | tcp::PSH;
/// Flags of a packet after which no other joins (Linux `tcp_gro_receive`).
const ENDING: u8 = LAST_ONLY | SYN | RST | URG;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const URG: u8 = 0x20;
/// Maximum packets of a TCP train, so that metadata can describe any train, with its headers.
#[expect(clippy::cast_possible_truncation, reason = "a few thousand")]
const TCP_PACKETS_MAX: u32 = NetHeader::PACKETS_MAX as u32 / 2;
/// Maximum packets of a UDP train (Linux `UDP_GRO_CNT_MAX`).
const UDP_PACKETS_MAX: u32 = 64;
/// Maximum length of a train in bytes: 65,535 after the Ethernet header (Linux
/// `GRO_LEGACY_MAX_SIZE`).
const LEN_MAX: usize = 65_535 + ethernet::HEADER_LEN;
