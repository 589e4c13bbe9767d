//! The crate `tun-rs` in its fastest mode: `recv_multiple` splits a train into packets,
//! `send_multiple` joins packets into trains; without offloads `recv` and `send`.
//!
//! It could also be used by `recv` and `send` with the header left to the caller, like two file
//! descriptors; then it is the bare loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use tapswitch_netlink::Namespace;
use tun_rs::{
    DeviceBuilder, GROTable, IDEAL_BATCH_SIZE, Layer as TheirLayer, SyncDevice, VIRTIO_NET_HDR_LEN,
};

use crate::bench::echo::measure::Mover;
use crate::bench::echo::swap::{Layer, Tally, swap_addresses};

use super::{BURST_COUNT, Failure};

/// One echo per queue of a new tun device.
pub(super) fn echoes(
    name: &str,
    offloads: bool,
    queues: u16,
) -> Result<Vec<Box<dyn Mover>>, Failure> {
    let mut devices = vec![open(name, offloads, queues > 1)?];
    for _ in 1..queues {
        let more = devices[0].try_clone()?;
        more.set_nonblocking(true)?;
        devices.push(more);
    }
    Ok(devices.into_iter().map(|device| mover(device, offloads)).collect())
}

fn mover(device: SyncDevice, offloads: bool) -> Box<dyn Mover> {
    if offloads {
        Box::new(Trains { device, batch: Batch::new() })
    } else {
        Box::new(Packets { device, buf: vec![0; PACKET_LEN] })
    }
}

/// A forwarder between a new tun device in each namespace.
pub(super) fn forwarder(between: &[Namespace; 2], name: &str) -> Result<Box<dyn Mover>, Failure> {
    let device = |namespace: &Namespace| -> Result<SyncDevice, Failure> {
        Ok(namespace.enter(|| open(name, true, false))??)
    };
    let devices = [device(&between[0])?, device(&between[1])?];
    Ok(Box::new(Forwarder { devices, batch: Batch::new() }))
}

/// Creates a device. The caller configures it and sets it up.
pub(super) fn open(name: &str, offloads: bool, multi_queue: bool) -> io::Result<SyncDevice> {
    let builder = DeviceBuilder::new().name(name).layer(TheirLayer::L3).mtu(1500);
    let builder = builder.offload(offloads).multi_queue(multi_queue).enable(false);
    let device = builder.build_sync()?;
    device.set_nonblocking(true)?;
    Ok(device)
}

/// Without offloads.
struct Packets {
    device: SyncDevice,
    buf: Vec<u8>,
}

impl Mover for Packets {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.device.as_fd()]
    }

    fn turn(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        for index in 0..BURST_COUNT {
            let Some(len) = unless_empty(self.device.recv(&mut self.buf))? else {
                return Ok(index > 0);
            };
            let packet = &mut self.buf[..len];
            swap_addresses(Layer::Tun, packet);
            let is_sent = self.device.send(packet).is_ok();
            tally.settle(is_sent, Layer::Tun, 0, packet);
        }
        Ok(true)
    }
}

/// With offloads.
struct Trains {
    device: SyncDevice,
    batch: Batch,
}

impl Mover for Trains {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.device.as_fd()]
    }

    fn turn(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        for index in 0..BURST_COUNT {
            let Some(count) = self.batch.recv(&self.device)? else { return Ok(index > 0) };
            for packet in self.batch.packets(count) {
                swap_addresses(Layer::Tun, packet);
            }
            self.batch.send(&self.device, count, tally);
        }
        Ok(true)
    }
}

/// Forwards the frames of two devices.
struct Forwarder {
    devices: [SyncDevice; 2],
    batch: Batch,
}

impl Forwarder {
    fn pass(&mut self, from: usize, tally: &mut Tally) -> Result<bool, Failure> {
        let Self { devices, batch } = self;
        for index in 0..BURST_COUNT {
            let Some(count) = batch.recv(&devices[from])? else { return Ok(index > 0) };
            batch.send(&devices[1 - from], count, tally);
        }
        Ok(true)
    }
}

impl Mover for Forwarder {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.devices.iter().map(AsFd::as_fd).collect()
    }

    fn turn(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        Ok(self.pass(0, tally)? | self.pass(1, tally)?)
    }
}

/// The packets of one train, each in a buffer with room for all of them, so that joining needs no
/// additional memory.
pub(super) struct Batch {
    train: Vec<u8>,
    packets: Vec<Vec<u8>>,
    sizes: Vec<usize>,
    table: GROTable,
}

impl Batch {
    pub(super) fn new() -> Self {
        let packet = || {
            let mut packet = Vec::with_capacity(VIRTIO_NET_HDR_LEN + PACKET_LEN);
            packet.resize(VIRTIO_NET_HDR_LEN + MTU, 0);
            packet
        };
        Self {
            train: vec![0; VIRTIO_NET_HDR_LEN + PACKET_LEN],
            packets: (0..IDEAL_BATCH_SIZE).map(|_| packet()).collect(),
            sizes: vec![0; IDEAL_BATCH_SIZE],
            table: GROTable::default(),
        }
    }

    /// Reads one train or packet; returns its number of packets.
    pub(super) fn recv(&mut self, device: &SyncDevice) -> io::Result<Option<usize>> {
        let Self { train, packets, sizes, .. } = self;
        let outcome = device.recv_multiple(train, packets, sizes, VIRTIO_NET_HDR_LEN);
        let Some(count) = unless_empty(outcome)? else { return Ok(None) };
        for (packet, size) in packets.iter_mut().zip(sizes).take(count) {
            packet.truncate(VIRTIO_NET_HDR_LEN + *size);
        }
        Ok(Some(count))
    }

    pub(super) fn packets(&mut self, count: usize) -> impl Iterator<Item = &mut [u8]> {
        self.packets[..count].iter_mut().map(|packet| &mut packet[VIRTIO_NET_HDR_LEN..])
    }

    /// Counts it as the original frame.
    fn count(&self, count: usize, tally: &mut Tally) {
        tally.frames += 1;
        tally.trains += u64::from(count > 1);
        tally.packets += count as u64;
        tally.bytes += self.sizes[..count].iter().sum::<usize>() as u64;
    }

    /// Writes the packets, joined again, counts their outcome, and prepares the buffers for the
    /// next.
    pub(super) fn send(&mut self, device: &SyncDevice, count: usize, tally: &mut Tally) {
        let packets = &mut self.packets[..count];
        let is_sent = device.send_multiple(&mut self.table, packets, VIRTIO_NET_HDR_LEN).is_ok();
        for packet in packets {
            packet.resize(VIRTIO_NET_HDR_LEN + MTU, 0);
        }
        if is_sent {
            self.count(count, tally);
        } else {
            tally.lost += 1;
        }
    }
}

fn unless_empty<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

const MTU: usize = 1500;
const PACKET_LEN: usize = 65_535;
