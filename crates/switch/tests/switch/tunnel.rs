//! Tests of switches joined by tunnels, and of a switch with the kernel's own vxlan device.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::net::{IpAddr, UdpSocket};
use std::process::Command;

use crate::common::*;
use tapswitch_openflow::{PortNo, PortState, PortStatus};
use tapswitch_wire::{EtherType, NetHeader, Tag};

#[test]
fn trains_are_trains_at_the_other_end() {
    if !can_run() {
        return;
    }
    for (is_ipv6, mtu) in [(false, 1450), (true, 1430)] {
        let fabric = Fabric::new(is_ipv6, "", mtu);
        let [a, b] = &fabric.hosts[..] else { unreachable!() };
        ping(a, b);
        tcp(a, b, 20_000_000);
        tcp(b, a, 20_000_000);
        fabric.check_nothing_dropped();
        for at in [0, 1] {
            let (port, tunnel) = fabric.tunnel(at);
            assert_eq!((port.kind.as_str(), port.mtu, port.envelope), ("vxlan", mtu, 0));
            assert_eq!((tunnel.path_mtu, tunnel.id), (1500, Some(42)));
            assert!(tunnel.receive_buffer >= 4 << 20, "{tunnel:?}");
            assert!(tunnel.sent > 13_000, "{tunnel:?}");
            assert!(tunnel.sent > 5 * tunnel.send_calls, "one call, many packets: {tunnel:?}");
            assert!(tunnel.received > 4 * tunnel.receive_calls, "and back: {tunnel:?}");
            assert!(port.rx.packets > 4 * port.rx.frames, "trains again: {port:?}");
            let host = fabric.switches[at].port(1);
            assert!(host.tx.packets > 4 * host.tx.frames, "to the host: {host:?}");
        }
    }
}

#[test]
fn one_train_of_64_kib_arrives_in_few_frames() {
    if !can_run() {
        return;
    }
    let fabric = Fabric::new(false, "", 1450);
    let [a, b] = &fabric.hosts[..] else { unreachable!() };
    ping(a, b);
    let (from, to) = (udp(a, a.ip(), 0), udp(b, b.ip(), 0));
    let before = fabric.switches[1].port(TUNNEL).rx;
    set_udp_segment(&from, 1400);
    let sent = noise(44 * 1400 + 700);
    from.send_to(&sent, to.local_addr().unwrap()).unwrap();
    let (mut received, mut buf) = (Vec::new(), [0; 2000]);
    while received.len() < sent.len() {
        let (len, _) = to.recv_from(&mut buf).unwrap();
        assert!(len == 1400 || len == 700, "{len}");
        received.extend_from_slice(&buf[..len]);
    }
    assert!(received == sent);
    until("the worker has counted", || {
        fabric.switches[1].port(TUNNEL).rx.packets - before.packets == 45
    });
    let after = fabric.switches[1].port(TUNNEL).rx;
    assert!(after.frames - before.frames <= 3, "45 packets: {before:?} {after:?}");
    fabric.check_nothing_dropped();
}

/// More than a worker reads in one call: epoll does not report frames left in the switch's memory.
#[test]
fn the_last_of_many_trains_arrives_though_nothing_follows() {
    if !can_run() {
        return;
    }
    let fabric = Fabric::new(false, "", 1450);
    let [a, b] = &fabric.hosts[..] else { unreachable!() };
    ping(a, b);
    let (from, to) = (udp(a, a.ip(), 0), udp(b, b.ip(), 0));
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&to, 64 << 20).unwrap();
    set_udp_segment(&from, 1000);
    for round in 0..50 {
        let lens: Vec<usize> = (0..7).map(|at| 37 + (round + at * 5) % 9).collect();
        for len in &lens {
            from.send_to(&vec![0; len * 1000], to.local_addr().unwrap()).unwrap();
        }
        let mut buf = [0; 2000];
        for at in 0..lens.iter().sum() {
            let received = to.recv_from(&mut buf);
            assert_eq!(received.unwrap_or_else(|e| panic!("{at} of {lens:?}: {e}")).0, 1000);
        }
    }
    fabric.check_nothing_dropped();
}

