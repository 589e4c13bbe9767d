//! A running switch, and hosts around it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use tapswitch_switch::report::{PortReport, SwitchReport, TapReport, WorkerReport};
use tapswitch_switch::{
    Config, DatapathId, Endpoint, FailMode, Handle, StartError, Stopped, Switch,
};
use tokio::sync::oneshot;

use super::host::introduce;
use super::{Controller, Host, until};

/// A switch on a thread of its own, until this is dropped.
pub(crate) struct Running {
    handle: Handle,
    listening: Vec<SocketAddr>,
    shutdown: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(config: Config) -> Self {
        Self::try_start(config).unwrap_or_else(|error| panic!("{error}"))
    }

    pub(crate) fn try_start(config: Config) -> Result<Self, StartError> {
        let (shutdown, stop) = oneshot::channel::<()>();
        let (started, starts) = mpsc::channel();
        let thread = thread::Builder::new().name("switch-server".to_owned());
        let thread = thread.spawn(move || {
            runtime().block_on(async {
                match Switch::start(config).await {
                    Ok(switch) => {
                        started.send(Ok((switch.handle(), switch.local_endpoints()))).unwrap();
                        switch.run(async { drop(stop.await) }).await.unwrap();
                    }
                    Err(error) => started.send(Err(error)).unwrap(),
                }
            });
        });
        let thread = thread.unwrap();
        match starts.recv().unwrap() {
            Ok((handle, endpoints)) => {
                let listening = endpoints.unwrap().into_iter().map(|at| at.address).collect();
                let (shutdown, thread) = (Some(shutdown), Some(thread));
                Ok(Self { handle, listening, shutdown, thread })
            }
            Err(error) => {
                thread.join().unwrap();
                Err(error)
            }
        }
    }

    /// The address on which it accepts connections.
    pub(crate) fn address(&self) -> SocketAddr {
        self.listening[0]
    }

    /// A controller that connects to it.
    pub(crate) fn controller(&self) -> Controller {
        Controller::connect(self.address())
    }

    pub(crate) fn ports(&self) -> Vec<PortReport> {
        runtime().block_on(self.handle.ports()).unwrap()
    }

    pub(crate) fn port(&self, number: u32) -> PortReport {
        let number = number.to_string();
        self.ports().into_iter().find(|port| port.port == number).unwrap()
    }

    /// Frames that a port dropped for one reason.
    pub(crate) fn drops(&self, port: u32, reason: &str) -> u64 {
        self.port(port).drops.get(reason).copied().unwrap_or(0)
    }

    pub(crate) fn taps(&self) -> Vec<TapReport> {
        runtime().block_on(self.handle.taps()).unwrap()
    }

    pub(crate) fn workers(&self) -> Vec<WorkerReport> {
        runtime().block_on(self.handle.workers()).unwrap()
    }

