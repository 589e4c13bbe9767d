//! The candidates: each forwards between the first two hosts, and optionally copies to the third.

use std::time::{Duration, Instant};

use serde::Serialize;
use tapswitch_netlink::{Namespace, Netlink};
use tapswitch_switch::Gro;
use tempfile::TempDir;
use tokio::process::Child;

use crate::hosts::{self, Host, INTERFACE};
use crate::process;

use super::ovs::OpenVswitch;

type Failure = Box<dyn std::error::Error>;

/// A way to forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Candidate {
    /// Two file descriptors, read and write.
    Bare,
    /// This switch with its controller.
    Tapswitch,
    /// Open vSwitch in userspace with TSO.
    OpenVswitch,
}

impl Candidate {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare forwarder",
            Self::Tapswitch => "tapswitch",
            Self::OpenVswitch => "Open vSwitch",
        }
    }

    /// Prefix of the namespaces of this candidate.
    fn place(self, copies: bool) -> String {
        let place = match self {
            Self::Bare => "bare",
            Self::Tapswitch => "ours",
            Self::OpenVswitch => "ovs",
        };
        format!("{place}{}", if copies { "-copies" } else { "" })
    }
}

/// Set-up of the candidates.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manner {
    /// Core of the hosts' programs; `None` leaves it to the scheduler.
    pub(crate) hosts: Option<usize>,
    /// Core of the candidate, likewise.
    pub(crate) forwarder: Option<usize>,
    /// Whether this switch joins packets into trains.
    pub(crate) gro: Gro,
}

/// A running candidate between hosts.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Dropped before the hosts, in this order.
    program: Program,
    /// Sender, receiver, monitor; further ones are idle.
    hosts: Vec<Host>,
    manner: Manner,
    _directory: TempDir,
}

#[derive(Debug)]
enum Program {
    Child(Child),
    #[expect(dead_code, reason = "kept for what it stops when it is dropped")]
    OpenVswitch(Box<OpenVswitch>),
}

impl Stage {
    /// Starts `candidate` and waits until the hosts reach each other.
    pub(crate) async fn set_up(
        candidate: Candidate,
        copies: bool,
        manner: Manner,
    ) -> Result<Self, Failure> {
        let place = candidate.place(copies);
        let roles = ["sender", "receiver", "monitor"].map(|role| format!("{place}-{role}"));
        let stage = Self::start(candidate, copies, manner, &roles).await?;
        stage.sender().configure()?;
        stage.receiver().configure()?;
        stage.wait_for_answer().await?;
        Ok(stage)
    }

    /// Starts the switch with four idle ports.
    pub(crate) async fn set_up_idle() -> Result<Self, Failure> {
        let manner = Manner::default();
        let roles = ["one", "two", "three", "four"].map(str::to_owned);
        Self::start(Candidate::Tapswitch, false, manner, &roles).await
    }

    async fn start(
        candidate: Candidate,
        copies: bool,
        manner: Manner,
        roles: &[String],
    ) -> Result<Self, Failure> {
        let Manner { forwarder: core, gro, .. } = manner;
        let numbered = (1..).zip(roles);
        let hosts: Vec<Host> =
            numbered.map(|(number, role)| Host::create(number, role)).collect::<Result<_, _>>()?;
        let directory = hosts::directory()?;
        let program = match candidate {
            Candidate::Bare => start_bare(&hosts, copies, core)?,
            Candidate::Tapswitch => start_tapswitch(&hosts, copies, core, gro, &directory)?,
            Candidate::OpenVswitch => start_ovs(&hosts, copies, core, &directory).await?,
        };
        let stage = Self { program, hosts, manner, _directory: directory };
        stage.wait_for_interfaces().await?;
        Ok(stage)
    }

    pub(crate) fn sender(&self) -> &Host {
        &self.hosts[0]
    }

    pub(crate) fn receiver(&self) -> &Host {
        &self.hosts[1]
    }

    /// Core of the hosts' programs.
    pub(crate) fn host_core(&self) -> Option<usize> {
        self.manner.hosts
    }

