//! Real TCP between hosts.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use super::{Host, PATIENCE, eventually};

/// Sends `len` bytes over one TCP connection; all must arrive unchanged.
pub(crate) fn send_by_tcp(from: &Host, to: &Host, len: usize) {
    let bytes: Vec<u8> = (0..=250).cycle().take(len).collect();
    let listener = to.namespace.enter(|| TcpListener::bind((to.ip(), 0)).unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let there = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&there, PATIENCE).unwrap();
    let mut out = from.namespace.enter(connect).unwrap();
    let (mut stream, _) = eventually("a connection", || listener.accept().ok());
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    out.set_write_timeout(Some(PATIENCE)).unwrap();
    let received = thread::scope(|scope| {
        let bytes = &bytes;
        scope.spawn(move || {
            out.write_all(bytes).unwrap();
            out.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::with_capacity(len);
        stream.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == bytes, "other bytes arrived");
}
