//! The local user of a connection from this machine.
//!
//! `/proc/net/tcp` and `tcp6` list each socket of this network namespace with both addresses and
//! its user. <https://docs.kernel.org/networking/proc_net_tcp.html>

use std::fs;
use std::net::{IpAddr, SocketAddr};

/// Users who own this controller: the user that runs it, root, and the user that started it by
/// `sudo`.
#[derive(Clone, Debug)]
pub(crate) struct Owners(Vec<u32>);

impl Owners {
    pub(crate) fn of_this_process() -> Self {
        let sudo = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
        let own = [0, rustix::process::geteuid().as_raw()];
        Self(own.into_iter().chain(sudo).collect())
    }

    pub(crate) fn are(&self, uid: u32) -> bool {
        self.0.contains(&uid)
    }
}

/// The user at the other end of a connection from `peer` to `own`. `None` if the kernel does not
/// list it: the other end is in another network namespace, or has closed the connection.
pub(crate) fn user(peer: SocketAddr, own: SocketAddr) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let mut texts = tables.into_iter().filter_map(|path| fs::read_to_string(path).ok());
    texts.find_map(|text| text.lines().find_map(|line| owner(line, (peer, own))))
}

/// The user in this line, if it is an open socket with these ends. A closed socket has no inode,
/// and is listed with user 0.
fn owner(line: &str, (from, to): (SocketAddr, SocketAddr)) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let ends = [fields.next()?, fields.next()?].map(parse_end);
    let is_open = fields.next()? == ESTABLISHED;
    // Skips queues, timers and retransmissions.
    let (uid, inode) = (fields.nth(3)?, fields.nth(1)?);
    let is_it = ends == [Some(canonical(from)), Some(canonical(to))];
    if is_it && is_open && inode != "0" { uid.parse().ok() } else { None }
}

/// Parses `0100007F:21CD`: 32-bit words of the address in host byte order.
fn parse_end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for start in (0..address.len()).step_by(8) {
        let word = u32::from_str_radix(address.get(start..start + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let address: IpAddr = match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok()?.into(),
        _ => <[u8; 16]>::try_from(bytes).ok()?.into(),
    };
    Some(canonical(SocketAddr::new(address, port)))
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// As in the kernel's `tcp_states.h`.
const ESTABLISHED: &str = "01";

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use tapswitch_helpers::eventually;

    use super::*;

    #[test]
    fn the_kernel_tells_whose_a_connection_is() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // Some machines have no IPv6.
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (stream, peer) = listener.accept().unwrap();
            let own = stream.local_addr().unwrap();
            assert_eq!(user(peer, own), Some(rustix::process::geteuid().as_raw()));
            drop(client);
            // A process that another test is starting may hold the socket for a moment.
            eventually("who has hung up is nobody", || user(peer, own).is_none().then_some(()));
        }
    }

    #[test]
    fn a_line_is_of_one_connection_and_of_an_open_one() {
        let ends = ("127.0.0.1:8653".parse().unwrap(), "127.0.0.1:45678".parse().unwrap());
        let line = |state: &str, inode: &str| {
            let (from, to) = ("0100007F:21CD", "0100007F:B26E");
            format!(" 7: {from} {to} {state} 00000000:00000000 00:00000000 0 1000 0 {inode} 1")
        };
        assert!(cfg!(target_endian = "big") || owner(&line("01", "99"), ends) == Some(1000));
        let (from, to) = ends;
        let none = [
            owner(&line("01", "99"), (to, from)),
            owner(&line("01", "0"), ends),
            owner(&line("06", "99"), ends),
            owner("  sl  local_address rem_address   st tx_queue", ends),
        ];
        assert_eq!(none, [None; 4]);
    }
}
