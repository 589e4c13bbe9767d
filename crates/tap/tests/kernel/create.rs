//! Creating a device results in what was configured, or in an error with the reason; nothing is
//! left behind.

use std::num::NonZeroU16;
use std::os::fd::AsRawFd;

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::{CapabilitySet, CapabilitySets, UnshareFlags};
use tapswitch_tap::{Config, CreateError, Device, Offloads};

use crate::common::{Host, can_tap, config, forbid, is_udp_to, knows_udp_trains, receive};

#[test]
fn a_device_lives_as_long_as_its_queues() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let tap = host.create(&config("tap0"));
    let link = host.netlink.link("tap0").unwrap();
    assert_eq!((link.kind.as_deref(), link.up), (Some("tun"), false));
    assert_eq!(link.index, tap.index());
    assert_eq!(link.mac, Some(tap.mac().unwrap().0));
    assert_eq!(tap.current_name().unwrap(), "tap0");
    assert_eq!(tap.name().as_str(), "tap0");

    let queues = tap.into_queues();
    assert!(host.netlink.link("tap0").is_ok());
    drop(queues);
    host.wait_until_gone("tap0");
}

#[test]
fn the_probe_leaves_no_trace() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let before = host.netlink.links().unwrap().len();
    let _tap = host.create(&config("tap0"));
    host.netlink.set_up("tap0").unwrap();
    assert_eq!(host.netlink.links().unwrap().len(), before + 1);
    let stats = host.netlink.link("tap0").unwrap().stats;
    assert_eq!((stats.rx_packets, stats.rx_dropped, stats.rx_errors), (0, 0, 0));
}

#[test]
fn a_taken_name_is_refused() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    host.netlink.create_bridge("br0").unwrap();
    let tap = host.create(&config("tap0"));
    for (name, exclusive) in [("br0", true), ("tap0", true), ("tap0", false)] {
        let error = host.try_create(&config(name).exclusive(exclusive)).unwrap_err();
        assert!(matches!(error, CreateError::NameTaken { .. }), "{error}");
        assert!(error.to_string().contains(&format!("ip link del {name}")), "{error}");
    }
    drop(tap);
    host.create(&config("tap0"));
}

#[test]
fn an_interface_of_another_kind_is_told_apart() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    host.netlink.create_bridge("br0").unwrap();
    let _single = host.create(&config("tap0"));
    for other in [config("br0"), config("tap0").multi_queue(true)] {
        let error = host.try_create(&other.exclusive(false)).unwrap_err();
        assert!(matches!(error, CreateError::Mismatch { .. }), "{error}");
    }
}

#[test]
fn a_multi_queue_device_can_be_joined_unless_exclusively() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let shared = config("tap0").multi_queue(true);
    let first = host.create(&shared);
    let second = host.create(&shared.clone().exclusive(false));
    assert_eq!(first.index(), second.index());
    assert!(host.try_create(&shared).is_err());
}

#[test]
fn there_are_as_many_queues_as_asked_for_up_to_the_kernels_limit() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    for count in [1, 4, 256] {
        let tap = host.create(&with_queues("tap0", count));
        assert_eq!(tap.queues().len(), usize::from(count));
    }
    let error = host.try_create(&with_queues("tap0", 257)).unwrap_err();
    assert!(matches!(error, CreateError::TooManyQueues { queues: 257, .. }), "{error}");
    host.wait_until_gone("tap0");
}

#[test]
fn offloads_follow_the_callers_cap() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let host = Host::new();
    for cap in [
        Offloads::empty(),
        Offloads::CSUM,
        Offloads::CSUM | Offloads::TSO,
        Offloads::CSUM | Offloads::TSO | Offloads::TSO_ECN,
        Offloads::CSUM | Offloads::USO,
        Offloads::PLAIN,
    ] {
        let mut tap = host.create(&config("tap0").offloads(cap));
        assert_eq!(tap.capabilities().receive, cap);
        assert_eq!(tap.capabilities().send, Offloads::PLAIN, "does not depend on the cap");
        assert_eq!(tap.set_offloads(Offloads::PLAIN).unwrap(), Offloads::PLAIN);
        assert_eq!(tap.capabilities().receive, Offloads::PLAIN);
    }
    let orphan = host.create(&config("tap0").offloads(Offloads::TSO));
    assert_eq!(orphan.capabilities().receive, Offloads::empty(), "no trains without checksums");
}

