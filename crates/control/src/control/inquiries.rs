//! What a holder has and somebody else claims: the holder is asked several times, and loses it when
//! it stays silent. What counts as an answer, and what moves, is the business of those who ask.

use std::collections::BTreeMap;

use crate::Millis;

/// Holders that are asked, and who claims what each has.
#[derive(Clone, Debug)]
pub(super) struct Inquiries<H, C> {
    pace: Pace,
    open: BTreeMap<H, Inquiry<C>>,
}

/// How holders are asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// For how long one that is asked is waited for.
    pub(super) silence: Millis,
    /// When it is asked again within that time.
    pub(super) again: Millis,
}

#[derive(Clone, Debug)]
struct Inquiry<C> {
    claim: C,
    until: Millis,
    again_at: Option<Millis>,
    stage: Stage,
}

/// What came of one so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The holder could not be asked yet.
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

    /// What is claimed of each holder.
    pub(super) fn claims(&self) -> impl Iterator<Item = &C> {
        self.open.values().map(|it| &it.claim)
    }

    /// When something is due.
    pub(super) fn due(&self) -> Option<Millis> {
        let due = self.open.values().flat_map(|it| [Some(it.until), it.again_at]);
        due.flatten().min()
    }

    /// Begins one, whose holder is to be asked until then.
    pub(super) fn begin(&mut self, holder: H, claim: C, until: Millis) {
        let (again_at, stage) = (None, Stage::Waiting);
        self.open.insert(holder, Inquiry { claim, until, again_at, stage });
    }

    /// What is claimed of a holder.
    pub(super) fn claim_mut(&mut self, holder: H) -> Option<&mut C> {
        Some(&mut self.open.get_mut(&holder)?.claim)
    }

    /// The holder is asked: its time begins.
    pub(super) fn note_asked(&mut self, holder: H, now: Millis) {
        let (until, again_at) = (now.plus(self.pace.silence), Some(now.plus(self.pace.again)));
        if let Some(it) = self.unanswered(holder) {
            (it.until, it.again_at, it.stage) = (until, again_at, Stage::Asked);
        }
    }

    /// The holder has answered; the first time, that refutes this claim. Others are not believed
    /// either until its time has passed.
    pub(super) fn note_answer(&mut self, holder: H, now: Millis) -> Option<&C> {
        let until = now.plus(self.pace.silence);
        let it = self.unanswered(holder)?;
        (it.until, it.again_at, it.stage) = (it.until.min(until), None, Stage::Answered);
        Some(&it.claim)
    }

    fn unanswered(&mut self, holder: H) -> Option<&mut Inquiry<C>> {
        self.open.get_mut(&holder).filter(|it| it.stage != Stage::Answered)
    }

    /// Those that have lasted long enough, and what came of them.
    pub(super) fn take_over(&mut self, now: Millis) -> Vec<(H, C, Stage)> {
        let over = self.open.iter().filter(|(_, it)| it.until <= now).map(|(holder, _)| *holder);
        let over: Vec<_> = over.collect();
        let taken =
            over.into_iter().filter_map(|holder| Some((holder, self.open.remove(&holder)?)));
        taken.map(|(holder, it)| (holder, it.claim, it.stage)).collect()
    }

    /// Holders that are to be asked again by now: a question may be lost, or its answer.
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
