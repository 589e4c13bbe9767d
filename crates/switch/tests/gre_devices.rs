//! Tests of a switch with the kernel's own devices for GRE and ERSPAN.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

mod common;

use std::net::IpAddr;

use common::*;
use tapswitch_guest::{Rig, Series};

const LINUX_7_3: Rig = Rig::new(Series::V7_3).modules(&["tun", "veth", "ip_gre"]).programs(&["ip"]);

#[test]
fn a_host_behind_the_kernels_device_is_reached() {
    kernels_devices();
}

#[test]
fn a_host_behind_the_device_of_linux_7_3_is_reached() {
    LINUX_7_3.only("linux_7_3").test(kernels_devices);
}

/// The kernel's devices create and accept the same packets, if the modules are available.
fn kernels_devices() {
    if !can_run() {
        return;
    }
    let kinds: [(&str, &[&str], u32); 3] = [
        ("gre:key=42", &["gretap", "key", "42"], 1458),
        ("erspan:session=7,version=2", &["erspan", "seq", "key", "7", "erspan_ver", "1"], 1450),
        (
            "erspan:session=7,version=3",
            &["erspan", "seq", "key", "7", "erspan_ver", "2", "erspan_dir", "ingress"],
            1446,
        ),
    ];
    for (tunnel, device, mtu) in kinds {
        let mut underlay = Underlay::new(false);
        let mut host = Host::new(1);
        let tap = format!("1=tap:eth0,netns={},mtu={mtu}", host.name());
        let switch = Running::start(config(&[tap, underlay.tunnel(0, tunnel, "")]));
        switch.controller().apply(join(1, TUNNEL));
        host.add_address();
        let [local, remote] = [1, 0].map(|site| underlay.ip(site).to_string());
        let ends = ["local", &local, "remote", &remote];
        let args = [&["link", "add", "gt0", "type", device[0]], &ends[..], &device[1..]].concat();
        let made = underlay.run(1, "ip", &args);
        if !made.status.success() {
            let error = String::from_utf8_lossy(&made.stderr);
            assert_eq!(tapswitch_guest::inside(), None, "{error}");
            skip(&format!("no {} device: {error}", device[0]));
            return;
        }
        let far = &mut underlay.sites[1];
        far.netlink.set_mtu("gt0", mtu).unwrap();
        far.netlink.set_up("gt0").unwrap();
        let ip: IpAddr = [10, 0, 0, 2].into();
        assert!(underlay.run(1, "ip", &["addr", "flush", "dev", "gt0"]).status.success());
        underlay.sites[1].netlink.add_address("gt0", ip, 32).unwrap();
        let route = ["route", "add", "10.0.0.1/32", "dev", "gt0"];
        assert!(underlay.run(1, "ip", &route).status.success());
        ping_between(&host, host.ip(), &underlay.sites[1], ip);
        tcp_between(&host, &underlay.sites[1], ip, 5_000_000);
        tcp_between(&underlay.sites[1], &host, host.ip(), 5_000_000);
        assert!(!has_dropped(&switch.ports()), "{:?}", switch.ports());
        assert!(switch.port(TUNNEL).tunnel.unwrap().refused.is_empty());
    }
}
