//! Traffic between hosts through ordinary sockets.

use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Host, PATIENCE, eventually};

/// A UDP socket of a host.
pub(crate) fn udp(host: &Host, ip: IpAddr, port: u16) -> UdpSocket {
    let socket = host.namespace.enter(|| UdpSocket::bind((ip, port)).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends a datagram and one back. Datagrams may be lost while ports and rules come up, so it
/// retries.
pub(crate) fn ping(from: &Host, to: &Host) {
    ping_between(from, from.ip(), to, to.ip());
}

pub(crate) fn ping_between(from: &Host, from_ip: IpAddr, to: &Host, to_ip: IpAddr) {
    let (asking, answering) = (udp(from, from_ip, 0), udp(to, to_ip, 0));
    let (here, there) = (asking.local_addr().unwrap(), answering.local_addr().unwrap());
    let short = Some(Duration::from_millis(200));
    asking.set_read_timeout(short).unwrap();
    answering.set_read_timeout(short).unwrap();
    let mut buf = [0; 2000];
    let mut exchange = |from: &UdpSocket, at, to: &UdpSocket| -> Option<()> {
        from.send_to(b"marco", at).unwrap();
        let (len, _) = to.recv_from(&mut buf).ok()?;
        assert_eq!(&buf[..len], b"marco");
        Some(())
    };
    eventually("an echo", || {
        exchange(&asking, there, &answering)?;
        exchange(&answering, here, &asking)
    });
}

/// Pseudorandom bytes, the same each time.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::from_fn(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Some(state.to_le_bytes())
    });
    words.flatten().take(len).collect()
}

pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Sends `len` bytes over one TCP connection; all must arrive unchanged.
pub(crate) fn tcp(from: &Host, to: &Host, len: usize) {
    tcp_between(from, to, to.ip(), len);
}

pub(crate) fn tcp_between(from: &Host, to: &Host, ip: IpAddr, len: usize) {
    let bytes = noise(len);
    let (mut out, mut stream) = connected(from, to, ip);
    let received = thread::scope(|scope| {
        let bytes = &bytes;
        scope.spawn(move || {
            out.write_all(bytes).unwrap();
            out.shutdown(std::net::Shutdown::Write).unwrap();
        });
        let mut received = Vec::with_capacity(len);
        stream.read_to_end(&mut received).unwrap();
        received
    });
    assert_eq!(received.len(), len);
    assert_eq!(hash(&received), hash(&bytes), "other bytes arrived");
}

/// Both ends of a TCP connection.
fn connected(from: &Host, to: &Host, ip: IpAddr) -> (TcpStream, TcpStream) {
    let listener = to.namespace.enter(|| TcpListener::bind((ip, 0)).unwrap()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let there = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&there, PATIENCE).unwrap();
    let out = from.namespace.enter(connect).unwrap();
    let (stream, _) = eventually("a connection", || listener.accept().ok());
    stream.set_nonblocking(false).unwrap();
    out.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    (out, stream)
}

/// A TCP connection that sends at full rate until it is stopped.
pub(crate) struct Stream {
    stop: Arc<AtomicBool>,
    sender: JoinHandle<(u64, u64)>,
    receiver: JoinHandle<(u64, u64)>,
}

impl Stream {
    pub(crate) fn start(from: &Host, to: &Host) -> Self {
        let (mut out, mut stream) = connected(from, to, to.ip());
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let sender = thread::spawn(move || {
            let (chunk, mut hasher, mut len) = (noise(100_003), DefaultHasher::new(), 0);
            // Ends even if the test fails.
            let deadline = deadline() + PATIENCE;
            while !told.load(Ordering::Relaxed) && Instant::now() < deadline {
                out.write_all(&chunk).unwrap();
                hasher.write(&chunk);
                len += chunk.len() as u64;
            }
            (len, hasher.finish())
        });
        let receiver = thread::spawn(move || {
            let (mut buf, mut hasher, mut len) = (vec![0; 1 << 20], DefaultHasher::new(), 0);
            loop {
                match stream.read(&mut buf).unwrap() {
                    0 => return (len, hasher.finish()),
                    count => {
                        hasher.write(&buf[..count]);
                        len += count as u64;
                    }
                }
            }
        });
        Self { stop, sender, receiver }
    }

    /// Stops it; all sent bytes must have arrived unchanged. Returns their number.
    pub(crate) fn finish(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.sender.join().unwrap();
        let received = self.receiver.join().unwrap();
        assert_eq!(sent, received, "length and hash");
        sent.0
    }
}

/// The deadline of a test's loop.
pub(crate) fn deadline() -> Instant {
    Instant::now() + PATIENCE
}
