//! Receiving and sending frames at a host's interface.

use std::io::IoSlice;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapswitch_netdev::{Config, HEADROOM_MIN, PacketPort, RECV_BUF_LEN, SendError};
use tapswitch_wire::NetHeader;

use super::{Host, Stream, until};

/// A packet socket on the host's interface. It misses nothing from now on.
pub(crate) struct Capture {
    port: PacketPort,
    buf: Vec<u8>,
}

impl Capture {
    pub(crate) fn open(host: &Host) -> Self {
        // Room for all frames of a test, so that it does not matter when they are read.
        let config = Config::default().receive_buffer_len(256 << 20);
        let open = || PacketPort::open(&host.interface, &config).unwrap();
        Self { port: host.namespace.enter(open).unwrap(), buf: vec![0; RECV_BUF_LEN] }
    }

    /// Sends a frame into the switch.
    pub(crate) fn send(&self, frame: &[u8]) {
        self.port.send(&NetHeader::default(), &[IoSlice::new(frame)]).unwrap();
    }

    /// Sends a frame unless the interface has no room for it.
    pub(crate) fn try_send(&self, frame: &[u8]) -> bool {
        match self.port.send(&NetHeader::default(), &[IoSlice::new(frame)]) {
            Err(SendError::Full | SendError::Congested) => false,
            outcome => {
                outcome.unwrap();
                true
            }
        }
    }

    /// The next waiting frame, with its offload metadata.
    pub(crate) fn next(&mut self) -> Option<(NetHeader, Vec<u8>)> {
        let received = self.port.recv(&mut self.buf, HEADROOM_MIN).unwrap()?;
        // `hdr_len` is only the kernel's hint.
        let header = NetHeader { hdr_len: 0, ..received.header };
        Some((header, self.buf[received.frame].to_vec()))
    }

    /// Waits for a frame, for at most a tenth of a second.
    pub(crate) fn wait(&self) {
        let mut fds = [PollFd::new(&self.port, PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        poll(&mut fds, Some(&timeout)).unwrap();
    }

    /// All frames that wait now.
    pub(crate) fn drain(&mut self) -> Vec<(NetHeader, Vec<u8>)> {
        let frames: Vec<_> = std::iter::from_fn(|| self.next()).collect();
        assert_eq!(self.port.statistics().unwrap().dropped, 0, "the capture had room for all");
        frames
    }

    /// Frames from now on until the last of a stream of `count` frames is among them. The arrival
    /// of a stream does not imply that of its copies: a switch sends them one after the other.
    pub(crate) fn until_last(&mut self, stream: &Stream, count: u32) -> Vec<(NetHeader, Vec<u8>)> {
        let mut frames = Vec::new();
        until("the last copy arrives", || {
            frames.extend(self.drain());
            count == 0 || stream.numbers(&frames).contains(&(count - 1))
        });
        frames
    }

    /// Numbers of the frames of a stream of `count` frames, from now on to the last one.
    pub(crate) fn copies(&mut self, stream: &Stream, count: u32) -> Vec<u32> {
        stream.numbers(&self.until_last(stream, count))
    }

    /// Numbers of the stream's frames that wait now, in order of arrival. Each is unchanged.
    pub(crate) fn numbers(&mut self, stream: &Stream) -> Vec<u32> {
        stream.numbers(&self.drain())
    }
}
