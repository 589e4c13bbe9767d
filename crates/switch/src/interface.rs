//! Interfaces behind ports: tap devices that the switch creates, and existing interfaces.

use std::sync::Arc;

use tapswitch_netdev as netdev;
use tapswitch_netlink::{Link, LinkError, Moved, Namespace, NamespaceError, Netlink};
use tapswitch_openflow::PortState;
use tapswitch_tap as tap;
use tapswitch_wire::MacAddr;

use crate::borrowed::Borrowed;
use crate::command::shell_word;
use crate::envelope::{ChangedMtu, port_mtu};
use crate::foreign::{self, Foreign};
use crate::inquiry::Inquiry;
use crate::open_error::{OpenPortError, Unopened, unless_permitted};
use crate::ring::{self, Ring, RingReport};
use crate::rx::RxDevice;
use crate::shed::{Below, QueueingReport};
use crate::steering::Steered;
use crate::tun::{TunLink, TunQueue};
use crate::tx::{BareTap, Takes, TxDevice, TxPort};
use crate::{PortKind, PortSpec};

/// An open interface.
#[derive(Debug)]
pub(crate) struct Interface {
    spec: PortSpec,
    /// Its namespace.
    pub(crate) namespace: Namespace,
    /// The index of that namespace in the switch.
    pub(crate) namespace_index: usize,
    /// Its interface index there.
    pub(crate) index: u32,
    pub(crate) mac: MacAddr,
    pub(crate) link: Link,
    /// The interface was deleted or moved. One with the same name is another interface.
    pub(crate) is_gone: bool,
    /// The offloads as text, for reports.
    pub(crate) offloads: String,
    /// The change of its MTU, to be undone.
    changed_mtu: Option<ChangedMtu>,
    /// Other programs that have attached to it.
    foreign: Foreign,
    io: Io,
}

/// The identity of an interface, independent of its names: names change, and one may have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceId {
    /// The kernel's identity of the namespace.
    namespace: (u64, u64),
    index: u32,
}

impl InterfaceId {
    /// The identity of the interface of `spec`. `None` if it does not exist yet or cannot be
    /// queried; opening the port reports the error.
    pub(crate) fn find(spec: &PortSpec) -> Option<Self> {
        if !spec.kind.is_interface() {
            return None;
        }
        let namespace = namespace(spec).ok()?;
        let link = Netlink::open(&namespace).and_then(|mut netlink| netlink.link(spec.name()));
        Some(Self { namespace: namespace.identity().ok()?, index: link.ok()?.index })
    }
}

/// The handles of an interface, one per queue.
#[derive(Debug)]
enum Io {
    Tap { queues: Vec<Arc<tap::Queue>>, takes: Takes, lent: Lent, ring: Ring },
    Tun { queues: Vec<TunQueue>, takes: Takes, lent: Lent, ring: Ring },
    Netdev { port: Arc<netdev::PacketPort>, takes: Takes, below: Option<Below> },
}

/// What must be removed from the device when the port is removed.
#[derive(Debug)]
struct Lent {
    steered: Option<Steered>,
    /// The previous state of a device that the user created.
    _borrowed: Option<Borrowed>,
}

impl Interface {
    /// Notes the current link. A packet socket is useless once its interface has been gone, even if
    /// the same interface returns; the queues of a tap device keep working.
    pub(crate) fn note(&mut self, link: Link) {
        if self.is_gone && matches!(self.io, Io::Netdev { .. }) {
            return;
        }
        self.is_gone = false;
        self.foreign.note(&self.spec, &link);
        self.link = link;
    }

    /// Opens what `spec` describes. A tap device is created, moved to its namespace and set up; an
    /// existing interface is used unchanged except for room for tags.
    pub(crate) fn open(spec: &PortSpec) -> Result<Self, OpenPortError> {
        let port = || spec.to_string();
        let namespace =
            namespace(spec).map_err(|source| OpenPortError::Namespace { port: port(), source })?;
        let (mut io, mac, offloads) = match spec.kind {
            PortKind::Tap { .. } => open_tap(spec, &namespace)?,
            PortKind::Tun { peer, .. } => open_tun(spec, &namespace, peer)?,
            _ => open_netdev(spec, &namespace)?,
        };
        let is_made = spec.kind.is_device();
        let changed_mtu = if is_made { Ok(None) } else { ChangedMtu::make(spec, &namespace) };
        let changed_mtu = changed_mtu
            .map_err(|error| OpenPortError::Mtu { port: port(), source: error.into() })?;
        let link = set_link(spec, &namespace, &mut io)
            .map_err(|source| OpenPortError::Link { port: port(), source })?;
        let (spec, index, namespace_index) = (spec.clone(), link.index, 0);
        Ok(Self {
            spec,
            namespace,
            namespace_index,
            index,
            mac,
            link,
            is_gone: false,
            offloads,
            changed_mtu,
            foreign: Foreign::default(),
            io,
        })
    }

