//! How a worker receives: one frame at a time into a buffer with headroom. Guests need no system
//! calls and are read in another way: see [`crate::worker`].

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use tapswitch_datapath::vlan::PortMode;
use tapswitch_datapath::{DropReason, HEADROOM};
use tapswitch_netdev as netdev;
use tapswitch_openflow::PortNo;
use tapswitch_tap as tap;
use tapswitch_tunnel as tunnel;
use tapswitch_vhost as vhost;
use tapswitch_wire::{NET_HEADER_LEN, NetHeader};

use crate::Gro;
use crate::ahead::Ahead;
use crate::port_spec::Pausing;
use crate::tun::{TunLink, TunQueue};
use crate::tx::Wait;

/// One queue of a port, read by one worker.
#[derive(Debug)]
pub(crate) struct RxQueue {
    port: PortNo,
    mode: Option<Arc<PortMode>>,
    gro: Gro,
    index: u16,
    device: RxDevice,
    pub(crate) intake: Intake,
}

/// The reading state of a queue, and the frames read ahead from it.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    /// The current pause.
    pub(crate) pause: Option<Pause>,
    /// Buffer for reading during a pause; `None` if the queue is not read ahead.
    pub(crate) ahead: Option<Box<Ahead>>,
    /// epoll reports when there is something to read.
    pub(crate) is_watched: bool,
    pub(crate) is_gone: bool,
    pausing: Pausing,
    /// A bridge behind the queue has sent a link probe.
    is_from_bridge: bool,
}

/// A pause: the queue is not read.
#[derive(Debug)]
pub(crate) struct Pause {
    /// What it still waits for, shortest bound first. It is waiting for the last one.
    pub(crate) waits: Vec<Wait>,
    /// When the wait for that one began.
    pub(crate) since: Instant,
}

impl Intake {
    /// True if the queue is paused, or has frames that were read ahead.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.pause.is_some() || self.ahead.as_ref().is_some_and(|ahead| !ahead.is_empty())
    }
}

/// The device behind a queue.
#[derive(Debug)]
pub(crate) enum RxDevice {
    Tap(Arc<tap::Queue>),
    /// A queue without a network header in front of each frame.
    BareTap(Arc<tap::Queue>),
    Netdev(Arc<netdev::PacketPort>),
    Tun(TunQueue),
    /// A tun port's own answers and requests.
    TunSaid(Arc<TunLink>),
    Guest(GuestRx),
    Vxlan(VxlanRx),
    Gre(GreRx),
}

/// A queue on which a guest sends.
#[derive(Clone, Debug)]
pub(crate) struct GuestRx {
    pub(crate) device: Arc<vhost::Device>,
    pub(crate) queue: Arc<vhost::Queue>,
}

/// A VXLAN tunnel as a receiver.
#[derive(Debug)]
pub(crate) struct VxlanRx {
    pub(crate) receiver: Box<tunnel::Receiver>,
    /// Largest payload of a frame in bytes.
    pub(crate) mtu: u32,
    /// The refusals that are already counted.
    pub(crate) booked: tunnel::Refused,
}

/// A GRE or ERSPAN tunnel as a receiver.
#[derive(Debug)]
pub(crate) struct GreRx {
    pub(crate) port: Arc<tunnel::GrePort>,
    /// Largest payload of a frame in bytes.
    pub(crate) mtu: u32,
    /// The refusals that are already counted.
    pub(crate) booked: tunnel::Refused,
}

/// The result of an attempt to receive.
#[derive(Debug)]
pub(crate) enum Received {
    /// A frame in `buf[start..end]`, with room for at least a network header in front.
    Frame { meta: NetHeader, start: usize, end: usize },
    /// There is no frame now.
    Empty,
    /// A frame was received that cannot be processed.
    Dropped(DropReason),
    /// The device is gone.
    Gone,
}

impl RxQueue {
    pub(crate) fn new(
        port: PortNo,
        mode: Option<Arc<PortMode>>,
        index: u16,
        device: RxDevice,
    ) -> Self {
        Self { port, mode, gro: Gro::default(), index, device, intake: Intake::default() }
    }

    /// Sets a read-ahead buffer of `budget` bytes for pauses.
    pub(crate) fn with_ahead(mut self, budget: usize) -> Self {
        let reads_ahead = budget > 0 && self.device.reads_ahead();
        self.intake.ahead = reads_ahead.then(|| Box::new(Ahead::new(budget)));
        self
    }

