//! Where a guest's monitor is to be met: the path of a Unix socket, and who listens there.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::Fault;

/// The socket by which a virtual machine monitor and the switch meet (vhost-user).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestSocket {
    /// Path of the socket.
    pub path: String,
    /// Who the switch is there.
    pub side: SocketSide,
}

/// Who listens at a socket, and who connects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketSide {
    /// The switch listens, and the monitor connects.
    #[default]
    Server,
    /// The switch connects, again and again until the monitor listens.
    Client,
}

impl GuestSocket {
    pub(super) fn parse(path: &str) -> Result<Self, Fault> {
        let socket = Self { path: path.to_owned(), side: SocketSide::default() };
        let fits = path.len() <= PATH_LEN_MAX && !path.contains('\0');
        if fits && Path::new(path).file_name().is_some() {
            Ok(socket)
        } else {
            Err(Fault::BadPath(path.to_owned()))
        }
    }

    /// The last part of the path without its ending, as long as the name of an interface can be:
    /// `vm0` of `/run/vm0.sock`.
    pub fn name(&self) -> &str {
        short_stem(&self.path)
    }
}

/// The last part of a path without its ending, as long as the name of an interface can be.
pub(super) fn short_stem(path: &str) -> &str {
    let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let end = (0..=stem.len().min(NAME_LEN_MAX)).rev().find(|at| stem.is_char_boundary(*at));
    &stem[..end.unwrap_or(0)]
}

impl fmt::Display for GuestSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        match self.side {
            SocketSide::Server => Ok(()),
            SocketSide::Client => f.write_str(",client"),
        }
    }
}

impl FromStr for SocketSide {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "server" => Ok(Self::Server),
            "client" => Ok(Self::Client),
            _ => Err(()),
        }
    }
}

/// Longest path of a Unix socket in bytes, without the NUL behind it (unix(7)).
pub(super) const PATH_LEN_MAX: usize = 107;
/// Longest name of an interface in bytes (`IFNAMSIZ`, with its NUL), and of an OpenFlow port.
const NAME_LEN_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_called_as_its_socket() {
        for (path, name) in [
            ("/run/vm0.sock", "vm0"),
            ("vm1", "vm1"),
            ("/run/a.very.long.name.sock", "a.very.long.nam"),
            (
                "/run/\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}.sock",
                "\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}\u{e4}",
            ),
        ] {
            assert_eq!(GuestSocket::parse(path).unwrap().name(), name);
        }
    }
}
