//! Switches and hosts.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use tapswitch_control::{HostReport, SwitchReport, parse_switch_name};
use tapswitch_openflow::DatapathId;

use super::Api;
use super::error::Refusal;
use super::lists::{Asked, Page, PageQuery};
use super::policies::Named;

pub(super) async fn switches(
    State(api): State<Api>,
    Asked(query): Asked<PageQuery>,
) -> Result<Json<Page<SwitchReport>>, Refusal> {
    let switches = api.handle.switches().await?;
    query.page(switches.into_iter().map(|report| (format!("{:016x}", report.switch.0), report)))
}

pub(super) async fn one_switch(
    State(api): State<Api>,
    Named(name): Named,
) -> Result<Json<SwitchReport>, Refusal> {
    let switches = api.handle.switches().await?;
    let found = switches.into_iter().find(|report| switch_name(report) == name);
    match found {
        Some(report) => Ok(Json(report)),
        None => Err(api.unknown_switch(&name).await),
    }
}

impl Api {
    /// The error for a switch that is unknown or not connected yet.
    pub(super) async fn unknown_switch(&self, name: &str) -> Refusal {
        if let Some(id) = switch_id(name)
            && let Err(early) = self.handle.check_heard(id).await
        {
            return early.into();
        }
        let message = format!("there is no switch {name}; /api/v1/switches lists them, as 0x1");
        Refusal::new(StatusCode::NOT_FOUND, "unknown-switch", message)
    }
}

/// The datapath id in a path.
pub(super) fn switch_id(name: &str) -> Option<DatapathId> {
    let digits = name.strip_prefix("0x").filter(|digits| !digits.starts_with('+'))?;
    u64::from_str_radix(digits, 16).ok().map(DatapathId)
}

/// Query for hosts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostQuery {
    limit: Option<usize>,
    cursor: Option<String>,
    q: Option<String>,
    /// At this switch.
    switch: Option<String>,
}

pub(super) async fn hosts(
    State(api): State<Api>,
    Asked(HostQuery { limit, cursor, q, switch }): Asked<HostQuery>,
) -> Result<Json<Page<HostReport>>, Refusal> {
    let query = PageQuery { limit, cursor, q };
    let named = |text: String| {
        let named = parse_switch_name(&text);
        named.map_err(|error| Refusal::malformed(format!("switch {error}")).about("switch"))
    };
    let switch = switch.map(named).transpose()?;
    let hosts = api.handle.hosts().await?.into_iter();
    let is_wanted = |host: &HostReport| switch.is_none_or(|switch| host.switch == switch);
    let key = |host: &HostReport| {
        let vlan = host.vlan.unwrap_or_default();
        format!("{:016x}-{}-{vlan:04}-{}", host.switch.0, host.mac, host.port)
    };
    query.page(hosts.filter(is_wanted).map(|host| (key(&host), host)))
}

fn switch_name(report: &SwitchReport) -> String {
    format!("{:#x}", report.switch.0)
}