/// The path takes less than the host sends: the host's port waits, and no frame is lost.
#[test]
fn a_slow_path_makes_the_ingress_wait() {
    if !can_run() {
        return;
    }
    Fabric::new(false, "", 1450).overrun();
}

#[test]
fn without_outer_checksums_and_trains_all_arrives_too() {
    if !can_run() {
        return;
    }
    let fabric = Fabric::new(false, ",csum=off,gro=off", 1450);
    let [a, b] = &fabric.hosts[..] else { unreachable!() };
    ping(a, b);
    tcp(a, b, 2_000_000);
    tcp(b, a, 2_000_000);
    fabric.check_nothing_dropped();
    let (port, _) = fabric.tunnel(0);
    assert_eq!((port.rx.packets, port.offloads.as_str()), (port.rx.frames, "udp_gro"));
}

#[test]
fn what_does_not_fit_the_path_is_dropped_by_name() {
    if !can_run() {
        return;
    }
    // By default the port enforces the limit; with a larger mtu=, the kernel reports it.
    for options in ["", ",mtu=1500"] {
        let fabric = Fabric::new(false, options, 1500);
        let [a, b] = &fabric.hosts[..] else { unreachable!() };
        ping(a, b);
        let (from, to) = (udp(a, a.ip(), 0), udp(b, b.ip(), 0));
        from.send_to(&[0; 1472], to.local_addr().unwrap()).unwrap();
        until("a drop", || fabric.switches[0].drops(TUNNEL, "oversize") == 1);
        from.send_to(&[0; 1422], to.local_addr().unwrap()).unwrap();
        assert_eq!(to.recv_from(&mut [0; 2000]).unwrap().0, 1422, "the next one passes");
    }
}

/// The path takes less than the port does: of a train that the kernel cuts, as of packets.
#[test]
fn of_a_train_too_long_for_the_path_a_shorter_last_packet_passes() {
    if !can_run() {
        return;
    }
    let fabric = Fabric::new(false, ",mtu=1500", 1500);
    let [a, b] = &fabric.hosts[..] else { unreachable!() };
    ping(a, b);
    let (from, to) = (udp(a, a.ip(), 0), udp(b, b.ip(), 0));
    let before = fabric.switches[0].port(TUNNEL).tx.packets;
    set_udp_segment(&from, 1472);
    for (round, last) in [(1, 700), (2, 800)] {
        from.send_to(&vec![0; 3 * 1472 + last], to.local_addr().unwrap()).unwrap();
        assert_eq!(to.recv_from(&mut [0; 2000]).unwrap().0, last);
        until("the rest is dropped", || fabric.switches[0].drops(TUNNEL, "oversize") == round);
    }
    let sent = fabric.switches[0].port(TUNNEL).tx.packets - before;
    assert_eq!(sent, 2, "one packet of each train");
}

#[test]
fn tags_pass_as_they_are() {
    if !can_run() {
        return;
    }
    let mut fabric = Fabric::new(false, "", 1450);
    let (from, to) = (fabric.hosts[0].mac(), fabric.hosts[1].mac());
    let captures = [0, 1].map(|at| Capture::open(&fabric.hosts[at]));
    let tag = Tag::new(EtherType::VLAN, 0xe064);
    let service = Tag::new(EtherType::SERVICE_VLAN, 0x00c8);
    for tags in [&[][..], &[tag], &[service, tag]] {
        let sent = frame(to, from, tags, 300);
        captures[0].send(&NetHeader::PLAIN, &sent);
        let (header, received) = captures[1].receive(|frame| frame.starts_with(&to.0));
        assert_eq!((header, received), (NetHeader::PLAIN, sent), "{tags:?}");
    }
}

