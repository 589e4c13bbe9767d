//! GRE and ERSPAN tunnels as port options: `gre:remote=192.0.2.2,key=42` or
//! `erspan:remote=192.0.2.2,session=7,version=3`.

use std::fmt;
use std::net::IpAddr;

use tapswitch_openflow::PortNo;
use tapswitch_tunnel::{Carrier, GreConfig, Session};

use super::tunnel::{ADDRESS, check_remote, may_be_same, name};
use super::{Fault, set};

/// A GRE (RFC 2784, RFC 2890) or ERSPAN tunnel to one remote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GreSpec {
    /// Name of the port: `gre` or `erspan`, and its number.
    pub name: String,
    /// Address of the remote.
    pub remote: IpAddr,
    /// Local address; `None` for the one that the route prefers.
    pub local: Option<IpAddr>,
    /// The header in front of each frame, the same at both ends.
    pub carrier: Carrier,
}

impl GreSpec {
    /// Parses the options of a tunnel of this `kind`, `gre` or `erspan`, among `options`.
    pub(super) fn parse<'a>(
        kind: &'static str,
        number: PortNo,
        options: impl Iterator<Item = &'a str>,
    ) -> Result<Self, Fault> {
        let (mut remote, mut local, mut key) = (None, None, None);
        let (mut session, mut version) = (None, None);
        for (option, value) in options.filter_map(|option| option.split_once('=')) {
            match (option, kind) {
                ("remote", _) => set(&mut remote, option, value, value.parse().ok(), ADDRESS)?,
                ("local", _) => set(&mut local, option, value, value.parse().ok(), ADDRESS)?,
                ("key", "gre") => set(&mut key, option, value, value.parse().ok(), KEY)?,
                ("session", "erspan") => {
                    let parsed = value.parse().ok().and_then(Session::new);
                    set(&mut session, option, value, parsed, SESSION)?;
                }
                ("version", "erspan") => {
                    set(&mut version, option, value, parse_version(value), VERSION)?;
                }
                _ => {}
            }
        }
        let missing = |key, expected| Fault::NoTunnelOption { kind, key, expected };
        let remote = remote.ok_or_else(|| missing("remote", ADDRESS))?;
        check_remote(remote, local)?;
        let carrier = match kind {
            "gre" => Carrier::Gre { key },
            _ => {
                let session = session.ok_or_else(|| missing("session", SESSION))?;
                let second = version.ok_or_else(|| missing("version", VERSION))? == 2;
                if second { Carrier::ErspanII(session) } else { Carrier::ErspanIII(session) }
            }
        };
        Ok(Self { name: name(kind, number), remote, local, carrier })
    }

    /// `gre` or `erspan`.
    pub fn kind(&self) -> &'static str {
        match self.carrier {
            Carrier::Gre { .. } => "gre",
            Carrier::ErspanII(_) | Carrier::ErspanIII(_) => "erspan",
        }
    }

    /// True if the packets of the two tunnels could not be distinguished.
    pub fn is_same_place(&self, other: &Self) -> bool {
        (self.remote, self.carrier) == (other.remote, other.carrier)
            && may_be_same(self.local, other.local)
    }

    /// The configuration for the tunnel crate.
    pub(crate) fn config(&self) -> GreConfig {
        GreConfig::new(self.remote, self.carrier).local(self.local)
    }
}

/// True for the options that [`GreSpec::parse`] reads.
pub(super) fn is_option(kind: &str, key: &str) -> bool {
    let own: &[&str] = if kind == "gre" { &["key"] } else { &["session", "version"] };
    ["remote", "local"].contains(&key) || own.contains(&key)
}

fn parse_version(text: &str) -> Option<u8> {
    text.parse().ok().filter(|version| matches!(version, 2 | 3))
}

