//! Switches that a controller expects, and that have not reported their ports yet.
//!
//! After a start or a change of the leader, the store names the switches of monitors, and those
//! that connected before; a follower is usually connected to all of them itself. Until these
//! switches have reported their ports, a request that refers to one of them, or to a host that may
//! be at one, is refused as too early instead of wrong. That ends after [`PATIENCE`], because a
//! switch may be gone for good.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tapswitch_control::{Control, MonitorError, PolicyError};
use tapswitch_openflow::DatapathId;

use super::Hub;
use crate::RequestError;

/// Switches known when a control plane was created.
#[derive(Debug)]
pub(super) struct Known {
    switches: BTreeSet<DatapathId>,
    since: Instant,
}

/// Those still outstanding.
#[derive(Clone, Debug, Default)]
pub(crate) struct Awaited(BTreeSet<DatapathId>);

impl Known {
    /// The switches known to a new control plane with its policies.
    pub(super) fn of(control: &Control, now: Instant) -> Self {
        Self { switches: control.monitor_switches().collect(), since: now }
    }

    /// Adds the switches that connected in earlier runs or terms.
    pub(super) fn and(mut self, met: &BTreeSet<DatapathId>) -> Self {
        self.switches.extend(met);
        self
    }
}

impl Awaited {
    /// The error for a refused policy: what is wrong with it, or that it is too early.
    pub(crate) fn excuse(&self, error: PolicyError) -> RequestError {
        let awaited: Vec<_> = match &error {
            PolicyError::Monitor(error) => self.behind(error).collect(),
            PolicyError::UnknownDestination { .. } => self.0.iter().copied().collect(),
            _ => Vec::new(),
        };
        match awaited.is_empty() {
            true => error.into(),
            false => RequestError::NotHeard { switches: awaited },
        }
    }

    /// Fails if any switch is outstanding.
    pub(super) fn check_all(self) -> Result<(), RequestError> {
        match self.0.is_empty() {
            true => Ok(()),
            false => Err(RequestError::NotHeard { switches: self.0.into_iter().collect() }),
        }
    }

    /// Fails if this unknown switch is outstanding.
    pub(crate) fn check(&self, switch: DatapathId) -> Result<(), RequestError> {
        match self.0.contains(&switch) {
            true => Err(RequestError::NotHeard { switches: vec![switch] }),
            false => Ok(()),
        }
    }

    /// Outstanding switches that may have the missing monitor.
    fn behind(&self, error: &MonitorError) -> impl Iterator<Item = DatapathId> {
        let at = match error {
            MonitorError::Offline { switch, .. } => Some(Some(*switch)),
            MonitorError::NoSwitch { monitor }
            | MonitorError::UnknownSwitch { monitor, .. }
            | MonitorError::UnknownHost { monitor, .. } => Some(monitor.switch()),
            // The named switch has reported its ports.
            MonitorError::UnknownPort { monitor, .. } => monitor.switch().is_none().then_some(None),
            _ => None,
        };
        let is_it = move |id: &DatapathId| at.is_some_and(|at| at.is_none_or(|at| at == *id));
        self.0.iter().copied().filter(is_it)
    }
}

impl Hub {
    /// Stores that a switch has connected.
    pub(super) fn meet(&self, switch: DatapathId) {
        // The hub does not wait for the store.
        tokio::spawn(Arc::clone(&self.keeper).meet(switch));
    }

    /// Switches that have not reported their ports yet.
    pub(super) fn awaited(&self) -> Awaited {
        self.awaiting(|id| self.control.is_up(id))
    }

    /// These, and switches whose links are still being discovered, so that no path uses them yet.
    pub(super) fn unlinked(&self) -> Awaited {
        self.awaiting(|id| self.control.is_taken_over(id))
    }

    /// Whether this controller has just started, or become the leader, and has not taken over all
    /// its switches yet: what a policy lacks at this time may be about to come.
    pub(super) fn is_taking_over(&self) -> bool {
        let is_there = |id: &DatapathId| self.control.is_taken_over(*id);
        self.known.since.elapsed() < PATIENCE
            && !self.known.switches.iter().chain(self.switches.keys()).all(is_there)
    }

    fn awaiting(&self, is_there: impl Fn(DatapathId) -> bool) -> Awaited {
        let now = Instant::now();
        let is_new = |since: Instant| now.saturating_duration_since(since) < PATIENCE;
        let known = self.known.switches.iter().filter(|_| is_new(self.known.since));
        let connected = self.switches.iter();
        let connected = connected.filter(|(_, switch)| is_new(switch.since.max(self.known.since)));
        let all = known.chain(connected.map(|(id, _)| id)).copied();
        Awaited(all.filter(|id| !is_there(*id)).collect())
    }
}

/// Time for switches to connect, accept the new leader as master, and report their ports.
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use tapswitch_control::MonitorSpec;

    use super::*;
    use crate::hub::tests::{connected, hub};

    fn unknown(monitor: &str) -> PolicyError {
        let (monitor, known): (MonitorSpec, _) = (monitor.parse().unwrap(), String::new());
        PolicyError::Monitor(match monitor.switch() {
            Some(_) => MonitorError::UnknownSwitch { monitor, known },
            None => MonitorError::UnknownHost { monitor, why: "", known },
        })
    }

    #[test]
    fn a_switch_that_is_connected_is_awaited_until_it_has_told_its_ports_or_is_given_up() {
        let (mut hub, _) = hub();
        assert!(hub.awaited().check(DatapathId(1)).is_ok(), "nobody knows it");
        let (news, _sent) = connected();
        hub.handle(news);
        let early = Err(RequestError::NotHeard { switches: vec![DatapathId(1)] });
        assert_eq!(hub.awaited().check(DatapathId(1)), early);
        assert!(hub.awaited().check(DatapathId(2)).is_ok());
        let long_ago = Instant::now().checked_sub(PATIENCE).unwrap();
        hub.known.since = long_ago;
        assert_eq!(hub.awaited().check(DatapathId(1)), early, "it has just connected");
        hub.switches.get_mut(&DatapathId(1)).unwrap().since = long_ago;
        assert!(hub.awaited().check(DatapathId(1)).is_ok(), "it had its time");
        hub.known = Known::of(&hub.control, Instant::now());
        assert_eq!(hub.awaited().check(DatapathId(1)), early, "another one leads by now");
    }

    #[test]
    fn who_asks_for_what_is_still_to_come_is_early_and_not_wrong() {
        let awaited = Awaited([1, 3].map(DatapathId).into());
        let told = |monitor: &str| awaited.excuse(unknown(monitor));
        let early = |ids: &[u64]| RequestError::NotHeard {
            switches: ids.iter().copied().map(DatapathId).collect(),
        };
        assert_eq!(told("0x1/3"), early(&[1]));
        assert_eq!(told("0x2/3"), unknown("0x2/3").into(), "nobody waits for that");
        assert_eq!(told("02:00:00:00:00:01"), early(&[1, 3]), "it may be at each of them");
        let (monitor, switch) = ("0x3/1".parse().unwrap(), DatapathId(3));
        let offline = MonitorError::Offline { monitor, switch };
        assert_eq!(awaited.excuse(offline.into()), early(&[3]));
        let wrong = PolicyError::NameEmpty;
        assert_eq!(awaited.excuse(wrong.clone()), wrong.into());
        assert_eq!(Awaited::default().excuse(unknown("0x1/3")), unknown("0x1/3").into());
    }
}
