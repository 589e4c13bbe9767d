//! Amounts of traffic.

use std::iter::Sum;
use std::ops::AddAssign;

/// Frames, packets and bytes of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames; a train is one.
    pub frames: u64,
    /// Packets that these frames make on the wire; a train is many.
    pub packets: u64,
    /// Bytes of the frames.
    pub bytes: u64,
}

impl Traffic {
    /// One frame of `len` bytes that makes `packets` on the wire.
    #[inline]
    pub const fn frame(len: usize, packets: u32) -> Self {
        Self { frames: 1, packets: packets as u64, bytes: len as u64 }
    }

    /// Packets of a frame that itself counts with the last of them.
    #[inline]
    pub const fn packets(packets: u64) -> Self {
        Self { frames: 0, packets, bytes: 0 }
    }

    /// True if all are zero.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.frames == 0 && self.packets == 0
    }

    /// The rest without `part`.
    #[must_use]
    pub(crate) const fn without(self, part: Self) -> Self {
        Self {
            frames: self.frames.saturating_sub(part.frames),
            packets: self.packets.saturating_sub(part.packets),
            bytes: self.bytes.saturating_sub(part.bytes),
        }
    }

    /// The rest after the first `packets` packets were counted separately.
    #[inline]
    #[must_use]
    pub const fn behind(self, packets: u32) -> Self {
        Self { packets: self.packets.saturating_sub(packets as u64), ..self }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.frames += other.frames;
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

impl Sum for Traffic {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::default(), |a, b| Self {
            frames: a.frames + b.frames,
            packets: a.packets + b.packets,
            bytes: a.bytes + b.bytes,
        })
    }
}
