//! Shared by the tests of this crate: a veth pair with a port on either end, and frames to send.
#![allow(dead_code, unused_imports, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::IoSlice;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use tapswitch_helpers::*;
use tapswitch_netdev::{Config, HEADROOM_MIN, PacketPort, RECV_BUF_LEN, SendError};
use tapswitch_netlink::{Namespace, Netlink, OwnedNamespace};
use tapswitch_wire::{NetHeader, Tag};

/// Two namespaces connected by a veth pair `a`-`b` that is up, with a port on either end.
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

/// Connects two namespaces by a veth pair and waits until both ends are running.
pub(crate) fn join(left: &mut Host, a: &str, right: &mut Host, b: &str) {
    let there: &Namespace = &right.namespace;
    left.netlink.create_veth(a, b, there).unwrap();
    left.netlink.set_up(a).unwrap();
    right.netlink.set_up(b).unwrap();
    eventually("both ends run", || (left.is_running(a) && right.is_running(b)).then_some(()));
}

pub(crate) fn send(port: &PacketPort, header: &NetHeader, frame: &[u8]) -> Result<(), SendError> {
    port.send(header, &[IoSlice::new(frame)])
}

/// The next frame that satisfies `wanted`; others, such as the kernel's IPv6 frames, are skipped.
pub(crate) fn receive(
    port: &PacketPort,
    wanted: impl Fn(&NetHeader, &[u8]) -> bool,
) -> (NetHeader, Vec<u8>) {
    eventually("a frame", || {
        wait_readable(&[port]);
        drain(port).find(|(header, frame)| wanted(header, frame))
    })
}

/// The queued frames, one by one.
pub(crate) fn drain(port: &PacketPort) -> impl Iterator<Item = (NetHeader, Vec<u8>)> {
    let mut buf = vec![0; RECV_BUF_LEN];
    std::iter::from_fn(move || {
        let received = port.recv(&mut buf, HEADROOM_MIN).unwrap()?;
        Some((received.header, buf[received.frame].to_vec()))
    })
}

/// A frame of `len` bytes with unique contents of an unhandled protocol.
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
