//! Refused requests as JSON: a stable code for programs, and a text.

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use tapswitch_control::{MonitorError, PolicyError};

use crate::{RequestError, StoreError};

/// A refused request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    /// Stable code in kebab case, for programs.
    pub(super) code: &'static str,
    /// Cause and remedy.
    pub(super) message: String,
    /// The field of the document or query concerned.
    pub(super) field: Option<String>,
    /// URL of the REST server that can answer.
    pub(super) leader: Option<String>,
    /// Byte offset in the filter.
    pub(super) at: Option<usize>,
    /// Temporary: a retry soon may succeed.
    pub(super) is_passing: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    error: Members<'a>,
}

#[derive(Serialize)]
struct Members<'a> {
    code: &'a str,
    message: &'a str,
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<usize>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let (field, at, leader) = (None, None, None);
        Self { status, code, message: message.into(), field, leader, at, is_passing: false }
    }

    /// Adds the field concerned.
    #[must_use]
    pub(super) fn about(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    /// A temporary condition.
    fn passing(code: &'static str, message: String) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        Self { is_passing: true, ..refusal }
    }

    /// The request is malformed.
    pub(super) fn malformed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self { status, code, message, field, leader, at, is_passing } = self;
        let (field, leader) = (field.as_deref(), leader.as_deref());
        let error = Members { code, message: &message, field, leader, at };
        let mut response = (status, Json(Document { error })).into_response();
        if status == StatusCode::UNAUTHORIZED {
            // RFC 9110 §15.5.2: a 401 names the authentication scheme.
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if is_passing {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(PASSES_AFTER));
        }
        response
    }
}

impl From<RequestError> for Refusal {
    fn from(error: RequestError) -> Self {
        let message = error.to_string();
        let (status, code) = match error {
            RequestError::Policy(error) => return error.into(),
            RequestError::Store(error) => return error.into(),
            RequestError::NotInstalled { .. } => {
                (StatusCode::UNPROCESSABLE_ENTITY, "not-installed")
            }
            RequestError::NotProved { .. } => (StatusCode::CONFLICT, "not-proved"),
            RequestError::Configured { .. } => (StatusCode::CONFLICT, "policy-configured"),
            RequestError::TimedOut { .. } | RequestError::SwitchSilent { .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "switch-silent")
            }
            RequestError::Busy { .. } => (StatusCode::CONFLICT, "policy-busy"),
            RequestError::TooManyPlans { .. } => {
                return Self::passing("too-many-dry-runs", message);
            }
            RequestError::NotHeard { .. } => return Self::passing("switch-awaited", message),
            RequestError::NotLeader { leader } => {
                let refusal = Self::new(StatusCode::MISDIRECTED_REQUEST, "not-leader", message);
                return Self { leader: leader.rest, ..refusal };
            }
            RequestError::NoLeader => return Self::passing("no-leader", message),
            RequestError::Stopped => (StatusCode::SERVICE_UNAVAILABLE, STOPPED),
        };
        Self::new(status, code, message)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, "store-unavailable", error.to_string())
    }
}

impl From<PolicyError> for Refusal {
    fn from(error: PolicyError) -> Self {
        let status = match &error {
            PolicyError::Unknown { .. } => StatusCode::NOT_FOUND,
            PolicyError::Duplicate { .. } => StatusCode::CONFLICT,
            _ => StatusCode::UNPROCESSABLE_ENTITY,
        };
        let (code, message) = (policy_code(&error), error.to_string());
        let at = match &error {
            PolicyError::Filter(error) => Some(error.at()),
            _ => None,
        };
        let field = error.field().map(str::to_owned);
        Self { field, at, ..Self::new(status, code, message) }
    }
}

/// Codes for programs; these never change.
fn policy_code(error: &PolicyError) -> &'static str {
    match error {
        PolicyError::NameEmpty | PolicyError::NameTooLong { .. } => "bad-name",
        PolicyError::NameUnseen { .. } | PolicyError::NameBlank { .. } => "bad-name",
        PolicyError::NameStep { .. } => "bad-name",
        PolicyError::Duplicate { .. } => "duplicate-policy",
        PolicyError::Unknown { .. } => "unknown-policy",
        PolicyError::NeverSource { .. } | PolicyError::NoDestination => "impossible-address",
        PolicyError::NeverAnswers { .. } => "impossible-direction",
        PolicyError::MixedFamilies { .. } => "mixed-families",
        PolicyError::IcmpOverIpv6 { .. } | PolicyError::Icmpv6OverIpv4 { .. } => "mixed-families",
        PolicyError::NoPorts { .. } => "no-ports",
        PolicyError::VlanRange { .. } => "vlan-range",
        PolicyError::ReservedVlan { .. } => "reserved-vlan",
        PolicyError::Monitor(error) => monitor_code(error),
        PolicyError::Budget(_) | PolicyError::TooManyRegions { .. } | PolicyError::TooInvolved => {
            "over-budget"
        }
        PolicyError::RangeTooWide { .. } => "over-budget",
        PolicyError::Filter(_) => "bad-filter",
        PolicyError::NothingLeft => "matches-nothing",
        PolicyError::Past { .. } => "expires-in-the-past",
        PolicyError::TooMany { .. } => "too-many-policies",
        _ => "policy-refused",
    }
}

fn monitor_code(error: &MonitorError) -> &'static str {
    match error {
        MonitorError::NoSwitch { .. } | MonitorError::UnknownSwitch { .. } => "unknown-switch",
        MonitorError::Offline { .. } | MonitorError::Unwatched { .. } => "switch-offline",
        MonitorError::UnknownPort { .. } | MonitorError::UnknownHost { .. } => "unknown-monitor",
        MonitorError::Ambiguous { .. } => "ambiguous-monitor",
        MonitorError::Down { .. } => "monitor-down",
        _ => "monitor-refused",
    }
}

/// Seconds after which another controller may lead, switches have connected, or dry runs have
/// ended.
const PASSES_AFTER: u32 = 1;
/// Code after shutdown.
pub(super) const STOPPED: &str = "stopped";

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_control::{TapPolicy, Vlan};

    #[test]
    fn what_is_wrong_with_a_policy_names_code_and_field() {
        let policy = || TapPolicy::new("p", "3".parse().unwrap());
        let cases = [
            (TapPolicy { name: String::new(), ..policy() }, "bad-name", "name"),
            (TapPolicy { vlan: Vlan::Id(4095), ..policy() }, "vlan-range", "vlan"),
            (
                TapPolicy {
                    src_ip: Some("10.0.0.1".parse().unwrap()),
                    dst_ip: Some("::1".parse().unwrap()),
                    ..policy()
                },
                "mixed-families",
                "src-ip",
            ),
        ];
        for (policy, code, field) in cases {
            let refusal = Refusal::from(policy.check().unwrap_err());
            assert_eq!(refusal.status, StatusCode::UNPROCESSABLE_ENTITY);
            assert_eq!((refusal.code, refusal.field.as_deref()), (code, Some(field)));
        }
    }

    #[test]
    fn what_is_about_no_field_names_none() {
        let name = "monitor of mine".to_owned();
        let refusal = Refusal::from(PolicyError::Unknown { name, known: String::new() });
        assert_eq!((refusal.status, refusal.code), (StatusCode::NOT_FOUND, "unknown-policy"));
        assert_eq!(refusal.field, None);
    }
}
