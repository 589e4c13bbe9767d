//! Hello and version negotiation (OpenFlow 1.3.5 §7.5.1, §6.3.3).
//!
//! The version in the header of a hello is the highest that its sender supports, so a hello is
//! decoded whatever its version. Below 1.3 it has no elements: what follows the header is ignored.

use crate::codec::{Codec, Reader, Writer, padding};
use crate::fault::{Fault, Within};
use crate::header::VERSION;

/// `OFPT_HELLO`: the first message of either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Highest version that the sender supports; it is the version in the message's header.
    pub version: u8,
    /// Elements. Unknown ones are to be ignored.
    pub elements: Vec<HelloElement>,
}

impl Hello {
    /// The hello of an end that supports exactly version 1.3.
    pub fn new() -> Self {
        Self { version: VERSION, elements: vec![HelloElement::VersionBitmap(vec![1 << VERSION])] }
    }

    /// Whether the sender of this hello and an end that supports exactly 1.3 agree on 1.3 (§6.3.3):
    /// by the bitmap, or by the lower of the two versions if there is none or it has no version in
    /// common. A sender of a later version that leaves 1.3 out of its bitmap would refuse that, so
    /// it is refused here.
    pub fn agrees_on_1_3(&self) -> bool {
        let bitmap = self.elements.iter().find_map(|element| match element {
            HelloElement::VersionBitmap(words) => Some(words),
            HelloElement::Unknown { .. } => None,
        });
        match bitmap.and_then(|words| words.first()) {
            Some(word) if word & 1 << VERSION != 0 => true,
            Some(_) => self.version == VERSION,
            None => self.version >= VERSION,
        }
    }

    /// Appends the body after the header.
    pub(crate) fn encode_body(&self, w: &mut Writer<'_>) {
        w.put(&self.elements);
    }

    /// Decodes the body after a header with this version.
    pub(crate) fn decode_body(version: u8, r: &mut Reader<'_>) -> Result<Self, Fault> {
        let elements = match version >= VERSION {
            true => r.take()?,
            false => Vec::new(),
        };
        r.rest();
        Ok(Self { version, elements })
    }
}

impl Default for Hello {
    fn default() -> Self {
        Self::new()
    }
}

/// One element of a hello (`ofp_hello_elem_header`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelloElement {
    /// `OFPHET_VERSIONBITMAP`: bit *v mod 32* of word *v / 32* is set for each supported version
    /// *v*.
    VersionBitmap(Vec<u32>),
    /// An element that OpenFlow 1.3 does not define.
    Unknown {
        /// `type` of the element.
        kind: u16,
        /// Content of the element without padding.
        data: Vec<u8>,
    },
}

impl Codec for HelloElement {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::VersionBitmap(words) => w.tlv_then_pad(VERSION_BITMAP, |w| w.put(words)),
            Self::Unknown { kind, data } => w.tlv_then_pad(*kind, |w| w.put(data)),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let (kind, mut body) = r.tlv().within("element")?;
        // Some peers leave out the padding of the last element; nothing is lost.
        let padding = padding(body.len() + ELEMENT_HEADER_LEN).min(r.len());
        r.skip(padding)?;
        Ok(match kind {
            VERSION_BITMAP => Self::VersionBitmap(body.take().within("version bitmap")?),
            kind => Self::Unknown { kind, data: body.take()? },
        })
    }
}

/// `OFPHET_VERSIONBITMAP`.
const VERSION_BITMAP: u16 = 1;
/// `type` and `length` of an element.
const ELEMENT_HEADER_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(version: u8, elements: Vec<HelloElement>) -> Hello {
        Hello { version, elements }
    }

    #[test]
    fn the_bitmap_goes_before_the_version() {
        let bitmap = |word| vec![HelloElement::VersionBitmap(vec![word])];
        assert!(Hello::new().agrees_on_1_3());
        assert!(hello(4, vec![]).agrees_on_1_3());
        assert!(hello(6, vec![]).agrees_on_1_3());
        assert!(!hello(1, vec![]).agrees_on_1_3());
        assert!(hello(6, bitmap(0b101_0010)).agrees_on_1_3());
        assert!(!hello(6, bitmap(0b110_0010)).agrees_on_1_3());
        assert!(hello(4, bitmap(0)).agrees_on_1_3(), "its highest version is 1.3");
        assert!(!hello(1, bitmap(0b10)).agrees_on_1_3());
        assert!(hello(4, vec![HelloElement::VersionBitmap(vec![])]).agrees_on_1_3());
    }
}
