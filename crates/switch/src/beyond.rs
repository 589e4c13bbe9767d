//! What of a frame is in a guest's memory, and stays there until it is copied to where it goes.
//!
//! The datapath knows of these bytes how many they are. Their place is known to the worker, which
//! holds the guest's ring for as long as it handles the frame, and to the ports, by this.

use tapswitch_datapath::Frame;
use tapswitch_vhost::{Chain, Part, Running};

/// The end of a frame, behind all that the datapath has of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beyond<'a>(Option<InRing<'a>>);

#[derive(Clone, Copy, Debug)]
struct InRing<'a> {
    ring: &'a Running,
    chain: Chain,
    /// Bytes of the frame that the datapath has.
    at: usize,
}

impl<'a> Beyond<'a> {
    /// The datapath has all of the frame.
    pub(crate) const NONE: Self = Self(None);

    /// The bytes of the frame in `chain` from byte `at` on.
    #[inline]
    pub(crate) fn new(ring: &'a Running, chain: Chain, at: usize) -> Self {
        Self(Some(InRing { ring, chain, at }))
    }

    /// True when the datapath has all of the frame.
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0.is_none()
    }

    /// The bytes, in order.
    #[inline]
    pub(crate) fn parts(self) -> impl Iterator<Item = Part<'a>> + Clone {
        self.0.into_iter().flat_map(|InRing { ring, chain, at }| ring.frame_from(&chain, at))
    }

    /// The bytes of `frame` that it shares, in one piece, and these; copied to `room` when there
    /// are any of these. A frame that was coalesced shares more, in several places.
    pub(crate) fn rest<'b>(self, frame: &Frame<'b>, room: &'b mut Vec<u8>) -> &'b [u8] {
        if self.0.is_none() {
            return frame.rest();
        }
        self.fetch(frame, room);
        room
    }

    /// All of `frame` behind its private bytes in one piece: copied to `room` when it lies in
    /// several places, or in a guest's memory, where it might change meanwhile.
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
