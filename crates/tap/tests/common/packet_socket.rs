//! Sends any frames from the kernel side of a device.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use tapswitch_netlink::OwnedNamespace;

/// A raw packet socket on one device (packet(7)).
pub(crate) struct PacketSocket {
    fd: OwnedFd,
    address: libc::sockaddr_ll,
}

impl PacketSocket {
    pub(crate) fn open(namespace: &OwnedNamespace, device_index: u32) -> Self {
        namespace.enter(|| Self::open_here(device_index)).unwrap()
    }

    fn open_here(device_index: u32) -> Self {
        // SAFETY: the call refers to no memory.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: the kernel has just created it for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET.try_into().unwrap(),
            sll_protocol: 0,
            sll_ifindex: device_index.try_into().unwrap(),
            sll_hatype: 0,
            sll_pkttype: 0,
            sll_halen: 6,
            sll_addr: [0; 8],
        };
        Self { fd, address }
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        // SAFETY: the kernel reads the frame and the address, which outlive the call.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const self.address).cast(),
                libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).unwrap(),
            )
        };
        let outcome = usize::try_from(sent).map_err(|_| io::Error::last_os_error());
        assert_eq!(outcome.unwrap(), frame.len());
    }
}
