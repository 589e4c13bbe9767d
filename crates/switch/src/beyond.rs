//! The part of a frame that stays in a guest's memory until it is copied to its destination.
//!
//! The datapath knows only the number of these bytes. The worker, which holds the guest's ring
//! while it processes the frame, and the ports access them through [`Beyond`].

use tapswitch_datapath::Frame;
use tapswitch_vhost::{Chain, Part, Running};

/// The end of a frame, after the bytes that the datapath has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beyond<'a>(Option<InRing<'a>>);

#[derive(Clone, Copy, Debug)]
struct InRing<'a> {
    ring: &'a Running,
    chain: Chain,
    /// Number of bytes that the datapath has.
    at: usize,
}

impl<'a> Beyond<'a> {
    /// Nothing: the datapath has the whole frame.
    pub(crate) const NONE: Self = Self(None);

    /// The bytes of the frame in `chain` from byte `at` on.
    #[inline]
    pub(crate) fn new(ring: &'a Running, chain: Chain, at: usize) -> Self {
        Self(Some(InRing { ring, chain, at }))
    }

    /// True if the datapath has the whole frame.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_none()
    }

    /// The bytes, if there are any and they are in one piece.
    #[inline]
    pub(crate) fn single(self) -> Option<Part<'a>> {
        self.0.and_then(|InRing { ring, chain, at }| ring.end_from(&chain, at))
    }

    /// The bytes, in order.
    #[inline]
    pub(crate) fn parts(self) -> impl Iterator<Item = Part<'a>> + Clone {
        self.0.into_iter().flat_map(|InRing { ring, chain, at }| ring.frame_from(&chain, at))
    }

    /// The shared bytes of `frame`, followed by these bytes, as one slice; copied to `room` if
    /// there are any of these. Not for coalesced frames, which share several pieces.
    pub(crate) fn rest<'b>(self, frame: &Frame<'b>, room: &'b mut Vec<u8>) -> &'b [u8] {
        if self.0.is_none() {
            return frame.rest();
        }
        self.fetch(frame, room);
        room
    }

    /// All of `frame` behind its private bytes as one slice: copied to `room` if it is in several
    /// pieces, or in a guest's memory, where it might change meanwhile.
    pub(crate) fn join<'b>(self, frame: &'b Frame<'_>, room: &'b mut Vec<u8>) -> &'b [u8] {
        if self.0.is_none() {
            return frame.joined(room);
        }
        self.fetch(frame, room);
        room
    }

    fn fetch(self, frame: &Frame<'_>, room: &mut Vec<u8>) {
        room.clear();
        frame.parts().map(Part::Ours).chain(self.parts()).for_each(|part| part.append_to(room));
    }
}