    /// Its identity, also when it is gone: it may return with the same one.
    pub(crate) fn id(&self) -> Option<InterfaceId> {
        Some(InterfaceId { namespace: self.namespace.identity().ok()?, index: self.index })
    }

    /// Restores the settings of an interface that was moved to another namespace, even if an
    /// earlier search has missed it. If the namespace is not found or the settings cannot be
    /// changed there, they are restored if the interface returns in time. Returns what the user can
    /// do then.
    pub(crate) fn put_back_at(&mut self, moved: Moved) -> Option<String> {
        let changed = self.changed_mtu.as_ref()?;
        if !changed.undo_elsewhere(moved) {
            return Some(changed.remedy(&self.link.name));
        }
        self.changed_mtu = None;
        None
    }

    /// The port's OpenFlow link state.
    pub(crate) fn state(&self) -> PortState {
        let is_live = self.link.up && self.link.lower_up;
        if is_live { PortState::LIVE } else { PortState::LINK_DOWN }
    }

    /// Largest payload in bytes: as configured, or the interface's MTU without the part meant for
    /// tags.
    pub(crate) fn mtu(&self) -> u32 {
        port_mtu(&self.spec, &self.link, self.changed_mtu.as_ref())
    }

    /// Limit of payload and tags in one packet. A tap device has none.
    pub(crate) fn room(&self) -> u32 {
        if self.spec.kind.is_device() { u32::MAX } else { self.link.mtu }
    }

    /// Frames that the steering program sent to each queue; empty without one.
    pub(crate) fn steered(&self) -> Vec<u64> {
        match &self.io {
            Io::Tap { lent, .. } | Io::Tun { lent, .. } => {
                let frames = |steered: &Steered| steered.frames(self.spec.queues());
                lent.steered.as_ref().map_or_else(Vec::new, frames)
            }
            Io::Netdev { .. } => Vec::new(),
        }
    }

    /// The queues to read, in order.
    pub(crate) fn rx_devices(&self) -> Vec<RxDevice> {
        match &self.io {
            Io::Tap { queues, .. } if self.spec.offload => {
                queues.iter().cloned().map(RxDevice::Tap).collect()
            }
            Io::Tap { queues, .. } => queues.iter().cloned().map(RxDevice::BareTap).collect(),
            Io::Tun { queues, .. } => {
                let said = queues.first().map(|tun| RxDevice::TunSaid(tun.link.clone()));
                queues.iter().cloned().map(RxDevice::Tun).chain(said).collect()
            }
            Io::Netdev { port, .. } => vec![RxDevice::Netdev(port.clone())],
        }
    }

    /// The handle through which `worker` sends. If there are fewer queues than workers, workers
    /// share one; the kernel accepts frames from several threads.
    pub(crate) fn tx_port(&self, worker: usize) -> TxPort {
        match &self.io {
            Io::Tap { queues, takes, .. } => {
                let queue = queues[worker % queues.len()].clone();
                let device = match self.spec.offload {
                    true => TxDevice::Tap(queue),
                    false => TxDevice::BareTap(BareTap(queue)),
                };
                TxPort::new(device, *takes)
            }
            Io::Tun { queues, takes, .. } => {
                TxPort::new(TxDevice::Tun(queues[worker % queues.len()].clone()), *takes)
            }
            Io::Netdev { port, takes, .. } => TxPort::new(TxDevice::Netdev(port.clone()), *takes),
        }
    }

    /// True if the kernel keeps frames that the switch does not read.
    pub(crate) fn waits(&self) -> bool {
        matches!(self.io, Io::Tap { ring, .. } | Io::Tun { ring, .. } if ring.waits())
    }

    /// The rings of a tap device; `None` for other interfaces.
    pub(crate) fn ring(&self, inquiry: &mut Inquiry) -> Option<RingReport> {
        match &self.io {
            Io::Tap { ring, .. } | Io::Tun { ring, .. } => {
                let (link, qdiscs) = inquiry.interface(&self.namespace, self.index)?;
                let report = ring.report(&link, qdiscs);
                let (foreign_queues, joins) = (self.foreign.queues, self.foreign.joins);
                Some(RingReport { foreign_queues, joins, ..report })
            }
            Io::Netdev { .. } => None,
        }
    }

