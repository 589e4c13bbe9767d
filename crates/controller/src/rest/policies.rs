//! Policies: listing, adding, deleting, and recent history.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Path, Request, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tapswitch_control::{PathReport, PolicyReport, PolicyState, TapPolicy, Verdict};

use super::error::Refusal;
use super::lists::{Asked, Page, PageQuery};
use super::series::SeriesReport;
use super::{Api, Asking, MAX_BODY_LEN};
use crate::cluster::Access;
use crate::words::in_words;
use crate::{Applied, Handle, How, Origin};

/// Representation of a policy.
#[derive(Debug, Serialize)]
pub(super) struct PolicyView {
    #[serde(flatten)]
    report: PolicyReport,
    created_at: Option<String>,
    owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_by: Option<String>,
    /// Only for a single policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Vec<PathReport>>,
    /// Only for a policy that was just put in force.
    #[serde(flatten)]
    verdict: Option<Verdict>,
}

impl PolicyView {
    fn new(report: PolicyReport, handle: &Handle) -> Self {
        let origin = handle.origin(&report.policy.name);
        Self::of(report, origin)
    }

    fn of(report: PolicyReport, origin: Option<Origin>) -> Self {
        let (created, changed) =
            origin.map(|it| ((it.created_at, it.owner), (it.changed_at, it.changed_by))).unzip();
        let (created_at, owner) = created.unzip();
        let (changed_at, changed_by) = changed.unwrap_or_default();
        Self { report, created_at, owner, changed_at, changed_by, path: None, verdict: None }
    }

    fn applied(applied: Applied, handle: &Handle) -> Self {
        let Applied { report, verdict } = applied;
        Self { verdict: Some(verdict), ..Self::new(report, handle) }
    }
}

/// Query for policies.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PolicyQuery {
    limit: Option<usize>,
    cursor: Option<String>,
    q: Option<String>,
    /// In one of these states, separated by commas.
    state: Option<String>,
    ledger: Option<Ledger>,
    has_problem: Option<bool>,
}

/// State of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Ledger {
    AddsUp,
    /// It adds up as far as known.
    Incomplete,
    DoesNotAddUp,
}

impl Ledger {
    const fn of(report: &PolicyReport) -> Self {
        match (report.adds_up, report.is_complete) {
            (true, true) => Self::AddsUp,
            (true, false) => Self::Incomplete,
            (false, _) => Self::DoesNotAddUp,
        }
    }
}

/// Whether the policy needs attention: no copies, or not all, are made, or some are unaccounted
/// for.
const fn has_problem(report: &PolicyReport) -> bool {
    let is_well = !matches!(report.state, PolicyState::Failed { .. } | PolicyState::Partial { .. });
    !is_well || !report.adds_up
}

/// Parses a list of states.
fn states(text: &str) -> Result<Vec<&str>, Refusal> {
    let states: Vec<_> = text.split(',').collect();
    match states.iter().find(|state| !STATES.contains(*state)) {
        None => Ok(states),
        Some(other) => {
            let known = STATES.join(", ");
            let message = format!(
                "state: unknown value {other:?}; expected one or more of these, separated by \
                     commas: {known}"
            );
            Err(Refusal::malformed(message).about("state"))
        }
    }
}

/// States of [`PolicyState`] that listed policies have.
const STATES: [&str; 6] = ["active", "partial", "installing", "pending", "resting", "failed"];

pub(super) async fn list(
    State(api): State<Api>,
    Asked(query): Asked<PolicyQuery>,
) -> Result<Json<Page<PolicyView>>, Refusal> {
    let PolicyQuery { limit, cursor, q, state, ledger, has_problem: wanted } = query;
    let states = state.as_deref().map(states).transpose()?;
    api.refresh().await?;
    let reports = api.handle.known_policies().await?;
    let is_wanted = |report: &PolicyReport| {
        states.as_ref().is_none_or(|states| states.contains(&report.state.name()))
            && ledger.is_none_or(|ledger| Ledger::of(report) == ledger)
            && wanted.is_none_or(|wanted| has_problem(report) == wanted)
    };
    let view =
        |report: PolicyReport| (report.policy.name.clone(), PolicyView::new(report, &api.handle));
    PageQuery { limit, cursor, q }.page(reports.into_iter().filter(is_wanted).map(view))
}

