//! Traffic by the kernel's sockets, and a cable to carry frames.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use tapswitch_netlink::Namespace;

use crate::{PATIENCE, eventually, wait_readable};

/// `len` bytes in which a lost, duplicated or moved part shows.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at / 7) % 251).unwrap()).collect()
}

/// Sends `bytes` over one TCP connection from a socket of `client` to one of `server`, which is at
/// `to`; returns what arrives. Fails instead of waiting for ever.
pub fn tcp_transfer(client: &Namespace, server: &Namespace, to: IpAddr, bytes: &[u8]) -> Vec<u8> {
    let listener = server.enter(|| TcpListener::bind((to, 0)).unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let to = listener.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let connect = || TcpStream::connect_timeout(&to, PATIENCE).unwrap();
            let mut stream = client.enter(connect).unwrap();
            stream.set_write_timeout(Some(PATIENCE)).unwrap();
            stream.write_all(bytes).unwrap();
        });
        let (mut stream, _) = eventually("a connection", || listener.accept().ok());
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        received
    })
}

/// Makes every send of `socket` one train of datagrams of `len` bytes (udp(7), `UDP_SEGMENT`).
pub fn set_udp_segment(socket: &UdpSocket, len: u16) {
    setsockopt(socket, UdpGsoSegment, &len.into()).unwrap();
}

/// Carries frames between `a` and `b` by `carry`, in both directions, while `action` runs; also
/// returns the sum of `carry`'s results.
pub fn with_cable<E: AsFd + Sync, R>(
    a: &E,
    b: &E,
    carry: impl Fn(&E, &E) -> usize + Send,
    action: impl FnOnce() -> R,
) -> (R, usize) {
    /// Ends the cable also if `action` panics, so that the test fails instead of hanging.
    struct Cut<'a>(&'a AtomicBool);
    impl Drop for Cut<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    let is_cut = || stop.load(Ordering::Relaxed);
    thread::scope(|scope| {
        let cable = scope.spawn(move || {
            let mut carried = 0;
            while !is_cut() {
                wait_readable(&[a, b]);
                carried += carry(a, b) + carry(b, a);
            }
            carried
        });
        let cut = Cut(&stop);
        let outcome = action();
        drop(cut);
        (outcome, cable.join().unwrap())
    })
}
