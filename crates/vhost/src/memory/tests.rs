//! Tests of address lookup, and of files that are refused.

use std::io::Write;
use std::os::fd::AsRawFd;

use rustix::fs::MemfdFlags;

use super::*;
use crate::test_guest::{BASE, Guest, LEN};

fn error(specs: &[RegionSpec]) -> String {
    GuestMemory::new(specs).unwrap_err().to_string()
}

#[test]
fn bytes_are_found_by_both_addresses() {
    let guest = Guest::new();
    guest.write(0x100, b"hello");
    let mut out = [0; 5];
    for bytes in [guest.memory.find(BASE + 0x100, 5), guest.memory.find_user(2 * BASE + 0x100, 5)] {
        assert_eq!(bytes.unwrap().read(&mut out), 5);
        assert_eq!(&out, b"hello");
    }
    assert_eq!(guest.memory.find(BASE + 0x102, 3).unwrap().write(b"ads!"), 3);
    assert_eq!(&guest.read::<5>(0x100), b"heads");
}

#[test]
fn what_is_not_there_is_not_found() {
    let memory = &Guest::new().memory;
    let end = BASE + (1 << 20);
    assert!(memory.find(BASE, 1 << 20).is_some() && memory.find(end, 0).is_some());
    assert!(memory.find(BASE - 1, 1).is_none() && memory.find(end, 1).is_none());
    assert!(memory.find(end - 1, 2).is_none() && memory.find(BASE, u64::MAX).is_none());
    assert!(memory.find(u64::MAX, 1).is_none());
    assert_eq!(memory.find_start(end - 1, 2).unwrap().len(), 1);
    assert!(memory.find_start(end, 1).is_none());
}

#[test]
fn a_range_over_two_regions_is_found_in_parts() {
    let guest = Guest::new();
    let halves = [0x8000, 0].map(|offset| Guest::region(guest.file(), offset, 0x8000));
    let memory = GuestMemory::new(&halves).unwrap();
    assert!(memory.find(BASE + 0x7ff0, 0x20).is_none());
    assert_eq!(memory.find_start(BASE + 0x7ff0, 0x20).unwrap().len(), 0x10);
    assert!(memory.find(BASE + 0x8000, 0x10).is_some());
}

#[test]
fn regions_that_cannot_be_are_refused() {
    let guest = Guest::new();
    let region = |offset, len| Guest::region(guest.file(), offset, len);
    assert!(error(&[]).contains("share=on"));
    assert!(error(&[region(0, 0)]).contains("0 bytes"));
    assert!(error(&[region(0, 2 << 20)]).contains("its file has 1048576 bytes"));
    let overlap = error(&[region(0, 0x2000), region(0x1000, 0x1000)]);
    assert!(overlap.contains("overlap at guest address 0x101000"), "{overlap}");
    let far = RegionSpec { guest_address: u64::MAX, ..region(0, 0x1000) };
    assert!(error(&[far]).contains("beyond 2^64"));
}

#[test]
fn memory_that_is_taken_away_reads_as_zeroes() {
    let guest = Guest::new();
    guest.write(0x5000, &[7; 64]);
    let bytes = guest.memory.find(BASE + 0x5000, 64).unwrap();
    let mut out = [0; 64];
    bytes.read(&mut out);
    assert!(out == [7; 64] && !guest.memory.was_lost());
    rustix::fs::ftruncate(guest.file(), 0x4000).unwrap();
    bytes.read(&mut out);
    assert!(out == [0; 64] && guest.memory.was_lost());
    bytes.write(&[9; 64]);
    bytes.read(&mut out);
    assert_eq!(out, [9; 64], "a page of our own");
    assert!(!Guest::new().memory.was_lost(), "a place in the table is used again clean");
}

