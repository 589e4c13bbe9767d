//! Determines whether this kernel supports UDP trains that are sent to a packet socket.
//!
//! The kernel checks the header only on an interface that is up, so a probe on the real one would
//! send a frame. The result depends on the kernel alone: the probe runs once per process, on the
//! loopback interface of a temporary network namespace.

use std::sync::OnceLock;
use std::thread;

use rustix::io::{self, Errno};
use rustix::net::netdevice;
use rustix::thread::UnshareFlags;
use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags};

use crate::socket;

/// True if UDP trains may be sent, or if that cannot be determined: the namespace needs
/// `CAP_SYS_ADMIN`.
pub(crate) fn sends_udp_trains() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return *known;
    }
    let thread = thread::Builder::new().name("netdev-probe".to_owned()).spawn(ask);
    let found = thread.ok().and_then(|thread| thread.join().ok()?.ok());
    found.is_none_or(|found| *KNOWN.get_or_init(|| found))
}

/// Runs the probe; moves the calling thread into a new namespace, which ends with the thread.
fn ask() -> io::Result<bool> {
    // SAFETY: (rustix has no safe form, because of CLONE_FILES.) The flags do not hold
    // CLONE_FILES, so no thread sees another table of file descriptors than before.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    let fd = socket::open()?;
    socket::set_flags(&fd, "lo", socket::IFF_UP)?;
    socket::set_flag(&fd, libc::PACKET_VNET_HDR, true)?;
    socket::bind(&fd, netdevice::name_to_index(&fd, "lo")?)?;
    match rustix::io::write(&fd, &train()) {
        Ok(_) => Ok(true),
        Err(Errno::INVAL) => Ok(false),
        Err(other) => Err(other),
    }
}

/// Two datagrams of zeros; nothing receives them.
fn train() -> Vec<u8> {
    const SEGMENT_LEN: u16 = 100;
    let header = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        gso_type: GsoType::UDP_L4,
        hdr_len: 42,
        gso_size: SEGMENT_LEN,
        csum_start: 34,
        csum_offset: 6,
    };
    let mut packet = header.encode()[..socket::VNET_HEADER_LEN].to_vec();
    packet.resize(packet.len() + usize::from(header.hdr_len + 2 * SEGMENT_LEN), 0);
    packet
}
