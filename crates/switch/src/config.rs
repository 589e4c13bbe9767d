//! The configuration of a switch.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tapswitch_openflow::{DatapathId, PortNo};
use tapswitch_tls::{ClientFiles, PeerName, TlsFiles};

use crate::{PortKind, PortSpec};

/// The configuration of a switch.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of the bridge, for reports.
    pub name: String,
    /// Unique id of the datapath.
    pub datapath_id: DatapathId,
    /// Controllers that the switch connects to.
    pub controllers: Vec<Endpoint>,
    /// Addresses on which the switch accepts connections, such as `ovs-ofctl`'s.
    pub listen: Vec<Endpoint>,
    /// Key and certificates for the endpoints that use TLS.
    pub tls: Option<Tls>,
    /// Silence of a peer after which an echo request is sent, and then until the connection is
    /// closed (OpenFlow 1.3.5 §6.3.4); [`Duration::MAX`] for never.
    pub echo_interval: Duration,
    /// Behaviour while no controller is connected.
    pub fail_mode: FailMode,
    /// The tags that separate VLANs in the MAC table of NORMAL.
    pub learning: Learning,
    /// Its ports.
    pub ports: Vec<PortSpec>,
    /// Number of workers; by default the number of queues of the port with the most, limited to the
    /// number of cores.
    pub workers: Option<NonZeroUsize>,
    /// Cores to which the workers are pinned, in order; if empty, the kernel places them.
    pub cores: Vec<usize>,
}

impl Config {
    /// A switch with only its name and id set.
    pub fn new(name: impl Into<String>, datapath_id: DatapathId) -> Self {
        Self {
            name: name.into(),
            datapath_id,
            controllers: Vec::new(),
            listen: Vec::new(),
            tls: None,
            echo_interval: tapswitch_channel::Config::default().echo_interval,
            fail_mode: FailMode::default(),
            learning: Learning::default(),
            ports: Vec::new(),
            workers: None,
            cores: Vec::new(),
        }
    }

    /// Reports the first error: a TLS endpoint without certificates, or a controller, a core, or a
    /// port's number, interface or socket that is used twice.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let mut endpoints = self.controllers.iter().chain(&self.listen);
        if let Some(at) = endpoints.find(|at| at.transport == Transport::Tls && self.tls.is_none())
        {
            return Err(ConfigError::NoCertificate { endpoint: *at });
        }
        for (position, at) in self.controllers.iter().enumerate() {
            if at.address.port() == 0 {
                return Err(ConfigError::ControllerNowhere { endpoint: *at });
            }
            if self.controllers[..position].contains(at) {
                return Err(ConfigError::ControllerTwice { endpoint: *at });
            }
        }
        for (position, &core) in self.cores.iter().enumerate() {
            if self.cores[..position].contains(&core) {
                return Err(ConfigError::CoreTwice { core });
            }
        }
        for (position, port) in self.ports.iter().enumerate() {
            self.ports[..position].iter().try_for_each(|other| port.check_beside(other))?;
        }
        Ok(())
    }

    /// Number of workers: as configured, or the number of queues of the port with the most, but no
    /// more than there are cores.
    pub(crate) fn worker_count(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let queues = self.ports.iter().map(|port| usize::from(port.queues().get())).max();
        self.workers.map_or_else(|| queues.unwrap_or(1).min(cores), NonZeroUsize::get)
    }

    /// A warning about cores to which no worker is pinned, if there are fewer workers.
    pub(crate) fn spare_cores(&self, workers: usize) -> Option<String> {
        let spare = self.cores.get(workers..).filter(|spare| !spare.is_empty())?;
        let spare: Vec<_> = spare.iter().map(ToString::to_string).collect();
        let why = match self.workers {
            Some(_) => "as configured",
            None => "the largest number of queues of a port",
        };
        Some(format!(
            "no worker is pinned to core {}: the number of workers is {workers} ({why}); set \
             --workers {} (workers in a file), or list fewer cores",
            spare.join(", "),
            self.cores.len()
        ))
    }
}

