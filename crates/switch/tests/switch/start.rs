//! Tests of starting: obstacles are named with a remedy, and nothing is left behind.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::net::TcpListener;

use crate::common::*;
use tapswitch_switch::{Config, DatapathId, Endpoint, Switch};

/// Why a switch with these ports does not start.
fn error(config: Config) -> String {
    match Running::try_start(config) {
        Ok(_) => panic!("it started"),
        Err(error) => error.to_string(),
    }
}

fn ports(specs: &[&str]) -> Config {
    config(&specs.iter().map(|spec| (*spec).to_owned()).collect::<Vec<_>>())
}

#[track_caller]
fn assert_names(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

#[test]
fn a_taken_name_is_named() {
    if !can_run() {
        return;
    }
    let (mut host, mut other) = (Host::new(1), Host::new(2));
    host.join(&mut other, "eth0");
    let port = format!("1=tap:eth0,netns={}", host.name());
    let remedy = format!("ip -n {} link del eth0", host.name());
    let text = error(ports(&[&port]));
    assert_names(&text, &[&port, "the name is taken", &remedy]);
}

#[test]
fn a_missing_namespace_is_named() {
    if !can_run() {
        return;
    }
    for port in ["1=tap:eth0,netns=no-such-one", "1=netdev:eth0,netns=no-such-one"] {
        let text = error(ports(&[port]));
        assert_names(&text, &[port, "namespace no-such-one: not found", "ip netns list"]);
    }
}

#[test]
fn a_missing_or_unfit_interface_is_named() {
    if !can_run() {
        return;
    }
    let host = Host::new(1);
    let port = |name| format!("1=netdev:{name},netns={}", host.name());
    let text = error(ports(&[&port("eth7")]));
    let command = format!("`ip -n {} link` lists its interfaces", host.name());
    assert_names(&text, &[&port("eth7"), "interface eth7: not found in namespace", &command]);
    let text = error(ports(&[&port("lo")]));
    assert_names(&text, &[&port("lo"), "is the loopback interface, which cannot be a port"]);
}

#[test]
fn an_mtu_that_the_device_does_not_take_is_named() {
    if !can_run() {
        return;
    }
    let (mut host, mut other) = (Host::new(1), Host::new(2));
    host.join(&mut other, "eth0");
    let port = format!("1=netdev:eth0,netns={},mtu=65521", host.name());
    let running = Running::try_start(ports(&[&port]));
    assert!(running.is_ok(), "a veth takes it");
    assert_eq!((host.link().mtu, running.unwrap().port(1).mtu), (65_529, 65_521));
    let port = format!("{port},envelope=500");
    let text = error(ports(&[&port]));
    assert_names(
        &text,
        &[&port, "eth0 does not allow an MTU of 66021", "500 bytes of tags", "envelope="],
    );
    assert_eq!(host.link().mtu, 1500, "as it was before all that");
}

#[test]
fn ports_that_contradict_each_other_are_named() {
    let text = error(ports(&["1=tap:a", "1=tap:b"]));
    assert_names(&text, &["1=tap:a", "1=tap:b", "the same number", "give each its own"]);
    let text = error(ports(&["1=tap:a", "2=netdev:a"]));
    assert_names(&text, &["1=tap:a", "2=netdev:a", "the same interface"]);
}

#[test]
fn an_address_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::tcp(taken.local_addr().unwrap());
    let text = error(Config { listen: vec![endpoint], ..Config::new("br0", DatapathId(1)) });
    assert_names(&text, &[&endpoint.to_string(), "in use", "choose another address or port"]);
}

#[test]
fn without_privilege_it_says_so() {
    if !can_run() {
        return;
    }
    let name = unique("t");
    let (tap, netdev) = (format!("1=tap:{name}"), "1=netdev:lo");
    for (port, capability) in [(&*tap, "CAP_NET_ADMIN"), (netdev, "CAP_NET_RAW")] {
        let text = unprivileged(|| {
            // On this thread: another thread would have the privilege again.
            let started = crate::common::start_here(ports(&[port]));
            started.map(drop).unwrap_err().to_string()
        });
        assert_names(&text, &[port, "not permitted", capability, "root"]);
    }
}

#[test]
fn what_was_opened_before_the_failure_is_closed() {
    if !can_run() {
        return;
    }
    let mut host = Host::new(1);
    let good = format!("1=tap:eth0,netns={}", host.name());
    let bad = format!("2=netdev:none,netns={}", host.name());
    // A process that another test is starting may hold the device for a moment.
    let mut is_gone = || eventually("it is closed", || host.netlink.link("eth0").err());
    for _ in 0..5 {
        error(ports(&[&good, &bad]));
        is_gone();
    }
    drop(Running::start(ports(&[&good])));
    is_gone();
}

/// As root prepares it for an unprivileged user: `ip tuntap add`, `ip link set up`.
#[test]
fn a_prepared_device_needs_no_privilege() {
    if !can_run() {
        return;
    }
    let mut host = Host::new(1);
    let prepared = tapswitch_tap::Config::new("k1".parse().unwrap()).owner(NOBODY).persistent(true);
    let made = host.namespace.enter(|| tapswitch_tap::Device::create(&prepared)).unwrap();
    drop(made.unwrap());
    let start = |port: &str| {
        let config = Config { listen: Vec::new(), ..config(&[port.to_owned()]) };
        let body = || {
            let nobody = rustix::fs::Uid::from_raw(NOBODY);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            start_here(config).map_err(|error| error.to_string())
        };
        host.namespace.enter(body).unwrap()
    };
    // The device is down: only a warning, as nobody asked for it to be up.
    assert_eq!(start("1=tap:k1"), Ok(()));
    let refused = start("1=tap:k1,mtu=1400").unwrap_err();
    assert!(refused.contains("k1") && refused.contains("not permitted"), "{refused}");
    host.netlink.set_up("k1").unwrap();
    host.netlink.set_mtu("k1", 1400).unwrap();
    assert_eq!(start("1=tap:k1,mtu=1400"), Ok(()), "it is as asked for");
    host.netlink.delete("k1").unwrap();
}

const NOBODY: u32 = 65_534;

/// A signal is handled while many ports are created.
#[test]
fn a_start_can_be_given_up_between_two_ports() {
    let folder = tempfile::tempdir().unwrap();
    let path = |number: usize| folder.path().join(format!("{number}.pcapng"));
    let specs: Vec<_> = (1..=9).map(|n| format!("{n}=pcapng:{}", path(n).display())).collect();
    let start = Switch::start(ports(&specs.iter().map(String::as_str).collect::<Vec<_>>()));
    let is_given_up = runtime().block_on(async {
        tokio::select! {
            biased;
            _ = start => false,
            () = tokio::task::yield_now() => true,
        }
    });
    assert!(is_given_up, "it made all ports first");
    let is_made = |number| {
        std::fs::read_dir(folder.path())
            .unwrap()
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with(&format!("{number}")))
    };
    assert!(is_made(1) && !is_made(9));
}
