//! Opening what is behind the ports: tap devices that the switch makes, interfaces that are there.

use std::sync::Arc;

use tapswitch_datapath::Port;
use tapswitch_datapath::vlan::PortMode;
use tapswitch_netdev as netdev;
use tapswitch_netlink::{Link, LinkError, Namespace, NamespaceError, Netlink};
use tapswitch_openflow::PortState;
use tapswitch_tap as tap;
use tapswitch_wire::MacAddr;

use crate::envelope::{ChangedMtu, MtuError, envelope, port_mtu};
use crate::rx::{RxDevice, RxQueue};
use crate::steering::Steered;
use crate::tx::{TrainKinds, TxDevice, TxPort};
use crate::{PortKind, PortSpec};

/// A port that is open: its device, and what is known of it.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) spec: PortSpec,
    /// Where the interface lives.
    pub(crate) namespace: Namespace,
    /// Which of the switch's namespaces that is.
    pub(crate) namespace_index: usize,
    /// Index of the interface there.
    pub(crate) index: u32,
    pub(crate) mac: MacAddr,
    pub(crate) link: Link,
    /// Offloads in words, for reports.
    pub(crate) offloads: String,
    mode: Option<Arc<PortMode>>,
    /// What was done to the interface's MTU, to be undone.
    changed_mtu: Option<ChangedMtu>,
    io: Io,
}

/// The handles of a device, one for each queue.
#[derive(Debug)]
enum Io {
    Tap { queues: Vec<Arc<tap::Queue>>, whole: TrainKinds, steered: Option<Steered> },
    Netdev { port: Arc<netdev::PacketPort>, whole: TrainKinds },
}

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenPortError {
    /// The namespace.
    #[error("port {port}: {source}")]
    Namespace {
        /// The port as it was described.
        port: String,
        /// What the namespace said.
        source: NamespaceError,
    },
    /// The name is not one that an interface can have.
    #[error("port {port}: {source}")]
    Name {
        /// The port as it was described.
        port: String,
        /// What is wrong with it.
        source: tap::NameError,
    },
    /// The tap device.
    #[error("port {port}: {source}")]
    Tap {
        /// The port as it was described.
        port: String,
        /// What the tap device said.
        source: tap::CreateError,
    },
    /// The interface.
    #[error("port {port}: {source}")]
    Netdev {
        /// The port as it was described.
        port: String,
        /// What the interface said.
        source: netdev::OpenError,
    },
    /// Its link settings.
    #[error("port {port}: {source}")]
    Link {
        /// The port as it was described.
        port: String,
        /// What the kernel said.
        source: LinkError,
    },
    /// The MTU of its interface.
    #[error("port {port}: {source}")]
    Mtu {
        /// The port as it was described.
        port: String,
        /// What stood in the way.
        source: Box<MtuError>,
    },
    /// Its MAC address cannot be read.
    #[error("port {port}: {source}")]
    Mac {
        /// The port as it was described.
        port: String,
        /// What the kernel said.
        source: tap::SettingError,
    },
}

impl Device {
    /// Opens what `spec` describes. A tap device is made, put into its namespace and switched on;
    /// an interface is attached as it is, but for its MTU when one or an envelope is given.
    pub(crate) fn open(spec: &PortSpec) -> Result<Self, OpenPortError> {
        let port = || spec.to_string();
        let namespace = match &spec.netns {
            Some(name) => Namespace::open(name),
            None => Namespace::current(),
        }
        .map_err(|source| OpenPortError::Namespace { port: port(), source })?;
        let (io, mac, offloads) = match &spec.kind {
            PortKind::Tap { name, queues } => open_tap(spec, &namespace, name, *queues)?,
            PortKind::Netdev { name } => open_netdev(spec, &namespace, name)?,
        };
        let changed_mtu = match spec.kind {
            PortKind::Tap { .. } => Ok(None),
            PortKind::Netdev { .. } => ChangedMtu::make(spec, &namespace),
        };
        let changed_mtu = changed_mtu
            .map_err(|error| OpenPortError::Mtu { port: port(), source: error.into() })?;
        let link = set_link(spec, &namespace)
            .map_err(|source| OpenPortError::Link { port: port(), source })?;
        let (spec, index, mode) = (spec.clone(), link.index, spec.mode.clone().map(Arc::new));
        Ok(Self {
            spec,
            namespace,
            namespace_index: 0,
            index,
            mac,
            link,
            offloads,
            mode,
            changed_mtu,
            io,
        })
    }

    /// The port as the datapath sees it.
    pub(crate) fn port(&self, workers: usize) -> Port {
        let (number, name) = (self.spec.number, self.spec.name().to_owned());
        let mut port = Port::new(number, name, self.mac, self.mtu(), workers);
        port.state = link_state(&self.link);
        port.envelope = envelope(&self.spec);
        port.mode.clone_from(&self.mode);
        port
    }

    /// Largest payload in bytes: what was asked for, or the interface's own but for what is meant
    /// for tags.
    pub(crate) fn mtu(&self) -> u32 {
        port_mtu(&self.spec, &self.link, self.changed_mtu.as_ref())
    }

    /// Frames that a steering program led to each queue; none without one.
    pub(crate) fn steered(&self) -> Vec<u64> {
        match &self.io {
            Io::Tap { steered: Some(steered), .. } => steered.frames(self.spec.queues()),
            _ => Vec::new(),
        }
    }

