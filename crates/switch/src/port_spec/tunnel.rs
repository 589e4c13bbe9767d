//! VXLAN tunnels as port options:
//! `vxlan:remote=192.0.2.2,vni=42,local=192.0.2.1,port=4789,csum=on`.

use std::fmt;
use std::net::IpAddr;

use tapswitch_openflow::PortNo;
use tapswitch_tunnel::{self as tunnel, VXLAN_PORT, Vni};

use super::{Fault, parse_switch, set};

/// A VXLAN tunnel to one remote (RFC 7348).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VxlanSpec {
    /// Name of the port: `vxlan` and its number.
    pub name: String,
    /// Address of the remote.
    pub remote: IpAddr,
    /// The VNI, the same at both ends.
    pub vni: Vni,
    /// Local address; `None` for the one that the route prefers.
    pub local: Option<IpAddr>,
    /// UDP port, the same at both ends.
    pub udp_port: u16,
    /// Whether the outer UDP checksum is computed over IPv4. Without it, trains are sent packet by
    /// packet: see [`tapswitch_tunnel`].
    pub checksum: bool,
}

impl VxlanSpec {
    /// Parses a tunnel's options ([`is_option`]) among `options`.
    pub(super) fn parse<'a>(
        number: PortNo,
        options: impl Iterator<Item = &'a str>,
    ) -> Result<Self, Fault> {
        let name = name("vxlan", number);
        let (mut remote, mut vni, mut local) = (None, None, None);
        let (mut udp_port, mut checksum) = (None, None);
        for (key, value) in options.filter_map(|option| option.split_once('=')) {
            match key {
                "remote" => set(&mut remote, key, value, value.parse().ok(), ADDRESS)?,
                "local" => set(&mut local, key, value, value.parse().ok(), ADDRESS)?,
                "vni" => set(&mut vni, key, value, value.parse().ok().and_then(Vni::new), VNI)?,
                "port" => set(&mut udp_port, key, value, parse_udp_port(value), UDP_PORT)?,
                "csum" => set(&mut checksum, key, value, parse_switch(value), "on or off")?,
                _ => {}
            }
        }
        let missing = |key, expected| Fault::NoTunnelOption { kind: "vxlan", key, expected };
        let remote = remote.ok_or(missing("remote", ADDRESS))?;
        check_remote(remote, local)?;
        Ok(Self {
            name,
            remote,
            vni: vni.ok_or(missing("vni", VNI))?,
            local,
            udp_port: udp_port.unwrap_or(VXLAN_PORT),
            checksum: checksum.unwrap_or(true),
        })
    }

    /// True if the kernel could not distinguish the tunnels' datagrams: the VNI is examined only
    /// behind the socket.
    pub fn is_same_place(&self, other: &Self) -> bool {
        (self.remote, self.udp_port) == (other.remote, other.udp_port)
            && may_be_same(self.local, other.local)
    }

    /// The configuration for the tunnel crate.
    pub(crate) fn config(&self) -> tunnel::Config {
        tunnel::Config::new(self.remote, self.vni)
            .local(self.local)
            .port(self.udp_port)
            .checksum(self.checksum)
    }
}

/// Whether two tunnels may have the same local address. The address that a route prefers is not
/// known here.
pub(super) fn may_be_same(one: Option<IpAddr>, other: Option<IpAddr>) -> bool {
    one.is_none_or(|one| other.is_none_or(|other| one == other))
}

/// Refuses what no other end can have as its address.
pub(super) fn check_remote(remote: IpAddr, local: Option<IpAddr>) -> Result<(), Fault> {
    let wrong = |what: &str| {
        let (key, value) = ("remote".to_owned(), remote.to_string());
        Fault::Contradiction { key, value, what: what.to_owned() }
    };
    tunnel::check_addresses(remote, local).map_err(wrong)
}

/// Name of a port of this kind.
pub(super) fn name(kind: &str, number: PortNo) -> String {
    match number {
        PortNo::LOCAL => format!("{kind}-local"),
        PortNo(number) => format!("{kind}{number}"),
    }
}

/// True for the options that [`VxlanSpec::parse`] reads.
pub(super) fn is_option(key: &str) -> bool {
    ["remote", "vni", "local", "port", "csum"].contains(&key)
}

