//! A guest's buffers as a ring delivers them: chains of pieces of guest memory.
//!
//! A ring fetches many chains at once into one [`Chains`], whose memory is reused. Guest addresses
//! are translated when they are fetched, and only our own addresses are kept, so later writes by
//! the guest cannot change where we read or write.

use std::fmt;
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
    at: u32,
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

/// A stored chain.
#[derive(Clone, Copy)]
struct Entry {
    /// The only piece, as in nearly all chains.
    only: Piece,
    /// Index and number of the pieces in `pieces`, if there is not exactly one.
    several: Option<(u32, u32)>,
    len: u32,
    id: u16,
    slots: u16,
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
        let first = self.entries.iter().find_map(|entry| entry.several);
        let gone = first.map_or(self.pieces.len(), |(first, _)| first as usize);
        self.pieces.drain(..gone.min(self.pieces.len()));
        for (first, _) in self.entries.iter_mut().filter_map(|entry| entry.several.as_mut()) {
            // Chains have their pieces in the order in which they were fetched.
            *first = first.saturating_sub(u32::try_from(gone).unwrap_or(u32::MAX));
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
        let Entry { id, slots, len, .. } = *self.entries.get(index)?;
        // A ring has at most 2^15 descriptors.
        Some(Chain { id, slots, at: u32::try_from(index).unwrap_or(u32::MAX), len })
    }

    /// The pieces of `chain`, which must be one of these, in order.
    #[inline]
    pub fn pieces<'a>(
        &'a self,
        chain: &Chain,
    ) -> impl Iterator<Item = GuestBytes<'a>> + Clone + use<'a> {
        let pieces = match self.entries.get(chain.at as usize) {
            Some(Entry { only, several: None, .. }) => std::slice::from_ref(only),
            Some(Entry { several: Some((first, count)), .. }) => {
                let first = *first as usize;
                self.pieces.get(first..first + *count as usize).unwrap_or_default()
            }
            None => &[],
        };
        pieces.iter().map(|piece| self.bytes(*piece))
    }

    /// The number of pieces of `chain`, which must be one of these.
    #[inline]
    pub(crate) fn piece_count_of(&self, chain: &Chain) -> usize {
        let several = self.entries.get(chain.at as usize).and_then(|entry| entry.several);
        several.map_or(1, |(_, count)| count as usize)
    }

    /// The only piece of `chain`; `None` if it has several.
    #[inline]
    pub(crate) fn single(&self, chain: &Chain) -> Option<GuestBytes<'_>> {
        let entry = self.entries.get(chain.at as usize)?;
        entry.several.is_none().then(|| self.bytes(entry.only))
    }

    #[inline]
    fn bytes(&self, piece: Piece) -> GuestBytes<'_> {
        // SAFETY: the piece is in `self.memory`, which stays mapped while `self` is borrowed: it is
        // replaced only by `prepare`, which removes all pieces.
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
        let only = Piece::of(bytes);
        self.entries.push(Entry { only, several: None, len: only.len, id, slots: 1 });
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
        let only = Piece { start: NonNull::dangling(), len: 0 };
        self.entries.push(Entry { only, several: Some((first, count)), len, id, slots });
        true
    }

    /// Removes a chain that was begun.
    pub(crate) fn abandon(&mut self, begun: &Begun) {
        self.pieces.truncate(begun.first);
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
