//! Open vSwitch with a directory of its own, in a namespace, stopped on drop.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tapswitch_netlink::{Namespace, die_with_parent};
use tempfile::TempDir;

use crate::common::{eventually, skip, until};

pub(crate) struct Ovs {
    /// The database server and the switch.
    children: Vec<Child>,
    /// Its control socket, once it is in use.
    control: Option<UnixStream>,
    room: Namespace,
    directory: TempDir,
}

impl Ovs {
    /// True if everything is installed; otherwise prints that the test is skipped.
    pub(crate) fn is_there() -> bool {
        let answers = |program| Command::new(program).arg("--version").output().is_ok();
        let has_all = PROGRAMS.into_iter().all(answers) && Path::new(SCHEMA).exists();
        has_all || skip("Open vSwitch is not there; install openvswitch-switch")
    }

    /// A bridge in user space that follows only its rules, with these interfaces as ports from 1
    /// on.
    pub(crate) fn start(room: &Namespace, interfaces: &[String]) -> Self {
        // Socket paths are limited to 108 bytes.
        let directory = tempfile::Builder::new().prefix("tapswitch-ovs-").tempdir().unwrap();
        let (children, control) = (Vec::new(), None);
        let mut ovs = Self { children, control, room: room.clone(), directory };
        let database = ovs.path("conf.db").display().to_string();
        ovs.run("ovsdb-tool", &["create", &database, SCHEMA]);
        let remote = format!("--remote=p{}", ovs.socket());
        ovs.spawn("ovsdb-server", &[&remote, &database]);
        until("the database listens", || UnixStream::connect(ovs.path("db.sock")).is_ok());
        ovs.vsctl("--no-wait init");
        // It parses at most two tags.
        ovs.vsctl("--no-wait set Open_vSwitch . other_config:vlan-limit=2");
        let socket = ovs.socket();
        ovs.spawn("ovs-vswitchd", &[&socket]);
        ovs.vsctl(
            "add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=secure \
             protocols=OpenFlow13",
        );
        for (name, port) in interfaces.iter().zip(1..) {
            let set = format!("-- set interface {name} ofport_request={port}");
            ovs.vsctl(&format!("add-port br0 {name} {set}"));
        }
        ovs.vsctl(&format!("set-controller br0 ptcp:{PORT}:127.0.0.1"));
        ovs
    }

    /// A connection to the bridge.
    pub(crate) fn connect(&self) -> TcpStream {
        let connect = || TcpStream::connect(("127.0.0.1", PORT)).ok();
        eventually("the bridge listens", || self.room.enter(connect).unwrap())
    }

    /// Adds the cache's counts to the rules, and empties the cache. The command is sent directly to
    /// the control socket (JSON-RPC): there are thousands, and `ovs-appctl` would take most of the
    /// time.
    pub(crate) fn settle(&mut self) {
        let path = self.path("ovs-vswitchd.ctl");
        let control =
            self.control.get_or_insert_with(|| UnixStream::connect(path).expect("it has started"));
        let request = br#"{"method":"revalidator/purge","params":[],"id":0}"#;
        control.write_all(request).unwrap();
        let mut answer = Vec::new();
        // The reply is an object without nested objects.
        while !answer.ends_with(b"}") {
            let mut byte = [0];
            control.read_exact(&mut byte).unwrap();
            answer.extend(byte);
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.contains(r#""error":null"#), "{answer}");
    }

    fn vsctl(&self, arguments: &str) {
        let database = format!("--db={}", self.socket());
        let arguments = arguments.split(' ').filter(|word| !word.is_empty());
        let all: Vec<_> =
            [database.as_str(), "--timeout=60"].into_iter().chain(arguments).collect();
        self.run("ovs-vsctl", &all);
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.command(program, arguments).output().unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
    }

    fn spawn(&mut self, program: &str, arguments: &[&str]) {
        let mut command = self.command(program, arguments);
        command.arg(format!("--unixctl={}", self.path(&format!("{program}.ctl")).display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.children.push(die_with_parent(&mut command).spawn().unwrap());
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = self.room.command(program);
        command.args(arguments);
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, self.directory.path());
        }
        command
    }

    fn socket(&self) -> String {
        format!("unix:{}", self.path("db.sock").display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

const PROGRAMS: [&str; 4] = ["ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-vswitchd"];
/// Location of the database's schema in Debian's package.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// The port on which the bridge accepts connections, in its own namespace.
const PORT: u16 = 6640;
