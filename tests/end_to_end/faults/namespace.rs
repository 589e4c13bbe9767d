//! A namespace is deleted, and another one gets its name: a restarted container.

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
