//! Open vSwitch with private directories, sockets and namespace. Its datapath is the userspace one,
//! or the kernel's if the environment requests that.

use std::env;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tapswitch_netlink::Namespace;

use super::{CONTROLLER, Daemon, Host, Said, is_installed, join, skip, unique, until};

/// A running Open vSwitch, stopped on drop.
pub(crate) struct Ovs {
    switch: Option<Daemon>,
    _database: Daemon,
    build: Build,
    room: Namespace,
    directory: PathBuf,
}

/// Which of Debian's two binaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    Plain,
    /// Its ports are DPDK's, which take only whole packets with complete checksums.
    Dpdk,
}

impl Build {
    /// The daemon.
    const fn program(self) -> &'static str {
        match self {
            Self::Plain => "ovs-vswitchd",
            Self::Dpdk => "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk",
        }
    }

    /// Configuration of a switch that parses this many tags.
    fn options(self, tags: u8) -> Vec<String> {
        let known = match self {
            Self::Plain => datapath_options(),
            // Without --legacy-mem it would request memory that is in no file, which needs huge
            // pages. A polling thread sleeps while nothing arrives, for the sake of other tests.
            Self::Dpdk => vec![
                "other_config:dpdk-init=true".to_owned(),
                format!(
                    "other_config:dpdk-extra=\"--no-huge --no-pci --legacy-mem -m 1024 \
                     --file-prefix={}\"",
                    unique()
                ),
                "other_config:pmd-maxsleep=500".to_owned(),
            ],
        };
        known.into_iter().chain([format!("other_config:vlan-limit={tags}")]).collect()
    }

    /// The datapath type of its bridges.
    fn datapath(self) -> String {
        let in_userspace = || "netdev".to_owned();
        match self {
            Self::Plain => env::var(DATAPATH).unwrap_or_else(|_| in_userspace()),
            Self::Dpdk => in_userspace(),
        }
    }

    /// Settings of an interface that is to be its port.
    fn settings(self, interface: &str) -> Vec<String> {
        match self {
            Self::Plain => Vec::new(),
            // DPDK's driver for packet sockets turns all outermost tags into 802.1Q tags.
            Self::Dpdk => {
                let device = format!("net_pcap_{interface}");
                let ends = format!("rx_iface_in={interface},tx_iface={interface}");
                let device = format!("options:dpdk-devargs={device},{ends}");
                vec!["type=dpdk".to_owned(), device]
            }
        }
    }
}

impl Ovs {
    /// Programs that it needs.
    pub(crate) const PROGRAMS: [&str; 6] =
        ["ovsdb-tool", "ovsdb-server", "ovs-vsctl", "ovs-vswitchd", "ovs-ofctl", "ovs-appctl"];

    /// True if all of them are installed.
    pub(crate) fn is_there() -> bool {
        Self::PROGRAMS.iter().all(|program| is_installed(program)) && Path::new(SCHEMA).exists()
    }

    /// The same for one of the builds; otherwise reports the test as skipped.
    pub(crate) fn can_run(build: Build) -> bool {
        if !Self::is_there() {
            return skip("Open vSwitch is not installed; install openvswitch-switch");
        }
        if build == Build::Dpdk && !(Path::new(build.program()).exists() && has_pcap_driver()) {
            let packages = "openvswitch-switch-dpdk and librte-net-pcap23";
            return skip(&format!("Open vSwitch with DPDK is not installed; install {packages}"));
        }
        true
    }

    /// A bridge that forwards only by the rules of its controller, with a port for each host.
    pub(crate) fn start(room: &Namespace, directory: &Path, hosts: &[Host]) -> Self {
        let options = datapath_options();
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let mut ovs = Self::with_options(room, directory, Build::Plain, &options);
        ovs.start_switch();
        ovs.add_bridge(&["fail-mode=secure"]);
        hosts.iter().for_each(|host| ovs.add_port(host));
        ovs.vsctl(&["set-controller", BRIDGE, CONTROLLER]);
        ovs
    }

    /// A switch that parses this many tags, without a bridge.
    pub(crate) fn start_empty(room: &Namespace, directory: &Path, build: Build, tags: u8) -> Self {
        let options = build.options(tags);
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let mut ovs = Self::with_options(room, directory, build, &options);
        ovs.start_switch();
        ovs
    }

