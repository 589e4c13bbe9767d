//! Whether an address is this host's.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;

use crate::socket;

/// Whether packets to `local` are for the network namespace of the calling thread, and may come
/// from it. A tunnel's sockets keep an address that has gone, and over IPv6 go on to send by it.
///
/// As far as can be told: who gets no socket for the question is answered that it is.
pub fn has_address(local: IpAddr) -> bool {
    let address = SocketAddr::new(local, 0);
    let bound = socket::open(local).and_then(|fd| rustix::net::bind(&fd, &address));
    bound != Err(Errno::ADDRNOTAVAIL)
}
