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
    /// Its pieces among those of [`Chains`].
    first: u32,
    count: u32,
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
    /// Keeps what `pieces` point to mapped.
    memory: Option<Arc<GuestMemory>>,
    pieces: Vec<Piece>,
    chains: Vec<Chain>,
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
        self.chains.clear();
    }

    /// Number of chains.
    #[inline]
    pub fn len(&self) -> usize {
        self.chains.len()
    }

    /// True when there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// The chain at `index`, in the order in which they were fetched.
    #[inline]
    pub fn get(&self, index: usize) -> Option<Chain> {
        self.chains.get(index).copied()
    }

    /// The pieces of `chain`, which is one of these, in order.
    #[inline]
    pub fn pieces<'a>(
        &'a self,
        chain: &Chain,
    ) -> impl Iterator<Item = GuestBytes<'a>> + Clone + use<'a> {
        let first = chain.first as usize;
        let pieces = self.pieces.get(first..first + chain.count as usize).unwrap_or_default();
        // SAFETY: the piece was found in `self.memory`, which stays mapped while `self` is
        // borrowed: it is replaced by `prepare` only.
        pieces.iter().map(|piece| unsafe { GuestBytes::at(piece.start, piece.len as usize) })
    }

    /// The only piece of `chain`; `None` when it has several.
    #[inline]
    pub(crate) fn single<'a>(&'a self, chain: &Chain) -> Option<GuestBytes<'a>> {
        if chain.count == 1 { self.pieces(chain).next() } else { None }
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
        // A ring has at most 2^15 descriptors, and each of them at most 2^32 bytes.
        let first = u32::try_from(self.pieces.len()).unwrap_or(u32::MAX);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.pieces.push(Piece { start: bytes.as_ptr(), len });
        self.chains.push(Chain { id, slots: 1, first, count: 1, len });
    }

    /// Starts a chain, whose pieces are then pushed.
    #[inline]
    pub(crate) fn begin(&self) -> Begun {
        Begun { first: self.pieces.len(), len: 0 }
    }

    /// Adds a piece, which lies in the memory that was prepared for.
    #[inline]
    pub(crate) fn push(&mut self, begun: &mut Begun, bytes: GuestBytes<'_>) {
        // A descriptor's length has 32 bits, so no piece is longer.
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        begun.len += u64::from(len);
        self.pieces.push(Piece { start: bytes.as_ptr(), len });
    }

    /// Ends a chain. Returns `false` when it is longer than 4 GiB: then abandon it.
    #[inline]
    pub(crate) fn end(&mut self, begun: &Begun, id: u16, slots: u16) -> bool {
        let (first, count) = (begun.first, self.pieces.len() - begun.first);
        let sizes = (u32::try_from(first), u32::try_from(count), u32::try_from(begun.len));
        let (Ok(first), Ok(count), Ok(len)) = sizes else {
            return false;
        };
        self.chains.push(Chain { id, slots, first, count, len });
        true
    }

    /// Forgets a chain that was begun.
    pub(crate) fn abandon(&mut self, begun: &Begun) {
        self.pieces.truncate(begun.first);
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
        f.debug_list().entries(&self.chains).finish()
    }
}