    /// Sets whether the queue waits for full ports.
    pub(crate) fn with_pausing(mut self, pausing: Pausing) -> Self {
        self.intake.pausing = pausing;
        self
    }

    /// Whether the queue waits for full ports.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        match self.intake.pausing {
            Pausing::Auto => !self.intake.is_from_bridge,
            Pausing::On => true,
            Pausing::Off => false,
        }
    }

    /// Notes a link probe from a bridge behind the queue.
    #[cold]
    pub(crate) fn note_bridge(&mut self) {
        use RxDevice::{Gre, Netdev, Vxlan};
        self.intake.is_from_bridge = matches!(self.device, Netdev(_) | Vxlan(_) | Gre(_));
    }

    /// Sets whether received packets are coalesced.
    pub(crate) fn with_gro(self, gro: Gro) -> Self {
        Self { gro, ..self }
    }

    /// Whether received packets are coalesced.
    pub(crate) fn gro(&self) -> Gro {
        self.gro
    }

    /// The port of this queue.
    #[inline]
    pub(crate) fn port(&self) -> PortNo {
        self.port
    }

    /// The mode of its port.
    #[inline]
    pub(crate) fn mode(&self) -> Option<&PortMode> {
        self.mode.as_deref()
    }

    /// The guest behind it, if any.
    #[inline]
    pub(crate) fn guest(&self) -> Option<&GuestRx> {
        match &self.device {
            RxDevice::Guest(guest) => Some(guest),
            _ => None,
        }
    }

    /// Frames that the kernel has handed over and that are not yet returned by [`Self::recv`].
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        match &self.device {
            RxDevice::Vxlan(vxlan) => vxlan.receiver.pending(),
            _ => 0,
        }
    }

    /// Frames refused by the tunnel since the last call; `None` if there are none.
    #[inline]
    pub(crate) fn take_refused(&mut self) -> Option<[(DropReason, u64); 4]> {
        let (booked, refused) = match &mut self.device {
            RxDevice::Vxlan(vxlan) => (&mut vxlan.booked, vxlan.receiver.port().refused()),
            RxDevice::Gre(gre) => (&mut gre.booked, not_for_others(gre.port.refused())),
            _ => return None,
        };
        (refused != *booked).then(|| since(std::mem::replace(booked, refused), refused))
    }

    /// The name of the queue in reports.
    pub(crate) fn label(&self) -> String {
        format!("{}/{}", self.port, self.index)
    }

    /// Receives one frame behind at least [`HEADROOM`] bytes of `buf`. A tunnel may put following
    /// frames behind it, as far as there is `room`: see [`tunnel::Receiver::recv`].
    #[expect(clippy::inline_always, reason = "see Forwarder::handle")]
    #[inline(always)]
    pub(crate) fn recv(&mut self, buf: &mut [u8], room: tunnel::Room) -> Received {
        match &mut self.device {
            RxDevice::Tap(queue) => recv_tap(queue, buf),
            RxDevice::BareTap(queue) => recv_bare(queue, buf),
            RxDevice::Netdev(port) => recv_netdev(port, buf),
            RxDevice::Guest(_) => Received::Empty,
            RxDevice::Tun(tun) => tun.recv(buf),
            RxDevice::TunSaid(link) => link.recv_said(buf),
            RxDevice::Vxlan(vxlan) => recv_vxlan(vxlan, buf, room),
            RxDevice::Gre(gre) => recv_gre(gre, buf),
        }
    }
}

/// The kernel delivers each packet to all GRE tunnels of a remote, so a packet of another tunnel is
/// not lost.
fn not_for_others(refused: tunnel::Refused) -> tunnel::Refused {
    tunnel::Refused { malformed: 0, foreign: 0, ..refused }
}

/// The refusals between two readings, by reason.
#[cold]
fn since(before: tunnel::Refused, now: tunnel::Refused) -> [(DropReason, u64); 4] {
    [
        (DropReason::Truncated, now.runt - before.runt),
        (DropReason::NotEncapsulated, now.malformed - before.malformed),
        (DropReason::WrongTunnel, now.foreign - before.foreign),
        (DropReason::OuterCongested, now.congested - before.congested),
    ]
}

