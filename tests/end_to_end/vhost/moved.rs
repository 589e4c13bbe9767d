//! QEMU's live migration of a running machine between two QEMUs, from one port of the switch to
//! another, as it would be to another host.

use tapswitch_guest::Series;

use super::lab::{Lab, Pings, Sink, send_data, vhost};
use super::machine::{Arriving, Machine, Nic, boot, can_boot};
use crate::support::*;

#[test]
fn a_machine_with_split_rings_is_moved_under_load() {
    move_one("");
}

#[test]
fn a_machine_with_packed_rings_is_moved_under_load() {
    move_one("packed=on");
}

fn move_one(options: &str) {
    if !can_boot() {
        return;
    }
    let mut lab = Lab::new();
    let host = Host::new(9);
    let [from, to] = ["from", "to"].map(|name| lab.socket(name));
    let tap = format!("9=tap:t9,netns={}", host.name());
    lab.start_switch(&[], &[vhost(1, &from, ""), vhost(2, &to, ""), tap]);
    host.configure();
    let directory = lab.directory.path();
    let nic = |socket| [Nic::new(socket).options(options)];
    let start = || Machine::start(Series::V7_3, 1, directory, &nic(&from));
    let Some([mut machine]) = boot([start]) else { return };
    machine.configure("eth0", "10.0.0.1");
    machine.ping("10.0.0.9");
    let sink = Sink::start(&host.namespace);
    machine.send_forever("10.0.0.9");
    sink.wait_for(1);

    // The host pings all the time, so the switch writes to the machine's memory while it is copied.
    let pings = Pings::start(&lab, &host, "10.0.0.1");
    pings.go_on();
    let arriving = Arriving::start(Series::V7_3, 1, directory, &nic(&to)).unwrap();
    machine.move_to(&arriving);
    let mut moved = arriving.arrived();
    lab.wait_for_state(1, "no-link");
    lab.wait_for_state(2, "up");
    drop(machine);
    pings.go_on();
    println!("gap: {:?}", pings.finish());
    sink.wait_for(2);
    send_data(&host.namespace, "10.0.0.1");
    assert_eq!(moved.checksum_errors(), 0);
    for number in [1, 2] {
        assert_eq!(lab.port(number)["guest"]["resets"], 0, "{}", lab.log());
    }
    assert!(lab.log().contains("the guest is being migrated"), "{}", lab.log());
}
