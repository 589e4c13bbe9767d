//! `/metrics`, for Prometheus: text format 0.0.4.

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::Api;
use super::error::Refusal;
use crate::ClusterRole;
use crate::exposition::{Exposition, Kind, Labels};
use crate::metrics::{put_policies, put_switches};
use crate::places::PlaceCounts;
use crate::store::Wanted;

pub(super) async fn metrics(State(api): State<Api>) -> Result<impl IntoResponse, Refusal> {
    let mut out = Exposition::default();
    let version = Labels::new("version", env!("CARGO_PKG_VERSION"));
    out.put("controller_info", Kind::Gauge, "What runs.", [(version, 1)]);
    let leads = api.handle.cluster().role != ClusterRole::Follower;
    let help = "Whether it is the leader: of controllers that share a store, one is.";
    out.put("controller_leads", Kind::Gauge, help, [(Labels::default(), u64::from(leads))]);
    if leads {
        put_fabric(&mut out, &api).await?;
    }
    put_store(&mut out, &api).await;
    put_connections(&mut out, &api);
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4")], out.into_text()))
}

/// Metrics of the leader.
async fn put_fabric(out: &mut Exposition, api: &Api) -> Result<(), Refusal> {
    api.refresh().await?;
    put_switches(out, &api.handle.switches().await?);
    let links = api.handle.links().await?.len();
    let help = "Links between switches.";
    out.put("controller_links", Kind::Gauge, help, [(Labels::default(), links)]);
    put_policies(out, &api.handle.known_policies().await?);
    Ok(())
}

/// Connections of clients and of switches.
fn put_connections(out: &mut Exposition, api: &Api) {
    let of = [("rest", &api.places), ("switches", &api.facts.switch_places)];
    let counts = of.map(|(of, places)| (Labels::new("of", of), places.counts()));
    let mut put = |name, kind, help, value: fn(&PlaceCounts) -> u64| {
        out.put(name, kind, help, counts.iter().map(|(labels, of)| (labels.clone(), value(of))));
    };
    let help = "Open connections.";
    put("controller_connections", Kind::Gauge, help, |of| of.open as u64);
    let help = "Unauthenticated connections that were closed to make room for others.";
    put("controller_connections_evicted_total", Kind::Counter, help, |of| of.evicted);
    let help = "Connections that were refused because of the limit.";
    put("controller_connections_refused_total", Kind::Counter, help, |of| of.refused);
}

async fn put_store(out: &mut Exposition, api: &Api) {
    let listeners = api.handle.journal().listener_count();
    let help = "Clients that subscribe to events.";
    out.put("controller_event_listeners", Kind::Gauge, help, [(Labels::default(), listeners)]);
    let records = api.handle.records(Wanted::Before(u64::MAX), 1).await;
    let help = "Whether the store can be read.";
    let is_up = u64::from(records.is_ok());
    out.put("controller_store_up", Kind::Gauge, help, [(Labels::default(), is_up)]);
    let total = records.map(|records| records.total).into_iter();
    let help = "Records in the audit log.";
    let total = total.map(|total| (Labels::default(), total));
    out.put("controller_audit_records", Kind::Gauge, help, total);
}
