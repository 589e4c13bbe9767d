//! Network namespaces with taps, for tests with the kernel.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{UnshareFlags, unshare_unsafe};
pub use tapswitch_helpers::{kernel_version, skip};
use tapswitch_wire::LongNetHeader;

/// A tap device with a network header long enough for tunnels, without offloads until
/// [`offload`](Self::offload).
pub struct Tap(File);

impl Tap {
    pub fn new(name: &str) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open("/dev/net/tun")?;
        // SAFETY: an `ifreq` of zeros is valid: it holds integers and unions of them.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request.ifr_ifru.ifru_flags = i16::try_from(flags).unwrap();
        let header_len = i32::try_from(LongNetHeader::LEN).unwrap();
        let fd = file.as_raw_fd();
        // SAFETY: the descriptor is open, and TUNSETIFF reads and writes one `ifreq`, which
        // `request` is.
        check(unsafe { libc::ioctl(fd, libc::TUNSETIFF, &raw mut request) })?;
        // SAFETY: the descriptor is open, and TUNSETVNETHDRSZ reads one `int`.
        check(unsafe { libc::ioctl(fd, libc::TUNSETVNETHDRSZ, &raw const header_len) })?;
        let tap = Self(file);
        tap.offload(0)?;
        Ok(tap)
    }

    /// Sets the offloads that the reader accepts: bits `TUN_F_*`.
    pub fn offload(&self, bits: libc::c_ulong) -> io::Result<()> {
        // SAFETY: the descriptor is open, and TUNSETOFFLOAD takes an integer, no pointer.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TUNSETOFFLOAD, bits) })
    }

    pub fn write(&self, meta: &LongNetHeader, frame: &[u8]) -> io::Result<()> {
        let bytes = [&meta.encode()[..], frame].concat();
        let written = (&self.0).write(&bytes)?;
        assert_eq!(written, bytes.len());
        Ok(())
    }

    /// The next frame, or `None` after the deadline.
    pub fn read(&self, deadline: Instant) -> Option<(LongNetHeader, Vec<u8>)> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).unwrap();
        let mut ready = [PollFd::new(&self.0, PollFlags::IN)];
        if poll(&mut ready, Some(&timeout)).unwrap() == 0 {
            return None;
        }
        let mut bytes = vec![0; 70_000];
        let len = (&self.0).read(&mut bytes).unwrap();
        let (header, frame) = bytes[..len].split_at(LongNetHeader::LEN);
        Some((LongNetHeader::decode(header).unwrap(), frame.to_vec()))
    }
}

/// Runs `test` in a network namespace of its own, in a thread of its own, because the harness may
/// run tests in the main thread, whose namespace must not change. Without the prerequisites, prints
/// that `what` is skipped.
pub fn run(what: &str, test: impl FnOnce() + Send + 'static) {
    if let Err(missing) = prerequisites() {
        skip(&format!("{what}: {missing}"));
        return;
    }
    let body = move || {
        // SAFETY: only CLONE_FILES could invalidate what other threads hold, and it is not set.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
        for (switch, value) in SWITCHES {
            // A kernel without the switch does not need it.
            let _ = fs::write(switch, value);
        }
        test();
    };
    if let Err(panic) = thread::spawn(body).join() {
        std::panic::resume_unwind(panic);
    }
}

fn prerequisites() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("needs root".to_owned());
    }
    let tun = File::open("/dev/net/tun");
    tun.map_err(|error| format!("needs /dev/net/tun: {error}"))?;
    if kernel_version() < KERNEL {
        return Err(format!("needs Linux {KERNEL:?}; this is {:?}", kernel_version()));
    }
    ip("-V").map_err(|error| format!("needs `ip`: {error}"))
}

/// Runs `ip` with `arguments` in the namespace of this thread.
pub fn ip(arguments: &str) -> io::Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("ip {arguments}: {why}")))
}

fn check(returned: libc::c_int) -> io::Result<()> {
    if returned < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// No IPv6 messages on new interfaces, no packet filter in the bridge.
const SWITCHES: [(&str, &str); 4] = [
    ("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1"),
    ("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"),
    ("/proc/sys/net/bridge/bridge-nf-call-iptables", "0"),
    ("/proc/sys/net/bridge/bridge-nf-call-ip6tables", "0"),
];

/// Timeout for the kernel, which needs milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Minimum kernel for the comparison.
pub const KERNEL: (u32, u32) = (6, 18);
