//! A program that cannot determine who uses a device leaves the device alone and reports why.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;
use tapswitch_netlink::Feature;
use tapswitch_tap::{Config, CreateError, Device, Offloads};

mod common;
use common::{Host, can_tap, config};

#[test]
fn without_proc_a_device_in_use_keeps_its_offloads() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let _first = host.create(&shared().offloads(Offloads::DEFAULT));
    let error = host.inside(|| {
        hide_proc();
        Device::create(&shared().offloads(Offloads::empty())).unwrap_err()
    });
    assert!(matches!(error, CreateError::Link { .. }), "{error}");
    assert!(host.netlink.feature("tap0", Feature::Tso).unwrap(), "another's offloads");
    assert!(error.to_string().starts_with("tap0: "), "{error}");
}

/// Whichever file cannot be opened.
#[test]
fn without_files_a_device_in_use_keeps_its_offloads() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let _first = host.create(&shared().offloads(Offloads::DEFAULT));
    // The first device of a process runs the probe, which opens more files.
    drop(host.create(&config("probe0")));
    let mut blind = 0;
    for free in 0..8 {
        let outcome = host.inside(|| {
            leave_files(free);
            Device::create(&shared().offloads(Offloads::empty())).map(drop)
        });
        assert!(host.netlink.feature("tap0", Feature::Tso).unwrap(), "{free} files: {outcome:?}");
        blind += u32::from(matches!(outcome, Err(CreateError::Link { .. })));
    }
    assert!(blind > 0, "a look-up failed at least once");
}

fn shared() -> Config {
    config("tap0").multi_queue(true).exclusive(false)
}

/// From now on the calling thread sees an empty `/proc`.
fn hide_proc() {
    // SAFETY: the thread no longer shares its mounts, which no other thread relies on.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .unwrap();
    rustix::mount::unmount("/proc", UnmountFlags::DETACH).unwrap();
}

/// Gives the calling thread its own file descriptors, all in use except `free`.
fn leave_files(free: usize) {
    let (first, flags) = (3_u32, libc::CLOSE_RANGE_UNSHARE);
    // SAFETY: no descriptor of other threads is closed, and this thread uses none of its copies.
    let outcome = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    let file = File::open("/dev/null").unwrap();
    let mut last = file.as_raw_fd();
    loop {
        // SAFETY: it accesses no memory, and nothing relies on the new descriptor.
        match unsafe { libc::dup(file.as_raw_fd()) } {
            -1 => break,
            copy => last = copy,
        }
    }
    for offset in 0..libc::c_int::try_from(free).unwrap() {
        // SAFETY: it was created above, and nothing relies on it.
        unsafe { libc::close(last - offset) };
    }
}
