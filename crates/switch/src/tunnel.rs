//! Tunnels behind ports.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tapswitch_datapath::DropReason;
use tapswitch_netlink::Namespace;
use tapswitch_openflow::PortState;
use tapswitch_tunnel::{
    Counters, GrePort, OpenError, Receiver, Refused, VxlanPort, has_address, overhead,
};
use tapswitch_wire::MacAddr;

use crate::PortSpec;
use crate::allowance::Allowance;
use crate::interface;
use crate::open_error::OpenPortError;
use crate::port_spec::{GreSpec, VxlanSpec};
use crate::report::TunnelReport;
use crate::rx::{GreRx, RxDevice, VxlanRx};
use crate::shed::{QueueingReport, Underlay};
use crate::tx::{GreTx, Takes, TxDevice, TxPort};

/// An open tunnel.
#[derive(Debug)]
pub(crate) struct Tunnel {
    port: Port,
    mtu: u32,
    mac: MacAddr,
    underlay: Underlay,
    /// The index of its namespace in the switch.
    pub(crate) namespace_index: usize,
    /// Why the remote is unreachable, by the last check.
    obstacle: Option<String>,
    /// Limits the log lines about that.
    lines: Allowance,
}

/// The kind of tunnel.
#[derive(Clone, Debug)]
enum Port {
    Vxlan(Arc<VxlanPort>),
    Gre(Arc<GrePort>),
}

impl Tunnel {
    /// Opens the VXLAN tunnel that `spec` describes.
    pub(crate) fn open_vxlan(spec: &PortSpec, vxlan: &VxlanSpec) -> Result<Self, OpenPortError> {
        let (port, namespace) = within(spec, || {
            let port = VxlanPort::open(&vxlan.config())?;
            check_ends(port.remote(), port.local().ip()).map(|()| port)
        })?;
        let VxlanSpec { remote, local, udp_port, vni, .. } = vxlan;
        let mac = mac((&spec.netns, remote, local, udp_port, vni.get()));
        Ok(Self::new(spec, Port::Vxlan(Arc::new(port)), mac, namespace))
    }

    /// Opens the GRE or ERSPAN tunnel that `spec` describes.
    pub(crate) fn open_gre(spec: &PortSpec, gre: &GreSpec) -> Result<Self, OpenPortError> {
        let (port, namespace) = within(spec, || {
            let port = GrePort::open(&gre.config())?;
            check_ends(port.remote(), port.local()).map(|()| port)
        })?;
        let mac = mac((&spec.netns, gre.remote, gre.local, gre.carrier));
        Ok(Self::new(spec, Port::Gre(Arc::new(port)), mac, namespace))
    }

    fn new(spec: &PortSpec, port: Port, mac: MacAddr, namespace: Namespace) -> Self {
        let fitting = port.fitting_mtu(spec);
        let mtu = spec.mtu.unwrap_or(fitting);
        if mtu > fitting {
            tracing::warn!(
                "port {spec}: the path to {} allows frames with at most {fitting} bytes of \
                 payload; longer ones will be dropped as oversize: set mtu={fitting}",
                port.remote()
            );
        }
        let underlay = Underlay::new(namespace, port.remote(), port.local_ip());
        let (obstacle, lines) = (None, Allowance::new(LINE_COUNT, SILENCE));
        Self { port, mtu, mac, underlay, namespace_index: 0, obstacle, lines }
    }

    /// Checks whether there is a route to the remote. `port` is the port's name for the log, and
    /// `has_address` whether the local address exists. Returns whether the state has changed.
    pub(crate) fn look(&mut self, port: &str, has_address: bool) -> bool {
        let obstacle = self.path_mtu(has_address).err();
        let has_changed = obstacle.is_some() != self.obstacle.is_some();
        self.obstacle = obstacle;
        if has_changed {
            self.tell(port);
        }
        has_changed
    }

