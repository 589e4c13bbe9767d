//! Frames in a guest's buffers: a network header followed by the frame (virtio 1.2 §5.1.6).
//!
//! Reading a frame copies its headers once into our memory, where the guest cannot change them; its
//! payload stays in place and is copied once, to its destination. Writing a frame first checks that
//! the guest has room for all of it, so nothing is delivered in part.
//!
//! Cost of a frame: reading copies twice, the network header and the first bytes. Writing to a next
//! buffer that is in one piece and holds the whole frame takes two copies, and one more for payload
//! that is still in the sender's memory. Otherwise the buffers are traversed twice, to check the
//! room and to write. Copies wait for cache lines, more than for anything else: what the next frame
//! will copy is prefetched, its payload by [`Running::prefetch_frame`], and the next buffer when
//! one has been written. A guest may split its buffers into pieces of one byte, each of which is
//! looked up and written separately: a frame has at most 1024 pieces, and a burst of frames about
//! twice as many.

use crate::chain::{Chain, PIECE_COUNT_MAX};
use crate::features::{Features, NET_HEADER_LEN};
use crate::memory::{Access, GuestBytes, LINE_LEN};
use crate::queue::Running;
use crate::ring::RingError;

/// Bytes of a frame, in our memory or a guest's.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// In our memory.
    Ours(&'a [u8]),
    /// In a guest's memory.
    Guest(GuestBytes<'a>),
}

impl<'a> Part<'a> {
    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Ours(bytes) => bytes.len(),
            Self::Guest(bytes) => bytes.len(),
        }
    }

    /// True if there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the bytes to `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ours(bytes) => out.extend_from_slice(bytes),
            Self::Guest(bytes) => {
                let at = out.len();
                out.resize(at + bytes.len(), 0);
                bytes.read(&mut out[at..]);
            }
        }
    }

    /// Copies as many bytes as fit into `out`. Returns the number copied.
    pub fn read(&self, out: &mut [u8]) -> usize {
        match self {
            Self::Ours(bytes) => {
                let len = bytes.len().min(out.len());
                out[..len].copy_from_slice(&bytes[..len]);
                len
            }
            Self::Guest(bytes) => bytes.read(out),
        }
    }

    /// Copies as many bytes as fit into `to`. Returns the number copied.
    #[inline]
    fn copy_to(self, to: GuestBytes<'_>) -> usize {
        match self {
            Self::Ours(bytes) => to.write(bytes),
            Self::Guest(bytes) => to.write_from(bytes),
        }
    }

    #[inline]
    fn skip(self, len: usize) -> Self {
        match self {
            Self::Ours(bytes) => Self::Ours(bytes.get(len..).unwrap_or_default()),
            Self::Guest(bytes) => Self::Guest(bytes.skip(len)),
        }
    }
}

/// Why a frame was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    /// The guest has made too few buffers available; or the buffers of this burst had so many
    /// pieces that other work comes first.
    #[error("the guest has no free buffers")]
    Full,
    /// The guest has made no buffer available since it started the ring: it has a driver, but its
    /// interface is not up yet.
    #[error("the guest has not provided any buffers yet")]
    Unready,
    /// The guest's buffers are too small: one buffer without mergeable buffers, or all that fit
    /// into its ring, or those within 1024 pieces.
    #[error("the guest's buffers are too small for the frame")]
    TooLong,
    /// The guest has violated the protocol: its device must be reset.
    #[error(transparent)]
    Ring(#[from] RingError),
}

/// A network header that is not decoded: two words, which stay in registers. One built field by
/// field would have to reach the cache before it could be compared by words, behind all earlier
/// stores to guests; and bytes would be taken apart and put together again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawHeader {
    start: u64,
    end: u32,
}

impl From<[u8; NET_HEADER_LEN]> for RawHeader {
    #[inline]
    fn from(bytes: [u8; NET_HEADER_LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, end @ ..] = bytes;
        let start = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        Self { start, end: u32::from_ne_bytes(end) }
    }
}

impl From<RawHeader> for [u8; NET_HEADER_LEN] {
    #[inline]
    fn from(header: RawHeader) -> Self {
        let [a, b, c, d, e, f, g, h] = header.start.to_ne_bytes();
        let [i, j, k, l] = header.end.to_ne_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }
}

impl RawHeader {
    /// True for the header of a packet that asks for nothing, as most do: all is zero, except
    /// perhaps `num_buffers`.
    #[inline]
    #[must_use]
    pub fn is_plain(self) -> bool {
        let [a, b, ..] = self.end.to_ne_bytes();
        self.start == 0 && [a, b] == [0, 0]
    }

