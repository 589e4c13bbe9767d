//! Finds out which trains this kernel understands when they are sent into a tap device.
//!
//! No ioctl tells. But the kernel examines a frame's header before it looks whether the interface
//! is up: on one that is down, a train that it understands fails with `EIO`, one that it does not
//! with `EINVAL`, and in neither case does a frame come out (`tun_get_user` in
//! `drivers/net/tun.c`). The answer depends on the kernel alone, so it is asked once per process,
//! on a device in a network namespace that exists only for that: nobody can switch it on meanwhile,
//! no program that watches interfaces sees it, and no counter of the real device moves.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::thread;

use rustix::io::{self, Errno};
use rustix::thread::UnshareFlags;
use tapswitch_wire::{GsoType, NET_HEADER_LEN, NetHeader, NetHeaderFlags};

use crate::Offloads;
use crate::ioctl::{self, flags};

/// What may be sent, or `None` when that may not be found out: without `CAP_SYS_ADMIN` there is no
/// namespace to ask in.
pub(crate) fn sendable() -> Option<Offloads> {
    static KNOWN: OnceLock<Offloads> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Some(*known);
    }
    let thread = thread::Builder::new().name("tap-probe".to_owned()).spawn(ask);
    let found = thread.ok()?.join().ok()?.ok()?;
    Some(*KNOWN.get_or_init(|| found))
}

/// Asks the kernel; moves the calling thread into a new namespace, which ends with it.
fn ask() -> io::Result<Offloads> {
    // SAFETY: (rustix has no safe form, because of CLONE_FILES.) The flags do not hold
    // CLONE_FILES, so no thread sees another table of file descriptors than before.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    let fd = ioctl::open_tun()?;
    ioctl::attach(&fd, "probe", flags::TAP | flags::NO_PI | flags::VNET_HDR | flags::TUN_EXCL)?;
    ioctl::set_header_len(&fd, ioctl::HEADER_LEN)?;
    let mut understood = Offloads::empty();
    for probe in PROBES {
        understood.set(probe.proves, is_understood(fd.as_fd(), &probe)?);
    }
    Ok(understood)
}

fn is_understood(fd: BorrowedFd<'_>, probe: &Probe) -> io::Result<bool> {
    match rustix::io::write(fd, &probe.packet()) {
        Err(Errno::IO) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        Err(other) => Err(other),
        // The interface is down: the kernel cannot have taken it.
        Ok(_) => Err(Errno::PROTO),
    }
}

/// A frame, and what is proved when the kernel understands it.
struct Probe {
    proves: Offloads,
    gso_type: GsoType,
    csum_start: u16,
    csum_offset: u16,
}

impl Probe {
    /// Header and frame. The kernel looks no further than the header, so the frame is zeros.
    fn packet(&self) -> Vec<u8> {
        let header = NetHeader {
            flags: NetHeaderFlags::NEEDS_CSUM,
            gso_type: self.gso_type,
            hdr_len: self.csum_start + TRANSPORT_LEN,
            gso_size: if self.gso_type == GsoType::NONE { 0 } else { SEGMENT_LEN },
            csum_start: self.csum_start,
            csum_offset: self.csum_offset,
        };
        let frame_len = self.csum_start + TRANSPORT_LEN + 2 * SEGMENT_LEN;
        let mut packet = header.encode().to_vec();
        packet.resize(NET_HEADER_LEN + usize::from(frame_len), 0);
        packet
    }
}

/// Offsets of the transport header behind Ethernet and IP, in bytes.
const BEHIND_IPV4: u16 = 14 + 20;
const BEHIND_IPV6: u16 = 14 + 40;
/// Offsets of the checksum in the TCP and the UDP header, in bytes.
const TCP_CHECKSUM: u16 = 16;
const UDP_CHECKSUM: u16 = 6;
/// Room for either transport header in bytes.
const TRANSPORT_LEN: u16 = 20;
/// Payload of each of the two packets in a probe, in bytes.
const SEGMENT_LEN: u16 = 100;

const PROBES: [Probe; 5] = [
    Probe {
        proves: Offloads::CSUM,
        gso_type: GsoType::NONE,
        csum_start: BEHIND_IPV4,
        csum_offset: UDP_CHECKSUM,
    },
    Probe {
        proves: Offloads::TSO4,
        gso_type: GsoType::TCPV4,
        csum_start: BEHIND_IPV4,
        csum_offset: TCP_CHECKSUM,
    },
    Probe {
        proves: Offloads::TSO6,
        gso_type: GsoType::TCPV6,
        csum_start: BEHIND_IPV6,
        csum_offset: TCP_CHECKSUM,
    },
    Probe {
        proves: Offloads::TSO_ECN,
        gso_type: GsoType(GsoType::TCPV4.0 | GsoType::ECN),
        csum_start: BEHIND_IPV4,
        csum_offset: TCP_CHECKSUM,
    },
    // One type of train stands for both IPs.
    Probe {
        proves: Offloads::USO,
        gso_type: GsoType::UDP_L4,
        csum_start: BEHIND_IPV4,
        csum_offset: UDP_CHECKSUM,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probe_is_a_true_description_of_its_frame() {
        for probe in &PROBES {
            let packet = probe.packet();
            let (header, frame) = packet.split_first_chunk::<NET_HEADER_LEN>().unwrap();
            let header = NetHeader::decode(header);
            assert_eq!(header.check(frame.len()), Ok(()));
            assert!(usize::from(header.hdr_len) < frame.len());
        }
    }

    #[test]
    fn the_probes_ask_for_everything() {
        let all = PROBES.iter().fold(Offloads::empty(), |all, probe| all | probe.proves);
        assert_eq!(all, Offloads::all());
    }
}