    /// Logs the state of the route, at a limited rate.
    fn tell(&mut self, port: &str) {
        let remote = self.port.remote();
        match (&self.obstacle, self.lines.take()) {
            (Some(why), true) => tracing::warn!("port {port} is down: {why}"),
            (None, true) => tracing::info!("port {port} is up: there is a route to {remote} again"),
            (obstacle, false) => tracing::debug!("port {port}: route to {remote}: {obstacle:?}"),
        }
        if self.lines.was_last() {
            let time = SILENCE.as_secs();
            tracing::info!(
                "port {port}: its route keeps appearing and disappearing; further messages are \
                 suppressed for {time} s"
            );
        }
    }

    /// The port's OpenFlow link state. A tunnel has no link, and nothing reports whether the remote
    /// is alive: it is down while there is no route.
    pub(crate) fn state(&self) -> PortState {
        if self.obstacle.is_none() { PortState::LIVE } else { PortState::LINK_DOWN }
    }

    /// The local address.
    pub(crate) fn local_ip(&self) -> IpAddr {
        self.port.local_ip()
    }

    /// The current MTU of the path, or why there is none and the remedy. `has_address` is whether
    /// the local address exists.
    fn path_mtu(&self, has_address: bool) -> Result<u32, String> {
        let (local, remote) = (self.port.local_ip(), self.port.remote());
        if !has_address {
            return Err(format!(
                "its local address {local} is gone: add it to an interface of its namespace again \
                 (`ip address add`), or add the port again with another local="
            ));
        }
        self.port.path_mtu().map_err(|error| {
            format!(
                "there is no route to {remote} ({error}): add a route, or bring up the interface \
                 that the route uses (`ip route get {remote}` in the port's namespace)"
            )
        })
    }

    /// Largest payload in bytes: as configured, or what fits the path.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }

    pub(crate) fn mac(&self) -> MacAddr {
        self.mac
    }

    /// The namespace of its sockets.
    pub(crate) fn namespace(&self) -> &Namespace {
        self.underlay.namespace()
    }

    /// The offloads as text, for reports.
    pub(crate) fn offloads(&self) -> String {
        let words = match &self.port {
            Port::Vxlan(port) if port.sends_segments() => "udp_segment,udp_gro",
            Port::Vxlan(_) => "udp_gro",
            Port::Gre(_) => "none",
        };
        words.to_owned()
    }

    pub(crate) fn rx_device(&self) -> RxDevice {
        let mtu = self.mtu;
        match self.port.clone() {
            Port::Vxlan(port) => {
                let (receiver, booked) = (Box::new(Receiver::new(port)), Refused::default());
                RxDevice::Vxlan(VxlanRx { receiver, mtu, booked })
            }
            Port::Gre(port) => RxDevice::Gre(GreRx { port, mtu, booked: Refused::default() }),
        }
    }

    pub(crate) fn tx_port(&self) -> TxPort {
        let device = match self.port.clone() {
            Port::Vxlan(port) => TxDevice::Vxlan(port),
            Port::Gre(port) => TxDevice::Gre(GreTx { port, cut: None }),
        };
        TxPort::new(device, Takes::NOTHING)
    }

    /// Datagrams that the kernel dropped, mostly because the switch did not read them in time.
    pub(crate) fn ring_drops(&self) -> u64 {
        self.port.counters().dropped
    }

    /// The qdisc of the egress interface.
    pub(crate) fn queueing(&self) -> Option<QueueingReport> {
        self.underlay.report(self.port.counters().refused_below)
    }

    pub(crate) fn report(&self) -> TunnelReport {
        let counters = self.port.counters();
        let Counters { runt, malformed, foreign, congested, .. } = counters;
        let names = self.port.refusals().map(str::to_owned);
        let refused = names.into_iter().zip([runt, malformed, foreign, congested]);
        let local = self.local_ip();
        // If the namespace cannot be entered, the address is assumed to exist.
        let has_address = self.namespace().enter(|| has_address(local)).unwrap_or(true);
        let path_mtu = self.path_mtu(has_address);
        TunnelReport {
            remote: self.port.remote().to_string(),
            local: self.port.local(),
            id: self.port.id(),
            path_mtu: *path_mtu.as_ref().unwrap_or(&0),
            warning: path_mtu.err(),
            overhead: self.port.overhead(),
            receive_buffer: self.port.receive_buffer_len().unwrap_or(0),
            send_calls: counters.send_calls,
            sent: counters.sent,
            receive_calls: counters.receive_calls,
            received: counters.received,
            refused: refused.filter(|(_, count)| *count > 0).collect(),
            unreachable: counters.unreachable,
        }
    }
}

