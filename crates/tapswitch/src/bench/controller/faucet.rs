//! Faucet for comparison, the most common reference. Switches, ports and links are configured in a
//! file instead of discovered, whole ports are mirrored instead of flows, and a signal announces
//! changes. The end of the measurement is the same: the last rule sent to a switch.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use tapswitch_netlink::die_with_parent;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use super::lab::{Lab, MONITOR_PORTS};
use super::percentile;
use crate::bench::Failure;

/// Results at one size.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) switches: u64,
    /// From the first connection to the last rule, in seconds.
    pub(super) converged: f64,
    pub(super) rules: u64,
    pub(super) mirrors: usize,
    pub(super) mirror_p50_ms: f64,
    pub(super) mirror_p99_ms: f64,
}

/// Measures `program` with this number of switches, and of hosts behind each leaf.
pub(super) async fn measure(
    program: &Path,
    switches: u64,
    hosts: u32,
    mirrors: usize,
) -> Result<Row, Failure> {
    let directory = TempDir::new()?;
    let faucet = Faucet::start(program, directory, (switches, hosts)).await?;
    let lab = Lab::start(switches, hosts, faucet.address);
    let result = faucet.measure(&lab, mirrors).await;
    lab.stop();
    result
}

/// A running Faucet, ended on drop.
struct Faucet {
    child: Child,
    directory: TempDir,
    address: SocketAddr,
    metrics: SocketAddr,
    size: (u64, u32),
}

