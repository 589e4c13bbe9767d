//! Who looks at packets, for the audit log: one record for a stream, also when it breaks and comes
//! again each second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tapswitch_control::TapPolicy;

use crate::Caller;

/// Those who began to look a short while ago.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<Vec<Look>>);

#[derive(Debug)]
struct Look {
    caller: Caller,
    /// As it was: in the place of which another one may come, with other traffic.
    policy: TapPolicy,
    since: Instant,
}

impl Looks {
    /// Notes that somebody begins to look. False when that is on record since less than a minute.
    pub(super) fn begin(&self, caller: &Caller, policy: &TapPolicy, now: Instant) -> bool {
        // What is in there is whole whenever the lock is free.
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        looks.retain(|look| now.saturating_duration_since(look.since) < ON_RECORD);
        if looks.iter().any(|look| look.caller == *caller && look.policy == *policy) {
            return false;
        }
        // Rather a record too many than one too few.
        if looks.len() >= MAX_LOOKS {
            looks.remove(0);
        }
        looks.push(Look { caller: caller.clone(), policy: policy.clone(), since: now });
        true
    }
}

/// Who comes back within this time, from the same address to the same policy, is on record.
const ON_RECORD: Duration = Duration::from_secs(60);
const MAX_LOOKS: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_breaks_again_and_again_is_one_for_a_minute() {
        let looks = Looks::default();
        let (ann, web) = (Caller::unix("ann"), TapPolicy::new("web", "3".parse().unwrap()));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let begun = (0..120).filter(|&second| looks.begin(&ann, &web, at(second))).count();
        assert_eq!(begun, 2, "one each minute");
        assert!(looks.begin(&Caller::unix("bob"), &web, at(119)), "somebody else");
        let there = Caller { from: "10.0.0.1".to_owned(), ..ann.clone() };
        assert!(looks.begin(&there, &web, at(119)), "from elsewhere");
        let other = TapPolicy::new("web", "4".parse().unwrap());
        assert!(looks.begin(&ann, &other, at(119)), "another policy of that name");
    }

    #[test]
    fn there_are_so_many_only() {
        let looks = Looks::default();
        let web = TapPolicy::new("web", "3".parse().unwrap());
        let now = Instant::now();
        for number in 0..=MAX_LOOKS {
            assert!(looks.begin(&Caller::unix(&number.to_string()), &web, now));
        }
        assert_eq!(looks.0.lock().unwrap().len(), MAX_LOOKS);
    }
}
