//! Opening the device behind a port: an interface, a guest, a tunnel, or a file.

use std::sync::Arc;
use std::time::Duration;

use tapswitch_datapath::Port;
use tapswitch_datapath::vlan::PortMode;
use tapswitch_netlink::{Moved, Namespace};
use tapswitch_openflow::PortState;
use tapswitch_wire::MacAddr;

use crate::allowance::Allowance;
use crate::envelope::envelope;
use crate::guest::Guest;
use crate::inquiry::Inquiry;
use crate::interface::Interface;
use crate::open_error::OpenPortError;
use crate::port_spec::GreSpec;
use crate::recorder::Recorder;
use crate::report::{FileReport, GuestReport, RingReport, TunnelReport};
use crate::rx::RxQueue;
use crate::shed::QueueingReport;
use crate::tunnel::{Kind, Tunnel};
use crate::tx::TxPort;
use crate::{PortKind, PortSpec, Pressure};

/// An open port.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) spec: PortSpec,
    /// Limits the log lines about stalls.
    pub(crate) stalls: Allowance,
    mode: Option<Arc<PortMode>>,
    behind: Behind,
}

/// The device behind a port.
#[derive(Debug)]
enum Behind {
    Interface(Box<Interface>),
    Guest(Box<Guest>),
    Tunnel(Box<Tunnel>),
    File(Box<Recorder>),
    /// Nothing any more: the device was released.
    Nothing(Remains),
}

/// What is kept of a port whose device was released.
#[derive(Debug)]
struct Remains {
    mac: MacAddr,
    mtu: u32,
    offloads: String,
}

impl Device {
    /// Opens the device that `spec` describes.
    pub(crate) fn open(spec: &PortSpec) -> Result<Self, OpenPortError> {
        let behind = match &spec.kind {
            PortKind::Tap { .. } | PortKind::Tun { .. } | PortKind::Netdev { .. } => {
                Behind::Interface(Interface::open(spec)?.into())
            }
            PortKind::Guest { socket, .. } => {
                let opened = Guest::open(spec, socket);
                let port = || spec.to_string();
                Behind::Guest(Box::new(
                    opened.map_err(|source| OpenPortError::Guest { port: port(), source })?,
                ))
            }
            PortKind::Vxlan(vxlan) => {
                Behind::Tunnel(Tunnel::open(spec, Kind::Vxlan(vxlan.clone()))?.into())
            }
            PortKind::Gre(gre) => {
                Behind::Tunnel(Tunnel::open(spec, Kind::Gre(GreSpec::clone(gre)))?.into())
            }
            PortKind::Pcapng(file) => {
                let opened = Recorder::open(spec, file);
                let port = || spec.to_string();
                Behind::File(Box::new(
                    opened.map_err(|source| OpenPortError::File { port: port(), source })?,
                ))
            }
        };
        let mode = spec.mode.clone().map(Arc::new);
        Ok(Self { spec: spec.clone(), stalls: Allowance::new(1, STALL_SILENCE), mode, behind })
    }

    /// The interface behind the port, if it is one.
    pub(crate) fn interface(&self) -> Option<&Interface> {
        match &self.behind {
            Behind::Interface(interface) => Some(interface),
            _ => None,
        }
    }

    /// As [`Self::interface`], mutable.
    pub(crate) fn interface_mut(&mut self) -> Option<&mut Interface> {
        match &mut self.behind {
            Behind::Interface(interface) => Some(interface),
            _ => None,
        }
    }

    /// The tunnel behind the port, if it is one.
    pub(crate) fn tunnel(&self) -> Option<&Tunnel> {
        match &self.behind {
            Behind::Tunnel(tunnel) => Some(tunnel),
            _ => None,
        }
    }

    /// As [`Self::tunnel`], mutable.
    pub(crate) fn tunnel_mut(&mut self) -> Option<&mut Tunnel> {
        match &mut self.behind {
            Behind::Tunnel(tunnel) => Some(tunnel),
            _ => None,
        }
    }

    /// The namespace whose link changes concern the port, and its index in notifications.
    pub(crate) fn watched(&self) -> Option<(&Namespace, usize)> {
        match &self.behind {
            Behind::Interface(interface) => Some((&interface.namespace, interface.namespace_index)),
            Behind::Tunnel(tunnel) => Some((tunnel.namespace(), tunnel.namespace_index)),
            Behind::Guest(_) | Behind::File(_) | Behind::Nothing(_) => None,
        }
    }

    /// Sets the index of the [watched](Self::watched) namespace in notifications.
    pub(crate) fn note_watch(&mut self, number: usize) {
        match &mut self.behind {
            Behind::Interface(interface) => interface.namespace_index = number,
            Behind::Tunnel(tunnel) => tunnel.namespace_index = number,
            Behind::Guest(_) | Behind::File(_) | Behind::Nothing(_) => {}
        }
    }

