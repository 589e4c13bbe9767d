//! Determines what this kernel supports, and which trains it accepts when they are sent.
//!
//! No ioctl reports the latter. But the kernel checks a frame's header before it checks whether the
//! interface is up: while it is down, a supported train fails with `EIO` and an unsupported one
//! with `EINVAL`, and neither is delivered (`tun_get_user` in `drivers/net/tun.c`). The result
//! depends on the kernel alone, so the probe runs once per process, on a device in a temporary
//! network namespace: nobody can set it up meanwhile, no program that monitors interfaces sees it,
//! and no counter of the real device changes.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::{io, thread};

use rustix::io::Errno;
use rustix::thread::UnshareFlags;
use tapswitch_wire::{GsoType, LongNetHeader, NetHeader, NetHeaderFlags};

use crate::capabilities::negotiate;
use crate::{Capabilities, CreateError, Flags, HeaderLen, Offloads, ioctl};

impl Capabilities {
    /// Determines the capabilities of this kernel. The first call of a process takes some 20 ms and
    /// uses a temporary network namespace: no frame and no event is visible outside.
    ///
    /// # Errors
    /// [`CreateError`]: no `/dev/net/tun`, or no privilege to create a namespace (`CAP_SYS_ADMIN`)
    /// and a device in it.
    pub fn probe() -> Result<Self, CreateError> {
        // A result is kept for the whole process, an error is not.
        static KNOWN: OnceLock<Capabilities> = OnceLock::new();
        if let Some(known) = KNOWN.get() {
            return Ok(*known);
        }
        let thread = thread::Builder::new().name("tap-probe".to_owned()).spawn(ask);
        let found = thread
            .and_then(|thread| thread.join().map_err(|_| io::Error::other("the thread panicked")))
            .map_err(|source| failed("a thread", source))??;
        Ok(*KNOWN.get_or_init(|| found))
    }

    /// Upper bound of the capabilities of a device with this header whose offloads other programs
    /// have set.
    pub(crate) fn at_most(features: Flags, net_header: HeaderLen) -> Self {
        let receive = Offloads::DEFAULT.within(net_header);
        let send = Self::probe().map_or(receive, |kernel| kernel.send.intersection(receive));
        Self::new(features, receive, send)
    }
}

fn failed(call: &'static str, source: impl Into<io::Error>) -> CreateError {
    CreateError::Ioctl { name: NAME.to_owned(), call, source: source.into() }
}

/// Runs the probe; moves the calling thread into a new namespace, which ends with the thread.
fn ask() -> Result<Capabilities, CreateError> {
    // SAFETY: (rustix has no safe form, because of CLONE_FILES.) The flags do not hold
    // CLONE_FILES, so no thread sees another table of file descriptors than before.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
        .map_err(|errno| failed("unshare(CLONE_NEWNET), which needs CAP_SYS_ADMIN", errno))?;
    let fd = ioctl::open_tun().map_err(CreateError::open)?;
    let features = ioctl::features(&fd).map_err(|errno| failed("TUNGETFEATURES", errno))?;
    let flags = Flags::TAP | Flags::NO_PI | Flags::VNET_HDR | Flags::TUN_EXCL;
    ioctl::attach(&fd, NAME, flags).map_err(|errno| failed("TUNSETIFF", errno))?;
    let send = sendable(&fd).map_err(|errno| failed("write", errno))?;
    // The header now has its maximum length, which tunnelled trains need.
    let receive =
        negotiate(&fd, Offloads::DEFAULT).map_err(|errno| failed("TUNSETOFFLOAD", errno))?;
    Ok(Capabilities::new(features, receive, send))
}

/// Tries every train type, those for a short header first: Linux supports tunnels only with the
/// longest header.
fn sendable(fd: &OwnedFd) -> rustix::io::Result<Offloads> {
    let mut understood = Offloads::empty();
    for (header, probes) in [(HeaderLen::V1, &PROBES[..]), (HeaderLen::Tunnel, &TUNNEL_PROBES)] {
        ioctl::set_header_len(fd, header.bytes())?;
        for probe in probes {
            understood.set(probe.proves, is_understood(fd.as_fd(), &probe.packet(header))?);
        }
    }
    Ok(understood)
}

fn is_understood(fd: BorrowedFd<'_>, packet: &[u8]) -> rustix::io::Result<bool> {
    match rustix::io::write(fd, packet) {
        Err(Errno::IO) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        Err(other) => Err(other),
        // The interface is down: the kernel cannot have accepted it.
        Ok(_) => Err(Errno::PROTO),
    }
}