#[test]
fn a_tunnel_outlives_its_path() {
    if !can_run() {
        return;
    }
    let mut fabric = Fabric::new(false, "", 1450);
    ping(&fabric.hosts[0], &fabric.hosts[1]);
    fabric.underlay.sites[0].netlink.set_down("eth0").unwrap();
    let [a, b] = &fabric.hosts[..] else { unreachable!() };
    let (from, to) = (udp(a, a.ip(), 0), udp(b, b.ip(), 0));
    until("a frame is dropped by name", || {
        from.send_to(&[1; 100], to.local_addr().unwrap()).unwrap();
        let switch = &fabric.switches[0];
        switch.drops(TUNNEL, "egress_rejected") + switch.drops(TUNNEL, "port_down") > 0
    });
    fabric.underlay.sites[0].netlink.set_up("eth0").unwrap();
    ping(&fabric.hosts[0], &fabric.hosts[1]);
    tcp(&fabric.hosts[1], &fabric.hosts[0], 1_000_000);
}

#[test]
fn the_mtu_of_a_path_is_what_it_is_now() {
    if !can_run() {
        return;
    }
    for tunnel in ["vxlan:vni=42", "gre:key=42"] {
        let mut fabric = Fabric::over(false, tunnel, "", 1450);
        ping(&fabric.hosts[0], &fabric.hosts[1]);
        // The report is from the last check, which changes trigger.
        let comes_to = |fabric: &Fabric, mtu| {
            until(&format!("{tunnel}: {mtu}"), || fabric.tunnel(0).1.path_mtu == mtu);
        };
        fabric.underlay.sites[0].netlink.set_down("eth0").unwrap();
        comes_to(&fabric, 0);
        fabric.underlay.sites[0].netlink.set_up("eth0").unwrap();
        comes_to(&fabric, 1500);
        fabric.underlay.sites[0].netlink.set_mtu("eth0", 1400).unwrap();
        comes_to(&fabric, 1400);
    }
}

/// Rules that watch the port use another path; controllers and `show` are notified.
#[test]
fn a_tunnel_is_down_while_no_way_leads_to_its_other_end() {
    if !can_run() {
        return;
    }
    for (is_ipv6, tunnel, mtu) in [(false, "vxlan:vni=42", 1450), (true, "gre:key=42", 1434)] {
        let mut fabric = Fabric::over(is_ipv6, tunnel, "", mtu);
        let (network, len) = if is_ipv6 { ("fd00::/64", 64) } else { ("10.0.0.0/24", 24) };
        let address = format!("{}/{len}", fabric.underlay.ip(0));
        let (route, address) = (format!("route X {network}"), format!("addr X {address}"));
        fabric.obstruct([&route, "del", "add"], "there is no route to");
        fabric.obstruct([&address, "del", "add"], "its local address");
        if !is_ipv6 {
            fabric.obstruct(["link set X", "down", "up"], "there is no route to");
        }
    }
}

/// The switch may start before the routing daemon.
#[test]
fn a_tunnel_waits_for_its_way_from_the_start() {
    if !can_run() {
        return;
    }
    for (is_ipv6, tunnel, mtu) in [(false, "vxlan:vni=42", 1450), (true, "gre:key=42", 1434)] {
        let (network, len) = if is_ipv6 { ("fd00::/64", 64) } else { ("10.0.0.0/24", 24) };
        let address = format!("addr X {}/{len}", Underlay::new(is_ipv6).ip(0));
        let route = format!("route X {network}");
        for (command, why) in [(route, "there is no route to"), (address, "its local address")] {
            let underlay = Underlay::new(is_ipv6);
            set(&underlay, &command, "del");
            let fabric = Fabric::on(underlay, tunnel, "", mtu);
            let (port, report) = fabric.tunnel(0);
            assert_eq!((port.state.as_str(), report.path_mtu), ("no-link", 0), "{command}");
            let warning = report.warning.unwrap();
            assert!(warning.contains(why), "{warning}");
            set(&fabric.underlay, &command, "add");
            until("the tunnel is up", || fabric.tunnel(0).0.state == "up");
            let (port, report) = fabric.tunnel(0);
            assert_eq!((port.mtu, report.path_mtu), (fabric.tunnel(1).0.mtu, 1500));
            assert_eq!(report.warning, None);
            let [a, b] = &fabric.hosts[..] else { unreachable!() };
            ping(a, b);
            tcp(b, a, 1_000_000);
        }
    }
}

