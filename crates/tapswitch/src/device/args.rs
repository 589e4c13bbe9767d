//! The arguments of `tapswitch device`.

use std::net::IpAddr;
use std::str::FromStr;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tapswitch_netlink::QdiscSpec;
use tapswitch_tap::{DeviceName, HeaderLen, Kind, MacAddr, Offloads};

use crate::on_off::OnOff;
use crate::users::{Group, User};

#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceArgs {
    #[command(subcommand)]
    pub(crate) command: DeviceCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DeviceCommand {
    /// List the tun and tap devices of all namespaces, and the programs that hold them.
    List(DeviceListArgs),
    /// Show the complete state of one device.
    Show(DeviceNameArgs),
    /// Create a persistent device.
    Create(Box<DeviceCreateArgs>),
    /// Delete a device.
    Delete(DeviceDeleteArgs),
    /// Change settings of a device.
    Set(Box<DeviceSetArgs>),
    /// Diagnose one device or all, and print commands that fix the problems. Exit status: 0 if
    /// there are only hints, 1 if there are warnings or errors, 2 if nothing could be examined.
    Doctor(DeviceDoctorArgs),
}

/// Where the device is.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlaceArgs {
    /// Namespace of the device: a name of `ip netns`, or a path such as /proc/PID/ns/net.
    #[arg(long, value_name = "NS")]
    pub(crate) netns: Option<String>,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceListArgs {
    /// List only this namespace: a name of `ip netns`, or a path such as /proc/PID/ns/net.
    #[arg(long, value_name = "NS")]
    pub(crate) netns: Option<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceNameArgs {
    /// Name of the device.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Print JSON instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceDoctorArgs {
    /// Name of the device. Default: all devices of all namespaces.
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Management socket of the switch to ask for drop counters. Default: all in /run/tapswitch.
    #[arg(long, value_name = "PATH", env = "TAPSWITCH_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceDeleteArgs {
    /// Name of the device.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Delete it even while a program holds it.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceCreateArgs {
    /// Name of the device.
    pub(crate) name: DeviceName,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    /// Type: tap (Ethernet frames) or tun (IP packets).
    #[arg(long, value_name = "KIND", default_value = "tap")]
    pub(crate) kind: KindArg,
    /// Allow several queues.
    #[arg(long)]
    pub(crate) multi_queue: bool,
    #[command(flatten)]
    pub(crate) flags: FlagArgs,
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct DeviceSetArgs {
    /// Name of the device.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) place: PlaceArgs,
    #[command(flatten)]
    pub(crate) flags: FlagArgs,
    #[command(flatten)]
    pub(crate) settings: SettingArgs,
    /// Whether the device remains when its last program closes it. Off needs a program that holds
    /// the device; otherwise use `delete`.
    #[arg(long, value_name = "on|off")]
    pub(crate) persistent: Option<OnOff>,
    /// Set the carrier. A program must hold the device.
    #[arg(long, value_name = "on|off")]
    pub(crate) carrier: Option<OnOff>,
    /// Address to remove; may be repeated.
    #[arg(long, value_name = "IP/LEN")]
    pub(crate) delete_address: Vec<AddressArg>,
    /// Enable more offloads than the program that holds the device has asked for. It must evaluate
    /// the network header.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Flags that the first program to open the device sets; they can be changed while no program holds
/// it.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FlagArgs {
    /// Virtio network header before each frame, and its length in bytes. Default for a new device:
    /// 10, because most programs set the length that they need. `on` keeps the length.
    #[arg(long, value_name = "on|off|10|12|20|24")]
    pub(crate) vnet_hdr: Option<HeaderArg>,
    /// Four bytes of packet information before each frame.
    #[arg(long, value_name = "on|off")]
    pub(crate) pi: Option<OnOff>,
    /// Pass written frames through NAPI, and through GRO if --gro-flush-timeout is set.
    #[arg(long, value_name = "on|off")]
    pub(crate) napi: Option<OnOff>,
    /// Make a full ring stop the qdisc instead of dropping (Linux 7.3).
    #[arg(long, value_name = "on|off")]
    pub(crate) backpressure: Option<OnOff>,
}

/// Settings for creation and for later changes.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SettingArgs {
    /// User that may open the device without privilege: name or ID.
    #[arg(long, value_name = "USER")]
    pub(crate) owner: Option<User>,
    /// Group whose members may open the device without privilege: name or ID.
    #[arg(long, value_name = "GROUP")]
    pub(crate) group: Option<Group>,
    /// Offloads for frames read from the device: all, none, or a list of csum, tso4, tso6, tso,
    /// ecn, uso, tunnel, tunnel-csum, separated by commas. `all` excludes tunnels, which need a
    /// network header of 24 bytes (`--vnet-hdr 24`).
    #[arg(long, value_name = "LIST")]
    pub(crate) offloads: Option<OffloadsArg>,
    /// Feature with a name of `ethtool -k`, such as rx-gro-list or generic-receive-offload; may be
    /// repeated.
    #[arg(long, value_name = "NAME=on|off")]
    pub(crate) feature: Vec<FeatureArg>,
    /// MAC address.
    #[arg(long, value_name = "MAC")]
    pub(crate) mac: Option<MacAddr>,
    /// MTU in bytes.
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u32>,
    /// Length of the ring of each queue in frames.
    #[arg(long, value_name = "N")]
    pub(crate) txqueuelen: Option<u32>,
    /// Root queueing discipline: pfifo_fast, fq_codel, noqueue, ..., or default for the kernel's
    /// default.
    #[arg(long, value_name = "KIND[,limit=N]")]
    pub(crate) qdisc: Option<QdiscArg>,
    /// Address with prefix length; may be repeated.
    #[arg(long, value_name = "IP/LEN")]
    pub(crate) address: Vec<AddressArg>,
    /// How long GRO may hold packets, in nanoseconds; with --napi.
    #[arg(long, value_name = "NS")]
    pub(crate) gro_flush_timeout: Option<u64>,
    /// Number of empty NAPI polls before interrupts are enabled again; with --gro-flush-timeout.
    #[arg(long, value_name = "N")]
    pub(crate) napi_defer_hard_irqs: Option<u32>,
    /// Maximum number of frames that vhost-net may batch, 0 to 64.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    pub(crate) rx_frames: Option<u32>,
    /// Set the interface up.
    #[arg(long)]
    pub(crate) up: bool,
    /// Set the interface down.
    #[arg(long, conflicts_with = "up")]
    pub(crate) down: bool,
}

/// Whether there is a network header, and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HeaderArg {
    On,
    Off,
    #[value(name = "10")]
    Legacy,
    #[value(name = "12")]
    V1,
    #[value(name = "20")]
    Hash,
    #[value(name = "24")]
    Tunnel,
}