    /// The header with `num_buffers` set to `count`.
    #[inline]
    fn in_buffers(self, count: u16) -> Self {
        let ([a, b, ..], [c, d]) = (self.end.to_ne_bytes(), count.to_le_bytes());
        Self { end: u32::from_ne_bytes([a, b, c, d]), ..self }
    }
}

impl GuestBytes<'_> {
    /// The header at the start; `None` if there are fewer bytes, or if `len` is not 12.
    #[inline]
    fn header(&self, len: usize) -> Option<RawHeader> {
        if len != NET_HEADER_LEN || self.len() < len {
            return None;
        }
        let (mut start, mut end) = ([0; 8], [0; 4]);
        self.read(&mut start);
        self.skip(start.len()).read(&mut end);
        Some(RawHeader { start: u64::from_ne_bytes(start), end: u32::from_ne_bytes(end) })
    }
}

impl Running {
    /// Copies the first bytes of the guest's frame in `chain` to `head`. Returns its network header
    /// and its length in bytes; `None` if it is shorter than the header.
    #[inline]
    pub fn read_frame(&self, chain: &Chain, head: &mut [u8]) -> Option<(RawHeader, usize)> {
        let header_len = self.header_len();
        let len = chain.len().checked_sub(header_len)?;
        let chains = self.chains();
        if let Some(piece) = chains.single(chain)
            && let Some(header) = piece.header(header_len)
        {
            piece.skip(header_len).read(head);
            return Some((header, len));
        }
        let mut header = [0; NET_HEADER_LEN];
        chains.read(chain, 0, &mut header[..header_len]);
        chains.read(chain, header_len, head);
        Some((header.into(), len))
    }

    /// Prefetches the guest's frame in `chain` from offset `at` on, if it is in one piece.
    #[inline]
    pub fn prefetch_frame(&self, chain: &Chain, at: usize) {
        if let Some(piece) = self.chains().single(chain) {
            let start = self.header_len() + at;
            piece.prefetch_lines(start, piece.len(), Access::Read);
        }
    }

