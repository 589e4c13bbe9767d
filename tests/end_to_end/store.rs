//! A store in etcd with authentication: by certificates, and by users and passwords.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tapswitch_netlink::Namespace;

use crate::support::{
    Authority, CONTROLLER, Daemon, Said, can_run, directory, room, tapswitch, tapswitch_in, until,
};

const STORE: &str = "etcds://127.0.0.1:2379/lab";

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// One member of etcd that accepts only clients with a certificate.
struct Etcd<'a> {
    room: &'a Namespace,
    directory: &'a Path,
    authority: &'a Authority,
    /// Key and certificate of the server.
    own: (PathBuf, PathBuf),
    /// Key and certificate of the client.
    client: (PathBuf, PathBuf),
}

impl Etcd<'_> {
    fn start(&self) -> Daemon {
        let mut command = self.room.command("etcd");
        let (client, peer) = ("https://127.0.0.1:2379", "http://127.0.0.1:2480");
        command.args(["--name", "e0", "--data-dir", &text(&self.directory.join("etcd"))]);
        command.args(["--listen-client-urls", client, "--advertise-client-urls", client]);
        command.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
        command.args(["--initial-cluster", "e0=http://127.0.0.1:2480", "--client-cert-auth"]);
        command.args(["--trusted-ca-file", &text(&self.authority.path)]);
        command.args(["--key-file", &text(&self.own.0), "--cert-file", &text(&self.own.1)]);
        Daemon::start(command, self.directory)
    }

    fn ctl(&self, args: &[&str]) -> Said {
        let mut command = self.room.command("etcdctl");
        command.env("ETCDCTL_API", "3").args(["--endpoints", "https://127.0.0.1:2379"]);
        command.args(["--cacert", &text(&self.authority.path)]);
        command.args(["--key", &text(&self.client.0), "--cert", &text(&self.client.1)]);
        Said::by(command.args(args))
    }

    /// Users: root, one with write access below `/lab/`, and one without any.
    fn enable_users(&self) {
        let commands = [
            "user add root:secret",
            "user grant-role root root",
            "role add controllers",
            "role grant-permission controllers readwrite --prefix=true /lab/",
            "user add ann:open:sesame",
            "user grant-role ann controllers",
            "user add bob:bob",
            "auth enable",
        ];
        for command in commands {
            self.ctl(&command.split(' ').collect::<Vec<_>>()).well();
        }
    }
}

/// A file that only its owner may read.
fn secret(path: &Path, contents: &str) -> String {
    fs::write(path, contents).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    text(path)
}

/// Checks the error of a controller that does not start.
fn refused(room: &Namespace, store: &str, files: &[&str], words: &[&str]) {
    let args = ["--log", "off", "controller", "--rest", "off", "--listen", "tcp:127.0.0.1:0"];
    let said = tapswitch_in(room, &[&args[..], &["--store", store], files].concat());
    said.refused(&[&[store], words].concat());
}

#[test]
fn etcd_is_reached_by_tls_and_as_a_user() {
    if !can_run(&["etcd", "etcdctl"]) {
        return;
    }
    let (room, directory) = (room(), directory());
    let directory = directory.path();
    let (ours, others) = (Authority::new(directory), Authority::named("others", directory));
    // With users, etcd's gateway does not accept certificates with a CommonName.
    let (own, client) = (ours.issue("etcd"), ours.issue_for(None, "controller"));
    let etcd = Etcd { room: &room, directory, authority: &ours, own, client };
    let mut member = etcd.start();
    until("etcd answers", || etcd.ctl(&["endpoint", "health"]).code == Some(0));

    let (ca, wrong_ca) = (text(&ours.path), text(&others.path));
    let (key, cert) = (text(&etcd.client.0), text(&etcd.client.1));
    let login = secret(&directory.join("login"), "ann:open:sesame\n");
    let tls = ["--store-ca", &ca, "--store-cert", &cert, "--store-key", &key];
    let with = |login: &'_ str| -> Vec<String> {
        tls.iter().chain(&["--store-login", login]).map(|word| (*word).to_owned()).collect()
    };
    what_is_no_way_to_etcd_is_refused(&room, &tls, &wrong_ca);

    // Users are created while the controller runs.
    let socket = text(&directory.join("c.sock"));
    let files = with(&login);
    let files: Vec<_> = files.iter().map(String::as_str).collect();
    let args = ["controller", "--rest", "off", "--store", STORE, "--socket", &socket];
    let controller = Daemon::tapswitch(&room, directory, &[&args[..], &files].concat());
    let leads = || {
        let said = tapswitch(&["show", "controller", "--json", "--socket", &socket]);
        said.code == Some(0) && said.json()["role"] == "leader"
    };
    let ask = |args: &[&str]| tapswitch(&[args, &["--socket", &socket]].concat()).code == Some(0);
    let writes = || {
        // It exists already if only its deletion failed before.
        let _ = ask(&["policy", "add", "seen", "--monitor", "0x1/2"]);
        ask(&["policy", "delete", "seen"]) && ask(&["audit", "--verify"])
    };
    let _switch = start_switch(&room, directory);
    until("the controller leads", leads);
    until("it writes", writes);
    assert!(controller.log().contains("authentication is not enabled"));
    etcd.enable_users();
    until("the controller leads as a user", || leads() && writes());

    refused(&room, STORE, &tls, &["permission denied", "--store-login"]);
    let (key, cert) = ours.issue("named");
    let named = ["--store-ca", &ca, "--store-cert", &text(&cert), "--store-key", &text(&key)];
    refused(&room, STORE, &named, &["must have no CommonName"]);
    let cases = [
        ("ann:close:sesame", "check the file of --store-login"),
        ("bob:bob", "grant-permission ROLE readwrite"),
        ("ann", "USER:PASSWORD"),
    ];
    for (line, words) in cases {
        let login = secret(&directory.join("wrong"), line);
        let files = with(&login);
        refused(&room, STORE, &files.iter().map(String::as_str).collect::<Vec<_>>(), &[words]);
    }
    fs::set_permissions(&login, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&room, STORE, &files, &[&login, "chmod 600"]);
    fs::set_permissions(&login, fs::Permissions::from_mode(0o600)).unwrap();

    // A restart makes etcd forget its tokens.
    member.kill();
    let _member = etcd.start();
    until("the controller leads again", || leads() && writes());
    assert!(!controller.log().contains("sesame"), "a password is nothing for a log");
}

/// A switch with a port for copies.
fn start_switch(room: &Namespace, directory: &Path) -> Daemon {
    let socket = text(&directory.join("s.sock"));
    let args = ["switch", "--controller", CONTROLLER, "--port", "1=tap:t1", "--port", "2=tap:t2"];
    Daemon::tapswitch(room, directory, &[&args[..], &["--socket", &socket]].concat())
}

/// Each error says what is missing or wrong.
fn what_is_no_way_to_etcd_is_refused(room: &Namespace, tls: &[&str], wrong_ca: &str) {
    refused(room, STORE, &[], &["--store-ca"]);
    refused(room, "etcd://127.0.0.1:2379/lab", tls, &["use etcds://"]);
    refused(
        room,
        "etcd://127.0.0.1:2379/lab",
        &[],
        &["if it requires TLS, use etcds://", "use etcds://"],
    );
    let words = ["is not signed by a CA in our CA file"];
    refused(room, STORE, &["--store-ca", wrong_ca], &words);
    refused(room, STORE, &tls[..2], &["the peer refused"]);
    refused(room, STORE, &["--store-ca", "/none.pem"], &["/none.pem", "--store-ca"]);
}
