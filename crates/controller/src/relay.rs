//! Switches that are connected here, but not to the leader: their connections are relayed to it.
//!
//! One controller plans for a whole fabric (`docs/adr/0021`), but it need not reach each switch
//! itself (`docs/adr/0033`). A follower that has had a switch for a while which the leader has not
//! claims it in etcd by a lease, connects to the leader in the switch's place, and passes the bytes
//! on. So each switch has one leader at a time: the leader itself, or the holder of the claim.
//!
//! - `claims`: which switches; with etcd.
//! - `dial`: connects to the leader.
//! - `pipe`: passes the bytes on.

mod claims;
mod dial;
mod pipe;

use std::fmt;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

pub(crate) use claims::Relays;
pub(crate) use dial::Dialler;
pub(crate) use pipe::relay;

/// An order to relay a switch.
pub(crate) struct Relay {
    /// The connection to the leader.
    pub(crate) leader: Box<dyn Stream>,
    /// This controller's name.
    pub(crate) by: String,
    /// Resolves when the relay must end. Dropping it tells the other side that it has ended.
    pub(crate) end: oneshot::Receiver<()>,
}

impl fmt::Debug for Relay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Relay").field("by", &self.by).finish_non_exhaustive()
    }
}

/// A connection, with or without TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}
