//! Operations on the VLAN tag stack of a frame, train or not (IEEE 802.1Q-2022 §6.9, §9).
//!
//! A frame is in `buf[start..]` with headroom before it. A tag is inserted by moving the bytes
//! *before* its position (the addresses and the outer tags) into the headroom, and removed by
//! moving the same bytes back: at most 12 bytes and the outer tags, never the payload, however long
//! the train. The offsets of the metadata are relative to the start of the frame and are adjusted.
//!
//! Tags are numbered from the outermost, which is 0. [`EtherType::is_tag`] defines what counts as a
//! tag: 0x8100, 0x88a8 and 0x9100. Only complete tags, followed by a type field, are recognised; a
//! truncated stack ends before the incomplete tag.
//!
//! Each operation either succeeds or changes nothing.

use crate::ethernet::{ADDRESSES_LEN, HEADER_LEN, TAG_LEN};
use crate::{EtherType, LongNetHeader, NetHeader, Tag, write_u16};

/// Metadata with offsets into a frame, in bytes from its start.
pub trait Offsets {
    /// Adjusts the offsets after `delta` bytes were inserted into the link-layer header, or
    /// removed.
    fn shift(&mut self, delta: i16);
}

impl Offsets for NetHeader {
    #[inline]
    fn shift(&mut self, delta: i16) {
        Self::shift(self, delta);
    }
}

impl Offsets for LongNetHeader {
    #[inline]
    fn shift(&mut self, delta: i16) {
        Self::shift(self, delta);
    }
}

/// Maximum number of tags to parse; the rest counts as payload. One more than fits the maximum
/// envelope of a port (500 bytes), so that no port accepts a frame with more.
pub const MAX_TAGS: usize = 126;

/// Number of complete tags at the start of `frame`, at most [`MAX_TAGS`].
pub fn count(frame: &[u8]) -> usize {
    (0..MAX_TAGS).take_while(|index| get(frame, *index).is_some()).count()
}

/// The tag at `index` of `frame`, or `None` if there are fewer.
///
/// Checks that position only: the caller knows that all positions before it are tags, from
/// [`count`] or from its own loop.
#[inline]
pub fn get(frame: &[u8], index: usize) -> Option<Tag> {
    let at = place(index)?;
    let &[t0, t1, c0, c1, _, _] = frame.get(at..)?.first_chunk()?;
    let tpid = EtherType(u16::from_be_bytes([t0, t1]));
    tpid.is_tag().then(|| Tag::new(tpid, u16::from_be_bytes([c0, c1])))
}

/// Pushes `tag` as the outermost one. Returns `false` without a change if there is no headroom or
/// the frame is shorter than an Ethernet header.
#[inline]
#[must_use = "a frame without headroom stays untagged"]
pub fn push(buf: &mut [u8], start: &mut usize, meta: &mut impl Offsets, tag: Tag) -> bool {
    // Of constant length, so that it is moved in registers.
    let front = start.checked_sub(TAG_LEN).and_then(|start| buf.get_mut(start..));
    let Some(front) = front.and_then(|front| front.first_chunk_mut::<FRONT_LEN>()) else {
        return false;
    };
    front.copy_within(TAG_LEN..TAG_LEN + ADDRESSES_LEN, 0);
    let ([p0, p1], [c0, c1]) = (tag.tpid, tag.tci);
    front[ADDRESSES_LEN..ADDRESSES_LEN + TAG_LEN].copy_from_slice(&[p0, p1, c0, c1]);
    *start -= TAG_LEN;
    meta.shift(TAG_LEN_I16);
    true
}

/// Pops the outermost tag and returns it, or `None` if there is none.
#[inline]
pub fn pop(buf: &mut [u8], start: &mut usize, meta: &mut impl Offsets) -> Option<Tag> {
    let front = buf.get_mut(*start..)?.first_chunk_mut::<FRONT_LEN>()?;
    let tag = get(front, 0)?;
    front.copy_within(..ADDRESSES_LEN, TAG_LEN);
    *start += TAG_LEN;
    meta.shift(-TAG_LEN_I16);
    Some(tag)
}

