//! Memory for the frames that one call receives, owned by the caller and allocated once.
//!
//! ```text
//! slab  | headroom | prefix | headers, payload | headroom | prefix | headers, payload | ... |
//!                                     ^ a multiple of 64 bytes
//! ```
//!
//! Frames are packed in one slab: small ones share few pages and cache lines, and a train of 64 KiB
//! is the last of its burst, so that it is still cached when it is sent. The length of a frame is
//! only known after the read, so a read needs [`BurstSize::max_frame_len`] free bytes.
//!
//! The payload of a train starts at a cache line if its headers are as long as those of the train
//! before it, at first those of TCP over IPv4 with timestamps. The kernel copies it from an address
//! that is mostly a multiple of 8 or 16, and AMD's `rep movsb` takes many times as long if the
//! destination is 1 to 15 bytes further in its page than the source ("Long copies" in
//! `docs/benchmarks.md`). If both are multiples of 8, that is one case in 512; if the frame started
//! at a cache line, it would be two; and none if both are multiples of 16.

use std::fmt;

use tapswitch_wire::NetHeader;

use super::layout::{MAX_PREFIX_LEN, protocol_of};
use super::{Frame, FrameMut, Slot};
use crate::{Kind, MAX_FRAME_LEN, PacketInfo, Prefix};

/// Capacity of a [`Burst`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BurstSize {
    /// Maximum number of frames.
    pub frames: usize,
    /// The burst is full after this many bytes; the last frame may exceed it.
    pub bytes: usize,
    /// Headroom before each frame in bytes, for tags and tunnel headers.
    pub headroom: usize,
    /// Maximum length of a frame in bytes, without metadata. A longer one is dropped and reported
    /// as [`RecvError::Lost`](crate::RecvError::Lost) with `EMSGSIZE`, never truncated.
    pub max_frame_len: usize,
}

impl BurstSize {
    /// 64 small frames, some twenty at an MTU of 1500, or one train; 64 bytes of headroom; any
    /// frame length.
    pub const DEFAULT: Self =
        Self { frames: 64, bytes: 32 * 1024, headroom: 64, max_frame_len: MAX_FRAME_LEN };

    /// Room for `frames` frames of any length, for an engine that reads several frames in one call
    /// before it knows their lengths.
    #[must_use]
    pub const fn spread(frames: usize) -> Self {
        let each = Self::DEFAULT.stride();
        Self { frames, bytes: frames.saturating_sub(1).saturating_mul(each), ..Self::DEFAULT }
    }

    /// Changes [`Self::frames`].
    #[must_use]
    pub const fn frames(self, frames: usize) -> Self {
        Self { frames, ..self }
    }

    /// Changes [`Self::bytes`].
    #[must_use]
    pub const fn bytes(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    /// Changes [`Self::headroom`].
    #[must_use]
    pub const fn headroom(self, headroom: usize) -> Self {
        Self { headroom, ..self }
    }

    /// Changes [`Self::max_frame_len`].
    #[must_use]
    pub const fn max_frame_len(self, max_frame_len: usize) -> Self {
        Self { max_frame_len, ..self }
    }

    /// Bytes that a frame of maximum length takes.
    const fn stride(&self) -> usize {
        let in_front = self.headroom.saturating_add(MAX_PREFIX_LEN + LINE_LEN);
        in_front.saturating_add(self.max_frame_len).saturating_add(1) / LINE_LEN * LINE_LEN
            + LINE_LEN
    }
}

impl Default for BurstSize {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The frames received by one call, and their memory. See [`BurstSize`].
///
/// ```
/// use tapswitch_tap::{Burst, NetHeader};
///
/// let mut burst = Burst::default();
/// assert!(burst.push(&NetHeader::PLAIN, &[b"any ", b"bytes"]));
/// for mut frame in burst.iter_mut() {
///     frame.bytes_mut()[0] = b'A';
/// }
/// assert_eq!(burst.iter().next().unwrap().bytes(), b"Any bytes");
/// ```
pub struct Burst {
    slab: Box<[u8]>,
    /// Ordered by base. Never longer than `size.frames`, so it never allocates.
    slots: Vec<Slot>,
    size: BurstSize,
    /// The first byte of the slab whose address is a multiple of [`LINE_LEN`].
    origin: usize,
    /// End of the last frame, or `origin`.
    end: usize,
    /// Layout of all prefixes.
    layout: Prefix,
    /// Kind of the queue.
    kind: Kind,
    /// Length of the headers of the last train, or of usual ones.
    headers_len: usize,
}

impl Burst {
    /// Allocates memory as specified by `size`: `size.bytes` and one more frame.
    pub fn new(size: BurstSize) -> Self {
        let slab = vec![0; LINE_LEN + size.bytes + size.stride()].into_boxed_slice();
        let origin = slab.as_ptr().align_offset(LINE_LEN).min(LINE_LEN);
        let slots = Vec::with_capacity(size.frames);
        let (kind, layout) = (Kind::Tap, Prefix::NET_HEADER);
        let headers_len = headers_len(kind);
        Self { slab, slots, size, origin, end: origin, layout, kind, headers_len }
    }

