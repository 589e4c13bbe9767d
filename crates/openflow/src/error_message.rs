//! Error messages (OpenFlow 1.3.5 §7.4.4).

use crate::codec::{layout_codec, newtype_codec};
use crate::{ErrorKind, ErrorType};

/// `OFPT_ERROR` (`ofp_error_msg`, §7.4.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// What went wrong.
    pub kind: ErrorKind,
    /// The start of the failed message; or a text, for `OFPET_HELLO_FAILED`; or experimenter id and
    /// data.
    pub data: Vec<u8>,
}

impl ErrorMessage {
    /// The error for the message `failed`, whose start it quotes.
    pub fn about(kind: ErrorKind, failed: &[u8]) -> Self {
        let quoted = failed.get(..QUOTED_LEN).unwrap_or(failed);
        Self { kind, data: quoted.to_vec() }
    }

    /// An error with a readable text, for `OFPET_HELLO_FAILED`.
    pub fn with_text(kind: ErrorKind, text: &str) -> Self {
        Self { kind, data: text.as_bytes().to_vec() }
    }

    /// The readable text, if this type of error has one.
    pub fn text(&self) -> Option<String> {
        let has_text = self.kind.error_type == ErrorType::HELLO_FAILED;
        has_text.then(|| String::from_utf8_lossy(&self.data).into_owned())
    }
}

layout_codec!(ErrorMessage { kind, data });

layout_codec!(ErrorKind { error_type, code });
newtype_codec!(ErrorType);

/// Bytes of a failed message that are quoted: the minimum that the spec demands.
const QUOTED_LEN: usize = 64;
