//! What a controller stores, and who may access it: kill -9, a full disk, tokens, TLS, the audit
//! log.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tapswitch_netlink::Namespace;

use crate::support::{
    Authority, BINARY, CONTROLLER, Daemon, Ends, Host, Lab, Ovs, Peer, Said, can_run, directory,
    eventually, room, skip, tapswitch, until,
};

#[test]
fn policies_outlive_a_controller_that_is_killed() {
    let Some(mut lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 3) else { return };
    lab.controller.stop();
    let store = lab.directory.path().join("c.redb").display().to_string();
    let socket = lab.directory.path().join("kept.sock").display().to_string();
    let args = ["controller", "--listen", CONTROLLER, "--store", &store, "--socket", &socket];
    let start = || Daemon::tapswitch(&lab.room, lab.directory.path(), &args);
    let ask = |args: &[&str]| tapswitch(&[args, &["--socket", &socket]].concat());
    let mut controller = start();
    until("the switch is controlled", || {
        let said = ask(&["show", "switches", "--json"]);
        said.code == Some(0) && said.json()[0]["is_connected"] == true
    });
    ask(&["policy", "add", "kept", "--monitor", "0x1/3"]).well();
    ask(&["policy", "add", "gone", "--monitor", "0x1/2"]).well();
    ask(&["policy", "delete", "gone"]).well();
    let rules = lab.flows();
    controller.kill();
    assert_eq!(lab.flows(), rules, "the switch goes on");

    let _again = start();
    let policies = eventually("the policy is in force again", || {
        let said = ask(&["policy", "list", "--json"]);
        let policies = (said.code == Some(0)).then(|| said.json())?;
        (policies[0]["state"]["is"] == "active").then_some(policies)
    });
    assert_eq!(policies.as_array().unwrap().len(), 1);
    assert_eq!(policies[0]["policy"]["name"], "kept");
    assert_eq!(lab.flows(), rules, "nothing was disturbed");
    let whole = ask(&["audit", "--verify"]).well();
    assert!(whole.starts_with("intact up to record 4,"), "{whole}");
    let first: Value =
        serde_json::from_str(ask(&["audit", "--json"]).well().lines().next().unwrap()).unwrap();
    assert_eq!((&first["who"], &first["policy"]["name"]), (&"unix:root".into(), &"kept".into()));
}

#[test]
fn a_full_disk_keeps_policies_from_changing_and_nothing_else() {
    if !can_run(&["unshare", "mount", "curl"]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let disk = directory.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let (disk, socket) = (disk.display(), directory.path().join("c.sock").display().to_string());
    // A disk in a mount namespace of its own, of which nothing stays. It is full when the store is
    // to be created there, and a failed creation must not leave anything that breaks a later one.
    let start = format!(
        "{BINARY} controller --listen {CONTROLLER} --store {disk}/c.redb --socket {socket}"
    );
    let script = format!(
        "mount -t tmpfs -o size=2m tmpfs {disk} && {{ dd if=/dev/zero of={disk}/filler; \
         {start}; rm {disk}/filler && exec {start}; }}"
    );
    let mut command = room.command("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    let controller = Daemon::start(command, directory.path());
    let ports = ["1=tap:t1", "2=tap:t2"];
    let mut args = vec!["switch", "--controller", CONTROLLER, "--socket"];
    let own = directory.path().join("s.sock").display().to_string();
    args.push(&own);
    ports.iter().for_each(|port| args.extend(["--port", port]));
    let _switch = Daemon::tapswitch(&room, directory.path(), &args);
    let ask = |args: &[&str]| tapswitch(&[args, &["--socket", &socket]].concat());
    until("the switch is controlled", || {
        let said = ask(&["show", "switches", "--json"]);
        said.code == Some(0) && said.json()[0]["is_connected"] == true
    });
    ask(&["policy", "add", "before", "--monitor", "2"]).well();

    let filler = PathBuf::from(format!("/proc/{}/root{disk}/filler", controller.id()));
    fill(&filler);
    let mut count = 0;
    let refusal = eventually("the store is full", || {
        count += 1;
        let said = ask(&["policy", "add", &format!("p{count}"), "--monitor", "2"]);
        (said.code != Some(0)).then_some(said)
    });
    refusal.refused(&["c.redb", "No space left", "make room", "stay in effect"]);
    let (status, answer) = post(&room, "{\"name\":\"more\",\"monitor\":\"2\"}");
    assert_eq!((status, &answer["error"]["code"]), (503, &"store-unavailable".into()));
    let policies = ask(&["policy", "list", "--json"]).json();
    let active = policies.as_array().unwrap().iter().filter(|one| one["state"]["is"] == "active");
    assert_eq!(active.count(), count, "what was there is in force: before, and all but the last");

    fs::remove_file(&filler).unwrap();
    let added = eventually("there is room again", || {
        let said = ask(&["policy", "add", "after", "--monitor", "2", "--json"]);
        (said.code == Some(0)).then(|| said.json())
    });
    assert_eq!(added["state"]["is"], "active");
    ask(&["audit", "--verify"]).well();
}

/// Fills all free space.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for len in [4096, 1] {
        while file.write_all(&vec![0; len]).is_ok() {}
    }
}

