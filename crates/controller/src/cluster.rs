//! Several controllers with one store: one of them leads.
//!
//! Copies cross switches, and change in two phases over all of them, so one controller plans for a
//! whole fabric (`docs/adr/0021`). Who leads holds a key in etcd, bound to a lease that it renews.
//! The revision in which the key was made is the *generation* of its term: it grows with each
//! election. It guards both things that a leader writes: switches refuse a master of an older
//! generation (`generation_id`, OpenFlow 1.3.5 §6.3.5), and etcd refuses changes of policies unless
//! the key is still that of this term. So a leader that does not know yet that it was deposed
//! changes nothing.

mod config;
mod election;
mod term;
mod view;

use serde::{Deserialize, Serialize};

pub use config::{EtcdConfig, EtcdTls, ParseEtcdError};
pub(crate) use election::{Elector, Verdict};
pub(crate) use term::Term;

use crate::RequestError;

/// What this controller is to those that share its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There are no others.
    Alone,
    /// It leads, in the term of this generation.
    Leader { generation: u64 },
    /// It follows.
    Follower {
        /// Who leads, if that is known.
        leader: Option<Leader>,
        /// Whether it led last, and can tell how things stood then.
        remembers: bool,
    },
}

/// Who leads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leader {
    /// Its name, made at random when it started.
    pub id: String,
    /// Where its REST is, if it has one.
    pub rest: Option<String>,
    /// The generation of its term; greater than that of all terms before.
    #[serde(default)]
    pub generation: u64,
}

/// What a controller is to others, as it is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterReport {
    /// What it is.
    pub role: ClusterRole,
    /// Its name among those that share its store; none when it is alone.
    pub id: Option<String>,
    /// Who leads, this one or another; none when nobody is known to, and when it is alone.
    pub leader: Option<Leader>,
}

/// What a controller is to those that share its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ClusterRole {
    /// There are no others.
    Alone,
    /// It plans for the fabric.
    Leader,
    /// It is there to lead when the leader is gone.
    Follower,
}

/// What somebody wants of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// A term: a change is made in that in which it was decided on, or not at all. The controller that
/// decided on it may have led again since, with policies that others had changed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TermId(Option<u64>);

impl TermId {
    /// The only one of a controller without others.
    pub(crate) const ALONE: Self = Self(None);

    /// The one of this generation.
    pub(crate) const fn of(generation: u64) -> Self {
        Self(Some(generation))
    }
}

impl Standing {
    /// The term that goes on. Of who follows that is none in which anything can be changed.
    pub(crate) const fn term(&self) -> TermId {
        match self {
            Self::Alone => TermId::ALONE,
            Self::Leader { generation } => TermId::of(*generation),
            Self::Follower { .. } => TermId::of(0),
        }
    }

    /// Why what is asked for is not to be had here.
    pub(crate) fn check(&self, access: Access) -> Result<(), RequestError> {
        match self {
            Self::Alone | Self::Leader { .. } => Ok(()),
            Self::Follower { leader: Some(leader), .. } => {
                Err(RequestError::NotLeader { leader: leader.clone() })
            }
            Self::Follower { remembers: true, .. } if access == Access::Read => Ok(()),
            Self::Follower { leader: None, .. } => Err(RequestError::NoLeader),
        }
    }

    /// How it is told of; `me` is how this controller is known to the others.
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

/// The keys in etcd, all behind one prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// Who leads; its value is a [`Leader`].
    pub(crate) fn leader(&self) -> String {
        format!("{}/leader", self.prefix)
    }

    /// How many switches are connected to the leader; it goes with the leader's key.
    pub(crate) fn seen(&self) -> String {
        format!("{}/leader/switches", self.prefix)
    }

    /// What is behind both.
    pub(crate) fn end_of_leader(&self) -> String {
        format!("{}/leader0", self.prefix)
    }

    /// Who the controllers are to switches, all together.
    pub(crate) fn identity(&self) -> String {
        format!("{}/identity", self.prefix)
    }

    pub(crate) fn policy(&self, name: &str) -> String {
        format!("{}{name}", self.policies().0)
    }

    /// The range of all policies. `0` is the character behind `/`.
    pub(crate) fn policies(&self) -> (String, String) {
        (format!("{}/policies/", self.prefix), format!("{}/policies0", self.prefix))
    }

    /// The last record of the audit log: what the next one goes on from.
    pub(crate) fn head(&self) -> String {
        format!("{}/head", self.prefix)
    }

    /// A record of the audit log, in the order of numbers.
    pub(crate) fn record(&self, seq: u64) -> String {
        format!("{}/audit/{seq:020}", self.prefix)
    }

    /// What is behind all records.
    pub(crate) fn end_of_records(&self) -> String {
        format!("{}/audit0", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader() -> Leader {
        Leader { id: "b".to_owned(), rest: Some("http://b:8653".to_owned()), generation: 7 }
    }

    #[test]
    fn a_follower_names_who_leads() {
        let follower = Standing::Follower { leader: Some(leader()), remembers: true };
        for access in [Access::Read, Access::Write] {
            let refusal = follower.check(access).unwrap_err().to_string();
            assert!(refusal.contains("http://b:8653"), "{refusal}");
        }
        assert_eq!(follower.report(None).leader, Some(leader()));
    }

    #[test]
    fn who_led_last_can_be_asked_but_changes_nothing() {
        let cut_off = Standing::Follower { leader: None, remembers: true };
        assert_eq!(cut_off.check(Access::Read), Ok(()));
        assert_eq!(cut_off.check(Access::Write), Err(RequestError::NoLeader));
        let never = Standing::Follower { leader: None, remembers: false };
        assert_eq!(never.check(Access::Read), Err(RequestError::NoLeader));
    }

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
