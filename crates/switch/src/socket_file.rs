//! The file of a Unix socket that somebody listens on: what is there before, and that it goes.
//!
//! A process that was killed leaves its socket's file behind, which keeps the next one from
//! listening there. It is taken away only if it is a socket and nobody answers: whatever else is at
//! the path is somebody's. In the end only the file that was made is taken away: another process
//! may listen there by then.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// The file of a socket that was bound.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and number of the file: what has taken its place is not ours to remove.
    file: (u64, u64),
}

impl SocketFile {
    /// The file of a socket that has just been bound to `path`.
    ///
    /// # Errors
    /// When the file is gone already, or cannot be looked at.
    pub fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: file_at(path)? })
    }

    /// Takes away the socket of a process that was killed, if there is one.
    ///
    /// # Errors
    /// [`ClearError`] when something else is there.
    pub fn clear(path: &Path) -> Result<(), ClearError> {
        let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
        if !there.file_type().is_socket() {
            return Err(ClearError::NoSocket);
        }
        match try_connect(path).map(drop) {
            // Nobody has it open. All other answers, such as those for another type of socket,
            // come from somebody who has, or say nothing.
            Err(Errno::CONNREFUSED) => Ok(fs::remove_file(path)?),
            Err(Errno::NOENT) => Ok(()),
            Ok(()) | Err(Errno::AGAIN | Errno::PROTOTYPE) => Err(ClearError::Taken),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the file is there, and no other one in its place.
    pub fn is_there(&self) -> bool {
        file_at(&self.path).is_ok_and(|file| file == self.file)
    }

    /// Takes the file away, so that another process can listen there. Its number is no other
    /// file's as long as the socket is open: so call it before that is closed.
    pub fn remove(&self) {
        if self.is_there() {
            // Somebody may have been faster.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Why nobody can listen at a path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClearError {
    /// Somebody has a socket there.
    #[error("another process listens on it")]
    Taken,
    /// There is something that is no socket.
    #[error("it is not a socket")]
    NoSocket,
    /// What is there cannot be taken away.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Connects to who listens there, without waiting for them: [`Errno::AGAIN`] when as many wait
/// there as may, for a process that is stopped, say.
pub(crate) fn try_connect(path: &Path) -> Result<UnixStream, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    // A session waits for what comes.
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket.into())
}

fn file_at(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use super::*;

    #[test]
    fn only_a_socket_that_nobody_has_open_is_taken_away() {
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
