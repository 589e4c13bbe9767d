//! Virtqueues from the device's side, split (virtio 1.2 §2.7) and packed (§2.8).
//!
//! A guest's driver makes buffers available; the device fetches them, reads or writes them, and
//! gives them back as used. The guest may change all of that memory at any time, so:
//!
//! - Every value is fetched once, checked, and then used from our copy.
//! - No value of the guest is used as an index into our memory without a check.
//! - A walk along descriptors is limited to the size of the ring and to 1024 descriptors, so
//!   circular chains end. It finds at most 1024 pieces, over however many regions they extend. All
//!   chains not yet published together are no longer than the ring, so a burst ends, whatever the
//!   guest does meanwhile.
//! - Whatever cannot be valid ends the ring with a [`RingError`]; chains fetched before stay valid.
//!   The port of the ring is then reset, without effect on other ports.
//! - The loss of memory is detected when the next chains are fetched.
//!
//! **Batches.** Chains are fetched many at a time ([`Ring::fetch`]); used chains are staged
//! ([`Ring::complete`]) and published once per burst ([`Ring::publish`]), with one barrier and at
//! most one notification.
//!
//! **Sleeping.** While we poll, notifications are disabled. Before sleeping, [`Ring::arm`] enables
//! them and checks again; with the fences on both sides, there is no interleaving in which both
//! sides miss the other (virtio 1.2 §2.7.7, §2.7.10, §2.8.10):
//!
//! ```text
//! device: wish = next;      fence;  sleeps only if nothing is available
//! driver: available = new;  fence;  notifies if the wish was passed
//! ```
//!
//! The same holds in the other direction. `wakeup` tries all interleavings in a model of weak
//! memory.

mod descriptor;
mod packed;
mod split;
#[cfg(test)]
pub(crate) mod wakeup;

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::chain::{Begun, Chain, Chains, PIECE_COUNT_MAX};
use crate::features::{NET_HEADER_LEN, RingFeatures};
use crate::memory::{Access, GuestBytes, GuestMemory, Window};

use descriptor::{DESCRIPTOR_LEN, Descriptor, INDIRECT, NEXT, WRITE};
use packed::PackedRing;
use split::SplitRing;

/// Which side reads a ring's buffers, and which writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The guest sends: the device reads.
    Transmit,
    /// The guest receives: the device writes.
    Receive,
}

/// The addresses of a ring in the VMM's address space, as in vhost-user messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlace {
    /// Number of descriptors, up to 32768; a power of two for split rings.
    pub size: u16,
    /// The descriptors.
    pub descriptors: u64,
    /// Split: the available ring. Packed: the driver's event suppression.
    pub driver: u64,
    /// Split: the used ring. Packed: the device's event suppression.
    pub device: u64,
}

impl RingPlace {
    /// Addresses and lengths of the parts that a device writes. Split: the used ring. Packed: the
    /// descriptors, and the device's event suppression.
    pub(crate) fn written_by_devices(&self, features: RingFeatures) -> Vec<(u64, u64)> {
        let size = u64::from(self.size);
        if features.packed {
            vec![(self.descriptors, DESCRIPTOR_LEN * size), (self.device, 4)]
        } else {
            // Flags, index, entries; the event index at the end may be beyond the end of memory.
            let wish = if features.event_index { 2 } else { 0 };
            vec![(self.device, 4 + 8 * size + wish)]
        }
    }
}

/// A virtqueue from the device's side.
#[derive(Debug)]
pub struct Ring {
    kind: Kind,
    memory: Arc<GuestMemory>,
    direction: Direction,
}

#[derive(Debug)]
enum Kind {
    Split(SplitRing),
    Packed(PackedRing),
}

impl Ring {
    /// The ring at `place` in `memory`, continuing at `base`: the result of [`Self::base`] when it
    /// was stopped, or 0 (split) and 0x8000_8000 (packed) for a new ring. If the former back end
    /// was killed, the latter values are sufficient for packed rings as well, whose position is
    /// then searched; split rings always continue at their used index.
    ///
    /// # Errors
    /// [`RingError::Size`], [`RingError::Place`], [`RingError::Base`].
    pub fn new(
        memory: &Arc<GuestMemory>,
        place: &RingPlace,
        features: RingFeatures,
        direction: Direction,
        base: u32,
    ) -> Result<Self, RingError> {
        let kind = if features.packed {
            let mut ring = PackedRing::new(memory, place, features, base)?;
            ring.finish(Walk { memory, direction }, &mut Chains::of(memory));
            Kind::Packed(ring)
        } else {
            Kind::Split(SplitRing::new(memory, place, features)?)
        };
        Ok(Self { kind, memory: memory.clone(), direction })
    }

