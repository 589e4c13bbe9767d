//! Segmentation of a train into wire packets.
//!
//! Fields that differ between packets, as in Linux's software segmentation:
//!
//! | field | value |
//! |---|---|
//! | lengths in IPv4, IPv6 and UDP | of this packet |
//! | IPv4 identification | incremented per packet, even with "don't fragment" ([`SplitOptions`]) |
//! | TCP sequence number | of the packet's first byte |
//! | FIN, PSH | on the last packet only |
//! | CWR | with the ECN bit on the first packet only (RFC 3168 §6.1.2), else on all |
//! | checksums | complete; TCP's and UDP's partial on request ([`ChecksumRule`]) |
//!
//! Everything else is repeated: tags, IP options, extension headers, TCP options, a tunnel's
//! headers. In a tunnel the outer lengths, identifications and checksums change like the inner
//! ones. A UFO datagram becomes IP fragments.
//!
//! **CWR** has two meanings. In RFC 3168 it is sent once, and senders mark such a train with the
//! ECN bit. In AccECN (RFC 9768 §3.2.2) it is a bit of a counter in all packets, which Linux marks
//! with `SKB_GSO_TCP_ACCECN`; the metadata has no equivalent. So without the ECN bit, CWR is
//! repeated like any other flag: clearing it would signal six marks to the receiver that nobody
//! set. Linux clears it if its mark is lost; this is a difference.
//!
//! **Inconsistent lengths.** As in Linux, everything after the headers is payload, whatever the IP
//! and UDP lengths. (The UDP length is subtracted from the partial checksum, where the sender added
//! it.) So the padding of a train shorter than Ethernet's minimum would become payload; no sender
//! makes one. A train that fits into one packet is passed unchanged except for the checksum,
//! including padding.
//!
//! [`ChecksumRule`]: crate::ChecksumRule

use tapswitch_wire::checksum::Sum;
use tapswitch_wire::{LongNetHeader, NetHeader};

use crate::checksum::add_at;
use crate::fragments::Fragments;
use crate::middle::Middle;
use crate::plan::{Plan, Work};
use crate::{OffloadError, SplitOptions};

/// Iterates over the packets of a train. None is a train, and unless
/// [partial checksums](crate::ChecksumRule::Partial) were asked for, no work is deferred.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    /// Headers of the train, from Ethernet to TCP or UDP.
    headers: &'a [u8],
    /// Remaining payload; the first part is empty only if both are.
    rest: [&'a [u8]; 2],
    /// Payload after that.
    more: &'a [&'a [u8]],
    /// Number of returned packets.
    index: u32,
    plan: Plan,
    middle: Option<Middle>,
}

impl<'a> Segments<'a> {
    /// Takes the train `headers ++ payload`. `headers` contains at least all headers through TCP or
    /// UDP, in a tunnel the inner ones.
    ///
    /// # Errors
    /// All except [`OffloadError::Train`], [`OffloadError::Scattered`] and
    /// [`OffloadError::Headroom`]. There are no later errors.
    pub fn new(
        meta: &NetHeader,
        headers: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Self, OffloadError> {
        let meta = LongNetHeader::from(*meta);
        Self::take(&meta, &SplitOptions::default(), headers, payload, &[])
    }

    /// As [`new`](Self::new), for trains in tunnels, with options, and with payload in any number
    /// of parts.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`OffloadError::Scattered`] if the payload of a packet is in more
    /// than two parts. Parts whose lengths are multiples of `gso_size` never cause it.
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

    /// Writes the next packet's headers to the start of `headers_out`, and returns its payload.
    ///
    /// Returns `None` after the last packet, and also, without progress, if `headers_out` is
    /// shorter than [`headers_len`](Self::headers_len).
    #[inline]
    pub fn next(&mut self, headers_out: &mut [u8]) -> Option<Segment<'a>> {
        // 1. A middle packet with its payload in one part: one pass over that unless its checksum
        //    is partial, a copy of the headers, up to four stores.
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
        middle.write(out, self.plan.sum_of_part(payload), self.plan.position(self.index));
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

    /// The metadata of each packet: [`NetHeader::PLAIN`], or a partial checksum.
    #[inline]
    pub fn net_header(&self) -> NetHeader {
        self.plan.meta
    }

    /// Maximum length in bytes of each packet's headers, as written by [`next`](Self::next); for
    /// fragments that of the first.
    #[inline]
    pub fn headers_len(&self) -> usize {
        match &self.plan.work {
            Work::Fragments(fragments) => self.headers.len() + fragments.inserted_len(),
            _ => self.headers.len(),
        }
    }

    /// Number of remaining packets.
    #[inline]
    pub fn remaining(&self) -> u32 {
        self.plan.count - self.index
    }

    /// Removes the payload of the next packet, at most `size` bytes, from the rest.
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

    /// Fills the rest's empty parts from `more`.
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

    /// Fails if a packet has payload in more than two parts, which is found by taking all.
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
    /// Number of header bytes written.
    pub headers_len: usize,
    /// The payload, in this order. The second part is empty unless the packet's payload starts in
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

/// The sum of a payload in `parts`, which starts at an even offset.
fn sum_of_parts<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Sum {
    let (sum, _) =
        parts.fold((Sum::ZERO, 0), |(sum, at), part| (add_at(sum, at, part), at + part.len()));
    sum
}
