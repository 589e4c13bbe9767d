//! The measurements: the treatment of frames, and their size.

use clap::ValueEnum;
use serde::Serialize;

use super::Failure;
use super::layout::Layout;
use super::switches::{Candidate, Switch};

/// Treatment of frames between two guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Task {
    /// Forwarding by one rule that matches IP addresses.
    Plain,
    /// A group of type ALL: to the receiver and to the monitor.
    All,
    /// Open vSwitch's mirrors, in addition to the plain rule. This switch has groups instead, which
    /// are what compares to it.
    Mirror,
}

/// One measurement at a size: candidate and task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) candidate: Candidate,
    pub(super) task: Task,
}

impl Task {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain forwarding",
            Self::All => "group ALL",
            Self::Mirror => "mirror",
        }
    }

    /// Goal of the ratio to Open vSwitch.
    pub(super) fn goal(self) -> f64 {
        match self {
            Self::Plain => 1.2,
            Self::All | Self::Mirror => 2.0,
        }
    }

    pub(super) fn copies(self) -> u64 {
        u64::from(self != Self::Plain)
    }

    /// Whether a candidate supports it.
    pub(super) fn is_for(self, candidate: Candidate) -> bool {
        match self {
            Self::Plain => true,
            Self::All => candidate != Candidate::Bare,
            Self::Mirror => candidate == Candidate::OpenVswitch,
        }
    }
}

impl Entry {
    /// Configures the switch, from the next frame on.
    pub(super) async fn prepare(&self, switch: &Switch, layout: Layout) -> Result<(), Failure> {
        if self.candidate == Candidate::Bare {
            return Ok(());
        }
        for (from, to) in layout.pairs {
            let output = if self.task == Task::All {
                format!("group:{from}")
            } else {
                format!("output:{to}")
            };
            switch
                .ofctl("add-flow", &format!("in_port={from},{ADDRESSES},actions={output}"))
                .await?;
        }
        switch.mirror(self.task == Task::Mirror).await?;
        switch.settle().await
    }
}

/// Adds the groups that copy; the rules of entries refer to them.
pub(super) async fn add_groups(switch: &Switch, layout: Layout) -> Result<(), Failure> {
    for (from, to) in layout.pairs {
        if let Some(monitor) = layout.monitor {
            let buckets = format!("bucket=output:{to},bucket=output:{monitor}");
            switch.ofctl("add-group", &format!("group_id={from},type=all,{buckets}")).await?;
        }
    }
    Ok(())
}

/// Matches the frames of a pair, except for the port. Frames that the other guests send at the
/// start of circulation have the same addresses, and are excluded by the port.
const ADDRESSES: &str = "ip,nw_src=198.18.0.0/16,nw_dst=198.18.0.2";
/// Frame sizes with check sequence, as in the thesis.
pub(super) const SIZES: [usize; 7] = [64, 128, 256, 512, 1024, 1280, 1518];
