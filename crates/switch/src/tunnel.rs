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
    Counters, GrePort, OpenError, Probe, Receiver, Refused, VxlanPort, overhead,
};
use tapswitch_wire::MacAddr;

use crate::PortSpec;
use crate::allowance::Allowance;
use crate::inquiry::Inquiry;
use crate::interface;
use crate::open_error::OpenPortError;
use crate::port_spec::{GreSpec, VxlanSpec};
use crate::report::TunnelReport;
use crate::rx::{GreRx, RxDevice, VxlanRx};
use crate::shed::{QueueingReport, Underlay};
use crate::tx::{GreTx, Takes, TxDevice, TxPort};

/// A tunnel. It is opened once there is a path to its remote end, and stays open; so the switch may
/// start before the routing daemon. Opening it takes a thread in its namespace, so whether there is
/// a path is asked first, which takes none.
#[derive(Debug)]
pub(crate) struct Tunnel {
    spec: PortSpec,
    kind: Kind,
    open: Option<Open>,
    mtu: u32,
    mac: MacAddr,
    namespace: Namespace,
    probe: Probe,
    /// Number of the watch on the namespace.
    pub(crate) namespace_index: usize,
    /// MTU of the path, or why there is none and the remedy, as of the last check.
    path: Result<u32, String>,
    /// Limits log lines about the path.
    lines: Allowance,
}

/// Parameters of a tunnel.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Vxlan(VxlanSpec),
    Gre(GreSpec),
}

/// State of an open tunnel.
#[derive(Debug)]
struct Open {
    port: Port,
    underlay: Underlay,
}

/// The kind of tunnel.
#[derive(Clone, Debug)]
enum Port {
    Vxlan(Arc<VxlanPort>),
    Gre(Arc<GrePort>),
}

/// Result of a check of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Whether there is a path has not changed.
    Same,
    /// The path has appeared or disappeared.
    Changed,
    /// The tunnel has been opened: its receivers and transmit side are available.
    Opened,
}

impl Tunnel {
    /// Opens the tunnel of `spec`, or defers that until there is a path.
    pub(crate) fn open(spec: &PortSpec, kind: Kind) -> Result<Self, OpenPortError> {
        let port = || spec.to_string();
        let lost = |source| OpenPortError::Namespace { port: port(), source };
        let namespace = interface::namespace(spec).map_err(lost)?;
        let probe = namespace.enter(|| kind.probe()).map_err(lost)?;
        let probe = probe.map_err(|source| OpenPortError::Tunnel { port: port(), source })?;
        let mut tunnel = Self {
            spec: spec.clone(),
            mtu: 0,
            mac: kind.mac(spec),
            kind,
            open: None,
            namespace,
            probe,
            namespace_index: 0,
            path: Ok(0),
            lines: Allowance::new(LINE_COUNT, SILENCE),
        };
        tunnel.mtu = spec.mtu.unwrap_or_else(|| tunnel.fitting_mtu(ETHERNET_MTU));
        match tunnel.try_open()? {
            Ok(()) => tunnel.path = tunnel.path_mtu(),
            Err(why) => {
                tunnel.path = Err(why);
                tunnel.tell();
            }
        }
        Ok(tunnel)
    }

    /// Opens it if possible. The inner error is the reason if it may be temporary.
    fn try_open(&mut self) -> Result<Result<(), String>, OpenPortError> {
        let port = || self.spec.to_string();
        let opened = self.namespace.enter(|| self.kind.open());
        match opened.map_err(|source| OpenPortError::Namespace { port: port(), source })? {
            Ok(port) => {
                self.note_open(port);
                Ok(Ok(()))
            }
            Err(source) => match no_path(&source) {
                Some(why) => Ok(Err(why)),
                None => Err(OpenPortError::Tunnel { port: port(), source }),
            },
        }
    }

    fn note_open(&mut self, port: Port) {
        let fitting = self.fitting_mtu(port.path_mtu().unwrap_or(ETHERNET_MTU));
        self.mtu = self.spec.mtu.unwrap_or(fitting);
        if self.mtu > fitting {
            tracing::warn!(
                "port {}: the path to {} allows frames with at most {fitting} bytes of payload; \
                 longer ones will be dropped as oversize: set mtu={fitting}",
                self.spec,
                port.remote()
            );
        }
        let underlay = Underlay::new(self.namespace.clone(), port.remote(), port.local_ip());
        self.open = Some(Open { port, underlay });
    }

