//! `/metrics`, for Prometheus: text format 0.0.4.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::Api;
use super::error::Refusal;
use crate::exposition::{Exposition, Kind, Labels};
use crate::metrics::{put_policies, put_switches};
use crate::store::Wanted;

pub(super) async fn metrics(State(api): State<Api>) -> Result<impl IntoResponse, Refusal> {
    api.refresh().await?;
    let mut out = Exposition::default();
    let version = Labels::new("version", env!("CARGO_PKG_VERSION"));
    out.put("controller_info", Kind::Gauge, "What runs.", [(version, 1)]);
    put_switches(&mut out, &api.handle.switches().await?);
    let links = api.handle.links().await?.len();
    out.put(
        "controller_links",
        Kind::Gauge,
        "Links between switches.",
        [(Labels::default(), links)],
    );
    put_policies(&mut out, &api.handle.known_policies().await?);
    let listeners = api.handle.journal().listener_count();
    let help = "Clients that listen for events.";
    out.put("controller_event_listeners", Kind::Gauge, help, [(Labels::default(), listeners)]);
    let records = api.handle.records(Wanted::Before(u64::MAX), 1).await;
    let help = "Whether the store can be read.";
    let is_up = u64::from(records.is_ok());
    out.put("controller_store_up", Kind::Gauge, help, [(Labels::default(), is_up)]);
    let total = records.map(|records| records.total).into_iter();
    let help = "Records of the audit log.";
    let total = total.map(|total| (Labels::default(), total));
    out.put("controller_audit_records", Kind::Gauge, help, total);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4")], out.into_text()))
}
