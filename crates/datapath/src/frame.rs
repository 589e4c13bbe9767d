//! One frame on its way through the switch: header bytes that may be changed, and a shared rest
//! that is never written.
//!
//! ```text
//!  buf:   [ headroom | headers ... first payload bytes ]   private to this frame or copy
//!                    ^start                            ^end
//!  rest:  [ more payload ]                                 shared between copies
//!  more:  [ payload ] [ payload ] ...                      shared, in several places
//!  beyond: bytes that only the ports can reach, such as a guest's memory
//! ```
//! A frame that a port has read into one buffer of ours is entirely in `buf`. A copy for a bucket
//! that rewrites has its own headers in `buf` and shares the original's payload as `rest`, so a
//! copy costs only its headers. A guest's frame has its headers in `buf` (fetched once, so that the
//! guest cannot change them later) and its payload `beyond`; the datapath knows its length only. A
//! coalesced train has its first packet in `buf` and the payloads of the others as `more`, where
//! they were received.
//!
//! The headroom allows tags to be pushed by moving the two addresses, and a port to put its own
//! header in front without a second buffer.

use std::ops::Range;

use tapswitch_wire::ethernet::{ADDRESSES_LEN, HEADER_LEN, TAG_LEN};
use tapswitch_wire::{
    EtherType, GsoType, Layout, MacAddr, NetHeader, Tag, ethernet, read_u16, tags, tcp, udp,
};

/// Bytes kept free in front of a frame: a virtio network header and a dozen tags.
pub const HEADROOM: usize = 64;

/// Payload in several places of one buffer, in order.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    bytes: &'a [u8],
    base: usize,
    ranges: &'a [Range<usize>],
    len: usize,
}

impl<'a> Parts<'a> {
    /// The `ranges` of a buffer, where `bytes` is the part of that buffer from `base` on. Ranges
    /// outside are left out.
    #[inline]
    pub fn new(bytes: &'a [u8], base: usize, ranges: &'a [Range<usize>]) -> Self {
        let parts = Self { bytes, base, ranges, len: 0 };
        let len = parts.iter().map(<[u8]>::len).sum();
        Self { len, ..parts }
    }

    /// Total number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of places.
    #[inline]
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// The bytes of each place.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (bytes, base) = (self.bytes, self.base);
        self.ranges.iter().map(move |range| {
            let range = range.start.wrapping_sub(base)..range.end.wrapping_sub(base);
            bytes.get(range).unwrap_or_default()
        })
    }
}

/// A frame, its metadata and the offsets of its layers.
#[derive(Debug)]
pub struct Frame<'a> {
    /// What is left undone: a partial checksum, a train to be cut.
    pub meta: NetHeader,
    /// Offsets of the layers from the first byte of the frame; all within the private bytes.
    layout: Layout,
    buf: &'a mut [u8],
    start: usize,
    end: usize,
    rest: &'a [u8],
    more: Option<&'a Parts<'a>>,
    /// Bytes of `more`, and bytes beyond.
    behind_len: usize,
}

impl<'a> Frame<'a> {
    /// The frame in `buf[start..]` with layers as in `layout`, followed by `beyond_len` bytes that
    /// only the ports can reach.
    #[inline]
    pub fn new(
        meta: NetHeader,
        layout: Layout,
        buf: &'a mut [u8],
        start: usize,
        beyond_len: usize,
    ) -> Self {
        debug_assert!(usize::from(layout.end) <= buf.len() - start, "headers must be private");
        let end = buf.len();
        Self { meta, layout, buf, start, end, rest: &[], more: None, behind_len: beyond_len }
    }

    /// The same frame with `more` payload behind its bytes.
    #[inline]
    #[must_use]
    pub fn with_more(self, more: Option<&'a Parts<'a>>) -> Self {
        let behind_len = self.behind_len + more.map_or(0, Parts::len);
        Self { more, behind_len, ..self }
    }