/// A frame, and the offloads that are supported if the kernel accepts it.
struct Probe {
    proves: Offloads,
    gso_type: GsoType,
    flags: u8,
    csum_start: u16,
    csum_offset: u16,
}

impl Probe {
    const fn plain(proves: Offloads, gso_type: u8, csum_start: u16, csum_offset: u16) -> Self {
        let flags = NetHeaderFlags::NEEDS_CSUM;
        Self { proves, gso_type: GsoType(gso_type), flags, csum_start, csum_offset }
    }

    const fn tunnel(proves: Offloads, more_flags: u8) -> Self {
        let gso_type = GsoType::TCPV4.0 | GsoType::UDP_TUNNEL_IPV4;
        let plain = Self::plain(proves, gso_type, INNER_NETWORK + 20, TCP_CHECKSUM);
        Self { flags: plain.flags | more_flags, ..plain }
    }

    fn header(&self) -> LongNetHeader {
        let is_train = self.gso_type != GsoType::NONE;
        let is_tunnelled = self.gso_type.tunnel() != 0;
        LongNetHeader {
            base: NetHeader {
                flags: self.flags,
                gso_type: self.gso_type,
                hdr_len: self.csum_start + TRANSPORT_LEN,
                gso_size: if is_train { SEGMENT_LEN } else { 0 },
                csum_start: self.csum_start,
                csum_offset: self.csum_offset,
            },
            outer_transport: if is_tunnelled { BEHIND_IPV4 } else { 0 },
            inner_network: if is_tunnelled { INNER_NETWORK } else { 0 },
            ..LongNetHeader::default()
        }
    }

    /// Header and frame. The kernel checks only the header, so the frame is zeros.
    fn packet(&self, header: HeaderLen) -> Vec<u8> {
        let frame_len = self.csum_start + TRANSPORT_LEN + 2 * SEGMENT_LEN;
        let mut packet = self.header().encode()[..header.bytes()].to_vec();
        packet.resize(header.bytes() + usize::from(frame_len), 0);
        packet
    }
}

/// Name of the device in its namespace.
const NAME: &str = "probe";
/// Offsets of the transport header after Ethernet and IP, in bytes.
const BEHIND_IPV4: u16 = 14 + 20;
const BEHIND_IPV6: u16 = 14 + 40;
/// Offsets of the checksum in the TCP and the UDP header, in bytes.
const TCP_CHECKSUM: u16 = 16;
const UDP_CHECKSUM: u16 = 6;
/// Room for either transport header in bytes.
const TRANSPORT_LEN: u16 = 20;
/// Payload of each of the two packets in a probe, in bytes.
const SEGMENT_LEN: u16 = 100;

/// Offset of the inner IP header after Ethernet, IPv4, UDP, VXLAN and Ethernet.
const INNER_NETWORK: u16 = BEHIND_IPV4 + 8 + 8 + 14;

const PROBES: [Probe; 5] = [
    Probe::plain(Offloads::CSUM, GsoType::NONE.0, BEHIND_IPV4, UDP_CHECKSUM),
    Probe::plain(Offloads::TSO4, GsoType::TCPV4.0, BEHIND_IPV4, TCP_CHECKSUM),
    Probe::plain(Offloads::TSO6, GsoType::TCPV6.0, BEHIND_IPV6, TCP_CHECKSUM),
    Probe::plain(Offloads::TSO_ECN, GsoType::TCPV4.0 | GsoType::ECN, BEHIND_IPV4, TCP_CHECKSUM),
    // One type covers both IP versions.
    Probe::plain(Offloads::USO, GsoType::UDP_L4.0, BEHIND_IPV4, UDP_CHECKSUM),
];

const TUNNEL_PROBES: [Probe; 2] = [
    Probe::tunnel(Offloads::UDP_TUNNEL, 0),
    Probe::tunnel(Offloads::UDP_TUNNEL_CSUM, NetHeaderFlags::UDP_TUNNEL_CSUM),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_is_a_true_description_of_its_frame() {
        for probe in PROBES.iter().chain(&TUNNEL_PROBES) {
            let packet = probe.packet(HeaderLen::Tunnel);
            let (bytes, frame) = packet.split_at(LongNetHeader::LEN);
            let header = LongNetHeader::decode(bytes).unwrap();
            assert_eq!(header.check(frame.len()), Ok(()));
            assert!(usize::from(header.base.hdr_len) < frame.len());
        }
    }

    #[test]
    fn the_probes_ask_for_everything() {
        let probes = PROBES.iter().chain(&TUNNEL_PROBES);
        let all = probes.fold(Offloads::empty(), |all, probe| all | probe.proves);
        assert_eq!(all, Offloads::DEFAULT);
    }
}
