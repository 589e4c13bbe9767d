//! What connections and the hub tell each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tapswitch_control::Ticket;
use tapswitch_openflow::{Body, DatapathId, ErrorKind, FeaturesReply, RoleMessage};
use tokio::sync::{mpsc, oneshot};

use crate::cluster::Verdict as Election;

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Input {
    /// A connection tells something.
    News { connection: ConnectionId, session: u64, switch: DatapathId, news: News },
    /// Who is to lead.
    Verdict(Election),
}

/// A connection by its number, which is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId(u64);

impl ConnectionId {
    /// A number that no other connection has.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// What a connection tells the hub.
#[derive(Debug)]
pub(crate) enum News {
    /// A switch is there.
    Ready { features: FeaturesReply, peer: SocketAddr, orders: Orders },
    /// An answer.
    Reply { ticket: Ticket, body: Body },
    /// What was sent with this ticket failed.
    Error { ticket: Ticket, kind: ErrorKind },
    /// A message that nobody asked for.
    Message(Body),
    /// The switch answered an echo request.
    Alive,
    /// The switch gave the role that was asked for, or will not.
    Role(Result<(), ErrorKind>),
    /// The connection has ended.
    Closed { reason: String },
}

/// What the hub tells a connection. When it hangs up, the connection ends.
#[derive(Debug)]
pub(crate) struct Orders {
    /// What to send.
    pub(crate) messages: mpsc::Sender<Order>,
    /// Ends the connection, for this reason, whatever still waits.
    pub(crate) close: oneshot::Sender<String>,
    /// The switch said something since the hub last looked.
    pub(crate) is_heard: Arc<AtomicBool>,
}

/// Something to send.
#[derive(Debug)]
pub(crate) enum Order {
    /// A message.
    Send(Ticket, Body),
    /// A request for a role, with which a session begins: answers to what was sent before are of
    /// no interest any more.
    Role { session: u64, request: RoleMessage },
    /// An echo request.
    Echo,
}