/// Behaviour while no controller is connected (OpenFlow 1.3.5 §6.3.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailMode {
    /// The switch ignores its rules and forwards as a learning switch.
    #[default]
    Standalone,
    /// The switch keeps forwarding by its rules; packets for the controller are dropped.
    Secure,
}

impl FromStr for FailMode {
    type Err = ParseFailModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "standalone" => Ok(Self::Standalone),
            "secure" => Ok(Self::Secure),
            _ => Err(ParseFailModeError(text.to_owned())),
        }
    }
}

impl fmt::Display for FailMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Standalone => "standalone",
            Self::Secure => "secure",
        })
    }
}

/// The tags that separate VLANs where the reserved port NORMAL learns stations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Learning {
    /// The outermost tag: its TPID and VLAN id.
    #[default]
    Outer,
    /// The two outermost tags: an S-VLAN and the C-VLAN in it.
    Stack,
}

impl FromStr for Learning {
    type Err = ParseLearningError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "outer" => Ok(Self::Outer),
            "stack" => Ok(Self::Stack),
            _ => Err(ParseLearningError(text.to_owned())),
        }
    }
}

impl fmt::Display for Learning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outer => "outer",
            Self::Stack => "stack",
        })
    }
}

/// A text that is not a [`Learning`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a learning mode; expected outer or stack")]
pub struct ParseLearningError(String);

/// A text that is not a [`FailMode`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a fail-mode; expected standalone or secure")]
pub struct ParseFailModeError(String);

/// An endpoint of OpenFlow connections: `tcp:ADDRESS:PORT`, or `tls:ADDRESS:PORT`, which Open
/// vSwitch calls `ssl:`. Without a port it has the default one (OpenFlow 1.3.5 §6.3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The transport.
    pub transport: Transport,
    /// The socket address.
    pub address: SocketAddr,
}

/// The transport of an OpenFlow connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Plain TCP.
    Tcp,
    /// TLS with certificates of both ends.
    Tls,
}

impl Endpoint {
    /// A TCP endpoint.
    pub const fn tcp(address: SocketAddr) -> Self {
        Self { transport: Transport::Tcp, address }
    }

    /// A TLS endpoint.
    pub const fn tls(address: SocketAddr) -> Self {
        Self { transport: Transport::Tls, address }
    }
}

impl FromStr for Endpoint {
    type Err = ParseEndpointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseEndpointError(text.to_owned());
        let (transport, address) = text.split_once(':').ok_or_else(error)?;
        let transport = match transport {
            "tcp" => Transport::Tcp,
            "tls" | "ssl" => Transport::Tls,
            _ => return Err(error()),
        };
        let with_port = |_| format!("{address}:{DEFAULT_PORT}").parse();
        let address = address.parse().or_else(with_port).map_err(|_| error())?;
        Ok(Self { transport, address })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
        };
        write!(f, "{transport}:{}", self.address)
    }
}

impl Serialize for Endpoint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A text that is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not an endpoint; expected tcp:ADDRESS:PORT or tls:ADDRESS:PORT, as in \
     tcp:127.0.0.1:6653 or tls:[::1]:6653 (which is the default port); host names are not resolved"
)]
pub struct ParseEndpointError(String);

/// OpenFlow's port at the IANA.
const DEFAULT_PORT: u16 = 6653;

/// Files with the switch's key and certificate, and the certificate authorities it trusts, as PEM.
/// The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The switch's certificate chain.
    pub cert: PathBuf,
    /// The switch's private key.
    pub key: PathBuf,
    /// Authorities of controllers and tools: a peer without a certificate of theirs is refused.
    pub ca: PathBuf,
    /// The name that a controller's certificate must have.
    pub name: PeerName,
}

impl Tls {
    /// The files for outgoing connections.
    pub(crate) fn client(&self) -> ClientFiles {
        let own = Some((self.cert.clone(), self.key.clone()));
        ClientFiles { ca: self.ca.clone(), own, name: self.name.clone() }
    }

    /// The files for accepted connections.
    pub(crate) fn server(&self) -> TlsFiles {
        let (cert, key) = (self.cert.clone(), self.key.clone());
        TlsFiles { cert, key, ca: Some(self.ca.clone()) }
    }
}

