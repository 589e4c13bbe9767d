//! Shared by the tests of this crate: a namespace with a tap device in it, and UDP traffic.
#![allow(dead_code, unused_imports, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

pub(crate) mod cable;
pub(crate) mod raw;

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::time::Instant;

use tapswitch_guest::{NoForks, Rig, Series};
pub(crate) use tapswitch_helpers::*;
use tapswitch_netlink::{Netlink, OwnedNamespace};
use tapswitch_tap::{Config, CreateError, Device, NetHeader, NetHeaderFlags, Queue, RECV_BUF_LEN};
use tapswitch_wire::{EtherType, MacAddr, ip_proto, parse, write_u16};

/// A network namespace with the kernel side of a tap device in it.
pub(crate) struct Host {
    pub(crate) netlink: Netlink,
    pub(crate) namespace: OwnedNamespace,
    /// A closed device must disappear at once, so no child may inherit it.
    _no_forks: NoForks,
}

impl Host {
    pub(crate) fn new() -> Self {
        let no_forks = NoForks::new();
        let namespace = OwnedNamespace::create(&unique("taptest")).unwrap();
        // Without an IPv6 link-local address, the kernel sends no unsolicited frames on a new
        // device. The file does not exist in a kernel without IPv6.
        let _ = namespace.enter(|| fs::write(ADDR_GEN_MODE, "1")).unwrap();
        Self { netlink: Netlink::open(&namespace).unwrap(), namespace, _no_forks: no_forks }
    }

    /// Prevents unsolicited frames of the kernel, if permitted: no IPv6 on devices created from now
    /// on.
    pub(crate) fn silence(&self) {
        let setting = "/proc/sys/net/ipv6/conf/default/disable_ipv6";
        let _ = self.namespace.enter(|| std::fs::write(setting, "1"));
    }

    pub(crate) fn try_create(&self, config: &Config) -> Result<Device, CreateError> {
        self.namespace.enter(|| Device::create(config)).unwrap()
    }

    pub(crate) fn create(&self, config: &Config) -> Device {
        self.try_create(config).unwrap()
    }

    /// A device that is up, with 10.0.0.1 on the kernel side and 10.0.0.2 as its neighbour.
    pub(crate) fn create_up(&mut self, config: &Config) -> Device {
        let tap = self.create(config);
        let name = tap.name().as_str();
        self.netlink.set_up(name).unwrap();
        self.netlink.add_address(name, "10.0.0.1".parse().unwrap(), 24).unwrap();
        let peer = "10.0.0.2".parse().unwrap();
        self.netlink.set_neighbour(name, peer, PEER.0).unwrap();
        tap
    }

    /// A UDP socket of the kernel side, bound to `port` of 10.0.0.1.
    pub(crate) fn udp(&self, port: u16) -> UdpSocket {
        let socket = self.namespace.enter(|| UdpSocket::bind(("10.0.0.1", port)).unwrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}

impl Host {
    /// Runs `action` inside the namespace.
    pub(crate) fn inside<R: Send>(&self, action: impl FnOnce() -> R + Send) -> R {
        self.namespace.enter(action).unwrap()
    }

    /// Waits until a closed device has disappeared: whoever inspects it keeps it for a moment.
    pub(crate) fn wait_until_gone(&mut self, name: &str) {
        eventually("it is gone", || self.netlink.link(name).is_err().then_some(()));
    }

    /// Creates a persistent device without the crate, with further settings by `set`; no file stays
    /// open.
    pub(crate) fn leave_behind(&self, name: &str, flags: u16, set: impl FnOnce(&OwnedFd) + Send) {
        self.inside(|| {
            let fd = raw::open(name, flags);
            raw::number(&fd, raw::TUNSETPERSIST, 1).unwrap();
            set(&fd);
        });
        self.wait_until_unheld(name);
    }

    /// Waits until a closed persistent device is held by nobody, as [`Self::wait_until_gone`].
    pub(crate) fn wait_until_unheld(&self, name: &str) {
        let mut netlink = Netlink::open(&self.namespace).unwrap();
        eventually("nobody holds it", || {
            let link = netlink.link(name).unwrap();
            let is_held = link.carrier == Some(true) || link.tun.unwrap().queues > Some(0);
            (!is_held).then_some(())
        });
    }
}

/// True on Linux 6.2 and later, which support UDP trains; otherwise reports that the test is
/// skipped.
pub(crate) fn knows_udp_trains() -> bool {
    kernel_version() >= (6, 2) || skip("UDP trains need Linux 6.2")
}

pub(crate) fn config(name: &str) -> Config {
    Config::new(name.parse().unwrap())
}

/// A UDP datagram from 10.0.0.2 to 10.0.0.1 with a partial checksum, as the kernel creates them:
/// the field contains the sum of the pseudo-header. Addresses and ports are `[to, from]` and
/// `[from, to]`, as they lie.
pub(crate) fn udp_datagram(
    [to_mac, from_mac]: [MacAddr; 2],
    [from, to]: [u16; 2],
    payload: &[u8],
) -> (NetHeader, Vec<u8>) {
    let udp_len = u16::try_from(8 + payload.len()).unwrap();
    let mut frame = vec![0; 42];
    frame[..6].copy_from_slice(&to_mac.0);
    frame[6..12].copy_from_slice(&from_mac.0);
    write_u16(&mut frame, 12, 0x0800);
    frame[14] = 0x45;
    write_u16(&mut frame, 16, 20 + udp_len);
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 2, 10, 0, 0, 1]);
    let ip_sum = fold(&frame[14..34]);
    write_u16(&mut frame, 24, !ip_sum);
    write_u16(&mut frame, 34, from);
    write_u16(&mut frame, 36, to);
    write_u16(&mut frame, 38, udp_len);
    let [len_high, len_low] = udp_len.to_be_bytes();
    let pseudo = [&frame[26..34], &[0, 17, len_high, len_low]].concat();
    write_u16(&mut frame, 40, fold(&pseudo));
    frame.extend_from_slice(payload);
    let header = NetHeader {
        flags: NetHeaderFlags::NEEDS_CSUM,
        csum_start: 34,
        csum_offset: 6,
        hdr_len: 42,
        ..NetHeader::PLAIN
    };
    (header, frame)
}