impl Port {
    /// The largest payload that fits the path, with the configured tags.
    fn fitting_mtu(&self, spec: &PortSpec) -> u32 {
        let path = self.path_mtu().unwrap_or(ETHERNET_MTU);
        let tags = spec.envelope.map_or(0, u32::from);
        path.saturating_sub(self.overhead() + tags)
    }

    fn overhead(&self) -> u32 {
        match self {
            Self::Vxlan(port) => overhead(port.remote()),
            Self::Gre(port) => port.carrier().overhead(port.remote()),
        }
    }

    fn path_mtu(&self) -> io::Result<u32> {
        match self {
            Self::Vxlan(port) => port.path_mtu(),
            Self::Gre(port) => port.path_mtu(),
        }
    }

    fn receive_buffer_len(&self) -> io::Result<usize> {
        match self {
            Self::Vxlan(port) => port.receive_buffer_len(),
            Self::Gre(port) => port.receive_buffer_len(),
        }
    }

    fn counters(&self) -> Counters {
        match self {
            Self::Vxlan(port) => port.counters(),
            Self::Gre(port) => port.counters(),
        }
    }

    fn remote(&self) -> IpAddr {
        match self {
            Self::Vxlan(port) => port.remote(),
            Self::Gre(port) => port.remote(),
        }
    }

    fn local_ip(&self) -> IpAddr {
        match self {
            Self::Vxlan(port) => port.local().ip(),
            Self::Gre(port) => port.local(),
        }
    }

    fn local(&self) -> String {
        match self {
            Self::Vxlan(port) => port.local().to_string(),
            Self::Gre(port) => port.local().to_string(),
        }
    }

    fn id(&self) -> Option<u32> {
        match self {
            Self::Vxlan(port) => Some(port.vni().get()),
            Self::Gre(port) => port.carrier().id(),
        }
    }

    /// The names of refusals: too short, not of the tunnel's kind, of another tunnel, and marked
    /// although the inner sender is not ECN-capable.
    fn refusals(&self) -> [&'static str; 4] {
        let (malformed, foreign) = match self {
            Self::Vxlan(_) => ("no_vni", "wrong_vni"),
            Self::Gre(port) if port.carrier().counts() => ("malformed", "wrong_session"),
            Self::Gre(_) => ("malformed", "wrong_key"),
        };
        ["runt", malformed, foreign, DropReason::OuterCongested.name()]
    }
}

/// Opens something in the port's namespace. Returns it with the namespace.
fn within<T: Send>(
    spec: &PortSpec,
    open: impl FnOnce() -> Result<T, OpenError> + Send,
) -> Result<(T, Namespace), OpenPortError> {
    let text = || spec.to_string();
    let (opened, namespace) = interface::namespace(spec)
        .and_then(|namespace| Ok((namespace.enter(open)?, namespace)))
        .map_err(|source| OpenPortError::Namespace { port: text(), source })?;
    let opened = opened.map_err(|source| OpenPortError::Tunnel { port: text(), source })?;
    Ok((opened, namespace))
}

/// Refuses a tunnel to itself, as all frames sent to it would be received again.
fn check_ends(remote: IpAddr, local: IpAddr) -> Result<(), OpenError> {
    let what = "is an address of this end, so the tunnel would loop back to itself; give the \
                address of the other end";
    if remote == local { Err(OpenError::Address { remote, what }) } else { Ok(()) }
}

/// The port's address: the same for the same tunnel at each start.
fn mac(tunnel: impl Hash) -> MacAddr {
    let mut hasher = DefaultHasher::new();
    tunnel.hash(&mut hasher);
    let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
    // Locally administered (IEEE 802-2014 §8.2.2).
    MacAddr([0x02, a, b, c, d, e])
}

/// Limit of log lines about an unstable route, and its period.
const LINE_COUNT: u32 = 16;
const SILENCE: Duration = Duration::from_secs(60);
/// The path's MTU if the kernel does not report one.
const ETHERNET_MTU: u32 = 1500;
