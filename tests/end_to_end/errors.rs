//! Errors are reported in one plain line that names the object and the remedy.

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tapswitch_netlink::Namespace;

use crate::support::*;

#[test]
fn ports_that_cannot_be_are_refused() {
    if !can_run(&[]) {
        return;
    }
    let (room, host) = (room(), Host::new(1));
    join(&host, &room, "taken0");
    let refused = |ports: &[&str], words: &[&str]| {
        start_switch(&room, ports).refused(words);
        let links = tapswitch_netlink::Netlink::open(&room).unwrap().links().unwrap();
        let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
        assert_eq!(names, ["lo", "taken0"], "what was made before is gone");
    };
    refused(&["1=tap:taken0"], &["taken0", "taken", "another name"]);
    refused(&["1=tap:new0", "2=netdev:nosuch0"], &["nosuch0", "ip link"]);
    refused(&["1=tap:new0,netns=nosuch"], &["nosuch", "not found", "ip netns list"]);
    refused(&["1=tap:new0", "1=tap:new1"], &["1", "new0", "its own"]);
    refused(&["1=tap:new0", "2=tap:new0"], &["new0"]);
    refused(&["1=netdev:lo"], &["lo", "loopback", "veth pair"]);
}

#[test]
fn results_that_could_not_be_written_are_not_measured() {
    let file = "/nosuch/results";
    for bench in ["offload", "echo", "vlan", "vhost", "controller"] {
        tapswitch(&["bench", bench, "--json", file]).refused(&[file]);
    }
    for bench in ["echo", "vhost"] {
        tapswitch(&["bench", bench, "--svg", file]).refused(&[file]);
    }
}

#[test]
fn settings_that_nothing_would_use_are_refused() {
    let args = ["controller", "--rest", "off", "--tokens", "tokens.toml"];
    tapswitch(&args).refused(&["--tokens: ", "REST is off", "leave this out"]);
}

#[test]
fn command_lines_that_make_no_sense_are_refused() {
    let cases: [(&[&str], &[&str]); 12] = [
        (&["switch", "--controller", "tcp:127.0.0.1:"], &["--controller", "tcp:ADDRESS:PORT"]),
        (&["switch", "--echo-interval", "86401"], &["--echo-interval", "or 0"]),
        (&["switch", "--controller", "udp:127.0.0.1:1"], &["udp:127.0.0.1:1", "tcp:"]),
        (&["switch", "--listen", "tcp:here:6654"], &["tcp:here:6654", "are not resolved"]),
        (&["controller", "--listen", "6653"], &["--listen", "tcp:"]),
        (&["switch", "--port", "0=tap:a"], &["0=tap:a", "--port"]),
        (&["switch", "--port", "1=tap:a,queues=none"], &["queues", "none"]),
        (&["switch", "--cores", "0,4096"], &["--cores", "4096", "expected 0"]),
        (
            &["bench", "udp-flood", "--to", "[::1]:9", "--seconds", "18446744073709551615"],
            &["--seconds", "1..=3600"],
        ),
        (&["switch", "--fail-mode", "open"], &["open", "standalone", "secure"]),
        (&["switch", "--datapath-id", "0xz"], &["0xz", "hexadecimal"]),
        (&["policy", "add", "x", "--monitor", "3", "--src-ip", "10.0.0.256"], &["--src-ip"]),
    ];
    for (args, words) in cases {
        let said = tapswitch(args);
        assert_eq!(said.code, Some(2), "{args:?}: {}", said.err);
        let first = said.err.lines().next().unwrap();
        assert!(first.starts_with("error: "), "{args:?}: {first}");
        for word in words {
            assert!(said.err.contains(word), "{args:?}: '{word}' is not in: {}", said.err);
        }
    }
}

