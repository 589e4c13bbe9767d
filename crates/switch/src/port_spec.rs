//! Port specifications: `1=tap:vm0,netns=blue,queues=2,mtu=1500`, `2=netdev:eth1`,
//! `3=tap:vm1,mode=access,vlan=10`, `4=vhost:/run/vm2.sock,client`,
//! `5=vxlan:remote=192.0.2.2,vni=42` or `6=pcapng:/var/log/web.pcapng,rotate-size=100M`.

mod gre;
mod guest;
mod mode;
mod pcapng;
mod pressure;
mod ring;
mod tunnel;

use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU16;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tapswitch_datapath::MAX_PORT;
use tapswitch_datapath::vlan::PortMode;
use tapswitch_openflow::PortNo;
use tapswitch_tap::{DeviceName, NameError};
use tapswitch_wire::MacAddr;

pub use gre::GreSpec;
use guest::PATH_LEN_MAX;
pub use guest::{GuestSocket, SocketAccess, SocketSide};
use mode::{ModeOptions, ModeText};
pub use pcapng::PcapngSpec;
pub use pressure::{Pausing, Pressure};
pub use ring::{Backpressure, RingSpec};
pub use tunnel::VxlanSpec;

use crate::Gro;

/// A port as described by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// OpenFlow port number; [`PortNo::LOCAL`] for the switch's local port.
    pub number: PortNo,
    /// The device behind the port.
    pub kind: PortKind,
    /// Namespace of the interface; `None` for the switch's own.
    pub netns: Option<String>,
    /// Whether received packets are coalesced into trains.
    pub gro: Gro,
    /// Largest payload in bytes; `None` for the interface's own.
    pub mtu: Option<u32>,
    /// Limit of bytes of tags in addition to the payload; `None` for
    /// [`DEFAULT_ENVELOPE`](tapswitch_datapath::DEFAULT_ENVELOPE).
    pub envelope: Option<u16>,
    /// The port's VLAN mode.
    pub mode: Option<PortMode>,
    /// What happens to traffic that cannot be sent at once.
    pub pressure: Pressure,
    /// Whether floods and controllers' link probes are sent to the port. Otherwise it gets only
    /// frames that rules send to it, as for copies.
    pub is_flooded: bool,
    /// Whether trains and partial checksums are sent to the port; otherwise they are cut and
    /// completed first. A tap device without offloads has no network header either
    /// (`IFF_VNET_HDR`), so the kernel completes what it delivers. A packet socket keeps its header
    /// (`PACKET_VNET_HDR`), as received trains and partial checksums could not be distinguished
    /// from oversize or corrupt packets without it.
    pub offload: bool,
    /// The kernel's rings of a tap device.
    pub ring: RingSpec,
}

/// The device behind a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortKind {
    /// A tap device that the switch creates and owns.
    Tap {
        /// Name of the device.
        name: String,
        /// Queues, each with its own file descriptor.
        queues: NonZeroU16,
    },
    /// A tun device that the switch creates and owns: IP packets without Ethernet.
    Tun {
        /// Name of the device.
        name: String,
        /// Queues, each with its own file descriptor.
        queues: NonZeroU16,
        /// Station that receives packets whose station is unknown, such as a router; all if `None`.
        peer: Option<MacAddr>,
    },
    /// An existing interface, attached by `AF_PACKET`.
    Netdev {
        /// Name of the interface.
        name: String,
    },
    /// A guest, connected by vhost-user.
    Guest {
        /// The socket shared with its VMM.
        socket: GuestSocket,
        /// Maximum number of queue pairs.
        queues: NonZeroU16,
    },
    /// A VXLAN tunnel to another switch or any VTEP.
    Vxlan(VxlanSpec),
    /// A GRE or ERSPAN tunnel.
    Gre(Box<GreSpec>),
    /// A file to which frames are written.
    Pcapng(Box<PcapngSpec>),
}

