//! A switch that is killed and restarted under running machines, without any action of theirs.
//!
//! If the back end of a packed ring is killed, QEMU only knows the position at which it started the
//! ring: the next back end finds the position by the ring's flags.

use std::fs;

use tapswitch_guest::Series;

use super::lab::{Lab, Pings, Sink, send_data, vhost};
use super::machine::{Machine, Nic, boot, can_boot};
use crate::support::*;

#[test]
fn machines_outlive_the_switch_whoever_listens() {
    if !can_boot() {
        return;
    }
    let mut lab = Lab::new();
    let host = Host::new(9);
    // A veth pair outlives the switch as well.
    join(&host, &lab.room, "p9");
    let sockets = NUMBERS.map(|number| lab.socket(&format!("nic{number}")));
    let sides = ["", ",client", ""];
    let ports: Vec<_> = (1..)
        .zip(sockets.iter().zip(sides))
        .map(|(number, (socket, side))| vhost(number, socket, side))
        .chain(["9=netdev:p9".to_owned()])
        .collect();
    lab.start_switch(&[], &ports);
    configure(&host);
    let [one, two, three] = &sockets;
    let nics = [Nic::new(one), Nic::new(two).qemu_listens(), Nic::new(three).options("packed=on")];
    let start = || Machine::start(Series::V7_3, 1, lab.directory.path(), &nics);
    let Some([mut machine]) = boot([start]) else { return };
    for number in NUMBERS {
        machine.configure(&format!("eth{}", number - 1), &format!("10.0.{number}.1"));
        machine.ping(&format!("10.0.{number}.2"));
    }
    let sink = Sink::start(&host.namespace);
    machine.send_forever("10.0.1.2");
    for _ in 0..2 {
        sink.wait_for(1);
        let pings = NUMBERS.map(|number| Pings::start(&lab, &host, &format!("10.0.{number}.1")));
        pings.iter().for_each(Pings::go_on);
        lab.kill_switch();
        assert!(fs::exists(&sockets[0]).unwrap(), "what was killed cleans up nothing");
        lab.start_switch(&[], &ports);
        for (number, pings) in NUMBERS.into_iter().zip(pings) {
            lab.wait_for_state(number, "up");
            pings.go_on();
            let gap = pings.finish();
            println!("gap of port {number}, {}: {gap:?}", NAMES[usize::from(number) - 1]);
        }
        sink.wait_for(1);
        NUMBERS.iter().for_each(|n| send_data(&host.namespace, &format!("10.0.{n}.1")));
    }
    assert_eq!(machine.checksum_errors(), 0);
    for number in NUMBERS {
        assert_eq!(lab.port(number)["guest"]["resets"], 0, "{}", lab.log());
    }
}

fn configure(host: &Host) {
    host.configure();
    for number in NUMBERS {
        let ip = [10, 0, number, 2].into();
        host.netlink().add_address(&host.interface, ip, 24).unwrap();
    }
}

const NUMBERS: [u8; 3] = [1, 2, 3];
const NAMES: [&str; 3] = ["QEMU connects", "QEMU listens", "packed rings, QEMU connects"];
