//! How streams of events and packets end. The last event says why: an end without one is that of
//! the connection, and whoever comes back goes on.

use std::time::Duration;

use axum::response::sse::Event;
use futures_util::stream::{self, Stream};
use serde_json::json;
use tokio::time::{Interval, MissedTickBehavior};

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The token is not valid any more, or has another role.
    TokenRevoked,
    /// Somebody signed out, or the session was over.
    SessionEnded,
    /// What happens is told elsewhere.
    NotLeader,
    /// The controller stops.
    Stopped,
    /// Events came faster than they were read.
    TooSlow,
    /// The policy is deleted, or another one is in its place.
    PolicyGone,
}

impl Ending {
    const fn code(self) -> &'static str {
        match self {
            Self::TokenRevoked => "token-revoked",
            Self::SessionEnded => "session-ended",
            Self::NotLeader => "not-leader",
            Self::Stopped => super::error::STOPPED,
            Self::TooSlow => "too-slow",
            Self::PolicyGone => "policy-gone",
        }
    }

    const fn message(self) -> &'static str {
        match self {
            Self::TokenRevoked => {
                "the token is no longer valid, or has another role; ask the administrator of the \
                 controller for another one"
            }
            Self::SessionEnded => "the session has ended; sign in again",
            Self::NotLeader => {
                "this controller is no longer the leader; /api/v1/cluster names the leader"
            }
            Self::Stopped => "the controller stops; reconnect with the ID of the last event",
            Self::TooSlow => {
                "events arrived faster than they were read; reconnect with the ID of the last event"
            }
            Self::PolicyGone => "the policy was deleted, or replaced by another one",
        }
    }

    fn event(self) -> Event {
        let data = json!({ "code": self.code(), "message": self.message() });
        Event::default().event("end").data(data.to_string())
    }
}

/// What comes to somebody, one after the other, and at last why it ends.
pub(super) trait Source: Sized + Send {
    /// What comes next.
    fn next(&mut self) -> impl Future<Output = Result<Event, Ending>> + Send;

    /// All of it.
    fn events(self) -> impl Stream<Item = Event> + Send {
        stream::unfold(Some(self), |source: Option<Self>| async move {
            let mut source = source?;
            Some(match source.next().await {
                Ok(event) => (event, Some(source)),
                Err(ending) => (ending.event(), None),
            })
        })
    }
}

/// When it is looked again whether whoever listens still may.
pub(super) fn recheck() -> Interval {
    let mut interval = tokio::time::interval(RECHECK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// A stream ends so long after its token or session, at most; the file of tokens is looked at once
/// a second.
const RECHECK: Duration = Duration::from_secs(2);
