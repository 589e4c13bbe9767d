//! Virtqueues from the device's side, split (virtio 1.2 §2.7) and packed (§2.8).
//!
//! A guest's driver makes buffers available; the device takes them, reads or writes them, and gives
//! them back as used. All of that is memory that the guest may change at any time, so:
//!
//! - What is fetched is fetched once, checked, and then used from our copy.
//! - Nothing that the guest says is an index into memory of ours without a check.
//! - A walk along descriptors is as long as the ring at most, and 1024 descriptors: chains in
//!   circles end. It finds 1024 pieces at most, over however many regions they go on. All chains
//!   that the driver has not been told of together are no longer than the ring, so a burst ends,
//!   whatever the guest does meanwhile.
//! - Whatever cannot be true ends the ring with a [`RingError`]; what was fetched so far stays
//!   good. The port that the ring belongs to is then reset, and no other one notices.
//! - Memory that was taken away is noticed when the next chains are fetched.
//!
//! **Batches.** Chains are fetched many at a time ([`Ring::fetch`]); what is used is staged
//! ([`Ring::complete`]) and told to the driver once per burst ([`Ring::publish`]), with one barrier
//! and at most one notification.
//!
//! **Sleeping.** While we poll, the driver is asked not to notify. Before sleeping, [`Ring::arm`]
//! asks for it and looks again; the fences on both sides leave no interleaving in which both miss
//! the other (virtio 1.2 §2.7.7, §2.7.10, §2.8.10):
//!
//! ```text
//! device: wish = next;      fence;  sleeps only if nothing is available
//! driver: available = new;  fence;  notifies if the wish was passed
//! ```
//!
//! The other way round it is the same. `wakeup` tries all interleavings in a model of weak memory.

mod descriptor;
mod packed;
mod split;
#[cfg(test)]
pub(crate) mod wakeup;

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::chain::{Begun, Chain, Chains, PIECE_COUNT_MAX};
use crate::features::NET_HEADER_LEN;
use crate::memory::{GuestBytes, GuestMemory};

use descriptor::{DESCRIPTOR_LEN, Descriptor, INDIRECT, NEXT, WRITE};
use packed::PackedRing;
use split::SplitRing;

/// Who reads a ring's buffers, and who writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The guest sends: the device reads.
    Transmit,
    /// The guest receives: the device writes.
    Receive,
}

/// What was negotiated that concerns rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingFeatures {
    /// `VIRTIO_F_RING_PACKED`.
    pub packed: bool,
    /// `VIRTIO_F_RING_EVENT_IDX`.
    pub event_index: bool,
    /// `VIRTIO_F_INDIRECT_DESC`.
    pub indirect: bool,
}

