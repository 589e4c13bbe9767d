//! TCP bulk traffic with minimal socket overhead: bytes from a file in memory, which sendfile(2)
//! does not copy, to a receiver that discards them inside the kernel (`MSG_TRUNC`, tcp(7)).

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_congestion;
use rustix::net::{RecvFlags, recv};

/// Connects with a congestion control that does not pace: otherwise timers would be measured.
pub(super) fn connect(to: &SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(to, CONNECT_LIMIT)?;
    match set_tcp_congestion(&stream, UNPACED) {
        // This kernel does not have it.
        Ok(()) | Err(Errno::NOENT) => Ok(stream),
        Err(errno) => Err(errno.into()),
    }
}

/// Sends as many bytes as the socket accepts now.
pub(super) fn push(stream: &TcpStream, file: &OwnedFd) -> io::Result<u64> {
    match sendfile(stream, file, Some(&mut 0), PIECE_LEN) {
        Ok(len) => Ok(len as u64),
        Err(Errno::AGAIN) => Ok(0),
        Err(errno) => Err(errno.into()),
    }
}

/// A file with [`PIECE_LEN`] bytes to send.
pub(super) fn memory_file() -> io::Result<OwnedFd> {
    let file = memfd_create("payload", MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(file);
    file.write_all(&vec![0x5a; PIECE_LEN])?;
    Ok(file.into())
}

/// Discards the received bytes. Returns false when the connection has ended.
pub(super) fn take(stream: &TcpStream, buf: &mut [u8], bytes: &mut u64) -> bool {
    match recv(stream, &mut *buf, RecvFlags::TRUNC) {
        Ok((_, 0)) => false,
        Ok((_, len)) => {
            *bytes += len as u64;
            true
        }
        Err(errno) => errno == Errno::AGAIN,
    }
}

/// Bytes that a sender offers at once, and a receiver discards.
pub(super) const PIECE_LEN: usize = 1 << 20;
/// The kernel's default.
const UNPACED: &str = "cubic";
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
