//! Switches joined by a tunnel.

use std::net::IpAddr;
use std::process::Output;

use tapswitch_switch::report::{PortReport, TunnelReport};

use super::{
    Host, Running, config, has_dropped, introduce, join, ping, set_udp_segment, skip, udp, until,
};

/// Bytes of a train that a host sends at once.
const TRAIN: usize = 44 * 1400;
/// Port of the tunnel.
pub(crate) const TUNNEL: u32 = 9;
/// A VXLAN tunnel without its remote.
pub(crate) const VXLAN: &str = "vxlan:vni=42";

/// Two sites joined by a veth pair.
pub(crate) struct Underlay {
    pub(crate) sites: [Host; 2],
    is_ipv6: bool,
}

impl Underlay {
    pub(crate) fn new(is_ipv6: bool) -> Self {
        let mut sites = [11, 12].map(Host::new);
        let [near, far] = &mut sites;
        near.join(far, "eth0");
        Self::with(sites, is_ipv6)
    }

    /// Two sites that are already joined, each by its `eth0`.
    pub(crate) fn with(mut sites: [Host; 2], is_ipv6: bool) -> Self {
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

    /// The port of a tunnel such as [`VXLAN`] from one site to the other.
    pub(crate) fn tunnel(&self, at: usize, tunnel: &str, options: &str) -> String {
        let (local, remote, netns) = (self.ip(at), self.ip(1 - at), self.sites[at].name());
        format!("{TUNNEL}={tunnel},remote={remote},local={local},netns={netns}{options}")
            .replacen(":,", ":", 1)
    }
}

/// A switch at each site, each with a host behind port 1.
pub(crate) struct Fabric {
    pub(crate) switches: [Running; 2],
    pub(crate) hosts: Vec<Host>,
    pub(crate) underlay: Underlay,
}

impl Fabric {
    pub(crate) fn new(is_ipv6: bool, options: &str, mtu: u32) -> Self {
        Self::over(is_ipv6, VXLAN, options, mtu)
    }

    /// As [`Self::new`], with another kind of tunnel.
    pub(crate) fn over(is_ipv6: bool, tunnel: &str, options: &str, mtu: u32) -> Self {
        Self::on(Underlay::new(is_ipv6), tunnel, options, mtu)
    }

    /// As [`Self::over`], on an existing underlay.
    pub(crate) fn on(underlay: Underlay, tunnel: &str, options: &str, mtu: u32) -> Self {
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

    /// Throttles the path until the first host's port is paused, and then removes the limit: every
    /// packet must arrive, without a drop. The throttled path still takes a train now and then, as
    /// it would stall otherwise. Skipped with a message if paths cannot be throttled.
    pub(crate) fn overrun(&self) {
        let [a, b] = &self.hosts[..] else { unreachable!() };
        ping(a, b);
        let made = self.set_rate("add", "40mbit");
        if !made.status.success() {
            skip(&format!("no tbf: {made:?}"));
            return;
        }
        let (from, to) = (udp(a, a.ip(), 0), udp(b, b.ip(), 0));
        rustix::net::sockopt::set_socket_recv_buffer_size_force(&to, 64 << 20).unwrap();
        set_udp_segment(&from, 1400);
        from.set_nonblocking(true).unwrap();
        let mut trains = 0;
        until("the host's port waits for the tunnel", || {
            // An error is expected: the host's own socket is full.
            let sent = (0..4).map(|_| from.send_to(&[7; TRAIN], to.local_addr().unwrap()));
            trains += sent.filter(Result::is_ok).count();
            let waits = self.tunnel(0).0.pressure.holds_up;
            waits.iter().any(|wait| wait.port == "1" && wait.count > 0)
        });
        assert!(self.set_rate("change", "10gbit").status.success());
        let mut buf = [0; 2000];
        for at in 0..trains * (TRAIN / 1400) {
            let received = to.recv_from(&mut buf);
            assert_eq!(received.unwrap_or_else(|error| panic!("{at}: {error}")).0, 1400);
        }
        self.check_nothing_dropped();
    }

    /// Sets the rate of the first site's link, with a queue for the excess.
    fn set_rate(&self, how: &str, rate: &str) -> Output {
        let mut tc = self.underlay.sites[0].namespace.command("tc");
        let limits = ["burst", "100000", "limit", "20000000"];
        tc.args(["qdisc", how, "dev", "eth0", "root", "tbf", "rate", rate]).args(limits);
        tc.output().unwrap()
    }

    pub(crate) fn check_nothing_dropped(&self) {
        for switch in &self.switches {
            assert!(!has_dropped(&switch.ports()), "{:?}", switch.ports());
        }
    }
}
