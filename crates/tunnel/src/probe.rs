//! Whether a tunnel has a path, asked from any thread.
//!
//! A socket stays in the network namespace it was opened in. So one that was opened there once
//! answers without entering the namespace again, which needs a thread: whether an address can be
//! bound, and whether the remote can be connected to. Nothing is sent.
//!
//! Binding is repeated, which the kernel permits as long as the socket has no port
//! (`IP_BIND_ADDRESS_NO_PORT`, Linux 4.2; `__inet_bind` in `net/ipv4/af_inet.c`). Disconnecting
//! takes away the one that connecting has given it.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::port::{check, connect};
use crate::{Config, GreConfig, OpenError, socket};

/// A socket that finds out whether a tunnel has a path. It is of the tunnel's own protocol, as
/// routes may depend on that (ip-rule(8)).
#[derive(Debug)]
pub struct Probe {
    socket: OwnedFd,
    remote: SocketAddr,
    local: IpAddr,
}

impl Probe {
    /// Opens the socket in the network namespace of the calling thread, for a VXLAN tunnel.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn vxlan(config: &Config) -> Result<Self, OpenError> {
        let remote = config.remote;
        check(remote, config.local)?;
        let failed = |call| move |errno| OpenError::new(remote, call, errno);
        let socket = socket::open(remote).map_err(failed("socket"))?;
        socket::set_no_port(&socket).map_err(failed("IP_BIND_ADDRESS_NO_PORT"))?;
        let remote = SocketAddr::new(remote, config.port);
        Ok(Self { socket, remote, local: config.local_or_any() })
    }

    /// As [`Self::vxlan`], for a GRE or ERSPAN tunnel (`CAP_NET_RAW`).
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn gre(config: &GreConfig) -> Result<Self, OpenError> {
        let remote = config.remote;
        check(remote, config.local)?;
        let socket = socket::open_gre(remote).map_err(|errno| OpenError::raw(remote, errno))?;
        let failed = |call| move |errno| OpenError::new(remote, call, errno);
        socket::set_deaf(&socket).map_err(failed("SO_ATTACH_FILTER"))?;
        // The kernel would give it a clone of each GRE packet; this takes it off the list.
        rustix::net::connect_unspec(&socket).map_err(failed("connect"))?;
        let remote = SocketAddr::new(remote, 0);
        Ok(Self { socket, remote, local: config.local_or_any() })
    }

    /// Whether the tunnel can be opened, as far as addresses and routes are concerned.
    ///
    /// # Errors
    /// The error that opening it would return.
    pub fn find_path(&self) -> Result<(), OpenError> {
        let address = SocketAddr::new(self.local, 0);
        let failed = |errno| OpenError::bind(self.remote.ip(), address, errno);
        rustix::net::bind(&self.socket, &address).map_err(failed)?;
        let outcome = connect(&self.socket, self.remote);
        // Also after an error: the socket may have a port by then.
        let _ = rustix::net::connect_unspec(&self.socket);
        outcome
    }

    /// Whether `local` is an address of the namespace, for receiving and sending. A tunnel's
    /// sockets keep an address that was removed, and over IPv6 continue to send from it.
    pub fn has_address(&self, local: IpAddr) -> bool {
        let address = SocketAddr::new(local, 0);
        rustix::net::bind(&self.socket, &address) != Err(Errno::ADDRNOTAVAIL)
    }
}
