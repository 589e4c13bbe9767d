//! What can be set for a connection.

use std::time::Duration;

/// Times and limits of a connection. A time of [`Duration::MAX`] is never over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Silence of the peer until it is probed with an echo request, and then until it is given up.
    pub echo_interval: Duration,
    /// Time from the start until the peer must have said hello, and described itself if it is a
    /// switch.
    pub handshake_timeout: Duration,
    /// Bytes that may wait to be written. With more, a switch reads no requests and drops
    /// packet-ins, and a controller cannot send; a controller reads on, for if neither end read,
    /// both would wait forever. Twice as many in answers that nobody asked for (echo, errors) end
    /// the connection, and so do eight times as many in news that must not be lost (rules that
    /// went, changes of ports).
    pub max_unsent_len: usize,
    /// Bytes of all parts of a multipart that are joined.
    pub max_multipart_len: usize,
    /// Parts of a multipart that are joined.
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
