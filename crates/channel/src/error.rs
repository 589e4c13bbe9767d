//! Why a connection ended, why a message was not sent, and why one was refused.

use std::time::Duration;

use tapswitch_openflow::{CheckError, EncodeError, ErrorKind, HeaderError, MessageError};

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed the stream.
    #[error("the peer closed the connection")]
    Eof,
    /// The bytes are no OpenFlow: the peer must be something else.
    #[error(
        "the peer does not speak OpenFlow: its first message has type {message_type} and length \
         {len} instead of a hello"
    )]
    NotOpenFlow {
        /// `type` of the first header.
        message_type: u8,
        /// `length` of the first header.
        len: u16,
    },
    /// The peer speaks OpenFlow, but not version 1.3.
    #[error(
        "the peer speaks OpenFlow version {version:#04x} instead of 0x04 (1.3); enable 1.3 there"
    )]
    Version {
        /// The version in the peer's hello.
        version: u8,
    },
    /// The peer answered the handshake with an error.
    #[error("the peer refused the handshake: {kind}{text}")]
    Refused {
        /// What it said.
        kind: ErrorKind,
        /// What it said for people, behind a colon; may be empty.
        text: String,
    },
    /// The framing is lost: the peer sent a header that cannot be.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The handshake took too long.
    #[error("the handshake was not completed within {after:?}")]
    HandshakeTimeout {
        /// The time that it had.
        after: Duration,
    },
    /// Nothing came from the peer, not even an answer to an echo request.
    #[error("the peer did not answer an echo request within {after:?}")]
    Dead {
        /// How long an answer was waited for.
        after: Duration,
    },
    /// The peer probes or errs faster than it reads the answers, or does not read what it must
    /// know.
    #[error("the peer does not read: {len} bytes are waiting to be sent")]
    NotReading {
        /// Bytes that waited.
        len: usize,
    },
    /// The hello cannot be read.
    #[error("cannot parse the hello: {0}")]
    BadHello(Refusal),
    /// More multiparts were begun than are kept.
    #[error("the peer has more than {max} unfinished multipart messages")]
    TooManyMultiparts {
        /// How many are kept.
        max: usize,
    },
    /// The switch sent more messages than can be kept before it described itself.
    #[error("{count} messages arrived before the features reply")]
    TooEarly {
        /// How many.
        count: usize,
    },
}

/// Why a message was not sent. Nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The handshake is not done, or the connection has ended.
    #[error("the connection is not open")]
    NotOpen,
    /// Too many bytes wait to be written.
    #[error("{len} bytes are already waiting to be sent; send again when they are gone")]
    Busy {
        /// Bytes that wait.
        len: usize,
    },
    /// Too many requests wait for an answer.
    #[error("{count} requests are already waiting for an answer")]
    TooManyPending {
        /// Requests that wait.
        count: usize,
    },
    /// The message cannot become bytes.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// A message of the peer that was answered with an error, without the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {text}")]
pub struct Refusal {
    /// Number of the message's transaction.
    pub xid: u32,
    /// What the peer was told.
    pub kind: ErrorKind,
    /// What is wrong.
    pub text: String,
}

impl Refusal {
    /// The message with this number is refused as `kind`.
    pub(crate) fn new(xid: u32, kind: ErrorKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { xid, kind, text }
    }

    /// The message with this number failed the check.
    pub(crate) fn checked(xid: u32, error: CheckError) -> Self {
        Self::new(xid, error.kind, error.text)
    }
}

impl From<MessageError> for Refusal {
    fn from(error: MessageError) -> Self {
        Self::new(error.xid, error.kind, error.text)
    }
}