    /// Adds up to `limit` available chains to `out`, which drops chains in other memory. Returns
    /// how many; it stops early, after at least one, if they have very many pieces.
    ///
    /// # Errors
    /// The driver's violation; chains before it are in `out`. The ring must not be used any more.
    #[inline]
    pub fn fetch(&mut self, limit: usize, out: &mut Chains) -> Result<usize, RingError> {
        if self.memory.was_lost() {
            return Err(RingError::Lost);
        }
        out.prepare(&self.memory);
        let walk = Walk { memory: &self.memory, direction: self.direction };
        let outcome = match &mut self.kind {
            Kind::Split(ring) => ring.fetch(walk, limit, out),
            Kind::Packed(ring) => ring.fetch(walk, limit, out),
        };
        // Zeroes in place of a lost ring are not the driver's fault.
        outcome.map_err(|fault| if self.memory.was_lost() { RingError::Lost } else { fault })
    }

    /// Gives `chain` back with `written` bytes in it; the driver sees it after [`Self::publish`].
    /// Each fetched chain is given back once, in any order.
    #[inline]
    pub fn complete(&mut self, chain: &Chain, written: u32) {
        self.complete_all(std::iter::once((*chain, written)));
    }

    /// As [`Self::complete`], for several chains with the bytes written to each.
    #[inline]
    pub(crate) fn complete_all(&mut self, used: impl Iterator<Item = (Chain, u32)>) {
        match &mut self.kind {
            Kind::Split(ring) => used.for_each(|(chain, written)| ring.complete(&chain, written)),
            Kind::Packed(ring) => ring.complete_all(used),
        }
    }

    /// Undoes the fetch of the last chain. Only chains that were not completed can be undone, the
    /// last one first.
    #[inline]
    pub fn undo(&mut self, chain: &Chain) {
        match &mut self.kind {
            Kind::Split(ring) => ring.undo(chain.slots),
            Kind::Packed(ring) => ring.undo(chain.slots),
        }
    }

    /// Makes completed chains visible to the driver. Returns `true` if it wants a notification.
    #[inline]
    pub fn publish(&mut self) -> bool {
        match &mut self.kind {
            Kind::Split(ring) => ring.publish(),
            Kind::Packed(ring) => ring.publish(),
        }
    }

    /// Enables notifications for the next buffer. Returns `false` if there is one already: then
    /// there may be no notification, so do not sleep.
    pub fn arm(&mut self) -> bool {
        match &mut self.kind {
            Kind::Split(ring) => ring.arm(),
            Kind::Packed(ring) => ring.arm(),
        }
    }

    /// Disables notifications, as we poll.
    #[inline]
    pub fn disarm(&mut self) {
        match &mut self.kind {
            Kind::Split(ring) => ring.disarm(),
            Kind::Packed(ring) => ring.disarm(),
        }
    }

    /// True if it is at the position of a new ring. An old one is there now and then as well.
    pub(crate) fn is_new(&self) -> bool {
        match &self.kind {
            Kind::Split(ring) => ring.base() == 0,
            Kind::Packed(ring) => ring.base() == PACKED_START,
        }
    }

    /// Number of descriptors.
    pub(crate) fn size(&self) -> u16 {
        match &self.kind {
            Kind::Split(ring) => ring.size(),
            Kind::Packed(ring) => ring.size(),
        }
    }

    /// The memory that contains the ring.
    pub fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    /// The position from which the ring can be continued. Chains that were fetched and not given
    /// back must have been undone (vhost-user `VHOST_USER_GET_VRING_BASE`).
    pub fn base(&self) -> u32 {
        match &self.kind {
            Kind::Split(ring) => ring.base(),
            Kind::Packed(ring) => ring.base(),
        }
    }
}

