//! A process without file descriptors. The limit is the whole process's, so this is the only test.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic fails a test")]

use std::os::unix::net::UnixStream;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tapswitch_vhost::{Device, SessionEnd};

/// A VMM that is turned away at once, without a reason, looks like one that disconnects by itself.
#[test]
fn a_session_without_a_file_descriptor_ends_with_the_reason() {
    let device = Device::new(1).unwrap();
    let (_vmm, ours) = UnixStream::pair().unwrap();
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(0), ..before }).unwrap();
    let end = device.serve(ours, |_| ());
    setrlimit(Resource::Nofile, before).unwrap();
    let SessionEnd::Refused(why) = end else { panic!("{end:?}") };
    assert!(why.contains("open files"), "{why}");
}