/// Where a ring lies, in the VMM's own addresses, as vhost-user describes it.
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
            // Flags, index, entries; the wish at the end may be where memory ends.
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
    /// The ring at `place` in `memory`, going on from `base`: what [`Self::base`] said when it was
    /// stopped, or zero (split) and 0x8000_8000 (packed) for a new one. When whoever served the
    /// ring was killed, the last two do for packed rings as well, which are searched for the place;
    /// for split rings it is the index of used buffers that says it.
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

    /// Adds up to `limit` available chains to `out`, which forgets what it has of other memory.
    /// Returns how many: fewer, but one, where they have very many pieces.
    ///
    /// # Errors
    /// What the driver did wrong; chains before are in `out`. The ring is not to be used any more.
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
        // Zeroes in place of a ring are not what the driver said.
        outcome.map_err(|fault| if self.memory.was_lost() { RingError::Lost } else { fault })
    }

    /// Gives `chain` back with `written` bytes in it; the driver learns of it by
    /// [`Self::publish`]. Each chain that was fetched is given back once, in any order.
    #[inline]
    pub fn complete(&mut self, chain: &Chain, written: u32) {
        match &mut self.kind {
            Kind::Split(ring) => ring.complete(chain, written),
            Kind::Packed(ring) => ring.complete(chain, written),
        }
    }

    /// Puts the last of the chains that were fetched back, as if it never had been. Only chains
    /// that were not completed can go, the last one first.
    #[inline]
    pub fn undo(&mut self, chain: &Chain) {
        match &mut self.kind {
            Kind::Split(ring) => ring.undo(chain.slots),
            Kind::Packed(ring) => ring.undo(chain.slots),
        }
    }

    /// Tells the driver of what was completed. Returns `true` when it wants to be notified.
    #[inline]
    pub fn publish(&mut self) -> bool {
        match &mut self.kind {
            Kind::Split(ring) => ring.publish(),
            Kind::Packed(ring) => ring.publish(),
        }
    }

    /// Asks the driver to notify us of the next buffer. Returns `false` when there is one already:
    /// then no notification may come, so do not sleep.
    pub fn arm(&mut self) -> bool {
        match &mut self.kind {
            Kind::Split(ring) => ring.arm(),
            Kind::Packed(ring) => ring.arm(),
        }
    }

    /// Asks the driver not to notify us: we look by ourselves.
    #[inline]
    pub fn disarm(&mut self) {
        match &mut self.kind {
            Kind::Split(ring) => ring.disarm(),
            Kind::Packed(ring) => ring.disarm(),
        }
    }

    /// True when it stands where a new one does. So does an old one now and then.
    pub(crate) fn is_new(&self) -> bool {
        match &self.kind {
            Kind::Split(ring) => ring.base() == 0,
            Kind::Packed(ring) => ring.base() == PACKED_START,
        }
    }

    /// Number of its descriptors.
    pub(crate) fn size(&self) -> u16 {
        match &self.kind {
            Kind::Split(ring) => ring.size(),
            Kind::Packed(ring) => ring.size(),
        }
    }

    /// The memory that it lies in.
    pub fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    /// Where the ring stands, for whoever goes on with it: chains that were fetched and not given
    /// back must have been undone (vhost-user `VHOST_USER_GET_VRING_BASE`).
    pub fn base(&self) -> u32 {
        match &self.kind {
            Kind::Split(ring) => ring.base(),
            Kind::Packed(ring) => ring.base(),
        }
    }
}

/// What a walk along descriptors needs to know.
#[derive(Clone, Copy)]
struct Walk<'a> {
    memory: &'a GuestMemory,
    direction: Direction,
}

/// The descriptor that a chain starts with, and what of it stands elsewhere in each kind of ring.
struct Head {
    descriptor: Descriptor,
    flags: u16,
    id: u16,
}

impl<'a> Walk<'a> {
    /// Adds the chain that starts with `head` to `out`: at once when it is but that, else put
    /// together by `pieces`, which answers its identifier and how many of the ring's descriptors it
    /// takes up, of which there are `room`. Answers the latter; on an error `out` is as before.
    #[inline]
    fn chain(
        self,
        head: &Head,
        room: u16,
        out: &mut Chains,
        pieces: impl FnOnce(&mut Chains, &mut Begun) -> Result<(u16, u16), RingError>,
    ) -> Result<u16, RingError> {
        if room > 0
            && let Some(bytes) = self.whole(&head.descriptor, head.flags)
        {
            out.push_whole(head.id, bytes);
            return Ok(1);
        }
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

    /// The buffer of a chain that is but one descriptor and lies in the largest region, as nearly
    /// all do. Anything else, and whatever is wrong, is looked at piece by piece.
    #[inline]
    fn whole(self, descriptor: &Descriptor, flags: u16) -> Option<GuestBytes<'a>> {
        let wanted = match self.direction {
            Direction::Transmit => 0,
            Direction::Receive => WRITE,
        };
        if flags & (NEXT | WRITE | INDIRECT) != wanted || descriptor.len == 0 {
            return None;
        }
        let bytes = self.memory.find_in_largest(descriptor.address, descriptor.len.into())?;
        prefetch(bytes);
        Some(bytes)
    }

