//! Sessions, the caller's identity, and what the page needs first.

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::access::{COOKIE_NAME, SESSION_AGE};
use super::error::Refusal;
use super::policies::Document;
use super::{Api, Asking, Peer};
use crate::{Caller, ClusterReport, Role};

#[derive(Serialize)]
pub(super) struct Me {
    name: String,
    role: Role,
    version: &'static str,
    /// Start time of the controller.
    started_at: String,
    /// Whether tokens are required, so that sign-in and sign-out exist.
    has_tokens: bool,
}

pub(super) async fn me(State(api): State<Api>, Asking(admitted): Asking) -> Json<Me> {
    let Caller { name, role, .. } = admitted.caller;
    let started_at = api.started_at.to_string();
    let has_tokens = api.gate.asks_for_tokens();
    Json(Me { name, role, version: env!("CARGO_PKG_VERSION"), started_at, has_tokens })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SignIn {
    token: String,
}

/// Exchanges a token for a cookie.
pub(super) async fn sign_in(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    Document(SignIn { token }): Document<SignIn>,
) -> Result<Response, Refusal> {
    let admitted = match api.gate.admit_token(peer.address, token.trim()) {
        Ok(admitted) => admitted,
        Err(rejection) => return Err(api.reject(peer.address, rejection).await),
    };
    peer.place.keep_for(&admitted.caller);
    let id = api.gate.open_session(&admitted)?;
    let cookie = cookie(&id, SESSION_AGE.as_secs(), peer.is_secure);
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response())
}

pub(super) async fn sign_out(
    State(api): State<Api>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
) -> impl IntoResponse {
    api.gate.close_session(&headers);
    (StatusCode::NO_CONTENT, [(SET_COOKIE, cookie("", 0, peer.is_secure))])
}

fn cookie(id: &str, age_s: u64, is_secure: bool) -> HeaderValue {
    let secure = if is_secure { "; Secure" } else { "" };
    let text =
        format!("{COOKIE_NAME}={id}; Path=/; HttpOnly; SameSite=Strict; Max-Age={age_s}{secure}");
    // Hexadecimal digits and the words above.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

#[derive(Serialize)]
pub(super) struct ConfigView {
    /// Kind of the store: `memory`, `disk` or `etcd`.
    store: &'static str,
    /// VLAN ids of copies between switches.
    copy_vids: String,
    limits: LimitsView,
}

#[derive(Serialize)]
struct LimitsView {
    max_policies: usize,
    /// Maximum regions on one switch.
    max_regions: usize,
    max_switches: usize,
    max_body_len: usize,
    max_events: usize,
}

pub(super) async fn config(State(api): State<Api>) -> Json<ConfigView> {
    let limits = LimitsView {
        max_policies: api.facts.limits.max_policies,
        max_regions: api.facts.limits.max_regions,
        max_switches: api.facts.limits.max_switches,
        max_body_len: super::MAX_BODY_LEN,
        max_events: api.facts.max_events,
    };
    let copy_vids = api.facts.limits.copy_vids.to_string();
    Json(ConfigView { store: api.facts.store, copy_vids, limits })
}

/// The cluster's state; every controller answers this.
pub(super) async fn cluster(State(api): State<Api>) -> Json<ClusterReport> {
    Json(api.handle.cluster())
}
