//! Calls that take a `struct ifreq`.

use std::os::fd::AsFd;

use rustix::io::{self, Errno};
use rustix::ioctl::{self, Opcode, Updater};

use super::{read, write};
use crate::Flags;

/// Makes `fd` a queue of the device `name`, which is created if it does not exist. With an empty
/// name or `%d` the kernel chooses a name. Returns the device's name.
pub(crate) fn attach(fd: impl AsFd, name: &str, flags: Flags) -> io::Result<String> {
    let mut request = InterfaceRequest::named(name)?;
    request.set_flags(flags);
    // SAFETY: TUNSETIFF reads a struct ifreq and writes it back.
    unsafe { update::<TUNSETIFF>(fd, &mut request) }?;
    request.name()
}

/// Name and flags of the device that `fd` is a queue of, including `PERSIST` and `DETACH_QUEUE`.
/// `NO_PI` has another meaning: see [`Flags::NO_PI`].
pub(crate) fn interface(fd: impl AsFd) -> io::Result<(String, Flags)> {
    let mut request = InterfaceRequest::default();
    // SAFETY: TUNGETIFF writes a struct ifreq.
    unsafe { update::<TUNGETIFF>(fd, &mut request) }?;
    Ok((request.name()?, request.flags()))
}

/// Attaches (`ATTACH_QUEUE`) or detaches (`DETACH_QUEUE`) the queue.
pub(crate) fn set_queue(fd: impl AsFd, what: Flags) -> io::Result<()> {
    let mut request = InterfaceRequest::default();
    request.set_flags(what);
    // SAFETY: TUNSETQUEUE reads a struct ifreq.
    unsafe { update::<TUNSETQUEUE>(fd, &mut request) }
}

/// Link type (`ARPHRD_*`) and first bytes of the hardware address of the device.
pub(crate) fn hardware_address(fd: impl AsFd) -> io::Result<(u16, [u8; 14])> {
    let mut request = InterfaceRequest::default();
    // SAFETY: SIOCGIFHWADDR writes a struct ifreq; on a tun file it ignores the name.
    unsafe { update::<SIOCGIFHWADDR>(fd, &mut request) }?;
    let [t0, t1, address @ ..] = request.body;
    let [address @ .., _, _, _, _, _, _, _, _] = address;
    Ok((u16::from_ne_bytes([t0, t1]), address))
}

/// Sets the hardware address; `link_type` must be the device's own.
pub(crate) fn set_hardware_address(
    fd: impl AsFd,
    link_type: u16,
    address: [u8; 6],
) -> io::Result<()> {
    let mut request = InterfaceRequest::default();
    request.body[..2].copy_from_slice(&link_type.to_ne_bytes());
    request.body[2..8].copy_from_slice(&address);
    // SAFETY: SIOCSIFHWADDR reads a struct ifreq; on a tun file it ignores the name.
    unsafe { update::<SIOCSIFHWADDR>(fd, &mut request) }
}

/// `struct ifreq`: a name and a union. All calls here use the union's first bytes.
#[repr(C)]
#[derive(Default)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    /// As long as the union with 8-byte pointers; with shorter pointers it is shorter.
    body: [u8; 24],
}

impl InterfaceRequest {
    fn named(name: &str) -> io::Result<Self> {
        let mut request = Self::default();
        // The last byte stays zero to terminate the name.
        request.name[..libc::IFNAMSIZ - 1]
            .get_mut(..name.len())
            .ok_or(Errno::NAMETOOLONG)?
            .copy_from_slice(name.as_bytes());
        Ok(request)
    }

    fn name(&self) -> io::Result<String> {
        let name = self.name.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8(name.to_vec()).map_err(|_| Errno::ILSEQ)
    }

    fn set_flags(&mut self, flags: Flags) {
        self.body[..2].copy_from_slice(&flags.bits().to_ne_bytes());
    }

    fn flags(&self) -> Flags {
        let [low, high, ..] = self.body;
        Flags::from_bits_retain(u16::from_ne_bytes([low, high]))
    }
}

/// # Safety
/// The call `OPCODE` must read and write at most a `struct ifreq`.
unsafe fn update<const OPCODE: Opcode>(
    fd: impl AsFd,
    request: &mut InterfaceRequest,
) -> io::Result<()> {
    // SAFETY: the caller guarantees that OPCODE takes the layout of `InterfaceRequest`.
    let updater = unsafe { Updater::<OPCODE, InterfaceRequest>::new(request) };
    // SAFETY: the request outlives the call, is as large as the kernel's, and any bytes are valid.
    unsafe { ioctl::ioctl(fd, updater) }
}

const TUNSETIFF: Opcode = write(202);
const TUNGETIFF: Opcode = read(210);
const TUNSETQUEUE: Opcode = write(217);
/// `include/uapi/linux/sockios.h`.
const SIOCGIFHWADDR: Opcode = 0x8927;
const SIOCSIFHWADDR: Opcode = 0x8924;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_as_large_as_the_kernels_and_ends_its_name() {
        assert!(size_of::<InterfaceRequest>() >= size_of::<libc::ifreq>());
        let request = InterfaceRequest::named("fifteen-bytes-x").unwrap();
        assert_eq!(request.name.last(), Some(&0));
        assert_eq!(request.name().unwrap(), "fifteen-bytes-x");
        assert!(InterfaceRequest::named("sixteen-bytes-xy").is_err());
    }

    #[test]
    fn flags_survive_a_round_trip() {
        let mut request = InterfaceRequest::default();
        request.set_flags(Flags::TAP | Flags::TUN_EXCL);
        assert_eq!(request.flags(), Flags::TAP | Flags::TUN_EXCL);
    }
}
