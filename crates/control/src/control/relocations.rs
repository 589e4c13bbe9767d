//! Monitors that are found at another port than before: the copied traffic is the same, but not its
//! destination.

use std::collections::BTreeSet;

use super::Control;
use super::roster::PolicyEntry;
use crate::place::Place;
use crate::resolve::{Found, Places, hosts_of, list};
use crate::{Event, MonitorError, MonitorSpec, Monitors, TapPolicy};

/// Location of a monitor, or why it is unknown.
type Looked = Result<Places, MonitorError>;

impl Control {
    /// The policy of this name, as requested.
    pub fn policy_asked(&self, name: &str) -> Option<&TapPolicy> {
        self.policies.find(name).map(|entry| &entry.policy)
    }

    /// Events for new locations of a policy's monitors.
    pub(super) fn relocations(
        &self,
        entry: &PolicyEntry,
        monitors: &Monitors,
        places: &[Looked],
    ) -> Vec<Event> {
        let is_new = entry.state.is_none();
        let all = monitors.iter().zip(entry.places.iter().zip(places));
        let moved = all.filter_map(|(monitor, (before, now))| {
            let before = if is_new { BTreeSet::new() } else { ports(before) };
            let after = ports(now);
            // For a monitor named by port, being found is no news.
            let is_news = if before.is_empty() { names_host(monitor) } else { true };
            let has_moved = is_news && !after.is_empty() && before != after;
            has_moved.then(|| self.moved(entry, monitor, (before, now)))
        });
        moved.collect()
    }

    fn moved(
        &self,
        entry: &PolicyEntry,
        monitor: &MonitorSpec,
        (before, now): (BTreeSet<Place>, &Looked),
    ) -> Event {
        let told = |places: BTreeSet<Place>| {
            places.into_iter().map(|place| self.named(place)).collect::<Vec<_>>()
        };
        let after = ports(now);
        let came: BTreeSet<_> = after.difference(&before).copied().collect();
        let went = before.difference(&after).copied().collect();
        let found = now.iter().flat_map(Places::iter);
        let hosts: BTreeSet<_> =
            found.flat_map(|(share, found)| self.hosts_at(monitor.sharing(share), found)).collect();
        let reason = match (came.is_empty(), hosts.is_empty()) {
            (true, _) => format!("{} is no longer available", list(told(went).iter())),
            (false, true) => format!("{} is available now", list(told(came).iter())),
            (false, false) => format!("{} was seen there", list(hosts.iter())),
        };
        Event::PolicyMoved {
            name: entry.policy.name.clone(),
            monitor: monitor.clone(),
            from: told(before),
            to: told(after),
            reason,
        }
    }

    /// The monitor's hosts behind these ports.
    fn hosts_at(&self, monitor: &MonitorSpec, found: Found) -> Vec<String> {
        let at = self.switches.get(&found.place.switch);
        let keys = at.map(|at| hosts_of(monitor, found, at)).unwrap_or_default();
        keys.into_iter().map(|key| key.mac.to_string()).collect()
    }
}

fn ports(places: &Looked) -> BTreeSet<Place> {
    places.iter().flat_map(Places::ports).collect()
}

/// Whether the monitor is named by a host's address.
fn names_host(monitor: &MonitorSpec) -> bool {
    let is_host = |member: &MonitorSpec| matches!(member, MonitorSpec::Mac(_) | MonitorSpec::Ip(_));
    monitor.members().iter().any(is_host)
}
