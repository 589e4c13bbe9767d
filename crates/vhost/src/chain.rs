//! Buffers of a guest, as a ring brings them: chains of pieces of guest memory.
//!
//! A ring fetches many chains at once into one [`Chains`], whose memory is used again and again.
//! Every address was looked up when it was fetched; what is kept are addresses of ours, so nothing
//! that the guest writes later can change where we read or write.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::memory::{GuestBytes, GuestMemory};

/// One buffer of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain {
    /// What the ring calls it.
    pub(crate) id: u16,
    /// Places that it takes up in a packed ring.
    pub(crate) slots: u16,
    /// Its number among those of [`Chains`].
    at: u32,
    /// Bytes in all pieces.
    len: u32,
}

impl Chain {
    /// Number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Chains that were fetched together, and the memory that they lie in.
#[derive(Default)]
pub struct Chains {
    /// Keeps what pieces point to mapped.
    memory: Option<Arc<GuestMemory>>,
    entries: Vec<Entry>,
    /// Pieces of chains that have several.
    pieces: Vec<Piece>,
}

/// A chain, as it is kept.
#[derive(Clone, Copy)]
struct Entry {
    /// The only piece, as of nearly all chains.
    only: Piece,
    /// Where the pieces begin when there are several, or none, and how many there are.
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

// SAFETY: a piece is an address in memory that `memory` keeps mapped, and that is only copied from
// and to, which any thread may do.
unsafe impl Send for Chains {}

impl Chains {
    /// None yet, to be of `memory`.
    pub(crate) fn of(memory: &Arc<GuestMemory>) -> Self {
        Self { memory: Some(memory.clone()), ..Self::default() }
    }

    /// Forgets all chains; what a ring still has to get back must have been given back.
    #[inline]
    pub fn clear(&mut self) {
        self.pieces.clear();
        self.entries.clear();
        self.bound_room();
    }

    /// Forgets the first `count` chains. Those behind them have other numbers from now on: whoever
    /// has a [`Chain`] asks for it again.
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

    /// Keeps no room for more than an honest driver ever needs.
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

    /// Pieces of chains that have several, those that were used included.
    #[inline]
    pub fn piece_count(&self) -> usize {
        self.pieces.len()
    }

    /// True when there are so many pieces that no chain more is to be fetched with these.
    #[inline]
    pub(crate) fn is_crowded(&self) -> bool {
        self.pieces.len() >= PIECES_TOGETHER
    }

    /// Those pieces, and how many there is room for.
    #[cfg(test)]
    pub(crate) fn pieces_and_room(&self) -> (usize, usize) {
        (self.pieces.len(), self.pieces.capacity())
    }

    /// Number of chains.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True when there is none.
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

    /// The pieces of `chain`, which is one of these, in order.
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

    /// How many pieces `chain` has, which is one of these.
    #[inline]
    pub(crate) fn piece_count_of(&self, chain: &Chain) -> usize {
        let several = self.entries.get(chain.at as usize).and_then(|entry| entry.several);
        several.map_or(1, |(_, count)| count as usize)
    }

    /// The only piece of `chain`; `None` when it has several.
    #[inline]
    pub(crate) fn single(&self, chain: &Chain) -> Option<GuestBytes<'_>> {
        let entry = self.entries.get(chain.at as usize)?;
        entry.several.is_none().then(|| self.bytes(entry.only))
    }

    #[inline]
    fn bytes(&self, piece: Piece) -> GuestBytes<'_> {
        // SAFETY: the piece was found in `self.memory`, which stays mapped while `self` is
        // borrowed: it is replaced by `prepare` only, which forgets all pieces.
        unsafe { GuestBytes::at(piece.start, piece.len as usize) }
    }

    /// Copies `out.len()` bytes from `at` of the chain on, or as many as there are, and returns how
    /// many.
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

    /// Makes ready for chains of `memory`. Forgets what there is if it lies in another one.
    #[inline]
    pub(crate) fn prepare(&mut self, memory: &Arc<GuestMemory>) {
        if !self.memory.as_ref().is_some_and(|own| Arc::ptr_eq(own, memory)) {
            self.clear();
            self.memory = Some(memory.clone());
        }
    }

    /// Adds a chain of one piece, which lies in the memory that was prepared for and takes up one
    /// of the ring's descriptors.
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

    /// Adds a piece, which lies in the memory that was prepared for. Returns `false` when the chain
    /// has [`PIECE_COUNT_MAX`] already: then abandon it.
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

    /// Ends a chain. Returns `false` when it is longer than 4 GiB: then abandon it.
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

    /// Forgets a chain that was begun.
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

/// A chain that is being put together.
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

/// Pieces that a chain may lie in. A descriptor is one, and one more for each region of the guest's
/// memory that it goes on into: a thousand descriptors over sixty regions would take milliseconds.
pub(crate) const PIECE_COUNT_MAX: usize = 1024;
/// Pieces behind which no chain more is fetched: a chain may have a thousand of a byte each, and
/// others wait meanwhile. A batch of Linux's longest frames has about as many.
const PIECES_TOGETHER: usize = 512;
/// Room that is kept from burst to burst: a frame of 64 KiB in small buffers, and a batch of chains
/// of 17 or so, which are as long as those of Linux get. What a guest has us need beyond that is
/// not for all times.
const PIECES_KEPT: usize = 4096;
const ENTRIES_KEPT: usize = 1024;
