//! Details of one switch: ports with counters, tables, groups.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use tapswitch_control::{GroupReport, PortDetail, RuleReport, SwitchDetails};
use tapswitch_openflow::DatapathId;

use super::Api;
use super::error::Refusal;
use super::lists::{Asked, Page, PageQuery};
use super::network::switch_id;
use super::policies::Named;

/// Last details of switches, so that the pages of a list come from one reading. Callers wait for a
/// pending request to the same switch, but not for other switches.
#[derive(Debug, Default)]
pub(super) struct Last(Mutex<HashMap<DatapathId, Arc<Slot>>>);

/// Last details of one switch.
type Slot = tokio::sync::Mutex<Option<Told>>;

#[derive(Debug)]
struct Told {
    at: Instant,
    details: Arc<SwitchDetails>,
}

impl Last {
    /// The slot of a switch. Outdated details that nobody waits for are dropped.
    fn slot(&self, switch: DatapathId) -> Arc<Slot> {
        // The content is consistent whenever the lock is free.
        let mut slots = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_fresh = |slot: &Slot| slot.try_lock().is_ok_and(|told| fresh(&told).is_some());
        slots.retain(|_, slot| Arc::strong_count(slot) > 1 || is_fresh(slot));
        Arc::clone(slots.entry(switch).or_default())
    }
}

/// Details that are still fresh.
fn fresh(told: &Option<Told>) -> Option<&Arc<SwitchDetails>> {
    told.as_ref().filter(|told| told.at.elapsed() < FRESH).map(|told| &told.details)
}

/// Query for rules.
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
    // By number; names such as LOCAL last.
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
    let query = PageQuery { limit, cursor, q };
    let rules = details.rules.iter().filter(|rule| table.is_none_or(|table| rule.table == table));
    // In lookup order: by table, then higher priorities first.
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
        let Some(id) = switch_id(name) else { return Err(self.unknown_switch(name).await) };
        let slot = self.details.slot(id);
        let mut told = slot.lock().await;
        if let Some(details) = fresh(&told) {
            return Ok(Arc::clone(details));
        }
        let Some(details) = self.handle.switch_details(id).await? else {
            return Err(self.unknown_switch(name).await);
        };
        let details = Arc::new(details);
        *told = Some(Told { at: Instant::now(), details: Arc::clone(&details) });
        Ok(details)
    }
}

/// Pages requested within this time come from one reading.
const FRESH: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_switch_that_is_asked_holds_up_no_other() {
        let last = Last::default();
        let asked = last.slot(DatapathId(1));
        let _asking = asked.lock().await;
        assert!(last.slot(DatapathId(2)).try_lock().is_ok());
        assert!(last.slot(DatapathId(1)).try_lock().is_err(), "who asks for it as well waits");
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let last = Last::default();
        (1..100).for_each(|id| _ = last.slot(DatapathId(id)));
        assert_eq!(last.0.lock().unwrap().len(), 1);
    }
}
