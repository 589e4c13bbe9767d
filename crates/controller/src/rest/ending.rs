//! End of event streams. The last event names the reason: without it the connection was lost, and
//! the client should reconnect.

use std::time::Duration;

use axum::response::sse::Event;
use futures_util::stream::{self, Stream};
use serde_json::json;
use tokio::time::{Interval, MissedTickBehavior};

/// Why a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The token was revoked or has another role.
    TokenRevoked,
    /// Sign-out, or the session expired.
    SessionEnded,
    /// Another controller reports the events.
    NotLeader,
    /// The controller is shutting down.
    Stopped,
    /// The client read too slowly.
    TooSlow,
    /// The policy was deleted or replaced.
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

/// A sequence of events with a reason for its end.
pub(super) trait Source: Sized + Send {
    /// The next event.
    fn next(&mut self) -> impl Future<Output = Result<Event, Ending>> + Send;

    /// All events, the last of which is the reason for the end.
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

/// Interval of rechecking a listener's permission.
pub(super) fn recheck() -> Interval {
    let mut interval = tokio::time::interval(RECHECK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Maximum delay until a stream ends after its token or session; the token file is checked once a
/// second.
const RECHECK: Duration = Duration::from_secs(2);
