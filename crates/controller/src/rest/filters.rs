//! What a filter, or a whole policy, matches: for those who are writing it.
//!
//! Some take most of a second, which others must not wait for: a thread of its own looks at them,
//! [`CHECKS`] at a time.

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

/// What is to be looked at: one of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    filter: Option<String>,
    #[serde(default, deserialize_with = "policy_with_names")]
    policy: Option<TapPolicy>,
}

/// A policy by the names of its fields: a list of their values would do as well, and what is wrong
/// with one would be told by its place in a list.
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

/// What it matches.
#[derive(Debug, Serialize)]
pub(super) struct Checked {
    ok: bool,
    /// Regions: so many rules, where a switch knows none of the hosts.
    regions: usize,
    /// In words, the first ones.
    matches: Vec<String>,
    /// How many of those there are.
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
        // Who asked may be gone; the turn is over only when the work is.
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

/// Policies that are looked at, at a time.
pub(super) const CHECKS: usize = 2;
/// Sets of frames that are told.
const MAX_MATCHES: usize = 50;
