//! One case: a pipeline and frames for it; what a switch makes of it, and how two differ.

use std::fmt;

use tapswitch_openflow::{Body, ErrorKind};

use crate::filters::Filter;
use crate::known::{Frames, are_alike};
use crate::pipeline::{Made, pipeline};
use crate::random::Random;
use crate::steps::{self, Step, weave};
use crate::text;

#[derive(Clone)]
pub(crate) struct Case {
    /// What makes the pipeline.
    pub(crate) messages: Vec<Body>,
    /// What happens then.
    pub(crate) steps: Vec<Step>,
    /// What is asked for in the end.
    pub(crate) filters: Vec<Filter>,
}

impl Case {
    pub(crate) fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let Made { messages, meanwhile } = pipeline(&mut random);
        let all: Vec<_> = messages.iter().chain(&meanwhile).cloned().collect();
        let steps = weave(&mut random, Frames::of(&all), meanwhile);
        let filters = (0..FILTERS).map(|_| Filter::random(&mut random)).collect();
        Self { messages, steps, filters }
    }

    /// The messages of a controller's in it.
    pub(crate) fn bodies(&self) -> Vec<Body> {
        let later = self.steps.iter().filter_map(Step::body);
        self.messages.iter().cloned().chain(later).collect()
    }
}

/// As `ovs-ofctl` would take it.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for body in &self.messages {
            writeln!(f, "  {}", steps::body(body))?;
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step}"))?;
        self.filters.iter().try_for_each(|filter| writeln!(f, "  ask {filter:?}"))
    }
}

/// What a switch made of a case.
#[derive(Default)]
pub(crate) struct Observed {
    /// Why each message was refused.
    pub(crate) errors: Vec<Option<ErrorKind>>,
    pub(crate) rules: Vec<String>,
    pub(crate) groups: Vec<String>,
    /// For each step, what came out and what the controller was told.
    pub(crate) steps: Vec<Vec<String>>,
    /// For each filter, the rules that it leaves and what they counted.
    pub(crate) answers: Vec<Vec<String>>,
    /// Of rules and groups.
    pub(crate) counters: Vec<String>,
    /// What was told of rules that went.
    pub(crate) removed: Vec<String>,
}

impl Observed {
    /// Leaves out what was counted.
    pub(crate) fn forget_counts(&mut self) {
        self.counters.clear();
        self.answers.clear();
        let removed = self.removed.drain(..);
        let uncounted = |line: String| line.split_once(": ").map(|(_, rest)| rest.to_owned());
        self.removed = removed.filter_map(uncounted).collect();
        self.removed.sort();
    }

    /// Leaves out what groups counted.
    pub(crate) fn forget_groups(&mut self) {
        self.counters.retain(|line| !line.starts_with("group "));
    }

    /// Leaves out what ports counted.
    pub(crate) fn forget_ports(&mut self) {
        self.counters.retain(|line| !line.starts_with("port "));
    }

    /// Leaves out how many bytes were counted.
    pub(crate) fn forget_bytes(&mut self) {
        let answers = self.answers.iter_mut().flatten();
        let lines = self.counters.iter_mut().chain(&mut self.removed).chain(answers);
        lines.for_each(|line| *line = text::without_bytes(line));
    }
}

/// What two switches made of a case that is not the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aspect {
    /// Why a message was refused.
    Refusal,
    Rules,
    Groups,
    /// What came of a step.
    Step,
    Counters,
    /// What a filter leaves.
    Answer,
    Removed,
}

/// A difference, with what either did and the other did not.
pub(crate) struct Difference {
    pub(crate) aspect: Aspect,
    pub(crate) texts: [Vec<String>; 2],
}

impl Difference {
    /// Whether it seems to have the same cause.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let is_refusal = self.aspect == Aspect::Refusal;
        self.aspect == other.aspect && (!is_refusal || self.texts == other.texts)
    }

    /// The first one.
    pub(crate) fn between([theirs, ours]: &[Observed; 2]) -> Option<Self> {
        let error = |of: &Observed, at: usize| vec![format!("{:?}", of.errors[at])];
        let errors = (0..theirs.errors.len())
            .map(|at| (Aspect::Refusal, [error(theirs, at), error(ours, at)]));
        let rest = [
            (Aspect::Rules, [theirs.rules.clone(), ours.rules.clone()]),
            (Aspect::Groups, [theirs.groups.clone(), ours.groups.clone()]),
        ];
        let pairs = |[theirs, ours]: [&Vec<Vec<String>>; 2]| {
            theirs.iter().cloned().zip(ours.iter().cloned()).collect::<Vec<_>>()
        };
        let steps = pairs([&theirs.steps, &ours.steps]).into_iter();
        let steps = steps.map(|(theirs, ours)| (Aspect::Step, [theirs, ours]));
        let answers = pairs([&theirs.answers, &ours.answers]).into_iter();
        let answers = answers.map(|(theirs, ours)| (Aspect::Answer, [theirs, ours]));
        let last = [
            (Aspect::Counters, [theirs.counters.clone(), ours.counters.clone()]),
            (Aspect::Removed, [theirs.removed.clone(), ours.removed.clone()]),
        ];
        let mut all = errors.chain(rest).chain(steps).chain(last).chain(answers);
        let (aspect, texts) = all.find(|(_, [theirs, ours])| !lines_are_alike(theirs, ours))?;
        Some(Self { aspect, texts })
    }
}

/// Whether both did the same, but for what is known.
pub(crate) fn lines_are_alike(theirs: &[String], ours: &[String]) -> bool {
    let mut pairs = theirs.iter().zip(ours);
    theirs.len() == ours.len() && pairs.all(|(theirs, ours)| are_alike(theirs, ours))
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [theirs, ours] = &self.texts;
        writeln!(f, "{:?}:", self.aspect)?;
        for (name, own, other) in [("Open vSwitch", theirs, ours), ("tapswitch", ours, theirs)] {
            writeln!(f, "  {name}:")?;
            let is_order = own.len() == other.len() && own.iter().all(|line| other.contains(line));
            let alone = own.iter().filter(|line| is_order || !other.contains(line));
            alone.into_iter().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        Ok(())
    }
}

/// What is asked for in the end of each case.
const FILTERS: usize = 2;
