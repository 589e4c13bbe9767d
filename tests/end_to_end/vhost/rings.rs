//! One machine of each kernel with an interface of each kind: split and packed rings, mergeable
//! buffers or not, with offloads and without. All are connected to one host.

use std::net::{IpAddr, Ipv4Addr};

use tapswitch_guest::Series;

use super::lab::{Lab, Sink, send_data, vhost};
use super::machine::{Machine, Nic, boot, can_boot, mac};
use crate::support::*;

#[test]
fn linux_6_1_serves_rings_of_each_kind() {
    try_all(Series::V6_1);
}

#[test]
fn linux_7_3_serves_rings_of_each_kind() {
    try_all(Series::V7_3);
}

/// An interface, and its expected behaviour.
struct Kind {
    device: &'static str,
    port: &'static str,
    rings: &'static str,
    /// True if trains pass, in both directions.
    trains: bool,
}

const KINDS: [Kind; 6] = [
    Kind { device: "", port: "", rings: "split", trains: true },
    Kind { device: "packed=on", port: "", rings: "packed", trains: true },
    Kind { device: "mrg_rxbuf=off", port: "", rings: "split", trains: true },
    Kind { device: "packed=on,mrg_rxbuf=off", port: "", rings: "packed", trains: true },
    Kind { device: PLAIN, port: "", rings: "split", trains: false },
    Kind { device: "packed=on", port: ",offload=off", rings: "packed", trains: false },
];

fn try_all(series: Series) {
    if !can_boot() {
        return;
    }
    let mut lab = Lab::new();
    let host = Host::new(9);
    let numbers = || (1..).zip(&KINDS);
    let socket = |number: u8| lab.socket(&format!("nic{number}"));
    let ports = numbers().map(|(number, kind)| vhost(number, &socket(number), kind.port));
    let tap = format!("9=tap:t9,netns={}", host.name());
    let ports: Vec<_> = ports.chain([tap]).collect();
    let nics: Vec<_> =
        numbers().map(|(number, kind)| Nic::new(&socket(number)).options(kind.device)).collect();
    lab.start_switch(&[], &ports);
    configure(&host);
    let start = || Machine::start(series, 1, lab.directory.path(), &nics);
    let Some([mut machine]) = boot([start]) else { return };
    let sink = Sink::start(&host.namespace);
    for (number, kind) in numbers() {
        let interface = format!("eth{}", number - 1);
        assert_eq!(
            machine.run(&format!("cat /sys/class/net/{interface}/address")).trim(),
            mac(1, usize::from(number) - 1)
        );
        machine.configure(&interface, &ip(number, 1).to_string());
        try_one(&lab, &mut machine, number, kind, &host);
    }
    assert_eq!(sink.whole(), u32::try_from(KINDS.len()).unwrap());
    assert_eq!((machine.checksum_errors(), checksum_errors(&host.namespace)), (0, 0));
}

/// Each interface has a subnet of its own.
fn ip(number: u8, host: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, number, host).into()
}

fn configure(host: &Host) {
    host.configure();
    for (number, _) in (1..).zip(&KINDS) {
        host.netlink().add_address(&host.interface, ip(number, 2), 24).unwrap();
    }
}

/// Data in both directions, as trains or packets.
fn try_one(lab: &Lab, machine: &mut Machine, number: u8, kind: &Kind, host: &Host) {
    lab.wait_for_state(number, "up");
    let (here, there) = (ip(number, 1).to_string(), ip(number, 2).to_string());
    machine.ping(&there);
    let before = lab.port(number);
    assert_eq!(before["guest"]["rings"], kind.rings, "{before}");
    let interface = format!("eth{}", number - 1);
    let before = ["rx", "tx"].map(|direction| machine.seen(&interface, direction));
    machine.send_data(&there);
    send_data(&host.namespace, &here);
    let after = ["rx", "tx"].map(|direction| machine.seen(&interface, direction));
    let port = lab.port(number);
    for (direction, (after, before)) in ["rx", "tx"].into_iter().zip(after.into_iter().zip(before))
    {
        if kind.trains {
            // Their length depends on the load of the machine.
            let [packets, frames] = ["packets", "frames"].map(|what| &port[direction][what]);
            assert!(packets.as_u64() > frames.as_u64(), "no trains {direction}: {port}");
        } else {
            let mean = after.mean_len_since(before);
            assert!(mean <= 1514, "{interface}: frames of {mean} bytes: {after:?} {port}");
        }
    }
    let after = lab.port(number);
    assert_eq!(after["guest"]["resets"], 0, "{after}");
}

/// A device that offloads nothing from its driver.
const PLAIN: &str = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,\
                     guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off";
