//! Event stream as server-sent events.
//! <https://html.spec.whatwg.org/multipage/server-sent-events.html>
//!
//! A client that reconnects with the id of the last event gets the events that it missed; if some
//! are no longer available, an event `reset` tells it to read all lists again. A client that reads
//! too slowly is disconnected, and can reconnect.

use std::convert::Infallible;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream, StreamExt};
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::Interval;

use super::access::Admitted;
use super::ending::{Ending, Source, recheck};
use super::error::Refusal;
use super::lists::{Asked, Page, PageQuery};
use super::{Api, Asking};
use crate::Role;
use crate::cluster::{Access, TermId};
use crate::journal::{Entry, Kind, Subscription};

pub(super) async fn events(
    State(api): State<Api>,
    Asking(admitted): Asking,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let term = api.handle.term();
    api.handle.check(Access::Read)?;
    let after = last_seen(&headers, "the number of an event")?;
    let subscription = api.handle.journal().subscribe(after);
    let Subscription { missed, has_gap, begins_behind, receiver } = subscription;
    let start = Event::default().id(begins_behind.to_string());
    // An event without name and data is not dispatched, but sets the last id, so that a client can
    // reconnect even if no event has occurred yet.
    let start = if has_gap { start.event("reset").data("{}") } else { start };
    let start = (has_gap || after.is_none()).then_some(Ok(start));
    let role = admitted.caller.role;
    let missed = missed.into_iter().filter(move |entry| may_see(role, entry.kind));
    let first = stream::iter(start).chain(stream::iter(missed.map(|entry| Ok(event(&entry)))));
    let listener = Listener { api, admitted, receiver, term, recheck: recheck() };
    Ok(Sse::new(first.chain(listener.events().map(Ok)))
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

pub(super) async fn log(
    State(api): State<Api>,
    Asking(admitted): Asking,
    Asked(query): Asked<PageQuery>,
) -> Result<Json<Page<Value>>, Refusal> {
    api.handle.check(Access::Read)?;
    let entries = api.handle.journal().last().into_iter();
    let entries = entries.filter(|entry| may_see(admitted.caller.role, entry.kind));
    // Pages are ordered by ascending keys, and the newest event comes first.
    query.page(entries.map(|entry| (format!("{:020}", u64::MAX - entry.id), told(&entry))))
}

/// The `Last-Event-ID` of a client that reconnects, which must be `expected`.
pub(super) fn last_seen<T: FromStr>(
    headers: &HeaderMap,
    expected: &str,
) -> Result<Option<T>, Refusal> {
    let malformed = || {
        let message = format!("Last-Event-ID: expected {expected}; omit it to start anew");
        Refusal::malformed(message)
    };
    let Some(id) = headers.get("last-event-id") else { return Ok(None) };
    // Empty: the client has received no event with an id.
    match id.to_str().map_err(|_| malformed())?.trim() {
        "" => Ok(None),
        id => id.parse().map(Some).map_err(|_| malformed()),
    }
}

/// A listener.
struct Listener {
    api: Api,
    admitted: Admitted,
    receiver: broadcast::Receiver<Arc<Entry>>,
    /// The controller's term at its start.
    term: TermId,
    recheck: Interval,
}

impl Source for Listener {
    async fn next(&mut self) -> Result<Event, Ending> {
        loop {
            let entry = tokio::select! {
                entry = self.receiver.recv() => Some(entry),
                ending = self.api.ended(self.term) => return Err(ending),
                _ = self.recheck.tick() => None,
            };
            self.api.gate.check(&self.admitted)?;
            match entry {
                Some(Ok(entry)) if may_see(self.admitted.caller.role, entry.kind) => {
                    return Ok(event(&entry));
                }
                Some(Err(RecvError::Lagged(_))) => return Err(Ending::TooSlow),
                Some(Err(RecvError::Closed)) => return Err(Ending::Stopped),
                _ => {}
            }
        }
    }
}

/// Audit records tell who taps whom, so they require the role for the audit log.
fn may_see(role: Role, kind: Kind) -> bool {
    kind != Kind::Audit || role == Role::Admin
}

fn event(entry: &Entry) -> Event {
    let event = Event::default().event(entry.kind.name()).data(entry.data.to_string());
    // Ticks are not kept, so they have no id.
    if entry.kind == Kind::Tick { event } else { event.id(entry.id.to_string()) }
}

fn told(entry: &Entry) -> Value {
    let mut value = json!({ "event": entry.kind.name() });
    if let (Some(members), Value::Object(data)) = (value.as_object_mut(), &entry.data) {
        members.extend(data.clone());
    }
    value
}

pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
