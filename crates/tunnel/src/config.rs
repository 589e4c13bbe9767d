//! Configuration of a port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Vni;

/// Configuration of a port.
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

    /// Sets the local address that the remote sends to and datagrams are sent from. By default the
    /// source address of the route to the remote when the port is opened.
    #[must_use]
    pub const fn local(mut self, local: Option<IpAddr>) -> Self {
        self.local = local;
        self
    }

    /// Sets the UDP port at both ends.
    #[must_use]
    pub const fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Sets whether the outer UDP checksum is computed over IPv4: on by default, for the reasons in
    /// the crate's documentation. Over IPv6 it always is (RFC 8200 §8.1).
    #[must_use]
    pub const fn checksum(mut self, checksum: bool) -> Self {
        self.checksum = checksum;
        self
    }

    /// Sets the maximum bytes of datagrams waiting to be received, 8 MiB by default; the kernel
    /// doubles the number for its own overhead. Without `CAP_NET_ADMIN` the kernel silently limits
    /// it to `net.core.rmem_max`; [`crate::VxlanPort::receive_buffer_len`] returns the granted
    /// size.
    #[must_use]
    pub const fn receive_buffer_len(mut self, len: usize) -> Self {
        self.receive_buffer_len = len;
        self
    }

    /// Sets the maximum bytes of datagrams in transmission, shared equally among all sockets of the
    /// port; the kernel doubles the number and returns [`crate::SendError::Full`] beyond it. The
    /// default is [`SEND_BUFFER_LEN`] each: some dozen trains, and fewer small packets than the
    /// queue of an interface holds (1000), so that the sender is told before anything is dropped
    /// there. Without `CAP_NET_ADMIN` limited to `net.core.wmem_max` each.
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

/// Number of sockets that a port sends from, each with its own source port.
pub const SENDERS: usize = 4;
/// Default of the maximum bytes of packets in transmission per socket.
pub const SEND_BUFFER_LEN: usize = 512 << 10;

/// The UDP port of VXLAN (IANA; RFC 7348 §8).
pub const VXLAN_PORT: u16 = 4789;
