//! Differential test of our switch and Open vSwitch: random pipelines, frames and messages for
//! both, which must behave the same.
//!
//! Each case is generated from a seed. `TAPSWITCH_DIFFERENTIAL_ROUNDS` is the number of cases,
//! `TAPSWITCH_DIFFERENTIAL_SEED` the first seed. A case that fails is reduced, and printed with its
//! seed:
//!
//! ```text
//! TAPSWITCH_DIFFERENTIAL_SEED=17 TAPSWITCH_DIFFERENTIAL_ROUNDS=1 \
//!   cargo test -p tapswitch-switch --test differential pipelines
//! ```
//!
//! Intended differences are listed in [`known`] and [`refusals`], with the reasons.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

mod answers;
mod case;
#[path = "../common/mod.rs"]
mod common;
mod fields;
mod filters;
mod frames;
mod known;
mod messages;
mod normal;
mod ovs;
mod pair;
mod peer;
mod pipeline;
mod random;
mod refusals;
mod selects;
mod smaller;
mod steps;
mod text;
mod timeouts;

use std::env;

use case::{Case, Difference};
use messages::Sent;
use pair::{Pair, Side};
use random::Random;
use smaller::smallest;
use tapswitch_openflow::ErrorKind;

#[test]
fn pipelines_forward_alike() {
    check_each(1, |pair, seed| {
        let case = Case::random(seed);
        let first = difference(pair, &case)?;
        let is_like = |other: Difference| first.is_like(&other);
        let small = smallest(case, |case| difference(pair, case).is_some_and(is_like));
        let difference = difference(pair, &small).unwrap_or(first);
        Some(format!("{difference}{small}"))
    });
}

#[test]
fn stations_are_learned_alike() {
    check_each(NORMAL_STEP, |pair, seed| {
        let case = normal::case(seed);
        let difference = Difference::between(&pair.observe_learning(&case))?;
        Some(format!("{difference}{case}"))
    });
}

#[test]
fn selects_pick_what_they_may() {
    check_each(SELECT_STEP, |pair, seed| {
        let case = selects::case(seed);
        selects::fault(pair, &case)?;
        let small = smallest(case, |case| selects::fault(pair, case).is_some());
        let fault = selects::fault(pair, &small).unwrap_or_default();
        Some(format!("{fault}\n{small}"))
    });
}

#[test]
fn selects_spread_flows_alike() {
    if let Some(mut pair) = Pair::start() {
        selects::check_spread(&mut pair);
    }
}

#[test]
fn rules_time_out_alike() {
    if let Some(mut pair) = Pair::start() {
        timeouts::check(&mut pair);
    }
}

#[test]
fn messages_are_answered_alike() {
    let Some(mut pair) = Pair::start() else { return };
    let mut failures = Vec::new();
    pair.sides.iter_mut().for_each(Side::begin);
    for seed in seeds(MESSAGES) {
        let sent = Sent::random(&mut Random::new(seed));
        let [theirs, ours] = pair.sides.each_mut().map(|side| side.ask(&sent));
        // A message that only one switch accepted would affect the next message. So would a rule
        // with a packet that is not buffered: our switch adds it nevertheless, as that comes before
        // the packet (OpenFlow 1.3.5 §7.3.4.1), and Open vSwitch does not.
        let is_half_done = ours == Err(ErrorKind::OFPBRC_BUFFER_UNKNOWN);
        let is_odd = is_half_done || sent.sets_no_len();
        if seed % RESET == 0 || is_odd || theirs.is_ok() != ours.is_ok() {
            pair.sides.iter_mut().for_each(Side::begin);
        }
        let is_alike = match (&theirs, &ours) {
            (Ok(theirs), Ok(ours)) => theirs == ours,
            (theirs, ours) => {
                refusals::are_alike(&sent, theirs.as_ref().err(), ours.as_ref().err())
            }
        };
        if is_alike {
            continue;
        }
        failures.push(format!(
            "seed {seed}: Open vSwitch answers {theirs:?}, tapswitch {ours:?}: {sent}"
        ));
        if failures.len() == FAILURES {
            break;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Examines every `step`-th seed: `failure` describes what is wrong with its case.
fn check_each(step: usize, mut failure: impl FnMut(&mut Pair, u64) -> Option<String>) {
    let Some(mut pair) = Pair::start() else { return };
    let all = seeds(1).step_by(step);
    let failing =
        all.filter_map(|seed| Some(format!("seed {seed}: {}", failure(&mut pair, seed)?)));
    let failures: Vec<_> = failing.take(FAILURES).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The difference between both in a case.
fn difference(pair: &mut Pair, case: &Case) -> Option<Difference> {
    Difference::between(&pair.observe(case))
}

/// The seeds of the cases, `each` per round.
fn seeds(each: u64) -> impl Iterator<Item = u64> {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let first = number("TAPSWITCH_DIFFERENTIAL_SEED").unwrap_or(0);
    let count = number("TAPSWITCH_DIFFERENTIAL_ROUNDS").unwrap_or(ROUNDS);
    first..first + count * each
}

/// Messages after which rules and groups are deleted.
const RESET: u64 = 40;
/// Default number of pipelines: half a minute on a busy machine.
const ROUNDS: u64 = 300;
/// One of this many pipelines has a SELECT group: comparing each bucket separately takes longer.
const SELECT_STEP: usize = 10;
/// One of this many seeds is for a case with learned stations.
const NORMAL_STEP: usize = 5;
/// Messages per pipeline.
const MESSAGES: u64 = 25;
/// Failures after which the test ends.
const FAILURES: usize = 5;
