//! Expiry and schedules of policies.
//!
//! The caller sets the time of day ([`Control::handle_clock`]); durations are measured in monotonic
//! time, so that clock jumps do not affect them. Expiry at a time of day, and schedules, follow the
//! clock wherever it jumps. While the time of day is unknown, scheduled policies pause and no time
//! of day is reached.

use super::Control;
use super::deadline::{Deadline, Rest};
use super::roster::PolicyEntry;
use crate::overlap::PolicyId;
use crate::{Event, Expiry, Millis, PolicyError, TapPolicy, UnixTime};

impl Control {
    /// Sets the time of day. Call it at the start and repeatedly: before policies are added, and
    /// with [`Control::handle_timeout`].
    pub fn handle_clock(&mut self, time: UnixTime, now: Millis) {
        self.now = now;
        let ahead = i128::from(time.0) - i128::from(now.0);
        let has_jumped = self.clock.ahead.is_none_or(|was| was.abs_diff(ahead) >= JUMP_MS);
        // Smaller differences result from reading two clocks one after the other.
        if has_jumped {
            self.clock.ahead = Some(ahead);
            self.clock.due = Some(now);
            self.handle_lifetimes();
        }
    }

    /// Ends expired policies, and starts or pauses scheduled ones.
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

    /// A policy has expired. A policy that is to replace it stays, and gets its name; if the
    /// replacement expires, the old policy continues.
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

/// Relation of the time of day to monotonic time.
#[derive(Clone, Debug, Default)]
pub(super) struct Clock {
    /// Milliseconds by which the time of day is ahead; `None` if it is unknown.
    ahead: Option<i128>,
    /// When the next policy ends, starts or pauses.
    due: Option<Millis>,
}

impl Clock {
    /// When [`Control::handle_timeout`] is due for a policy.
    pub(super) const fn due(&self) -> Option<Millis> {
        self.due
    }

    /// Starts a policy's life: from now on its report has an absolute end time.
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

    /// Sets the end time in the policy's report once it is known.
    fn name_end(&self, entry: &mut PolicyEntry, now: Millis) {
        if let (Some(Expiry::After(_)), Some(Deadline::Span(at))) =
            (entry.policy.expires, entry.ends_at)
        {
            let rest = Expiry::After(at.since(now).0.div_ceil(1000));
            let end = self.time(now).map(|time| Expiry::At(rest.time(time)));
            entry.policy.expires = end.or(entry.policy.expires);
        }
    }

    /// Schedules the next change of a policy.
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

    /// What a scheduled policy waits for, if it pauses now.
    pub(super) fn rest(&self, policy: &TapPolicy, now: Millis) -> Option<Rest> {
        let schedule = policy.schedule.as_ref()?;
        match self.time(now) {
            None => Some(Rest::Unknown),
            Some(time) if schedule.is_open(time) => None,
            Some(time) => Some(Rest::Until(schedule.next_change(time))),
        }
    }

    /// Time of day.
    fn time(&self, now: Millis) -> Option<UnixTime> {
        let time = self.ahead? + i128::from(now.0);
        Some(UnixTime(u64::try_from(time).unwrap_or(0)))
    }

    /// Monotonic time for a time of day.
    fn monotonic(&self, time: UnixTime, now: Millis) -> Option<Millis> {
        let at = i128::from(time.0) - self.ahead?;
        Some(Millis(u64::try_from(at).unwrap_or(0)).max(now))
    }
}

const OVER_BEFORE: &str = "it expired before it took effect; set a later expiry";
/// Clock difference that counts as a jump.
const JUMP_MS: u128 = 500;
