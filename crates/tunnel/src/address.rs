//! Whether an address is assigned to this host.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;

use crate::socket;

/// Whether `local` is an address of the calling thread's network namespace, for receiving and
/// sending. A tunnel's sockets keep an address that was removed, and over IPv6 continue to send
/// from it.
///
/// Returns true if that cannot be determined because no socket is available.
pub fn has_address(local: IpAddr) -> bool {
    let address = SocketAddr::new(local, 0);
    let bound = socket::open(local).and_then(|fd| rustix::net::bind(&fd, &address));
    bound != Err(Errno::ADDRNOTAVAIL)
}
