//! Cutting a train into wire packets.
//!
//! What changes from packet to packet, after Linux's software segmentation:
//!
//! | field | value |
//! |---|---|
//! | lengths in IPv4, IPv6 and UDP | of this packet |
//! | IPv4 identification | one more for each packet, "don't fragment" or not ([`SplitOptions`]) |
//! | TCP sequence number | of the packet's first byte |
//! | FIN, PSH | on the last packet only |
//! | CWR | with the ECN bit on the first packet only (RFC 3168 §6.1.2), else on all |
//! | checksums | complete |
//!
//! Everything else is repeated: tags, IP options, extension headers, TCP options, the headers of a
//! tunnel. In a tunnel lengths, identifications and checksums of the outer headers change as those
//! of the inner ones do. A datagram of UFO becomes IP fragments.
//!
//! **CWR** has two meanings. RFC 3168 says it once, and its senders mark such a train with the ECN
//! bit. To AccECN (RFC 9768 §3.2.2) it is a bit of a counter that all packets show; Linux has a
//! mark for that (`SKB_GSO_TCP_ACCECN`), for which the metadata has no word. So where the ECN bit
//! is missing, CWR is repeated as any other flag: taken away, it would tell the receiver of six
//! marks that nobody set. Linux, left without its mark, takes it away; there we part from it.
//!
//! **Lengths that lie.** The frame's bytes decide, as in Linux: everything behind the headers is
//! payload, whatever the IP and UDP lengths say. (The UDP length is taken out of the partial
//! checksum again, where its sender put it.) A train shorter than Ethernet's minimum would thus
//! have its padding cut along; no sender makes one. A train that fits one packet is passed on as
//! it is, but for the checksum, so there a padded frame stays what it was.

use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{LongNetHeader, NetHeader};

use crate::checksum::add_at;
use crate::fragments::Fragments;
use crate::middle::Middle;
use crate::plan::{Plan, Work};
use crate::{OffloadError, SplitOptions};

/// The packets of a train, one after the other. Each is as [`NetHeader::PLAIN`] says: nothing is
/// left undone.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    /// Headers of the train, Ethernet through TCP or UDP.
    headers: &'a [u8],
    /// Payload that no packet has taken yet; the first part is empty only when both are.
    rest: [&'a [u8]; 2],
    /// Payload behind that.
    more: &'a [&'a [u8]],
    /// Packets given out.
    index: u32,
    plan: Plan,
    middle: Option<Middle>,
}

impl<'a> Segments<'a> {
    /// Takes the train `headers ++ payload`. All headers through TCP or UDP, in a tunnel the inner
    /// ones, lie within `headers`, and any part of the payload may follow them there.
    ///
    /// # Errors
    /// Anything but [`OffloadError::Train`], [`OffloadError::Scattered`] and
    /// [`OffloadError::Headroom`]. Nothing that this accepts fails later.
    pub fn new(
        meta: &NetHeader,
        headers: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Self, OffloadError> {
        let meta = LongNetHeader::from(*meta);
        Self::take(&meta, &SplitOptions::default(), headers, payload, &[])
    }

    /// As [`new`](Self::new), for trains in tunnels, with choices, and with a payload in any number
    /// of parts.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`OffloadError::Scattered`] when the payload of a packet lies in
    /// more than two parts. A part that is a multiple of `gso_size` long is always fine.
    pub fn with(
        meta: &LongNetHeader,
        options: &SplitOptions,
        headers: &'a [u8],
        payload: &'a [&'a [u8]],
    ) -> Result<Self, OffloadError> {
        let (first, more) = payload.split_first().map_or((&[][..], payload), |(f, m)| (*f, m));
        Self::take(meta, options, headers, first, more)
    }