    /// Adds a frame that consists of `parts`. Returns `false` without a change if the burst is full
    /// or the frame is longer than [`BurstSize::max_frame_len`]. Protocol information, if the burst
    /// has it, is derived from the IP version of the packet; [`FrameMut::set_packet_info`] changes
    /// it.
    pub fn push(&mut self, header: &NetHeader, parts: &[&[u8]]) -> bool {
        let layout = self.layout;
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        if len > self.size.max_frame_len {
            return false;
        }
        let Some(room) = self.room(layout) else { return false };
        let (prefix, mut rest) = room.split_at_mut(layout.len());
        prefix.fill(0);
        layout.set_header(prefix, header);
        let protocol = protocol_of(parts.iter().copied());
        layout.set_packet_info(prefix, PacketInfo { cut: false, protocol });
        for part in parts {
            let (place, behind) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = behind;
        }
        self.commit(layout, layout.len() + len)
    }

    /// Removes all frames.
    #[inline]
    pub fn clear(&mut self) {
        self.slots.clear();
        self.end = self.origin;
    }

    /// Removes the frames for which `keep` returns `false`. No bytes are moved.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut FrameMut<'_>) -> bool) {
        let mut cutter = Cutter { rest: &mut self.slab, at: 0 };
        let layout = self.layout;
        self.slots.retain_mut(|slot| {
            let Some(region) = cutter.cut(slot) else { return false };
            keep(&mut FrameMut { slot, region, layout })
        });
    }

    /// Iterates over the frames, mutably.
    #[inline]
    pub fn iter_mut(&mut self) -> FramesMut<'_> {
        let cutter = Cutter { rest: &mut self.slab, at: 0 };
        FramesMut { slots: self.slots.iter_mut(), cutter, layout: self.layout }
    }

