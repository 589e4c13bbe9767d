//! Several controllers with one store: one of them leads. Here are the roles, and the keys of the
//! store; how they elect a leader is in `crate::election`.
//!
//! Copies cross switches, and changes take two phases over all of them, so one controller plans for
//! a whole fabric (`docs/adr/0021`). The leader holds a key in etcd, bound to a lease that it
//! renews. The revision that created the key is the *generation* of its term, which increases with
//! each election. It guards both outputs of a leader: switches refuse a master with an older
//! generation (`generation_id`, OpenFlow 1.3.5 §6.3.7), and etcd refuses changes of policies unless
//! the key is still that of the term. So a leader that does not know yet that it was deposed
//! changes nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tapswitch_openflow::DatapathId;

use crate::store::{key_of, switch_of};

/// Role of this controller among those that share its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There are no others.
    Alone,
    /// It leads in the term of this generation.
    Leader { generation: u64 },
    /// It follows.
    Follower {
        /// The leader, if known.
        leader: Option<Leader>,
        /// Whether it led last, and can report the state at that time.
        remembers: bool,
    },
}

/// A leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Its random name, chosen at its start.
    pub id: String,
    /// URL of its REST, if enabled.
    pub rest: Option<String>,
    /// Where other controllers connect for switches that it does not have itself, as
    /// `tcp:ADDRESS:PORT` or `tls:ADDRESS:PORT`; `None` if none was given and it listens on all
    /// addresses.
    #[serde(default)]
    pub openflow: Option<String>,
    /// Generation of its term; greater than that of all earlier ones.
    #[serde(default)]
    pub generation: u64,
}

/// Report on a controller's role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterReport {
    /// Its role.
    pub role: ClusterRole,
    /// Its name among the controllers that share its store; `None` if it is alone.
    pub id: Option<String>,
    /// The leader, possibly this one; `None` if none is known or it is alone.
    pub leader: Option<Leader>,
}

/// Role of a controller among those that share its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ClusterRole {
    /// There are no others.
    Alone,
    /// Controls the fabric.
    Leader,
    /// Takes over when the leader is gone.
    Follower,
}

/// Kind of access to a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Id of a term: a change is made in the term in which it was decided, or not at all. The
/// controller may lead again with policies that others have changed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TermId(Option<u64>);

impl TermId {
    /// The only term of a single controller.
    pub(crate) const ALONE: Self = Self(None);

    /// The term of this generation.
    pub(crate) const fn of(generation: u64) -> Self {
        Self(Some(generation))
    }

    /// Its generation; zero without one.
    pub(crate) const fn generation(self) -> u64 {
        match self.0 {
            Some(generation) => generation,
            None => 0,
        }
    }
}

impl Standing {
    /// The current term. A follower has one in which nothing can be changed.
    pub(crate) const fn term(&self) -> TermId {
        match self {
            Self::Alone => TermId::ALONE,
            Self::Leader { generation } => TermId::of(*generation),
            Self::Follower { .. } => TermId::of(0),
        }
    }

    /// Report on the role; `me` is this controller's identity for the others.
    pub(crate) fn report(&self, me: Option<&Leader>) -> ClusterReport {
        let (role, leader) = match self {
            Self::Alone => (ClusterRole::Alone, None),
            Self::Leader { generation } => {
                let me = me.cloned();
                let leader = me.map(|me| Leader { generation: *generation, ..me });
                (ClusterRole::Leader, leader)
            }
            Self::Follower { leader, .. } => (ClusterRole::Follower, leader.clone()),
        };
        ClusterReport { role, id: me.map(|me| me.id.clone()), leader }
    }
}

/// The switches connected to a leader, for followers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// Generation of the leader's term.
    pub(crate) generation: u64,
    /// Their names in etcd.
    ids: Vec<String>,
}

impl Listed {
    pub(crate) fn new(generation: u64, switches: &BTreeSet<DatapathId>) -> Self {
        Self { generation, ids: switches.iter().map(|switch| key_of(*switch)).collect() }
    }

    pub(crate) fn switches(&self) -> BTreeSet<DatapathId> {
        self.ids.iter().filter_map(|id| switch_of(id)).collect()
    }
}

/// Keys in etcd, with a common prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Key of the leader; its value is a [`Leader`].
    pub(crate) fn leader(&self) -> String {
        format!("{}/leader", self.prefix)
    }

    /// Number of switches connected to the leader; deleted with the leader's key.
    pub(crate) fn seen(&self) -> String {
        format!("{}/leader/switches", self.prefix)
    }

    /// List of the switches connected to the leader, a [`Listed`]; deleted with the leader's key.
    pub(crate) fn listed(&self) -> String {
        format!("{}/connected", self.prefix)
    }

    /// Claim of the follower that relays this switch, bound to its lease; its value is the
    /// follower's name.
    pub(crate) fn relay(&self, id: &str) -> String {
        format!("{}/relays/{id}", self.prefix)
    }

    /// End of the range of the leader and the number.
    pub(crate) fn end_of_leader(&self) -> String {
        format!("{}/leader0", self.prefix)
    }

    /// Common identity of the controllers for switches.
    pub(crate) fn identity(&self) -> String {
        format!("{}/identity", self.prefix)
    }

    pub(crate) fn policy(&self, name: &str) -> String {
        format!("{}{name}", self.policies().0)
    }

    /// Range of all policies. `0` is the character after `/`.
    pub(crate) fn policies(&self) -> (String, String) {
        (format!("{}/policies/", self.prefix), format!("{}/policies0", self.prefix))
    }

    /// A switch that connected to a leader, by its datapath id; its value is a
    /// [`Met`](crate::store::Met).
    pub(crate) fn switch(&self, id: &str) -> String {
        format!("{}{id}", self.switches().0)
    }

    /// Range of all switches.
    pub(crate) fn switches(&self) -> (String, String) {
        (format!("{}/switches/", self.prefix), format!("{}/switches0", self.prefix))
    }

    /// State of the audit log after its last record.
    pub(crate) fn head(&self) -> String {
        format!("{}/head", self.prefix)
    }

    /// An audit record; keys sort by number.
    pub(crate) fn record(&self, seq: u64) -> String {
        format!("{}/audit/{seq:020}", self.prefix)
    }

    /// End of the range of all records.
    pub(crate) fn end_of_records(&self) -> String {
        format!("{}/audit0", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_policies_stay_in_their_range() {
        let keys = Keys::new("/tapswitch");
        let (start, end) = keys.policies();
        for name in ["a", "\u{10ffff}", "a/b", "0"] {
            let key = keys.policy(name);
            assert!(start < key && key < end, "{key}");
        }
        assert!(keys.record(9) < keys.record(10));
        assert!(keys.record(u64::MAX) < keys.end_of_records());
    }
}