    /// As [`Self::frame_from`], if these bytes are in one piece, as nearly always.
    #[inline]
    pub fn end_from<'a>(&'a self, chain: &Chain, at: usize) -> Option<Part<'a>> {
        let piece = self.chains().single(chain)?;
        Some(Part::Guest(piece.skip(at + self.header_len())))
    }

    /// The bytes of the guest's frame in `chain` from offset `at` on.
    #[inline]
    pub fn frame_from<'a>(
        &'a self,
        chain: &Chain,
        at: usize,
    ) -> impl Iterator<Item = Part<'a>> + Clone + use<'a> {
        let mut skipped = at + self.header_len();
        self.chains().pieces(chain).filter_map(move |piece| {
            let here = skipped.min(piece.len());
            skipped -= here;
            let piece = piece.skip(here);
            (!piece.is_empty()).then_some(Part::Guest(piece))
        })
    }

    /// Writes a frame of `len` bytes, which `parts` contain, to the guest's next buffers, behind
    /// `header`. The guest is notified when the burst ends ([`Self::publish`]).
    ///
    /// # Errors
    /// [`Undelivered`]; nothing was delivered then, and the buffers remain for the next frame.
    #[inline]
    pub fn deliver<'p>(
        &mut self,
        header: impl Into<RawHeader>,
        len: usize,
        parts: impl Iterator<Item = Part<'p>>,
    ) -> Result<(), Undelivered> {
        let (header, header_len) = (header.into(), self.header_len());
        let total = header_len + len;
        if self.peek(0).is_none() {
            self.fetch_at_least(1)?;
        }
        let next = self.peek(0).and_then(|chain| self.chains().single(&chain));
        if let Some(mut room) = next.filter(|room| room.len() >= total) {
            let header = header.in_buffers(1);
            // Most headers equal the one already there, and a line that is not written stays in the
            // guest's cache. The rare 10-byte headers are always written.
            if room.header(header_len) != Some(header) {
                room.write(&<[u8; NET_HEADER_LEN]>::from(header)[..header_len]);
            }
            room = room.skip(header_len);
            parts.for_each(|part| room = room.skip(part.copy_to(room)));
            // A frame is far shorter than 4 GiB: its length was compared with the buffer's.
            self.complete(u32::try_from(total).unwrap_or(u32::MAX));
            self.prefetch_room(total);
            return Ok(());
        }
        self.deliver_in_pieces(header, total, parts)
    }

    /// Prefetches the next buffer for a frame as long as the last one, `total` bytes with its
    /// header: within a burst, most are equally long. Its start was prefetched when it was fetched.
    #[inline]
    fn prefetch_room(&self, total: usize) {
        if let Some(room) = self.peek(0).and_then(|chain| self.chains().single(&chain)) {
            room.prefetch_lines(LINE_LEN, total, Access::Write);
        }
    }

    /// As [`Self::deliver`], for buffers that are small or in several pieces.
    #[inline(never)]
    fn deliver_in_pieces<'p>(
        &mut self,
        header: RawHeader,
        total: usize,
        parts: impl Iterator<Item = Part<'p>>,
    ) -> Result<(), Undelivered> {
        if self.pieces_written >= BURST_PIECES {
            return Err(Undelivered::Full);
        }
        let (count, pieces) = self.room(total)?;
        self.pieces_written += pieces;
        self.fill(header.in_buffers(count).into(), count, parts);
        let mut left = total;
        for _ in 0..count {
            let written = self.peek(0).map_or(0, |chain| chain.len().min(left));
            left -= written;
            // A frame is far shorter than 4 GiB: its length was compared with the buffers'.
            self.complete(u32::try_from(written).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// The number of next buffers that hold `total` bytes together, and the number of their pieces.
    /// Each buffer must have room for a header (virtio 1.2 §5.1.6.3.1), or a frame might take a
    /// whole ring of them.
    #[inline]
    fn room(&mut self, total: usize) -> Result<(u16, usize), Undelivered> {
        let mergeable = self.features().contains(Features::MRG_RXBUF);
        let header_len = self.header_len();
        let (mut count, mut pieces, mut room) = (0u16, 0, 0);
        while room < total {
            if count > 0 && !mergeable {
                return Err(Undelivered::TooLong);
            }
            let index = usize::from(count);
            let chain = match self.peek(index) {
                Some(chain) => chain,
                None if self.fetch_at_least(index + 1)? => match self.peek(index) {
                    Some(chain) => chain,
                    None => return Err(Undelivered::Full),
                },
                None => return Err(self.too_little(index)),
            };
            if chain.len() < header_len {
                let len = u32::try_from(chain.len()).unwrap_or(u32::MAX);
                return Err(RingError::Runt(len).into());
            }
            pieces += self.chains().piece_count_of(&chain);
            if pieces > PIECE_COUNT_MAX {
                return Err(Undelivered::TooLong);
            }
            room += chain.len();
            count = count.checked_add(1).ok_or(Undelivered::TooLong)?;
        }
        Ok((count, pieces))
    }

    /// Why `count` buffers are not enough. The guest may make more available, unless its ring has
    /// no room for another one like the last: then the frame would wait for ever, and block all
    /// behind it.
    #[cold]
    fn too_little(&self, count: usize) -> Undelivered {
        if count == 0 && self.is_unready() {
            self.note_shortage();
            return Undelivered::Unready;
        }
        let slots = |index| self.peek(index).map_or(0, |chain| usize::from(chain.slots));
        let taken: usize = (0..count).map(slots).sum();
        let last = count.checked_sub(1).map_or(1, slots);
        match taken + last > usize::from(self.ring_size()) {
            true => Undelivered::TooLong,
            false => {
                self.note_shortage();
                Undelivered::Full
            }
        }
    }

    /// Copies header and frame to the next `count` buffers, which have room for both.
    #[inline]
    fn fill<'p>(
        &self,
        header: [u8; NET_HEADER_LEN],
        count: u16,
        parts: impl Iterator<Item = Part<'p>>,
    ) {
        let chains = self.chains();
        let next = (0..usize::from(count)).filter_map(|index| self.peek(index));
        let mut pieces = next.flat_map(|chain| chains.pieces(&chain));
        let mut room: Option<GuestBytes<'_>> = None;
        let mut put = |mut part: Part<'_>| {
            while !part.is_empty() {
                let Some(to) = room.filter(|to| !to.is_empty()).or_else(|| pieces.next()) else {
                    return;
                };
                let done = part.copy_to(to);
                part = part.skip(done);
                room = Some(to.skip(done));
            }
        };
        put(Part::Ours(&header[..self.header_len()]));
        parts.for_each(put);
    }
}

/// A burst writes no more to a guest after this many pieces: about a hundred microseconds. Honest
/// guests have a few hundred if trains span several small buffers each.
const BURST_PIECES: usize = 2 * PIECE_COUNT_MAX;

#[cfg(test)]
mod tests;
