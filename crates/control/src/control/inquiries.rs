//! Inquiries about something that a holder has and another claims: the holder is probed several
//! times, and loses it if it stays silent. The callers define what counts as an answer, and what
//! moves.

use std::collections::BTreeMap;

use crate::Millis;

/// Holders being probed, and the claimant of each.
#[derive(Clone, Debug)]
pub(super) struct Inquiries<H, C> {
    pace: Pace,
    open: BTreeMap<H, Inquiry<C>>,
}

/// Timing of probes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How long to wait for an answer.
    pub(super) silence: Millis,
    /// Interval of repetition within that time.
    pub(super) again: Millis,
}

#[derive(Clone, Debug)]
struct Inquiry<C> {
    claim: C,
    until: Millis,
    again_at: Option<Millis>,
    stage: Stage,
}

/// State of an inquiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The holder could not be probed yet.
    Waiting,
    Asked,
    Answered,
}

impl<H: Copy + Ord, C> Inquiries<H, C> {
    pub(super) const fn new(pace: Pace) -> Self {
        Self { pace, open: BTreeMap::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.open.len()
    }

    /// The claims.
    pub(super) fn claims(&self) -> impl Iterator<Item = &C> {
        self.open.values().map(|it| &it.claim)
    }

    /// When a timer is due.
    pub(super) fn due(&self) -> Option<Millis> {
        let due = self.open.values().flat_map(|it| [Some(it.until), it.again_at]);
        due.flatten().min()
    }

    /// Begins an inquiry, whose holder must be probed before `until`.
    pub(super) fn begin(&mut self, holder: H, claim: C, until: Millis) {
        let (again_at, stage) = (None, Stage::Waiting);
        self.open.insert(holder, Inquiry { claim, until, again_at, stage });
    }

    /// The claim against a holder.
    pub(super) fn claim_mut(&mut self, holder: H) -> Option<&mut C> {
        Some(&mut self.open.get_mut(&holder)?.claim)
    }

    /// The holder has been probed: its time starts.
    pub(super) fn note_asked(&mut self, holder: H, now: Millis) {
        let (until, again_at) = (now.plus(self.pace.silence), Some(now.plus(self.pace.again)));
        if let Some(it) = self.unanswered(holder) {
            (it.until, it.again_at, it.stage) = (until, again_at, Stage::Asked);
        }
    }

    /// The holder has answered; the first answer returns the refuted claim. Others are not accepted
    /// either until the time is over.
    pub(super) fn note_answer(&mut self, holder: H, now: Millis) -> Option<&C> {
        let until = now.plus(self.pace.silence);
        let it = self.unanswered(holder)?;
        (it.until, it.again_at, it.stage) = (it.until.min(until), None, Stage::Answered);
        Some(&it.claim)
    }

    fn unanswered(&mut self, holder: H) -> Option<&mut Inquiry<C>> {
        self.open.get_mut(&holder).filter(|it| it.stage != Stage::Answered)
    }

    /// Removes inquiries that are over, with their results.
    pub(super) fn take_over(&mut self, now: Millis) -> Vec<(H, C, Stage)> {
        let over = self.open.iter().filter(|(_, it)| it.until <= now).map(|(holder, _)| *holder);
        let over: Vec<_> = over.collect();
        let taken =
            over.into_iter().filter_map(|holder| Some((holder, self.open.remove(&holder)?)));
        taken.map(|(holder, it)| (holder, it.claim, it.stage)).collect()
    }

    /// Holders to be probed again now: a probe or its answer may be lost.
    pub(super) fn take_due(&mut self, now: Millis) -> Vec<H> {
        let again_at = now.plus(self.pace.again);
        let due = self.open.iter_mut().filter_map(|(holder, it)| {
            it.again_at.take_if(|at| *at <= now)?;
            it.again_at = Some(again_at).filter(|at| *at < it.until);
            Some(*holder)
        });
        due.collect()
    }
}
