//! The listening socket of a guest port, and its file.
//!
//! Without its file, the socket cannot be found; it may have been removed by a cleanup script, or
//! by another switch that listened there for a while. So the file is checked, and created again.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use super::OpenGuestError;
use crate::socket_file::{ClearError, SocketFile};
use crate::{GuestSocket, SocketAccess};

/// Where a port listens for VMMs.
#[derive(Debug)]
pub(super) struct Listener {
    at: GuestSocket,
    socket: Mutex<Arc<Socket>>,
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
        let socket = Mutex::new(Arc::new(Socket::bind(at)?));
        Ok(Self { at: at.clone(), socket })
    }

    /// Where it is.
    pub(super) fn path(&self) -> &str {
        &self.at.path
    }

    /// The current socket.
    pub(super) fn socket(&self) -> Arc<Socket> {
        self.lock().clone()
    }

    /// Listens on a new socket if the file of the old one is gone. Returns whether it was.
    pub(super) fn renew(&self) -> Result<bool, OpenGuestError> {
        if self.socket().file.is_there() {
            return Ok(false);
        }
        let new = Arc::new(Socket::bind(&self.at)?);
        *self.lock() = new;
        Ok(true)
    }

    /// Removes the file, so that another port can listen there.
    pub(super) fn remove_file(&self) {
        self.socket().file.remove();
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Socket>> {
        // The socket is replaced in one step.
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
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
        let socket = socket.map_err(refused)?;
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

impl Drop for Socket {
    fn drop(&mut self) {
        self.file.remove();
    }
}

/// VMMs that may wait at a socket: one is served, and its restarted successor may wait.
const BACKLOG: i32 = 16;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::socket_file::tests::turn;
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
        listener.remove_file();
        assert!(!path.exists());
    }

    #[test]
    fn what_others_have_put_there_stays() {
        let _turn = turn();
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
