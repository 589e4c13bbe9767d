//! A private Open vSwitch: its own directories, sockets and namespace, userspace datapath with TSO.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tapswitch_netlink::{Namespace, Netlink, OwnedNamespace};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::Child;

use crate::hosts::{Host, INTERFACE};
use crate::process;

type Failure = Box<dyn std::error::Error>;

/// A running Open vSwitch with one bridge, ended on drop.
#[derive(Debug)]
pub(crate) struct OpenVswitch {
    _daemons: [Child; 2],
    namespace: OwnedNamespace,
    directory: PathBuf,
}

/// True if all required programs are installed.
pub(crate) fn is_installed() -> bool {
    ["ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovsdb-tool"]
        .iter()
        .all(|program| process::is_installed(program))
}

impl OpenVswitch {
    /// Starts it with the hosts' interfaces as tap ports of a bridge that forwards as a learning
    /// switch; the switch process, not its database, is pinned to `core`.
    pub(crate) async fn start(
        namespace: OwnedNamespace,
        directory: &TempDir,
        hosts: &[Host],
        core: Option<usize>,
    ) -> Result<Self, Failure> {
        let directory = directory.path().join("ovs");
        std::fs::create_dir(&directory)?;
        let database = start_database(&namespace, &directory).await?;
        let remote = remote(&directory);
        vsctl(&namespace, &remote, &["--no-wait", "init"]).await?;
        let tso = "other_config:userspace-tso-enable=true";
        vsctl(&namespace, &remote, &["--no-wait", "set", "Open_vSwitch", ".", tso]).await?;
        let switch = start_switch(&namespace, &directory, core)?;
        let ovs = Self { _daemons: [switch, database], namespace, directory };
        let bridge = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"];
        ovs.vsctl(&bridge).await?;
        for host in hosts {
            ovs.add_port(host).await?;
        }
        Ok(ovs)
    }

    /// Copies every frame between the first two hosts to the third by groups of type ALL.
    pub(crate) async fn copy(&self) -> Result<(), Failure> {
        for (from, to) in [(1, 2), (2, 1)] {
            let group =
                format!("group_id={from},type=all,bucket=output:{to},bucket=output:{MONITOR}");
            self.ofctl(&["add-group", &self.bridge(), &group]).await?;
            let flow = format!("in_port={from},actions=group:{from}");
            self.ofctl(&["add-flow", &self.bridge(), &flow]).await?;
        }
        Ok(())
    }

    /// Adds a tap device and moves its kernel side to the host.
    async fn add_port(&self, host: &Host) -> Result<(), Failure> {
        let name = format!("tap{}", host.number);
        let number = format!("ofport_request={}", host.number);
        let add = ["add-port", BRIDGE, &name, "--", "set", "interface", &name, "type=tap", &number];
        self.vsctl(&add).await?;
        Netlink::open(&self.namespace)?.move_to_namespace(&name, &host.namespace)?;
        let mut netlink = Netlink::open(&host.namespace)?;
        netlink.rename(&name, INTERFACE)?;
        Ok(netlink.set_up(INTERFACE)?)
    }

    async fn vsctl(&self, args: &[&str]) -> Result<(), Failure> {
        vsctl(&self.namespace, &remote(&self.directory), args).await
    }

    async fn ofctl(&self, args: &[&str]) -> Result<(), Failure> {
        let args = [&["-O", "OpenFlow13"], args].concat();
        process::run(&self.namespace, "ovs-ofctl", &args, COMMAND_LIMIT).await?;
        Ok(())
    }

    fn bridge(&self) -> String {
        format!("unix:{}", self.directory.join(BRIDGE).with_extension("mgmt").display())
    }
}

pub(super) async fn start_database(
    namespace: &Namespace,
    directory: &Path,
) -> Result<Child, Failure> {
    let file = directory.join("conf.db");
    let file = file.to_string_lossy();
    let create = ["create", &*file, SCHEMA];
    process::run(namespace, "ovsdb-tool", &create, COMMAND_LIMIT).await?;
    let socket = directory.join("db.sock");
    let listen = format!("--remote=punix:{}", socket.display());
    let control = format!("--unixctl={}", directory.join("db.ctl").display());
    let child = start(namespace, directory, None, "ovsdb-server", &[&*file, &listen, &control])?;
    wait_for(&socket).await?;
    Ok(child)
}

fn start_switch(
    namespace: &Namespace,
    directory: &Path,
    core: Option<usize>,
) -> Result<Child, Failure> {
    let control = format!("--unixctl={}", directory.join("vswitchd.ctl").display());
    start(namespace, directory, core, "ovs-vswitchd", &[&remote(directory), &control])
}

/// Starts one of its programs; all its files are created in `directory`.
pub(super) fn start(
    namespace: &Namespace,
    directory: &Path,
    core: Option<usize>,
    program: &str,
    args: &[&str],
) -> Result<Child, Failure> {
    let name = Path::new(program).file_name().unwrap_or_default();
    let log = directory.join(name).with_extension("log");
    let log = format!("--log-file={}", log.display());
    let args = [args, &["-vconsole:off", &log]].concat();
    let (program, args) = process::on_core(core, program, &args);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = process::command(namespace, &program, &args);
    for variable in DIRECTORIES {
        command.env(variable, directory);
    }
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    Ok(command.spawn()?)
}

/// Address of the database whose files are in `directory`.
pub(super) fn remote(directory: &Path) -> String {
    format!("unix:{}", directory.join("db.sock").display())
}

/// Changes the database.
pub(super) async fn vsctl(
    namespace: &Namespace,
    remote: &str,
    args: &[&str],
) -> Result<(), Failure> {
    let database = format!("--db={remote}");
    let args = [&[&*database, "--timeout=10"], args].concat();
    process::run(namespace, "ovs-vsctl", &args, COMMAND_LIMIT).await?;
    Ok(())
}

async fn wait_for(socket: &Path) -> Result<(), Failure> {
    let deadline = Instant::now() + COMMAND_LIMIT;
    while UnixStream::connect(socket).await.is_err() {
        if Instant::now() > deadline {
            return Err(format!("nothing listens on {}", socket.display()).into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

const BRIDGE: &str = "bench";
/// Number of the port that copies are sent to.
const MONITOR: u8 = 3;
/// Environment variables that set the directories of its programs; the last is DPDK's.
const DIRECTORIES: [&str; 5] =
    ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"];
/// Path of the database schema in Debian's package.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const COMMAND_LIMIT: Duration = Duration::from_secs(15);
