//! The listening socket of a guest port, and its file.
//!
//! Without its file, the socket cannot be found; it may have been removed by a cleanup script, or
//! by another switch that listened there for a while. So the file is checked, and created again.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::process::{Resource, getrlimit};

use super::OpenGuestError;
use crate::socket_file::{ClearError, SocketFile};
use crate::{GuestSocket, SocketAccess};

/// Where a port listens for VMMs.
#[derive(Debug)]
pub(super) struct Listener {
    at: GuestSocket,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    socket: Arc<Socket>,
    /// The port is being removed.
    is_closed: bool,
}

/// A listening socket, removed together with its file.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) listener: UnixListener,
    file: SocketFile,
}

impl Listener {
    /// Starts listening.
    pub(super) fn open(at: &GuestSocket) -> Result<Self, OpenGuestError> {
        let state = State { socket: Arc::new(Socket::bind(at)?), is_closed: false };
        Ok(Self { at: at.clone(), state: Mutex::new(state) })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &str {
        &self.at.path
    }

    /// The current socket.
    pub(super) fn socket(&self) -> Arc<Socket> {
        self.lock().socket.clone()
    }

    /// Listens on a new socket if the file of the old one is gone. Returns whether it was.
    pub(super) fn renew(&self) -> Result<bool, OpenGuestError> {
        let is_needed = |state: &State| !state.is_closed && !state.socket.file.is_there();
        if !is_needed(&self.lock()) {
            return Ok(false);
        }
        // Whoever closes the listener does not wait for the file system.
        let new = Arc::new(Socket::bind(&self.at)?);
        let mut state = self.lock();
        if !state.is_closed {
            state.socket = new;
        }
        Ok(!state.is_closed)
    }

    /// Removes the file for good: nobody can connect any more, and another port can listen there.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.socket.file.remove();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Socket {
    fn bind(at: &GuestSocket) -> Result<Self, OpenGuestError> {
        let path = at.path.as_str();
        Self::clear(path)?;
        let failed = |source| OpenGuestError::Listen { path: path.to_owned(), source };
        let refused = |errno: Errno| failed(errno.into());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let socket = last_opened(socket.map_err(refused)?);
        let address = SocketAddrUnix::new(path).map_err(refused)?;
        bind(&socket, &address).map_err(refused)?;
        let file = SocketFile::of(Path::new(path)).map_err(failed)?;
        // Removed with its file if a step below fails.
        let socket = Self { listener: socket.into(), file };
        socket.give(path, &at.access)?;
        // Nobody can connect before this.
        listen(&socket.listener, BACKLOG).map_err(refused)?;
        Ok(socket)
    }

    /// Sets owner, group and permissions of the file.
    fn give(&self, path: &str, access: &SocketAccess) -> Result<(), OpenGuestError> {
        let failed = |what| {
            let path = path.to_owned();
            move |source| OpenGuestError::Access { path, what, source }
        };
        let &SocketAccess { owner, group, permissions } = access;
        if let Some(permissions) = permissions {
            let permissions = std::fs::Permissions::from_mode(permissions.into());
            let set = std::fs::set_permissions(self.file.path(), permissions);
            set.map_err(failed("permissions"))?;
        }
        if owner.is_some() || group.is_some() {
            let given = std::os::unix::fs::lchown(self.file.path(), owner, group);
            given.map_err(failed("owner or group"))?;
        }
        Ok(())
    }

    /// Removes the socket of a switch that was killed.
    fn clear(path: &str) -> Result<(), OpenGuestError> {
        let cleared = SocketFile::clear(Path::new(path));
        let path = path.to_owned();
        cleared.map_err(|error| match error {
            ClearError::Taken => OpenGuestError::Taken { path },
            ClearError::NoSocket => OpenGuestError::NoSocket { path },
            ClearError::Io(source) => OpenGuestError::Listen { path, source },
        })
    }
}

/// Moves a socket to a descriptor above those of sessions.
///
/// When a process is killed, the kernel closes its highest descriptors first (seen with Linux
/// 6.18). If the session ended before the listener, a VMM that reconnects at once would be
/// connected to a process that is ending, and reset: Cloud Hypervisor up to version 53 then gives
/// the device up. Without such a descriptor, that may happen.
fn last_opened(socket: OwnedFd) -> OwnedFd {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let least = (limit / 2).min(MAX_DESCRIPTOR);
    let moved = i32::try_from(least).map(|least| fcntl_dupfd_cloexec(&socket, least));
    moved.ok().and_then(Result::ok).unwrap_or(socket)
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.file.remove();
    }
}

/// VMMs that may wait at a socket: one is served, and its restarted successor may wait.
const BACKLOG: i32 = 16;
/// Where the descriptors of listeners begin, if the process may have twice as many. The kernel
/// keeps a table up to the highest one, of eight bytes each.
const MAX_DESCRIPTOR: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixStream;

    use tapswitch_guest::NoForks;

    use super::*;
    use crate::{PortKind, PortSpec};

    fn listener(path: &Path) -> Result<Listener, OpenGuestError> {
        let spec: PortSpec =
            format!("1=vhost:{},permissions=0600", path.display()).parse().unwrap();
        let PortKind::Guest { socket, .. } = spec.kind else { panic!() };
        Listener::open(&socket)
    }

    #[test]
    fn a_file_that_was_taken_away_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm0.sock");
        let listener = listener(&path).unwrap();
        assert!(!listener.renew().unwrap(), "it is there");
        fs::remove_file(&path).unwrap();
        assert!(listener.renew().unwrap());
        assert!(!listener.renew().unwrap());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "as it was given");
        let _monitor = UnixStream::connect(&path).unwrap();
        assert!(listener.socket().listener.accept().is_ok());
        listener.close();
        assert!(!path.exists());
        assert!(!listener.renew().unwrap(), "for good");
        assert!(!path.exists());
    }

    #[test]
    fn what_others_have_put_there_stays() {
        let _no_forks = NoForks::new();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm0.sock");
        let listener = listener(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let theirs = UnixListener::bind(&path).unwrap();
        assert!(matches!(listener.renew(), Err(OpenGuestError::Taken { .. })));
        drop(theirs);
        assert!(listener.renew().unwrap(), "it is left behind");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "precious").unwrap();
        assert!(matches!(listener.renew(), Err(OpenGuestError::NoSocket { .. })));
        drop(listener);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
