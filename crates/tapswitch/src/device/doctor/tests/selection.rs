//! Which ports a name and a namespace select.

use tapswitch_netlink::Namespace;

use crate::device::args::{DeviceDoctorArgs, PlaceArgs};
use crate::device::doctor::switches::{SwitchPort, findings};

use super::{healthy_here, of_br0, port};

/// Containers often have devices of the same name.
#[test]
fn a_name_selects_the_port_that_is_the_device_and_none_of_the_same_name_elsewhere() {
    let device = healthy_here();
    let found = |name: Option<&str>, netns: Option<&str>, port: &SwitchPort| {
        let (name, netns) = (name.map(str::to_owned), netns.map(str::to_owned));
        let place = PlaceArgs { netns };
        let args = DeviceDoctorArgs { name, place, socket: None, json: false };
        findings(&args, std::slice::from_ref(port), std::slice::from_ref(&device)).len()
    };
    let ours = "/proc/self/ns/net";
    let places = [None, Some(ours), Some("there-is-no-such")];
    let selections =
        [(None, None), (Some("tap0"), None), (None, Some(ours)), (Some("tap0"), Some(ours))];
    for (kind, expected) in [
        // A device in the namespace of its switch is known by the process that holds it.
        ("tap", [[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]]),
        ("netdev", [[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]]),
    ] {
        for (place, expected) in places.into_iter().zip(expected) {
            let mut port = of_br0(port(1500, 12, 1));
            (port.port.kind, port.port.netns) = (kind.to_owned(), place.map(str::to_owned));
            let counts = selections.map(|(name, netns)| found(name, netns, &port));
            assert_eq!(counts, expected, "{kind} in {place:?}");
        }
    }
}

/// A switch may run in a namespace of its own, which `None` then means.
#[test]
fn a_namespace_selects_the_ports_of_a_switch_that_runs_in_it() {
    let here = Namespace::current().unwrap().identity().unwrap();
    let found = |netns: Option<&str>, home| {
        let place = PlaceArgs { netns: netns.map(str::to_owned) };
        let args = DeviceDoctorArgs { name: None, place, socket: None, json: false };
        let mut port = SwitchPort { home, ..of_br0(port(1500, 12, 1)) };
        port.port.kind = "netdev".to_owned();
        let found = findings(&args, &[port], &[]);
        found.first().map(|finding| finding.namespace.clone())
    };
    let (ours, elsewhere) = ("/proc/self/ns/net", Some((0, 0)));
    assert_eq!(found(Some(ours), Some(here)).as_deref(), Some("(current)"));
    assert_eq!(found(Some(ours), elsewhere), None);
    assert_eq!(found(None, elsewhere).as_deref(), Some("(of switch br0)"), "all are asked for");
}