impl fmt::Display for GreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:remote={}", self.kind(), self.remote)?;
        if self.carrier.id().is_some() {
            write!(f, ",{}", self.carrier)?;
        }
        self.local.map_or(Ok(()), |local| write!(f, ",local={local}"))
    }
}

const KEY: &str = "a number from 0 to 4294967295";
const SESSION: &str = "a number from 0 to 1023";
const VERSION: &str = "2 or 3";

#[cfg(test)]
mod tests {
    use crate::{Gro, PortSpec};

    fn parse(text: &str) -> PortSpec {
        text.parse().unwrap()
    }

    #[test]
    fn a_tunnel_survives_a_round_trip() {
        for text in [
            "1=gre:remote=192.0.2.2",
            "2=gre:remote=2001:db8::2,key=0,local=2001:db8::1",
            "3=gre:remote=192.0.2.2,key=4294967295,netns=wan,gro=off,mtu=1400",
            "4=erspan:remote=192.0.2.2,session=1023,version=2",
            "5=erspan:remote=192.0.2.2,session=0,version=3,mode=access,vlan=10",
        ] {
            assert_eq!(parse(text).to_string(), text);
        }
        let turned = parse("1=erspan:version=3,session=7,mtu=1400,remote=192.0.2.2");
        let text = "1=erspan:remote=192.0.2.2,session=7,version=3,mtu=1400";
        assert_eq!((turned.to_string().as_str(), turned.name()), (text, "erspan1"));
        assert_eq!(turned.gro, Gro::On);
    }

    #[test]
    fn errors_name_what_was_expected() {
        for (tunnel, said) in [
            ("gre:remote=10.0.0.1,local=10.0.0.1", "remote=10.0.0.1: is the address in local="),
            ("gre:remote=10.0.0.1,local=::1", "remote=10.0.0.1: has another IP version"),
            ("gre:remote=224.0.0.1", "remote=224.0.0.1: is not the address of a host"),
            ("gre:", "gre: needs remote=...: an IPv4 or IPv6 address"),
            ("erspan:", "erspan: needs remote=...: an IPv4 or IPv6 address"),
            ("gre:key=1", "gre: needs remote=...: an IPv4 or IPv6 address"),
            ("gre:remote=192.0.2.2,key=-1", "key=-1: expected a number from 0"),
            ("gre:remote=192.0.2.2,session=1", "has no option 'session'"),
            ("gre:remote=192.0.2.2,vni=1", "has no option 'vni'"),
            ("gre:remote=192.0.2.2,offload=off", "has no option 'offload'"),
            ("erspan:remote=192.0.2.2,version=2", "erspan: needs session=...: a number from 0"),
            ("erspan:remote=192.0.2.2,session=1", "erspan: needs version=...: 2 or 3"),
            ("erspan:remote=192.0.2.2,session=1024,version=2", "session=1024: expected a number"),
            ("erspan:remote=192.0.2.2,session=1,version=1", "version=1: expected 2 or 3"),
            ("erspan:remote=192.0.2.2,session=1,version=2,key=1", "has no option 'key'"),
        ] {
            let error = format!("1={tunnel}").parse::<PortSpec>().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn two_of_one_remote_need_two_keys() {
        let first = parse("1=gre:remote=192.0.2.2,key=1");
        for (other, is_same) in [
            ("2=gre:remote=192.0.2.2,key=1,local=192.0.2.1", true),
            ("2=gre:remote=192.0.2.2,key=2", false),
            ("2=gre:remote=192.0.2.2", false),
            ("2=gre:remote=192.0.2.3,key=1", false),
            ("2=erspan:remote=192.0.2.2,session=1,version=2", false),
            ("2=vxlan:remote=192.0.2.2,vni=1", false),
        ] {
            assert_eq!(first.is_same_place(&parse(other)), is_same, "{other}");
        }
        let clash = parse("2=gre:remote=192.0.2.2,key=1").check_beside(&first).unwrap_err();
        assert!(clash.to_string().contains("another key or session"), "{clash}");
    }
}
