//! Finds out whether this kernel understands UDP trains that are sent into a packet socket.
//!
//! The kernel looks at the header only on an interface that is up, so asking on the real one would
//! send something. The answer depends on the kernel alone: it is asked once per process, on the
//! loopback of a network namespace that exists only for that.

use std::sync::OnceLock;
use std::thread;

use rustix::io::{self, Errno};
use rustix::net::netdevice;
use rustix::thread::UnshareFlags;
use tapswitch_wire::{GsoType, NetHeader, NetHeaderFlags};

use crate::socket;

/// True when UDP trains may be sent, and when that may not be found out: without `CAP_SYS_ADMIN`
/// there is no namespace to ask in.
pub(crate) fn sends_udp_trains() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return *known;
    }
    let thread = thread::Builder::new().name("netdev-probe".to_owned()).spawn(ask);
    let found = thread.ok().and_then(|thread| thread.join().ok()?.ok());
    found.is_none_or(|found| *KNOWN.get_or_init(|| found))
}

/// Asks the kernel; moves the calling thread into a new namespace, which ends with it.
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

/// Two datagrams of zeros; nobody will look at them.
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