pub(super) async fn one(
    State(api): State<Api>,
    Named(name): Named,
) -> Result<Json<PolicyView>, Refusal> {
    let report = api.handle.policy(&name).await?;
    let path = Some(api.handle.policy_paths(&name).await?);
    Ok(Json(PolicyView { path, ..PolicyView::new(report, &api.handle) }))
}

/// Parameters of a change.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ApplyQuery {
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    force: bool,
}

pub(super) async fn add(
    State(api): State<Api>,
    Asking(admitted): Asking,
    Asked(query): Asked<ApplyQuery>,
    Document(policy): Document<TapPolicy>,
) -> Result<Response, Refusal> {
    if query.dry_run {
        let plan = api.handle.plan_policy(policy).await?;
        return Ok(Json(plan).into_response());
    }
    let how = How { replaces: false, by_force: query.force };
    let applied = api.handle.apply_policy(&admitted.caller, policy, how).await?;
    let location = location(&applied.report.policy.name);
    let view = PolicyView::applied(applied, &api.handle);
    Ok((StatusCode::CREATED, [(LOCATION, location)], Json(view)).into_response())
}

pub(super) async fn replace(
    State(api): State<Api>,
    Asking(admitted): Asking,
    Named(name): Named,
    Asked(query): Asked<ApplyQuery>,
    Document(policy): Document<TapPolicy>,
) -> Result<Response, Refusal> {
    if policy.name != name {
        let message = format!(
            "name {}: differs from the name in the path, {name}; a policy cannot be renamed: \
             delete it, and add another",
            policy.name
        );
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        return Err(Refusal::new(status, "other-name", message).about("name"));
    }
    if query.dry_run {
        let plan = api.handle.plan_replacement(policy).await?;
        return Ok(Json(plan).into_response());
    }
    let how = How { replaces: true, by_force: query.force };
    let applied = api.handle.apply_policy(&admitted.caller, policy, how).await?;
    Ok(Json(PolicyView::applied(applied, &api.handle)).into_response())
}

pub(super) async fn delete(
    State(api): State<Api>,
    Asking(admitted): Asking,
    Named(name): Named,
    Asked(query): Asked<ApplyQuery>,
) -> Result<Response, Refusal> {
    if query.dry_run {
        return Ok(Json(api.handle.plan_deletion(&name).await?).into_response());
    }
    let origin = api.handle.origin(&name);
    let deleted = api.handle.delete_policy(&admitted.caller, &name, query.force).await?;
    let Applied { report, verdict } = deleted;
    let view = PolicyView { verdict: Some(verdict), ..PolicyView::of(report, origin) };
    Ok(Json(view).into_response())
}

pub(super) async fn series(
    State(api): State<Api>,
    Named(name): Named,
) -> Result<Json<SeriesReport>, Refusal> {
    // The series is from the time when this controller led.
    api.handle.check(Access::Read)?;
    if let Some(report) = api.series.report(&name) {
        return Ok(Json(report));
    }
    // Distinguishes a policy without a series from an unknown one.
    api.handle.policy(&name).await?;
    Ok(Json(SeriesReport::empty()))
}

/// URL of a policy.
fn location(name: &str) -> HeaderValue {
    let mut path = "/api/v1/policies/".to_owned();
    for byte in name.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            true => path.push(char::from(byte)),
            false => path += &format!("%{byte:02X}"),
        }
    }
    // All of it is ASCII.
    HeaderValue::from_str(&path).unwrap_or(HeaderValue::from_static("/api/v1/policies"))
}

/// A name in the path.
pub(super) struct Named(pub(super) String);

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for Named {
    type Rejection = Refusal;

    async fn from_request_parts(
        parts: &mut axum::http::request::Parts,
        state: &S,
    ) -> Result<Self, Refusal> {
        let path = Path::from_request_parts(parts, state).await;
        let message = "the name in the path is not UTF-8; write its bytes as %XX, as in %C3%A4";
        let Path(name) = path.map_err(|_| Refusal::malformed(message).about("name"))?;
        Ok(Self(name))
    }
}

