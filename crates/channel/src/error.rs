//! Errors: why a connection ended, a message was not sent, or a message was refused.

use std::time::Duration;

use tapswitch_openflow::{CheckError, EncodeError, ErrorKind, HeaderError, MessageError};

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer closed the stream.
    #[error("the peer closed the connection")]
    Eof,
    /// The peer does not speak OpenFlow.
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
        /// The error.
        kind: ErrorKind,
        /// Its text, after a colon; may be empty.
        text: String,
    },
    /// The framing is lost: the peer sent an invalid header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The handshake took too long.
    #[error("the handshake was not completed within {after:?}")]
    HandshakeTimeout {
        /// The time limit.
        after: Duration,
    },
    /// The peer sent nothing, not even an answer to an echo request.
    #[error("the peer did not answer an echo request within {after:?}")]
    Dead {
        /// How long the answer was awaited.
        after: Duration,
    },
    /// The peer sends probes or errors faster than it reads the answers, or does not read notices
    /// that must not be lost.
    #[error("the peer does not read: {len} bytes are waiting to be sent")]
    NotReading {
        /// Number of unsent bytes.
        len: usize,
    },
    /// The hello cannot be parsed.
    #[error("cannot parse the hello: {0}")]
    BadHello(Refusal),
    /// Too many multipart messages are incomplete.
    #[error("the peer has more than {max} unfinished multipart messages")]
    TooManyMultiparts {
        /// The limit.
        max: usize,
    },
    /// The switch sent too many messages before its features reply.
    #[error("{count} messages arrived before the features reply")]
    TooEarly {
        /// The limit.
        count: usize,
    },
}

/// Error of sending a message. Nothing of it was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The handshake is not complete, or the connection has ended.
    #[error("the connection is not open")]
    NotOpen,
    /// Too many bytes are unsent.
    #[error("{len} bytes are already waiting to be sent; send again when they are gone")]
    Busy {
        /// Number of unsent bytes.
        len: usize,
    },
    /// Too many requests are unanswered.
    #[error("{count} requests are already waiting for an answer")]
    TooManyPending {
        /// Number of unanswered requests.
        count: usize,
    },
    /// The message cannot be encoded.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// A message of the peer that was answered with an error automatically.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {text}")]
pub struct Refusal {
    /// Transaction ID of the message.
    pub xid: u32,
    /// The error sent to the peer.
    pub kind: ErrorKind,
    /// The problem.
    pub text: String,
}

impl Refusal {
    /// The message with this transaction ID is refused with `kind`.
    pub(crate) fn new(xid: u32, kind: ErrorKind, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { xid, kind, text }
    }

    /// The message with this transaction ID failed the check.
    pub(crate) fn checked(xid: u32, error: CheckError) -> Self {
        Self::new(xid, error.kind, error.text)
    }
}

impl From<MessageError> for Refusal {
    fn from(error: MessageError) -> Self {
        Self::new(error.xid, error.kind, error.text)
    }
}