impl PortKind {
    /// The keys of the options of this kind of port, except those of modes.
    fn options(&self) -> Vec<&'static str> {
        const FRAMES: [&str; 2] = ["mtu", "envelope"];
        const ANY: [&str; 4] = ["stall", "drain-ahead", "pause", "flood"];
        const RING: [&str; 3] = ["queues", "txqueuelen", "backpressure"];
        const TUNNEL: [&str; 4] = ["remote", "local", "netns", "gro"];
        let own: &[&[&str]] = match self {
            Self::Tap { .. } => &[&["netns"], &RING, &["gro", "offload"], &FRAMES],
            Self::Tun { .. } => &[&["netns", "peer"], &RING, &["gro", "offload"], &FRAMES],
            Self::Netdev { .. } => &[&["netns", "gro", "offload"], &FRAMES],
            Self::Guest { .. } => {
                &[&["queues", "owner", "group", "permissions", "offload"], &FRAMES]
            }
            Self::Vxlan(_) => &[&TUNNEL, &["vni", "port", "csum"], &FRAMES],
            Self::Gre(spec) if spec.kind() == "gre" => &[&TUNNEL, &["key"], &FRAMES],
            Self::Gre(_) => &[&TUNNEL, &["session", "version"], &FRAMES],
            Self::Pcapng(_) => &[
                &["rotate-size", "rotate-time", "keep", "max-size", "max-time"],
                &["snaplen", "wire-size", "buffer"],
            ],
        };
        own.iter().copied().chain([&ANY[..]]).flatten().copied().collect()
    }

    /// True for a tap or tun device, which the switch creates.
    pub(crate) fn is_device(&self) -> bool {
        matches!(self, Self::Tap { .. } | Self::Tun { .. })
    }

    /// True for an interface, which the switch creates or finds.
    pub(crate) fn is_interface(&self) -> bool {
        self.is_device() || matches!(self, Self::Netdev { .. })
    }

    /// Whether floods are sent to the port by default: not to a file, and not to GRE and ERSPAN, as
    /// these usually lead to an analyser of copies.
    fn is_flooded_by_default(&self) -> bool {
        !matches!(self, Self::Gre(_) | Self::Pcapng(_))
    }

    /// Whether received packets are coalesced by default. Packets from a tunnel were always cut for
    /// it, whoever sent them.
    fn default_gro(&self) -> Gro {
        match self {
            Self::Vxlan(_) | Self::Gre(_) => Gro::On,
            _ => Gro::default(),
        }
    }
}

impl PortSpec {
    /// Name of the interface; for a guest, the name of its socket; for a tunnel, its kind and id;
    /// for a file, its name.
    pub fn name(&self) -> &str {
        match &self.kind {
            PortKind::Tap { name, .. } | PortKind::Tun { name, .. } | PortKind::Netdev { name } => {
                name
            }
            PortKind::Guest { socket, .. } => socket.name(),
            PortKind::Vxlan(vxlan) => &vxlan.name,
            PortKind::Gre(gre) => &gre.name,
            PortKind::Pcapng(file) => file.name(),
        }
    }

    /// The port, if its interface has this name in this namespace.
    pub(crate) fn at(&self, netns: Option<String>, to: String) -> Self {
        let mut there = Self { netns, ..self.clone() };
        if let PortKind::Tap { name, .. } | PortKind::Tun { name, .. } | PortKind::Netdev { name } =
            &mut there.kind
        {
            *name = to;
        }
        there
    }

