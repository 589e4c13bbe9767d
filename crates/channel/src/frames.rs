//! Splits a byte stream into messages (OpenFlow 1.3.5 §7.1).
//!
//! Between calls it holds less than one message, below 65,536 bytes, and the bytes already read
//! while a switch has to answer first.

use std::ops::Range;

use tapswitch_openflow::{Header, HeaderError, frame_len};

/// Received bytes that are not consumed yet.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    /// The current message; everything before its end is consumed.
    current: Range<usize>,
}

impl Frames {
    /// Appends received bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.current.end);
        self.current = 0..0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Advances to the next message; `false` if it is incomplete.
    pub(crate) fn advance(&mut self) -> Result<bool, HeaderError> {
        let start = self.current.end;
        let rest = self.rest();
        let Some(len) = frame_len(rest)?.filter(|&len| len <= rest.len()) else {
            return Ok(false);
        };
        self.current = start..start + len;
        Ok(true)
    }

    /// The header of the next message, if it is complete.
    pub(crate) fn peek(&self) -> Option<Header> {
        Header::peek(self.rest())
    }

    /// The bytes after the current message.
    pub(crate) fn rest(&self) -> &[u8] {
        self.bytes.get(self.current.end..).unwrap_or_default()
    }

    /// The current message.
    pub(crate) fn current(&self) -> &[u8] {
        self.bytes.get(self.current.clone()).unwrap_or_default()
    }

    /// Discards everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARRIER: [u8; 8] = [4, 20, 0, 8, 0, 0, 0, 1];

    #[test]
    fn messages_are_cut_wherever_the_bytes_are() {
        let stream = [BARRIER, BARRIER, BARRIER].concat();
        for chunk_len in 1..=stream.len() {
            let mut frames = Frames::default();
            let mut count = 0;
            for chunk in stream.chunks(chunk_len) {
                frames.push(chunk);
                while frames.advance().unwrap() {
                    assert_eq!(frames.current(), BARRIER);
                    count += 1;
                }
            }
            assert_eq!(count, 3, "chunks of {chunk_len}");
        }
    }

    #[test]
    fn a_length_that_cannot_be_is_an_error() {
        let mut frames = Frames::default();
        frames.push(&[4, 20, 0, 7]);
        assert_eq!(frames.advance(), Err(HeaderError::TooShort { len: 7 }));
    }

    #[test]
    fn used_up_bytes_are_given_back() {
        let mut frames = Frames::default();
        for _ in 0..1000 {
            frames.push(&BARRIER);
            assert!(frames.advance().unwrap());
        }
        assert_eq!(frames.bytes.len(), BARRIER.len());
    }
}
