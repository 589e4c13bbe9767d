//! vhost-user sockets as port options: the path of a Unix socket, and which side listens.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::{Fault, set};
use crate::account;

/// The Unix socket between a VMM and the switch (vhost-user).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestSocket {
    /// Path of the socket.
    pub path: String,
    /// The switch's side.
    pub side: SocketSide,
    /// Who may connect, if the switch listens.
    pub access: SocketAccess,
}

/// Who may connect to a socket (unix(7)): users with write permission on its file. Without options,
/// the switch's user and umask apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketAccess {
    /// Numeric id of the file's owner.
    pub owner: Option<u32>,
    /// Numeric id of its group.
    pub group: Option<u32>,
    /// Its permissions, at most `0o777`.
    pub permissions: Option<u16>,
}

/// Which side listens, and which connects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketSide {
    /// The switch listens, and the VMM connects.
    #[default]
    Server,
    /// The switch connects, and retries until the VMM listens.
    Client,
}

impl GuestSocket {
    pub(super) fn parse(path: &str) -> Result<Self, Fault> {
        let (side, access) = (SocketSide::default(), SocketAccess::default());
        let socket = Self { path: path.to_owned(), side, access };
        let fits = path.len() <= PATH_LEN_MAX && !path.contains('\0');
        if fits && Path::new(path).file_name().is_some() {
            Ok(socket)
        } else {
            Err(Fault::BadPath(path.to_owned()))
        }
    }

    /// Takes an option. Returns `false` if it is not one of a socket.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<bool, Fault> {
        let access = &mut self.access;
        match key {
            "owner" => set(&mut access.owner, key, value, account::user(value), USER_EXPECTED)?,
            "group" => set(&mut access.group, key, value, account::group(value), GROUP_EXPECTED)?,
            "permissions" => {
                let parsed = u16::from_str_radix(value, 8).ok().filter(|bits| *bits <= 0o777);
                set(&mut access.permissions, key, value, parsed, PERMISSIONS_EXPECTED)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses inconsistent options.
    pub(super) fn check(&self) -> Result<(), Fault> {
        let is_given = self.access != SocketAccess::default();
        if is_given && self.side == SocketSide::Client { Err(Fault::ClientAccess) } else { Ok(()) }
    }

    /// The path's file stem, truncated to the longest interface name: `vm0` for `/run/vm0.sock`.
    pub fn name(&self) -> &str {
        short_stem(&self.path)
    }
}

/// The file stem of a path, truncated to the longest interface name.
pub(super) fn short_stem(path: &str) -> &str {
    let stem = Path::new(path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let end = (0..=stem.len().min(NAME_LEN_MAX)).rev().find(|at| stem.is_char_boundary(*at));
    &stem[..end.unwrap_or(0)]
}

impl fmt::Display for GuestSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        match self.side {
            SocketSide::Server => {}
            SocketSide::Client => f.write_str(",client")?,
        }
        let SocketAccess { owner, group, permissions } = self.access;
        owner.map_or(Ok(()), |owner| write!(f, ",owner={owner}"))?;
        group.map_or(Ok(()), |group| write!(f, ",group={group}"))?;
        permissions.map_or(Ok(()), |bits| write!(f, ",permissions={bits:04o}"))
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

/// Longest path of a Unix socket in bytes, without the trailing NUL (unix(7)).
pub(super) const PATH_LEN_MAX: usize = 107;
/// Longest name of an interface in bytes (`IFNAMSIZ` less its NUL), and of an OpenFlow port.
const NAME_LEN_MAX: usize = 15;

const USER_EXPECTED: &str = "a user ID, or a name in /etc/passwd";
const GROUP_EXPECTED: &str = "a group ID, or a name in /etc/group";
const PERMISSIONS_EXPECTED: &str = "octal permissions up to 0777, as in 0660";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortSpec;

    #[test]
    fn who_may_connect_is_said_in_options() {
        let text = "1=vhost:/run/vm0.sock,owner=root,group=107,permissions=660,mode=trunk";
        let spec: PortSpec = text.parse().unwrap();
        let crate::PortKind::Guest { socket, .. } = &spec.kind else { panic!("{spec}") };
        let access = SocketAccess { owner: Some(0), group: Some(107), permissions: Some(0o660) };
        assert_eq!(socket.access, access);
        assert_eq!(spec.to_string().parse::<PortSpec>().unwrap(), spec);
        for (options, words) in [
            ("owner=no-such-user", "/etc/passwd"),
            ("owner=4294967295", "a user ID"),
            ("group=no-such-group", "/etc/group"),
            ("permissions=1777", "up to 0777"),
            ("permissions=rw", "octal"),
            ("owner=1,owner=2", "twice"),
            ("client,owner=1", "a listening port"),
            ("owner=1,client", "a listening port"),
            ("server,client", "twice"),
            ("client,client", "twice"),
        ] {
            let error = format!("1=vhost:/run/vm0.sock,{options}").parse::<PortSpec>();
            let error = error.unwrap_err().to_string();
            assert!(error.contains(words), "{options}: {error}");
        }
        assert!("1=tap:vm0,owner=1".parse::<PortSpec>().is_err());
    }

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