    /// Adds one of several bridges, with these interfaces as its ports from 1 on.
    pub(crate) fn add_switch(
        &self,
        datapath_id: u64,
        interfaces: &[String],
        controllers: &[String],
    ) {
        let bridge = bridge(datapath_id);
        let id = format!("other-config:datapath-id={datapath_id:016x}");
        let datapath = format!("datapath_type={}", self.build.datapath());
        let settings = [&datapath, "protocols=OpenFlow13", "fail-mode=secure", &id];
        self.vsctl(&[&["add-br", &bridge, "--", "set", "bridge", &bridge][..], &settings].concat());
        for (interface, number) in interfaces.iter().zip(1..) {
            let number = format!("ofport_request={number}");
            let set = ["add-port", &bridge, interface, "--", "set", "interface", interface];
            let settings = self.build.settings(interface);
            let settings = settings.iter().map(String::as_str).chain([number.as_str()]);
            self.vsctl(&set.into_iter().chain(settings).collect::<Vec<_>>());
        }
        self.connect_to(datapath_id, controllers);
    }

    /// Sets the controllers of a bridge.
    pub(crate) fn connect_to(&self, datapath_id: u64, controllers: &[String]) {
        let bridge = bridge(datapath_id);
        let set = ["set-controller", &bridge].into_iter();
        self.vsctl(&set.chain(controllers.iter().map(String::as_str)).collect::<Vec<_>>());
    }

    /// A learning bridge that parses this many tags, with these ports: existing interfaces, each
    /// with its settings.
    pub(crate) fn start_learning(
        room: &Namespace,
        directory: &Path,
        tags: u8,
        ports: &[(&str, &[&str])],
    ) -> Self {
        let limit = format!("other_config:vlan-limit={tags}");
        let mut ovs = Self::with_options(room, directory, Build::Plain, &[&limit]);
        ovs.start_switch();
        ovs.add_bridge(&["fail-mode=standalone"]);
        for (name, settings) in ports {
            let add = ["add-port", BRIDGE, name, "--", "set", "port", name];
            ovs.vsctl(&[&add[..], settings].concat());
        }
        ovs
    }

    /// Starts the database only.
    fn with_options(room: &Namespace, directory: &Path, build: Build, options: &[&str]) -> Self {
        let directory = directory.join("ovs");
        fs::create_dir(&directory).unwrap();
        let database = directory.join("conf.db").display().to_string();
        run(room.command("ovsdb-tool").args(["create", &database, SCHEMA]));
        let remote = format!("--remote=p{}", socket(&directory));
        let server = start(room, &directory, "ovsdb-server", &[&database, &remote]);
        let room = room.clone();
        let ovs = Self { switch: None, _database: server, build, room, directory };
        until("the database listens", || UnixStream::connect(ovs.path("db.sock")).is_ok());
        ovs.vsctl(&["--no-wait", "init"]);
        for option in options {
            ovs.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", option]);
        }
        ovs
    }

    /// Starts the daemon; the database holds its bridge.
    pub(crate) fn start_switch(&mut self) {
        if self.build.datapath() == KERNEL {
            until("processors are counted", || uptime() >= COUNTS_PROCESSORS_AFTER);
        }
        let socket = socket(&self.directory);
        let program = self.build.program();
        self.switch = Some(start(&self.room, &self.directory, program, &[&socket]));
    }

    /// Stops the daemon.
    pub(crate) fn stop_switch(&mut self) {
        self.switch.take().unwrap().stop();
    }

    /// Its rules, one per line, without counters.
    pub(crate) fn flows(&self) -> Vec<String> {
        self.ofctl(&["--no-stats", "dump-flows"])
    }

    /// Its groups, one per line.
    pub(crate) fn groups(&self) -> Vec<String> {
        self.ofctl(&["dump-groups"])
    }

    /// Waits until what its cache has forwarded is counted: it counts periodically, for the rules
    /// of that time.
    pub(crate) fn settle(&self) {
        self.appctl("revalidator/purge");
    }

    /// Checks that the requested datapath has the ports, and that it forwarded frames from its own
    /// cache.
    pub(crate) fn assert_carried(&self) {
        let said = self.appctl("dpctl/show");
        let datapath = self.build.datapath();
        assert!(said.starts_with(&format!("{datapath}@ovs-{datapath}:\n")), "{said}");
        assert_eq!(said.matches("lookups: ").count(), 1, "there is no other one: {said}");
        let hits = said.split_once("lookups: hit:").unwrap().1.split(' ').next().unwrap();
        assert!(hits.parse::<u64>().unwrap() > 0, "{said}");
        assert!(said.lines().any(|line| line.contains(": p")), "it has ports of ours: {said}");
        println!("{said}");
    }

    /// Limits the number of rules in a table of the only bridge; more are refused.
    pub(crate) fn limit_rules(&self, table: u8, count: u16) {
        let (table, limit) = (format!("flow_tables:{table}=@table"), format!("flow_limit={count}"));
        let create =
            ["--", "--id=@table", "create", "Flow_Table", &limit, "overflow_policy=refuse"];
        self.vsctl(&[&["set", "bridge", BRIDGE, &table][..], &create].concat());
    }

