//! Cutting a train where it lies.

use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{LongNetHeader, NetHeader};

use crate::middle::Middle;
use crate::plan::{Plan, Work};
use crate::{OffloadError, SplitOptions};

/// The packets of a train, one after the other, each in one piece: for who owns the train's bytes
/// and needs them no more.
///
/// Payload stays where it is. The headers of each packet are written in front of its payload, over
/// the end of the packet before, which must thus be done with when the next one is asked for. What
/// comes out is what [`Segments`](crate::Segments) makes of the same train, byte for byte.
#[derive(Debug)]
pub struct InPlace<'a> {
    buf: &'a mut [u8],
    /// Start of the packet given out last, or of the first.
    at: usize,
    /// Length of the headers that each packet has.
    headers_len: usize,
    /// Packets given out.
    index: u32,
    plan: Plan,
    middle: Option<Middle>,
}

impl<'a> InPlace<'a> {
    /// Takes the train in `buf[start..]`.
    ///
    /// # Errors
    /// As [`Segments::new`](crate::Segments::new), and [`OffloadError::Headroom`] when `start` is
    /// below 8 for a datagram that becomes fragments of IPv6. Nothing is changed then.
    pub fn new(meta: &NetHeader, buf: &'a mut [u8], start: usize) -> Result<Self, OffloadError> {
        let meta = LongNetHeader::from(*meta);
        Self::with(&meta, &SplitOptions::default(), buf, start)
    }

    /// As [`new`](Self::new), for trains in tunnels and with choices.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with(
        meta: &LongNetHeader,
        options: &SplitOptions,
        buf: &'a mut [u8],
        start: usize,
    ) -> Result<Self, OffloadError> {
        let frame = buf.get(start..).ok_or(OffloadError::Headers)?;
        let plan = Plan::new(meta, options, frame, frame.len(), |at| Sum::of(&frame[at..]))?;
        let (at, headers_len) = match &plan.work {
            Work::Fragments(fragments) => (fragments.prepare(buf, start)?, fragments.headers_len()),
            _ => (start, plan.headers_end),
        };
        let middle = Middle::new(&plan, &buf[at..at + headers_len]);
        Ok(Self { buf, at, headers_len, index: 0, plan, middle })
    }

    /// Makes the next packet and lends it, with `prefix` bytes in front of it that the caller may
    /// overwrite, such as for a header of the device's. The headers of the packets to come are made
    /// from this one's: who changes a field that all packets share changes it in those, too.
    ///
    /// Returns `None` after the last packet, and also, without going on, when there are fewer than
    /// `prefix` bytes in front of it.
    #[inline]
    pub fn next(&mut self, prefix: usize) -> Option<&mut [u8]> {
        if self.remaining() == 0 {
            return None;
        }
        let size = usize::from(self.plan.size);
        let at = if self.index == 0 { self.at } else { self.at + size };
        let from = at.checked_sub(prefix)?;
        self.buf.copy_within(self.at..self.at + self.headers_len, at);
        let payload_at = at + self.headers_len;
        let end = self.buf.len().min(payload_at + size);
        let (headers, payload) = self.buf[at..end].split_at_mut(self.headers_len);
        let position = self.plan.position(self.index);
        // The packet in front of the second one is not in the middle.
        match &self.middle {
            Some(middle) if position.index > 1 && !position.is_last => {
                middle.patch(headers, Sum::of(payload), position);
            }
            _ => {
                let sum = self.plan.sum([payload, &[]]);
                self.plan.write(headers, [payload, &[]], sum, position);
            }
        }
        self.at = at;
        self.index += 1;
        Some(&mut self.buf[from..end])
    }

    /// Packets still to come.
    #[inline]
    pub fn remaining(&self) -> u32 {
        self.plan.count - self.index
    }
}
