//! What a port is to be.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Vni;

/// What a port is to be.
///
/// ```
/// use tapswitch_tunnel::{Config, Vni};
///
/// let vni = Vni::new(42).unwrap();
/// let config = Config::new([192, 0, 2, 2].into(), vni).port(8472).checksum(false);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) remote: IpAddr,
    pub(crate) vni: Vni,
    pub(crate) local: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) checksum: bool,
    pub(crate) receive_buffer_len: usize,
    pub(crate) send_buffer_len: usize,
}

impl Config {
    /// A tunnel to `remote` on UDP port [`VXLAN_PORT`].
    pub const fn new(remote: IpAddr, vni: Vni) -> Self {
        Self {
            remote,
            vni,
            local: None,
            port: VXLAN_PORT,
            checksum: true,
            receive_buffer_len: 8 << 20,
            send_buffer_len: SENDERS * SEND_BUFFER_LEN,
        }
    }

    /// The address of ours that the remote sends to, and that datagrams come from. By default the
    /// one that the route to the remote prefers when the port is opened.
    #[must_use]
    pub const fn local(mut self, local: Option<IpAddr>) -> Self {
        self.local = local;
        self
    }

    /// The UDP port at both ends.
    #[must_use]
    pub const fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Whether the outer UDP checksum is computed over IPv4: on by default, as the crate's
    /// documentation says why. Over IPv6 it always is (RFC 8200 §8.1).
    #[must_use]
    pub const fn checksum(mut self, checksum: bool) -> Self {
        self.checksum = checksum;
        self
    }

    /// Bytes of datagrams that may wait to be received; the kernel doubles the number for its own
    /// overhead. 8 MiB by default. Without `CAP_NET_ADMIN` the kernel silently caps it at
    /// `net.core.rmem_max`; [`crate::VxlanPort::receive_buffer_len`] tells what was granted.
    #[must_use]
    pub const fn receive_buffer_len(mut self, len: usize) -> Self {
        self.receive_buffer_len = len;
        self
    }

    /// Bytes of datagrams that may be on their way out by all sockets of the port together, of
    /// which each has an equal share; the kernel doubles the number and says
    /// [`crate::SendError::Full`] beyond. [`SEND_BUFFER_LEN`] for each by default: some dozen
    /// trains, and fewer small packets than the queue of an interface takes (1000), so that the
    /// sender is told before anything is dropped there. Without `CAP_NET_ADMIN` capped at
    /// `net.core.wmem_max` for each.
    #[must_use]
    pub const fn send_buffer_len(mut self, len: usize) -> Self {
        self.send_buffer_len = len;
        self
    }

    pub(crate) fn local_or_any(&self) -> IpAddr {
        self.local.unwrap_or(match self.remote {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        })
    }
}

/// Sockets that a port sends by, each with a source port of its own.
pub const SENDERS: usize = 4;
/// Bytes of packets that may be on their way out by a socket, unless told otherwise.
pub const SEND_BUFFER_LEN: usize = 512 << 10;

/// The UDP port of VXLAN (IANA; RFC 7348 §8).
pub const VXLAN_PORT: u16 = 4789;