/// The context of a walk along descriptors.
#[derive(Clone, Copy)]
struct Walk<'a> {
    memory: &'a GuestMemory,
    direction: Direction,
}

impl<'a> Walk<'a> {
    /// What the chains of this walk that need no care have in common; `None` without memory.
    #[inline]
    fn simple(self) -> Option<Simple<'a>> {
        let flags = match self.direction {
            Direction::Transmit => 0,
            Direction::Receive => WRITE,
        };
        Some(Simple { walk: self, flags, window: self.memory.largest()? })
    }

    /// Adds the chain that starts with `head` to `out` through `pieces`, which returns its
    /// identifier and the number of descriptors, of which `room` are left. Returns that number; on
    /// an error `out` is unchanged.
    #[inline]
    fn chain(
        self,
        room: u16,
        out: &mut Chains,
        pieces: impl FnOnce(&mut Chains, &mut Begun) -> Result<(u16, u16), RingError>,
    ) -> Result<u16, RingError> {
        let mut begun = out.begin();
        let outcome = match pieces(out, &mut begun) {
            // Chains of an honest driver share no descriptors.
            Ok((_, slots)) if slots > room => Err(RingError::Index),
            Ok((id, slots)) if out.end(&begun, id, slots) => return Ok(slots),
            Ok(_) => Err(RingError::TooLong),
            Err(error) => Err(error),
        };
        out.abandon(&begun);
        outcome
    }

    /// Adds the buffer of one descriptor to the chain.
    #[inline]
    fn buffer(
        self,
        descriptor: &Descriptor,
        flags: u16,
        out: &mut Chains,
        begun: &mut Begun,
    ) -> Result<(), RingError> {
        if (flags & WRITE != 0) != (self.direction == Direction::Receive) {
            return Err(RingError::Direction);
        }
        let (mut address, mut left) = (descriptor.address, u64::from(descriptor.len));
        if left == 0 {
            // An empty buffer needs no lookup and is not kept.
            return Ok(());
        }
        if let Some(bytes) = self.memory.find(address, left) {
            self.prefetch(bytes);
            return push(out, begun, bytes);
        }
        // The buffer spans several regions, or is outside of memory.
        while left > 0 {
            let bytes = self.memory.find_start(address, left).ok_or(RingError::Address)?;
            push(out, begun, bytes)?;
            left -= bytes.len() as u64;
            address = address.checked_add(bytes.len() as u64).ok_or(RingError::Address)?;
        }
        Ok(())
    }

    /// Prefetches what is accessed first: the network header, which is read, and only if necessary
    /// written; then the head of a frame, or where it will be written.
    #[inline]
    fn prefetch(self, bytes: GuestBytes<'_>) {
        match self.direction {
            Direction::Transmit => {
                bytes.prefetch_lines(0, NET_HEADER_LEN + PREFETCHED_LEN, Access::Read);
            }
            Direction::Receive => {
                bytes.prefetch(0, Access::Read);
                bytes.prefetch(NET_HEADER_LEN, Access::Write);
            }
        }
    }

    /// The indirect table of a descriptor, and the number of its entries.
    fn table(self, descriptor: &Descriptor) -> Result<(GuestBytes<'a>, u16), RingError> {
        let len = u64::from(descriptor.len);
        let count = u16::try_from(len / DESCRIPTOR_LEN).unwrap_or(u16::MAX);
        if len == 0 || !len.is_multiple_of(DESCRIPTOR_LEN) || count > CHAIN_COUNT_MAX {
            return Err(RingError::Table);
        }
        Ok((self.memory.find(descriptor.address, len).ok_or(RingError::Address)?, count))
    }
}

/// Chains of one descriptor within the largest region, as nearly all are. They are fetched in a
/// loop of their own; everything else, and all errors, are handled one by one, piece by piece.
#[derive(Clone, Copy)]
struct Simple<'a> {
    walk: Walk<'a>,
    /// Their flags of [`Self::FLAGS`].
    flags: u16,
    window: Window<'a>,
}

impl<'a> Simple<'a> {
    /// The flags that tell them from others.
    const FLAGS: u16 = NEXT | WRITE | INDIRECT;