impl HeaderArg {
    pub(crate) fn is_on(self) -> bool {
        self != Self::Off
    }

    /// The requested length.
    pub(crate) fn len(self) -> Option<HeaderLen> {
        match self {
            Self::On | Self::Off => None,
            Self::Legacy => Some(HeaderLen::Legacy),
            Self::V1 => Some(HeaderLen::V1),
            Self::Hash => Some(HeaderLen::Hash),
            Self::Tunnel => Some(HeaderLen::Tunnel),
        }
    }
}

/// Type of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArg {
    /// Ethernet frames.
    Tap,
    /// IP packets.
    Tun,
}

impl From<KindArg> for Kind {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::Tap => Self::Tap,
            KindArg::Tun => Self::Tun,
        }
    }
}

/// A set of offloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OffloadsArg(pub(crate) Offloads);

impl FromStr for OffloadsArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |word| match word {
            "all" => Ok(Offloads::PLAIN),
            "none" => Ok(Offloads::empty()),
            "csum" => Ok(Offloads::CSUM),
            "tso" => Ok(Offloads::TSO),
            "tso4" => Ok(Offloads::TSO4),
            "tso6" => Ok(Offloads::TSO6),
            "ecn" => Ok(Offloads::TSO_ECN),
            "uso" => Ok(Offloads::USO),
            "tunnel" => Ok(Offloads::UDP_TUNNEL),
            "tunnel-csum" => Ok(Offloads::UDP_TUNNEL_CSUM),
            other => Err(format!(
                "'{other}' is not an offload; expected all, none, or some of csum, tso, tso4, \
                 tso6, ecn, uso, tunnel, tunnel-csum"
            )),
        };
        let words = text.split(',').map(one);
        let set = words.collect::<Result<Vec<_>, _>>()?.into_iter().collect::<Offloads>();
        if !set.is_empty() && !set.contains(Offloads::CSUM) {
            return Err("all offloads need csum; add it".to_owned());
        }
        if set.contains(Offloads::TSO_ECN) && !set.intersects(Offloads::TSO) {
            return Err("ecn needs tso4 or tso6; add one".to_owned());
        }
        if set.contains(Offloads::UDP_TUNNEL_CSUM) && !set.contains(Offloads::UDP_TUNNEL) {
            return Err("tunnel-csum needs tunnel; add it".to_owned());
        }
        if set.contains(Offloads::UDP_TUNNEL) && !set.intersects(Offloads::TSO.union(Offloads::USO))
        {
            return Err("tunnel needs tso4, tso6 or uso; add one".to_owned());
        }
        Ok(Self(set))
    }
}

