//! One frame with its metadata: as it lies in a [`Burst`], and as it is handed over to be sent.
//!
//! A read(2) of a queue gives `[prefix][frame]` in one piece ([`Prefix`]). A burst keeps the prefix
//! right in front of its frame, wherever the frame's first byte moves, so a frame goes out again by
//! one write(2) and nothing is copied. The header is decoded only when somebody asks for it.

mod burst;
mod layout;

use std::io::IoSlice;

pub use burst::{Burst, BurstSize, Frames, FramesMut};
pub(crate) use layout::{MAX_PREFIX_LEN, PrefixBytes, protocol_of};
use tapswitch_wire::{EtherType, LongNetHeader, NetHeader};

use crate::{PacketInfo, Prefix};
use burst::Slot;

/// A frame in a [`Burst`], to be read.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Prefix and frame.
    packet: &'a [u8],
    layout: Prefix,
}

impl<'a> Frame<'a> {
    /// What was left undone in the frame.
    #[inline]
    pub fn header(&self) -> NetHeader {
        self.layout.header(self.packet)
    }

    /// The frame's own bytes.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.packet.get(self.layout.len()..).unwrap_or_default()
    }

    /// As [`Self::header`], with what a queue of 20 or 24 bytes of header has beyond: for trains in
    /// UDP tunnels.
    pub fn long_header(&self) -> LongNetHeader {
        let header = self.packet.get(self.layout.header_range());
        header.and_then(LongNetHeader::decode).unwrap_or_default()
    }

    /// What the kernel wrote beside the frame; `None` for a device without protocol information
    /// (`IFF_NO_PI`), where the frame's own bytes tell.
    pub fn packet_info(&self) -> Option<PacketInfo> {
        self.layout.packet_info_of(self.packet)
    }

    /// True when there is protocol information that names no protocol.
    #[inline]
    fn lacks_protocol(&self) -> bool {
        self.packet_info().is_some_and(|info| info.protocol == EtherType(0))
    }
}

/// A frame in a [`Burst`], to be rewritten in place.
#[derive(Debug)]
pub struct FrameMut<'a> {
    slot: &'a mut Slot,
    /// From `slot.base` to the end of the frame: room in front, prefix, frame.
    region: &'a mut [u8],
    layout: Prefix,
}

impl FrameMut<'_> {
    /// The same frame, to be read.
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

    /// Replaces the metadata. What a longer header holds behind the 12 bytes stays.
    #[inline]
    pub fn set_header(&mut self, header: &NetHeader) {
        let at = self.packet_at();
        if let Some(packet) = self.region.get_mut(at..) {
            self.layout.set_header(packet, header);
        }
    }

    /// As [`Self::set_header`], with what a longer header has beyond, as far as the queue's goes.
    pub fn set_long_header(&mut self, header: &LongNetHeader) {
        let (at, range) = (self.packet_at(), self.layout.header_range());
        if let Some(place) = self.region.get_mut(at + range.start..at + range.end) {
            place.copy_from_slice(&header.encode()[..place.len()]);
        }
    }

    /// Replaces what stands beside the frame; without effect in a burst whose queue has no protocol
    /// information. A tun device believes it, not the packet: it must follow when a packet of one
    /// protocol is rewritten to one of another.
    pub fn set_packet_info(&mut self, info: PacketInfo) {
        let at = self.packet_at();
        if let Some(packet) = self.region.get_mut(at..) {
            self.layout.set_packet_info(packet, info);
        }
    }

    /// The frame's own bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.region.get(self.frame_at()..).unwrap_or_default()
    }

    /// The frame's own bytes, to be changed.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let at = self.frame_at();
        self.region.get_mut(at..).unwrap_or_default()
    }

    /// Bytes that [`Self::push_front`] still has room for: at least the headroom of the burst.
    pub fn headroom(&self) -> usize {
        self.packet_at()
    }

    /// Makes the frame `len` bytes longer at its front and hands over all of it: the new bytes hold
    /// anything. `None`, and nothing happens, when there is no room. The offsets of the metadata
    /// stay as they are: see [`NetHeader::shift`].
    ///
    /// ```
    /// use tapswitch_tap::{Burst, FrameMut, NetHeader};
    ///
    /// /// Puts an 802.1Q tag behind the MAC addresses.
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

    /// Takes `len` bytes off the front of the frame and hands over the rest. `None`, and nothing
    /// happens, when it is shorter. The offsets of the metadata stay as they are: see
    /// [`NetHeader::shift`].
    pub fn pull_front(&mut self, len: usize) -> Option<&mut [u8]> {
        self.slot.len.checked_sub(len)?;
        let from = self.packet_at();
        self.move_start(from, from + len, self.slot.start + len)
    }

    /// Cuts the frame to `len` bytes; nothing happens when it is shorter.
    pub fn truncate(&mut self, len: usize) {
        self.slot.len = self.slot.len.min(len);
        let end = self.frame_at() + self.slot.len;
        let region = std::mem::take(&mut self.region);
        self.region = region.get_mut(..end).unwrap_or_default();
    }

    /// Moves the prefix so that it ends where the frame now begins.
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

/// A frame to be sent: one of a [`Burst`] as it lies there, or metadata and pieces of memory.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a>(pub(crate) Source<'a>);

/// Where the bytes of an [`Outgoing`] frame are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// In one piece behind a prefix.
    Whole(Frame<'a>),
    /// In pieces, at most [`Outgoing::MAX_PARTS`].
    Parts { header: NetHeader, protocol: Option<EtherType>, parts: &'a [IoSlice<'a>] },
}

impl<'a> Outgoing<'a> {
    /// Most pieces that one frame may have: the kernel's 1024 but one for the header (`IOV_MAX`).
    pub const MAX_PARTS: usize = 1023;

    /// The frame whose bytes are `parts`, one after the other. Each piece costs the kernel some
    /// 25 ns, as much as a copy of 1.5 kB in cache: join small ones.
    ///
    /// Of protocol information, where the queue has some, it says what the version of an IP packet
    /// says; for others see [`Self::with_protocol`].
    pub const fn new(header: NetHeader, parts: &'a [IoSlice<'a>]) -> Self {
        Self(Source::Parts { header, protocol: None, parts })
    }

    /// As [`Self::new`], for a packet of any protocol: a tun device with protocol information
    /// ([`Config::packet_info`](crate::Config::packet_info)) carries others than IP too.
    pub const fn with_protocol(
        header: NetHeader,
        protocol: EtherType,
        parts: &'a [IoSlice<'a>],
    ) -> Self {
        Self(Source::Parts { header, protocol: Some(protocol), parts })
    }

    /// Prefix and frame in one piece, when they lie so with a prefix of this layout. One that names
    /// no protocol is none: see [`SendError::NotIp`](crate::SendError::NotIp).
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

    /// What was left undone in the frame.
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
