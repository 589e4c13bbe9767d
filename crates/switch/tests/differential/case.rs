//! A test case: a pipeline with frames for it, a switch's behaviour, and how two switches differ.

use std::fmt;

use tapswitch_openflow::{Body, ErrorKind};

use crate::filters::Filter;
use crate::known::{self, Frames, are_alike};
use crate::pipeline::{Made, pipeline};
use crate::random::Random;
use crate::steps::{self, Step, weave};
use crate::text;

#[derive(Clone)]
pub(crate) struct Case {
    /// The messages that set up the pipeline.
    pub(crate) messages: Vec<Body>,
    /// The events after that.
    pub(crate) steps: Vec<Step>,
    /// The statistics queries at the end.
    pub(crate) filters: Vec<Filter>,
}

impl Case {
    pub(crate) fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let Made { mut messages, mut meanwhile } = pipeline(&mut random);
        known::without_interrupts(&mut messages, &mut meanwhile);
        let all: Vec<_> = messages.iter().chain(&meanwhile).cloned().collect();
        let steps = weave(&mut random, Frames::of(&all), meanwhile);
        let filters = (0..FILTERS).map(|_| Filter::random(&mut random)).collect();
        Self { messages, steps, filters }
    }

    /// The controller's messages in the case.
    pub(crate) fn bodies(&self) -> Vec<Body> {
        let later = self.steps.iter().filter_map(Step::body);
        self.messages.iter().cloned().chain(later).collect()
    }
}

/// In the syntax of `ovs-ofctl`.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for body in &self.messages {
            writeln!(f, "  {}", steps::body(body))?;
        }
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step}"))?;
        self.filters.iter().try_for_each(|filter| writeln!(f, "  ask {filter:?}"))
    }
}

/// A switch's behaviour in a case.
#[derive(Default)]
pub(crate) struct Observed {
    /// The refusal of each message, if any.
    pub(crate) errors: Vec<Option<ErrorKind>>,
    pub(crate) rules: Vec<String>,
    pub(crate) groups: Vec<String>,
    /// For each step, the frames sent and the messages to the controller.
    pub(crate) steps: Vec<Vec<String>>,
    /// For each filter, the selected rules and their counters.
    pub(crate) answers: Vec<Vec<String>>,
    /// Counters of rules and groups.
    pub(crate) counters: Vec<String>,
    /// Flow-removed messages.
    pub(crate) removed: Vec<String>,
}

impl Observed {
    /// Removes all counts.
    pub(crate) fn forget_counts(&mut self) {
        self.counters.clear();
        self.answers.clear();
        let removed = self.removed.drain(..);
        let uncounted = |line: String| line.split_once(": ").map(|(_, rest)| rest.to_owned());
        self.removed = removed.filter_map(uncounted).collect();
        self.removed.sort();
    }

    /// Removes the counts of groups.
    pub(crate) fn forget_groups(&mut self) {
        self.counters.retain(|line| !line.starts_with("group "));
    }

    /// Removes the counts of ports.
    pub(crate) fn forget_ports(&mut self) {
        self.counters.retain(|line| !line.starts_with("port "));
    }

    /// Removes the byte counts.
    pub(crate) fn forget_bytes(&mut self) {
        let answers = self.answers.iter_mut().flatten();
        let lines = self.counters.iter_mut().chain(&mut self.removed).chain(answers);
        lines.for_each(|line| *line = text::without_bytes(line));
    }
}

/// The aspect in which two switches differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aspect {
    /// The refusal of a message.
    Refusal,
    Rules,
    Groups,
    /// The result of a step.
    Step,
    Counters,
    /// The result of a filter.
    Answer,
    Removed,
}

/// A difference, with the lines that only one of the two switches has.
pub(crate) struct Difference {
    pub(crate) aspect: Aspect,
    pub(crate) texts: [Vec<String>; 2],
}

impl Difference {
    /// Whether it probably has the same cause.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let is_refusal = self.aspect == Aspect::Refusal;
        self.aspect == other.aspect && (!is_refusal || self.texts == other.texts)
    }

    /// The first difference.
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

/// Whether both behaved the same, except for known differences.
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

/// Number of filters in each case.
const FILTERS: usize = 2;
