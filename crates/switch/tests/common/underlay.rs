//! Switches that are joined by a tunnel.

use std::net::IpAddr;
use std::process::Output;

use tapswitch_switch::report::{PortReport, TunnelReport};

use super::{
    Host, Running, config, has_dropped, introduce, join, ping, set_udp_segment, skip, udp, until,
};

/// Port of the tunnel.
pub(crate) const TUNNEL: u32 = 9;
/// A tunnel by VXLAN, but for where it leads.
pub(crate) const VXLAN: &str = "vxlan:vni=42";

/// Two sites that are joined by a wire.
pub(crate) struct Underlay {
    pub(crate) sites: [Host; 2],
    is_ipv6: bool,
}

impl Underlay {
    pub(crate) fn new(is_ipv6: bool) -> Self {
        let mut sites = [11, 12].map(Host::new);
        let [near, far] = &mut sites;
        near.join(far, "eth0");
        for site in &mut sites {
            if is_ipv6 { site.add_address6() } else { site.add_address() }
        }
        let underlay = Self { sites, is_ipv6 };
        until("the sites can talk", || {
            let local = underlay.ip(0);
            let bind = || std::net::UdpSocket::bind((local, 0)).is_ok();
            underlay.sites[0].namespace.enter(bind).unwrap()
        });
        underlay
    }

    pub(crate) fn ip(&self, site: usize) -> IpAddr {
        let site = &self.sites[site];
        if self.is_ipv6 { site.ip6() } else { site.ip() }
    }

    /// Runs a program in the namespace of a site.
    pub(crate) fn run(&self, site: usize, program: &str, args: &[&str]) -> Output {
        self.sites[site].namespace.command(program).args(args).output().unwrap()
    }

    /// The port of a tunnel such as [`VXLAN`] at one site to the other.
    pub(crate) fn tunnel(&self, at: usize, tunnel: &str, options: &str) -> String {
        let (local, remote, netns) = (self.ip(at), self.ip(1 - at), self.sites[at].name());
        format!("{TUNNEL}={tunnel},remote={remote},local={local},netns={netns}{options}")
            .replacen(":,", ":", 1)
    }
}

/// A switch at each site, with a host of its own behind port 1.
pub(crate) struct Fabric {
    pub(crate) switches: [Running; 2],
    pub(crate) hosts: Vec<Host>,
    pub(crate) underlay: Underlay,
}

impl Fabric {
    pub(crate) fn new(is_ipv6: bool, options: &str, mtu: u32) -> Self {
        Self::over(is_ipv6, VXLAN, options, mtu)
    }

    /// The same by another kind of tunnel.
    pub(crate) fn over(is_ipv6: bool, tunnel: &str, options: &str, mtu: u32) -> Self {
        let underlay = Underlay::new(is_ipv6);
        let mut hosts: Vec<_> = (1..=2).map(Host::new).collect();
        let switches = [0, 1].map(|at| {
            let tap = format!("1=tap:eth0,netns={},mtu={mtu}", hosts[at].name());
            Running::start(config(&[tap, underlay.tunnel(at, tunnel, options)]))
        });
        hosts.iter_mut().for_each(Host::add_address);
        introduce(&mut hosts);
        for switch in &switches {
            switch.controller().apply(join(1, TUNNEL));
        }
        Self { switches, hosts, underlay }
    }

    pub(crate) fn tunnel(&self, at: usize) -> (PortReport, TunnelReport) {
        let port = self.switches[at].port(TUNNEL);
        let tunnel = port.tunnel.clone().unwrap();
        (port, tunnel)
    }

    /// Makes the path take less than the first host sends, and has `trains` trains go through, all
    /// packets of which must arrive, without a drop. `None`, said loudly, where paths cannot be
    /// made slow; else how the tunnel did.
    pub(crate) fn overrun(&self, trains: usize) -> Option<PortReport> {
        let [a, b] = &self.hosts[..] else { unreachable!() };
        ping(a, b);
        let qdisc = ["tbf", "rate", "200mbit", "burst", "100000", "limit", "20000000"];
        let mut tc = self.underlay.sites[0].namespace.command("tc");
        let made = tc.args(["qdisc", "add", "dev", "eth0", "root"]).args(qdisc).output();
        if !made.as_ref().is_ok_and(|output| output.status.success()) {
            skip(&format!("no tbf: {made:?}"));
            return None;
        }
        let (from, to) = (udp(a, a.ip(), 0), udp(b, b.ip(), 0));
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&to, 64 << 20).unwrap();
        set_udp_segment(&from, 1400);
        for _ in 0..trains {
            from.send_to(&[7; 44 * 1400], to.local_addr().unwrap()).unwrap();
        }
        let mut buf = [0; 2000];
        for at in 0..trains * 44 {
            let received = to.recv_from(&mut buf);
            assert_eq!(received.unwrap_or_else(|error| panic!("{at}: {error}")).0, 1400);
        }
        let (tunnel, tap) = (self.tunnel(0).0, self.switches[0].port(1));
        assert!(tunnel.drops.is_empty() && tap.drops.is_empty(), "{tunnel:?} {tap:?}");
        Some(tunnel)
    }

    pub(crate) fn check_nothing_dropped(&self) {
        for switch in &self.switches {
            assert!(!has_dropped(&switch.ports()), "{:?}", switch.ports());
        }
    }
}