/// Inserts `tag` after the first `index` tags. Returns `false` without a change if there is no
/// headroom or there are fewer than `index` tags.
#[must_use = "a frame without headroom or with fewer tags stays as it is"]
pub fn insert(
    buf: &mut [u8],
    start: &mut usize,
    meta: &mut impl Offsets,
    index: usize,
    tag: Tag,
) -> bool {
    match buf.get(*start..) {
        Some(frame) if has(frame, index) => {
            open(buf, start, meta, ADDRESSES_LEN + index * TAG_LEN, tag)
        }
        _ => false,
    }
}

/// Removes the tag at `index` and returns it, or `None` if there are fewer.
pub fn remove(
    buf: &mut [u8],
    start: &mut usize,
    meta: &mut impl Offsets,
    index: usize,
) -> Option<Tag> {
    let frame = buf.get(*start..)?;
    let tag = has(frame, index).then(|| get(frame, index)).flatten()?;
    close(buf, start, meta, place(index)?);
    Some(tag)
}

/// Replaces the tag at `index` of `frame` by `tag`, including priority and TPID. Returns the old
/// tag, or `None` without a change if there are fewer.
pub fn set(frame: &mut [u8], index: usize, tag: Tag) -> Option<Tag> {
    let old = has(frame, index).then(|| get(frame, index)).flatten()?;
    let at = place(index)?;
    write_u16(frame, at, tag.tpid().0);
    write_u16(frame, at + 2, tag.tci());
    Some(old)
}

/// Sets the VLAN ID of the tag at `index` of `frame`, 0..=4095. Returns the old tag, or `None`
/// without a change if there are fewer.
pub fn translate(frame: &mut [u8], index: usize, vid: u16) -> Option<Tag> {
    let old = has(frame, index).then(|| get(frame, index)).flatten()?;
    set(frame, index, with_vid(old, vid))
}

/// `tag` with the VLAN ID `vid`; bits above the twelfth are ignored.
#[inline]
#[must_use]
pub const fn with_vid(tag: Tag, vid: u16) -> Tag {
    Tag::new(tag.tpid(), tag.tci() & !Tag::VID_MASK | vid & Tag::VID_MASK)
}

/// `tag` with the same ID and priority, and another TPID.
#[inline]
#[must_use]
pub const fn with_tpid(tag: Tag, tpid: EtherType) -> Tag {
    Tag::new(tpid, tag.tci())
}

/// True if the tag is drop eligible (DEI, IEEE 802.1Q-2022 §9.6).
#[inline]
#[must_use]
pub const fn is_drop_eligible(tag: Tag) -> bool {
    tag.tci() & DROP_ELIGIBLE != 0
}

/// Mapping of priorities when a tag is derived from another: a customer's priority seen by a
/// provider, or a translated tag (IEEE 802.1Q-2022 §6.9.3, "priority code point
/// decoding/encoding").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcpMap {
    /// The new priority code point for each old one, 0..=7.
    pub pcp: [u8; 8],
    /// The new drop eligible indicator.
    pub dei: DeiRule,
}

/// The drop eligible indicator of a tag made from another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeiRule {
    /// Unchanged.
    #[default]
    Keep,
    /// Cleared: for a provider that does not trust the customer's bit.
    Clear,
    /// Set.
    Set,
}

impl PcpMap {
    /// The identity mapping.
    pub const KEEP: Self = Self { pcp: [0, 1, 2, 3, 4, 5, 6, 7], dei: DeiRule::Keep };

    /// Returns `to` with priority and drop eligible indicator mapped from those of `from`. TPID and
    /// ID of `to` are unchanged.
    #[inline]
    #[must_use]
    pub const fn apply(&self, from: Tag, to: Tag) -> Tag {
        let pcp = (self.pcp[from.pcp() as usize] & 7) as u16;
        let dei = match self.dei {
            DeiRule::Keep => from.tci() & DROP_ELIGIBLE,
            DeiRule::Clear => 0,
            DeiRule::Set => DROP_ELIGIBLE,
        };
        Tag::new(to.tpid(), pcp << Tag::PCP_SHIFT | dei | to.vid())
    }
}