/// The ones' complement sum (RFC 1071), as simple as possible.
fn fold(bytes: &[u8]) -> u16 {
    let mut sum = bytes.chunks(2).map(|b| u32::from(b[0]) << 8 | u32::from(b[1])).sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// The next frame that satisfies `wanted`; others, such as the kernel's IPv6 frames, are skipped.
pub(crate) fn receive(
    queue: &Queue,
    wanted: impl Fn(&NetHeader, &[u8]) -> bool,
) -> (NetHeader, Vec<u8>) {
    let header = |prefix: &[u8]| NetHeader::decode(prefix.first_chunk().unwrap());
    let (prefix, frame) = receive_behind(queue, |prefix, frame| wanted(&header(prefix), frame));
    (header(&prefix), frame)
}

/// As [`receive`], for a queue with any prefix; returns the bytes before the frame as well.
pub(crate) fn receive_any(queue: &Queue, wanted: impl Fn(&[u8]) -> bool) -> (Vec<u8>, Vec<u8>) {
    receive_behind(queue, |_, frame| wanted(frame))
}

fn receive_behind(queue: &Queue, wanted: impl Fn(&[u8], &[u8]) -> bool) -> (Vec<u8>, Vec<u8>) {
    let mut buf = vec![0; RECV_BUF_LEN];
    let deadline = Instant::now() + PATIENCE;
    loop {
        let Some(len) = queue.recv(&mut buf).unwrap() else {
            assert!(Instant::now() < deadline, "no such frame in time");
            wait_readable(&[queue]);
            continue;
        };
        let (prefix, frame) = buf[..len].split_at(queue.prefix().len());
        if wanted(prefix, frame) {
            return (prefix.to_vec(), frame.to_vec());
        }
    }
}

/// True for UDP over IPv4 to `port` that starts with the IP header.
pub(crate) fn is_udp_packet_to(packet: &[u8], port: u16) -> bool {
    packet.len() > 24
        && packet[0] == 0x45
        && packet[9] == 17
        && packet[22..24] == port.to_be_bytes()
}

/// True for UDP over IPv4 to `port`.
pub(crate) fn is_udp_to(frame: &[u8], port: u16) -> bool {
    let key = parse(frame).unwrap().key;
    key.eth_type == EtherType::IPV4.0.to_be_bytes()
        && key.ip_proto == ip_proto::UDP
        && key.l4_dst == port.to_be_bytes()
}

/// From now on the system call `number` fails with `errno` in this thread (seccomp(2)).
pub(crate) fn forbid(number: libc::c_long, errno: libc::c_int) {
    let [number, errno] = [number.try_into().unwrap(), u32::try_from(errno).unwrap()];
    let statement =
        |code: u32, jt, jf, k| libc::sock_filter { code: u16::try_from(code).unwrap(), jt, jf, k };
    let mut program = [
        // The number is the first word of struct seccomp_data.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | errno),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: the call refers to no memory.
    let outcome = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the kernel reads the program, which outlives the call.
    let outcome = unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
}

/// A machine with the oldest kernel that this crate supports.
pub(crate) const LINUX_6_1: Rig = Rig::new(Series::V6_1).modules(MODULES).programs(&["ip"]);
/// A machine with the kernel that this crate was developed with.
pub(crate) const LINUX_7_3: Rig = Rig::new(Series::V7_3).modules(MODULES).programs(&["ip"]);
const MODULES: &[&str] = &["tun", "bridge", "8021q", "vxlan"];

/// How the kernel generates addresses of a new device; 1 means not at all.
const ADDR_GEN_MODE: &str = "/proc/sys/net/ipv6/conf/default/addr_gen_mode";
/// The station at 10.0.0.2.
pub(crate) const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
