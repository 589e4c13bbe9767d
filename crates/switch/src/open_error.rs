//! Why a port of any kind could not be opened.

use tapswitch_netdev as netdev;
use tapswitch_netlink::{LinkError, NamespaceError};
use tapswitch_tap as tap;
use tapswitch_tunnel as tunnel;
use tapswitch_vhost::MORE_FILES;

use crate::PortSpec;
use crate::command::{ip_command, no_interface};
use crate::envelope::MtuError;
use crate::guest::OpenGuestError;
use crate::recorder::OpenFileError;

mod unopened;

pub use unopened::Unopened;

/// Why a port could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenPortError {
    /// The namespace cannot be opened.
    #[error("port {port}: {source}")]
    Namespace {
        /// The port's description.
        port: String,
        /// The namespace's error.
        source: NamespaceError,
    },
    /// The name is not valid for an interface.
    #[error("port {port}: {source}")]
    Name {
        /// The port's description.
        port: String,
        /// The error in the name.
        source: tap::NameError,
    },
    /// The tap device cannot be opened.
    #[error("port {port}: {source}")]
    Tap {
        /// The port's description.
        port: String,
        /// The tap device's error.
        source: Box<Unopened>,
    },
    /// There is no interface of that name.
    #[error("port {port}: {}", no_interface(netns.as_deref(), name))]
    NoInterface {
        /// The port's description.
        port: String,
        /// The interface.
        name: String,
        /// Its namespace; `None` for the switch's own.
        netns: Option<String>,
    },
    /// The interface cannot be opened.
    #[error("port {port}: {source}")]
    Netdev {
        /// The port's description.
        port: String,
        /// The interface's error.
        source: netdev::OpenError,
    },
    /// The link settings cannot be changed.
    #[error("port {port}: {source}")]
    Link {
        /// The port's description.
        port: String,
        /// The kernel's error.
        source: LinkError,
    },
    /// The MTU of the interface cannot be set.
    #[error("port {port}: {source}")]
    Mtu {
        /// The port's description.
        port: String,
        /// The cause.
        source: Box<MtuError>,
    },
    /// The guest's socket cannot be used.
    #[error("port {port}: {source}")]
    Guest {
        /// The port's description.
        port: String,
        /// The socket's error.
        source: OpenGuestError,
    },
    /// The sockets of a tunnel cannot be opened.
    #[error("port {port}: {source}")]
    Tunnel {
        /// The port's description.
        port: String,
        /// The tunnel's error.
        source: tunnel::OpenError,
    },
    /// The file cannot be opened.
    #[error("port {port}: {source}")]
    File {
        /// The port's description.
        port: String,
        /// The file's error.
        source: OpenFileError,
    },
    /// The kernel refuses an eventfd.
    #[error("port {port}: eventfd: {source}; {remedy}", remedy = MORE_FILES)]
    Eventfd {
        /// The port's description.
        port: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// The MAC address or the flags cannot be read.
    #[error("port {port}: {source}")]
    Mac {
        /// The port's description.
        port: String,
        /// The kernel's error.
        source: tap::SettingError,
    },
}

/// Without privilege, the switch uses a device as root has prepared it: a setting that the user did
/// not ask for may fail, with a warning. `arguments` of `ip` make the setting.
pub(crate) fn unless_permitted(
    spec: &PortSpec,
    outcome: Result<(), LinkError>,
    arguments: &str,
) -> Result<(), LinkError> {
    match outcome {
        Err(error @ LinkError::NotPermitted { .. }) => {
            let command = ip_command(spec.netns.as_deref(), arguments);
            tracing::warn!("port {spec}: {error}; or run `{command}` as root");
            Ok(())
        }
        outcome => outcome,
    }
}
