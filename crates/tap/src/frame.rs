//! One frame with its metadata: as stored in a [`Burst`], and as passed to send.
//!
//! A read(2) of a queue returns `[prefix][frame]` contiguously ([`Prefix`]). A burst keeps the
//! prefix directly before its frame wherever the first byte moves, so the frame can be sent by one
//! write(2) without a copy. The header is decoded on demand.

mod burst;
mod layout;

use std::io::IoSlice;

pub use burst::{Burst, BurstSize, Frames, FramesMut};
pub(crate) use layout::{PrefixBytes, protocol_of};
use tapswitch_wire::{EtherType, LongNetHeader, NetHeader};

use crate::{PacketInfo, Prefix};

/// A read-only frame in a [`Burst`].
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Prefix and frame.
    packet: &'a [u8],
    layout: Prefix,
}

impl<'a> Frame<'a> {
    /// Metadata of the frame.
    #[inline]
    pub fn header(&self) -> NetHeader {
        self.layout.header(self.packet)
    }

    /// The bytes of the frame, without metadata.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.packet.get(self.layout.len()..).unwrap_or_default()
    }

    /// As [`Self::header`], with the additional fields of a 20 or 24-byte header: for trains in UDP
    /// tunnels.
    pub fn long_header(&self) -> LongNetHeader {
        let header = self.packet.get(self.layout.header_range());
        header.and_then(LongNetHeader::decode).unwrap_or_default()
    }

    /// The protocol information; `None` on a device without it (`IFF_NO_PI`), where the frame's
    /// bytes identify the protocol.
    pub fn packet_info(&self) -> Option<PacketInfo> {
        self.layout.packet_info_of(self.packet)
    }

    /// True if there is protocol information and it names no protocol.
    #[inline]
    fn lacks_protocol(&self) -> bool {
        self.packet_info().is_some_and(|info| info.protocol == EtherType(0))
    }
}

/// A frame in a [`Burst`] that can be changed in place.
#[derive(Debug)]
pub struct FrameMut<'a> {
    slot: &'a mut Slot,
    /// From `slot.base` to the end of the frame: headroom, prefix, frame.
    region: &'a mut [u8],
    layout: Prefix,
}

impl FrameMut<'_> {
    /// The same frame, read-only.
    #[inline]
    pub fn as_frame(&self) -> Frame<'_> {
        Frame {
            packet: self.region.get(self.packet_at()..).unwrap_or_default(),
            layout: self.layout,
        }
    }

    /// As [`Frame::header`].
    #[inline]
    pub fn header(&self) -> NetHeader {
        self.as_frame().header()
    }

    /// Replaces the metadata. The fields of a longer header after the first 12 bytes are unchanged.
    #[inline]
    pub fn set_header(&mut self, header: &NetHeader) {
        let at = self.packet_at();
        if let Some(packet) = self.region.get_mut(at..) {
            self.layout.set_header(packet, header);
        }
    }

    /// As [`Self::set_header`], including the fields of a longer header that the queue's header
    /// has.
    pub fn set_long_header(&mut self, header: &LongNetHeader) {
        let (at, range) = (self.packet_at(), self.layout.header_range());
        if let Some(place) = self.region.get_mut(at + range.start..at + range.end) {
            place.copy_from_slice(&header.encode()[..place.len()]);
        }
    }

    /// Replaces the protocol information; no effect in a burst whose queue has none. A tun device
    /// uses it instead of the packet's contents, so update it when rewriting a packet to another
    /// protocol.
    pub fn set_packet_info(&mut self, info: PacketInfo) {
        let at = self.packet_at();
        if let Some(packet) = self.region.get_mut(at..) {
            self.layout.set_packet_info(packet, info);
        }
    }

    /// The bytes of the frame.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.region.get(self.frame_at()..).unwrap_or_default()
    }

    /// The bytes of the frame, mutable.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let at = self.frame_at();
        self.region.get_mut(at..).unwrap_or_default()
    }

    /// Bytes that [`Self::push_front`] can still add: at least the headroom of the burst.
    pub fn headroom(&self) -> usize {
        self.packet_at()
    }

    /// Extends the frame by `len` bytes at its front, with arbitrary contents, and returns all of
    /// it. Returns `None` without a change if there is no room. The offsets in the metadata stay as
    /// they are: see [`NetHeader::shift`].
    ///
    /// ```
    /// use tapswitch_tap::{Burst, FrameMut, NetHeader};
    ///
    /// /// Inserts an 802.1Q tag after the MAC addresses.
    /// fn push_tag(frame: &mut FrameMut<'_>, vlan: u16) -> Option<()> {
    ///     let bytes = frame.push_front(4)?;
    ///     bytes.copy_within(4..16, 0);
    ///     bytes[12..14].copy_from_slice(&0x8100_u16.to_be_bytes());
    ///     bytes[14..16].copy_from_slice(&vlan.to_be_bytes());
    ///     let mut header = frame.header();
    ///     header.shift(4);
    ///     frame.set_header(&header);
    ///     Some(())
    /// }
    ///
    /// let mut burst = Burst::default();
    /// burst.push(&NetHeader::PLAIN, &[&[0xaa; 12], &[8, 0], &[0x45; 46]]);
    /// push_tag(&mut burst.iter_mut().next().unwrap(), 7).unwrap();
    /// let frame = burst.iter().next().unwrap();
    /// assert_eq!(frame.bytes()[..18], [&[0xaa; 12][..], &[0x81, 0, 0, 7, 8, 0]].concat());
    /// ```
    pub fn push_front(&mut self, len: usize) -> Option<&mut [u8]> {
        let from = self.packet_at();
        let to = from.checked_sub(len)?;
        self.move_start(from, to, self.slot.start - len)
    }

    /// Removes `len` bytes from the front of the frame and returns the rest. Returns `None` without
    /// a change if it is shorter. The offsets in the metadata stay as they are: see
    /// [`NetHeader::shift`].
    pub fn pull_front(&mut self, len: usize) -> Option<&mut [u8]> {
        self.slot.len.checked_sub(len)?;
        let from = self.packet_at();
        self.move_start(from, from + len, self.slot.start + len)
    }

    /// Truncates the frame to `len` bytes; no effect if it is shorter.
    pub fn truncate(&mut self, len: usize) {
        self.slot.len = self.slot.len.min(len);
        let end = self.frame_at() + self.slot.len;
        let region = std::mem::take(&mut self.region);
        self.region = region.get_mut(..end).unwrap_or_default();
    }

    /// Moves the prefix to the new start of the frame.
    fn move_start(&mut self, from: usize, to: usize, start: usize) -> Option<&mut [u8]> {
        let end = self.slot.start + self.slot.len;
        self.region.copy_within(from..from + self.layout.len(), to);
        (self.slot.start, self.slot.len) = (start, end - start);
        Some(self.bytes_mut())
    }

    /// Where the frame starts in the region.
    #[inline]
    fn frame_at(&self) -> usize {
        self.slot.start - self.slot.base
    }

    /// Where the prefix starts in the region.
    #[inline]
    fn packet_at(&self) -> usize {
        self.frame_at() - self.layout.len()
    }
}

