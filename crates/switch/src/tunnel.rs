//! Tunnels behind ports.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tapswitch_netlink::Namespace;
use tapswitch_tunnel::{Receiver, VxlanPort, overhead};
use tapswitch_wire::MacAddr;

use crate::PortSpec;
use crate::device::OpenPortError;
use crate::port_spec::VxlanSpec;
use crate::report::TunnelReport;
use crate::rx::{RxDevice, VxlanRx};
use crate::tx::{Takes, TxDevice, TxPort};

/// A tunnel that is open.
#[derive(Debug)]
pub(crate) struct Tunnel {
    port: Arc<VxlanPort>,
    mtu: u32,
    mac: MacAddr,
}

impl Tunnel {
    /// Opens the tunnel that `spec` describes.
    pub(crate) fn open(spec: &PortSpec, vxlan: &VxlanSpec) -> Result<Self, OpenPortError> {
        let text = || spec.to_string();
        let namespace = match &spec.netns {
            Some(name) => Namespace::open(name),
            None => Namespace::current(),
        };
        let port = namespace
            .and_then(|namespace| namespace.enter(|| VxlanPort::open(&vxlan.config())))
            .map_err(|source| OpenPortError::Namespace { port: text(), source })?
            .map_err(|source| OpenPortError::Tunnel { port: text(), source })?;
        let fitting = fitting_mtu(spec, &port);
        let mtu = spec.mtu.unwrap_or(fitting);
        if mtu > fitting {
            tracing::warn!(
                "port {spec}: the path to {} takes frames with at most {fitting} bytes of payload; \
                 longer ones will be dropped as oversize: give mtu={fitting}",
                vxlan.remote
            );
        }
        Ok(Self { port: Arc::new(port), mtu, mac: mac(spec, vxlan) })
    }

    /// Largest payload in bytes: what was asked for, or what the path takes.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }

    pub(crate) fn mac(&self) -> MacAddr {
        self.mac
    }

    /// Offloads in words, for reports.
    pub(crate) fn offloads(&self) -> String {
        let words = if self.port.sends_segments() { "udp_segment,udp_gro" } else { "udp_gro" };
        words.to_owned()
    }

    pub(crate) fn rx_device(&self) -> RxDevice {
        let receiver = Box::new(Receiver::new(self.port.clone()));
        RxDevice::Vxlan(VxlanRx { receiver, mtu: self.mtu })
    }

    pub(crate) fn tx_port(&self) -> TxPort {
        TxPort::new(TxDevice::Vxlan(self.port.clone()), Takes::NOTHING)
    }

    /// Datagrams that the kernel dropped, most of them because the switch did not read them in
    /// time.
    pub(crate) fn ring_drops(&self) -> u64 {
        self.port.counters().dropped
    }

    pub(crate) fn report(&self) -> TunnelReport {
        let counters = self.port.counters();
        TunnelReport {
            remote: self.port.remote().to_string(),
            local: self.port.local().to_string(),
            vni: self.port.vni().get(),
            // Without a route there is no path now.
            path_mtu: self.port.path_mtu().unwrap_or(0),
            receive_buffer: self.port.receive_buffer_len().unwrap_or(0),
            send_calls: counters.send_calls,
            sent: counters.sent,
            receive_calls: counters.receive_calls,
            received: counters.received,
            runt: counters.runt,
            no_vni: counters.no_vni,
            wrong_vni: counters.wrong_vni,
            unreachable: counters.unreachable,
        }
    }
}

/// The largest payload that fits the path, beside the tags that were asked for.
fn fitting_mtu(spec: &PortSpec, port: &VxlanPort) -> u32 {
    let path = port.path_mtu().unwrap_or(ETHERNET_MTU);
    let tags = spec.envelope.map_or(0, u32::from);
    path.saturating_sub(overhead(port.remote()) + tags)
}

/// The same for the same tunnel at each start.
fn mac(spec: &PortSpec, vxlan: &VxlanSpec) -> MacAddr {
    let mut hasher = DefaultHasher::new();
    (&spec.netns, vxlan.remote, vxlan.local, vxlan.udp_port, vxlan.vni.get()).hash(&mut hasher);
    let [a, b, c, d, e, ..] = hasher.finish().to_be_bytes();
    // Locally administered (IEEE 802-2014 §8.2.2).
    MacAddr([0x02, a, b, c, d, e])
}

/// Taken for the path's where the kernel does not tell.
const ETHERNET_MTU: u32 = 1500;