/// A routing daemon may have installed a route that refuses packets until it knows a better one.
#[test]
fn a_tunnel_waits_while_its_route_refuses_packets() {
    if !can_run() {
        return;
    }
    let trials = [
        (false, "vxlan:vni=42", 1450, "blackhole"),
        (false, "gre:key=42", 1458, "unreachable"),
        (true, "vxlan:vni=42", 1430, "prohibit"),
        (true, "gre:key=42", 1434, "blackhole"),
    ];
    for (is_ipv6, tunnel, mtu, kind) in trials {
        let underlay = Underlay::new(is_ipv6);
        let family = if is_ipv6 { "-6" } else { "-4" };
        let remote = underlay.ip(1).to_string();
        let set = |underlay: &Underlay, word| {
            let output = underlay.run(0, "ip", &[family, "route", word, kind, &remote]);
            assert!(output.status.success(), "{output:?}");
        };
        set(&underlay, "add");
        let fabric = Fabric::on(underlay, tunnel, "", mtu);
        let is_down = || {
            let (port, report) = fabric.tunnel(0);
            let is_told = report.warning.is_some_and(|why| why.contains(kind));
            port.state == "no-link" && is_told
        };
        assert!(is_down(), "{:?}", fabric.tunnel(0));
        set(&fabric.underlay, "del");
        until("the tunnel is up", || fabric.tunnel(0).0.state == "up");
        let [a, b] = &fabric.hosts[..] else { unreachable!() };
        ping(a, b);
        set(&fabric.underlay, "add");
        until("the tunnel is down again", is_down);
    }
}

/// The local address is the route's preferred source, once there is a route.
#[test]
fn a_tunnel_that_waits_for_its_way_has_no_address_before() {
    if !can_run() {
        return;
    }
    let underlay = Underlay::new(false);
    let local = format!(",local={}", underlay.ip(0));
    set(&underlay, "route X 10.0.0.0/24", "del");
    let switch = Running::start(config(&[underlay.tunnel(0, VXLAN, "").replace(&local, "")]));
    let tunnel = |switch: &Running| switch.port(TUNNEL).tunnel.unwrap().local;
    assert_eq!(tunnel(&switch), "-");
    set(&underlay, "route X 10.0.0.0/24", "add");
    until("the tunnel is up", || switch.port(TUNNEL).state == "up");
    assert_eq!(tunnel(&switch), format!("{}:4789", underlay.ip(0)));
}

/// Meanwhile its frames are dropped by name, with a remedy. It can be removed, and added again.
#[test]
fn a_tunnel_that_waits_for_its_way_drops_by_name_and_can_be_removed() {
    if !can_run() {
        return;
    }
    let underlay = Underlay::new(false);
    set(&underlay, "route X 10.0.0.0/24", "del");
    let fabric = Fabric::on(underlay, VXLAN, "", 1450);
    let [a, b] = &fabric.hosts[..] else { unreachable!() };
    let switch = &fabric.switches[0];
    let from = udp(a, a.ip(), 0);
    from.send_to(&[1; 100], (b.ip(), 9)).unwrap();
    until("a drop", || switch.drops(TUNNEL, "port_down") > 0);
    let drops = runtime().block_on(switch.handle().drops()).unwrap();
    let drop = drops.iter().find(|drop| drop.reason == "port_down").unwrap();
    assert_eq!(drop.remedy, fabric.tunnel(0).1.warning);
    runtime().block_on(switch.handle().remove_port(PortNo(TUNNEL))).unwrap();
    let again = fabric.underlay.tunnel(0, VXLAN, "").parse().unwrap();
    runtime().block_on(switch.handle().add_port(again)).unwrap();
    assert_eq!(fabric.tunnel(0).0.state, "no-link");
    set(&fabric.underlay, "route X 10.0.0.0/24", "add");
    until("the tunnel is up", || fabric.tunnel(0).0.state == "up");
    ping(a, b);
    runtime().block_on(switch.handle().remove_port(PortNo(TUNNEL))).unwrap();
    switch.check_books();
}

/// Runs a command of ip(8) on the first site's uplink, with `word` in place of the X.
fn set(underlay: &Underlay, command: &str, word: &str) {
    let command = format!("{} dev eth0", command.replace('X', word));
    let words: Vec<_> = command.split(' ').collect();
    let output = underlay.run(0, "ip", &words);
    assert!(output.status.success(), "{command}: {output:?}");
}

