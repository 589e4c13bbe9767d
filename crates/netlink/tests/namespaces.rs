//! Namespaces can be created, entered, shared with `ip netns` and removed without a trace.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use tapswitch_netlink::{Namespace, NamespaceError, OwnedNamespace, die_with_parent};

mod common;
use common::{is_root, namespace, skip, unique, unprivileged};

#[test]
fn a_namespace_is_made_listed_and_deleted() {
    if !is_root() {
        return;
    }
    let name = unique("nltest");
    let made = Namespace::create(&name).unwrap();
    assert!(Namespace::exists(&name));
    assert!(Namespace::list().unwrap().contains(&name));
    assert!(Namespace::open(&name).unwrap().is_same(&made).unwrap());
    assert!(!Namespace::current().unwrap().is_same(&made).unwrap());

    Namespace::delete(&name).unwrap();
    assert!(!Namespace::exists(&name));
    assert!(!Path::new("/run/netns").join(&name).exists());
    let again = Namespace::delete(&name).unwrap_err();
    assert!(matches!(again, NamespaceError::NotFound { .. }), "{again}");
}

#[test]
fn a_taken_name_is_refused_and_the_first_stays() {
    if !is_root() {
        return;
    }
    let first = namespace();
    let error = Namespace::create(first.label()).unwrap_err();
    assert!(matches!(error, NamespaceError::Exists { .. }), "{error}");
    assert!(Namespace::exists(first.label()));
}

#[test]
fn a_panic_removes_an_owned_namespace() {
    if !is_root() {
        return;
    }
    let name = unique("nltest");
    let copy = name.clone();
    let outcome = std::thread::spawn(move || {
        let _owned = OwnedNamespace::create(&copy).unwrap();
        panic!("on purpose");
    })
    .join();
    assert!(outcome.is_err());
    assert!(!Namespace::exists(&name));
}

#[test]
fn many_namespaces_at_once_do_not_disturb_each_other() {
    if !is_root() {
        return;
    }
    let made = std::thread::scope(|scope| {
        let threads = (0..8).map(|_| scope.spawn(namespace)).collect::<Vec<_>>();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    for (index, one) in made.iter().enumerate() {
        for other in &made[index + 1..] {
            assert!(!one.is_same(other).unwrap());
        }
    }
}

#[test]
fn a_closure_runs_inside_and_the_caller_stays_outside() {
    if !is_root() {
        return;
    }
    let blue = namespace();
    let before = fs::read_link("/proc/thread-self/ns/net").unwrap();
    let inside = blue.enter(|| Namespace::current().unwrap().is_same(&blue).unwrap()).unwrap();
    assert!(inside);
    assert_eq!(fs::read_link("/proc/thread-self/ns/net").unwrap(), before);
}

#[test]
fn a_program_runs_inside() {
    if !is_root() {
        return;
    }
    let blue = namespace();
    let by_us = output(blue.command("readlink").arg("/proc/self/ns/net"));
    let expected = blue.enter(|| fs::read_link("/proc/thread-self/ns/net").unwrap()).unwrap();
    assert_eq!(by_us, expected.to_string_lossy());
}

#[test]
fn ip_netns_works_on_our_namespaces() {
    if !is_root() {
        return;
    }
    if Command::new("ip").arg("-V").output().is_err() {
        skip("no ip program");
        return;
    }
    let blue = namespace();
    let by_ip = output(
        Command::new("ip")
            .args(["netns", "exec", blue.label()])
            .args(["readlink", "/proc/self/ns/net"]),
    );
    let by_us = output(blue.command("readlink").arg("/proc/self/ns/net"));
    assert_eq!(by_ip, by_us);
    assert!(output(Command::new("ip").arg("netns")).contains(blue.label()));
}

#[test]
fn a_leftover_file_is_explained_and_can_be_deleted() {
    if !is_root() {
        return;
    }
    drop(namespace());
    let name = unique("nltest");
    fs::write(Path::new("/run/netns").join(&name), "").unwrap();
    let error = Namespace::open(&name).unwrap_err();
    Namespace::delete(&name).unwrap();
    assert!(matches!(error, NamespaceError::NotANamespace { .. }));
    assert!(error.to_string().contains(&format!("ip netns del {name}")));
}

#[test]
fn a_namespace_of_another_kind_is_refused() {
    for path in ["/proc/self/ns/mnt", "/proc/self/ns/uts", "/dev/null"] {
        let error = Namespace::open_path(path).unwrap_err();
        assert!(matches!(error, NamespaceError::NotANamespace { .. }), "{path}: {error}");
        assert!(!error.to_string().contains("ip netns del"), "no such name: {error}");
    }
    Namespace::open_path("/proc/self/ns/net").unwrap();
}

#[test]
fn missing_privilege_is_named() {
    if !is_root() {
        return;
    }
    let blue = namespace();
    let (create, enter) = unprivileged(|| {
        (Namespace::create(&unique("nltest")).unwrap_err(), blue.enter(|| ()).unwrap_err())
    });
    assert!(matches!(enter, NamespaceError::NotPermitted { .. }));
    assert!(create.to_string().ends_with("run as root"), "{create}");
}

#[test]
fn a_child_dies_with_the_thread_that_spawned_it() {
    let mut child = std::thread::spawn(|| {
        let mut command = Command::new("sleep");
        command.arg("60").stdout(Stdio::null());
        die_with_parent(&mut command).spawn().unwrap()
    })
    .join()
    .unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGTERM));
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
