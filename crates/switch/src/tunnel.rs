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

/// A tunnel that is open.
#[derive(Debug)]
pub(crate) struct Tunnel {
    port: Port,
    mtu: u32,
    mac: MacAddr,
    underlay: Underlay,
    /// Which of the switch's namespaces that is in.
    pub(crate) namespace_index: usize,
    /// Why nothing gets to the other end, as was seen last.
    obstacle: Option<String>,
    /// What may be logged of that.
    lines: Allowance,
}

/// What the frames are in.
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

    /// Looks whether there is a way to the other end of the port, which is called `port`, and whose
    /// address is there or not. Returns whether that is another answer than before.
    pub(crate) fn look(&mut self, port: &str, has_address: bool) -> bool {
        let obstacle = self.path_mtu(has_address).err();
        let has_changed = obstacle.is_some() != self.obstacle.is_some();
        self.obstacle = obstacle;
        if has_changed {
            self.tell(port);
        }
        has_changed
    }

    /// Logs whether there is a way, unless that has changed very often of late.
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

    /// How OpenFlow calls the state of its link. It has none of its own, and whether the other end
    /// is there nobody tells: it is down when no way leads there.
    pub(crate) fn state(&self) -> PortState {
        if self.obstacle.is_none() { PortState::LIVE } else { PortState::LINK_DOWN }
    }

    /// The address at this end.
    pub(crate) fn local_ip(&self) -> IpAddr {
        self.port.local_ip()
    }

    /// MTU of the path now, or why there is none and what helps. The address at this end is there,
    /// or is not.
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

    /// Largest payload in bytes: what was asked for, or what the path takes.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }

    pub(crate) fn mac(&self) -> MacAddr {
        self.mac
    }

    /// Where its sockets are.
    pub(crate) fn namespace(&self) -> &Namespace {
        self.underlay.namespace()
    }

    /// Offloads in words, for reports.
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

    /// Datagrams that the kernel dropped, most of them because the switch did not read them in
    /// time.
    pub(crate) fn ring_drops(&self) -> u64 {
        self.port.counters().dropped
    }

    /// What is in front of the interface by which its packets leave.
    pub(crate) fn queueing(&self) -> Option<QueueingReport> {
        self.underlay.report(self.port.counters().refused_below)
    }

    pub(crate) fn report(&self) -> TunnelReport {
        let counters = self.port.counters();
        let Counters { runt, malformed, foreign, congested, .. } = counters;
        let names = self.port.refusals().map(str::to_owned);
        let refused = names.into_iter().zip([runt, malformed, foreign, congested]);
        let local = self.local_ip();
        // Who cannot look knows no better than before.
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
    /// The largest payload that fits the path, beside the tags that were asked for.
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

    /// What it is called when a datagram is too short, is none of the tunnel's kind, is another
    /// tunnel's, and has a mark that what is in it cannot take.
    fn refusals(&self) -> [&'static str; 4] {
        let (malformed, foreign) = match self {
            Self::Vxlan(_) => ("no_vni", "wrong_vni"),
            Self::Gre(port) if port.carrier().counts() => ("malformed", "wrong_session"),
            Self::Gre(_) => ("malformed", "wrong_key"),
        };
        ["runt", malformed, foreign, DropReason::OuterCongested.name()]
    }
}

/// Opens something in the namespace of the port, and answers which that is.
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

/// That the tunnel does not lead to itself: what is sent there would come in again.
fn check_ends(remote: IpAddr, local: IpAddr) -> Result<(), OpenError> {
    let what = "is an address of this end, so the tunnel would loop back to itself; give the \
                address of the other end";
    if remote == local { Err(OpenError::Address { remote, what }) } else { Ok(()) }
}

/// The same for the same tunnel at each start.
fn mac(tunnel: impl Hash) -> MacAddr {
    let mut hasher = DefaultHasher::new();
    tunnel.hash(&mut hasher);
    let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
    // Locally administered (IEEE 802-2014 §8.2.2).
    MacAddr([0x02, a, b, c, d, e])
}

/// Lines of the log about a way that comes and goes, and the time that they are for.
const LINE_COUNT: u32 = 16;
const SILENCE: Duration = Duration::from_secs(60);
/// Taken for the path's where the kernel does not tell.
const ETHERNET_MTU: u32 = 1500;
