//! Inspection of devices that others have created.

use std::num::NonZeroU16;

use tapswitch_netlink::{Namespace, TunKind};
use tapswitch_tap::inspect::{Certainty, Handle, Inspected, Inspection, inspect};
use tapswitch_tap::{Flags, Kind, Offloads};

use crate::common::{Host, can_tap, config, unique, unprivileged};

#[test]
fn a_device_is_found_with_its_settings_and_its_holder() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let offloads = Offloads::CSUM | Offloads::TSO;
    let tap = host.create(&config("seen0").offloads(offloads));
    host.netlink.set_mtu("seen0", 1400).unwrap();
    host.netlink.add_address("seen0", "10.0.0.1".parse().unwrap(), 24).unwrap();
    let seen = find(&inspect(), &host, "seen0");
    assert_eq!((seen.tun.kind, seen.tun.net_header), (TunKind::Tap, true));
    assert_eq!(seen.flags, Some(Flags::TAP | Flags::NO_PI | Flags::VNET_HDR));
    assert_eq!(seen.kind(), Kind::Tap);
    assert_eq!(seen.offloads(), Some(offloads));
    assert_eq!((seen.link.mtu, seen.queue_count()), (1400, 1));
    assert_eq!(seen.addresses[0].to_string(), "10.0.0.1/24");
    assert_eq!(seen.gro_flush_timeout_ns, Some(0));
    let [holder] = &seen.holders[..] else { panic!("{:?}", seen.holders) };
    assert_eq!((holder.pid, holder.certainty), (std::process::id(), Certainty::Exact));
    let queue = holder.queue.unwrap();
    assert_eq!((queue.header_len, queue.send_buffer_len), (12, 0x7fff_ffff));
    assert!(!queue.big_endian && holder.started > 0 && !holder.command.is_empty());
    drop(tap);
    host.wait_until_gone("seen0");
    assert!(!inspect().devices.iter().any(|device| device.namespace == host.namespace.label()));
}

#[test]
fn a_name_in_two_namespaces_is_told_apart() {
    if !can_tap() {
        return;
    }
    let (one, two) = (Host::new(), Host::new());
    let (_mine, _other) = (one.create(&config("twin0")), two.create(&config("twin0")));
    let found = inspect();
    let fds = [&one, &two].map(|host| {
        let seen = find(&found, host, "twin0");
        assert_eq!(seen.holders.len(), 1, "{:?}", seen.holders);
        assert_eq!(seen.holders[0].certainty, Certainty::Exact);
        seen.holders[0].fd
    });
    assert_ne!(fds[0], fds[1]);
}

#[test]
fn queues_and_their_copies_are_counted_apart() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let tap = host.create(&config("many0").queues(NonZeroU16::new(3).unwrap()));
    let _copy = tap.queues()[0].try_clone().unwrap();
    let seen = find(&inspect(), &host, "many0");
    assert_eq!((seen.tun.queues, seen.holders.len()), (Some(3), 4));
    let mut files: Vec<_> = seen.holders.iter().map(|holder| holder.file.unwrap()).collect();
    files.sort_unstable();
    files.dedup();
    assert_eq!(files.len(), 3);
    assert_eq!(seen.owners().len(), 1);
}

#[test]
fn who_holds_a_detached_queue_is_seen() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let mut tap = host.create(&config("loose0").queues(NonZeroU16::new(2).unwrap()));
    (0..2).for_each(|queue| tap.detach_queue(queue).unwrap());
    let seen = find(&inspect(), &host, "loose0");
    assert_eq!((seen.queue_count(), seen.is_held(), seen.is_free()), (0, true, false));
    assert_eq!(seen.holders.len(), 2);
    assert!(seen.holders.iter().all(|holder| holder.pid == std::process::id()));
}

#[test]
fn a_device_is_found_in_a_namespace_without_a_name() {
    if !can_tap() {
        return;
    }
    let name = unique("x").replace("x-", "x");
    let name = name.get(..15).unwrap_or(&name).to_owned();
    let tap = {
        let host = Host::new();
        host.create(&config(&name))
    };
    // Neither a name nor a process refers to it, only the file.
    let found = inspect();
    let seen = found.devices.iter().find(|device| device.link.name == name).unwrap();
    assert_eq!(seen.holders[0].pid, std::process::id());
    assert!(Namespace::open(&seen.namespace).is_err(), "{}", seen.namespace);
    drop(tap);
}

#[test]
fn offloads_of_a_borrowed_queue_are_those_of_the_device() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let tap = host.create(&config("lent0"));
    let holder = find(&inspect(), &host, "lent0").holders.remove(0);
    let queue = Handle::borrow(holder.pid, holder.fd).unwrap();
    assert_eq!(queue.name().unwrap(), "lent0");
    assert!(queue.namespace("there").unwrap().is_same(&host.namespace).unwrap());
    assert_eq!(queue.set_offloads(Offloads::empty()).unwrap(), Offloads::empty());
    assert_eq!(find(&inspect(), &host, "lent0").offloads(), Some(Offloads::empty()));
    drop(queue);
    assert!(tap.current_name().is_ok(), "the holder has it still");
    assert!(Handle::borrow(std::process::id(), 4096).is_err());
    assert!(Handle::borrow(0, 0).is_err());
    assert!(Handle::borrow(u32::MAX, 0).is_err());
}

#[test]
fn who_may_see_less_is_told_what() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let device = host.create(&config("dim0"));
    let found = host.namespace.enter(|| unprivileged(inspect)).unwrap();
    let seen = found.devices.iter().find(|device| device.link.name == "dim0").unwrap();
    assert_eq!((seen.flags, seen.gro_flush_timeout_ns), (None, None), "sysfs is another's");
    assert!(seen.tun.net_header && seen.has("tx-checksum-ip-generic"));
    assert!(seen.hides_holders && !seen.is_free());
    let unseen = found.unseen.join("\n");
    assert!(unseen.contains("not permitted") && !unseen.contains("namespaces of"), "{unseen}");
    let places = found.unseen_namespaces.join("\n");
    assert!(places.contains("the namespaces of ") && places.contains("not permitted"), "{places}");
    // The test has dropped its privileges, and still has the user ID of root.
    assert!(places.contains("this root user may not inspect all"), "{places}");
    drop(device);
}

#[test]
fn processes_and_devices_that_go_meanwhile_are_no_trouble() {
    if !can_tap() {
        return;
    }
    let host = Host::new();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                drop(host.create(&config("blink0")));
                std::process::Command::new("true").status().unwrap();
            }
        });
        (0..10).for_each(|_| drop(inspect()));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

fn find(found: &Inspection, host: &Host, name: &str) -> Inspected {
    let is_it = |device: &&Inspected| {
        device.namespace == host.namespace.label() && device.link.name == name
    };
    let mut device = found.devices.iter().find(is_it).unwrap().clone();
    // Another test starts programs, which hold this process's files between fork and exec.
    device.holders.retain(|holder| holder.pid == std::process::id());
    device
}
