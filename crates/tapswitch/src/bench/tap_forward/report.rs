//! The results, as a table and as data.

use serde::Serialize;

use crate::bench::candidate::Candidate;
use crate::bench::machine::Machine;
use crate::bench::paired::{Paired, Ratio, Verdict};
use crate::table::{print, table};

use super::{Contender, Measure, TapForwardArgs};

/// All results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    machine: Machine,
    rounds: u64,
    seconds: u64,
    pinned: bool,
    gro: String,
    congestion: String,
    rows: Vec<Row>,
    /// CPU usage of the whole process with four ports and no traffic, in percent of a core.
    idle_percent: f64,
}

/// One measurement of one candidate.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    candidate: Candidate,
    measure: Measure,
    /// Every frame was copied to a monitor as well.
    copies: bool,
    unit: &'static str,
    median: f64,
    /// Ratio to the bare forwarder doing the same.
    to_bare: Option<Compared>,
    /// Ratio to Open vSwitch doing the same.
    to_ovs: Option<Compared>,
    /// Ratio to itself without the copy.
    to_no_copy: Option<Compared>,
}

/// A ratio within rounds, and its goal.
#[derive(Clone, Copy, Debug, Serialize)]
struct Compared {
    #[serde(flatten)]
    ratio: Ratio,
    goal: Option<f64>,
    verdict: Option<Verdict>,
}

impl Compared {
    fn new(ratio: Ratio, goal: Option<f64>) -> Self {
        Self { ratio, goal, verdict: goal.map(|goal| ratio.verdict(goal)) }
    }

    /// In the format of tables: `0.970 (0.951 to 0.985), 0.97 met`.
    fn text(compared: Option<Self>) -> String {
        let Some(Self { ratio, goal, verdict }) = compared else { return "-".to_owned() };
        let judged = goal.zip(verdict).map(|(goal, it)| format!(", {goal:.2} {}", it.name()));
        ratio.text() + &judged.unwrap_or_default()
    }
}

impl Row {
    /// One row for each contender.
    pub(super) fn all(measure: Measure, contenders: &[Contender], rates: &Paired) -> Vec<Self> {
        let place = |wanted| contenders.iter().position(|&contender| contender == wanted);
        let row = |(number, &Contender { candidate, copies }): (usize, &Contender)| {
            let over = |under: Contender, goal| {
                let ratio = rates.ratio(number, place(under)?);
                let is_judged = candidate == Candidate::Tapswitch;
                Some(Compared::new(ratio, if is_judged { goal } else { None }))
            };
            let against = |candidate, goal| {
                let goal = if copies { None } else { Some(goal) };
                over(Contender { candidate, copies }, goal)
            };
            let unchanged = Contender { candidate, copies: false };
            Self {
                candidate,
                measure,
                copies,
                unit: measure.unit(),
                median: rates.rate(number),
                to_bare: against(Candidate::Bare, measure.goal_to_bare()),
                to_ovs: against(Candidate::OpenVswitch, measure.goal_to_ovs()),
                to_no_copy: copies.then(|| over(unchanged, measure.goal_with_copy())).flatten(),
            }
        };
        let mut rows: Vec<Self> = contenders.iter().enumerate().map(row).collect();
        rows.sort_by_key(|row| (row.copies, row.candidate));
        rows
    }
}

/// Goals of the switch's ratios.
impl Measure {
    fn goal_to_bare(self) -> f64 {
        match self {
            Self::TcpOneFlow | Self::TcpFourFlows => 0.97,
            Self::SmallUdp => 0.95,
        }
    }

    fn goal_to_ovs(self) -> f64 {
        match self {
            Self::TcpOneFlow | Self::TcpFourFlows => 1.0,
            Self::SmallUdp => 1.2,
        }
    }

    /// Copying a train costs little relative to the train; copying a small frame costs as much as
    /// the frame.
    fn goal_with_copy(self) -> Option<f64> {
        match self {
            Self::TcpOneFlow | Self::TcpFourFlows => Some(0.93),
            Self::SmallUdp => None,
        }
    }
}

impl Report {
    pub(super) fn new(args: &TapForwardArgs, rows: Vec<Row>, idle_percent: f64) -> Self {
        let TapForwardArgs { rounds, seconds, pin: pinned, .. } = *args;
        let (gro, congestion) = (args.gro.to_string(), args.congestion.clone());
        let machine = Machine::look();
        Self { machine, rounds, seconds, pinned, gro, congestion, rows, idle_percent }
    }

    pub(super) fn print(&self) {
        let Machine { processor, cores, kernel, .. } = &self.machine;
        say!(
            "{processor}, {cores} cores, Linux {kernel}; {} rounds of {} s, medians (95 %), goals",
            self.rounds,
            self.seconds
        );
        let titles = ["MEASUREMENT", "COPY", "CANDIDATE", "RATE ", "", "TO BARE ", "TO OVS "];
        let mut rows = table(&[&titles[..], &["TO NO COPY "]].concat());
        for row in &self.rows {
            rows.add_row([
                row.measure.name().to_owned(),
                if row.copies { "yes" } else { "no" }.to_owned(),
                row.candidate.name().to_owned(),
                format!("{:.2}", row.median),
                row.unit.to_owned(),
                Compared::text(row.to_bare),
                Compared::text(row.to_ovs),
                Compared::text(row.to_no_copy),
            ]);
        }
        print(&rows, "nothing was measured");
        say!("idle with four ports: {:.2} % of a core (goal: below 0.5)", self.idle_percent);
    }
}
