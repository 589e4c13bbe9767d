//! What hostile guests and hostile VMMs have done to other back ends, and what becomes of it here:
//! their own session ends with a reason, another guest of the same process notices nothing, and
//! nothing is left behind.
//!
//! Each test has the numbers of the published vulnerabilities whose pattern it is, most of them of
//! DPDK's vhost library.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "helpers of tests"
)]

#[path = "hostile/memory.rs"]
mod memory;
#[path = "hostile/protocol.rs"]
mod protocol;
#[path = "hostile/races.rs"]
mod races;
#[path = "hostile/rings.rs"]
mod rings;
#[path = "../src/test_guest.rs"]
#[expect(dead_code, reason = "these tests do without a part of it")]
mod test_guest;
mod vmm;

use std::sync::Mutex;

use tapswitch_vhost::{GuestMemory, RegionSpec, RingFeatures, RingPlace, SessionEnd};

use vmm::{TRANSMIT, Vmm, modern};

/// Runs an attack beside a guest that does no harm, and returns why the session ended.
///
/// One at a time, since it counts what the process has open and mapped.
fn attack(attack: impl FnOnce() -> SessionEnd) -> SessionEnd {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut bystander = Vmm::start(modern(), TRANSMIT);
    bystander.transmit(1);
    assert_eq!(bystander.work(), [[1; 60]]);
    let before = (open_count(), mapped_count());
    let end = attack();
    assert_eq!((open_count(), mapped_count()), before, "{end:?} leaves something behind");
    bystander.transmit(2);
    assert_eq!(bystander.work(), [[2; 60]]);
    assert_eq!(bystander.driver.reap(&bystander.guest).len(), 2);
    assert_eq!(bystander.end(), SessionEnd::Closed);
    end
}

/// Runs an attack after which the device must have been reset, and returns the reason.
fn reset(run: impl FnOnce() -> SessionEnd) -> String {
    match attack(run) {
        SessionEnd::Reset(why) => why,
        end => panic!("expected a reset: {end:?}"),
    }
}

/// Runs an attack that must have been refused, and returns the reason.
fn refused(run: impl FnOnce() -> SessionEnd) -> String {
    match attack(run) {
        SessionEnd::Refused(why) => why,
        end => panic!("expected a refusal: {end:?}"),
    }
}

/// Descriptors that the process has open.
fn open_count() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Mappings of guests' memory, whole or in part.
fn mapped_count() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:guest")).count()
}