/// Location of a frame, in bytes from the start of the slab of a [`Burst`].
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Start of the headroom, after the previous frame.
    base: usize,
    /// First byte of the frame, where its prefix ends.
    start: usize,
    /// Length of the frame, without prefix.
    len: usize,
}

/// A frame to send: one in a [`Burst`], or metadata and parts of memory.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a>(pub(crate) Source<'a>);

/// Location of the bytes of an [`Outgoing`] frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// Contiguous, after a prefix.
    Whole(Frame<'a>),
    /// In parts, at most [`Outgoing::MAX_PARTS`].
    Parts { header: NetHeader, protocol: Option<EtherType>, parts: &'a [IoSlice<'a>] },
}

impl<'a> Outgoing<'a> {
    /// Maximum number of parts of a frame: the kernel's 1024 (`IOV_MAX`) less one for the
    /// header.
    pub const MAX_PARTS: usize = 1023;

    /// Creates a frame whose bytes are `parts` in sequence. Each part costs the kernel some 25
    /// ns, as much as copying 1.5 kB in cache: join small ones.
    ///
    /// If the queue has protocol information, it is derived from the IP version of the packet; for
    /// other protocols see [`Self::with_protocol`].
    pub const fn new(header: NetHeader, parts: &'a [IoSlice<'a>]) -> Self {
        Self(Source::Parts { header, protocol: None, parts })
    }

    /// As [`Self::new`], for a packet of any protocol: a tun device with protocol information
    /// ([`Config::packet_info`](crate::Config::packet_info)) also carries others than IP.
    pub const fn with_protocol(
        header: NetHeader,
        protocol: EtherType,
        parts: &'a [IoSlice<'a>],
    ) -> Self {
        Self(Source::Parts { header, protocol: Some(protocol), parts })
    }

    /// Returns prefix and frame if they are contiguous and the prefix has this layout. Protocol
    /// information that names no protocol does not qualify: see
    /// [`SendError::NotIp`](crate::SendError::NotIp).
    #[inline]
    pub(crate) fn packet_for(&self, layout: Prefix) -> Option<&'a [u8]> {
        match &self.0 {
            Source::Whole(frame) if frame.layout == layout && !frame.lacks_protocol() => {
                Some(frame.packet)
            }
            _ => None,
        }
    }

    /// Length of the frame in bytes, without metadata.
    pub fn frame_len(&self) -> usize {
        match &self.0 {
            Source::Whole(frame) => frame.bytes().len(),
            Source::Parts { parts, .. } => parts.iter().map(|part| part.len()).sum(),
        }
    }

    /// Metadata of the frame.
    pub fn header(&self) -> NetHeader {
        match &self.0 {
            Source::Whole(frame) => frame.header(),
            Source::Parts { header, .. } => *header,
        }
    }
}

impl<'a> From<Frame<'a>> for Outgoing<'a> {
    #[inline]
    fn from(frame: Frame<'a>) -> Self {
        Self(Source::Whole(frame))
    }
}

impl<'a> From<&'a FrameMut<'_>> for Outgoing<'a> {
    #[inline]
    fn from(frame: &'a FrameMut<'_>) -> Self {
        frame.as_frame().into()
    }
}
