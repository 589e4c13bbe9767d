//! One switch in detail: ports with counters, tables, groups.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use tapswitch_control::{GroupReport, PortDetail, RuleReport, SwitchDetails};
use tapswitch_openflow::DatapathId;

use super::Api;
use super::error::Refusal;
use super::lists::{Asked, Page, PageQuery};
use super::policies::Named;

/// What a switch told last, for those who read page after page. Whoever asks while it is asked
/// waits for that.
pub(super) type Last = tokio::sync::Mutex<Option<(DatapathId, Instant, Arc<SwitchDetails>)>>;

/// What of the rules is wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleQuery {
    limit: Option<usize>,
    cursor: Option<String>,
    q: Option<String>,
    table: Option<u8>,
}

pub(super) async fn ports(
    State(api): State<Api>,
    Named(name): Named,
    Asked(query): Asked<PageQuery>,
) -> Result<Json<Page<PortDetail>>, Refusal> {
    let details = api.details(&name).await?;
    // In the order of numbers; names, such as LOCAL, behind them.
    let key = |port: &PortDetail| {
        let number = port.port.port.parse().unwrap_or(u32::MAX);
        format!("{number:010}-{}", port.port.port)
    };
    query.page(details.ports.iter().map(|port| (key(port), port.clone())))
}

pub(super) async fn rules(
    State(api): State<Api>,
    Named(name): Named,
    Asked(RuleQuery { limit, cursor, q, table }): Asked<RuleQuery>,
) -> Result<Json<Page<RuleReport>>, Refusal> {
    let details = api.details(&name).await?;
    let query = PageQuery { limit, cursor, q, switch: None };
    let rules = details.rules.iter().filter(|rule| table.is_none_or(|table| rule.table == table));
    // As a switch looks: table by table, higher priorities first.
    let key = |rule: &RuleReport| {
        let RuleReport { table, priority, matches, .. } = rule;
        format!("{table:03}-{:05}-{matches}", u16::MAX - priority)
    };
    query.page(rules.map(|rule| (key(rule), rule.clone())))
}

pub(super) async fn groups(
    State(api): State<Api>,
    Named(name): Named,
    Asked(query): Asked<PageQuery>,
) -> Result<Json<Page<GroupReport>>, Refusal> {
    let details = api.details(&name).await?;
    query.page(details.groups.iter().map(|group| (format!("{:010}", group.group), group.clone())))
}

impl Api {
    async fn details(&self, name: &str) -> Result<Arc<SwitchDetails>, Refusal> {
        let unknown = || {
            let message = format!("there is no switch {name}; /api/v1/switches lists them, as 0x1");
            Refusal::new(StatusCode::NOT_FOUND, "unknown-switch", message)
        };
        let digits = name.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
        let id = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let id = id.map(DatapathId).ok_or_else(unknown)?;
        let mut last = self.details.lock().await;
        if let Some((of, at, details)) = last.as_ref()
            && *of == id
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(details));
        }
        let details = self.handle.switch_details(id).await?.ok_or_else(unknown)?;
        let details = Arc::new(details);
        *last = Some((id, Instant::now(), Arc::clone(&details)));
        Ok(details)
    }
}

/// Pages that are asked for within this time are of one reading.
const FRESH: Duration = Duration::from_secs(1);
