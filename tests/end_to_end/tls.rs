//! TLS of our switch: its controller, tools that connect, and errors in certificates, reported at
//! both ends.

use std::path::{Path, PathBuf};

use tapswitch_netlink::Namespace;

use crate::support::{
    Authority, Daemon, Host, Said, can_run, directory, is_installed, room, skip, tapswitch,
    tapswitch_in, until,
};

const CONTROLLER: &str = "tls:127.0.0.1:6653";

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The options for key, certificate and authority.
fn files((key, cert): &(impl AsRef<Path>, impl AsRef<Path>), ca: &Path) -> [String; 6] {
    let files = [("--tls-key", key.as_ref()), ("--tls-cert", cert.as_ref()), ("--tls-ca", ca)];
    let [key, cert, ca] = files.map(|(option, path)| [option.to_owned(), text(path)]);
    [key, cert, ca].concat().try_into().unwrap()
}

/// A command in the background, with its own socket.
fn start(room: &Namespace, directory: &Path, name: &str, args: &[&str]) -> Daemon {
    let socket = text(&directory.join(format!("{name}.sock")));
    Daemon::tapswitch(room, directory, &[args, &["--socket", &socket]].concat())
}

fn start_controller(room: &Namespace, directory: &Path, files: &[String]) -> Daemon {
    let args = ["controller", "--listen", CONTROLLER, "--store", "none", "--rest", "off"];
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    start(room, directory, "c", &[&args[..], &files].concat())
}

fn start_switch(room: &Namespace, directory: &Path, name: &str, args: &[&str]) -> Daemon {
    let fixed = ["switch", "--fail-mode", "secure", "--controller", "ssl:127.0.0.1:6653"];
    start(room, directory, name, &[&fixed[..], args].concat())
}

fn until_said(daemon: &Daemon, words: &str) {
    until(words, || daemon.log().contains(words));
}

