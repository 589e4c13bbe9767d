//! Errors of decoding, validation and encoding.

use std::borrow::Cow;
use std::fmt;

use crate::ErrorKind;

/// Why bytes do not decode to a message. The sender is at fault. There are only two cases: framing
/// is lost or it is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The header is invalid, so the start of the next message is unknown: close the connection.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// This message is invalid; the next one starts where its header says.
    #[error(transparent)]
    Message(#[from] MessageError),
}

impl DecodeError {
    /// Error kind to send to the peer.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Header(_) => ErrorKind::OFPBRC_BAD_LEN,
            Self::Message(error) => error.kind,
        }
    }
}

/// Why a header is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The length in the header does not even cover the header.
    #[error("header: length {len} is below that of the header, 8")]
    TooShort {
        /// The length in the header.
        len: u16,
    },
    /// The number of bytes differs from the length in the header.
    #[error("header: length {len}, but {actual} bytes are present")]
    NotWhole {
        /// The length in the header, or that of the header itself.
        len: usize,
        /// Bytes present.
        actual: usize,
    },
}

/// Why a message is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct MessageError {
    /// Error kind to send to the peer.
    pub kind: ErrorKind,
    /// Transaction id.
    pub xid: u32,
    /// Position in the message, and what is wrong there.
    pub text: String,
}

/// Why no switch can execute a decoded message. The sender is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct CheckError {
    /// Error kind to send to the peer.
    pub kind: ErrorKind,
    /// What is wrong.
    pub text: String,
}

impl CheckError {
    /// An error with this text, reported to the peer as `kind`.
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { kind, text }
    }
}

/// Why a message cannot be encoded. The caller is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The message, or a part of it, is longer than a 16-bit length can express.
    #[error("{len} bytes do not fit a message, which has at most 65535; split it")]
    TooLong {
        /// Length of the message or the part.
        len: usize,
    },
    /// The length of an action or an instruction is not a multiple of eight.
    #[error("{what}: {len} bytes are not a multiple of eight; pad the data")]
    Misaligned {
        /// The action or instruction.
        what: &'static str,
        /// Length including the header.
        len: usize,
    },
    /// A value needs more bits than its field has.
    #[error("{what}: {value:#x} does not fit {bits} bits")]
    TooLarge {
        /// Name of the field.
        what: &'static str,
        /// The value.
        value: u128,
        /// Bits that the field has.
        bits: u32,
    },
}

/// What is wrong in the encoded bytes, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Error kind to send to the peer.
    kind: ErrorKind,
    /// Position from the start of the message.
    at: usize,
    /// Names of the enclosing structures, innermost first.
    places: Vec<&'static str>,
    /// What is wrong.
    what: Cow<'static, str>,
}

impl Fault {
    /// A fault `what` at position `at`.
    #[cold]
    pub(crate) fn new(kind: ErrorKind, at: usize, what: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, at, places: Vec::new(), what: what.into() }
    }

    /// Changes the error kind `from`, if it is that, to `to`.
    pub(crate) fn replace(mut self, from: ErrorKind, to: ErrorKind) -> Self {
        if self.kind == from {
            self.kind = to;
        }
        self
    }

    /// The error of the message with this transaction id.
    #[cold]
    pub(crate) fn into_error(self, xid: u32) -> MessageError {
        MessageError { kind: self.kind, xid, text: self.to_string() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<_> = self.places.iter().rev().copied().collect();
        f.write_str(&places.join(": "))?;
        let gap = if places.is_empty() { "" } else { " " };
        write!(f, "{gap}at byte {}: {}", self.at, self.what)
    }
}

/// Adds the name of the enclosing structure to faults.
pub(crate) trait Within {
    /// The fault, located in `place`.
    fn within(self, place: &'static str) -> Self;
}

impl<T> Within for Result<T, Fault> {
    fn within(self, place: &'static str) -> Self {
        self.map_err(|mut fault| {
            fault.places.push(place);
            fault
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_its_place_from_the_outside_in() {
        let fault = Err::<(), _>(Fault::new(ErrorKind::OFPBMC_BAD_LEN, 12, "length 3"))
            .within("oxm ipv4_src")
            .within("match")
            .within("flow_mod");
        let error = fault.unwrap_err().into_error(7);
        assert_eq!(error.to_string(), "flow_mod: match: oxm ipv4_src at byte 12: length 3");
        assert_eq!((error.kind, error.xid), (ErrorKind::OFPBMC_BAD_LEN, 7));
    }
}