    /// Adds the buffer of one descriptor to the chain, which may be told in a table.
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
            // Nothing to be looked for, and nothing to be kept.
            return Ok(());
        }
        if let Some(bytes) = self.memory.find(address, left) {
            prefetch(bytes);
            return push(out, begun, bytes);
        }
        // It begins in one region and goes on in the next, or lies nowhere.
        while left > 0 {
            let bytes = self.memory.find_start(address, left).ok_or(RingError::Address)?;
            push(out, begun, bytes)?;
            left -= bytes.len() as u64;
            address = address.checked_add(bytes.len() as u64).ok_or(RingError::Address)?;
        }
        Ok(())
    }

    /// The table that a descriptor tells, and the number of its entries.
    fn table(self, descriptor: &Descriptor) -> Result<(GuestBytes<'a>, u16), RingError> {
        let len = u64::from(descriptor.len);
        let count = u16::try_from(len / DESCRIPTOR_LEN).unwrap_or(u16::MAX);
        if len == 0 || !len.is_multiple_of(DESCRIPTOR_LEN) || count > CHAIN_COUNT_MAX {
            return Err(RingError::Table);
        }
        Ok((self.memory.find(descriptor.address, len).ok_or(RingError::Address)?, count))
    }
}

#[inline]
fn push(out: &mut Chains, begun: &mut Begun, bytes: GuestBytes<'_>) -> Result<(), RingError> {
    if out.push(begun, bytes) { Ok(()) } else { Err(RingError::Pieces) }
}

/// Lets come what is touched first: the network header, which is read before it is written if it is
/// written at all, and the frame behind it.
#[inline]
fn prefetch(bytes: GuestBytes<'_>) {
    bytes.prefetch(0);
    bytes.prefetch(NET_HEADER_LEN);
}

/// What a driver did that it must not. Its port is to be reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The size is zero, too large, or no power of two in a split ring.
    #[error("a ring of {0} descriptors; expected 1 to 32768, a power of two in a split ring")]
    Size(u16),
    /// A part of the ring lies outside of the guest's memory, or is not aligned.
    #[error("the ring is outside the shared memory, or is not aligned")]
    Place,
    /// A packed ring is to go on where it has no descriptor.
    #[error("the ring should continue at descriptor {0}, which is beyond its end")]
    Base(u16),
    /// More buffers are available than the ring has room for, or buffers share descriptors.
    #[error("the driver made more buffers available than the ring holds")]
    Index,
    /// A descriptor that the ring does not have.
    #[error("descriptor {0} is beyond the end of the ring")]
    Descriptor(u16),
    /// A chain that is longer than the ring, as one in a circle is, or than 1024 descriptors.
    #[error("a descriptor chain does not end")]
    Endless,
    /// A buffer to be read where one to be written belongs, or the other way round.
    #[error("a buffer has the wrong direction for its queue")]
    Direction,
    /// A buffer outside of the guest's memory.
    #[error("a buffer is outside the shared memory")]
    Address,
    /// An indirect table that was not negotiated, is of odd or absurd length, or within another.
    #[error("an indirect descriptor table is not allowed there, or has an invalid length")]
    Table,
    /// A chain that lies in more than 1024 pieces, each within one region.
    #[error("a descriptor chain has more than {PIECE_COUNT_MAX} pieces")]
    Pieces,
    /// A chain of more than 4 GiB.
    #[error("a descriptor chain is longer than 4 GiB")]
    TooLong,
    /// A buffer to receive into that is shorter than a network header.
    #[error("a receive buffer has {0} bytes, less than the network header")]
    Runt(u32),
    /// The file behind the guest's memory was cut short.
    #[error("shared memory has been removed")]
    Lost,
}

/// Stands between what we store and what we load then, when the driver does it the other way round:
/// one of us sees what the other has stored.
#[inline]
fn barrier() {
    #[cfg(test)]
    wakeup::at_barrier();
    fence(Ordering::SeqCst);
}

/// True when going from `old` to `new` passes `wish`, all modulo 65536 (virtio 1.2 §2.7.7.1,
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

/// Sixteen bits that are kept in a whole word. A compiler may load an aligned half of a word as all
/// of it; just after the half was stored, that load waits until the store has reached the cache,
/// behind all that was stored to guests before.
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

/// Largest ring.
const SIZE_MAX: u16 = 1 << 15;
/// Where a new packed ring starts: index 0, both wrap counters 1 (virtio 1.2 §2.8.1).
pub(crate) const PACKED_START: u32 = 0x8000_8000;
/// Descriptors of a chain, and entries of an indirect table. A driver must not make a table longer
/// than the ring (virtio 1.2 §2.7.5.3.1), but drivers do; Linux's own bound for a frame's pieces
/// is 19.
const CHAIN_COUNT_MAX: u16 = 1024;

#[cfg(test)]
mod tests;
