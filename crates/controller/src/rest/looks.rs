//! Audit records of watching packets: one for a stream, even if it breaks and reconnects every
//! second.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tapswitch_control::TapPolicy;

use crate::Caller;

/// Recent starts of streams.
#[derive(Debug, Default)]
pub(super) struct Looks(Mutex<Vec<Look>>);

#[derive(Debug)]
struct Look {
    caller: Caller,
    /// The policy at that time, as it may be replaced by one with other traffic.
    policy: TapPolicy,
    since: Instant,
}

impl Looks {
    /// Records the start of a stream, unless it was recorded within the last minute. It counts as
    /// recorded only once the record is written; concurrent starts write their own. Rather one
    /// record too many than one missing.
    pub(super) async fn begin<E>(
        &self,
        (caller, policy): (&Caller, &TapPolicy),
        now: Instant,
        record: impl Future<Output = Result<(), E>>,
    ) -> Result<(), E> {
        if !self.is_on_record(caller, policy, now) {
            record.await?;
            self.note(Look { caller: caller.clone(), policy: policy.clone(), since: now });
        }
        Ok(())
    }

    fn is_on_record(&self, caller: &Caller, policy: &TapPolicy, now: Instant) -> bool {
        let mut looks = self.lock();
        looks.retain(|look| now.saturating_duration_since(look.since) < ON_RECORD);
        looks.iter().any(|look| look.caller == *caller && look.policy == *policy)
    }

    fn note(&self, look: Look) {
        let mut looks = self.lock();
        if looks.len() >= MAX_LOOKS {
            looks.remove(0);
        }
        looks.push(look);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Look>> {
        // The content is consistent whenever the lock is free.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream from the same address to the same policy within this time is not recorded again.
const ON_RECORD: Duration = Duration::from_secs(60);
const MAX_LOOKS: usize = 512;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Whether the start of a stream is recorded.
    async fn begin(looks: &Looks, caller: &Caller, policy: &TapPolicy, now: Instant) -> bool {
        let mut is_recorded = false;
        let record = async {
            is_recorded = true;
            Ok::<_, Infallible>(())
        };
        looks.begin((caller, policy), now, record).await.unwrap();
        is_recorded
    }

    #[tokio::test]
    async fn what_could_not_be_recorded_is_not_seen_and_recorded_next_time() {
        let looks = Looks::default();
        let (ann, web) = (Caller::unix("ann"), TapPolicy::new("web", "3".parse().unwrap()));
        let now = Instant::now();
        for _ in 0..2 {
            let failed = looks.begin((&ann, &web), now, async { Err("no room") }).await;
            assert_eq!(failed, Err("no room"));
        }
        assert!(begin(&looks, &ann, &web, now).await, "it has room again");
        assert!(!begin(&looks, &ann, &web, now).await);
    }

    #[tokio::test]
    async fn a_stream_that_breaks_again_and_again_is_one_for_a_minute() {
        let looks = Looks::default();
        let (ann, web) = (Caller::unix("ann"), TapPolicy::new("web", "3".parse().unwrap()));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut begun = 0;
        for second in 0..120 {
            begun += usize::from(begin(&looks, &ann, &web, at(second)).await);
        }
        assert_eq!(begun, 2, "one each minute");
        assert!(begin(&looks, &Caller::unix("bob"), &web, at(119)).await, "somebody else");
        let there = Caller { from: "10.0.0.1".to_owned(), ..ann.clone() };
        assert!(begin(&looks, &there, &web, at(119)).await, "from elsewhere");
        let other = TapPolicy::new("web", "4".parse().unwrap());
        assert!(begin(&looks, &ann, &other, at(119)).await, "another policy of that name");
    }

    #[tokio::test]
    async fn there_are_so_many_only() {
        let looks = Looks::default();
        let web = TapPolicy::new("web", "3".parse().unwrap());
        let now = Instant::now();
        for number in 0..=MAX_LOOKS {
            assert!(begin(&looks, &Caller::unix(&number.to_string()), &web, now).await);
        }
        assert_eq!(looks.0.lock().unwrap().len(), MAX_LOOKS);
    }
}
