//! One case: a pipeline and frames for it; what a switch makes of it, and how two differ.

use std::fmt;

use tapswitch_openflow::{Body, ErrorKind};

use crate::frames::Frame;
use crate::known::{Frames, are_alike};
use crate::pipeline::pipeline;
use crate::random::Random;
use crate::text;

#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) messages: Vec<Body>,
    pub(crate) frames: Vec<Frame>,
}

impl Case {
    pub(crate) fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let messages = pipeline(&mut random);
        let allowed = Frames::of(&messages);
        let frames = (0..FRAMES).map(|_| Frame::random(&mut random, allowed)).collect();
        Self { messages, frames }
    }
}

/// As `ovs-ofctl` would take it.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for body in &self.messages {
            match body {
                Body::FlowMod(flow_mod) => writeln!(f, "  flow {flow_mod}")?,
                Body::GroupMod(group_mod) => writeln!(f, "  group {group_mod}")?,
                other => writeln!(f, "  {other:?}")?,
            }
        }
        for Frame { port, bytes } in &self.frames {
            writeln!(f, "  frame into port {port}: {}", text::hex(bytes))?;
        }
        Ok(())
    }
}

/// What a switch made of a case.
#[derive(Default)]
pub(crate) struct Observed {
    /// Why each message was refused.
    pub(crate) errors: Vec<Option<ErrorKind>>,
    pub(crate) rules: Vec<String>,
    pub(crate) groups: Vec<String>,
    /// For each frame, what came out and what the controller was told.
    pub(crate) frames: Vec<Vec<String>>,
    /// Of rules and groups.
    pub(crate) counters: Vec<String>,
    /// What was told of rules that went.
    pub(crate) removed: Vec<String>,
}

impl Observed {
    /// Leaves out how many bytes were counted.
    pub(crate) fn forget_bytes(&mut self) {
        let lines = self.counters.iter_mut().chain(&mut self.removed);
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
    /// What came out for a frame.
    Frame,
    Counters,
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
        let frames = theirs.frames.iter().zip(&ours.frames);
        let frames = frames.map(|(theirs, ours)| (Aspect::Frame, [theirs.clone(), ours.clone()]));
        let last = [
            (Aspect::Counters, [theirs.counters.clone(), ours.counters.clone()]),
            (Aspect::Removed, [theirs.removed.clone(), ours.removed.clone()]),
        ];
        let mut all = errors.chain(rest).chain(frames).chain(last);
        let differ = |[theirs, ours]: &[Vec<String>; 2]| {
            let mut pairs = theirs.iter().zip(ours);
            theirs.len() != ours.len() || pairs.any(|(theirs, ours)| !are_alike(theirs, ours))
        };
        let (aspect, texts) = all.find(|(_, texts)| differ(texts))?;
        Some(Self { aspect, texts })
    }
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

/// Frames for each pipeline.
const FRAMES: usize = 16;
