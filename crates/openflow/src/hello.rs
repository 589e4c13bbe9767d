//! Hello and the negotiation of a version (OpenFlow 1.3.5 §7.5.1, §6.3.1).
//!
//! The version in the header of a hello is the highest that its sender speaks, so a hello is the
//! one message that is read whatever its version. Below 1.3 it has no elements: what follows the
//! header is passed over.

use crate::codec::{Codec, Reader, Writer, padding};
use crate::fault::{Fault, Within};
use crate::header::VERSION;

/// `OFPT_HELLO`: the first message of either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Highest version that the sender speaks; it is the version in the message's header.
    pub version: u8,
    /// What else the sender says. Unknown elements are to be ignored.
    pub elements: Vec<HelloElement>,
}

impl Hello {
    /// A hello of who speaks exactly version 1.3.
    pub fn new() -> Self {
        Self { version: VERSION, elements: vec![HelloElement::VersionBitmap(vec![1 << VERSION])] }
    }

    /// Whether two ends that both sent a hello, the other one exactly version 1.3, agree on 1.3
    /// (§6.3.1): by the bitmap when there is one, else the lower of the two versions counts.
    pub fn agrees_on_1_3(&self) -> bool {
        let bitmap = self.elements.iter().find_map(|element| match element {
            HelloElement::VersionBitmap(words) => Some(words),
            HelloElement::Unknown { .. } => None,
        });
        match bitmap {
            Some(words) => words.first().is_some_and(|word| word & 1 << VERSION != 0),
            None => self.version >= VERSION,
        }
    }

    /// Appends what follows the header.
    pub(crate) fn encode_body(&self, w: &mut Writer<'_>) {
        w.put(&self.elements);
    }

    /// Takes what follows a header with this version.
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
    /// `OFPHET_VERSIONBITMAP`: bit *v* of word *v / 32* is set for each version *v* spoken.
    VersionBitmap(Vec<u32>),
    /// An element that OpenFlow 1.3 does not define.
    Unknown {
        /// `type` of the element.
        kind: u16,
        /// What follows the element's header, without padding.
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
        // Padding is left out behind the last element by some: there is nothing to lose.
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
        assert!(!hello(4, vec![HelloElement::VersionBitmap(vec![])]).agrees_on_1_3());
    }
}