#[test]
fn who_may_not_is_told_what_is_missing() {
    if !can_run(&["setpriv"]) {
        return;
    }
    let (room, directory) = (room(), directory());
    // In a place where every user may read and run it.
    let binary = copy_of_binary(directory.path());
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let run_as = |who: &[&str], args: &[&str]| {
        let mut command = room.command("setpriv");
        Said::by(command.args(who).arg("--").arg(&binary).args(["--log", "off"]).args(args))
    };
    let without_capability = ["--bounding-set=-net_admin", "--inh-caps=-net_admin"];
    let port = ["switch", "--port", "1=tap:new0"];
    run_as(&without_capability, &port).refused(&["new0", "CAP_NET_ADMIN", "root"]);
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];
    let said = run_as(&nobody, &port).refused(&["new0"]);
    // If the device itself cannot be opened, that is reported first.
    assert!(said.contains("CAP_NET_ADMIN") || said.contains("must be readable"), "{said}");
    let run = |args: &[&str]| run_as(&nobody, args);
    run(&["switch", "--port", "1=netdev:lo"]).refused(&["lo", "root"]);
    run(&["controller"]).refused(&["management socket", "--socket"]);
    run(&["capture", "-i", "lo", "-w", "/dev/null"]).refused(&["lo", "root"]);
    if is_installed("iperf3") && is_installed("tshark") {
        run(&["demo"]).refused(&["namespace", "root"]);
    }
}

/// As two guests of QEMU have if none is given.
#[test]
fn an_address_that_two_hosts_have_is_named() {
    if !can_run(&["ip"]) {
        return;
    }
    let (room, directory, hosts) = (room(), directory(), [1, 2, 3].map(Host::new));
    let port = |host: &Host| format!("{0}=tap:t{0},netns={1}", host.number, host.name());
    let ports = hosts.each_ref().map(port);
    let socket = directory.path().join("s.sock").display().to_string();
    let args = ["switch", "--socket", &socket].into_iter();
    let args = args.chain(ports.iter().flat_map(|port| ["--port", port]));
    let switch = Daemon::tapswitch(&room, directory.path(), &args.collect::<Vec<_>>());
    for host in &hosts {
        until("the device is there", || host.netlink().link(&host.interface).is_ok());
        let mac = format!("52:54:00:12:34:5{}", if host.number == 3 { 7 } else { 6 });
        let mut set = host.namespace.command("ip");
        Said::by(set.args(["link", "set", &host.interface, "address", &mac])).well();
        host.configure();
    }
    until("it is named", || {
        hosts.iter().for_each(|host| host.namespace.enter(call_all).unwrap());
        let log = switch.log();
        let moves = "52:54:00:12:34:56 moved more than 5 times within 10 s";
        let last =
            |from, to| log.contains(&format!("{moves}, last from port {from} to port {to}: "));
        last("1 (t1)", "2 (t2)") || last("2 (t2)", "1 (t1)")
    });
    assert!(!switch.log().contains("52:54:00:12:34:57"), "{}", switch.log());
}

#[test]
fn sockets_and_addresses_in_use_are_named() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 2) else { return };
    let path = |name: &str| lab.directory.path().join(name).display().to_string();
    let (theirs, other_room) = (path("controller.sock"), room());
    let start = |room: &Namespace, socket: &str| {
        let args = [
            "--log",
            "off",
            "controller",
            "--listen",
            CONTROLLER,
            "--store",
            "none",
            "--socket",
            socket,
        ];
        tapswitch_in(room, &args)
    };
    start(&other_room, &theirs).refused(&[&theirs, "in use", "--socket"]);
    start(&lab.room, &path("mine.sock")).refused(&["127.0.0.1:6653", "in use"]);
    assert!(!Path::new(&path("mine.sock")).exists());
    assert_eq!(lab.ask_controller(&["policy", "list"]).code, Some(0), "nobody was disturbed");
}

#[test]
fn policies_that_cannot_be_are_refused() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 3) else { return };
    lab.introduce(&[1, 2]);
    let add = |name: &str, fields: &[&str]| {
        lab.ask_controller(&[&["policy", "add", name], fields].concat())
    };
    for monitor in ["9", "0x1/9", "nosuch", "0x7/3", "02:00:00:00:00:99", "10.0.0.99"] {
        add("lost", &["--monitor", monitor]).refused(&[&format!("monitor {monitor}")]);
    }
    add("odd", &["--monitor", "3", "--src-ip", "10.0.0.1", "--dst-ip", "fd00::1"])
        .refused(&["src-ip 10.0.0.1"]);
    add("odd", &["--monitor", "3", "--ip-proto", "icmp", "--dst-port", "80"])
        .refused(&["dst-port 80", "no ports"]);
    assert_eq!(add("web", &["--monitor", "3", "--dst-port", "80"]).code, Some(0));
    add("web", &["--monitor", "3"]).refused(&["web", "another name"]);
    for command in ["delete", "show"] {
        lab.ask_controller(&["policy", command, "wbe"]).refused(&["wbe", "web"]);
    }
    let policies = lab.ask_controller(&["policy", "list"]).json();
    assert_eq!(policies.as_array().unwrap().len(), 1, "what was refused left nothing: {policies}");
}