    /// The qdisc of the interface; `None` for a tap device, see [`Self::ring`].
    pub(crate) fn queueing(&self, inquiry: &mut Inquiry) -> Option<QueueingReport> {
        match &self.io {
            Io::Netdev { port, below, .. } => {
                let below = (*below)?;
                let (link, qdiscs) = inquiry.interface(&self.namespace, self.index)?;
                Some(below.report(&link, qdiscs, port.refused()))
            }
            Io::Tap { .. } | Io::Tun { .. } => None,
        }
    }

    /// Frames that the kernel dropped because the switch did not read them in time, if
    /// [`Self::ring`] does not report them.
    pub(crate) fn ring_drops(&self) -> u64 {
        match &self.io {
            Io::Netdev { port, .. } => port.statistics().map_or(0, |counters| counters.dropped),
            Io::Tap { .. } | Io::Tun { .. } => 0,
        }
    }
}

/// The current or intended namespace of the interface of `spec`.
pub(crate) fn namespace(spec: &PortSpec) -> Result<Namespace, NamespaceError> {
    match &spec.netns {
        Some(place) => Namespace::find(place),
        None => Namespace::current(),
    }
}

/// The device, if it is persistent and unused: `tapswitch device create` and `ip tuntap add` create
/// devices for others to use.
fn prepared(namespace: &Namespace, name: &str) -> Option<Link> {
    let link = Netlink::open(namespace).and_then(|mut netlink| netlink.link(name)).ok()?;
    let tun = link.tun?;
    let queues = tun.queues.unwrap_or(0) + tun.disabled_queues.unwrap_or(0);
    (tun.persistent && queues == 0).then_some(link)
}

fn open_tap(
    spec: &PortSpec,
    namespace: &Namespace,
) -> Result<(Io, MacAddr, String), OpenPortError> {
    let Made { device, ring, before } = create(spec, namespace, tap::Kind::Tap)?;
    let mac = device.mac();
    let mac = mac.map_err(|source| OpenPortError::Mac { port: spec.to_string(), source })?;
    let Opened { queues, takes, lent, offloads } = Opened::of(spec, namespace, device, before);
    Ok((Io::Tap { queues, takes, lent, ring }, mac, offloads))
}

fn open_tun(
    spec: &PortSpec,
    namespace: &Namespace,
    peer: Option<MacAddr>,
) -> Result<(Io, MacAddr, String), OpenPortError> {
    let Made { device, ring, before } = create(spec, namespace, tap::Kind::Tun)?;
    let link = TunLink::new(spec, namespace, peer)
        .map_err(|source| OpenPortError::Eventfd { port: spec.to_string(), source })?;
    let (mac, link, is_bare) = (link.mac(), Arc::new(link), !spec.offload);
    let Opened { queues, takes, lent, offloads } = Opened::of(spec, namespace, device, before);
    let queues = queues.into_iter().map(|queue| TunQueue { queue, link: link.clone(), is_bare });
    Ok((Io::Tun { queues: queues.collect(), takes, lent, ring }, mac, offloads))
}

/// The parts of a device that the switch has opened.
struct Opened {
    queues: Vec<Arc<tap::Queue>>,
    takes: Takes,
    lent: Lent,
    /// As text, for reports.
    offloads: String,
}

impl Opened {
    /// `before` is its previous state, if the user created it.
    fn of(
        spec: &PortSpec,
        namespace: &Namespace,
        device: tap::Device,
        before: Option<Link>,
    ) -> Self {
        let tap::Capabilities { receive, send, .. } = device.capabilities();
        let found = device.found();
        let queues: Vec<_> = device.into_queues().into_iter().map(Arc::new).collect();
        let borrow = |(link, first): (Link, &Arc<tap::Queue>)| {
            Borrowed::new(spec, namespace, (link, found), first.clone())
        };
        let borrowed = before.zip(queues.first()).map(borrow);
        let lent = Lent { steered: Steered::start(spec, &queues), _borrowed: borrowed };
        let takes = if spec.offload { send.into() } else { Takes::NOTHING };
        Self { queues, takes, lent, offloads: words(receive) }
    }
}

/// A device that was just opened.
struct Made {
    device: tap::Device,
    ring: Ring,
    /// Its previous state, if the user created it.
    before: Option<Link>,
}