    /// Bytes of the frame on the wire, without the frame check sequence; of a train, those of the
    /// whole train.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start + self.rest.len() + self.behind_len
    }

    /// Always false: a frame has at least an Ethernet header.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Offsets of the layers.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The bytes that are private to this frame: all headers, and possibly payload.
    #[inline]
    pub fn head(&self) -> &[u8] {
        &self.buf[self.start..self.end]
    }

    /// The private bytes, writable.
    #[inline]
    pub fn head_mut(&mut self) -> &mut [u8] {
        &mut self.buf[self.start..self.end]
    }

    /// The shared bytes behind the private ones.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Further shared bytes behind [`Self::rest`], in several places.
    #[inline]
    pub fn more(&self) -> Option<&'a Parts<'a>> {
        self.more
    }

    /// All shared bytes behind the private ones, in order.
    #[inline]
    pub fn parts(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let rest = Some(self.rest).filter(|rest| !rest.is_empty());
        rest.into_iter().chain(self.more.into_iter().flat_map(Parts::iter))
    }

    /// All shared bytes behind the private ones in one piece, copied to `room` if they are in
    /// several places.
    pub fn joined<'b>(&'b self, room: &'b mut Vec<u8>) -> &'b [u8] {
        if self.more.is_none() {
            return self.rest;
        }
        room.clear();
        self.parts().for_each(|part| room.extend_from_slice(part));
        room
    }

    /// Bytes behind [`Self::rest`]: in several places, or beyond.
    #[inline]
    pub fn behind_len(&self) -> usize {
        self.behind_len
    }

    /// Bytes that only the ports can reach.
    #[inline]
    pub fn beyond_len(&self) -> usize {
        self.behind_len - self.more.map_or(0, Parts::len)
    }

    /// The private bytes with `len` writable bytes in front of them, or `None` if the headroom is
    /// used up.
    #[inline]
    pub fn head_with_prefix(&mut self, len: usize) -> Option<&mut [u8]> {
        let from = self.start.checked_sub(len)?;
        Some(&mut self.buf[from..self.end])
    }

    /// The EtherType behind all tags.
    #[inline]
    pub fn eth_type(&self) -> EtherType {
        EtherType(read_u16(self.head(), usize::from(self.layout.network) - 2))
    }

    /// Destination MAC address.
    #[inline]
    pub fn destination(&self) -> MacAddr {
        address(&self.head()[ethernet::field::DST])
    }

    /// Source MAC address.
    #[inline]
    pub fn source(&self) -> MacAddr {
        address(&self.head()[ethernet::field::SRC])
    }

    /// The outermost tag, if any.
    #[inline]
    pub fn outer_tag(&self) -> Option<Tag> {
        self.tag(0)
    }

    /// The tag at `index`, counted from the outermost.
    #[inline]
    pub fn tag(&self, index: usize) -> Option<Tag> {
        let at = ADDRESSES_LEN + index * TAG_LEN;
        (index < usize::from(self.layout.tags))
            .then(|| Tag::new(EtherType(read_u16(self.head(), at)), read_u16(self.head(), at + 2)))
    }

    /// Pushes `tag`. Returns `false`, and changes nothing, if the headroom is used up.
    #[must_use]
    pub fn push_tag(&mut self, tag: Tag) -> bool {
        if !tags::push(self.buf, &mut self.start, &mut self.meta, tag) {
            return false;
        }
        self.layout.tags += 1;
        self.shift_layers(TAG_LEN_I16);
        true
    }

    /// Pops the outermost tag. Returns `false`, and changes nothing, if there is none.
    #[must_use]
    pub fn pop_tag(&mut self) -> bool {
        if self.layout.tags == 0 || tags::pop(self.buf, &mut self.start, &mut self.meta).is_none() {
            return false;
        }
        self.layout.tags -= 1;
        self.shift_layers(-TAG_LEN_I16);
        true
    }

    /// A copy with headers of its own in `scratch` and the payload shared with this frame.
    /// `scratch` is cleared first, and grows only for headers longer than any before. Headers in a
    /// tunnel are copied too if a checksum among them is partial.
    pub fn fork<'b>(&'b self, scratch: &'b mut Vec<u8>) -> Frame<'b> {
        let end = usize::from(self.layout.end);
        let headers_len = match self.has_inner_checksum() {
            true => (usize::from(self.meta.csum_start) + tcp::MAX_HEADER_LEN)
                .clamp(end, self.head().len()),
            false => end,
        };
        let (headers, payload) = self.head().split_at(headers_len);
        debug_assert!(payload.is_empty() || self.rest.is_empty(), "a fork holds headers only");
        scratch.clear();
        scratch.resize(HEADROOM, 0);
        scratch.extend_from_slice(headers);
        Frame {
            meta: self.meta,
            layout: self.layout,
            start: HEADROOM,
            end: scratch.len(),
            buf: scratch,
            rest: if payload.is_empty() { self.rest } else { payload },
            more: self.more,
            behind_len: self.behind_len,
        }
    }

    /// Number of packets that the frame makes on the wire; 1 unless it is a train.
    #[inline]
    pub fn wire_packets(&self) -> u32 {
        if !self.meta.is_train() {
            return 1;
        }
        self.meta.wire_packets(self.len() - self.headers_end())
    }

    /// True if the partial checksum is behind the parsed headers: in a tunnel.
    #[inline]
    pub fn has_inner_checksum(&self) -> bool {
        self.meta.needs_checksum() && self.meta.csum_start >= self.layout.end
    }

    /// End of the headers that each packet of a train has; in a tunnel, of the inner ones.
    #[inline]
    fn headers_end(&self) -> usize {
        match self.has_inner_checksum() {
            true => self.inner_headers_end(),
            false => usize::from(self.layout.end),
        }
    }

    #[cold]
    fn inner_headers_end(&self) -> usize {
        let at = usize::from(self.meta.csum_start);
        let len = match self.meta.gso_type.inner().kind() {
            GsoType::UDP_L4 => udp::HEADER_LEN,
            _ => {
                let segment = self.head().get(at..).unwrap_or_default();
                tcp::header_len(segment).unwrap_or(tcp::MIN_HEADER_LEN)
            }
        };
        (at + len).min(self.len())
    }

    /// Bytes of the longest packet that the frame makes on the wire, Ethernet header included.
    pub fn packet_len(&self) -> usize {
        self.link_len() + self.network_len()
    }

    /// Bytes of all packets that the frame makes on the wire, headers included.
    pub fn wire_len(&self) -> usize {
        self.part_len(usize::MAX)
    }

    /// Total bytes of the first `snaplen` bytes of each packet. For a train of many packets this
    /// may exceed its own length, because each packet has its own headers.
    pub fn part_len(&self, snaplen: usize) -> usize {
        let longest = self.packet_len();
        let count = self.wire_packets() as usize;
        if count <= 1 || longest >= self.len() {
            return self.len().min(snaplen);
        }
        let headers = longest - usize::from(self.meta.gso_size);
        let payload = self.len() - headers;
        let last = headers + payload.saturating_sub((count - 1) * usize::from(self.meta.gso_size));
        (count - 1) * longest.min(snaplen) + last.min(snaplen)
    }

    /// Length in bytes of addresses, tags and the type or length field. In a frame with a length
    /// field, LLC and SNAP are payload (IEEE 802.3-2022 §3.2.6), and the network layer starts
    /// behind them.
    #[inline]
    pub fn link_len(&self) -> usize {
        HEADER_LEN + usize::from(self.layout.tags) * TAG_LEN
    }

    /// Bytes that the MTU limits: everything behind the link-layer header; of a train, those of its
    /// longest packet (IEEE 802.3as counts tags separately).
    #[inline]
    pub fn network_len(&self) -> usize {
        let whole = self.len() - self.link_len();
        if !self.meta.is_train() {
            return whole;
        }
        // The fragments of a datagram carry its UDP header only once, as payload; those of IPv6
        // have a fragment header instead, which has the same length.
        let is_ufo_v4 =
            self.meta.gso_type.kind() == GsoType::UDP && self.eth_type() == EtherType::IPV4;
        let not_repeated = if is_ufo_v4 { udp::HEADER_LEN } else { 0 };
        let headers = self.headers_end() - self.link_len();
        let headers = headers.saturating_sub(not_repeated);
        whole.min(headers + usize::from(self.meta.gso_size))
    }

    fn shift_layers(&mut self, delta: i16) {
        let layout = &mut self.layout;
        layout.network = layout.network.saturating_add_signed(delta);
        layout.transport = layout.transport.map(|at| at.saturating_add_signed(delta));
        layout.end = layout.end.saturating_add_signed(delta);
    }
}