    /// Connects it to its controller by TLS, with these files: key, certificate, authority.
    pub(crate) fn control_by_tls(&self, [key, cert, ca]: [&Path; 3], controller: &str) {
        let text = |path: &Path| path.display().to_string();
        self.vsctl(&["set-ssl", &text(key), &text(cert), &text(ca)]);
        self.vsctl(&["set-controller", BRIDGE, controller]);
    }

    fn add_bridge(&self, settings: &[&str]) {
        let datapath = format!("datapath_type={}", self.build.datapath());
        let bridge = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, &datapath];
        let more = ["protocols=OpenFlow13", DATAPATH_ID];
        self.vsctl(&[&bridge[..], &more, settings].concat());
        until("the bridge is there", || self.path(&format!("{BRIDGE}.mgmt")).exists());
    }

    fn add_port(&self, host: &Host) {
        let name = format!("p{}", host.number);
        join(host, &self.room, &name);
        let number = format!("ofport_request={}", host.number);
        self.vsctl(&["add-port", BRIDGE, &name, "--", "set", "interface", &name, &number]);
    }

    /// Runs ovs-appctl; returns its output.
    fn appctl(&self, what: &str) -> String {
        let name = Path::new(self.build.program()).file_name().unwrap().to_str().unwrap();
        let control = self.path(&format!("{name}.ctl"));
        run(Command::new("ovs-appctl").arg("-t").arg(control).arg(what))
    }

    fn vsctl(&self, args: &[&str]) {
        let database = format!("--db={}", socket(&self.directory));
        run(self.room.command("ovs-vsctl").args([&database, "--timeout=30"]).args(args));
    }

    /// Where a bridge accepts OpenFlow connections.
    pub(crate) fn management(&self, bridge: &str) -> String {
        format!("unix:{}", self.path(&format!("{bridge}.mgmt")).display())
    }

    /// The output's lines, sorted, without the heading.
    fn ofctl(&self, args: &[&str]) -> Vec<String> {
        let bridge = self.management(BRIDGE);
        let mut command = Command::new("ovs-ofctl");
        let text = run(command.args(["-O", "OpenFlow13"]).args(args).arg(bridge));
        let lines = text.lines().map(|line| line.trim().to_owned());
        let mut lines: Vec<_> = lines.filter(|line| !line.contains("OFPST_")).collect();
        lines.sort();
        lines
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// The name of one of several bridges.
pub(crate) fn bridge(datapath_id: u64) -> String {
    format!("br{datapath_id}")
}

/// Options that the userspace datapath needs to take trains from veths and to complete their
/// checksums.
fn datapath_options() -> Vec<String> {
    if Build::Plain.datapath() == KERNEL { Vec::new() } else { vec![TSO.to_owned()] }
}

/// Uptime of the machine.
fn uptime() -> Duration {
    let said = fs::read_to_string("/proc/uptime").unwrap();
    Duration::from_secs_f64(said.split(' ').next().unwrap().parse().unwrap())
}

/// Path of the database's socket.
fn socket(directory: &Path) -> String {
    format!("unix:{}", directory.join("db.sock").display())
}

fn start(room: &Namespace, directory: &Path, program: &str, args: &[&str]) -> Daemon {
    let mut command = room.command(program);
    let name = Path::new(program).file_name().unwrap();
    let control = directory.join(name).with_extension("ctl");
    command.args(args).arg(format!("--unixctl={}", control.display()));
    for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR", "RUNTIME_DIRECTORY"]
    {
        command.env(variable, directory);
    }
    Daemon::start(command, directory)
}

/// True if DPDK's plug-in for libpcap is installed.
fn has_pcap_driver() -> bool {
    let libraries = Path::new("/usr/lib");
    let inside = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let plugins = inside(libraries).flat_map(|entry| inside(&entry.path().join("dpdk")));
    let mut drivers = plugins.flat_map(|entry| inside(&entry.path()));
    drivers.any(|entry| entry.file_name().to_string_lossy().starts_with("librte_net_pcap.so"))
}

fn run(command: &mut Command) -> String {
    Said::by(command).well()
}

/// Environment variable with the datapath type, and the type of the kernel's.
pub(crate) const DATAPATH: &str = "TAPSWITCH_TEST_OVS_DATAPATH";
pub(crate) const KERNEL: &str = "system";
/// Open vSwitch renews its count of processors when that is older than ten seconds, and starts with
/// zero, counted when the machine booted (`count_cpu_cores` of its `lib/ovs-thread.c`, 3.1). Before
/// that, no thread of it handles upcalls.
const COUNTS_PROCESSORS_AFTER: Duration = Duration::from_secs(11);
const BRIDGE: &str = "br0";
const DATAPATH_ID: &str = "other-config:datapath-id=0000000000000001";
const TSO: &str = "other_config:userspace-tso-enable=true";
/// Where Debian's package installs the database schema.
pub(crate) const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