impl Fabric {
    /// Removes something from the first site and restores it, by an ip(8) command with one word or
    /// the other in place of the X. Meanwhile the tunnel is down, with this reason.
    fn obstruct(&mut self, [command, away, back]: [&str; 3], why: &str) {
        ping(&self.hosts[0], &self.hosts[1]);
        let mut controller = self.switches[0].controller();
        let is_down = |is_down| {
            move |status: &PortStatus| {
                let state = status.desc.state;
                status.desc.port_no == PortNo(TUNNEL)
                    && state.contains(PortState::LINK_DOWN) == is_down
            }
        };
        set(&self.underlay, command, away);
        controller.port_status(is_down(true));
        let (port, tunnel) = self.tunnel(0);
        assert_eq!((port.state.as_str(), tunnel.path_mtu), ("no-link", 0), "{command}");
        let warning = tunnel.warning.unwrap();
        assert!(warning.contains(why), "{warning}");
        let (from, to) = (udp(&self.hosts[0], self.hosts[0].ip(), 0), self.hosts[1].ip());
        let before = self.switches[0].drops(TUNNEL, "port_down");
        from.send_to(&[1; 100], (to, 9)).unwrap();
        until("a drop", || self.switches[0].drops(TUNNEL, "port_down") > before);
        let drops = runtime().block_on(self.switches[0].handle().drops()).unwrap();
        let drop = drops.iter().find(|drop| drop.reason == "port_down").unwrap();
        assert_eq!(drop.remedy.as_ref(), Some(&warning));
        set(&self.underlay, command, back);
        controller.port_status(is_down(false));
        let (port, tunnel) = self.tunnel(0);
        assert_eq!((port.state.as_str(), tunnel.path_mtu, tunnel.warning), ("up", 1500, None));
    }
}

/// The kernel's device creates and accepts the same datagrams.
#[test]
fn a_host_behind_the_kernels_vxlan_device_is_reached() {
    if !can_run() {
        return;
    }
    for (is_ipv6, csum) in [(false, "udpcsum"), (false, "noudpcsum"), (true, "udpcsum")] {
        let mut underlay = Underlay::new(is_ipv6);
        let mtu = if is_ipv6 { 1430 } else { 1450 };
        let mut host = Host::new(1);
        let tap = format!("1=tap:eth0,netns={},mtu={mtu}", host.name());
        let switch = Running::start(config(&[tap, underlay.tunnel(0, VXLAN, "")]));
        switch.controller().apply(join(1, TUNNEL));
        host.add_address();
        let [local, remote] = [1, 0].map(|site| underlay.ip(site).to_string());
        let device = ["link", "add", "vx0", "type", "vxlan", "id", "42", "dstport", "4789"];
        let ends = ["local", &local, "remote", &remote, csum];
        let far = &mut underlay.sites[1];
        let made = far.namespace.command("ip").args(device).args(ends).output();
        if !made.as_ref().is_ok_and(|output| output.status.success()) {
            skip(&format!("no vxlan device: {made:?}"));
            return;
        }
        far.netlink.set_mtu("vx0", mtu).unwrap();
        far.netlink.set_up("vx0").unwrap();
        let ip: IpAddr = [10, 0, 0, 2].into();
        // The remote host has a network of its own, and the underlay's address would answer for it.
        run(far.namespace.command("ip").args(["addr", "flush", "dev", "vx0"]));
        far.netlink.add_address("vx0", ip, 32).unwrap();
        run(far.namespace.command("ip").args(["route", "add", "10.0.0.1/32", "dev", "vx0"]));
        ping_between(&host, host.ip(), &underlay.sites[1], ip);
        tcp_between(&host, &underlay.sites[1], ip, 10_000_000);
        tcp_between(&underlay.sites[1], &host, host.ip(), 10_000_000);
        let port = switch.port(TUNNEL);
        assert!(!has_dropped(&switch.ports()), "{:?}", switch.ports());
        assert!(port.rx.packets > 2 * port.rx.frames, "trains are made of it: {port:?}");
        assert!(switch.port(TUNNEL).tunnel.unwrap().refused.is_empty());
    }
}

