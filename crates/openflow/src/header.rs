//! The message header, and framing in a byte stream (OpenFlow 1.3.5 §7.1).

use crate::HeaderError;
use crate::codec::{Codec, Reader, Writer, layout_codec};
use crate::error::ErrorKind;

/// Header of every message (`ofp_header`, §7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Protocol version: [`VERSION`], except in a hello, which carries the highest version of its
    /// sender.
    pub version: u8,
    /// `type` of the message: see [`crate::MessageType`].
    pub message_type: u8,
    /// Length in bytes of the message including its header.
    pub length: u16,
    /// Transaction id.
    pub xid: u32,
}

impl Header {
    /// Length of a header in bytes.
    pub const LEN: usize = 8;

    /// Decodes the header at the start of `bytes`; `None` if it is incomplete.
    pub fn peek(bytes: &[u8]) -> Option<Self> {
        Reader::new(bytes, 0, ErrorKind::OFPBRC_BAD_LEN).take().ok()
    }
}

layout_codec!(Header { version, message_type, length, xid });

/// Length in bytes of the message at the start of `bytes`, from its header; `None` if the header is
/// incomplete. The message itself may be incomplete.
pub fn frame_len(bytes: &[u8]) -> Result<Option<usize>, HeaderError> {
    let Some(&[_, _, high, low]) = bytes.first_chunk() else {
        return Ok(None);
    };
    let len = u16::from_be_bytes([high, low]);
    if usize::from(len) < Header::LEN {
        return Err(HeaderError::TooShort { len });
    }
    Ok(Some(len.into()))
}

/// Appends a message of this version and type: the header, then what `write` appends.
pub(crate) fn encode_framed(
    (version, message_type, xid): (u8, u8, u32),
    w: &mut Writer<'_>,
    write: impl FnOnce(&mut Writer<'_>),
) {
    let start = w.position();
    w.put(&version);
    w.put(&message_type);
    w.measured(start, |w| {
        xid.encode(w);
        write(w);
    });
}

/// Version 1.3 of the protocol (`OFP_VERSION`).
pub const VERSION: u8 = 0x04;
/// Maximum length of a message: that of its 16-bit length field.
pub const MAX_MESSAGE_LEN: usize = 0xffff;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_known_as_soon_as_it_is_there() {
        assert_eq!(frame_len(&[]), Ok(None));
        assert_eq!(frame_len(&[4, 0, 0]), Ok(None));
        assert_eq!(frame_len(&[4, 0, 0, 8]), Ok(Some(8)));
        assert_eq!(frame_len(&[4, 0, 0xff, 0xff]), Ok(Some(65_535)));
    }

    #[test]
    fn a_length_below_the_header_is_refused() {
        for len in 0..8 {
            let error = HeaderError::TooShort { len: len.into() };
            assert_eq!(frame_len(&[4, 0, 0, len]), Err(error));
        }
    }

    #[test]
    fn a_header_can_be_looked_at() {
        let header = Header::peek(&[4, 2, 0, 9, 0, 0, 1, 0, 0xff]).unwrap();
        assert_eq!((header.version, header.message_type), (4, 2));
        assert_eq!((header.length, header.xid), (9, 256));
        assert_eq!(Header::peek(&[4, 2, 0, 9, 0, 0, 1]), None);
    }
}
