//! What every control plane of this controller is built from: at its start, and whenever it becomes
//! the leader.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use tapswitch_control::{Control, Expiry, Limits, Millis, TapPolicy, WhenMissing, counted};
use tapswitch_openflow::DatapathId;

use crate::caller::CONFIGURATION;
use crate::clock::unix_time;
use crate::error::BindError;
use crate::store::{Kept, KeptPolicy, Origin};

/// Parts of every new control plane.
#[derive(Clone, Debug)]
pub(crate) struct Blueprint {
    /// Including the key for link discovery.
    pub(crate) limits: Limits,
    /// Policies of the configuration.
    pub(crate) policies: Vec<TapPolicy>,
    /// Start of the controller, from which their durations count.
    pub(crate) start: Instant,
    /// Switches that connected in earlier runs.
    pub(crate) met: BTreeSet<DatapathId>,
}

/// A new control plane with its policies.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) control: Control,
    /// All policies that are in force.
    pub(crate) policies: Vec<KeptPolicy>,
    /// Those of the configuration that the store does not have like this.
    pub(crate) unstored: Vec<KeptPolicy>,
    /// Policies of the configuration that were in force before and are not any more: they left the
    /// file, or expired while no controller ran.
    pub(crate) gone: Vec<KeptPolicy>,
}

impl Blueprint {
    /// Whether the configuration has a policy of this name, expired or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.policies.iter().any(|policy| policy.name == name)
    }

    /// Policies of the configuration without expired ones, which each term would put in force and
    /// end once more.
    pub(crate) fn configured(&self) -> Vec<TapPolicy> {
        let (passed, time) = (self.start.elapsed().as_secs(), unix_time());
        let goes_on = |policy: &TapPolicy| {
            let expires = match policy.expires {
                Some(Expiry::At(at)) if at <= time => return None,
                Some(Expiry::After(span)) if span <= passed => return None,
                Some(Expiry::After(span)) => Some(Expiry::After(span - passed)),
                other => other,
            };
            Some(TapPolicy { expires, ..policy.clone().with_defaults_said() })
        };
        self.policies.iter().filter_map(goes_on).collect()
    }

    /// Builds a control plane with the policies of the configuration and the store. Monitors of the
    /// former are where they were found before. A stored policy that is invalid, perhaps because
    /// the configuration has its name, is left out and reported, as the others are needed.
    pub(crate) fn build(&self, kept: Kept, now: Millis) -> Result<Built, BindError> {
        let mut control = Control::new(self.limits.clone());
        // Durations count from now, not from the start of this process.
        control.handle_timeout(now);
        let (mut all, mut unstored) = (Vec::new(), Vec::new());
        let (before, stored): (Vec<_>, Vec<_>) =
            kept.policies.into_iter().partition(KeptPolicy::is_configured);
        let before = before.into_iter().map(|kept| (kept.policy.name.clone(), kept));
        let mut before: BTreeMap<_, _> = before.collect();
        let configured = self.configured();
        let over_count = self.policies.len() - configured.len();
        if over_count > 0 {
            tracing::info!(
                "skipped, as expired: {} of the configuration",
                counted(over_count, "policy")
            );
        }
        for mut policy in configured {
            let before = before.remove(&policy.name);
            if let Some(before) = &before {
                policy.monitor = policy.monitor.with_switches_of(&before.policy.monitor);
            }
            let added = control.add_policy(policy.clone(), WhenMissing::Wait);
            added.map_err(|error| BindError::Policy { name: policy.name.clone(), error })?;
            let kept = KeptPolicy { policy, origin: Origin::now(CONFIGURATION) };
            if before.is_none_or(|before| before.policy != kept.policy) {
                unstored.push(kept.clone());
            }
            all.push(kept);
        }
        for (name, error) in kept.unreadable {
            tracing::error!("policy {name} of the store is skipped: it cannot be parsed: {error}");
        }
        for kept in stored {
            let name = kept.policy.name.clone();
            match control.add_policy(kept.policy.clone(), WhenMissing::Wait) {
                Ok(()) => all.push(kept),
                Err(error) => tracing::error!("policy {name} of the store is skipped: {error}"),
            }
        }
        let gone = before.into_values().collect();
        Ok(Built { control, policies: all, unstored, gone })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tapswitch_control::{Event, UnixTime};

    use super::*;

    fn blueprint(expires: Expiry, since: Duration) -> Blueprint {
        let policy = TapPolicy::new("a", "3".parse().unwrap());
        let policies = vec![TapPolicy { expires: Some(expires), ..policy }];
        let start = Instant::now().checked_sub(since).unwrap();
        Blueprint { limits: Limits::default(), policies, start, met: BTreeSet::new() }
    }

    #[test]
    fn monitors_of_the_configuration_stay_at_their_switch() {
        let policies = ["3", "4", "0x1/5"]
            .map(|monitor: &str| TapPolicy::new(format!("to {monitor}"), monitor.parse().unwrap()));
        let start = Instant::now();
        let (limits, policies, met) = (Limits::default(), policies.to_vec(), BTreeSet::new());
        let blueprint = Blueprint { limits, policies, start, met };
        let found = [("to 3", "0x1/3"), ("to 4", "0x1/3"), ("gone", "0x1/6")];
        let found = found.map(|(name, monitor)| {
            let policy = TapPolicy::new(name, monitor.parse().unwrap()).with_defaults_said();
            KeptPolicy { policy, origin: Origin::now(CONFIGURATION) }
        });
        let kept = Kept { policies: found.into(), ..Kept::default() };
        let Built { policies: all, unstored, gone, .. } = blueprint.build(kept, Millis(0)).unwrap();
        let names = unstored.iter().map(|kept| &*kept.policy.name).collect::<Vec<_>>();
        assert_eq!(names, ["to 4", "to 0x1/5"], "the first one is stored like this");
        assert_eq!(gone.iter().map(|kept| &*kept.policy.name).collect::<Vec<_>>(), ["gone"]);
        let all = all.iter().map(|kept| (&*kept.policy.name, kept.policy.monitor.to_string()));
        let all: Vec<_> = all.collect();
        let expected = [("to 3", "0x1/3"), ("to 4", "4"), ("to 0x1/5", "0x1/5")];
        assert_eq!(all, expected.map(|(name, monitor)| (name, monitor.to_owned())));
    }

    #[test]
    fn a_policy_of_the_configuration_ends_once() {
        let (hour, day) = (Duration::from_secs(3600), Expiry::After(86_400));
        let over = [Expiry::After(1800), Expiry::At(UnixTime(1))];
        for expires in over {
            let built = blueprint(expires, hour).build(Kept::default(), Millis(0)).unwrap();
            assert_eq!(built.policies, [], "whoever leads next does not end it again");
        }
        let blueprint = blueprint(day, hour);
        let begun = blueprint.configured().remove(0).expires;
        let rest = 86_400 - 3600;
        assert!([rest, rest - 1].map(|rest| Some(Expiry::After(rest))).contains(&begun));
        // The term begins when the controller has run for a while.
        let now = Millis(200_000_000);
        let Built { mut control, .. } = blueprint.build(Kept::default(), now).unwrap();
        control.handle_clock(unix_time(), now);
        control.handle_timeout(now.plus(Millis(1000)));
        let events: Vec<_> = std::iter::from_fn(|| control.poll_event()).collect();
        let is_end = |event: &Event| matches!(event, Event::PolicyExpired { .. });
        assert!(!events.iter().any(is_end), "{events:?}");
    }
}