/// The qdisc cuts trains, takes some of their packets and drops the others, without an error.
#[test]
fn what_is_shed_under_a_tunnel_is_told() {
    if !can_run() {
        return;
    }
    let fabric = Fabric::new(false, "", 1450);
    let [a, b] = &fabric.hosts[..] else { unreachable!() };
    ping(a, b);
    let slow = ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "20mbit"];
    let small = ["burst", "1600", "limit", "12000"];
    let uplink = &fabric.underlay.sites[0].namespace;
    let outcome = uplink.command("tc").args(slow).args(small).output();
    if !outcome.is_ok_and(|output| output.status.success()) {
        skip("no tc, or no tbf in this kernel");
        return;
    }
    let before = fabric.switches[0].port(TUNNEL).queueing.unwrap();
    assert_eq!((before.qdisc.as_str(), before.shed), ("tbf", 0));
    tcp(a, b, 1_000_000);
    let port = fabric.switches[0].port(TUNNEL);
    assert!(port.queueing.as_ref().unwrap().shed > 0, "{port:?}");
}

#[test]
fn what_a_tunnel_refuses_is_dropped_by_name() {
    if !can_run() {
        return;
    }
    let underlay = Underlay::new(false);
    let host = Host::new(1);
    let tap = format!("1=tap:eth0,netns={}", host.name());
    let switch = Running::start(config(&[tap, underlay.tunnel(0, VXLAN, "")]));
    switch.controller().apply(join(1, TUNNEL));
    let (from, to) = (underlay.ip(1), (underlay.ip(0), 4789));
    let vni = |vni: u8, flags: u8| [flags, 0, 0, 0, 0, 0, vni, 0];
    let mut packet = [0; 14 + 20];
    (packet[12], packet[14], packet[17]) = (8, 0x45, 20);
    let stranger =
        underlay.sites[1].namespace.enter(|| UdpSocket::bind((from, 0))).unwrap().unwrap();
    let send = |bytes: &[u8]| assert_eq!(stranger.send_to(bytes, to).unwrap(), bytes.len());
    send(&[8; 9]);
    send(&[&vni(42, 0)[..], &packet].concat());
    send(&[&vni(43, 8)[..], &packet].concat());
    send(&[&vni(43, 8)[..], &packet].concat());
    rustix::net::sockopt::set_ip_tos(&stranger, 3).unwrap();
    send(&[&vni(42, 8)[..], &packet].concat());
    let drops =
        [("truncated", 1), ("not_encapsulated", 1), ("wrong_tunnel", 2), ("outer_congested", 1)];
    for (reason, count) in drops {
        until(reason, || switch.drops(TUNNEL, reason) == count);
    }
    let port = switch.port(TUNNEL);
    assert_eq!((port.rx.frames, port.rx.bytes), (5, 0), "{port:?}");
    let refused = [("runt", 1), ("no_vni", 1), ("wrong_vni", 2), ("outer_congested", 1)];
    let told = port.tunnel.unwrap().refused;
    assert_eq!(told, refused.map(|(reason, count)| (reason.to_owned(), count)).into());
    switch.check_books();
}

#[test]
fn a_switch_with_two_tunnels_that_the_kernel_cannot_tell_apart_does_not_start() {
    let ports = ["1=vxlan:remote=127.0.0.2,vni=1", "2=vxlan:remote=127.0.0.2,vni=2"];
    let error = start_here(config(&ports.map(str::to_owned))).unwrap_err().to_string();
    assert!(error.contains("give one of them another port="), "{error}");
    let nowhere = ["1=vxlan:remote=127.0.0.2,vni=1,local=192.0.2.9".to_owned()];
    let waiting = Running::start(config(&nowhere)).port(1);
    let warning = waiting.tunnel.unwrap().warning.unwrap();
    assert!(warning.contains("192.0.2.9") && warning.contains("`ip address add`"), "{warning}");
    for own in ["127.0.0.1", "::1"] {
        let itself = format!("1=vxlan:remote={own},vni=1");
        let error = start_here(config(&[itself])).unwrap_err().to_string();
        assert!(error.contains(own) && error.contains("an address of this end"), "{error}");
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