    /// Whether the device must be polled for changes that are not notified.
    pub(crate) fn is_looked_at(&self) -> bool {
        self.named_namespace().is_some() || self.tunnel().is_some()
    }

    /// The namespace of the interface or of the tunnel's sockets and its name, if it is not the
    /// switch's own.
    pub(crate) fn named_namespace(&self) -> Option<(&str, &Namespace)> {
        let namespace = match &self.behind {
            Behind::Interface(interface) => &interface.namespace,
            Behind::Tunnel(tunnel) => tunnel.namespace(),
            Behind::Guest(_) | Behind::File(_) | Behind::Nothing(_) => return None,
        };
        Some((self.spec.netns.as_deref()?, namespace))
    }

    /// Releases the device behind the port and returns it; the port stays, and is down.
    pub(crate) fn let_go(&mut self) -> Self {
        let (mac, mtu, offloads) = (self.mac(), self.mtu(), self.offloads());
        let nothing = Behind::Nothing(Remains { mac, mtu, offloads });
        let behind = std::mem::replace(&mut self.behind, nothing);
        Self { spec: self.spec.clone(), stalls: self.stalls, mode: self.mode.clone(), behind }
    }

    /// Whether the device was released.
    pub(crate) fn has_let_go(&self) -> bool {
        matches!(self.behind, Behind::Nothing(_))
    }

    /// Whether the device behind the port no longer exists.
    pub(crate) fn is_gone(&self) -> bool {
        self.has_let_go() || self.interface().is_some_and(|interface| interface.is_gone)
    }

    /// Restores the settings of an interface that was moved to another namespace, or logs what
    /// could not be restored.
    pub(crate) fn leave_to(&mut self, moved: Moved) {
        let remedy = self.interface_mut().and_then(|interface| interface.put_back_at(moved));
        if let Some(remedy) = remedy {
            let spec = &self.spec;
            tracing::warn!("port {spec}: the interface was moved to another namespace; {remedy}");
        }
    }

    /// The guest behind the port, if it is one.
    pub(crate) fn guest_mut(&mut self) -> Option<&mut Guest> {
        match &mut self.behind {
            Behind::Guest(guest) => Some(guest),
            _ => None,
        }
    }

    /// The file behind the port, if it is one.
    pub(crate) fn recorder_mut(&mut self) -> Option<&mut Recorder> {
        match &mut self.behind {
            Behind::File(file) => Some(file),
            _ => None,
        }
    }

    /// The port as the datapath sees it.
    pub(crate) fn port(&self, workers: usize) -> Port {
        let (number, name) = (self.spec.number, self.spec.name().to_owned());
        let mut port = Port::new(number, name, self.mac(), self.mtu(), workers);
        port.state = self.state();
        port.envelope = self.envelope();
        port.room = self.room();
        port.mode.clone_from(&self.mode);
        port
    }

    fn mac(&self) -> MacAddr {
        match &self.behind {
            Behind::Interface(interface) => interface.mac,
            Behind::Guest(guest) => guest.mac(),
            Behind::Tunnel(tunnel) => tunnel.mac(),
            Behind::File(file) => file.mac(),
            Behind::Nothing(remains) => remains.mac,
        }
    }

    /// The port's OpenFlow link state.
    pub(crate) fn state(&self) -> PortState {
        let link = match &self.behind {
            Behind::Interface(interface) => interface.state(),
            Behind::Guest(guest) => guest.state(),
            Behind::Tunnel(tunnel) => tunnel.state(),
            Behind::File(file) => file.state(),
            Behind::Nothing(_) => PortState::LINK_DOWN,
        };
        if self.spec.is_flooded { link } else { link | PortState::BLOCKED }
    }

    /// Largest payload in bytes.
    pub(crate) fn mtu(&self) -> u32 {
        match &self.behind {
            Behind::Interface(interface) => interface.mtu(),
            Behind::Guest(_) => self.spec.mtu.unwrap_or(DEFAULT_MTU),
            Behind::Tunnel(tunnel) => tunnel.mtu(),
            Behind::File(_) => FILE_MTU,
            Behind::Nothing(remains) => remains.mtu,
        }
    }

    /// Limit of bytes of tags in addition to the MTU.
    fn envelope(&self) -> u16 {
        match &self.behind {
            Behind::File(_) => FILE_ENVELOPE,
            _ => envelope(&self.spec),
        }
    }

    /// Limit of payload and tags together in one packet, if the device has one beyond the port's
    /// own.
    pub(crate) fn room(&self) -> u32 {
        self.interface().map_or(u32::MAX, Interface::room)
    }

