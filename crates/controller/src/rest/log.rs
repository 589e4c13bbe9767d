//! The audit log, for admins.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::error::Refusal;
use super::lists::{Asked, Page, has, page_limit};
use super::{Api, Asking};
use crate::Handle;
use crate::audit::{Draft, Head, What};
use crate::store::{StoreError, Wanted};

/// Query for audit records.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    limit: Option<usize>,
    cursor: Option<String>,
    /// Selects records with this text in a value, case-insensitively, or with this prefix of their
    /// hash.
    q: Option<String>,
}

/// Records, newest first; the cursor is the number of the previous page's last record.
pub(super) async fn list(
    State(api): State<Api>,
    Asked(query): Asked<AuditQuery>,
) -> Result<Json<Page<Box<RawValue>>>, Refusal> {
    let limit = page_limit(query.limit)?;
    let before = match query.cursor.as_deref().map(str::parse) {
        None => u64::MAX,
        Some(Ok(before)) => before,
        Some(Err(_)) => {
            let message = "cursor: expected the number in `next` of the previous page";
            return Err(Refusal::malformed(message).about("cursor"));
        }
    };
    if let Some(wanted) = query.q.filter(|wanted| !wanted.is_empty()) {
        return Ok(Json(search(&api.handle, before, limit, &wanted.to_lowercase()).await?));
    }
    let records = api.handle.records(Wanted::Before(before), limit).await?;
    let last = records.lines.last().filter(|_| records.lines.len() == limit);
    let next = last.and_then(|line| Head::of(line)).map(|head| head.seq).filter(|seq| *seq > 1);
    let items = records.lines.into_iter().filter_map(raw).collect();
    let total = usize::try_from(records.total).unwrap_or(usize::MAX);
    Ok(Json(Page { items, next: next.map(|seq| seq.to_string()), total }))
}

/// A record as stored: its hash depends on each byte.
fn raw(line: String) -> Option<Box<RawValue>> {
    RawValue::from_string(line).ok()
}

/// Searches records before one. As the log is unbounded, at most [`SEARCHED`] are searched, and the
/// cursor continues after them.
async fn search(
    handle: &Handle,
    mut before: u64,
    limit: usize,
    wanted: &str,
) -> Result<Page<Box<RawValue>>, StoreError> {
    let mut found = Vec::new();
    for _ in 0..SEARCHED / LINES {
        let lines = handle.records(Wanted::Before(before), LINES).await?.lines;
        before = last_seq(&lines);
        found.extend(lines.into_iter().filter(|line| is_found(line, wanted)));
        if before <= 1 {
            break;
        }
    }
    let total = found.len();
    if total > limit {
        found.truncate(limit);
        before = last_seq(&found);
    }
    let next = (before > 1).then(|| before.to_string());
    Ok(Page { items: found.into_iter().filter_map(raw).collect(), next, total })
}

/// Number of the last record; zero if there are none.
fn last_seq(lines: &[String]) -> u64 {
    lines.last().and_then(|line| Head::of(line)).map_or(0, |head| head.seq)
}

/// Whether a record contains this text; in hashes only at the start, since any short text occurs
/// somewhere in them.
fn is_found(line: &str, wanted: &str) -> bool {
    let Ok(mut record) = serde_json::from_str::<Map<String, Value>>(line) else { return false };
    record.remove("previous");
    let hash = record.remove("hash");
    let begins = |hash: &str| hash.starts_with(wanted);
    hash.as_ref().and_then(Value::as_str).is_some_and(begins)
        || record.values().any(|value| has(value, wanted))
}

/// All records, oldest first, as lines. The export itself is recorded.
pub(super) async fn export(
    State(api): State<Api>,
    Asking(admitted): Asking,
) -> Result<Response, Refusal> {
    api.handle.try_record(Draft::new(&admitted.caller, What::AuditExport, "accepted")).await?;
    // An unreadable log is reported by the status; later errors can only truncate the body.
    api.handle.records(Wanted::After(0), 1).await?;
    let lines = stream::try_unfold((api.handle.clone(), 0), |(handle, after)| next(handle, after));
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/jsonl")),
        (CONTENT_DISPOSITION, HeaderValue::from_static("attachment; filename=\"audit.jsonl\"")),
    ];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// Lines after record `after`, and where to continue.
type Lines = Option<(String, (Handle, u64))>;

async fn next(handle: Handle, after: u64) -> Result<Lines, StoreError> {
    let mut lines = handle.records(Wanted::After(after), LINES).await?.lines;
    let Some(head) = lines.last().and_then(|line| Head::of(line)) else { return Ok(None) };
    lines.push(String::new());
    Ok(Some((lines.join("\n"), (handle, head.seq))))
}

/// Records read at once.
const LINES: usize = 500;
/// Maximum records searched per request.
const SEARCHED: usize = 10_000;
