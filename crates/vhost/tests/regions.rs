//! Guests whose memory is shared in as many regions as possible. A separate program, as it exhausts
//! a limit of the process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::MemfdFlags;
use tapswitch_vhost::{GuestMemory, MemoryError, RegionSpec};

/// A file of `count` pages.
fn file(count: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, count * PAGE).unwrap();
    file
}

/// A guest's memory in `count` regions of one page.
fn in_pieces(file: &OwnedFd, count: u64) -> Result<Arc<GuestMemory>, MemoryError> {
    let piece = |index| RegionSpec {
        guest_address: index * PAGE,
        user_address: index * PAGE,
        len: PAGE,
        offset: index * PAGE,
        file: file.try_clone().unwrap(),
    };
    GuestMemory::new(&(0..count).map(piece).collect::<Vec<_>>())
}

/// The truncation of an unguarded region would end the process, so there must be none.
#[test]
fn when_no_region_more_can_be_guarded_none_is_taken() {
    let mut guests = Vec::new();
    let refused = loop {
        // Devices with the same file would share its mappings.
        let file = file(64);
        match in_pieces(&file, 64) {
            Ok(memory) => guests.push((file, memory)),
            Err(error) => break error,
        }
    };
    assert!(guests.len() >= 60, "{} guests", guests.len());
    let why = refused.to_string();
    assert!(why.contains("the guests have too many memory regions in total"), "{why}");
    for (file, memory) in &guests {
        rustix::fs::ftruncate(file, 0).unwrap();
        let mut out = [1];
        memory.find(63 * PAGE, 1).unwrap().read(&mut out);
        assert!(out == [0] && memory.was_lost());
    }
    guests.clear();
    assert!(in_pieces(&file(1), 1).is_ok_and(|memory| !memory.was_lost()));
}

const PAGE: u64 = 0x1000;