    /// What is behind the port, in a word.
    pub(crate) fn kind(&self) -> &'static str {
        match self.spec.kind {
            PortKind::Tap { .. } => "tap",
            PortKind::Netdev { .. } => "netdev",
        }
    }

    /// The queues to be read, in order.
    pub(crate) fn rx_queues(&self) -> Vec<RxQueue> {
        let PortSpec { number, gro, .. } = self.spec;
        match &self.io {
            Io::Tap { queues, .. } => {
                let queue = |(index, queue): (u16, &Arc<tap::Queue>)| {
                    let device = RxDevice::Tap(queue.clone());
                    RxQueue::new(number, self.mode.clone(), index, device).with_gro(gro)
                };
                (0..).zip(queues).map(queue).collect()
            }
            Io::Netdev { port, .. } => {
                let device = RxDevice::Netdev(port.clone());
                vec![RxQueue::new(number, self.mode.clone(), 0, device).with_gro(gro)]
            }
        }
    }

    /// The handle by which `worker` sends. Where there are fewer queues than workers, workers share
    /// one; the kernel takes frames from several threads.
    pub(crate) fn tx_port(&self, worker: usize) -> TxPort {
        match &self.io {
            Io::Tap { queues, whole, .. } => {
                TxPort::new(TxDevice::Tap(queues[worker % queues.len()].clone()), *whole)
            }
            Io::Netdev { port, whole } => TxPort::new(TxDevice::Netdev(port.clone()), *whole),
        }
    }

    /// Frames that the kernel dropped because the switch did not read them in time.
    pub(crate) fn ring_drops(&self) -> u64 {
        match &self.io {
            Io::Netdev { port, .. } => port.statistics().map_or(0, |counters| counters.dropped),
            Io::Tap { .. } => {
                let link = Netlink::open(&self.namespace)
                    .and_then(|mut netlink| netlink.link_by_index(self.index));
                link.map_or(0, |link| link.stats.tx_dropped)
            }
        }
    }
}

/// How OpenFlow calls the state of a link.
pub(crate) fn link_state(link: &Link) -> PortState {
    if link.up && link.lower_up { PortState::LIVE } else { PortState::LINK_DOWN }
}

/// True for a device that stays and that nobody holds: it was made to be taken, as
/// `tapswitch device create` and `ip tuntap add` do.
fn is_prepared(namespace: &Namespace, name: &str) -> bool {
    let link = Netlink::open(namespace).and_then(|mut netlink| netlink.link(name));
    link.ok().and_then(|link| link.tun).is_some_and(|tun| {
        let queues = tun.queues.unwrap_or(0) + tun.disabled_queues.unwrap_or(0);
        tun.persistent && queues == 0
    })
}

fn open_tap(
    spec: &PortSpec,
    namespace: &Namespace,
    name: &str,
    queues: std::num::NonZeroU16,
) -> Result<(Io, MacAddr, String), OpenPortError> {
    let port = || spec.to_string();
    let name = name.parse().map_err(|source| OpenPortError::Name { port: port(), source })?;
    // With several queues, it must have been made for that.
    let config = tap::Config::new(name).queues(queues).multi_queue(true);
    let config = config.follow_existing(is_prepared(namespace, spec.name()));
    let tap = namespace
        .enter(|| tap::Device::create(&config))
        .map_err(|source| OpenPortError::Namespace { port: port(), source })?
        .map_err(|source| OpenPortError::Tap { port: port(), source })?;
    let mac = tap.mac().map_err(|source| OpenPortError::Mac { port: port(), source })?;
    let tap::Capabilities { receive, send, .. } = tap.capabilities();
    let queues: Vec<_> = tap.into_queues().into_iter().map(Arc::new).collect();
    let steered = Steered::start(spec, &queues);
    Ok((Io::Tap { queues, whole: send.into(), steered }, mac, words(receive)))
}

fn open_netdev(
    spec: &PortSpec,
    namespace: &Namespace,
    name: &str,
) -> Result<(Io, MacAddr, String), OpenPortError> {
    let port = || spec.to_string();
    let opened = namespace
        .enter(|| netdev::PacketPort::open(name, &netdev::Config::default()))
        .map_err(|source| OpenPortError::Namespace { port: port(), source })?
        .map_err(|source| OpenPortError::Netdev { port: port(), source })?;
    let (mac, capabilities) = (opened.mac(), opened.capabilities());
    let offloads = if capabilities.send_udp_trains { "csum,tso,uso" } else { "csum,tso" };
    let io = Io::Netdev { port: Arc::new(opened), whole: capabilities.into() };
    Ok((io, mac, offloads.to_owned()))
}

fn set_link(spec: &PortSpec, namespace: &Namespace) -> Result<Link, LinkError> {
    let mut netlink = Netlink::open(namespace)?;
    if matches!(spec.kind, PortKind::Tap { .. }) {
        // Room for tags needs nothing here: a tap device takes frames of any length.
        spec.mtu.map_or(Ok(()), |mtu| netlink.set_mtu(spec.name(), mtu))?;
        netlink.set_up(spec.name())?;
    }
    netlink.link(spec.name())
}

/// Offloads in words: `csum,tso4,tso6,tso_ecn,uso4,uso6`.
fn words(offloads: tap::Offloads) -> String {
    let names: Vec<_> = offloads.iter_names().map(|(name, _)| name.to_ascii_lowercase()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}