    /// Iterates over the frames in the order of reception.
    #[inline]
    pub fn iter(&self) -> Frames<'_> {
        Frames { slots: self.slots.iter(), slab: &self.slab, layout: self.layout }
    }

    /// Number of frames.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if there are no frames.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The capacity.
    pub fn size(&self) -> BurstSize {
        self.size
    }

    /// Removes all frames, and sets the kind and layout of the queue that the next ones come from.
    #[inline]
    pub(crate) fn begin(&mut self, kind: Kind, layout: Prefix) {
        if kind != self.kind {
            (self.kind, self.headers_len) = (kind, headers_len(kind));
        } else if let Some(len) = self.headers_len_of_train() {
            self.headers_len = len;
        }
        self.clear();
        self.layout = layout.in_burst();
    }

    /// Length of the headers of the last frame, if it is a train.
    #[inline]
    fn headers_len_of_train(&self) -> Option<usize> {
        let slot = self.slots.last()?;
        let header = self.layout.header(self.slab.get(slot.start - self.layout.len()..)?);
        (header.is_train() && header.hdr_len != 0).then_some(header.hdr_len.into())
    }

    /// Memory for the next prefix and frame: enough for both and one byte, so that a filled room
    /// means a truncated frame. `None` if the burst is full.
    ///
    /// `layout` is the queue's layout, as passed to [`Self::begin`]. Followed by [`Self::commit`].
    #[inline]
    pub(crate) fn room(&mut self, layout: Prefix) -> Option<&mut [u8]> {
        if self.slots.len() >= self.size.frames || self.end - self.origin > self.size.bytes {
            return None;
        }
        let at = self.next_start() - layout.len();
        self.slab.get_mut(at..)
    }

    /// Makes the first `packet_len` bytes of [`Self::room`] the next frame. Returns `false` without
    /// a change if they fill the room (the frame may be truncated) or are shorter than a prefix.
    #[inline]
    pub(crate) fn commit(&mut self, layout: Prefix, packet_len: usize) -> bool {
        self.commit_at(layout, self.next_start(), packet_len)
    }

    #[inline]
    fn commit_at(&mut self, layout: Prefix, start: usize, packet_len: usize) -> bool {
        let prefix_len = layout.len();
        if packet_len < prefix_len || start - prefix_len + packet_len >= self.slab.len() {
            return false;
        }
        if layout != self.layout {
            layout.expand(&mut self.slab[self.end..start]);
        }
        let slot = Slot { base: self.end, start, len: packet_len - prefix_len };
        self.end = start + slot.len;
        self.slots.push(slot);
        true
    }

    /// Memory for several frames of unknown length, like [`Self::room`] for one. Followed by
    /// [`Self::commit_spread`].
    pub(crate) fn spread(&mut self, layout: Prefix) -> impl Iterator<Item = &mut [u8]> {
        let count = self.size.frames - self.slots.len();
        let at = self.next_start() - layout.len();
        let room_len = self.spread_room_len(layout);
        let places = self.slab.get_mut(at..).unwrap_or_default().chunks_mut(self.size.stride());
        places.take(count).filter_map(move |place| place.get_mut(..room_len))
    }

    /// Makes frames from the rooms of [`Self::spread`], in order: `packet_lens` are the bytes in
    /// each, or `None`. Returns how many are no frames by the rule of [`Self::commit`].
    pub(crate) fn commit_spread(
        &mut self,
        layout: Prefix,
        packet_lens: impl Iterator<Item = Option<usize>>,
    ) -> usize {
        let (first, stride) = (self.next_start(), self.size.stride());
        let room_len = self.spread_room_len(layout);
        let mut spoiled = 0;
        for (index, len) in packet_lens.enumerate() {
            let Some(len) = len else { continue };
            let start = first + index * stride;
            spoiled += usize::from(len >= room_len || !self.commit_at(layout, start, len));
        }
        spoiled
    }

    const fn spread_room_len(&self, layout: Prefix) -> usize {
        layout.len() + self.size.max_frame_len + 1
    }

    /// Where the next frame starts.
    #[inline]
    const fn next_start(&self) -> usize {
        let at = self.end - self.origin + self.size.headroom + MAX_PREFIX_LEN;
        self.origin + (at + self.headers_len).next_multiple_of(LINE_LEN) - self.headers_len
    }
}

/// Length of the headers of TCP with timestamps over IPv4, which most trains have.
const fn headers_len(kind: Kind) -> usize {
    match kind {
        Kind::Tap => 14 + 20 + 32,
        Kind::Tun => 20 + 32,
    }
}

impl Default for Burst {
    fn default() -> Self {
        Self::new(BurstSize::DEFAULT)
    }
}

impl fmt::Debug for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slots, size, layout, .. } = self;
        let mut fields = f.debug_struct("Burst");
        fields.field("frames", &slots.len()).field("size", size).field("layout", layout);
        fields.finish_non_exhaustive()
    }
}

impl<'a> IntoIterator for &'a Burst {
    type Item = Frame<'a>;
    type IntoIter = Frames<'a>;

    #[inline]
    fn into_iter(self) -> Frames<'a> {
        self.iter()
    }
}

impl<'a> IntoIterator for &'a mut Burst {
    type Item = FrameMut<'a>;
    type IntoIter = FramesMut<'a>;

    #[inline]
    fn into_iter(self) -> FramesMut<'a> {
        self.iter_mut()
    }
}

/// Iterator over the frames of a [`Burst`].
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    slots: std::slice::Iter<'a, Slot>,
    slab: &'a [u8],
    layout: Prefix,
}

impl<'a> Iterator for Frames<'a> {
    type Item = Frame<'a>;

    #[inline]
    fn next(&mut self) -> Option<Frame<'a>> {
        let slot = self.slots.next()?;
        let range = slot.start - self.layout.len()..slot.start + slot.len;
        Some(Frame { packet: self.slab.get(range)?, layout: self.layout })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.slots.size_hint()
    }
}