fn parse_udp_port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

impl fmt::Display for VxlanSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "remote={},vni={}", self.remote, self.vni)?;
        if let Some(local) = self.local {
            write!(f, ",local={local}")?;
        }
        if self.udp_port != VXLAN_PORT {
            write!(f, ",port={}", self.udp_port)?;
        }
        f.write_str(if self.checksum { "" } else { ",csum=off" })
    }
}

pub(super) const ADDRESS: &str = "an IPv4 or IPv6 address";
const VNI: &str = "a number from 0 to 16777215";
const UDP_PORT: &str = "a UDP port from 1 to 65535";

#[cfg(test)]
mod tests {
    use crate::{Gro, PortSpec};

    fn parse(text: &str) -> PortSpec {
        text.parse().unwrap()
    }

    #[test]
    fn a_tunnel_survives_a_round_trip() {
        for text in [
            "1=vxlan:remote=192.0.2.2,vni=42",
            "2=vxlan:remote=2001:db8::2,vni=0,local=2001:db8::1,port=8472",
            "3=vxlan:remote=192.0.2.2,vni=16777215,csum=off,netns=wan,gro=off,mtu=1400,envelope=8",
            "4=vxlan:remote=192.0.2.2,vni=1,gro=auto,mode=access,vlan=10",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
        let turned = parse("1=vxlan:mtu=1400,vni=42,csum=on,remote=192.0.2.2");
        assert_eq!(turned.to_string(), "1=vxlan:remote=192.0.2.2,vni=42,mtu=1400");
        assert_eq!((turned.gro, turned.name()), (Gro::On, "vxlan1"));
    }

    #[test]
    fn errors_name_what_was_expected() {
        for (options, said) in [
            ("", "vxlan: needs remote=...: an IPv4 or IPv6 address"),
            ("vni=1", "vxlan: needs remote=...: an IPv4 or IPv6 address"),
            ("remote=192.0.2.2", "vxlan: needs vni=...: a number from 0 to 16777215"),
            ("remote=fe80::1,vni=1", "remote=fe80::1: is a link-local address; give a routable"),
            ("remote=10.0.0.1,local=::1,vni=1", "remote=10.0.0.1: has another IP version than"),
            ("local=10.0.0.1,vni=1,remote=10.0.0.1", "remote=10.0.0.1: is the address in local="),
            ("remote=host,vni=1", "remote=host: expected an IPv4 or IPv6 address"),
            ("remote=192.0.2.2,vni=16777216", "vni=16777216: expected a number from 0"),
            ("remote=192.0.2.2,vni=1,port=0", "port=0: expected a UDP port"),
            ("remote=192.0.2.2,vni=1,csum=no", "csum=no: expected on or off"),
            ("remote=192.0.2.2,vni=1,vni=2", "option 'vni' is given twice"),
            ("remote=192.0.2.2,vni=1,queues=2", "has no option 'queues'"),
            ("remote=192.0.2.2,vni=1,offload=off", "has no option 'offload'"),
            ("remote=192.0.2.2,vni=1,192.0.2.1", "option '192.0.2.1' has no value"),
        ] {
            let text = format!("1=vxlan:{options}");
            let error = text.parse::<PortSpec>().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn two_of_one_remote_need_two_udp_ports() {
        let first = parse("1=vxlan:remote=192.0.2.2,vni=1");
        for (other, is_same) in [
            ("2=vxlan:remote=192.0.2.2,vni=2", true),
            ("2=vxlan:remote=192.0.2.2,vni=1,local=192.0.2.1", true),
            ("2=vxlan:remote=192.0.2.2,vni=2,port=4790", false),
            ("2=vxlan:remote=192.0.2.3,vni=1", false),
            ("2=vxlan:remote=192.0.2.2,vni=1,netns=wan", false),
            ("2=tap:vxlan1", false),
        ] {
            assert_eq!(first.is_same_place(&parse(other)), is_same, "{other}");
            assert_eq!(parse(other).is_same_place(&first), is_same, "{other}");
        }
        let clash = parse("2=vxlan:remote=192.0.2.2,vni=2").check_beside(&first).unwrap_err();
        assert!(clash.to_string().contains("give one of them another port="), "{clash}");
    }
}