    /// True if both are the same interface, socket or file by name, or indistinguishable tunnels.
    /// Existing interfaces and namespaces may have other names as well: the switch asks the kernel
    /// for those when it opens a port.
    pub fn is_same_place(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (PortKind::Guest { socket, .. }, PortKind::Guest { socket: other, .. }) => {
                socket.path == other.path
            }
            (PortKind::Vxlan(_) | PortKind::Gre(_), _) => {
                self.netns == other.netns && self.is_same_tunnel(other)
            }
            (PortKind::Pcapng(file), PortKind::Pcapng(other)) => file.path == other.path,
            (kind, other) if !kind.is_interface() || !other.is_interface() => false,
            _ => (self.name(), &self.netns) == (other.name(), &other.netns),
        }
    }

    /// True if both are tunnels that could not be distinguished in one namespace.
    pub(crate) fn is_same_tunnel(&self, other: &Self) -> bool {
        match (&self.kind, &other.kind) {
            (PortKind::Vxlan(ours), PortKind::Vxlan(theirs)) => ours.is_same_place(theirs),
            (PortKind::Gre(ours), PortKind::Gre(theirs)) => ours.is_same_place(theirs),
            _ => false,
        }
    }

    /// Number of queues.
    pub fn queues(&self) -> NonZeroU16 {
        match self.kind {
            PortKind::Tap { queues, .. }
            | PortKind::Tun { queues, .. }
            | PortKind::Guest { queues, .. } => queues,
            _ => NonZeroU16::MIN,
        }
    }

    /// Number of rings or sockets for sending, each of which may be full separately.
    pub(crate) fn ring_count(&self) -> usize {
        match self.kind {
            PortKind::Vxlan(_) => tapswitch_tunnel::SENDERS,
            _ => self.queues().get().into(),
        }
    }

    /// The mode as the options that set it.
    pub fn mode_text(&self) -> Option<String> {
        self.mode.as_ref().map(|mode| ModeText(mode).to_string())
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let (number, device) = text.split_once('=').ok_or(Fault::NoNumber)?;
        let mut parts = device.split(',');
        let (kind, name) = parts.next().and_then(|d| d.split_once(':')).ok_or(Fault::NoKind)?;
        // A tunnel's options tell what it lacks.
        if name.is_empty() && !matches!(kind, "vxlan" | "gre" | "erspan") {
            return Err(Fault::NoName);
        }
        let number = parse_number(number)?;
        // A tunnel has no name of its own, so its options follow at once.
        let first = ["vxlan", "gre", "erspan"].contains(&kind).then_some(name);
        let options = first.into_iter().chain(parts);
        let kind = match kind {
            "tap" => PortKind::Tap { name: device_name(name)?, queues: NonZeroU16::MIN },
            "tun" => {
                PortKind::Tun { name: device_name(name)?, queues: NonZeroU16::MIN, peer: None }
            }
            "netdev" => PortKind::Netdev { name: name.into() },
            "vhost" => {
                let socket = GuestSocket::parse(name)?;
                PortKind::Guest { socket, queues: NonZeroU16::MIN }
            }
            "pcapng" => PortKind::Pcapng(Box::new(PcapngSpec::parse(name, options.clone())?)),
            "gre" => PortKind::Gre(Box::new(GreSpec::parse("gre", number, options.clone())?)),
            "erspan" => PortKind::Gre(Box::new(GreSpec::parse("erspan", number, options.clone())?)),
            "vxlan" => PortKind::Vxlan(VxlanSpec::parse(number, options.clone())?),
            other => return Err(Fault::UnknownKind(other.into())),
        };
        let (gro, is_flooded) = (kind.default_gro(), kind.is_flooded_by_default());
        let mut spec = Self {
            number,
            kind,
            netns: None,
            gro,
            mtu: None,
            envelope: None,
            mode: None,
            pressure: Pressure::default(),
            is_flooded,
            offload: true,
            ring: RingSpec::default(),
        };
        let (mut mode, mut side, mut keys) = (ModeOptions::default(), None, BTreeSet::new());
        for option in options {
            if let (PortKind::Guest { socket, .. }, Ok(given)) = (&mut spec.kind, option.parse()) {
                socket.side = given;
                if side.replace(given).is_some() {
                    return Err(Fault::Twice("server or client".into()));
                }
                continue;
            }
            let (key, value) =
                option.split_once('=').ok_or_else(|| Fault::NoValue(option.into()))?;
            if !keys.insert(key) {
                return Err(Fault::Twice(key.into()));
            }
            if !mode.set(key, value)? {
                spec.set(key, value)?;
            }
        }
        spec.mode = mode.build()?;
        if let PortKind::Guest { socket, .. } = &spec.kind {
            socket.check()?;
        }
        Ok(spec)
    }

    /// The error for an option that this kind of port does not have.
    fn unknown(&self, key: &str) -> Fault {
        Fault::UnknownOption {
            key: key.into(),
            port: self.to_string(),
            known: self.kind.options().join(", "),
        }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Fault> {
        let bad = |expected| Fault::BadValue { key: key.into(), value: value.into(), expected };
        if let Some(outcome) = self.pressure.set(key, value) {
            return outcome.map_err(bad);
        }
        if key == "flood" {
            self.is_flooded = parse_switch(value).ok_or_else(|| bad("on or off"))?;
            return Ok(());
        }
        if let PortKind::Guest { socket, .. } = &mut self.kind
            && socket.set(key, value)?
        {
            return Ok(());
        }
        match (key, &mut self.kind) {
            ("netns" | "gro", PortKind::Guest { .. }) => {
                return Err(self.unknown(key));
            }
            (_, PortKind::Vxlan(_)) if tunnel::is_option(key) => {}
            (_, PortKind::Pcapng(_)) if pcapng::is_option(key) => {}
            ("netns" | "gro" | "offload" | "mtu" | "envelope", PortKind::Pcapng(_)) => {
                return Err(self.unknown(key));
            }
            (_, PortKind::Gre(spec)) if gre::is_option(spec.kind(), key) => {}
            ("offload", PortKind::Vxlan(_) | PortKind::Gre(_)) => {
                return Err(self.unknown(key));
            }
            ("netns", _) if !value.is_empty() => self.netns = Some(value.into()),
            ("netns", _) => return Err(bad("the name of a network namespace, or a path to one")),
            ("mtu", _) => self.mtu = Some(parse_mtu(value).ok_or_else(|| bad(MTU_EXPECTED))?),
            ("envelope", _) => {
                let envelope = parse_envelope(value).ok_or_else(|| bad(ENVELOPE_EXPECTED))?;
                self.envelope = Some(envelope);
            }
            ("offload", _) => {
                self.offload = parse_switch(value).ok_or_else(|| bad("on or off"))?;
            }
            ("gro", _) => self.gro = value.parse().map_err(|_| bad(Gro::EXPECTED))?,
            ("peer", PortKind::Tun { peer, .. }) => {
                let mac = value.parse().ok().filter(|mac: &MacAddr| mac.is_unicast());
                *peer = Some(mac.ok_or_else(|| bad(PEER_EXPECTED))?);
            }
            ("queues", PortKind::Tap { queues, .. } | PortKind::Tun { queues, .. }) => {
                *queues = parse_queues(value, MAX_QUEUES).ok_or_else(|| bad(QUEUES_EXPECTED))?;
            }
            ("queues", PortKind::Guest { queues, .. }) => {
                *queues = parse_queues(value, MAX_PAIRS).ok_or_else(|| bad(PAIRS_EXPECTED))?;
            }
            (_, PortKind::Tap { .. } | PortKind::Tun { .. }) if self.ring.set(key, value)? => {}
            _ => return Err(self.unknown(key)),
        }
        Ok(())
    }
}