/// A feature and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FeatureArg {
    pub(crate) name: String,
    pub(crate) on: bool,
}

impl FromStr for FeatureArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, state @ ("on" | "off"))) if !name.is_empty() => {
                Ok(Self { name: name.to_owned(), on: state == "on" })
            }
            _ => Err(format!("'{text}': expected NAME=on or NAME=off")),
        }
    }
}

/// A queueing discipline, or the kernel's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QdiscArg(pub(crate) Option<QdiscSpec>);

impl FromStr for QdiscArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, limit) = match text.split_once(',') {
            Some((kind, option)) => (kind, Some(option)),
            None => (text, None),
        };
        if kind.is_empty() || kind == "default" && limit.is_some() {
            return Err(format!("'{text}': expected KIND, KIND,limit=N or default"));
        }
        let spec = QdiscSpec::new(kind);
        let spec =
            match limit.map(|option| option.strip_prefix("limit=").unwrap_or("")) {
                None => spec,
                Some(limit) => spec.limit(limit.parse().map_err(|_| {
                    format!("'{text}': expected limit= and a number after the comma")
                })?),
            };
        Ok(Self((kind != "default").then_some(spec)))
    }
}

/// An address and its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressArg {
    pub(crate) ip: IpAddr,
    pub(crate) prefix_len: u8,
}

impl FromStr for AddressArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = || {
            let (ip, len) = text.split_once('/')?;
            let ip: IpAddr = ip.parse().ok()?;
            let prefix_len = len.parse().ok()?;
            let most = if ip.is_ipv4() { 32 } else { 128 };
            (prefix_len <= most).then_some(Self { ip, prefix_len })
        };
        parsed().ok_or_else(|| {
            format!("'{text}': expected an address and its prefix length, as in 10.0.0.1/24")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offloads_are_named_and_checked() {
        let parse = |text: &str| text.parse::<OffloadsArg>().map(|set| set.0);
        assert_eq!(parse("none"), Ok(Offloads::empty()));
        assert_eq!(parse("csum,tso4"), Ok(Offloads::CSUM | Offloads::TSO4));
        assert!(parse("all").unwrap().contains(Offloads::USO));
        let tunnels = parse("csum,uso,tunnel,tunnel-csum").unwrap();
        assert_eq!(tunnels, Offloads::CSUM | Offloads::USO | Offloads::TUNNEL);
        assert!(parse("csum,tunnel").unwrap_err().contains("tso4"));
        assert!(parse("csum,uso,tunnel-csum").unwrap_err().contains("needs tunnel"));
        for (text, word) in
            [("tso", "csum"), ("csum,ecn", "tso4"), ("csum,lro", "'lro'"), ("", "''")]
        {
            assert!(parse(text).unwrap_err().contains(word), "{text}");
        }
    }

    #[test]
    fn a_qdisc_may_have_a_limit() {
        let parse = |text: &str| text.parse::<QdiscArg>().map(|qdisc| qdisc.0);
        assert_eq!(parse("pfifo,limit=7"), Ok(Some(QdiscSpec::new("pfifo").limit(7))));
        assert_eq!(parse("noqueue"), Ok(Some(QdiscSpec::new("noqueue"))));
        assert_eq!(parse("default"), Ok(None));
        for text in ["", "pfifo,7", "pfifo,limit=x", "default,limit=1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_has_a_prefix_that_fits() {
        assert!("10.0.0.1/24".parse::<AddressArg>().is_ok());
        assert!("fd00::1/128".parse::<AddressArg>().is_ok());
        for text in ["10.0.0.1", "10.0.0.1/33", "10.0.0/8", "/24", "fd00::1/129"] {
            assert!(text.parse::<AddressArg>().unwrap_err().contains(text), "{text}");
        }
    }

    #[test]
    fn a_feature_is_on_or_off() {
        let feature = "rx-gro-list=off".parse::<FeatureArg>().unwrap();
        assert_eq!((feature.name.as_str(), feature.on), ("rx-gro-list", false));
        for text in ["rx-gro-list", "=on", "rx-gro-list=yes"] {
            assert!(text.parse::<FeatureArg>().is_err(), "{text}");
        }
    }
}