impl ExactSizeIterator for Frames<'_> {}

/// Mutable iterator over the frames of a [`Burst`].
#[derive(Debug)]
pub struct FramesMut<'a> {
    slots: std::slice::IterMut<'a, Slot>,
    cutter: Cutter<'a>,
    layout: Prefix,
}

impl<'a> Iterator for FramesMut<'a> {
    type Item = FrameMut<'a>;

    #[inline]
    fn next(&mut self) -> Option<FrameMut<'a>> {
        let slot = self.slots.next()?;
        let region = self.cutter.cut(slot)?;
        Some(FrameMut { slot, region, layout: self.layout })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.slots.size_hint()
    }
}

impl ExactSizeIterator for FramesMut<'_> {}

/// Splits a slab into the regions of its slots, front to back.
#[derive(Debug)]
struct Cutter<'a> {
    rest: &'a mut [u8],
    /// Offset of `rest` in the slab.
    at: usize,
}

impl<'a> Cutter<'a> {
    /// From the slot's base to the end of its frame. Never `None`, as slots are ordered.
    #[inline]
    fn cut(&mut self, slot: &Slot) -> Option<&'a mut [u8]> {
        let (_, from_base) =
            std::mem::take(&mut self.rest).split_at_mut_checked(slot.base - self.at)?;
        let end = slot.start + slot.len;
        let (region, rest) = from_base.split_at_mut_checked(end - slot.base)?;
        (self.rest, self.at) = (rest, end);
        Some(region)
    }
}

/// Length in bytes of a cache line.
const LINE_LEN: usize = 64;

#[cfg(test)]
mod tests {
    use tapswitch_wire::{EtherType, GsoType};

    use super::*;
    use crate::HeaderLen;

    #[test]
    fn payload_of_the_next_train_lies_at_a_cache_line_whatever_its_headers() {
        let mut burst = Burst::default();
        let mut payload_offset = |headers_len: u16, gso_type| {
            burst.begin(Kind::Tap, Prefix::NET_HEADER);
            let header = NetHeader { gso_type, hdr_len: headers_len, ..NetHeader::PLAIN };
            assert!(burst.push(&header, &[&[0; 3000]]));
            let frame = burst.iter().next().unwrap();
            (frame.bytes().as_ptr().addr() + usize::from(headers_len)) % LINE_LEN
        };
        assert_eq!(payload_offset(66, GsoType::TCPV4), 0);
        assert_eq!(payload_offset(42, GsoType::UDP_L4), 42 + LINE_LEN - 66);
        assert_eq!(payload_offset(42, GsoType::UDP_L4), 0);
        // Single packets in between do not matter.
        assert_eq!(payload_offset(0, GsoType::NONE), LINE_LEN - 42);
        assert_eq!(payload_offset(42, GsoType::UDP_L4), 0);
        assert_eq!(payload_offset(65_000, GsoType::TCPV6), (65_000 - 42) % LINE_LEN);
        assert_eq!(payload_offset(65_000, GsoType::TCPV6), 0);
    }

    #[test]
    fn payload_lies_at_cache_lines_behind_headroom_and_frames_keep_their_bytes() {
        let mut burst = Burst::new(BurstSize::DEFAULT.frames(5).headroom(100));
        for (index, len) in [0, 1, 60, 1514, 64].into_iter().enumerate() {
            let byte = u8::try_from(index).unwrap();
            assert!(burst.push(&header(byte), &[&vec![byte; len]]));
        }
        assert!(!burst.push(&NetHeader::PLAIN, &[b"one too many"]));
        for (index, mut frame) in burst.iter_mut().enumerate() {
            let byte = u8::try_from(index).unwrap();
            assert_eq!(frame.bytes().as_ptr().align_offset(LINE_LEN), 66 % LINE_LEN);
            assert!(frame.headroom() >= 100);
            frame.push_front(100).unwrap()[..100].fill(0xff - byte);
        }
        for (index, frame) in burst.iter().enumerate() {
            let byte = u8::try_from(index).unwrap();
            let (pushed, rest) = frame.bytes().split_at(100);
            assert_eq!(frame.header(), header(byte));
            assert!(pushed.iter().all(|&pushed| pushed == 0xff - byte));
            assert!(rest.iter().all(|&kept| kept == byte));
        }
    }

