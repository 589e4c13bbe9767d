//! A guest runs what it is given, and every kind of failure in it is reported.
#![allow(clippy::unwrap_used, clippy::panic, reason = "what fails fails the test")]

use std::fs;
use std::panic;
use std::path::Path;
use std::time::Duration;

use tapswitch_guest::{Error, Guest, Kernel, Rig, Series, inside, skip};

/// For the tests of this file that run in the guest; all share one boot.
const LINUX_7_3: Rig = Rig::new(Series::V7_3).modules(&["vhost-net"]);

#[test]
fn a_test_runs_in_the_guest() {
    LINUX_7_3.test(|| {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(Some(release.trim()), inside().as_deref());
        assert!(release.starts_with("7."), "{release}");
        assert_eq!(std::process::id().cmp(&1), std::cmp::Ordering::Greater);
        assert!(rustix::process::geteuid().is_root());
    });
}

#[test]
fn modules_are_loaded_with_those_that_they_need() {
    LINUX_7_3.test(|| {
        let loaded = fs::read_to_string("/proc/modules").unwrap();
        for module in ["vhost_net", "vhost", "tun"] {
            assert!(loaded.lines().any(|line| line.split(' ').next() == Some(module)), "{loaded}");
        }
        assert!(Path::new("/dev/vhost-net").exists());
    });
}

#[test]
fn a_test_that_fails_in_the_guest_fails() {
    if inside().is_none() && kernel().is_none() {
        return;
    }
    // On both sides: the guest does not report that it passed, and the host gets no report.
    let outcome = panic::catch_unwind(|| LINUX_7_3.test(|| panic!("as it shall")));
    let message = outcome.unwrap_err();
    if inside().is_none() {
        let message = *message.downcast::<String>().unwrap();
        assert!(message.contains("did not pass in the guest"), "{message}");
        assert!(message.contains("\n| test a_test_that_fails"), "{message}");
    }
}

#[test]
fn the_program_gets_its_arguments_environment_and_files_and_tells_its_status() {
    let Some(kernel) = kernel() else { return };
    let script = r#"printf '%s\n' "$1" "$VARIABLE"; /opt/greet; exit 42"#;
    let outcome = Guest::new(&kernel, "/bin/sh")
        .args(["-c", script, "sh", "it's a $word"])
        .env("VARIABLE", "two\nlines")
        .file("/bin/echo", "/opt/greet")
        .run()
        .unwrap();
    assert_eq!((outcome.output.as_str(), outcome.status), ("it's a $word\ntwo\nlines\n\n", 42));
    assert_eq!(outcome.told, "exit 42\n");
}

#[test]
fn a_panic_of_the_kernel_is_told_with_its_trace() {
    let Some(kernel) = kernel() else { return };
    let crash = "echo c >/proc/sysrq-trigger";
    let error = Guest::new(&kernel, "/bin/sh").args(["-c", crash]).run().unwrap_err();
    assert!(matches!(error, Error::Panicked { .. }), "{error}");
    let message = error.to_string();
    for expected in [kernel.release(), "sysrq triggered crash", "Call Trace"] {
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

/// An hour passes in the guest, and five minutes at most outside.
#[test]
fn a_clock_that_counts_instructions_skips_idle_time() {
    let Some(kernel) = kernel() else { return };
    let nap = "before=$(date +%s); sleep 3600; echo $(($(date +%s) - before))";
    let guest = Guest::new(&kernel, "/bin/sh").args(["-c", nap]).instruction_clock();
    let outcome = guest.run().unwrap();
    let slept: u32 = outcome.output.trim().parse().unwrap();
    assert!((3600..3700).contains(&slept), "{}", outcome.output);
}

#[test]
fn a_guest_that_is_not_done_in_time_is_killed() {
    let Some(kernel) = kernel() else { return };
    let guest = Guest::new(&kernel, "/bin/sleep").args(["1000"]).limit(Duration::from_millis(1));
    let running = guest.start().unwrap();
    let process = format!("/proc/{}", running.id());
    assert!(Path::new(&process).exists());
    let error = running.wait().unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    assert!(!Path::new(&process).exists());
}

#[test]
fn what_a_guest_says_can_be_waited_for_while_it_runs() {
    let Some(kernel) = kernel() else { return };
    let script = "echo ready; sleep 1000";
    let mut running = Guest::new(&kernel, "/bin/sh").args(["-c", script]).start().unwrap();
    running.wait_for("ready\n").unwrap();
    let process = format!("/proc/{}", running.id());
    drop(running);
    assert!(!Path::new(&process).exists());
}

#[test]
fn what_is_not_there_is_named() {
    let Some(kernel) = kernel() else { return };
    let guest = |program| Guest::new(&kernel, program);
    let error = guest("/bin/sh").modules(["warp-drive"]).run().unwrap_err().to_string();
    assert!(error.starts_with("warp_drive: ") && error.contains("no such module"), "{error}");
    let error = guest("/no/such/program").run().unwrap_err().to_string();
    assert!(error.starts_with("/no/such/program: No such file"), "{error}");
    let error = guest("/bin/sh").qemu_args(["-device", "warp-drive"]).run().unwrap_err();
    assert!(matches!(error, Error::Died { .. }), "{error}");
    assert!(error.to_string().contains("'warp-drive' is not a valid device"), "{error}");
}

/// The kernel, unless it cannot be obtained, which is reported, or this is a guest already.
fn kernel() -> Option<Kernel> {
    if inside().is_some() {
        return None;
    }
    match Kernel::of(Series::V7_3) {
        Ok(kernel) => Some(kernel),
        Err(Error::Unavailable { what, remedy }) => {
            skip(format!("{what}; {remedy}"));
            None
        }
        Err(error) => panic!("{error}"),
    }
}
