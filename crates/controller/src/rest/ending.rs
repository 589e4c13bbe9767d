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
                "the token is not valid any more, or has another role; ask whoever runs the \
                 controller for another one"
            }
            Self::SessionEnded => "the session is over; sign in again",
            Self::NotLeader => {
                "this controller does not lead any more; ask the one that does: /api/v1/cluster"
            }
            Self::Stopped => "the controller stops; come back with the id of the last event",
            Self::TooSlow => {
                "events came faster than they were read; come back with the id of the last event"
            }
            Self::PolicyGone => "the policy is deleted, or another one is in its place",
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