    #[test]
    fn a_frame_grows_and_shrinks_at_its_front_and_shrinks_at_its_end() {
        let mut burst = Burst::default();
        burst.push(&header(7), &[b"0123456789"]);
        let mut frame = burst.iter_mut().next().unwrap();
        assert_eq!(frame.pull_front(4).unwrap(), b"456789");
        assert_eq!(
            frame.push_front(1).unwrap(),
            b"?456789".map(|byte| if byte == b'?' { 0 } else { byte })
        );
        frame.truncate(3);
        frame.truncate(5);
        assert_eq!((frame.header(), &frame.bytes()[1..]), (header(7), &b"45"[..]));
        assert!(frame.pull_front(4).is_none());
        let headroom = frame.headroom();
        assert!(frame.push_front(headroom + 1).is_none());
        assert_eq!(frame.push_front(headroom).unwrap().len(), headroom + 3);
        assert_eq!(burst.iter().next().unwrap().header(), header(7));
    }

    #[test]
    fn forgotten_frames_leave_the_others_alone() {
        let mut burst = Burst::default();
        for byte in 0..10 {
            burst.push(&header(byte), &[&[byte; 100]]);
        }
        burst.retain(|frame| frame.bytes()[0] % 3 == 0);
        burst.iter_mut().for_each(|mut frame| frame.bytes_mut()[1] = 0xff);
        let kept = burst.iter().map(|frame| frame.bytes()[..3].to_vec()).collect::<Vec<_>>();
        assert_eq!(kept, [[0, 0xff, 0], [3, 0xff, 3], [6, 0xff, 6], [9, 0xff, 9]]);
    }

    #[test]
    fn a_burst_takes_one_frame_of_the_greatest_length_when_it_is_not_full() {
        let longest = vec![1; MAX_FRAME_LEN];
        let mut burst = Burst::new(BurstSize::DEFAULT.bytes(0));
        assert!(!burst.push(&NetHeader::PLAIN, &[&longest, &[1]]));
        assert!(burst.push(&NetHeader::PLAIN, &[&longest]));
        assert!(!burst.push(&NetHeader::PLAIN, &[&[1]]));
        burst.clear();
        assert!(burst.push(&NetHeader::PLAIN, &[&[1]]));

        let mut burst = Burst::new(BurstSize::spread(3));
        for _ in 0..3 {
            assert!(burst.push(&NetHeader::PLAIN, &[&longest]));
        }
    }

    #[test]
    fn what_is_added_has_the_protocol_information_of_its_packet() {
        let layout = Prefix { packet_info: true, net_header: HeaderLen::None };
        let mut burst = Burst::default();
        burst.begin(Kind::Tap, layout);
        for first in [0x45, 0x60, 0x80] {
            assert!(burst.push(&NetHeader::PLAIN, &[&[], &[first], &[0; 40]]));
        }
        let protocols = |burst: &Burst| {
            let infos = burst.iter().map(|frame| frame.packet_info().unwrap().protocol);
            infos.collect::<Vec<_>>()
        };
        assert_eq!(protocols(&burst), [EtherType::IPV4, EtherType::IPV6, EtherType(0)]);
        let info = PacketInfo { cut: false, protocol: EtherType(0x88b5) };
        burst.iter_mut().last().unwrap().set_packet_info(info);
        assert_eq!(protocols(&burst)[2], info.protocol);
    }

    #[test]
    fn what_fills_the_room_is_not_taken_for_a_frame() {
        let mut burst = Burst::new(BurstSize::DEFAULT.bytes(0).max_frame_len(100));
        burst.begin(Kind::Tap, Prefix::NET_HEADER);
        let room_len = burst.room(Prefix::NET_HEADER).unwrap().len();
        assert!(room_len > 112);
        assert!(!burst.commit(Prefix::NET_HEADER, room_len));
        assert!(!burst.commit(Prefix::NET_HEADER, 11));
        assert!(burst.is_empty());
        assert!(burst.commit(Prefix::NET_HEADER, 12));
        assert_eq!(burst.iter().next().unwrap().bytes(), []);
    }

    fn header(gso_size: u8) -> NetHeader {
        NetHeader { gso_size: gso_size.into(), ..NetHeader::PLAIN }
    }
}