impl PortSpec {
    /// Reports a conflict of this port with `other`.
    pub(crate) fn check_beside(&self, other: &Self) -> Result<(), ConfigError> {
        self.check_number(other)?;
        if other.is_same_place(self) { Err(self.twice(other)) } else { Ok(()) }
    }

    /// The error for two ports that are the same.
    pub(crate) fn twice(&self, other: &Self) -> ConfigError {
        let (port, other) = (self.to_string(), other.to_string());
        match self.kind {
            PortKind::Vxlan(_) => ConfigError::TunnelTwice { port, other },
            PortKind::Gre(_) => ConfigError::GreTwice { port, other },
            _ => ConfigError::InterfaceTwice { port, other },
        }
    }

    /// Reports `other` if it has the same number.
    pub(crate) fn check_number(&self, other: &Self) -> Result<(), ConfigError> {
        if other.number != self.number {
            return Ok(());
        }
        let (port, other) = (self.to_string(), other.to_string());
        Err(ConfigError::NumberTwice { port, other })
    }
}

/// An inconsistency of a configuration as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A TLS endpoint without certificates.
    #[error(
        "{endpoint} needs the switch's key and certificate, and the CA of its peers: --tls-key, \
         --tls-cert and --tls-ca; in a file tls-key, tls-cert and tls-ca of [switch]"
    )]
    NoCertificate {
        /// The TLS endpoint.
        endpoint: Endpoint,
    },
    /// A controller with port 0, which means "any free port" to a listener.
    #[error(
        "controller {endpoint} has port 0; give the port that it listens on, usually 6653 (a \
         controller in the same process needs a fixed port, too)"
    )]
    ControllerNowhere {
        /// The controller's endpoint.
        endpoint: Endpoint,
    },
    /// A controller is given twice, and would get two connections from one datapath.
    #[error("controller {endpoint} is given twice; name each controller once")]
    ControllerTwice {
        /// The controller's endpoint.
        endpoint: Endpoint,
    },
    /// Two workers would share a core.
    #[error(
        "core {core} is given twice, and two workers on one core are slower than one; name each \
         core once, or use fewer workers (--workers)"
    )]
    CoreTwice {
        /// The core's number.
        core: usize,
    },
    /// Two ports have the same number.
    #[error("ports {other} and {port} have the same number; give each its own")]
    NumberTwice {
        /// The second port.
        port: String,
        /// The first port.
        other: String,
    },
    /// A port was to be added with a number that is in use.
    #[error(
        "port {number} already exists ({other}); choose another number, or remove that port with \
         `tapswitch port remove {number}`"
    )]
    NumberTaken {
        /// The port number.
        number: PortNo,
        /// The existing port.
        other: String,
    },
    /// Two tunnels lead to the same remote from the same UDP port.
    #[error(
        "ports {other} and {port} are tunnels to the same remote with the same UDP port, which the \
         kernel cannot tell apart, whatever their VNI: give one of them another port= (at both \
         ends), or each its own local="
    )]
    TunnelTwice {
        /// The second port.
        port: String,
        /// The first port.
        other: String,
    },
    /// Two tunnels lead to the same remote with the same key or session.
    #[error(
        "ports {other} and {port} are tunnels to the same remote that cannot be told apart: give \
         one of them another key or session (at both ends), or each its own local="
    )]
    GreTwice {
        /// The second port.
        port: String,
        /// The first port.
        other: String,
    },
    /// Two ports have the same interface or socket.
    #[error("ports {other} and {port} are the same interface or socket; give each its own")]
    InterfaceTwice {
        /// The second port.
        port: String,
        /// The first port.
        other: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(ports: &[&str]) -> Config {
        let ports = ports.iter().map(|port| port.parse().unwrap()).collect();
        Config { ports, ..Config::new("br0", DatapathId(1)) }
    }

    #[test]
    fn a_number_or_an_interface_used_twice_is_refused() {
        assert_eq!(config(&["1=tap:a", "2=tap:b", "3=tap:a,netns=blue"]).check(), Ok(()));
        let error = config(&["1=tap:a", "1=tap:b"]).check().unwrap_err().to_string();
        assert!(error.contains("1=tap:a and 1=tap:b have the same number"), "{error}");
        let error = config(&["1=tap:a", "2=netdev:a"]).check().unwrap_err().to_string();
        assert!(error.contains("the same interface"), "{error}");
        assert_eq!(config(&["1=tap:a", "2=vhost:/run/a", "3=vhost:/tmp/a"]).check(), Ok(()));
        let error = config(&["1=vhost:/a", "2=vhost:/a,client"]).check().unwrap_err().to_string();
        assert!(error.contains("1=vhost:/a and 2=vhost:/a,client are the same"), "{error}");
    }

    #[test]
    fn a_controller_is_there_once() {
        let [one, other]: [Endpoint; 2] =
            ["tcp:[::1]:6653", "tcp:[::1]:6654"].map(|at| at.parse().unwrap());
        let with = |controllers| Config { controllers, ..config(&[]) }.check();
        assert_eq!(with(vec![one, other]), Ok(()));
        assert_eq!(
            with(vec![one, other, one]),
            Err(ConfigError::ControllerTwice { endpoint: one })
        );
        let nowhere: Endpoint = "tcp:[::1]:0".parse().unwrap();
        let refused = with(vec![one, nowhere]).unwrap_err().to_string();
        assert!(refused.contains("tcp:[::1]:0") && refused.contains("give the port"), "{refused}");
        assert_eq!(Config { listen: vec![nowhere], ..config(&[]) }.check(), Ok(()));
    }

    #[test]
    fn a_core_is_given_once() {
        let with = |cores: &[usize]| Config { cores: cores.to_vec(), ..config(&[]) }.check();
        assert_eq!(with(&[0, 1]), Ok(()));
        assert_eq!(with(&[0, 1, 0]), Err(ConfigError::CoreTwice { core: 0 }));
    }

    #[test]
    fn cores_that_no_worker_stays_on_are_told() {
        let with = |workers, cores: &[usize]| {
            let workers = NonZeroUsize::new(workers);
            let config = Config { workers, cores: cores.to_vec(), ..config(&["1=tap:a"]) };
            config.spare_cores(config.worker_count())
        };
        assert_eq!((with(0, &[]), with(0, &[3]), with(2, &[3, 4])), (None, None, None));
        let said = with(0, &[3, 4, 5]).unwrap();
        assert!(
            said.starts_with(
                "no worker is pinned to core 4, 5: the number of workers is 1 (the largest number \
                 of queues"
            ),
            "{said}"
        );
        assert!(said.contains("--workers 3"), "{said}");
        assert!(
            with(2, &[3, 4, 5])
                .unwrap()
                .contains("core 5: the number of workers is 2 (as configured)")
        );
    }

    #[test]
    fn endpoints_and_fail_modes_are_parsed() {
        let endpoint: Endpoint = "tcp:[::1]:6653".parse().unwrap();
        assert_eq!(endpoint.to_string(), "tcp:[::1]:6653");
        for text in ["tcp:10.0.0.1", "tls:10.0.0.1", "tcp:[::1]", "ssl:[::1]", "tcp:[fe80::1%2]"] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint, format!("{text}:6653").parse().unwrap());
        }
        // Without brackets, the port could not be told from the address.
        for text in ["tcp:", "tcp:::1", "tcp:::1:6653", "tcp:10.0.0.1:", "tcp:[::1]:70000"] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
        let error = "127.0.0.1:6653".parse::<Endpoint>().unwrap_err().to_string();
        assert!(error.contains("expected tcp:ADDRESS:PORT"), "{error}");
        let error = "tcp:localhost:6653".parse::<Endpoint>().unwrap_err().to_string();
        assert!(error.contains("host names are not resolved"), "{error}");
        for text in ["tls:10.0.0.1:6653", "ssl:10.0.0.1:6653"] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), "tls:10.0.0.1:6653");
            let controllers = vec![endpoint];
            let config = Config { controllers, ..config(&["1=tap:a"]) };
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains("tls:10.0.0.1:6653 needs") && error.contains("--tls-key"));
        }
        assert_eq!("secure".parse(), Ok(FailMode::Secure));
        assert!("open".parse::<FailMode>().is_err());
    }
}
