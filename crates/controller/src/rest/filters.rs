//! What a filter, or a whole policy, matches: for those who are writing it.

use axum::Json;
use serde::{Deserialize, Serialize};
use tapswitch_control::{Direction, MonitorSpec, TapPolicy};

use super::Asking;
use super::error::Refusal;
use super::policies::Document;

/// What is to be looked at: one of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    filter: Option<String>,
    policy: Option<TapPolicy>,
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
    _: Asking,
    Document(wanted): Document<Wanted>,
) -> Result<Json<Checked>, Refusal> {
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
    let mut matches = policy.words()?;
    let total = matches.len();
    matches.truncate(MAX_MATCHES);
    Ok(Json(Checked { ok: true, regions: policy.region_count()?, matches, total }))
}

/// Sets of frames that are told.
const MAX_MATCHES: usize = 50;