    fn take(
        meta: &LongNetHeader,
        options: &SplitOptions,
        headers: &'a [u8],
        payload: &'a [u8],
        more: &'a [&'a [u8]],
    ) -> Result<Self, OffloadError> {
        let more_len: usize = more.iter().map(|part| part.len()).sum();
        let frame_len = headers.len() + payload.len() + more_len;
        let sum = |at: usize| {
            sum_of_parts([&headers[at..], payload].into_iter().chain(more.iter().copied()))
        };
        let plan = Plan::new(meta, options, headers, frame_len, sum)?;
        let (headers, head_of_payload) = headers.split_at(plan.headers_end);
        let middle = Middle::new(&plan, headers);
        let rest = [head_of_payload, payload];
        let mut segments = Self { headers, rest, more, index: 0, plan, middle };
        segments.refill();
        if !more.is_empty() {
            segments.check_parts()?;
        }
        Ok(segments)
    }

    /// Writes the next packet's headers to the start of `headers_out` and lends its payload.
    ///
    /// Returns `None` after the last packet, and also, without going on, when `headers_out` is
    /// shorter than [`headers_len`](Self::headers_len).
    #[inline]
    pub fn next(&mut self, headers_out: &mut [u8]) -> Option<Segment<'a>> {
        // 1. A middle packet with its payload in one part: one pass over that, a copy of the
        //    headers, up to four stores.
        // 2. The first and last packet, and all packets in a tunnel: twice the stores, and their
        //    sums.
        // 3. A fragment.
        //
        // Small enough to be inlined, so that the result stays in registers. If the caller loaded
        // it from memory in larger words than it was stored in, store forwarding would fail, and
        // the load would wait for the stores and so for the payload's sum.
        if let Some(payload) = self.next_in_middle(headers_out) {
            return Some(Segment { headers_len: self.headers.len(), payload: [payload, &[]] });
        }
        self.next_at_end(headers_out)
    }

    /// The same for a middle packet whose payload is in one part that does not end with it.
    #[inline(never)]
    fn next_in_middle(&mut self, headers_out: &mut [u8]) -> Option<&'a [u8]> {
        let middle = self.middle.as_ref()?;
        let (payload, rest) = self.rest[0].split_at_checked(usize::from(self.plan.size))?;
        let is_in_middle = self.index != 0 && self.index + 1 < self.plan.count;
        if !is_in_middle || rest.is_empty() {
            return None;
        }
        let out = headers_out.get_mut(..self.headers.len())?;
        middle.write(out, Sum::of(payload), self.plan.position(self.index));
        self.rest[0] = rest;
        self.index += 1;
        Some(payload)
    }

    #[inline(never)]
    fn next_at_end(&mut self, headers_out: &mut [u8]) -> Option<Segment<'a>> {
        if let Work::Fragments(fragments) = self.plan.work {
            return self.next_fragment(&fragments, headers_out);
        }
        let headers_len = self.headers.len();
        let out = headers_out.get_mut(..headers_len)?;
        if self.remaining() == 0 {
            return None;
        }
        let payload = self.take_payload(usize::from(self.plan.size));
        let sum = self.plan.sum(payload);
        out.copy_from_slice(self.headers);
        self.plan.write(out, payload, sum, self.plan.position(self.index));
        self.index += 1;
        Some(Segment { headers_len, payload })
    }

    #[cold]
    fn next_fragment(
        &mut self,
        fragments: &Fragments,
        headers_out: &mut [u8],
    ) -> Option<Segment<'a>> {
        let out = headers_out.get_mut(..self.headers_len())?;
        if self.remaining() == 0 {
            return None;
        }
        let position = self.plan.position(self.index);
        let first_only = if position.index == 0 { fragments.first_only_len() } else { 0 };
        let payload = self.take_payload(usize::from(self.plan.size) - first_only);
        let payload_len = payload[0].len() + payload[1].len();
        let frame_len = fragments.headers_len() + first_only + payload_len;
        let headers_len = fragments.write(out, self.headers, frame_len, position);
        self.index += 1;
        Some(Segment { headers_len, payload })
    }

    /// Length in bytes of the headers of each packet, of fragments those of the first, which are
    /// the longest: what [`next`](Self::next) writes at most.
    #[inline]
    pub fn headers_len(&self) -> usize {
        match &self.plan.work {
            Work::Fragments(fragments) => self.headers.len() + fragments.inserted_len(),
            _ => self.headers.len(),
        }
    }

    /// Packets still to come.
    #[inline]
    pub fn remaining(&self) -> u32 {
        self.plan.count - self.index
    }

    /// Takes the payload of the next packet, at most `size` bytes, out of the rest.
    #[inline]
    fn take_payload(&mut self, size: usize) -> [&'a [u8]; 2] {
        let [first, second] = self.rest;
        if let Some((head, first)) = first.split_at_checked(size) {
            self.rest[0] = first;
            if first.is_empty() {
                self.refill();
            }
            return [head, &[]];
        }
        let (tail, second) = second.split_at(second.len().min(size - first.len()));
        self.rest = [&[], second];
        self.refill();
        [first, tail]
    }

    /// Fills the rest's empty parts from behind, as far as there is anything.
    #[inline]
    fn refill(&mut self) {
        if self.rest[0].is_empty() {
            self.rest = [self.rest[1], &[]];
        }
        while let Some((part, more)) = self.more.split_first() {
            if self.rest[0].is_empty() {
                self.rest[0] = part;
            } else if self.rest[1].is_empty() {
                self.rest[1] = part;
            } else {
                break;
            }
            self.more = more;
        }
    }

    /// Looks for a packet with payload in more than two parts, by taking all.
    #[cold]
    fn check_parts(&self) -> Result<(), OffloadError> {
        let size = usize::from(self.plan.size);
        let mut dry = self.clone();
        let mut wanted = match &self.plan.work {
            Work::Fragments(fragments) => size - fragments.first_only_len(),
            _ => size,
        };
        for index in 0..self.plan.count {
            let [first, second] = dry.take_payload(wanted);
            let is_full = first.len() + second.len() == wanted;
            if !is_full && (index + 1 < self.plan.count || !dry.rest[0].is_empty()) {
                return Err(OffloadError::Scattered);
            }
            wanted = size;
        }
        Ok(())
    }
}

/// One packet of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Bytes of headers that were written.
    pub headers_len: usize,
    /// The payload, in this order. The second part is empty unless the packet's payload began in
    /// the train's `headers` and ends in its `payload`.
    pub payload: [&'a [u8]; 2],
}

impl Segment<'_> {
    /// Length of the packet as a frame in bytes.
    #[inline]
    pub fn frame_len(&self) -> usize {
        self.headers_len + self.payload[0].len() + self.payload[1].len()
    }
}

/// The sum of a payload in `parts`, behind an even number of bytes.
fn sum_of_parts<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Sum {
    let (sum, _) =
        parts.fold((Sum::ZERO, 0), |(sum, at), part| (add_at(sum, at, part), at + part.len()));
    sum
}
