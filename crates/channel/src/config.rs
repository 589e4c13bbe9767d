//! Configuration of a connection.

use std::time::Duration;

/// Times and limits of a connection. [`Duration::MAX`] disables a time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Silence of the peer after which an echo request is sent, and then until the connection is
    /// closed.
    pub echo_interval: Duration,
    /// Time limit for the peer's hello, and for the features reply of a switch.
    pub handshake_timeout: Duration,
    /// Maximum number of unsent bytes. Beyond it, a switch reads no requests and drops packet-ins,
    /// and a controller cannot send but continues to read: if neither end read, there would be a
    /// deadlock. The connection is closed at twice this number of bytes in automatic answers (echo,
    /// errors), or eight times in notices that must not be lost (removed rules, port changes).
    pub max_unsent_len: usize,
    /// Maximum total length in bytes of a multipart message.
    pub max_multipart_len: usize,
    /// Maximum number of parts of a multipart message.
    pub max_multipart_parts: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            echo_interval: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(10),
            max_unsent_len: 8 << 20,
            // A million flow entries of some sixty bytes each.
            max_multipart_len: 64 << 20,
            max_multipart_parts: 16_384,
        }
    }
}