/// Creates the device of `spec`.
fn create(spec: &PortSpec, namespace: &Namespace, kind: tap::Kind) -> Result<Made, OpenPortError> {
    let port = || spec.to_string();
    let name = spec.name().parse();
    let name = name.map_err(|source| OpenPortError::Name { port: port(), source })?;
    // A device with several queues must have been created as such.
    let header = if spec.offload { tap::HeaderLen::V1 } else { tap::HeaderLen::None };
    let config = tap::Config::new(name)
        .queues(spec.queues())
        .multi_queue(true)
        .net_header(header)
        .kind(kind);
    let before = prepared(namespace, spec.name());
    let is_prepared = before.is_some();
    let config = config.follow_existing(is_prepared).backpressure(ring::wish(spec));
    let device = namespace
        .enter(|| tap::Device::create(&config))
        .map_err(|source| OpenPortError::Namespace { port: port(), source })?
        .map_err(|source| OpenPortError::Tap {
            port: port(),
            source: Unopened { source, netns: spec.netns.clone() }.into(),
        })?;
    if !is_prepared {
        foreign::keep_out(spec, &device);
    }
    let ring = Ring::of(&device, !is_prepared)
        .map_err(|source| OpenPortError::Mac { port: port(), source })?;
    Ok(Made { device, ring, before })
}

fn open_netdev(
    spec: &PortSpec,
    namespace: &Namespace,
) -> Result<(Io, MacAddr, String), OpenPortError> {
    let port = || spec.to_string();
    let opened = namespace
        .enter(|| netdev::PacketPort::open(spec.name(), &netdev::Config::default()))
        .map_err(|source| OpenPortError::Namespace { port: port(), source })?
        .map_err(|source| unopened_netdev(spec, source))?;
    let (mac, capabilities) = (opened.mac(), opened.capabilities());
    let (takes, offloads) = match (spec.offload, capabilities.send_udp_trains) {
        (true, true) => (capabilities.into(), "csum,tso,uso"),
        (true, false) => (capabilities.into(), "csum,tso"),
        (false, _) => (Takes::NOTHING, "none"),
    };
    // Needed for a report only.
    let below = Netlink::open(namespace).and_then(|mut it| Below::of(&mut it, spec.name())).ok();
    let io = Io::Netdev { port: Arc::new(opened), takes, below };
    Ok((io, mac, offloads.to_owned()))
}

fn unopened_netdev(spec: &PortSpec, error: netdev::OpenError) -> OpenPortError {
    let port = spec.to_string();
    match error {
        netdev::OpenError::NotFound { name } => {
            OpenPortError::NoInterface { port, name, netns: spec.netns.clone() }
        }
        source => OpenPortError::Netdev { port, source },
    }
}

fn set_link(spec: &PortSpec, namespace: &Namespace, io: &mut Io) -> Result<Link, LinkError> {
    let mut netlink = Netlink::open(namespace)?;
    let (Io::Tap { ring, .. } | Io::Tun { ring, .. }) = io else {
        return netlink.link(spec.name());
    };
    // No envelope is needed: a tap device takes frames of any length.
    let name = spec.name();
    let before = netlink.link(name)?;
    // A setting that has the right value already is left alone, as that needs no privilege.
    if let Some(mtu) = spec.mtu.filter(|mtu| *mtu != before.mtu) {
        netlink.set_mtu(name, mtu)?;
    }
    ring.set(spec, &mut netlink, &before)?;
    if ring.is_ours() && spec.offload {
        pass_same_identifiers(spec, &mut netlink);
    }
    if !before.up {
        unless_permitted(spec, netlink.set_up(name), &format!("link set {} up", shell_word(name)))?;
    }
    let link = netlink.link(name)?;
    ring.check(spec, &mut netlink, &link)?;
    Ok(link)
}

/// Keeps forwarded TCP trains whole whose packets share one IPv4 identifier, as network cards and
/// GRO make them; the kernel would cut them in front of the device. A failure is harmless.
fn pass_same_identifiers(spec: &PortSpec, netlink: &mut Netlink) {
    let feature = "tx-tcp-mangleid-segmentation";
    if let Err(error) = netlink.set_feature_by_name(spec.name(), feature, true) {
        tracing::debug!("port {spec}: {error}");
    }
}

/// The offloads as text: `csum,tso4,tso6,tso_ecn,uso4,uso6`.
fn words(offloads: tap::Offloads) -> String {
    let names: Vec<_> = offloads.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}
