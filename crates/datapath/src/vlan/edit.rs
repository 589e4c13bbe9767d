//! Edits of the two outermost tags of parsed and unparsed frames.

use tapswitch_wire::ethernet::{ADDRESSES_LEN, HEADER_LEN, TAG_LEN};
use tapswitch_wire::{EtherType, MacAddr, NetHeader, Tag, read_u16};

use super::PortMode;
use crate::{DropReason, Frame};

/// Changes of the tags of a frame, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edit {
    /// Pop the outermost tag.
    pub pop: bool,
    /// Set the tag that is then the outermost.
    pub set: Option<Tag>,
    /// Push this tag.
    pub push: Option<Tag>,
}

impl Edit {
    /// No change.
    pub const NONE: Self = Self { pop: false, set: None, push: None };

    /// Pushes `tag`.
    pub const fn push(tag: Tag) -> Self {
        Self { push: Some(tag), ..Self::NONE }
    }

    /// Sets the outermost tag to `tag`.
    pub const fn set(tag: Tag) -> Self {
        Self { set: Some(tag), ..Self::NONE }
    }

    /// Pops the outermost tag.
    pub const fn pop() -> Self {
        Self { pop: true, ..Self::NONE }
    }

    /// The edit that undoes one that only pops and sets, for a frame with these tags before.
    #[inline]
    #[must_use]
    pub fn undo(self, outer: Option<Tag>, inner: Option<Tag>) -> Self {
        let changed = if self.pop { inner } else { outer };
        Self { pop: false, set: self.set.and(changed), push: if self.pop { outer } else { None } }
    }

    /// Applies the edit to a parsed frame. Returns `false` if a tag to pop is missing, or the
    /// headroom is used up.
    #[inline]
    #[must_use]
    pub(crate) fn apply(self, frame: &mut Frame<'_>) -> bool {
        if self.pop && !frame.pop_tag() {
            return false;
        }
        if let Some(tag) = self.set {
            write_tag(frame.head_mut(), tag);
        }
        self.push.is_none_or(|tag| frame.push_tag(tag))
    }
}

/// Converts the frame in `buf[start..]`, which is `len` bytes long and not parsed yet, to the inner
/// form. Returns its new start, and its metadata.
///
/// # Errors
/// Why the frame is dropped.
#[inline(never)]
pub(crate) fn admit(
    mode: &PortMode,
    buf: &mut [u8],
    start: usize,
    len: usize,
    mut meta: NetHeader,
) -> Result<(usize, NetHeader), DropReason> {
    let outer = outer_tag(&buf[start..])?;
    if outer.is_none() && mode.keeps_on_link(destination(&buf[start..])) {
        return Ok((start, meta));
    }
    // An offset inside the tags that change must not seem to be right behind them.
    meta.check(len).map_err(|_| DropReason::BadMetadata)?;
    let edit = mode.admit(outer).ok_or(DropReason::VlanFiltered)?;
    if let Some(tag) = edit.set {
        write_tag(&mut buf[start..], tag);
    }
    let Some(tag) = edit.push else { return Ok((start, meta)) };
    let begin = start.checked_sub(TAG_LEN).ok_or(DropReason::TooDeep)?;
    let front = buf[begin..].first_chunk_mut::<FRONT_LEN>().ok_or(DropReason::Truncated)?;
    front.copy_within(TAG_LEN.., 0);
    write_tag(front, tag);
    meta.shift(TAG_SHIFT);
    Ok((begin, meta))
}

fn destination(frame: &[u8]) -> MacAddr {
    frame.first_chunk().copied().map_or(MacAddr::ZERO, MacAddr)
}

/// The outermost tag of an unparsed frame.
fn outer_tag(frame: &[u8]) -> Result<Option<Tag>, DropReason> {
    if frame.len() < HEADER_LEN {
        return Err(DropReason::Truncated);
    }
    let tpid = EtherType(read_u16(frame, ADDRESSES_LEN));
    if !tpid.is_tag() {
        return Ok(None);
    }
    if frame.len() < HEADER_LEN + TAG_LEN {
        return Err(DropReason::Truncated);
    }
    Ok(Some(Tag::new(tpid, read_u16(frame, ADDRESSES_LEN + 2))))
}

#[inline]
fn write_tag(frame: &mut [u8], tag: Tag) {
    let ([p0, p1], [c0, c1]) = (tag.tpid, tag.tci);
    frame[ADDRESSES_LEN..FRONT_LEN].copy_from_slice(&[p0, p1, c0, c1]);
}

/// The addresses and the outermost tag.
const FRONT_LEN: usize = ADDRESSES_LEN + TAG_LEN;
/// [`TAG_LEN`] as a distance.
const TAG_SHIFT: i16 = 4;

#[cfg(test)]
mod tests {
    use super::super::Vid;
    use super::*;

    fn access() -> PortMode {
        PortMode::Access(Vid::MIN)
    }

    #[test]
    fn short_frames_are_truncated_not_read_beyond() {
        for len in 0..18 {
            let mut frame = vec![0; 18];
            frame[12] = 0x81;
            frame.truncate(len);
            let refused = admit(&access(), &mut frame, 0, len, NetHeader::PLAIN);
            assert_eq!(refused, Err(DropReason::Truncated), "{len} bytes");
        }
    }

    #[test]
    fn without_headroom_nothing_is_pushed() {
        let mut frame = vec![0; 60];
        let refused = admit(&access(), &mut frame, 3, 57, NetHeader::PLAIN);
        assert_eq!(refused, Err(DropReason::TooDeep));
        assert_eq!(admit(&access(), &mut frame, 4, 56, NetHeader::PLAIN).unwrap().0, 0);
    }

    #[test]
    fn a_checksum_inside_the_header_does_not_become_true_by_a_tag() {
        let mut frame = vec![0; 64];
        let meta = NetHeader { flags: 1, csum_start: 12, csum_offset: 6, ..NetHeader::PLAIN };
        let refused = admit(&access(), &mut frame, 4, 60, meta);
        assert_eq!(refused, Err(DropReason::BadMetadata));
    }
}
