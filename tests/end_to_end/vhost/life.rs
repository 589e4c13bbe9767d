//! Events of a machine under load while others communicate: its link goes down and up, its queues
//! change, it is reset, it is killed.

use rustix::process::{Pid, Signal, kill_process};
use tapswitch_guest::Series;

use super::lab::{Lab, Sink, vhost};
use super::machine::{Machine, Nic, boot, can_boot};
use crate::support::*;

#[test]
fn what_befalls_a_machine_under_load_concerns_its_port_alone() {
    if !can_boot() {
        return;
    }
    let mut lab = Lab::new();
    let hosts = [Host::new(7), Host::new(8), Host::new(9)];
    let socket = lab.socket("vm1");
    let taps = hosts.iter().map(|host| {
        let number = host.number;
        format!("{number}=tap:t{number},netns={}", host.name())
    });
    let ports: Vec<_> = [vhost(1, &socket, ",queues=2")].into_iter().chain(taps).collect();
    lab.start_switch(&[], &ports);
    hosts.iter().for_each(Host::configure);
    let nic = Nic::new(&socket).queues(2);
    let nics = [nic];
    let start = || Machine::start(Series::V7_3, 1, lab.directory.path(), &nics);
    let Some([mut machine]) = boot([start]) else { return };
    let [near, a, b] = &hosts;
    let sink = Sink::start(&near.namespace);
    a.ping(b.ip());
    let others = Flow::start(&Stream::new(a, b), a, b);
    put_under_load(&mut machine);
    sink.wait_for(1);

    change_link(&lab, &mut machine, &sink);
    change_queues(&lab, &mut machine, &sink);
    others.go_on(100);

    machine.reset();
    lab.wait_for_state(1, "no-link");
    machine.wait_until_ready();
    put_under_load(&mut machine);
    lab.wait_for_state(1, "up");
    sink.wait_for(1);
    others.go_on(100);

    kill(&machine);
    lab.wait_for_state(1, "no-link");
    others.go_on(100);
    drop(machine);
    let Some([mut machine]) = boot([start]) else { return };
    put_under_load(&mut machine);
    sink.wait_for(1);
    // Frames to the missing machine count nowhere else.
    others.finish_after(100);
    let guest = lab.port(1)["guest"].clone();
    assert_eq!((&guest["resets"], &guest["sessions"]), (&0.into(), &2.into()), "{guest}");
    assert_eq!(machine.checksum_errors(), 0);
    for host in [a, b] {
        assert_eq!(lab.port(host.number)["state"], "up");
    }
}

fn put_under_load(machine: &mut Machine) {
    machine.configure("eth0", "10.0.0.1");
    machine.ping("10.0.0.7");
    machine.send_forever("10.0.0.7");
}

fn change_link(lab: &Lab, machine: &mut Machine, sink: &Sink) {
    for _ in 0..3 {
        machine.run("ip link set eth0 down");
        machine.run("sleep 0.3; ip link set eth0 up");
        sink.wait_for(1);
    }
    assert_eq!(lab.port(1)["state"], "up");
}

/// From one queue pair to two and back, while it sends.
fn change_queues(lab: &Lab, machine: &mut Machine, sink: &Sink) {
    if !is_installed("ethtool") {
        skip("ethtool is not installed: queues are not changed");
        return;
    }
    let running = |count: u64| {
        until("as many queues run", || lab.port(1)["guest"]["queues"] == count);
    };
    for count in [2, 1, 2, 1] {
        machine.run(&format!("ethtool -L eth0 combined {count}"));
        running(count);
        sink.wait_for(1);
    }
}

/// Kills QEMU.
fn kill(machine: &Machine) {
    let id = i32::try_from(machine.id()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), Signal::KILL).unwrap();
}