    /// The process to measure, if we started it.
    pub(crate) fn pid(&self) -> Option<u32> {
        match &self.program {
            Program::Child(child) => child.id(),
            Program::OpenVswitch(_) => None,
        }
    }

    async fn wait_for_interfaces(&self) -> Result<(), Failure> {
        let is_up = |host: &Host| {
            let link = Netlink::open(&host.namespace).and_then(|mut n| n.link(INTERFACE));
            link.is_ok_and(|link| link.up)
        };
        let deadline = Instant::now() + START_LIMIT;
        while !self.hosts[..2].iter().all(is_up) {
            if Instant::now() > deadline {
                return Err("the interfaces were not up within ten seconds".into());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    async fn wait_for_answer(&self) -> Result<(), Failure> {
        let target = self.receiver().ipv4().to_string();
        let args = ["-c", "1", "-W", "1", &target];
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let pinged = process::run(&self.sender().namespace, "ping", &args, START_LIMIT).await;
            match pinged {
                Ok(_) => return Ok(()),
                Err(error) if Instant::now() > deadline => return Err(error.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

fn start_bare(hosts: &[Host], copies: bool, core: Option<usize>) -> Result<Program, Failure> {
    let count = if copies { 3 } else { 2 };
    let taps = hosts
        .iter()
        .take(count)
        .flat_map(|host| ["--tap".to_owned(), format!("{INTERFACE},{}", host.namespace.label())]);
    let args = ["bench".to_owned(), "bare-forwarder".to_owned()].into_iter().chain(taps);
    start_self(core, &args.collect::<Vec<_>>())
}

/// Starts the switch with its controller, as `tapswitch run` does.
fn start_tapswitch(
    hosts: &[Host],
    copies: bool,
    core: Option<usize>,
    gro: Gro,
    directory: &TempDir,
) -> Result<Program, Failure> {
    let port = |host: &Host| format!("'{},gro={gro}'", host.port_spec());
    let ports: Vec<_> = hosts.iter().map(port).collect();
    let endpoint = free_endpoint()?;
    let mut config = format!(
        "[switch]\nfail-mode = 'secure'\nport = [{}]\n\
         [controller]\nlisten = ['{endpoint}']\n",
        ports.join(", ")
    );
    if copies {
        let (sender, receiver) = (hosts[0].ipv4(), hosts[1].ipv4());
        config += &format!(
            "[[policy]]\nname = 'all'\nsrc-ip = '{sender}'\ndst-ip = '{receiver}'\n\
             direction = 'both'\nmonitor = '3'\n"
        );
    }
    let file = directory.path().join("bench.toml");
    std::fs::write(&file, config)?;
    let socket = directory.path().join("bench.sock");
    let (file, socket) = (file.display().to_string(), socket.display().to_string());
    let args = ["run", "--log", "error", "-c", &file, "--socket", &socket];
    start_self(core, &args.map(str::to_owned))
}

/// A free port on loopback.
pub(super) fn free_endpoint() -> Result<String, Failure> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    Ok(format!("tcp:{}", listener.local_addr()?))
}

async fn start_ovs(
    hosts: &[Host],
    copies: bool,
    core: Option<usize>,
    directory: &TempDir,
) -> Result<Program, Failure> {
    let namespace = hosts::namespace(&Candidate::OpenVswitch.place(copies))?;
    let ovs = OpenVswitch::start(namespace, directory, hosts, core).await?;
    if copies {
        ovs.copy().await?;
    }
    Ok(Program::OpenVswitch(Box::new(ovs)))
}

/// Starts this program with other arguments.
fn start_self(core: Option<usize>, args: &[String]) -> Result<Program, Failure> {
    let program = std::env::current_exe()?;
    let (program, args) = process::on_core(core, &program.to_string_lossy(), args);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let mut command = process::command(&Namespace::current()?, &program, &args);
    Ok(Program::Child(command.spawn()?))
}

const START_LIMIT: Duration = Duration::from_secs(10);