impl Default for PcpMap {
    fn default() -> Self {
        Self::KEEP
    }
}

/// True if `frame` has an Ethernet header and at least `index` tags before its type.
fn has(frame: &[u8], index: usize) -> bool {
    frame.len() >= HEADER_LEN && (0..index).all(|index| get(frame, index).is_some())
}

/// Offset of the tag at `index` from the start of the frame.
#[inline]
fn place(index: usize) -> Option<usize> {
    index.checked_mul(TAG_LEN)?.checked_add(ADDRESSES_LEN)
}

/// Moves the first `at` bytes of the frame to the front and writes `tag` into the gap.
#[inline]
fn open(buf: &mut [u8], start: &mut usize, meta: &mut impl Offsets, at: usize, tag: Tag) -> bool {
    let old = *start;
    let Some(new) = old.checked_sub(TAG_LEN) else {
        return false;
    };
    if buf.len() < old.saturating_add(at + TYPE_LEN) {
        return false;
    }
    buf.copy_within(old..old + at, new);
    write_u16(buf, new + at, tag.tpid().0);
    write_u16(buf, new + at + 2, tag.tci());
    *start = new;
    meta.shift(TAG_LEN_I16);
    true
}

/// Moves the first `at` bytes of the frame over the tag after them.
#[inline]
fn close(buf: &mut [u8], start: &mut usize, meta: &mut impl Offsets, at: usize) {
    buf.copy_within(*start..*start + at, *start + TAG_LEN);
    *start += TAG_LEN;
    meta.shift(-TAG_LEN_I16);
}