/// Parses a port number: `1` to `4095`, or `local`.
///
/// # Errors
/// If it is something else; the error contains the text.
pub fn parse_port_number(text: &str) -> Result<PortNo, ParsePortError> {
    parse_number(text).map_err(|fault| ParsePortError { text: text.into(), fault })
}

fn parse_number(text: &str) -> Result<PortNo, Fault> {
    if text.eq_ignore_ascii_case("local") {
        return Ok(PortNo::LOCAL);
    }
    let number = text.parse().ok().filter(|number| (1..=MAX_PORT).contains(number));
    number.map(PortNo).ok_or_else(|| Fault::BadNumber(text.into()))
}

/// Checks the name of a device to be created. Existing devices may have longer names.
fn device_name(text: &str) -> Result<String, Fault> {
    Ok(text.parse::<DeviceName>()?.to_string())
}

/// Parses an MTU: from IPv4's minimum (RFC 791 §3.2) to a tap device's maximum.
fn parse_mtu(text: &str) -> Option<u32> {
    text.parse().ok().filter(|mtu| (68..=MAX_MTU).contains(mtu))
}

/// Parses an envelope. IEEE 802.3as ends at 482 bytes (IEEE 802.3-2022 §3.2.7); the limit here is a
/// round number.
fn parse_envelope(text: &str) -> Option<u16> {
    text.parse().ok().filter(|envelope| *envelope <= MAX_ENVELOPE)
}