impl Faucet {
    /// Starts it, and waits until it accepts switches.
    async fn start(
        program: &Path,
        directory: TempDir,
        (switches, hosts): (u64, u32),
    ) -> Result<Self, Failure> {
        let (address, metrics) = (free_port()?, free_port()?);
        write_settings(directory.path(), (switches, hosts), None)?;
        let mut command = std::process::Command::new(program);
        command.arg(format!("--ryu-ofp-listen-host={}", address.ip()));
        command.arg(format!("--ryu-ofp-tcp-listen-port={}", address.port()));
        let files = [
            ("FAUCET_CONFIG", SETTINGS),
            ("FAUCET_LOG", "faucet.log"),
            ("FAUCET_EXCEPTION_LOG", "exceptions.log"),
        ];
        command.envs(files.map(|(name, file)| (name, directory.path().join(file))));
        command.env("FAUCET_EVENT_SOCK", "0").env("PATH", path_with(program));
        command.env("FAUCET_PROMETHEUS_ADDR", metrics.ip().to_string());
        command.env("FAUCET_PROMETHEUS_PORT", metrics.port().to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        die_with_parent(&mut command);
        let child = Command::from(command).kill_on_drop(true).spawn();
        let child = child.map_err(|error| format!("{}: {error}", program.display()))?;
        let mut faucet = Self { child, directory, address, metrics, size: (switches, hosts) };
        let start = Instant::now();
        while TcpStream::connect(address).await.is_err() {
            faucet.check(start)?;
            tokio::time::sleep(POLL).await;
        }
        Ok(faucet)
    }

    async fn measure(mut self, lab: &Lab, mirrors: usize) -> Result<Row, Failure> {
        while self.connected().await? < lab.switches {
            self.check(lab.start)?;
            tokio::time::sleep(POLL).await;
        }
        let converged = (lab.quiet().await - lab.start).as_secs_f64();
        let rules = lab.world.rules.load(Ordering::Relaxed);
        let mut times = Vec::new();
        for index in 0..mirrors {
            times.push(self.mirror(lab, index).await?.as_secs_f64() * 1e3);
        }
        Ok(Row {
            switches: lab.switches,
            converged,
            rules,
            mirrors,
            mirror_p50_ms: percentile(&mut times, 50),
            mirror_p99_ms: percentile(&mut times, 99),
        })
    }

    /// Mirrors another port instead of the current one: time from the signal to the last rule.
    async fn mirror(&mut self, lab: &Lab, index: usize) -> Result<Duration, Failure> {
        write_settings(self.directory.path(), self.size, Some(index))?;
        let before = lab.changes();
        let start = Instant::now();
        let pid = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        kill_process(pid.ok_or("Faucet exited")?, Signal::HUP)?;
        while lab.changes() == before {
            self.check(start)?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(lab.quiet().await - start)
    }

    /// Number of connected switches that it reports.
    async fn connected(&self) -> Result<u64, Failure> {
        let mut stream = TcpStream::connect(self.metrics).await?;
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let is_up = |line: &&str| line.starts_with("dp_status{") && line.ends_with(" 1.0");
        Ok(u64::try_from(text.lines().filter(is_up).count())?)
    }

    /// Checks that it is running, and not too slow.
    fn check(&mut self, since: Instant) -> Result<(), Failure> {
        let log = || {
            let text = std::fs::read_to_string(self.directory.path().join("faucet.log"));
            text.ok().and_then(|text| text.lines().last().map(str::to_owned)).unwrap_or_default()
        };
        if self.child.try_wait()?.is_some() {
            return Err(format!("Faucet exited; last lines of its log: {}", log()).into());
        }
        if since.elapsed() > PATIENCE {
            return Err(
                format!("Faucet did not finish in time; last lines of its log: {}", log()).into()
            );
        }
        Ok(())
    }
}

/// An unused address.
fn free_port() -> Result<SocketAddr, Failure> {
    Ok(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// Faucet starts programs from its own directory.
fn path_with(program: &Path) -> std::ffi::OsString {
    let beside = program.parent().map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> =
        beside.into_iter().chain(std::env::split_paths(&path)).collect();
    std::env::join_paths(directories).unwrap_or(path)
}

/// Writes the configuration of the [`Lab`]'s fabric, with this mirror.
fn write_settings(
    directory: &Path,
    (switches, hosts): (u64, u32),
    mirror: Option<usize>,
) -> Result<(), Failure> {
    let leaves = usize::try_from(switches - 2)?;
    let mirrored = mirror.map(|index| (index % leaves, index / leaves % hosts as usize + 1));
    let mut text = "vlans: {office: {vid: 100}}\ndps:\n".to_owned();
    for spine in [1, 2] {
        write!(text, "  s{spine}: {{dp_id: {spine}, hardware: Open vSwitch, ")?;
        writeln!(text, "stack: {{priority: {spine}}}, interfaces: {{")?;
        for leaf in 3..=switches {
            let (port, at) = (leaf - 2, u64::from(hosts + MONITOR_PORTS) + spine);
            writeln!(text, "    {port}: {{stack: {{dp: s{leaf}, port: {at}}}}},")?;
        }
        writeln!(text, "  }}}}")?;
    }
    for (index, leaf) in (3..=switches).enumerate() {
        writeln!(text, "  s{leaf}: {{dp_id: {leaf}, hardware: Open vSwitch, interfaces: {{")?;
        for port in 1..=hosts {
            writeln!(text, "    {port}: {{native_vlan: office}},")?;
        }
        let monitor = hosts + MONITOR_PORTS;
        let source = mirrored.filter(|(at, _)| *at == index).map(|(_, port)| port);
        let source = source.map(|port| format!(", mirror: {port}")).unwrap_or_default();
        writeln!(text, "    {monitor}: {{output_only: true{source}}},")?;
        for spine in [1, 2] {
            let port = u64::from(monitor) + spine;
            writeln!(text, "    {port}: {{stack: {{dp: s{spine}, port: {}}}}},", leaf - 2)?;
        }
        writeln!(text, "  }}}}")?;
    }
    Ok(std::fs::write(directory.join(SETTINGS), text)?)
}

const SETTINGS: &str = "faucet.yaml";
const POLL: Duration = Duration::from_millis(20);
/// Time limit of any step.
const PATIENCE: Duration = Duration::from_secs(300);
