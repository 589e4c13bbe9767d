//! Open vSwitch with DPDK: Debian's second binary of the switch, by its full path, so that the
//! system's default is not changed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tapswitch_netlink::Namespace;
use tokio::process::Child;

use crate::bench::ovs;
use crate::process;

use super::dpdk;
use super::loader::Load;
use super::setup::Setup;

type Failure = Box<dyn std::error::Error>;

/// A running Open vSwitch with one bridge, ended on drop.
#[derive(Debug)]
pub(super) struct OpenVswitch {
    switch: Child,
    _database: Child,
    namespace: Namespace,
    directory: PathBuf,
}

impl OpenVswitch {
    pub(super) async fn start(setup: &Setup<'_>) -> Result<Self, Failure> {
        let directory = setup.sockets.directory().join("ovs");
        std::fs::create_dir(&directory)?;
        let namespace = setup.namespace;
        let database = ovs::start_database(namespace, &directory).await?;
        let remote = ovs::remote(&directory);
        ovs::vsctl(namespace, &remote, &["--no-wait", "init"]).await?;
        let options = options(setup);
        let set = ["--no-wait", "set", "Open_vSwitch", "."];
        let set: Vec<&str> = set.into_iter().chain(options.iter().map(String::as_str)).collect();
        ovs::vsctl(namespace, &remote, &set).await?;
        let control = format!("--unixctl={}", control(&directory));
        let switch = ovs::start(namespace, &directory, None, PROGRAM, &[&remote, &control])?;
        let ovs = Self { switch, _database: database, namespace: namespace.clone(), directory };
        ovs.add_ports(setup).await?;
        Ok(ovs)
    }

    async fn add_ports(&self, setup: &Setup<'_>) -> Result<(), Failure> {
        let bridge = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"];
        let secure = ["fail_mode=secure"];
        self.vsctl(&[&bridge[..], &secure].concat()).await?;
        let mut cores = setup.cores.iter().cycle();
        let mut next = || cores.next().copied().unwrap_or(setup.rest);
        for guest in &setup.guests {
            let path = setup.sockets.path(*guest);
            let path = format!("options:vhost-server-path={}", path.display());
            self.add_port(*guest, next(), "type=dpdkvhostuserclient", &path).await?;
        }
        if let Some((port, name)) = setup.interface {
            let device = format!("options:dpdk-devargs=net_af_packet{port},iface={name}");
            self.add_port(port, next(), "type=dpdk", &device).await?;
        }
        Ok(())
    }

    /// Adds a port whose queue is polled on `core`. By default, queues are assigned in the order of
    /// a hash table, and one thread may get all that receive frames.
    async fn add_port(
        &self,
        number: u8,
        core: usize,
        kind: &str,
        option: &str,
    ) -> Result<(), Failure> {
        let (name, number) = (format!("port{number}"), format!("ofport_request={number}"));
        let affinity = format!("other_config:pmd-rxq-affinity=\"0:{core}\"");
        let add = ["add-port", BRIDGE, &name, "--", "set", "interface", &name];
        self.vsctl(&[&add[..], &[kind, option, &number, &affinity]].concat()).await
    }

    /// Number of frames that each of its threads has received from ports.
    pub(super) async fn shares(&self) -> Result<Vec<u64>, Failure> {
        let control = control(&self.directory);
        let args = ["-t", &control, "dpif-netdev/pmd-stats-show"];
        let said = process::run(&self.namespace, "ovs-appctl", &args, SETTLE_LIMIT).await?;
        Ok(received_by_threads(&said))
    }

    /// Copies frames received on port 1 to port 3, in addition to all rules.
    pub(super) async fn mirror(&self, on: bool) -> Result<(), Failure> {
        let clear = ["clear", "bridge", BRIDGE, "mirrors"];
        let [from, to] = ["--id=@from", "--id=@to"];
        let set = ["set", "bridge", BRIDGE, "mirrors=@mirror", "--", from, "get", "port", "port1"];
        let rest = ["--", to, "get", "port", "port3", "--", "--id=@mirror", "create", "mirror"];
        let which = ["name=copies", "select_src_port=@from", "output_port=@to"];
        match on {
            true => self.vsctl(&[&set[..], &rest, &which].concat()).await,
            false => self.vsctl(&clear).await,
        }
    }

    /// Flushes its caches, after its threads have processed all changes.
    pub(super) async fn settle(&self) -> Result<(), Failure> {
        let control = control(&self.directory);
        for command in ["revalidator/wait", "revalidator/purge"] {
            let args = ["-t", &control, command];
            process::run(&self.namespace, "ovs-appctl", &args, SETTLE_LIMIT).await?;
        }
        Ok(())
    }

    async fn vsctl(&self, args: &[&str]) -> Result<(), Failure> {
        ovs::vsctl(&self.namespace, &ovs::remote(&self.directory), args).await
    }

    /// Its OpenFlow address.
    pub(super) fn target(&self) -> String {
        format!("unix:{}", self.directory.join(BRIDGE).with_extension("mgmt").display())
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.switch.id()
    }
}

/// Its version output, line by line.
pub(super) fn versions() -> Vec<String> {
    let output = std::process::Command::new(PROGRAM).arg("--version").output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}

/// Packets received by each polling thread, from `dpif-netdev/pmd-stats-show`. The main thread,
/// which polls no guest, is skipped.
fn received_by_threads(text: &str) -> Vec<u64> {
    let threads = text.split("pmd thread ").skip(1);
    let threads = threads.map(|thread| thread.split("main thread").next().unwrap_or_default());
    let count = |thread: &str| {
        let mut lines = thread.lines();
        lines.find_map(|line| line.trim().strip_prefix("packets received: ")?.parse().ok())
    };
    threads.map(|thread| count(thread).unwrap_or(0)).collect()
}

/// The control socket of the switch.
fn control(directory: &Path) -> String {
    directory.join("vswitchd.ctl").display().to_string()
}

/// Database settings to make before the switch starts.
fn options(setup: &Setup<'_>) -> Vec<String> {
    let mask = |cores: &[usize]| {
        let mask = cores.iter().fold(0_u64, |mask, core| mask | 1 << core);
        format!("{mask:#x}")
    };
    // Without --legacy-mem it would use memory without a file, which needs huge pages.
    let extra = dpdk::environment("ovs", MEGABYTES).join(" ");
    let trains = setup.load == Load::Trains;
    vec![
        format!("other_config:userspace-tso-enable={trains}"),
        "other_config:dpdk-init=true".to_owned(),
        format!("other_config:pmd-cpu-mask={}", mask(&setup.cores)),
        format!("other_config:dpdk-lcore-mask={}", mask(&[setup.rest])),
        format!("other_config:dpdk-extra=\"{extra} --legacy-mem\""),
    ]
}

/// Path in Debian's openvswitch-switch-dpdk.
pub(super) const PROGRAM: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const BRIDGE: &str = "bench";
const MEGABYTES: usize = 1024;
const SETTLE_LIMIT: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_polling_thread_received_is_told() {
        let text = "pmd thread numa_id 0 core_id 0:\n  packets received: 12\n  idle cycles: 0\n\
                    main thread:\n  packets received: 7\n  idle cycles: 0\n\
                    pmd thread numa_id 0 core_id 1:\n  packets received: 0\n";
        assert_eq!(received_by_threads(text), [12, 0]);
        assert!(received_by_threads("").is_empty());
    }
}