#[test]
fn devices_of_one_machine_have_one_mapping() {
    let guest = Guest::new();
    let again = || GuestMemory::new(&[Guest::region(guest.file(), 0, LEN)]).unwrap();
    let address = |memory: &GuestMemory| memory.find(BASE, 1).unwrap().as_ptr();
    let second = again();
    assert_eq!(address(&second), address(&guest.memory));
    let half = GuestMemory::new(&[Guest::region(guest.file(), 0, LEN / 2)]).unwrap();
    assert_ne!(address(&half), address(&guest.memory), "another range");
    assert_ne!(address(&Guest::new().memory), address(&guest.memory), "another file");

    rustix::fs::ftruncate(guest.file(), 0).unwrap();
    second.find(BASE, 1).unwrap().write(&[1]);
    assert!(second.was_lost() && guest.memory.was_lost(), "both devices are reset");
    rustix::fs::ftruncate(guest.file(), LEN).unwrap();
    let third = again();
    assert!(address(&third) != address(&second) && !third.was_lost());
    assert_eq!(address(&again()), address(&third));
}

#[test]
fn nobody_shares_a_mapping_that_the_kernel_refuses() {
    let guest = Guest::new();
    let path = format!("/proc/self/fd/{}", guest.file().as_raw_fd());
    let file = OwnedFd::from(std::fs::File::open(path).unwrap());
    let spec = RegionSpec { file, ..Guest::region(guest.file(), 0, LEN) };
    assert!(error(&[spec]).contains("Permission denied"), "opened for reading only");
}

#[test]
fn the_rest_of_a_page_may_be_taken_away_too() {
    let guest = Guest::new();
    // A page and a half: losing the half loses the page.
    let memory = GuestMemory::new(&[Guest::region(guest.file(), 0x1800, 0x1800)]).unwrap();
    let bytes = memory.find(BASE + 0x2f00, 0x100).unwrap();
    rustix::fs::ftruncate(guest.file(), 0).unwrap();
    let mut out = [1; 0x100];
    bytes.read(&mut out);
    assert!(out == [0; 0x100] && memory.was_lost());
}

#[test]
fn a_file_whose_pages_may_be_waited_for_is_no_memory() {
    let guest = Guest::new();
    let file = OwnedFd::from(std::fs::File::open("/proc/version").unwrap());
    let region = RegionSpec { file, ..Guest::region(guest.file(), 0, 0x1000) };
    let why = error(&[region]);
    assert!(why.contains("neither a memfd nor on tmpfs"), "{why}");
}

#[test]
fn no_guest_takes_all_addresses() {
    let guest = Guest::new();
    rustix::fs::ftruncate(guest.file(), 1 << 42).unwrap();
    let all = Guest::region(guest.file(), 0, 1 << 42);
    assert!(GuestMemory::new(std::slice::from_ref(&all)).is_ok());
    let more = RegionSpec { guest_address: 0, ..Guest::region(guest.file(), 0, 0x1000) };
    let why = error(&[all, more]);
    assert!(why.contains("has 4398046515200 bytes"), "{why}");
}

#[test]
fn a_region_may_begin_and_end_within_a_huge_page() {
    let file = rustix::fs::memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB);
    let Ok(file) = file else {
        // Bypasses the harness, which would capture `println!`.
        let _ = std::io::stdout().write_all(b"\nSKIP: this kernel has no huge pages\n");
        return;
    };
    rustix::fs::ftruncate(&file, 4 << 20).unwrap();
    let memory = GuestMemory::new(&[Guest::region(&file, 0xc_0000, 0x18_0000)]).unwrap();
    // From here on there are no huge pages, whether the machine has some or not.
    rustix::fs::ftruncate(&file, 0).unwrap();
    let bytes = memory.find(BASE + 0xc_0000, 0x18_0000).unwrap();
    let mut out = vec![1; bytes.len()];
    assert_eq!(bytes.read(&mut out), 0x18_0000);
    assert!(out.iter().all(|byte| *byte == 0) && memory.was_lost());
}

#[test]
fn memory_where_nobody_has_written_is_blank() {
    let guest = Guest::new();
    assert!(guest.memory.is_blank());
    guest.write(LEN - 1, &[1]);
    assert!(!guest.memory.is_blank());
}
