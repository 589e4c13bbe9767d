//! Why a port could not be opened, whatever is behind it.

use tapswitch_netdev as netdev;
use tapswitch_netlink::{LinkError, NamespaceError};
use tapswitch_tap as tap;
use tapswitch_tunnel as tunnel;

use crate::PortSpec;
use crate::envelope::MtuError;
use crate::guest::OpenGuestError;
use crate::recorder::OpenFileError;

mod unopened;

pub use unopened::Unopened;

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
        source: Box<Unopened>,
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
    /// The socket by which a guest is met.
    #[error("port {port}: {source}")]
    Guest {
        /// The port as it was described.
        port: String,
        /// What is wrong with it.
        source: OpenGuestError,
    },
    /// The sockets of a tunnel.
    #[error("port {port}: {source}")]
    Tunnel {
        /// The port as it was described.
        port: String,
        /// What is wrong with it.
        source: tunnel::OpenError,
    },
    /// The file that is written to.
    #[error("port {port}: {source}")]
    File {
        /// The port as it was described.
        port: String,
        /// What is wrong with it.
        source: OpenFileError,
    },
    /// The kernel gives no eventfd.
    #[error("port {port}: eventfd: {source}")]
    Eventfd {
        /// The port as it was described.
        port: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// Its MAC address or its flags cannot be read.
    #[error("port {port}: {source}")]
    Mac {
        /// The port as it was described.
        port: String,
        /// What the kernel said.
        source: tap::SettingError,
    },
}

/// Without privilege, the switch uses a device as root has prepared it: what nobody has asked for
/// may stay undone, and is told.
pub(crate) fn unless_permitted(
    spec: &PortSpec,
    outcome: Result<(), LinkError>,
    remedy: &str,
) -> Result<(), LinkError> {
    match outcome {
        Err(error @ LinkError::NotPermitted { .. }) => {
            tracing::warn!("port {spec}: {error}; or {remedy}");
            Ok(())
        }
        outcome => outcome,
    }
}