/// The drop eligible indicator in a TCI.
const DROP_ELIGIBLE: u16 = 0x1000;
/// Length of a type field in bytes.
const TYPE_LEN: usize = 2;
const TAG_LEN_I16: i16 = 4;
/// Addresses, one tag and a type field: the bytes that a push or pop of the outermost tag changes.
const FRONT_LEN: usize = ADDRESSES_LEN + TAG_LEN + TYPE_LEN;
const _: () = assert!(TAG_LEN == 4, "one constant in two types");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GsoType, NetHeaderFlags};

    const SERVICE: Tag = Tag::new(EtherType::SERVICE_VLAN, 0x2064);
    const CUSTOMER: Tag = Tag::new(EtherType::VLAN, 0xf00a);
    const LEGACY: Tag = Tag::new(EtherType::LEGACY_SERVICE_VLAN, 0x0005);
    const META: NetHeader = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::TCPV4,
        hdr_len: 54,
        gso_size: 1000,
        csum_start: 34,
        csum_offset: 16,
    };

    /// An untagged frame after `headroom` bytes.
    fn buffer(headroom: usize) -> Vec<u8> {
        let mut buf = vec![0xee; headroom];
        buf.extend(0..12);
        buf.extend([8, 0, 0x45, 1, 2, 3]);
        buf
    }

    #[test]
    fn a_tag_goes_to_its_place_and_offsets_move() {
        let (mut buf, mut start, mut meta) = (buffer(12), 12, META);
        assert!(push(&mut buf, &mut start, &mut meta, CUSTOMER));
        assert!(push(&mut buf, &mut start, &mut meta, SERVICE));
        assert!(insert(&mut buf, &mut start, &mut meta, 1, LEGACY));
        assert_eq!((start, meta.csum_start, meta.hdr_len), (0, 46, 66));
        let tags = [0x88, 0xa8, 0x20, 0x64, 0x91, 0, 0, 5, 0x81, 0, 0xf0, 0x0a];
        let expected = [&buffer(0)[..12], &tags, &buffer(0)[12..]].concat();
        assert_eq!(buf, expected);
        assert_eq!(remove(&mut buf, &mut start, &mut meta, 2), Some(CUSTOMER));
        assert_eq!(pop(&mut buf, &mut start, &mut meta), Some(SERVICE));
        assert_eq!(pop(&mut buf, &mut start, &mut meta), Some(LEGACY));
        assert_eq!(pop(&mut buf, &mut start, &mut meta), None);
        assert_eq!((&buf[start..], meta), (&buffer(0)[..], META));
    }

    #[test]
    fn offsets_of_a_tunnelled_train_move_too() {
        let (mut buf, mut start) = (buffer(4), 4);
        let tunnel = LongNetHeader { outer_transport: 34, inner_network: 64, ..Default::default() };
        let mut meta = LongNetHeader { base: META, ..tunnel };
        assert!(push(&mut buf, &mut start, &mut meta, SERVICE));
        assert_eq!((meta.outer_transport, meta.inner_network), (38, 68));
        assert_eq!(meta.base.csum_start, 38);
    }

    #[test]
    fn what_is_not_there_is_not_changed() {
        let (mut buf, mut start, mut meta) = (buffer(3), 3, META);
        assert!(!push(&mut buf, &mut start, &mut meta, SERVICE), "no headroom");
        assert!(!insert(&mut buf, &mut start, &mut meta, 1, SERVICE), "no tag in front");
        assert!(!insert(&mut buf, &mut start, &mut meta, usize::MAX, SERVICE));
        assert_eq!(remove(&mut buf, &mut start, &mut meta, 0), None);
        assert_eq!(set(&mut buf[start..], 0, SERVICE), None);
        assert_eq!(translate(&mut buf[start..], usize::MAX, 1), None);
        assert_eq!((buf, start, meta), (buffer(3), 3, META));
        let mut short = vec![0; 17];
        assert!(!push(&mut short, &mut 4, &mut meta, SERVICE), "no Ethernet header");
        assert!(!push(&mut short, &mut 40, &mut meta, SERVICE), "no frame");
        assert!(!push(&mut short, &mut usize::MAX.clone(), &mut meta, SERVICE));
        assert_eq!(pop(&mut short, &mut 40, &mut meta), None);
    }

    #[test]
    fn a_stack_cut_short_ends_in_front_of_what_is_missing() {
        let mut buf = [&buffer(0)[..12], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0]].concat();
        assert_eq!(count(&buf), 2);
        buf.truncate(21);
        assert_eq!(count(&buf), 1);
        assert_eq!(remove(&mut buf, &mut 0, &mut META.clone(), 1), None);
        assert_eq!(pop(&mut buf, &mut 0, &mut META.clone()).map(Tag::vid), Some(1));
    }

    #[test]
    fn a_swap_touches_one_tag() {
        let (mut buf, mut start, mut meta) = (buffer(8), 8, META);
        assert!(push(&mut buf, &mut start, &mut meta, CUSTOMER));
        assert!(push(&mut buf, &mut start, &mut meta, CUSTOMER));
        assert_eq!(set(&mut buf, 0, with_tpid(CUSTOMER, SERVICE.tpid())), Some(CUSTOMER));
        assert_eq!(translate(&mut buf, 1, 0xffff), Some(CUSTOMER));
        let outer = Tag::new(EtherType::SERVICE_VLAN, 0xf00a);
        let inner = Tag::new(EtherType::VLAN, 0xffff);
        assert_eq!([get(&buf, 0), get(&buf, 1), get(&buf, 2)], [Some(outer), Some(inner), None]);
    }

    #[test]
    fn priorities_are_kept_or_mapped() {
        let from = Tag::new(EtherType::VLAN, 0xb00a);
        assert!(is_drop_eligible(from));
        let to = Tag::new(EtherType::SERVICE_VLAN, 0x0064);
        assert_eq!(PcpMap::default().apply(from, to), Tag::new(to.tpid(), 0xb064));
        let pcp = [7, 6, 5, 4, 3, 2, 1, 0xff];
        let map = PcpMap { pcp, dei: DeiRule::Clear };
        assert_eq!(map.apply(from, to).tci(), 0x4064);
        let seven = Tag::new(EtherType::VLAN, 0xe001);
        assert_eq!(PcpMap { pcp, dei: DeiRule::Set }.apply(seven, to).tci(), 0xf064);
    }
}
