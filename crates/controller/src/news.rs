//! Messages between connections, the election and the hub.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tapswitch_control::Ticket;
use tapswitch_openflow::{Body, DatapathId, ErrorKind, FeaturesReply, RoleMessage};
use tokio::sync::{mpsc, oneshot};

use crate::cluster::Leader;
use crate::relay::Relay;
use crate::store::Kept;

/// Input of the hub.
#[derive(Debug)]
pub(crate) enum Input {
    /// News from a connection.
    News { connection: ConnectionId, session: u64, switch: DatapathId, news: News },
    /// Result of an election.
    Verdict(Verdict),
    /// A switch is to be relayed to the leader.
    Relay { switch: DatapathId, relay: Relay },
}

/// Result of the election.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// This controller leads, with these policies and switches.
    Lead { generation: u64, kept: Kept },
    /// Another one leads, or none is known.
    Follow { leader: Option<Leader> },
}

/// Number of a connection; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId(u64);

impl ConnectionId {
    /// A new number.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// News from a connection.
#[derive(Debug)]
pub(crate) enum News {
    /// A switch has identified itself.
    Ready { features: FeaturesReply, peer: SocketAddr, orders: Orders },
    /// An answer.
    Reply { ticket: Ticket, body: Body },
    /// The message with this ticket failed.
    Error { ticket: Ticket, kind: ErrorKind },
    /// An unsolicited message.
    Message(Body),
    /// The switch answered an echo request.
    Alive,
    /// The switch accepted or rejected the requested role.
    Role(Result<(), ErrorKind>),
    /// The connection is relayed by this controller.
    Relayed { by: String },
    /// The connection has ended.
    Closed { reason: String },
}

/// The hub's channel to a connection. Dropping it ends the connection.
#[derive(Debug)]
pub(crate) struct Orders {
    /// Messages to send.
    pub(crate) messages: mpsc::Sender<Order>,
    /// Ends the connection at once, for this reason.
    pub(crate) close: oneshot::Sender<String>,
    /// The switch has sent something since the hub last reset this.
    pub(crate) is_heard: Arc<AtomicBool>,
}

/// An order.
#[derive(Debug)]
pub(crate) enum Order {
    /// Send a message.
    Send(Ticket, Body),
    /// Request a role, which begins a session: replies to earlier messages are ignored.
    Role { session: u64, request: RoleMessage },
    /// Send an echo request.
    Echo,
    /// Relay the switch to the leader from now on.
    Relay(Relay),
}
