//! Segmentation in place.

use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{LongNetHeader, NetHeader};

use crate::middle::Middle;
use crate::plan::{Plan, Work};
use crate::{OffloadError, SplitOptions};

/// Iterates over the packets of a train, each contiguous, for callers that own the train's bytes
/// and no longer need them.
///
/// Payload is not moved. The headers of each packet are written before its payload, over the end of
/// the previous packet, which must be finished before the next one is requested. The packets are
/// identical to those of [`Segments`](crate::Segments).
#[derive(Debug)]
pub struct InPlace<'a> {
    buf: &'a mut [u8],
    /// Start of the last returned packet, or of the first.
    at: usize,
    /// Header length of each packet.
    headers_len: usize,
    /// Number of returned packets.
    index: u32,
    plan: Plan,
    middle: Option<Middle>,
}

impl<'a> InPlace<'a> {
    /// Takes the train in `buf[start..]`.
    ///
    /// # Errors
    /// As [`Segments::new`](crate::Segments::new), and [`OffloadError::Headroom`] if `start` is
    /// below 8 for a datagram that becomes IPv6 fragments. The train is then unchanged.
    pub fn new(meta: &NetHeader, buf: &'a mut [u8], start: usize) -> Result<Self, OffloadError> {
        let meta = LongNetHeader::from(*meta);
        Self::with(&meta, &SplitOptions::default(), buf, start)
    }

    /// As [`new`](Self::new), for trains in tunnels and with options.
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

    /// Builds the next packet and returns it, with `prefix` bytes before it that the caller may
    /// overwrite, for example with a device's header. The headers of later packets are made from
    /// this one's: a change of a field that all packets share also applies to them.
    ///
    /// Returns `None` after the last packet, and also, without progress, if there are fewer than
    /// `prefix` bytes before it.
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
        // The packet before the second one is not a middle packet.
        match &self.middle {
            Some(middle) if position.index > 1 && !position.is_last => {
                middle.patch(headers, self.plan.sum_of_part(payload), position);
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

    /// The metadata of each packet, as of [`Segments`](crate::Segments::net_header).
    #[inline]
    pub fn net_header(&self) -> NetHeader {
        self.plan.meta
    }

    /// Number of remaining packets.
    #[inline]
    pub fn remaining(&self) -> u32 {
        self.plan.count - self.index
    }
}