/// A document in the body.
pub(super) struct Document<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Document<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if !kind.is_some_and(is_json) {
            let message = "the body must be JSON: Content-Type: application/json";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Refusal::new(status, "not-json", message));
        }
        // A declared length is checked at once, before the body is sent.
        let len = request.headers().get(CONTENT_LENGTH).and_then(|len| len.to_str().ok());
        if len.and_then(|len| len.parse().ok()).is_some_and(|len: u64| len > MAX_BODY_LEN as u64) {
            return Err(too_large());
        }
        let bytes = Bytes::from_request(request, state).await;
        let bytes = bytes.map_err(|error| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => too_large(),
            _ => Refusal::malformed(error.body_text()),
        })?;
        parse(&bytes).map(Self)
    }
}

fn too_large() -> Refusal {
    let message = "the body is larger than 64 KiB; shorten it";
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", message)
}

fn is_json(kind: &str) -> bool {
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    // serde would also accept an array of the members' values, without names.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(Refusal::malformed("the body must be a JSON object: {\"...\": ...}"));
    }
    let deserializer = &mut serde_json::Deserializer::from_slice(bytes);
    let document = serde_path_to_error::deserialize(&mut *deserializer).map_err(|error| {
        let path = error.path().to_string();
        let message = told(&error.into_inner());
        let missing = missing(&message).map(str::to_owned);
        // The document as a whole, and truncated input, have no path.
        let path = Some(path).filter(|path| ![".", "?"].contains(&path.as_str()));
        let field: Vec<_> = path.into_iter().chain(missing).collect();
        let refusal = Refusal::malformed(message);
        if field.is_empty() { refusal } else { refusal.about(field.join(".")) }
    })?;
    deserializer.end().map_err(|error| {
        let remedy = "send a single document, and nothing after it";
        Refusal::malformed(format!("{error}; {remedy}"))
    })?;
    Ok(document)
}

/// The missing member, if that is the error.
fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split_once('`').map(|(field, _)| field)
}

/// An error in a document in terms of JSON, with its position.
fn told(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(what) => in_words(what) + &place,
        None => in_words(&text),
    }
}

#[cfg(test)]
mod tests {
    use tapswitch_control::Counts;

    use super::*;

    fn report(state: PolicyState, adds_up: bool, is_complete: bool) -> PolicyReport {
        PolicyReport {
            number: 1,
            policy: TapPolicy::new("p", "0x4/1".parse().unwrap()),
            state,
            monitor: None,
            monitors: Vec::new(),
            matched: Counts::ZERO,
            copied: Vec::new(),
            adds_up,
            is_complete,
            notes: Vec::new(),
        }
    }

    #[test]
    fn what_somebody_should_look_at() {
        let reason = String::new;
        for (state, is_well) in [
            (PolicyState::Active, true),
            (PolicyState::Installing, true),
            (PolicyState::Pending { reason: reason() }, true),
            (PolicyState::Resting { reason: reason() }, true),
            (PolicyState::Partial { reason: reason() }, false),
            (PolicyState::Failed { reason: reason() }, false),
        ] {
            assert!(STATES.contains(&state.name()), "{state:?}");
            assert_eq!(has_problem(&report(state.clone(), true, false)), !is_well, "{state:?}");
            assert!(has_problem(&report(state, false, true)));
        }
    }

    #[test]
    fn what_is_missing_is_not_told_of_what_does_not_add_up() {
        let ledger =
            |adds_up, is_complete| Ledger::of(&report(PolicyState::Active, adds_up, is_complete));
        assert_eq!(ledger(true, true), Ledger::AddsUp);
        assert_eq!(ledger(true, false), Ledger::Incomplete);
        assert_eq!([ledger(false, true), ledger(false, false)], [Ledger::DoesNotAddUp; 2]);
    }
}
