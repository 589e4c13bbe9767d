//! Capturing and sending frames at a host's interface, with their offload metadata.

use std::io::IoSlice;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapswitch_netdev::{Config, HEADROOM_MIN, PacketPort, RECV_BUF_LEN};
use tapswitch_wire::{MacAddr, NetHeader, Tag};

use super::{Host, eventually};

/// A packet socket on the host's `eth0`.
pub(crate) struct Capture(PacketPort);

impl Capture {
    pub(crate) fn open(host: &Host) -> Self {
        // Room for all frames of a test, so that nothing depends on timing.
        let config = Config::default().receive_buffer_len(128 << 20);
        let open = || PacketPort::open("eth0", &config).unwrap();
        Self(host.namespace.enter(open).unwrap())
    }

    /// Sends a frame into the switch.
    pub(crate) fn send(&self, header: &NetHeader, frame: &[u8]) {
        self.0.send(header, &[IoSlice::new(frame)]).unwrap();
    }

    /// The next frame that `wanted` accepts; others are skipped.
    pub(crate) fn receive(&self, wanted: impl Fn(&[u8]) -> bool) -> (NetHeader, Vec<u8>) {
        let mut buf = vec![0; RECV_BUF_LEN];
        eventually("a frame", || {
            self.wait();
            while let Some((header, frame)) = self.next(&mut buf) {
                if wanted(&frame) {
                    return Some((header, frame));
                }
            }
            None
        })
    }

    /// All wanted frames that are pending now.
    pub(crate) fn drain(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<(NetHeader, Vec<u8>)> {
        let mut buf = vec![0; RECV_BUF_LEN];
        let frames = std::iter::from_fn(|| self.next(&mut buf));
        frames.filter(|(_, frame)| wanted(frame)).collect()
    }

    /// Frames dropped for lack of room.
    pub(crate) fn lost(&self) -> u64 {
        self.0.statistics().unwrap().dropped
    }

    fn next(&self, buf: &mut [u8]) -> Option<(NetHeader, Vec<u8>)> {
        let received = self.0.recv(buf, HEADROOM_MIN).unwrap()?;
        Some((received.header, buf[received.frame].to_vec()))
    }

    fn wait(&self) {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        poll(&mut fds, Some(&timeout)).unwrap();
    }
}

/// Metadata without the hint `hdr_len`, in which the kernel reports the length of a frame's linear
/// part.
pub(crate) fn without_hint(header: NetHeader) -> NetHeader {
    NetHeader { hdr_len: 0, ..header }
}

/// A frame of `len` bytes that no protocol handles (IEEE 802 local experimental).
pub(crate) fn frame(dst: MacAddr, src: MacAddr, tags: &[Tag], len: usize) -> Vec<u8> {
    let mut frame = [dst.0, src.0].concat();
    for tag in tags {
        frame.extend_from_slice(&[tag.tpid, tag.tci].concat());
    }
    frame.extend_from_slice(&[0x88, 0xb5]);
    let fill = (0..u8::MAX).cycle();
    let missing = len - frame.len();
    frame.extend(fill.take(missing));
    frame
}