/// The kernel writes header and frame contiguously. The header goes to the end of the headroom, so
/// that the frame starts behind it.
#[inline(always)]
fn recv_tap(queue: &tap::Queue, buf: &mut [u8]) -> Received {
    const HEADER: usize = START - NET_HEADER_LEN;
    let len = match queue.recv(&mut buf[HEADER..]) {
        Ok(Some(len)) => len,
        Ok(None) => return Received::Empty,
        Err(tap::RecvError::Gone) => return Received::Gone,
        Err(_) => return Received::Dropped(DropReason::IngressLost),
    };
    match buf[HEADER..HEADER + len].first_chunk() {
        Some(header) => {
            Received::Frame { meta: NetHeader::decode(header), start: START, end: HEADER + len }
        }
        None => Received::Dropped(DropReason::IngressLost),
    }
}

/// The kernel completes frames before it delivers them here.
fn recv_bare(queue: &tap::Queue, buf: &mut [u8]) -> Received {
    match queue.recv(&mut buf[HEADROOM..]) {
        Ok(Some(len)) => {
            Received::Frame { meta: NetHeader::PLAIN, start: HEADROOM, end: HEADROOM + len }
        }
        Ok(None) => Received::Empty,
        Err(tap::RecvError::Gone) => Received::Gone,
        Err(_) => Received::Dropped(DropReason::IngressLost),
    }
}

/// An interface that is down is silent; the agent learns this through netlink.
#[expect(clippy::inline_always, reason = "see Forwarder::handle")]
#[inline(always)]
fn recv_netdev(port: &netdev::PacketPort, buf: &mut [u8]) -> Received {
    match port.recv(buf, START) {
        Ok(Some(netdev::Received { header, frame })) if frame.len() <= netdev::MAX_FRAME_LEN => {
            Received::Frame { meta: header, start: frame.start, end: frame.end }
        }
        // A BIG TCP frame, whether it fits the buffer or not.
        Ok(Some(_)) | Err(netdev::RecvError::Truncated { .. }) => {
            Received::Dropped(DropReason::Truncated)
        }
        Ok(None) | Err(netdev::RecvError::Down) => Received::Empty,
        Err(netdev::RecvError::Gone) => Received::Gone,
        Err(_) => Received::Dropped(DropReason::IngressLost),
    }
}

/// The outer checksum does not cover the inner ones: the frame is treated like one from a wire,
/// except for offloads that a sender on this host has left undone.
fn recv_vxlan(vxlan: &mut VxlanRx, buf: &mut [u8], room: tunnel::Room) -> Received {
    match vxlan.receiver.recv(buf, HEADROOM, room) {
        Ok(Some(frame)) => {
            let meta = tunnel::left_undone(&buf[frame.clone()], vxlan.mtu);
            Received::Frame { meta, start: frame.start, end: frame.end }
        }
        Ok(None) => Received::Empty,
        Err(_) => Received::Dropped(DropReason::IngressLost),
    }
}

/// As [`recv_vxlan`], one frame at a time.
fn recv_gre(gre: &GreRx, buf: &mut [u8]) -> Received {
    match gre.port.recv(buf, HEADROOM) {
        Ok(Some(frame)) => {
            let meta = tunnel::left_undone(&buf[frame.clone()], gre.mtu);
            Received::Frame { meta, start: frame.start, end: frame.end }
        }
        Ok(None) => Received::Empty,
        Err(_) => Received::Dropped(DropReason::IngressLost),
    }
}

impl RxDevice {
    /// True for senders that are not slowed down by a queue that is not read: not for guests, and
    /// not for a tun port's own frames, which are few.
    pub(crate) fn reads_ahead(&self) -> bool {
        !matches!(self, Self::Guest(_) | Self::TunSaid(_))
    }
}

/// Where frames of tap devices and network interfaces start. As any buffer starts at a multiple of
/// 16, so does the payload of most trains, TCP over IPv4 with timestamps: see [`tap::Burst`].
pub(crate) const START: usize = HEADROOM + 14;

impl AsFd for RxQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.device {
            RxDevice::Tap(queue) | RxDevice::BareTap(queue) => queue.as_fd(),
            RxDevice::Netdev(port) => port.as_fd(),
            RxDevice::Tun(tun) => tun.queue.as_fd(),
            RxDevice::TunSaid(link) => link.as_fd(),
            RxDevice::Guest(guest) => guest.queue.as_fd(),
            RxDevice::Vxlan(vxlan) => vxlan.receiver.port().as_fd(),
            RxDevice::Gre(gre) => gre.port.as_fd(),
        }
    }
}
