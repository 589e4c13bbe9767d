//! The file of a listening Unix socket: cleaning up a stale one, and removing ours.
//!
//! A process that was killed leaves its socket's file behind, which prevents the next one from
//! listening there. The file is removed only if it is a socket and refuses connections: anything
//! else belongs to somebody. At the end, only the file that was created is removed, as another
//! process may listen at the path by then.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// The file of a bound socket.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode: a file that has replaced ours is not ours to remove.
    file: (u64, u64),
}

impl SocketFile {
    /// The file of a socket that has just been bound to `path`.
    ///
    /// # Errors
    /// If the file is already gone, or cannot be queried.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: file_at(path)? })
    }

    /// Removes the socket file of a process that was killed, if there is one.
    ///
    /// # Errors
    /// [`ClearError`] if something else is at the path.
    pub fn clear(path: &Path) -> Result<(), ClearError> {
        let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
        if !there.file_type().is_socket() {
            return Err(ClearError::NoSocket);
        }
        match try_connect(path).map(drop) {
            // No process has it open. All other errors, such as a wrong socket type, come from a
            // live socket or are inconclusive.
            Err(Errno::CONNREFUSED) => Ok(fs::remove_file(path)?),
            Err(Errno::NOENT) => Ok(()),
            Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Err(ClearError::Taken),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file exists and has not been replaced.
    pub fn is_there(&self) -> bool {
        file_at(&self.path).is_ok_and(|file| file == self.file)
    }

    /// Removes the file, so that another process can listen there. Its inode is not reused while
    /// the socket is open, so call this before closing it.
    pub fn remove(&self) {
        if self.is_there() {
            // Another process may have removed it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Why a process cannot listen at a path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClearError {
    /// Another process has a socket there.
    #[error("another process listens on it")]
    Taken,
    /// The file is not a socket.
    #[error("it is not a socket")]
    NoSocket,
    /// The file cannot be removed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Connects to a listening socket without blocking: [`Errno::AGAIN`] if its backlog is full, for
/// example because the process is stopped.
pub(crate) fn try_connect(path: &Path) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    // Sessions use blocking reads.
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket.into())
}

fn file_at(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use tapswitch_guest::NoForks;

    use super::*;

    #[test]
    fn only_a_socket_that_nobody_has_open_is_taken_away() {
        let _no_forks = NoForks::new();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        SocketFile::clear(&path).unwrap();
        fs::write(&path, "mine").unwrap();
        assert!(matches!(SocketFile::clear(&path), Err(ClearError::NoSocket)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_file(&path).unwrap();
        let datagrams = UnixDatagram::bind(&path).unwrap();
        assert!(matches!(SocketFile::clear(&path), Err(ClearError::Taken)));
        drop(datagrams);
        SocketFile::clear(&path).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        assert!(matches!(SocketFile::clear(&path), Err(ClearError::Taken)));
        drop(listener);
        SocketFile::clear(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn only_the_file_that_was_made_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let _old = UnixListener::bind(&path).unwrap();
        let old = SocketFile::of(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let _new = UnixListener::bind(&path).unwrap();
        old.remove();
        assert!(path.exists(), "it is another one's");
        SocketFile::of(&path).unwrap().remove();
        assert!(!path.exists());
    }
}
