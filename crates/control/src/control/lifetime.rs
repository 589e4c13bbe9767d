//! Policies that end by themselves, and those that rest by a schedule.
//!
//! The time of day is what the caller says ([`Control::handle_clock`]); spans are measured by the
//! monotonic time, so that a clock that jumps does not stretch them. A policy that ends at a time
//! of day, or has a schedule, follows the clock wherever it jumps. While nobody told the time of
//! day, schedules rest and times are not reached.

use super::Control;
use super::deadline::{Deadline, Rest};
use super::roster::PolicyEntry;
use crate::overlap::PolicyId;
use crate::{Event, Expiry, Millis, PolicyError, TapPolicy, UnixTime};

impl Control {
    /// Tells the time of day. Do so at the start, and again now and then: before policies are added
    /// and when [`Control::handle_timeout`] is called.
    pub fn handle_clock(&mut self, time: UnixTime, now: Millis) {
        self.now = now;
        let ahead = i128::from(time.0) - i128::from(now.0);
        let has_jumped = self.clock.ahead.is_none_or(|was| was.abs_diff(ahead) >= JUMP_MS);
        // Smaller differences are those of reading two clocks one after the other.
        if has_jumped {
            self.clock.ahead = Some(ahead);
            self.clock.due = Some(now);
            self.handle_lifetimes();
        }
    }

    /// Ends what is over, and wakes or rests what its schedule says.
    pub(super) fn handle_lifetimes(&mut self) {
        let now = self.now;
        if self.clock.due.is_none_or(|due| due > now) {
            return;
        }
        self.clock.due = None;
        let (mut over, mut changed, mut news) = (Vec::new(), Vec::new(), Vec::new());
        for entry in self.policies.iter_mut() {
            if self.clock.is_over(entry, now) {
                over.push(entry.id);
                continue;
            }
            self.clock.name_end(entry, now);
            let rests_until = self.clock.rest(&entry.policy, now);
            let has_changed = rests_until.is_some() != entry.rests_until.is_some();
            changed.extend(has_changed.then_some(entry.id));
            news.extend((rests_until != entry.rests_until).then_some(entry.id));
            entry.rests_until = rests_until;
        }
        self.policies.dirty.extend(changed);
        self.policies.news.extend(news);
        over.into_iter().for_each(|id| self.expire(id));
        for entry in self.policies.iter() {
            self.clock.watch(entry, now);
        }
    }

    /// A policy is over. One that is to take its place stays, and has the name from now on; when it
    /// is that one which is over, the other goes on.
    fn expire(&mut self, id: PolicyId) {
        if let Some(old) = self.policies.heir_of(id) {
            if let Some(name) = self.drop_heir_of(old) {
                let reason = OVER_BEFORE.to_owned();
                self.events.push_back(Event::PolicyNotReplaced { name, reason });
            }
        } else if let Some(entry) = self.policies.remove(id) {
            let (name, number) = (entry.policy.name.clone(), id.0);
            self.events.push_back(Event::PolicyExpired { name, number });
            self.retire(entry, Some(Event::PolicyDeleted));
        }
    }
}

/// What is known of the time of day.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// Milliseconds by which it is ahead of the monotonic time.
    ahead: Option<i128>,
    /// When something ends, begins or pauses next.
    due: Option<Millis>,
}

impl Clock {
    /// When [`Control::handle_timeout`] is due for a policy's sake.
    pub(super) const fn due(&self) -> Option<Millis> {
        self.due
    }

    /// Begins a policy's life: from here on its report names the time at which it ends.
    pub(super) fn start(&self, entry: &mut PolicyEntry, now: Millis) -> Result<(), PolicyError> {
        let time = self.time(now);
        match entry.policy.expires {
            Some(Expiry::At(at)) if time.is_some_and(|time| at <= time) => {
                return Err(PolicyError::Past { at: Expiry::At(at) });
            }
            Some(Expiry::At(at)) => entry.ends_at = Some(Deadline::Time(at)),
            Some(after @ Expiry::After(seconds)) => {
                let span = Millis(seconds.saturating_mul(1000));
                entry.ends_at = Some(Deadline::Span(now.plus(span)));
                entry.policy.expires =
                    Some(time.map_or(after, |time| Expiry::At(after.time(time))));
            }
            None => {}
        }
        entry.rests_until = self.rest(&entry.policy, now);
        Ok(())
    }

    /// Has the policy say when it ends, as soon as that is known.
    fn name_end(&self, entry: &mut PolicyEntry, now: Millis) {
        if let (Some(Expiry::After(_)), Some(Deadline::Span(at))) =
            (entry.policy.expires, entry.ends_at)
        {
            let rest = Expiry::After(at.since(now).0.div_ceil(1000));
            let end = self.time(now).map(|time| Expiry::At(rest.time(time)));
            entry.policy.expires = end.or(entry.policy.expires);
        }
    }

    /// Sees to it that a policy is looked at in time.
    pub(super) fn watch(&mut self, entry: &PolicyEntry, now: Millis) {
        let end = entry.ends_at.and_then(|deadline| match deadline {
            Deadline::Span(at) => Some(at),
            Deadline::Time(time) => self.monotonic(time, now),
        });
        let schedule = entry.policy.schedule.as_ref();
        let change = self.time(now).and_then(|time| schedule?.next_change(time));
        let change = change.and_then(|time| self.monotonic(time, now));
        self.due = self.due.into_iter().chain(end).chain(change).min();
    }

    fn is_over(&self, entry: &PolicyEntry, now: Millis) -> bool {
        match entry.ends_at {
            None => false,
            Some(Deadline::Span(at)) => at <= now,
            Some(Deadline::Time(at)) => self.time(now).is_some_and(|time| at <= time),
        }
    }

    /// What a policy waits for now that has a schedule, if it does.
    pub(super) fn rest(&self, policy: &TapPolicy, now: Millis) -> Option<Rest> {
        let schedule = policy.schedule.as_ref()?;
        match self.time(now) {
            None => Some(Rest::Unknown),
            Some(time) if schedule.is_open(time) => None,
            Some(time) => Some(Rest::Until(schedule.next_change(time))),
        }
    }

    /// The time of day.
    fn time(&self, now: Millis) -> Option<UnixTime> {
        let time = self.ahead? + i128::from(now.0);
        Some(UnixTime(u64::try_from(time).unwrap_or(0)))
    }

    /// When it will be this time of day.
    fn monotonic(&self, time: UnixTime, now: Millis) -> Option<Millis> {
        let at = i128::from(time.0) - self.ahead?;
        Some(Millis(u64::try_from(at).unwrap_or(0)).max(now))
    }
}

const OVER_BEFORE: &str = "it expired before it took effect; set a later expiry";
/// Differences of clocks that count as a jump.
const JUMP_MS: u128 = 500;
