//! A guest's buffers as a ring delivers them: chains of pieces of guest memory.
//!
//! A ring fetches many chains at once into one [`Chains`], whose memory is reused. Guest addresses
//! are translated when they are fetched, and only our own addresses are kept, so later writes by
//! the guest cannot change where we read or write.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::memory::{GuestBytes, GuestMemory};

/// A buffer of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its identifier in the ring.
    pub(crate) id: u16,
    /// Descriptors that it occupies in the ring.
    pub(crate) slots: u16,
    /// Its index in [`Chains`].
    at: usize,
    /// Bytes of all pieces together.
    len: u32,
}

impl Chain {
    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True if it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Chains that were fetched together, and the memory that contains them.
#[derive(Default)]
pub struct Chains {
    /// Keeps the pieces mapped.
    memory: Option<Arc<GuestMemory>>,
    entries: Vec<Entry>,
    /// The pieces of chains that have several.
    pieces: Vec<Piece>,
}

/// A stored chain, in half a cache line.
#[derive(Clone, Copy)]
struct Entry {
    /// The address of the only piece, as in nearly all chains.
    start: NonNull<u8>,
    len: u32,
    /// Bytes that were written to a used chain.
    written: u32,
    id: u16,
    slots: u16,
    /// The number of pieces in `pieces`, from index `first` on; 0 if `start` is the only piece, or
    /// if there are no bytes.
    count: u32,
    first: u32,
}

#[derive(Clone, Copy)]
struct Piece {
    start: NonNull<u8>,
    len: u32,
}

// SAFETY: a piece is an address in memory that `memory` keeps mapped, and it is only copied from
// and to, which any thread may do.
unsafe impl Send for Chains {}

impl Chains {
    /// No chains yet, for chains in `memory`.
    pub(crate) fn of(memory: &Arc<GuestMemory>) -> Self {
        Self { memory: Some(memory.clone()), ..Self::default() }
    }

    /// Removes all chains; those that a ring must get back must have been given back.
    #[inline]
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.entries.clear();
        self.bound_room();
    }

    /// Removes the first `count` chains. This changes the indices of the others: a [`Chain`]
    /// obtained before is invalid.
    pub(crate) fn forget_first(&mut self, count: usize) {
        self.entries.drain(..count.min(self.entries.len()));
        let first = self.entries.iter().find(|entry| !entry.is_single());
        let gone = first.map_or(self.pieces.len(), |entry| entry.first as usize);
        self.pieces.drain(..gone.min(self.pieces.len()));
        for entry in self.entries.iter_mut().filter(|entry| !entry.is_single()) {
            // Chains have their pieces in the order in which they were fetched.
            entry.first = entry.first.saturating_sub(u32::try_from(gone).unwrap_or(u32::MAX));
        }
        self.bound_room();
    }

    /// Limits the memory kept to what an honest driver needs.
    #[inline]
    fn bound_room(&mut self) {
        if self.pieces.capacity() > PIECES_KEPT || self.entries.capacity() > ENTRIES_KEPT {
            self.give_room_back();
        }
    }

    #[cold]
    fn give_room_back(&mut self) {
        self.pieces.shrink_to(PIECES_KEPT);
        self.entries.shrink_to(ENTRIES_KEPT);
    }

