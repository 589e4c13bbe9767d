//! A namespace is deleted, and another one gets its name: a restarted container. An interface is
//! moved to another namespace.

use tapswitch_netlink::{Netlink, OwnedNamespace};

use crate::support::*;

#[test]
fn a_namespace_that_has_the_name_of_one_that_was_is_another_one() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 2) else { return };
    lab.introduce(&[1, 2]);
    let name = unique();
    let before = lab.open_count();
    for _ in 0..3 {
        come_and_go(&lab, &name);
    }
    until("no more files are open than before", || lab.open_count() <= before);
    lab.assert_books_closed();
}

/// A port in a namespace of this name, whose link is monitored; both are gone afterwards.
fn come_and_go(lab: &Lab, name: &str) {
    let namespace = OwnedNamespace::create(name).unwrap();
    lab.switch_says(&["port", "add", &format!("3=tap:again,netns={name}")]);
    let mut netlink = Netlink::open(&namespace).unwrap();
    let wait_for = |state: &str| until(state, || lab.port(3)["state"] == state);
    wait_for("up");
    netlink.set_down("again").unwrap();
    wait_for("no-link");
    netlink.set_up("again").unwrap();
    wait_for("up");
    lab.switch_says(&["port", "remove", "3"]);
}

/// The port does not follow it. The log has the commands that attach it where it is.
#[test]
fn an_interface_that_was_moved_is_attached_there_by_the_commands_in_the_log() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 2) else { return };
    lab.introduce(&[1, 2]);
    let (from, to) = (OwnedNamespace::create(&unique()), OwnedNamespace::create(&unique()));
    let (from, to) = (from.unwrap(), to.unwrap());
    let mut netlink = Netlink::open(&from).unwrap();
    netlink.create_veth("cable", "end", &from).unwrap();
    for kind in ["tap:wanders", "netdev:cable"] {
        lab.switch_says(&["port", "add", &format!("3={kind},netns={}", from.label())]);
        netlink.move_to_namespace(kind.split_once(':').unwrap().1, &to).unwrap();
        until("the port is gone", || lab.port(3)["state"] == "gone");
        assert_eq!(follow_the_log(&lab, kind), format!("3={kind},netns={}", to.label()));
        assert_eq!(lab.port(3)["netns"], to.label());
        assert_ne!(lab.port(3)["state"], "gone");
        lab.switch_says(&["port", "remove", "3"]);
    }
    lab.assert_books_closed();
}

/// Runs the commands that the log has for this kind of port; returns the port that they add.
fn follow_the_log(lab: &Lab, kind: &str) -> String {
    let said = || {
        let log = lab.switch_log();
        let is_it = |line: &&str| line.contains(kind) && line.contains("was moved to another");
        log.lines().find(is_it).map(str::to_owned)
    };
    until("the log says where it is", || said().is_some());
    let line = said().unwrap();
    let commands = line.split('`').filter(|part| part.starts_with("tapswitch "));
    let commands: Vec<Vec<_>> = commands.map(|it| it.split(' ').skip(1).collect()).collect();
    commands.iter().for_each(|command| drop(lab.switch_says(command)));
    commands.last().and_then(|command| command.last()).unwrap().to_string()
}