/// Sets the value of an option, which may be given once.
fn set<T>(
    place: &mut Option<T>,
    key: &str,
    value: &str,
    parsed: Option<T>,
    expected: &'static str,
) -> Result<(), Fault> {
    let bad = || Fault::BadValue { key: key.into(), value: value.into(), expected };
    match place.replace(parsed.ok_or_else(bad)?) {
        Some(_) => Err(Fault::Twice(key.into())),
        None => Ok(()),
    }
}

fn parse_switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

fn parse_queues(text: &str, most: u16) -> Option<NonZeroU16> {
    text.parse().ok().filter(|queues: &NonZeroU16| queues.get() <= most)
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            PortNo::LOCAL => f.write_str("local")?,
            number => write!(f, "{number}")?,
        }
        match &self.kind {
            PortKind::Tap { name, .. } => write!(f, "=tap:{name}")?,
            PortKind::Tun { name, peer, .. } => {
                write!(f, "=tun:{name}")?;
                peer.map_or(Ok(()), |peer| write!(f, ",peer={peer}"))?;
            }
            PortKind::Netdev { name } => write!(f, "=netdev:{name}")?,
            PortKind::Guest { socket, .. } => write!(f, "=vhost:{socket}")?,
            PortKind::Vxlan(vxlan) => write!(f, "=vxlan:{vxlan}")?,
            PortKind::Gre(gre) => write!(f, "={gre}")?,
            PortKind::Pcapng(file) => write!(f, "=pcapng:{file}")?,
        }
        if self.queues().get() > 1 {
            write!(f, ",queues={}", self.queues())?;
        }
        if let Some(netns) = &self.netns {
            write!(f, ",netns={netns}")?;
        }
        if self.gro != self.kind.default_gro() {
            write!(f, ",gro={}", self.gro)?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, ",mtu={mtu}")?;
        }
        if let Some(envelope) = self.envelope {
            write!(f, ",envelope={envelope}")?;
        }
        if let Some(mode) = &self.mode {
            write!(f, ",{}", ModeText(mode))?;
        }
        if !self.offload {
            f.write_str(",offload=off")?;
        }
        if self.is_flooded != self.kind.is_flooded_by_default() {
            write!(f, ",flood={}", if self.is_flooded { "on" } else { "off" })?;
        }
        write!(f, "{}{}", self.pressure, self.ring)
    }
}

impl FromStr for PortSpec {
    type Err = ParsePortError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).map_err(|fault| ParsePortError { text: text.into(), fault })
    }
}