    /// Checks the path, and opens the tunnel if it is not open.
    pub(crate) fn look(&mut self) -> Look {
        let was_open = self.open.is_some();
        let path = if was_open { self.path_mtu() } else { self.open_late() };
        let has_changed = path.is_err() != self.path.is_err();
        // What keeps it down may change: there is a route now, but its UDP port is taken.
        let is_news = path.as_ref().err() != self.path.as_ref().err();
        self.path = path;
        if is_news {
            self.tell();
        }
        match (has_changed, was_open) {
            _ if !was_open && self.open.is_some() => Look::Opened,
            (true, _) => Look::Changed,
            (false, _) => Look::Same,
        }
    }

    /// Every error is reported as a missing path, as the description was valid when the port was
    /// added.
    fn open_late(&mut self) -> Result<u32, String> {
        let said = |error: &OpenError| no_path(error).unwrap_or_else(|| error.to_string());
        self.probe.find_path().map_err(|error| said(&error))?;
        self.try_open().map_err(|error| match error {
            // Whoever reads it knows which port it is about.
            OpenPortError::Tunnel { source, .. } => source.to_string(),
            error => error.to_string(),
        })??;
        self.path_mtu()
    }

    /// Logs the state of the route, at a limited rate.
    fn tell(&mut self) {
        let (port, remote) = (&self.spec, self.kind.remote());
        match (&self.path, self.lines.take()) {
            (Err(why), true) => tracing::warn!("port {port} is down: {why}"),
            (Ok(_), true) => tracing::info!("port {port} is up: there is a route to {remote}"),
            (path, false) => tracing::debug!("port {port}: route to {remote}: {path:?}"),
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
        if self.path.is_ok() { PortState::LIVE } else { PortState::LINK_DOWN }
    }

    /// The current MTU of the path, or why there is none and the remedy.
    fn path_mtu(&self) -> Result<u32, String> {
        let Some(Open { port, .. }) = &self.open else { return self.path.clone() };
        if !self.probe.has_address(port.local_ip()) {
            return Err(no_address(port.local_ip(), "is gone"));
        }
        let said = |error| no_path(&error).unwrap_or_else(|| error.to_string());
        port.path_mtu().map_err(said)
    }

    /// Maximum payload for a path's MTU, with room for the requested tags.
    fn fitting_mtu(&self, path_mtu: u32) -> u32 {
        let tags = self.spec.envelope.map_or(0, u32::from);
        path_mtu.saturating_sub(self.kind.overhead() + tags)
    }

    fn counters(&self) -> Counters {
        self.open.as_ref().map_or_else(Counters::default, |open| open.port.counters())
    }

    /// Largest payload in bytes: as configured, or what fits the path.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }

    pub(crate) fn mac(&self) -> MacAddr {
        self.mac
    }

    /// Namespace of its sockets.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The offloads as text, for reports.
    pub(crate) fn offloads(&self) -> String {
        let words = match self.open.as_ref().map(|open| &open.port) {
            Some(Port::Vxlan(port)) if port.sends_segments() => "udp_segment,udp_gro",
            Some(Port::Vxlan(_)) => "udp_gro",
            Some(Port::Gre(_)) | None => "none",
        };
        words.to_owned()
    }

    /// The receiver, once open.
    pub(crate) fn rx_device(&self) -> Option<RxDevice> {
        let (mtu, booked) = (self.mtu, Refused::default());
        Some(match self.open.as_ref()?.port.clone() {
            Port::Vxlan(port) => {
                RxDevice::Vxlan(VxlanRx { receiver: Box::new(Receiver::new(port)), mtu, booked })
            }
            Port::Gre(port) => RxDevice::Gre(GreRx { port, mtu, booked }),
        })
    }

    /// The transmit side, once open.
    pub(crate) fn tx_port(&self) -> Option<TxPort> {
        let device = match self.open.as_ref()?.port.clone() {
            Port::Vxlan(port) => TxDevice::Vxlan(port),
            Port::Gre(port) => TxDevice::Gre(GreTx { port, cut: None }),
        };
        Some(TxPort::new(device, Takes::NOTHING))
    }

    /// Datagrams that the kernel dropped, mostly because the switch did not read them in time.
    pub(crate) fn ring_drops(&self) -> u64 {
        self.counters().dropped
    }

    /// The qdisc of the egress interface.
    pub(crate) fn queueing(&self, inquiry: &mut Inquiry) -> Option<QueueingReport> {
        let Open { port, underlay } = self.open.as_ref()?;
        underlay.report(inquiry, port.counters().refused_below)
    }

    pub(crate) fn report(&self) -> TunnelReport {
        let counters = self.counters();
        let Counters { runt, malformed, foreign, congested, .. } = counters;
        let port = self.open.as_ref().map(|open| &open.port);
        let names = port.map(Port::refusals).into_iter().flatten().map(str::to_owned);
        let refused = names.zip([runt, malformed, foreign, congested]);
        TunnelReport {
            remote: self.kind.remote().to_string(),
            local: port.map_or_else(|| "-".to_owned(), Port::local),
            id: self.kind.id(),
            path_mtu: *self.path.as_ref().unwrap_or(&0),
            warning: self.path.clone().err(),
            overhead: self.kind.overhead(),
            receive_buffer: port.and_then(|port| port.receive_buffer_len().ok()).unwrap_or(0),
            send_calls: counters.send_calls,
            sent: counters.sent,
            receive_calls: counters.receive_calls,
            received: counters.received,
            refused: refused.filter(|(_, count)| *count > 0).collect(),
            unreachable: counters.unreachable,
        }
    }
}

impl Kind {
    /// Opens the sockets in the calling thread's namespace.
    fn open(&self) -> Result<Port, OpenError> {
        let port = match self {
            Self::Vxlan(vxlan) => Port::Vxlan(Arc::new(VxlanPort::open(&vxlan.config())?)),
            Self::Gre(gre) => Port::Gre(Arc::new(GrePort::open(&gre.config())?)),
        };
        check_ends(port.remote(), port.local_ip()).map(|()| port)
    }