#[test]
fn who_is_not_there_cannot_be_asked() {
    let nowhere = "/nonexistent/tapswitch.sock";
    for command in [&["show", "ports"][..], &["policy", "list"]] {
        let said = tapswitch(&[command, &["--socket", nowhere]].concat());
        said.refused(&[nowhere, "is tapswitch running"]);
    }
    if !can_run(&["unshare", "mount"]) {
        return;
    }
    // A mount namespace without any running process of ours.
    let script = format!("mount -t tmpfs none /run && exec '{BINARY}' show ports");
    let mut command = Command::new("unshare");
    Said::by(command.args(["--mount", "sh", "-c", &script])).refused(&[
        "no running tapswitch found",
        "tapswitch run",
        "--socket",
    ]);
}

/// As with `| head -1`, which has read enough.
#[test]
fn who_is_not_read_ends_quietly() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 2) else { return };
    let path = |name: &str| lab.directory.path().join(name).display().to_string();
    let (switch, controller) = (path("switch.sock"), path("controller.sock"));
    lab.introduce(&[1, 2]);
    let topics: [&[&str]; 7] = [
        &["show", "ports"],
        &["show", "ports", "--json"],
        &["show", "switch"],
        &["show", "flows"],
        &["show", "drops"],
        &["show", "metrics"],
        &["--help"],
    ];
    let of_controller: [&[&str]; 3] =
        [&["show", "hosts"], &["policy", "list"], &["policy", "list", "--json"]];
    let of_switch = topics.map(|args| (args, &switch));
    let cases = of_switch.into_iter().chain(of_controller.map(|args| (args, &controller)));
    for (args, socket) in cases {
        let mut command = Command::new(BINARY);
        command.args(args).env("TAPSWITCH_SOCKET", socket);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.stdout(writer).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{args:?}");
    }
    // Commands that run for ever, or write mainly to a file. There is a record to be written.
    let ask = |args: &[&str]| tapswitch(&[args, &["--socket", &controller]].concat());
    ask(&["policy", "add", "seen", "--monitor", "0x1/2"]).well();
    for args in [["audit", "--follow", "--json"].as_slice(), &["audit", "--export", "-"]] {
        let mut command = Command::new("timeout");
        command.args(["30", BINARY]).args(args).env("TAPSWITCH_SOCKET", &controller);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command.stdout(writer).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{args:?}");
    }
    // And a reader of one line, as users have it.
    let script = format!("'{BINARY}' show ports --socket '{switch}' | head -n 1");
    let said = Said::by(Command::new("sh").args(["-c", &script]));
    assert!(
        said.out.trim_start().starts_with("PORT") && said.err.is_empty(),
        "{}{}",
        said.out,
        said.err
    );
}

/// Output that nobody reads is no reason to panic; output that cannot be written although somebody
/// wants it is an error.
#[test]
fn what_cannot_be_said_is_no_panic_and_no_success() {
    if !can_run(&[]) {
        return;
    }
    let failing: [&[&str]; 3] = [
        &["show", "ports", "--socket", "/nonexistent/socket"],
        &["run", "-c", "/nonexistent/file"],
        &["policy", "list", "--socket", "/nonexistent/socket"],
    ];
    for args in failing {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = Command::new(BINARY).args(args).stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(1), "{args:?}");
    }
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Command::new(BINARY).args(["device", "list", "--json"]).stdout(full).output();
    let output = output.unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("cannot write to standard output: No space left"), "{err}");
}

#[test]
fn the_wrong_process_says_so() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 2) else { return };
    lab.ask_switch(&["policy", "list"]).refused(&["no controller", "--socket"]);
    lab.ask_controller(&["show", "ports"]).refused(&["no switch", "--socket"]);
}

/// Sends a broadcast.
fn call_all() {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.set_broadcast(true).unwrap();
    socket.send_to(b"here", "10.0.0.255:9").unwrap();
}

fn start_switch(room: &Namespace, ports: &[&str]) -> Said {
    let directory = directory();
    let socket = directory.path().join("switch.sock").display().to_string();
    let ports = ports.iter().flat_map(|port| ["--port", port]);
    let args = ["--log", "off", "switch", "--socket", &socket].into_iter().chain(ports);
    let said = tapswitch_in(room, &args.collect::<Vec<_>>());
    assert!(!Path::new(&socket).exists());
    said
}