    /// Pieces of chains that have several, including chains already used.
    #[inline]
    pub fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// True if there are so many pieces that no more chains may be fetched in addition.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.pieces.len() >= PIECES_TOGETHER
    }

    /// The number of pieces, and the capacity.
    #[cfg(test)]
    pub(crate) fn pieces_and_room(&self) -> (usize, usize) {
        (self.pieces.len(), self.pieces.capacity())
    }

    /// Number of chains.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if there are no chains.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The chain at `index`, in the order in which they were fetched.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Chain> {
        Some(self.entries.get(index)?.chain(index))
    }

    /// Notes how many bytes were written to the chain at `index`. Returns whether there is one.
    #[inline]
    pub(crate) fn note_written(&mut self, index: usize, written: u32) -> bool {
        let entry = self.entries.get_mut(index);
        entry.map(|entry| entry.written = written).is_some()
    }

    /// These chains, with the bytes written to each.
    #[inline]
    pub(crate) fn used(&self, range: Range<usize>) -> impl Iterator<Item = (Chain, u32)> {
        let indices = range.clone();
        let used = self.entries.get(range).unwrap_or_default();
        used.iter().zip(indices).map(|(entry, index)| (entry.chain(index), entry.written))
    }

    /// The pieces of `chain`, which must be one of these, in order.
    #[inline]
    pub fn pieces<'a>(
        &'a self,
        chain: &Chain,
    ) -> impl Iterator<Item = GuestBytes<'a>> + Clone + use<'a> {
        let entry = self.entries.get(chain.at);
        let only = entry.filter(|entry| entry.is_single() && entry.len > 0).map(Entry::only);
        let range = entry.map_or(0..0, |entry| entry.first as usize..entry.end());
        let several = self.pieces.get(range).unwrap_or_default();
        only.into_iter().chain(several.iter().copied()).map(|piece| self.bytes(piece))
    }

    /// The number of pieces of `chain`, which must be one of these.
    #[inline]
    pub(crate) fn piece_count_of(&self, chain: &Chain) -> usize {
        self.entries.get(chain.at).map_or(1, |entry| entry.count.max(1) as usize)
    }

    /// The only piece of `chain`, empty if it has none; `None` if it has several.
    #[inline]
    pub(crate) fn single(&self, chain: &Chain) -> Option<GuestBytes<'_>> {
        let entry = self.entries.get(chain.at)?;
        entry.is_single().then(|| self.bytes(entry.only()))
    }

    #[inline]
    fn bytes(&self, piece: Piece) -> GuestBytes<'_> {
        // SAFETY: the piece is empty, or in `self.memory`, which stays mapped while `self` is
        // borrowed: it is replaced only by `prepare`, which removes all pieces.
        unsafe { GuestBytes::at(piece.start, piece.len as usize) }
    }

    /// Copies up to `out.len()` bytes of the chain from offset `at`. Returns the number of bytes
    /// copied.
    #[inline]
    pub fn read(&self, chain: &Chain, at: usize, out: &mut [u8]) -> usize {
        let (mut at, mut done) = (at, 0);
        for piece in self.pieces(chain) {
            if at >= piece.len() {
                at -= piece.len();
                continue;
            }
            done += piece.skip(at).read(&mut out[done..]);
            at = 0;
            if done == out.len() {
                break;
            }
        }
        done
    }

    /// Prepares for chains in `memory`. Removes existing chains in other memory.
    #[inline]
    pub(crate) fn prepare(&mut self, memory: &Arc<GuestMemory>) {
        if !self.memory.as_ref().is_some_and(|own| Arc::ptr_eq(own, memory)) {
            self.clear();
            self.memory = Some(memory.clone());
        }
    }

    /// Adds a chain of one piece in the prepared memory, which occupies one descriptor.
    #[inline]
    pub(crate) fn push_whole(&mut self, id: u16, bytes: GuestBytes<'_>) {
        let Piece { start, len } = Piece::of(bytes);
        self.entries.push(Entry { start, len, written: 0, id, slots: 1, count: 0, first: 0 });
    }

    /// Starts a chain, whose pieces are then pushed.
    #[inline]
    pub(crate) fn begin(&self) -> Begun {
        Begun { first: self.pieces.len(), len: 0 }
    }

    /// Adds a piece in the prepared memory. Returns `false` if the chain already has
    /// [`PIECE_COUNT_MAX`] pieces: then abandon it.
    #[inline]
    pub(crate) fn push(&mut self, begun: &mut Begun, bytes: GuestBytes<'_>) -> bool {
        if self.pieces.len() - begun.first >= PIECE_COUNT_MAX {
            return false;
        }
        let piece = Piece::of(bytes);
        begun.len += u64::from(piece.len);
        self.pieces.push(piece);
        true
    }

    /// Ends a chain. Returns `false` if it is longer than 4 GiB: then abandon it.
    #[inline]
    pub(crate) fn end(&mut self, begun: &Begun, id: u16, slots: u16) -> bool {
        let (first, count) = (begun.first, self.pieces.len() - begun.first);
        let sizes = (u32::try_from(first), u32::try_from(count), u32::try_from(begun.len));
        let (Ok(first), Ok(count), Ok(len)) = sizes else {
            return false;
        };
        let start = NonNull::dangling();
        self.entries.push(Entry { start, len, written: 0, id, slots, count, first });
        true
    }

    /// Removes a chain that was begun.
    pub(crate) fn abandon(&mut self, begun: &Begun) {
        self.pieces.truncate(begun.first);
    }
}

impl Entry {
    #[inline]
    fn chain(&self, at: usize) -> Chain {
        Chain { id: self.id, slots: self.slots, at, len: self.len }
    }

    #[inline]
    fn is_single(&self) -> bool {
        self.count == 0
    }

    /// The only piece, if there is one.
    #[inline]
    fn only(&self) -> Piece {
        Piece { start: self.start, len: self.len }
    }

    /// The end of the pieces in [`Chains::pieces`].
    #[inline]
    fn end(&self) -> usize {
        self.first as usize + self.count as usize
    }
}

impl Piece {
    #[inline]
    fn of(bytes: GuestBytes<'_>) -> Self {
        // A descriptor's length has 32 bits, so no piece is longer.
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        Self { start: bytes.as_ptr(), len }
    }
}

/// A chain under construction.
#[derive(Debug)]
pub(crate) struct Begun {
    first: usize,
    len: u64,
}

impl fmt::Debug for Chains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len()).filter_map(|at| self.get(at))).finish()
    }
}

/// Limit of pieces per chain. A descriptor adds one piece, and one more for each further region of
/// the guest's memory that it extends into: a thousand descriptors over sixty regions would take
/// milliseconds.
pub(crate) const PIECE_COUNT_MAX: usize = 1024;
/// No further chain is fetched after this many pieces: a chain may have a thousand pieces of one
/// byte, and others wait meanwhile. A batch of Linux's longest frames has about as many.
const PIECES_TOGETHER: usize = 512;
/// Capacity that is kept between bursts: a frame of 64 KiB in small buffers, and a batch of chains
/// of about 17 pieces, the maximum of Linux. Capacity beyond that is released.
const PIECES_KEPT: usize = 4096;
const ENTRIES_KEPT: usize = 1024;