#[test]
fn a_switch_and_a_controller_know_each_other_and_copies_are_made() {
    if !can_run(&["ping"]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let directory = directory.path();
    let (ours, others) = (Authority::new(directory), Authority::named("others", directory));
    let controller = files(&ours.issue("controller"), &ours.path);
    let controller = start_controller(&room, directory, &controller);
    let hosts = [1, 2, 3].map(Host::new);
    let ports = hosts.each_ref().map(|host| {
        let (number, interface) = (host.number, &host.interface);
        format!("--port={number}=tap:{interface},netns={}", host.name())
    });
    // Its certificate is of another authority there, as both ends report.
    let own = files(&others.issue("switch"), &ours.path);
    let args: Vec<_> = own.iter().chain(&ports).map(String::as_str).collect();
    let switch = start_switch(&room, directory, "s", &args);
    until_said(&controller, "the peer's certificate is not signed by a CA in our CA");
    until_said(&switch, "it does not know the CA of our certificate");
    let socket = text(&directory.join("c.sock"));
    let ask = |args: &[&str]| tapswitch(&[args, &["--socket", &socket]].concat());
    assert_eq!(ask(&["show", "switches", "--json"]).json(), serde_json::json!([]));

    // Its files are read whenever it connects.
    ours.issue("switch");
    until("the switch is controlled", || {
        let switches = ask(&["show", "switches", "--json"]).json();
        switches[0]["is_connected"] == true && switches[0]["ports"].as_array().unwrap().len() >= 3
    });
    hosts.iter().for_each(Host::configure);
    hosts[0].ping(hosts[1].ip());
    ask(&["policy", "add", "pings", "--ip-proto", "icmp", "--monitor", "0x1/3"]).well();
    hosts[0].ping(hosts[1].ip());
    until("copies are delivered", || {
        let report = ask(&["policy", "show", "pings", "--json"]).json();
        let delivered = report["copied"][0]["delivered"]["packets"].as_u64();
        assert_eq!(report["adds_up"], true, "{report}");
        delivered >= Some(2) && report["matched"]["packets"].as_u64() == delivered
    });
}

#[test]
fn what_is_wrong_with_a_controllers_certificate_is_said_at_both_ends() {
    if !can_run(&[]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let directory = directory.path();
    let (ours, others) = (Authority::new(directory), Authority::named("others", directory));
    let controller = files(&ours.issue("controller"), &ours.path);
    let controller = start_controller(&room, directory, &controller);
    let own = files(&ours.issue("switch"), &ours.path);
    let own: Vec<_> = own.iter().map(String::as_str).collect();
    let with = |more: &[&'static str]| [&own[..], more].concat();

    let elsewhere = ["--port", "1=tap:a1", "--tls-name", "elsewhere.example"];
    let stranger = start_switch(&room, directory, "a", &with(&elsewhere));
    until_said(&stranger, "does not have the name that we connected to");
    until_said(&stranger, "elsewhere.example");
    let doubter = files(&ours.issue("doubter"), &others.path);
    let doubter: Vec<_> = doubter.iter().map(String::as_str).collect();
    let doubter = [&doubter[..], &["--port", "1=tap:b1"]].concat();
    let doubter = start_switch(&room, directory, "b", &doubter);
    until_said(&doubter, "is not signed by a CA in our CA file");
    until_said(&controller, "it does not know the CA of our certificate");
    let socket = text(&directory.join("c.sock"));
    let switches = || tapswitch(&["show", "switches", "--json", "--socket", &socket]).json();
    assert_eq!(switches(), serde_json::json!([]));
    for name in ["localhost", "any"] {
        let args = with(&["--port", "1=tap:c1"]);
        let args = [&args[..], &["--tls-name", name]].concat();
        let mut switch = start_switch(&room, directory, "d", &args);
        until("the switch is controlled", || {
            switches().as_array().unwrap().iter().any(|one| one["is_connected"] == true)
        });
        switch.stop();
        until("it is gone", || {
            switches().as_array().unwrap().iter().all(|one| one["is_connected"] == false)
        });
    }
    // A peer that does not use TLS is refused with that reason.
    let plain =
        ["controller", "--listen", "tcp:127.0.0.1:6654", "--store", "none", "--rest", "off"];
    let _plain = start(&room, directory, "p", &plain);
    let args = with(&["--controller", "tls:127.0.0.1:6654", "--port", "1=tap:e1"]);
    let switch = start_switch(&room, directory, "e", &args);
    until_said(&switch, "controller tls:127.0.0.1:6654: no TLS: ");
}

#[test]
fn files_are_asked_for_before_anything_is_made() {
    if !can_run(&[]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let ours = Authority::new(directory.path());
    let (key, cert) = ours.issue("switch");
    let refused = |args: &[&str], words: &[&str]| {
        let fixed = ["switch", "--controller", "tls:127.0.0.1:6653", "--port", "1=tap:never"];
        tapswitch_in(&room, &[&fixed[..], args].concat()).refused(words);
    };
    refused(&[], &["tls:127.0.0.1:6653 needs", "--tls-key", "--tls-cert", "--tls-ca"]);
    let mixed = files(&(&cert, &key), &ours.path);
    refused(&mixed.each_ref().map(String::as_str), &["switch.key", "no certificate"]);
    let none = files(&(&key, &cert), Path::new("/nowhere/ca.pem"));
    let words = ["/nowhere/ca.pem", "No such file", "PEM"];
    refused(&none.each_ref().map(String::as_str), &words);
}

#[test]
fn tools_of_open_vswitch_connect_by_tls_with_a_certificate_alone() {
    if !can_run(&["ovs-ofctl"]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let directory = directory.path();
    let (ours, others) = (Authority::new(directory), Authority::named("others", directory));
    let own = files(&ours.issue("switch"), &ours.path);
    let own: Vec<_> = own.iter().map(String::as_str).collect();
    let args = ["switch", "--listen", "tls:127.0.0.1:6654", "--port", "1=tap:t1"];
    let switch = start(&room, directory, "s", &[&args[..], &own].concat());
    until_said(&switch, "listens on tls:127.0.0.1:6654");
    let show = |(key, cert): &(PathBuf, PathBuf)| {
        let mut command = room.command("ovs-ofctl");
        command.args(["-O", "OpenFlow13", "-p", &text(key), "-c", &text(cert)]);
        Said::by(command.args(["-C", &text(&ours.path), "show", "ssl:127.0.0.1:6654"]))
    };
    let shown = show(&ours.issue("tool")).well();
    assert!(shown.contains("1(t1)"), "{shown}");
    assert_ne!(show(&others.issue("stranger")).code, Some(0));
    until_said(&switch, "the peer's certificate is not signed by a CA in our CA file");
}

#[test]
fn a_controller_of_open_vswitch_drives_the_switch_by_tls() {
    if !can_run(&["ping"]) {
        return;
    }
    if !is_installed("ovs-testcontroller") {
        skip("ovs-testcontroller is not installed; install openvswitch-testcontroller");
        return;
    }
    let (room, directory) = (room(), directory());
    let directory = directory.path();
    let ours = Authority::new(directory);
    let (key, cert) = ours.issue("controller");
    let mut command = room.command("ovs-testcontroller");
    command.args(["--private-key", &text(&key), "--certificate", &text(&cert)]);
    let unixctl = text(&directory.join("controller.ctl"));
    command.args(["--ca-cert", &text(&ours.path), "--unixctl", &unixctl, "pssl:6653:127.0.0.1"]);
    let _controller = Daemon::start(command, directory);
    let hosts = [1, 2].map(Host::new);
    let ports = hosts
        .each_ref()
        .map(|host| format!("--port={}=tap:{},netns={}", host.number, host.interface, host.name()));
    let own = files(&ours.issue("switch"), &ours.path);
    let args: Vec<_> = own.iter().chain(&ports).map(String::as_str).collect();
    let _switch = start_switch(&room, directory, "s", &args);
    let socket = text(&directory.join("s.sock"));
    until("the switch is controlled", || {
        let said = tapswitch(&["show", "switch", "--json", "--socket", &socket]);
        said.code == Some(0) && said.json()["controllers"][0]["connected"] == true
    });
    hosts.iter().for_each(Host::configure);
    hosts[0].ping(hosts[1].ip());
}
