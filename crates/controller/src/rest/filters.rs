//! Describes what a filter or a whole policy matches, while it is being written.
//!
//! Some take most of a second, for which others must not wait: they are checked on a thread of
//! their own, at most [`CHECKS`] at a time.

use std::fmt;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use tapswitch_control::{Direction, MonitorSpec, PolicyError, TapPolicy};

use super::error::Refusal;
use super::policies::Document;
use super::{Api, Asking};
use crate::RequestError;
use crate::cluster::Access;

/// What to check: one of the two.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    filter: Option<String>,
    #[serde(default, deserialize_with = "policy_with_names")]
    policy: Option<TapPolicy>,
}

/// Requires a policy with named fields: serde would also accept a list of values, and name an
/// invalid one by its position only.
fn policy_with_names<'de, D: Deserializer<'de>>(json: D) -> Result<Option<TapPolicy>, D::Error> {
    json.deserialize_any(PolicyVisitor)
}

struct PolicyVisitor;

impl<'de> Visitor<'de> for PolicyVisitor {
    type Value = Option<TapPolicy>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a policy: {\"name\": ..., \"monitor\": ...}")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        TapPolicy::deserialize(MapAccessDeserializer::new(fields)).map(Some)
    }
}

/// Result of a check.
#[derive(Debug, Serialize)]
pub(super) struct Checked {
    ok: bool,
    /// Regions: the number of rules on a switch that knows none of the hosts.
    regions: usize,
    /// The first descriptions.
    matches: Vec<String>,
    /// Total number of descriptions.
    total: usize,
}

pub(super) async fn check(
    State(api): State<Api>,
    _: Asking,
    Document(wanted): Document<Wanted>,
) -> Result<Json<Checked>, Refusal> {
    api.handle.check(Access::Read)?;
    let policy = match wanted {
        Wanted { filter: Some(filter), policy: None } => {
            let filter = Some(filter);
            TapPolicy {
                filter,
                direction: Some(Direction::Forward),
                ..TapPolicy::new("filter", MonitorSpec::Controller)
            }
        }
        Wanted { filter: None, policy: Some(policy) } => policy,
        _ => return Err(Refusal::malformed("give either filter or policy")),
    };
    let stopped = || Refusal::from(RequestError::Stopped);
    let turn = Arc::clone(&api.checks).acquire_owned().await.map_err(|_| stopped())?;
    let looking = move || {
        // The caller may be gone; the permit is held until the work is done.
        let _turn = turn;
        look_at(&policy)
    };
    let checked = tokio::task::spawn_blocking(looking).await.map_err(|_| stopped())?;
    Ok(Json(checked?))
}

fn look_at(policy: &TapPolicy) -> Result<Checked, PolicyError> {
    let mut matches = policy.words()?;
    let total = matches.len();
    matches.truncate(MAX_MATCHES);
    Ok(Checked { ok: true, regions: policy.region_count()?, matches, total })
}

/// Maximum concurrent checks.
pub(super) const CHECKS: usize = 2;
/// Maximum descriptions returned.
const MAX_MATCHES: usize = 50;