fn post(room: &Namespace, document: &str) -> (u16, Value) {
    let url = "http://127.0.0.1:8653/api/v1/policies";
    let mut command = room.command("curl");
    let text =
        Said::by(command.args(["-s", "-w", "\n%{http_code}", "--json", document, url])).well();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), serde_json::from_str(body).unwrap())
}

#[test]
fn tokens_as_the_readme_has_them() {
    if !can_run(&["curl"]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (tokens, socket) = (path("tokens.toml"), path("c.sock"));
    let make = |name: &str, role: &str| {
        let args = ["token", "new", name, "--role", role, "--file", &tokens];
        tapswitch(&args).well().trim().to_owned()
    };
    let (ann, bob) = (make("ann", "viewer"), make("bob", "admin"));
    let args = ["--log-format", "json", "controller", "--store", "none", "--tokens", &tokens];
    let mut controller =
        Daemon::tapswitch(&room, directory.path(), &[&args[..], &["--socket", &socket]].concat());
    let curl = |token: &str, path: &str| {
        let bearer = format!("Authorization: Bearer {token}");
        let url = format!("http://127.0.0.1:8653/api/v1{path}");
        Said::by(room.command("curl").args(["-s", "--fail-with-body", "-H", &bearer, &url]))
    };
    until("REST answers", || curl(&ann, "/me").code == Some(0));
    assert_eq!(curl(&ann, "/me").json()["name"], "ann");
    assert_ne!(curl(&ann, "/audit").code, Some(0));
    let told = tapswitch(&["audit", "--socket", &socket]).well();
    assert!(told.contains("role.refused"), "{told}");
    let export = path("audit.jsonl");
    tapswitch(&["audit", "--export", &export, "--socket", &socket]).well();
    assert!(tapswitch(&["audit", "--verify", "--file", &export]).well().starts_with("intact"));
    let forged = fs::read_to_string(&export).unwrap().replace("\"ann\"", "\"eve\"");
    fs::write(&export, forged).unwrap();
    tapswitch(&["audit", "--verify", "--file", &export]).refused(&["record 1 was changed"]);

    // Revoking works without a restart.
    let text = fs::read_to_string(&tokens).unwrap();
    let kept = text.split("[[token]]").find(|entry| entry.contains("bob")).unwrap();
    fs::write(&tokens, format!("[[token]]{kept}")).unwrap();
    controller.signal(rustix::process::Signal::HUP);
    until("the token is no longer valid", || curl(&ann, "/me").code != Some(0));
    assert_eq!(curl(&bob, "/me").json()["role"], "admin");
    assert!(!controller.has_ended());
    let log = controller.log();
    let line: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!(line["level"], "INFO");
}

#[test]
fn open_vswitch_is_controlled_by_tls() {
    if !can_run(&["ping"]) || !(Ovs::is_there() || skip("Open vSwitch is not installed")) {
        return;
    }
    let (room, directory) = (room(), directory());
    let authority = Authority::new(directory.path());
    let (ours, theirs) = (authority.issue("controller"), authority.issue("switch"));
    let path = |name: &str| directory.path().join(name).display().to_string();
    let socket = path("c.sock");
    let text = |path: &Path| path.display().to_string();
    let files = [text(&ours.1), text(&ours.0), text(&authority.path)];
    let args = ["controller", "--listen", "tls:127.0.0.1:6653", "--store", "none", "--rest", "off"];
    let more = ["--tls-cert", &files[0], "--tls-key", &files[1], "--tls-ca", &files[2]];
    let args = [&args[..], &more, &["--socket", &socket]].concat();
    let _controller = Daemon::tapswitch(&room, directory.path(), &args);
    let hosts = [1, 2].map(Host::new);
    let ovs = Ovs::start(&room, directory.path(), &hosts);
    ovs.control_by_tls([&theirs.0, &theirs.1, &authority.path], "ssl:127.0.0.1:6653");
    let ask = |args: &[&str]| tapswitch(&[args, &["--socket", &socket]].concat());
    until("the switch is controlled", || {
        let said = ask(&["show", "switches", "--json"]);
        said.code == Some(0) && said.json()[0]["is_connected"] == true
    });
    hosts.iter().for_each(Host::configure);
    until("hosts reach each other", || {
        let target = hosts[1].ip().to_string();
        let mut ping = hosts[0].namespace.command("ping");
        Said::by(ping.args(["-c", "1", "-W", "1", &target])).code == Some(0)
    });
}
