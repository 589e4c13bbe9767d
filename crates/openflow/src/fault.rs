//! Why bytes are not a message, why a message is no good, and why one cannot become bytes.

use std::borrow::Cow;
use std::fmt;

use crate::ErrorKind;

/// Why bytes are not a message. The sender is at fault. There is no third kind: either the
/// framing is lost or it is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The header cannot be believed, so nobody knows where the next message starts: close the
    /// connection.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// This message is wrong; the next one starts where the header says.
    #[error(transparent)]
    Message(#[from] MessageError),
}

impl DecodeError {
    /// What to tell the sender.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Header(_) => ErrorKind::OFPBRC_BAD_LEN,
            Self::Message(error) => error.kind,
        }
    }
}

/// Why a header cannot be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The length in the header does not even cover the header.
    #[error("header: length {len} is below that of the header, 8")]
    TooShort {
        /// The length in the header.
        len: u16,
    },
    /// The bytes are not as many as the header says.
    #[error("header: length {len}, but {actual} bytes are present")]
    NotWhole {
        /// The length in the header, or that of the header itself.
        len: usize,
        /// Bytes that are there.
        actual: usize,
    },
}

/// Why one message is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct MessageError {
    /// What to tell the sender.
    pub kind: ErrorKind,
    /// Number of the transaction.
    pub xid: u32,
    /// Where in the message, and what is wrong there.
    pub text: String,
}

/// Why a message that was decoded cannot be carried out by any switch. The sender is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct CheckError {
    /// What to tell the sender.
    pub kind: ErrorKind,
    /// What is wrong.
    pub text: String,
}

impl CheckError {
    /// `text` is wrong, which is told to the sender as `kind`.
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { kind, text }
    }
}

/// Why a message cannot become bytes. The caller is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The message, or a part of it, is longer than 16 bits can say.
    #[error("{len} bytes do not fit a message, which has at most 65535; split it")]
    TooLong {
        /// Length of the message or the part.
        len: usize,
    },
    /// Actions and instructions are a multiple of eight bytes long.
    #[error("{what}: {len} bytes are not a multiple of eight; pad the data")]
    Misaligned {
        /// What it is.
        what: &'static str,
        /// Length with its header.
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

/// What is wrong with bytes, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What to tell the sender.
    kind: ErrorKind,
    /// Position from the start of the message.
    at: usize,
    /// Names of the structures around it, innermost first.
    places: Vec<&'static str>,
    /// What is wrong.
    what: Cow<'static, str>,
}

impl Fault {
    /// `what` is wrong at position `at`.
    #[cold]
    pub(crate) fn new(kind: ErrorKind, at: usize, what: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, at, places: Vec::new(), what: what.into() }
    }

    /// The fault as it is called elsewhere: `to`, if it is called `from`.
    pub(crate) fn replace(mut self, from: ErrorKind, to: ErrorKind) -> Self {
        if self.kind == from {
            self.kind = to;
        }
        self
    }

    /// The error of the message with this number.
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

/// Adds the name of a place to whatever goes wrong there.
pub(crate) trait Within {
    /// It went wrong in `place`.
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