    /// The buffer of such a chain, whose flags were compared; `None` if it is another one.
    #[inline]
    fn find(self, descriptor: &Descriptor) -> Option<GuestBytes<'a>> {
        if descriptor.len == 0 {
            return None;
        }
        let bytes = self.window.find(descriptor.address, descriptor.len)?;
        self.walk.prefetch(bytes);
        Some(bytes)
    }
}

#[inline]
fn push(out: &mut Chains, begun: &mut Begun, bytes: GuestBytes<'_>) -> Result<(), RingError> {
    if out.push(begun, bytes) { Ok(()) } else { Err(RingError::Pieces) }
}

/// A driver's violation. Its port must be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The size is zero, too large, or not a power of two in a split ring.
    #[error("a ring of {0} descriptors; expected 1 to 32768, a power of two in a split ring")]
    Size(u16),
    /// A part of the ring is outside of the guest's memory, or not aligned.
    #[error("the ring is outside the shared memory, or is not aligned")]
    Place,
    /// The base of a packed ring is beyond its end.
    #[error("the ring should continue at descriptor {0}, which is beyond its end")]
    Base(u16),
    /// More buffers are available than fit into the ring, or buffers share descriptors.
    #[error("the driver made more buffers available than the ring holds")]
    Index,
    /// A descriptor that the ring does not have.
    #[error("descriptor {0} is beyond the end of the ring")]
    Descriptor(u16),
    /// A chain is longer than the ring, for example because it is circular, or has more than 1024
    /// descriptors.
    #[error("a descriptor chain does not end")]
    Endless,
    /// A device-readable buffer in a receive queue, or a device-writable one in a transmit queue.
    #[error("a buffer has the wrong direction for its queue")]
    Direction,
    /// A buffer outside of the guest's memory.
    #[error("a buffer is outside the shared memory")]
    Address,
    /// An indirect table that was not negotiated, has an invalid length, or is nested.
    #[error("an indirect descriptor table is not allowed there, or has an invalid length")]
    Table,
    /// A chain of more than 1024 pieces, each within one region.
    #[error("a descriptor chain has more than {PIECE_COUNT_MAX} pieces")]
    Pieces,
    /// A chain of more than 4 GiB.
    #[error("a descriptor chain is longer than 4 GiB")]
    TooLong,
    /// A receive buffer shorter than a network header.
    #[error("a receive buffer has {0} bytes, less than the network header")]
    Runt(u32),
    /// The file of the guest's memory was truncated.
    #[error("shared memory has been removed")]
    Lost,
}

/// A full fence between our store and our load, where the driver stores and loads in the opposite
/// order: at least one side sees the other's store.
#[inline]
fn barrier() {
    #[cfg(test)]
    wakeup::at_barrier();
    fence(Ordering::SeqCst);
}

/// True if going from `old` to `new` passes `wish`, all modulo 65536 (virtio 1.2 §2.7.7.1,
/// `vring_need_event`).
#[inline]
const fn passes(wish: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(wish).wrapping_sub(1) < new.wrapping_sub(old)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is asked for")]
const fn low_half(value: u32) -> u16 {
    value as u16
}

/// Sixteen bits in a whole word. Compilers may load an aligned half of a word as the whole word;
/// just after a store of the half, such a load stalls until the store has reached the cache, behind
/// all earlier stores to guests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Half(u32);

impl Half {
    #[inline]
    fn get(self) -> u16 {
        low_half(self.0)
    }
}

impl From<u16> for Half {
    #[inline]
    fn from(value: u16) -> Self {
        Self(value.into())
    }
}

/// Bytes at the start of a frame that are prefetched when its descriptor is fetched: the headers of
/// nearly all frames, and all of a small one.
pub const PREFETCHED_LEN: usize = 256;
/// Largest ring size.
const SIZE_MAX: u16 = 1 << 15;
/// Start of a new packed ring: index 0, both wrap counters 1 (virtio 1.2 §2.8.1).
pub(crate) const PACKED_START: u32 = 0x8000_8000;
/// Limit of descriptors per chain, and of entries of an indirect table. A driver must not make a
/// table longer than the ring (virtio 1.2 §2.7.5.3.1), but drivers do; Linux limits a frame to 19
/// pieces.
const CHAIN_COUNT_MAX: u16 = 1024;

#[cfg(test)]
mod tests;
