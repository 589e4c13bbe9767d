//! Attacks by hostile guests and hostile VMMs that succeeded on other back ends. Here their own
//! session ends with a reason, another guest of the same process is not affected, and nothing is
//! left behind.
//!
//! Each test names the published vulnerabilities whose pattern it follows, most of them of DPDK's
//! vhost library.
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

/// Runs an attack next to a harmless guest. Returns why the session ended.
///
/// One at a time, as it counts the open files and mappings of the process.
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

/// Runs an attack that must cause a reset of the device. Returns the reason.
fn reset(run: impl FnOnce() -> SessionEnd) -> String {
    match attack(run) {
        SessionEnd::Reset(why) => why,
        end => panic!("expected a reset: {end:?}"),
    }
}

/// Runs an attack that must be refused. Returns the reason.
fn refused(run: impl FnOnce() -> SessionEnd) -> String {
    match attack(run) {
        SessionEnd::Refused(why) => why,
        end => panic!("expected a refusal: {end:?}"),
    }
}

/// Number of open descriptors of the process.
fn open_count() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Number of mappings of guests' memory, whole or in part.
fn mapped_count() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:guest")).count()
}
