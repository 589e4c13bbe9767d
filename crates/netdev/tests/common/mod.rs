//! What the tests of this crate share: a veth pair with a port on either end, and frames to send.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapswitch_netdev::{Config, HEADROOM_MIN, PacketPort, RECV_BUF_LEN, SendError};
use tapswitch_netlink::{Namespace, Netlink, OwnedNamespace};
use tapswitch_wire::{NetHeader, Tag};

/// Two namespaces joined by a veth pair `a`-`b` that is up, with a port on either end.
pub(crate) struct Wire {
    pub(crate) a: PacketPort,
    pub(crate) b: PacketPort,
    pub(crate) left: Host,
    pub(crate) right: Host,
}

impl Wire {
    pub(crate) fn new() -> Self {
        Self::with(&Config::default())
    }

    pub(crate) fn with(config: &Config) -> Self {
        let (mut left, mut right) = (Host::new(), Host::new());
        join(&mut left, "a", &mut right, "b");
        Self { a: left.port("a", config), b: right.port("b", config), left, right }
    }
}

/// A network namespace.
pub(crate) struct Host {
    pub(crate) netlink: Netlink,
    pub(crate) namespace: OwnedNamespace,
}

impl Host {
    pub(crate) fn new() -> Self {
        let namespace = OwnedNamespace::create(&unique("devtest")).unwrap();
        Self { netlink: Netlink::open(&namespace).unwrap(), namespace }
    }

    pub(crate) fn port(&self, name: &str, config: &Config) -> PacketPort {
        self.namespace.enter(|| PacketPort::open(name, config).unwrap()).unwrap()
    }

    pub(crate) fn is_running(&mut self, name: &str) -> bool {
        self.netlink.link(name).unwrap().running
    }
}

/// Joins two namespaces by a veth pair and waits until both ends run.
pub(crate) fn join(left: &mut Host, a: &str, right: &mut Host, b: &str) {
    let there: &Namespace = &right.namespace;
    left.netlink.create_veth(a, b, there).unwrap();
    left.netlink.set_up(a).unwrap();
    right.netlink.set_up(b).unwrap();
    eventually("both ends run", || (left.is_running(a) && right.is_running(b)).then_some(()));
}

/// True when the test may make namespaces; otherwise says loudly that it is skipped.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root() || skip("needs root to make network namespaces")
}

/// Past the harness, which would swallow `eprintln!`; in one piece, on a line of its own.
pub(crate) fn skip(reason: &str) -> bool {
    let _ = io::stdout().write_all(format!("\nSKIP: {reason}\n").as_bytes());
    false
}

/// A name that no other test and no other run uses.
pub(crate) fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}-{}-{count}", std::process::id())
}

/// Asks `question` until it answers, for at most five seconds.
pub(crate) fn eventually<T>(what: &str, mut question: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = question() {
            return answer;
        }
        assert!(Instant::now() < deadline, "no answer in time: {what}");
        thread::yield_now();
    }
}

/// Sends `bytes` over one TCP connection from a socket of `client` to one of `server`, which is at
/// `to`; answers what arrives. Fails instead of waiting for ever.
pub(crate) fn tcp_transfer(
    client: &Namespace,
    server: &Namespace,
    to: IpAddr,
    bytes: &[u8],
) -> Vec<u8> {
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

/// Waits until one of `ports` is readable, for a tenth of a second at most.
pub(crate) fn wait_readable(ports: &[&PacketPort]) {
    let mut fds = ports.iter().map(|port| PollFd::new(*port, PollFlags::IN)).collect::<Vec<_>>();
    let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    poll(&mut fds, Some(&timeout)).unwrap();
}

pub(crate) fn send(port: &PacketPort, header: &NetHeader, frame: &[u8]) -> Result<(), SendError> {
    port.send(header, &[IoSlice::new(frame)])
}

/// The next frame that `wanted` wants; others, such as the kernel's own IPv6 chatter, are passed
/// over.
pub(crate) fn receive(
    port: &PacketPort,
    wanted: impl Fn(&NetHeader, &[u8]) -> bool,
) -> (NetHeader, Vec<u8>) {
    eventually("a frame", || {
        wait_readable(&[port]);
        drain(port).find(|(header, frame)| wanted(header, frame))
    })
}

/// The frames that wait now, one by one.
pub(crate) fn drain(port: &PacketPort) -> impl Iterator<Item = (NetHeader, Vec<u8>)> {
    let mut buf = vec![0; RECV_BUF_LEN];
    std::iter::from_fn(move || {
        let received = port.recv(&mut buf, HEADROOM_MIN).unwrap()?;
        Some((received.header, buf[received.frame].to_vec()))
    })
}

/// A frame of `len` bytes whose content no protocol handles and no other frame of a test has.
pub(crate) fn frame(tags: &[Tag], len: usize) -> Vec<u8> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut frame = vec![2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa];
    for tag in tags {
        frame.extend_from_slice(&[tag.tpid, tag.tci].concat());
    }
    // IEEE 802 local experimental.
    frame.extend_from_slice(&[0x88, 0xb5]);
    let fill = (0..u8::MAX).cycle();
    frame.extend(count.to_be_bytes().into_iter().chain(fill).take(len - frame.len()));
    frame
}

/// True for frames of [`frame`].
pub(crate) fn is_ours(frame: &[u8]) -> bool {
    frame.starts_with(&[2, 0, 0, 0, 0, 0xb, 2, 0, 0, 0, 0, 0xa])
}

/// How long a test waits for what must come at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