impl Serialize for PortSpec {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PortSpec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A text that does not describe a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("port '{text}': {fault}")]
pub struct ParsePortError {
    text: String,
    fault: Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Fault {
    #[error(
        "expected NUMBER=tap:NAME, NUMBER=tun:NAME, NUMBER=netdev:IFNAME, NUMBER=vhost:PATH, \
         NUMBER=vxlan:remote=IP,vni=V, NUMBER=gre:remote=IP, NUMBER=erspan:remote=IP,... or \
         NUMBER=pcapng:PATH, as in 1=tap:vm0"
    )]
    NoNumber,
    #[error("'{0}' is not a port number; expected 1 to {MAX_PORT}, or local")]
    BadNumber(String),
    #[error(
        "expected tap:NAME, tun:NAME, netdev:IFNAME, vhost:PATH, vxlan:..., gre:..., erspan:... or \
         pcapng:PATH after the number"
    )]
    NoKind,
    #[error(
        "'{0}' is not a kind of port; expected tap, tun, netdev, vhost, vxlan, gre, erspan or \
         pcapng"
    )]
    UnknownKind(String),
    #[error(
        "owner, group and permissions need a listening port: leave out client, or these options"
    )]
    ClientAccess,
    #[error("the name of the interface, or the path of the socket or file, is missing")]
    NoName,
    #[error(transparent)]
    BadName(#[from] NameError),
    #[error("'{0}' cannot be the path of a socket; expected at most {PATH_LEN_MAX} bytes, not '/'")]
    BadPath(String),
    #[error("'{0}' cannot be the path of a file")]
    BadFile(String),
    #[error("option '{0}' has no value; expected KEY=VALUE")]
    NoValue(String),
    #[error("{key}={value}: expected {expected}")]
    BadValue { key: String, value: String, expected: &'static str },
    #[error("{port} has no option '{key}'; expected {known}, or mode with its options")]
    UnknownOption { key: String, port: String, known: String },
    #[error("option '{0}' is given twice")]
    Twice(String),
    #[error("option '{key}' belongs to a port mode; add mode=MODE")]
    NoMode { key: &'static str },
    #[error("mode={mode} has no option '{key}'; expected {known}")]
    NotOfMode { mode: &'static str, key: &'static str, known: String },
    #[error("{kind}: needs {key}=...: {expected}")]
    NoTunnelOption { kind: &'static str, key: &'static str, expected: &'static str },
    #[error("mode={mode} needs {key}=...: {expected}")]
    Missing { mode: &'static str, key: &'static str, expected: &'static str },
    #[error("{key}={value}: {what}")]
    Contradiction { key: String, value: String, what: String },
}

const MTU_EXPECTED: &str = "a number of bytes from 68 to 65521";
const ENVELOPE_EXPECTED: &str = "a number of bytes from 0 to 500";
const PEER_EXPECTED: &str = "a unicast MAC address, as in 02:00:00:00:00:01";
const QUEUES_EXPECTED: &str = "a number of queues from 1 to 256";
const PAIRS_EXPECTED: &str = "a number of pairs of queues from 1 to 128";
/// Largest MTU of a tap device (Linux `tun_net_init`).
pub(crate) const MAX_MTU: u32 = 65_521;
/// Largest envelope: frames of IEEE 802.3as have 2000 bytes, of which 482 are for tags and the
/// like.
pub(crate) const MAX_ENVELOPE: u16 = 500;
/// Most queues of a tap device (Linux `MAX_TAP_QUEUES`).
const MAX_QUEUES: u16 = 256;
/// Most queue pairs of a guest: the message that starts one has an eight-bit index (vhost-user,
/// `VHOST_USER_SET_VRING_KICK`).
const MAX_PAIRS: u16 = 128;

#[cfg(test)]
mod tests {
    use super::*;

    /// The pages that describe options.
    const PAGES: [&str; 4] = [
        include_str!("../../../docs/ports.md"),
        include_str!("../../../docs/virtual-machines.md"),
        include_str!("../../../docs/tunnels.md"),
        include_str!("../../../docs/taps.md"),
    ];

    fn error(text: &str) -> String {
        text.parse::<PortSpec>().unwrap_err().to_string()
    }

    #[test]
    fn a_port_survives_a_round_trip() {
        for text in [
            "1=tap:vm0",
            "2=tap:vm1,queues=4,netns=blue,mtu=9000",
            "3=netdev:eth1",
            "local=tap:br0",
            "4095=netdev:veth-a,netns=red",
            "5=tap:eth1,netns=/proc/17/ns/net",
            "1=netdev:eth0,mtu=1500,envelope=12",
            "1=netdev:eth0,mtu=1500,offload=off",
            "1=tap:a,netns=blue,gro=off,mtu=1500",
            "2=tap:b,gro=on",
            "2=tap:b,backpressure=on,txqueuelen=10",
            "2=tap:b,offload=off,backpressure=off",
            "1=tun:vpn0",
            "1=tun:vpn0,peer=02:00:00:00:00:01,queues=2,netns=blue,mtu=1400,backpressure=off",
            "1=vhost:/run/vm0.sock",
            "1=vhost:vm0.sock,client,queues=2,mtu=9000,offload=off",
            "1=vhost:/run/vm0.sock,mode=access,vlan=10",
            "1=tap:a,mode=access,vlan=10",
            "1=tap:a,mode=trunk",
            "1=tap:a,mode=trunk,vlans=10+20-30,native=1",
            "1=tap:a,mode=dot1q-tunnel,vlan=100",
            "1=tap:a,envelope=0,mode=dot1q-tunnel,vlan=100,vlans=1-9",
            "1=tap:a,mode=qinq,map=10:100+20-29:200+30:300/31,untagged=100",
            "1=tap:a,mode=provider",
            "1=tap:a,mode=provider,vlans=100+200-299,tpid=0x9100,translate=100:1100",
            "1=tap:a,mode=provider,translate=100:1100",
            "1=tap:a,stall=0",
            "1=vhost:a,offload=off,stall=200,drain-ahead=off",
            "1=netdev:a,drain-ahead=512",
            "1=netdev:a,drain-ahead=off,pause=off",
            "1=vhost:a,pause=on",
            "1=vxlan:remote=192.0.2.2,vni=1,flood=off",
            "1=gre:remote=192.0.2.2,flood=on,stall=0",
            "1=pcapng:a,flood=on",
        ] {
            assert_eq!(text.parse::<PortSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn errors_name_the_place_and_what_was_expected() {
        assert!(error("tap:vm0").contains("expected NUMBER=tap:NAME"));
        assert!(error("0=tap:vm0").contains("'0' is not a port number; expected 1 to 4095"));
        assert!(error("1=veth:x").contains("'veth' is not a kind of port"));
        assert!(error("1=tap:").contains("name of the interface, or the path"));
        assert!(error("1=tap:sixteen-bytes-xy").contains("is longer than 15 bytes; use 1 to 15"));
        assert!(error("1=tun:a b").contains("contains white space"));
        assert!("1=netdev:an-alternative-name".parse::<PortSpec>().is_ok());
        assert!(error("1=vhost:/").contains("'/' cannot be the path of a socket"));
        let long = format!("1=vhost:/{}", "x".repeat(107));
        assert!(error(&long).contains("at most 107 bytes"));
        assert!(error("1=vhost:a,netns=b").contains("1=vhost:a has no option 'netns'"));
        assert!(error("1=vhost:a,gro=on").contains("1=vhost:a has no option 'gro'"));
        assert!(error("1=tun:a,peer=me").contains("peer=me: expected a unicast MAC address"));
        assert!(error("1=tun:a,peer=ff:ff:ff:ff:ff:ff").contains("expected a unicast MAC address"));
        assert!(error("1=tap:a,peer=02:00:00:00:00:01").contains("has no option 'peer'"));
        assert!(error("1=tap:a,client").contains("option 'client' has no value"));
        assert!(error("1=tap:a,mtu=12").contains("mtu=12: expected a number of bytes"));
        assert!(error("1=tap:a,queues=0").contains("queues=0: expected a number of queues"));
        assert!(error("1=vhost:a,queues=129").contains("pairs of queues from 1 to 128"));
        assert!("1=vhost:a,queues=128".parse::<PortSpec>().is_ok());
        assert!("1=tap:a,queues=256".parse::<PortSpec>().is_ok());
        assert!(error("1=tap:a,gro=yes").contains("gro=yes: expected on, off or auto"));
        assert!(
            error("1=tap:a,txqueuelen=0").contains("txqueuelen=0: expected a number of frames")
        );
        assert!(error("1=tap:a,backpressure=yes").contains("expected on, off or auto"));
        assert!(error("1=netdev:a,txqueuelen=9").contains("no option 'txqueuelen'"));
        assert!(error("1=netdev:a,queues=2").contains("no option 'queues'"));
        assert!(error("1=tap:a,colour").contains("option 'colour' has no value"));
        assert!(error("1=tap:a,offload=no").contains("offload=no: expected on or off"));
        assert!(error("1=tap:a,stall=50ms").contains("stall=50ms: expected milliseconds from 0"));
        assert!(error("1=tap:a,drain-ahead=1").contains("expected on, off or a number of KiB"));
        assert!(error("1=tap:a,pause=no").contains("expected on, off or auto"));
        assert!(error("1=gre:remote=192.0.2.2,flood=no").contains("flood=no: expected on or off"));
        assert!(error("1=tap:a,envelope=501").contains("envelope=501: expected a number of bytes"));
    }

    #[test]
    fn each_option_is_there_once_and_what_is_told_to_be_there_is() {
        for kind in [
            "tap:a",
            "tun:a",
            "netdev:a",
            "vhost:a",
            "vxlan:remote=192.0.2.2,vni=1",
            "gre:remote=192.0.2.2",
            "erspan:remote=192.0.2.2,session=1,version=2",
            "pcapng:a",
        ] {
            let spec: PortSpec = format!("1={kind}").parse().unwrap();
            for key in spec.kind.options() {
                let text = error(&format!("1={kind},{key}="));
                assert!(!text.contains("no option"), "{text}");
                let is_described = PAGES.iter().any(|page| page.contains(&format!("`{key}=")));
                assert!(is_described, "{key} of {kind}");
            }
            let text = error(&format!("1={kind},colour=red"));
            assert!(text.contains("has no option 'colour'; expected "), "{text}");
            let text = error(&format!("1={kind},stall=1,stall=2"));
            assert!(text.contains("option 'stall' is given twice"), "{text}");
        }
        for options in ["mtu=1500,mtu=1400", "queues=1,queues=1", "netns=a,netns=b"] {
            assert!(error(&format!("1=tap:a,{options}")).contains("is given twice"), "{options}");
        }
        assert!(error("1=vhost:a,gro=on").ends_with("or mode with its options"));
    }

    #[test]
    fn options_may_come_in_any_order_and_lists_are_put_in_order() {
        let spec: PortSpec = "1=tap:a,vlans=30+20-25+26,mtu=1400,mode=trunk".parse().unwrap();
        assert_eq!(spec.to_string(), "1=tap:a,mtu=1400,mode=trunk,vlans=20-26+30");
    }

    #[test]
    fn errors_of_modes_name_the_option_and_what_was_expected() {
        for (options, said) in [
            ("mode=acess", "mode=acess: expected access, trunk, dot1q-tunnel, qinq or provider"),
            ("vlan=10", "option 'vlan' belongs to a port mode; add mode=MODE"),
            ("mode=access", "mode=access needs vlan=...: a VLAN identifier from 1 to 4094"),
            ("mode=dot1q-tunnel", "mode=dot1q-tunnel needs vlan="),
            ("mode=access,vlan=0", "vlan=0: expected a VLAN identifier from 1 to 4094"),
            ("mode=access,vlan=4095", "vlan=4095: expected a VLAN identifier from 1 to 4094"),
            ("mode=access,vlan=1,vlan=2", "option 'vlan' is given twice"),
            ("mode=access,mode=trunk", "option 'mode' is given twice"),
            ("mode=access,vlan=1,native=2", "mode=access has no option 'native'; expected vlan"),
            ("mode=trunk,vlan=1", "mode=trunk has no option 'vlan'; expected vlans, native"),
            ("mode=trunk,vlans=1-5000", "vlans=1-5000: expected VLAN identifiers from 1 to 4094"),
            ("mode=trunk,vlans=30-20", "vlans=30-20: expected VLAN identifiers"),
            ("mode=trunk,vlans=10,20", "option '20' has no value"),
            ("mode=trunk,vlans=", "vlans=: expected VLAN identifiers"),
            ("mode=qinq", "mode=qinq needs map=...: C-VLANs with their S-VLAN"),
            ("mode=qinq,map=10", "map=10: expected C-VLANs with their S-VLAN, as in 10:100"),
            ("mode=qinq,map=10:100/5000", "map=10:100/5000: expected C-VLANs"),
            ("mode=qinq,map=1-20:1+20:2", "1-20:1 and 20:2 overlap; a C-VLAN belongs to one"),
            ("mode=qinq,map=1-20:1/5", "translate them one by one"),
            ("mode=qinq,map=1:9/5+5:9", "have the same tags on the S-VLAN side"),
            ("mode=provider,tpid=0x0800", "tpid=0x0800: expected 0x88a8, 0x8100 or 0x9100"),
            ("mode=provider,tpid=88a8", "tpid=88a8: expected 0x88a8"),
            ("mode=provider,translate=1", "translate=1: expected S-VLANs outside and inside"),
            ("mode=provider,translate=1:2+1:3", "S-VLAN 1 is given twice outside"),
            ("mode=provider,vlans=1,translate=2:3", "S-VLAN 2 is translated, but is not"),
            ("mode=provider,vlans=1+2,translate=1:2", "would be both"),
        ] {
            let text = error(&format!("1=tap:a,{options}"));
            assert!(text.contains(said), "{options}: {text}");
            assert!(text.starts_with(&format!("port '1=tap:a,{options}': ")), "{text}");
        }
    }
}