    /// Opens a socket that finds out whether there is a path, in the calling thread's namespace.
    fn probe(&self) -> Result<Probe, OpenError> {
        match self {
            Self::Vxlan(vxlan) => Probe::vxlan(&vxlan.config()),
            Self::Gre(gre) => Probe::gre(&gre.config()),
        }
    }

    /// MAC address of the port, which the remote end does not see.
    fn mac(&self, spec: &PortSpec) -> MacAddr {
        match self {
            Self::Vxlan(VxlanSpec { remote, local, udp_port, vni, .. }) => {
                mac((&spec.netns, remote, local, udp_port, vni.get()))
            }
            Self::Gre(gre) => mac((&spec.netns, gre.remote, gre.local, gre.carrier)),
        }
    }

    /// Address of the remote end.
    fn remote(&self) -> IpAddr {
        match self {
            Self::Vxlan(vxlan) => vxlan.remote,
            Self::Gre(gre) => gre.remote,
        }
    }

    /// Bytes of encapsulation per packet.
    fn overhead(&self) -> u32 {
        match self {
            Self::Vxlan(vxlan) => overhead(vxlan.remote),
            Self::Gre(gre) => gre.carrier.overhead(gre.remote),
        }
    }

    /// The VNI of VXLAN, the key of GRE if it has one, the session of ERSPAN.
    fn id(&self) -> Option<u32> {
        match self {
            Self::Vxlan(vxlan) => Some(vxlan.vni.get()),
            Self::Gre(gre) => gre.carrier.id(),
        }
    }
}

impl Port {
    fn path_mtu(&self) -> Result<u32, OpenError> {
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

/// Why there is no path, and the remedy, if the error may be temporary.
fn no_path(error: &OpenError) -> Option<String> {
    Some(match error {
        OpenError::NoRoute { remote } => format!(
            "there is no route to {remote}: add a route, or bring up the interface that the route \
             uses (`ip route get {remote}` in the port's namespace)"
        ),
        OpenError::Refusing { remote, kind } => format!(
            "there is no route to {remote} but one of type {kind}, which refuses packets: replace \
             it (`ip route get {remote}` in the port's namespace)"
        ),
        OpenError::NotLocal { address } => no_address(address.ip(), "does not exist"),
        _ => return None,
    })
}

fn no_address(local: IpAddr, what: &str) -> String {
    format!(
        "its local address {local} {what}: add it to an interface of its namespace (`ip address \
         add`), or add the port again with another local="
    )
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

#[cfg(test)]
mod tests;