const TAG_LEN_I16: i16 = 4;
const _: () = assert!(TAG_LEN == 4, "one constant in two types");

fn address(bytes: &[u8]) -> MacAddr {
    bytes.first_chunk().copied().map_or(MacAddr::ZERO, MacAddr)
}

#[cfg(test)]
mod tests {
    use tapswitch_wire::{GsoType, NetHeaderFlags, parse};

    use super::*;
    use crate::test_frames::tcp_frame;

    const META: NetHeader = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::TCPV4,
        hdr_len: 54,
        gso_size: 1000,
        csum_start: 34,
        csum_offset: 16,
    };
    const SERVICE: Tag = Tag::new(EtherType::SERVICE_VLAN, 0x2064);

    fn with_headroom(frame: &[u8]) -> Vec<u8> {
        [vec![0; HEADROOM], frame.to_vec()].concat()
    }

    fn frame(buf: &mut [u8]) -> Frame<'_> {
        let layout = parse(&buf[HEADROOM..]).unwrap().layout;
        Frame::new(META, layout, buf, HEADROOM, 0)
    }

    #[test]
    fn a_pushed_tag_moves_everything_behind_it() {
        let original = tcp_frame(2500);
        let mut buf = with_headroom(&original);
        let mut frame = frame(&mut buf);
        assert!(frame.push_tag(SERVICE));
        let expected = [&original[..12], &[0x88, 0xa8, 0x20, 0x64], &original[12..]].concat();
        assert_eq!(frame.head(), expected);
        assert_eq!(*frame.layout(), parse(&expected).unwrap().layout);
        assert_eq!((frame.meta.csum_start, frame.meta.hdr_len), (38, 58));
        assert_eq!((frame.outer_tag(), frame.eth_type()), (Some(SERVICE), EtherType::IPV4));
        assert!(frame.pop_tag() && !frame.pop_tag());
        assert_eq!((frame.head(), frame.meta), (&original[..], META));
    }

    /// The bytes behind [`tcp_frame`]'s headers are parsed as another pair of headers.
    #[test]
    fn headers_in_a_tunnel_are_each_packets_own() {
        let mut original = tcp_frame(3054);
        original[54 + 34 + 12] = 0x80;
        let mut buf = with_headroom(&original);
        let layout = parse(&original).unwrap().layout;
        let meta = NetHeader { csum_start: 54 + 34, ..META };
        let tunnelled = Frame::new(meta, layout, &mut buf, HEADROOM, 0);
        let headers = 54 + 34 + 32;
        assert_eq!(tunnelled.packet_len(), headers + 1000);
        assert_eq!(tunnelled.wire_packets(), 3, "{} bytes of payload", 54 + 3054 - headers);
        let mut scratch = Vec::new();
        let fork = tunnelled.fork(&mut scratch);
        assert_eq!(fork.head(), &original[..54 + 34 + 60]);
        assert_eq!((fork.packet_len(), fork.wire_packets()), (headers + 1000, 3));
        let mut again = Vec::new();
        assert_eq!(fork.fork(&mut again).head(), fork.head());
    }

    #[test]
    fn headroom_bounds_the_tags() {
        let mut buf = with_headroom(&tcp_frame(10));
        let mut frame = frame(&mut buf);
        for _ in 0..HEADROOM / 4 {
            assert!(frame.push_tag(SERVICE));
        }
        let len = frame.len();
        assert!(!frame.push_tag(SERVICE) && frame.len() == len);
        assert!(frame.head_with_prefix(1).is_none());
    }

    #[test]
    fn a_fork_shares_payload_and_owns_headers() {
        let original = tcp_frame(2500);
        let mut buf = with_headroom(&original);
        let frame = frame(&mut buf);
        let mut scratch = Vec::new();
        let mut fork = frame.fork(&mut scratch);
        assert_eq!([fork.head(), fork.rest()].concat(), original);
        assert_eq!(fork.rest().as_ptr(), frame.head()[54..].as_ptr(), "no payload is copied");
        assert!(fork.push_tag(SERVICE));
        fork.head_mut()[0] = 0xee;
        assert_eq!(frame.head(), original, "the original stays as it was");
        let mut second = Vec::new();
        let refork = fork.fork(&mut second);
        assert_eq!((refork.head(), refork.rest()), (fork.head(), fork.rest()));
    }

    #[test]
    fn payload_may_lie_in_several_places() {
        let original = tcp_frame(2500);
        let mut buf = [vec![0; HEADROOM], original[..1054].to_vec(), vec![9; 70]].concat();
        let base = buf.len();
        buf.extend(&original[1054..2054]);
        buf.extend([9; 20]);
        buf.extend(&original[2054..]);
        let ranges = [base..base + 1000, base + 1020..base + 1520];
        let (head, tail) = buf.split_at_mut(HEADROOM + 1054);
        let parts = Parts::new(tail, HEADROOM + 1054, &ranges);
        assert_eq!((parts.len(), parts.is_empty(), parts.count()), (1500, false, 2));
        let mut frame = frame(head).with_more(Some(&parts));
        assert_eq!((frame.len(), frame.wire_packets(), frame.beyond_len()), (2554, 3, 0));
        let shared: Vec<_> = frame.parts().flatten().copied().collect();
        assert!([frame.head(), &shared].concat() == original);
        assert!(frame.joined(&mut Vec::new()) == shared);
        assert!(frame.push_tag(SERVICE));
        let mut scratch = Vec::new();
        let fork = frame.fork(&mut scratch);
        assert_eq!((fork.len(), fork.head().len()), (2558, 58));
        let of_fork: Vec<_> = fork.parts().flatten().copied().collect();
        assert!(of_fork == original[54..]);
        let outside = [base + 1000..usize::MAX, 0..5];
        assert!(Parts::new(tail, HEADROOM + 1054, &outside).is_empty());
    }

    #[test]
    fn a_train_is_judged_by_its_packets() {
        let mut buf = with_headroom(&tcp_frame(2500));
        let mut frame = frame(&mut buf);
        assert_eq!((frame.wire_packets(), frame.network_len()), (3, 1040));
        frame.meta = NetHeader::PLAIN;
        assert_eq!((frame.wire_packets(), frame.network_len()), (1, 2540));
    }

    /// What is behind a length field is payload, whatever it looks like.
    #[test]
    fn logical_link_control_is_payload() {
        let snap = [&[0; 12][..], &[0x05, 0xe4, 0xaa, 0xaa, 3, 0, 0, 0, 0x88, 0xb5]].concat();
        let tagged = [&[0; 12][..], &[0x81, 0, 0, 5], &snap[12..]].concat();
        for (headers, link_len) in [(snap, 14), (tagged, 18)] {
            let mut buf = with_headroom(&[&headers[..], &[7; 1500]].concat());
            let mut frame = frame(&mut buf);
            frame.meta = NetHeader::PLAIN;
            assert_eq!(frame.eth_type(), EtherType(0x88b5));
            assert_eq!((frame.network_len(), frame.link_len()), (1508, link_len));
            assert_eq!(frame.packet_len(), frame.len());
        }
    }

    #[test]
    fn a_fragment_repeats_no_udp_header() {
        let datagram = [&tcp_frame(0)[..34], &[0; 8], &[7; 3000]].concat();
        let mut buf = with_headroom(&datagram);
        buf[HEADROOM + 23] = 17;
        let mut frame = frame(&mut buf);
        frame.meta = NetHeader { gso_type: GsoType::UDP, gso_size: 1480, ..NetHeader::PLAIN };
        assert_eq!(frame.network_len(), 1500);
    }
}