#[test]
fn a_persistent_device_forgets_what_its_former_user_set() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let former = host.create(&config("tap0"));
    tun_ioctl(&former, TUNSETVNETHDRSZ, &mut 24);
    tun_ioctl(&former, TUNSETSNDBUF, &mut 1000);
    tun_ioctl(&former, TUNSETPERSIST, &mut 1);
    drop(former);

    let tap = host.create_up(&config("tap0").exclusive(false));
    host.udp(7).send_to(b"hello", "10.0.0.2:7").unwrap();
    let (header, _) = receive(&tap.queues()[0], |_, frame| is_udp_to(frame, 7));
    assert!(header.needs_checksum(), "the header is where it belongs");
    let mut send_buffer_len = 0;
    tun_ioctl(&tap, TUNGETSNDBUF, &mut send_buffer_len);
    assert_eq!(send_buffer_len, libc::c_int::MAX);
}

#[test]
fn missing_privilege_is_named() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let error = host
        .namespace
        .enter(|| {
            keep_capabilities(CapabilitySet::empty());
            Device::create(&config("tap0")).unwrap_err()
        })
        .unwrap();
    assert!(matches!(error, CreateError::NotPermitted { .. }), "{error}");
    let remedy = "(`ip tuntap add tap0 mode tap user USER; ip link set tap0 up`)";
    assert!(error.to_string().contains(remedy), "{error}");
    assert!(error.to_string().contains("exclusive(false)"), "or it is refused: {error}");
}

/// A numbered name always means a new device, which nobody can prepare.
#[test]
fn missing_privilege_for_a_numbered_name_asks_for_a_name() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let numbered = Config::numbered("vpn%d".parse().unwrap());
    let error = host
        .namespace
        .enter(|| {
            keep_capabilities(CapabilitySet::empty());
            Device::create(&numbered).unwrap_err()
        })
        .unwrap();
    let remedy = "(`ip tuntap add vpn0 mode tap user USER; ip link set vpn0 up`)";
    assert!(error.to_string().contains(remedy), "{error}");
    assert!(error.to_string().contains("Config::new"), "{error}");
}

#[test]
fn a_missing_device_node_is_explained() {
    if !can_tap() {
        return;
    }
    let error = std::thread::spawn(|| {
        hide_device_node();
        Device::create(&config("tap0")).unwrap_err()
    })
    .join()
    .unwrap();
    assert!(matches!(error, CreateError::NoTun { .. }), "{error}");
    assert!(error.to_string().contains("mknod /dev/net/tun c 10 200"), "{error}");
    assert!(std::path::Path::new("/dev/net/tun").exists(), "it is hidden from that thread only");
}

#[test]
fn a_limit_of_open_files_is_named() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let error = host.inside(|| {
        // Which of the two opens a file depends on the architecture.
        #[cfg(target_arch = "x86_64")]
        forbid(libc::SYS_open, libc::EMFILE);
        forbid(libc::SYS_openat, libc::EMFILE);
        Device::create(&with_queues("tap0", 4)).unwrap_err()
    });
    assert!(matches!(error, CreateError::TooManyFiles { .. }), "{error}");
    assert!(error.to_string().contains("`ulimit -n`"), "{error}");
}

fn with_queues(name: &str, count: u16) -> Config {
    config(name).queues(NonZeroU16::new(count).unwrap())
}

fn tun_ioctl(tap: &Device, call: libc::c_ulong, value: &mut libc::c_int) {
    let fd = tap.queues()[0].as_raw_fd();
    let outcome = if call == TUNSETPERSIST {
        // SAFETY: the call takes a number.
        unsafe { libc::ioctl(fd, call as _, libc::c_long::from(*value)) }
    } else {
        // SAFETY: the calls read or write one int, which outlives them.
        unsafe { libc::ioctl(fd, call as _, std::ptr::from_mut(value)) }
    };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
}

/// Drops all capabilities except `kept` from the calling thread.
fn keep_capabilities(kept: CapabilitySet) {
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    rustix::thread::set_capabilities(None, sets).unwrap();
}

/// Makes the calling thread see an empty /dev/net.
fn hide_device_node() {
    // SAFETY: the flags do not contain CLONE_FILES.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.unwrap();
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).unwrap();
    rustix::mount::mount("tmpfs", "/dev/net", "tmpfs", MountFlags::empty(), None).unwrap();
}

const TUNSETPERSIST: libc::c_ulong = libc::_IOW::<libc::c_int>('T' as u32, 203);
const TUNGETSNDBUF: libc::c_ulong = libc::_IOR::<libc::c_int>('T' as u32, 211);
const TUNSETSNDBUF: libc::c_ulong = libc::_IOW::<libc::c_int>('T' as u32, 212);
const TUNSETVNETHDRSZ: libc::c_ulong = libc::_IOW::<libc::c_int>('T' as u32, 216);