    pub(crate) fn report(&self) -> SwitchReport {
        runtime().block_on(self.handle.switch()).unwrap()
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Stops it and waits for its end.
    pub(crate) fn stop(&mut self) {
        if self.shutdown.is_some() && !thread::panicking() {
            self.check_books();
        }
        if let Some(shutdown) = self.shutdown.take() {
            // It may have stopped by itself, by a panic that the join below propagates.
            let _ = shutdown.send(());
        }
        if let Some(thread) = self.thread.take() {
            let outcome = thread.join();
            assert!(thread::panicking() || outcome.is_ok(), "the switch panicked");
        }
    }
}

impl Running {
    /// Checks that every frame is accounted for, whatever a test did.
    pub(crate) fn check_books(&self) {
        let handle = self.handle();
        super::eventually("books that add up", || match ask(&handle) {
            Ok(report) if report.books.unaccounted() != 0 => {
                println!(
                    "{:?}: {} are not accounted for",
                    report.books,
                    report.books.unaccounted()
                );
                None
            }
            _ => Some(()),
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether the switch dropped frames. The kernel drops them in front of it (`ring_full`) if single
/// packets come faster than a busy machine reads them.
pub(crate) fn has_dropped(ports: &[PortReport]) -> bool {
    ports.iter().any(|port| port.drops.keys().any(|reason| reason != "ring_full"))
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Starts a switch on the calling thread and drops it.
pub(crate) fn start_here(config: Config) -> Result<(), StartError> {
    runtime().block_on(Switch::start(config)).map(drop)
}

/// Queries a switch that may have stopped.
pub(crate) fn ask(handle: &Handle) -> Result<SwitchReport, Stopped> {
    runtime().block_on(handle.switch())
}

/// A switch that listens on loopback, follows only its rules and has two workers.
pub(crate) fn config(ports: &[String]) -> Config {
    Config {
        listen: vec![Endpoint::tcp((Ipv4Addr::LOCALHOST, 0).into())],
        fail_mode: FailMode::Secure,
        ports: ports.iter().map(|port| port.parse().unwrap()).collect(),
        ..Config::new("br0", DatapathId(0x42))
    }
}

/// A switch with hosts: host *n* has 10.0.0.*n* and is behind port *n*.
pub(crate) struct Lab {
    pub(crate) switch: Running,
    pub(crate) hosts: Vec<Host>,
}

impl Lab {
    /// Hosts on tap ports that know each other; no rules.
    pub(crate) fn new(count: u8) -> Self {
        Self::with(count, |_| {})
    }

    /// As [`Self::new`], with a changed configuration.
    pub(crate) fn with(count: u8, change: impl FnOnce(&mut Config)) -> Self {
        let mut hosts: Vec<_> = (1..=count).map(Host::new).collect();
        let spec = |host: &Host| format!("{}=tap:eth0,netns={}", host.number, host.name());
        let mut config = config(&hosts.iter().map(spec).collect::<Vec<_>>());
        change(&mut config);
        let switch = Running::start(config);
        hosts.iter_mut().for_each(Host::add_address);
        introduce(&mut hosts);
        Self { switch, hosts }
    }

    /// Hosts on existing interfaces: veth pairs into a namespace of the switch. Ports whose number
    /// is in `taps` are tap ports.
    pub(crate) fn netdevs(count: u8, taps: &[u8]) -> (Self, Host) {
        Self::netdevs_with(count, taps, |_| {})
    }

    /// As [`Self::netdevs`], with a changed configuration.
    pub(crate) fn netdevs_with(
        count: u8,
        taps: &[u8],
        change: impl FnOnce(&mut Config),
    ) -> (Self, Host) {
        let mut room = Host::new(0);
        let mut hosts: Vec<_> = (1..=count).map(Host::new).collect();
        let mut specs = Vec::new();
        for host in &mut hosts {
            let number = host.number;
            if taps.contains(&number) {
                specs.push(format!("{number}=tap:eth0,netns={}", host.name()));
            } else {
                let name = format!("p{number}");
                host.join(&mut room, &name);
                specs.push(format!("{number}=netdev:{name},netns={}", room.name()));
            }
        }
        let mut config = config(&specs);
        change(&mut config);
        let switch = Running::start(config);
        hosts.iter_mut().for_each(Host::add_address);
        introduce(&mut hosts);
        (Self { switch, hosts }, room)
    }

    pub(crate) fn host(&self, number: u8) -> &Host {
        &self.hosts[usize::from(number) - 1]
    }

    pub(crate) fn host_mut(&mut self, number: u8) -> &mut Host {
        &mut self.hosts[usize::from(number) - 1]
    }

    /// Waits until the workers have counted what they have sent: a frame may arrive before that.
    pub(crate) fn settle(&self) {
        self.switch.controller().barrier();
    }

    pub(crate) fn wait_for_state(&self, port: u32, state: &str) {
        until("the state of a port", || self.switch.port(port).state == state);
    }
}