    /// The offloads as text, for reports.
    pub(crate) fn offloads(&self) -> String {
        match &self.behind {
            Behind::Interface(interface) => interface.offloads.clone(),
            Behind::Guest(guest) => guest.offloads(),
            Behind::Tunnel(tunnel) => tunnel.offloads(),
            Behind::File(file) => file.offloads(),
            Behind::Nothing(remains) => remains.offloads.clone(),
        }
    }

    /// Frames that the steering program sent to each queue; empty without one.
    pub(crate) fn steered(&self) -> Vec<u64> {
        self.interface().map_or_else(Vec::new, Interface::steered)
    }

    /// The guest's report, if any.
    pub(crate) fn guest_report(&self) -> Option<GuestReport> {
        match &self.behind {
            Behind::Guest(guest) => Some(guest.report()),
            _ => None,
        }
    }

    /// The tunnel's report, if any.
    pub(crate) fn tunnel_report(&self) -> Option<TunnelReport> {
        match &self.behind {
            Behind::Tunnel(tunnel) => Some(tunnel.report()),
            _ => None,
        }
    }

    /// The file's report, if any.
    pub(crate) fn file_report(&self) -> Option<FileReport> {
        match &self.behind {
            Behind::File(file) => Some(file.report()),
            _ => None,
        }
    }

    /// The kind of device, in one word.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.spec.kind {
            PortKind::Tap { .. } => "tap",
            PortKind::Tun { .. } => "tun",
            PortKind::Netdev { .. } => "netdev",
            PortKind::Guest { .. } => "vhost",
            PortKind::Vxlan(_) => "vxlan",
            PortKind::Gre(gre) => gre.kind(),
            PortKind::Pcapng(_) => "pcapng",
        }
    }

    /// The queues to read, in order.
    pub(crate) fn rx_queues(&self) -> Vec<RxQueue> {
        let PortSpec { number, gro, pressure: Pressure { ahead, pause, .. }, .. } = self.spec;
        let waits = self.interface().is_some_and(Interface::waits);
        let ahead = if waits { 0 } else { ahead };
        let devices = match &self.behind {
            Behind::Interface(interface) => interface.rx_devices(),
            Behind::Guest(guest) => guest.rx_devices(),
            Behind::Tunnel(tunnel) => tunnel.rx_device().into_iter().collect(),
            Behind::File(_) | Behind::Nothing(_) => Vec::new(),
        };
        // The queues share the port's read-ahead memory.
        let ahead = ahead / devices.iter().filter(|it| it.reads_ahead()).count().max(1);
        let queue = |(index, device)| {
            RxQueue::new(number, self.mode.clone(), index, device)
                .with_gro(gro)
                .with_ahead(ahead)
                .with_pausing(pause)
        };
        (0..).zip(devices).map(queue).collect()
    }

    /// The handle through which `worker` of `workers` sends, if there is a device.
    pub(crate) fn tx_port(&self, worker: usize, workers: usize) -> Option<TxPort> {
        let port = match &self.behind {
            Behind::Interface(interface) => interface.tx_port(worker),
            Behind::Guest(guest) => guest.tx_port(worker, workers),
            Behind::Tunnel(tunnel) => tunnel.tx_port()?,
            Behind::File(file) => file.tx_port(worker),
            Behind::Nothing(_) => return None,
        };
        Some(port.with_stall(self.spec.pressure.stall))
    }

    /// The rings of a tap device; `None` for other kinds.
    pub(crate) fn ring(&self, inquiry: &mut Inquiry) -> Option<RingReport> {
        self.interface()?.ring(inquiry)
    }

    /// The qdisc of an interface that the switch did not create, or under a tunnel; `None` for
    /// other kinds.
    pub(crate) fn queueing(&self, inquiry: &mut Inquiry) -> Option<QueueingReport> {
        match &self.behind {
            Behind::Tunnel(tunnel) => tunnel.queueing(inquiry),
            _ => self.interface()?.queueing(inquiry),
        }
    }

    /// Frames that the kernel dropped because the switch did not read them in time, if
    /// [`Self::ring`] does not report them.
    pub(crate) fn ring_drops(&self) -> u64 {
        match &self.behind {
            Behind::Interface(interface) => interface.ring_drops(),
            Behind::Guest(_) | Behind::File(_) | Behind::Nothing(_) => 0,
            Behind::Tunnel(tunnel) => tunnel.ring_drops(),
        }
    }
}

/// Time between two log lines about a stalled port.
const STALL_SILENCE: Duration = Duration::from_secs(60);
/// The MTU of a file: the maximum length of an IP packet.
const FILE_MTU: u32 = 65_535;
/// The envelope of a file: any number of tags.
const FILE_ENVELOPE: u16 = u16::MAX;
/// A guest's default MTU (virtio 1.2 §5.1.4.1).
const DEFAULT_MTU: u32 = 1500;
