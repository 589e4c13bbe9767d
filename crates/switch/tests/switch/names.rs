//! Tests of ports whose namespace is deleted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::process::Child;

use crate::common::*;
use tapswitch_netlink::OwnedNamespace;
use tapswitch_openflow::{PortNo, PortState};

fn add(lab: &Lab, spec: &str) {
    runtime().block_on(lab.switch.handle().add_port(spec.parse().unwrap())).unwrap();
}

/// Anything kept open in it would keep it alive, and with it its veth peers.
#[test]
fn a_namespace_that_was_deleted_ends_and_its_ports_are_gone() {
    if !can_run() {
        return;
    }
    let (mut lab, mut room) = Lab::netdevs(3, &[3]);
    let name = room.name().to_owned();
    room.netlink.set_up("lo").unwrap();
    for spec in [
        format!("4=tap:t4,netns={name},queues=2"),
        format!("5=tun:t5,netns={name}"),
        format!("6=vxlan:remote=127.0.0.2,vni=1,netns={name}"),
        format!("7=gre:remote=127.0.0.2,netns={name}"),
    ] {
        add(&lab, &spec);
    }
    let mut controller = lab.switch.controller();
    drop(room);
    for port in [1, 2, 4, 5, 6, 7] {
        lab.wait_for_state(port, "gone");
    }
    let is_down = |number| {
        move |status: &tapswitch_openflow::PortStatus| {
            (status.desc.port_no, status.desc.state) == (PortNo(number), PortState::LINK_DOWN)
        }
    };
    controller.port_status(is_down(1));
    let one = lab.host_mut(1);
    until("its cables end", || one.netlink.link("eth0").is_err());
    assert_eq!(lab.switch.port(3).state, "up", "another namespace is none of this");

    // A namespace with the same name is another one.
    let again = OwnedNamespace::create(&name).unwrap();
    add(&lab, &format!("8=tap:t4,netns={name}"));
    lab.wait_for_state(8, "up");
    assert_eq!(lab.switch.port(4).state, "gone");
    runtime().block_on(lab.switch.handle().remove_port(PortNo(4))).unwrap();
    add(&lab, &format!("4=tap:t5,netns={name}"));
    lab.wait_for_state(4, "up");
    drop(again);
    lab.wait_for_state(4, "gone");
    lab.wait_for_state(8, "gone");
}

/// The namespace of a container, without a name.
#[test]
fn a_namespace_whose_process_ended_ends() {
    if !can_run() {
        return;
    }
    let mut lab = Lab::new(1);
    let host = Host::new(2);
    let mut sleeper = Sleeper(host.namespace.command("sleep").arg("1000").spawn().unwrap());
    let path = format!("/proc/{}/ns/net", sleeper.0.id());
    lab.host_mut(1).netlink.create_veth("out", "in", &host.namespace).unwrap();
    add(&lab, &format!("2=tap:eth0,netns={path}"));
    drop(host);
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(lab.switch.port(2).state, "up", "its name does not matter");
    sleeper.end();
    lab.wait_for_state(2, "gone");
    let one = lab.host_mut(1);
    until("its cable ends", || one.netlink.link("out").is_err());
}

struct Sleeper(Child);

impl Sleeper {
    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}
