//! The set-up: three hosts, a switch, a controller.

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use tapswitch_controller::Handle as Controller;
use tapswitch_switch::report::{PortReport, TapReport};
use tapswitch_switch::{Config, DatapathId, Endpoint, FailMode, Handle as Switch};
use tempfile::TempDir;

use crate::daemon::{Parts, Running};
use crate::hosts::{self, Host, INTERFACE};

type Failure = Box<dyn std::error::Error>;

/// Everything that runs, in the order of dropping.
pub(crate) struct Lab {
    running: Running,
    pub(crate) directory: TempDir,
    pub(crate) sender: Host,
    pub(crate) receiver: Host,
    pub(crate) monitor: Host,
}

impl Lab {
    /// Creates the hosts, starts controller and switch, and waits until they are connected.
    pub(crate) async fn set_up() -> Result<Self, Failure> {
        let hosts = ["sender", "receiver", "monitor"];
        let make = |(number, role)| Host::create(number, role);
        let [sender, receiver, monitor] =
            <[_; 3]>::try_from((1..).zip(hosts).map(make).collect::<Result<Vec<_>, _>>()?)
                .map_err(|_| "three hosts are needed")?;
        let directory = hosts::directory()?;
        let running = start(&[&sender, &receiver, &monitor], &directory).await?;
        let lab = Self { running, directory, sender, receiver, monitor };
        lab.wait_for_connection().await?;
        for host in [&lab.sender, &lab.receiver, &lab.monitor] {
            host.configure()?;
        }
        Ok(lab)
    }

    /// Stops the parts and waits for them; the rest is dropped.
    pub(crate) async fn tear_down(self) {
        self.running.stop().await;
    }

    /// Current state of port `number`.
    pub(crate) async fn port(&self, number: u8) -> Result<PortReport, Failure> {
        let ports = self.switch()?.ports().await?;
        let wanted = number.to_string();
        let found = ports.into_iter().find(|port| port.port == wanted);
        Ok(found.ok_or_else(|| format!("port {number} is gone"))?)
    }

    /// Current ledgers.
    pub(crate) async fn taps(&self) -> Result<Vec<TapReport>, Failure> {
        Ok(self.switch()?.taps().await?)
    }

    pub(crate) fn controller(&self) -> Result<&Controller, Failure> {
        Ok(self.running.services.controller.as_ref().ok_or("the controller is not running")?)
    }

    /// Prints how to explore the running set-up.
    pub(crate) fn explain(&self) {
        let socket = self.running.socket().display();
        let [sender, receiver, monitor] =
            [&self.sender, &self.receiver, &self.monitor].map(|host| host.namespace.label());
        say!(
            "\nStill running until Ctrl-C. In another shell, as root:\n\
             \n  export TAPSWITCH_SOCKET={socket}\
             \n  tapswitch show ports\
             \n  tapswitch policy add web --dst-ip {} --ip-proto tcp --monitor 3\
             \n  ip netns exec {receiver} iperf3 -s\
             \n  ip netns exec {sender} iperf3 -c {}\
             \n  ip netns exec {monitor} tcpdump -ni {INTERFACE}\
             \n  tapswitch show taps\n",
            self.receiver.ipv4(),
            self.receiver.ipv4(),
        );
    }

    fn switch(&self) -> Result<&Switch, Failure> {
        Ok(self.running.services.switch.as_ref().ok_or("the switch is not running")?)
    }

    async fn wait_for_connection(&self) -> Result<(), Failure> {
        let deadline = Instant::now() + CONNECT_LIMIT;
        while Instant::now() < deadline {
            let switches = self.controller()?.switches().await?;
            if switches.iter().any(|switch| switch.is_connected) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Err("the switch did not reach the controller within ten seconds".into())
    }
}

async fn start(hosts: &[&Host], directory: &TempDir) -> Result<Running, Failure> {
    // The kernel selects a free port, so that several demonstrations can run in parallel.
    let loopback = (Ipv4Addr::LOCALHOST, 0).into();
    let address = free_address(loopback)?;
    let ports = hosts.iter().map(|host| host.port_spec().parse()).collect::<Result<_, _>>()?;
    let switch = Config {
        controllers: vec![Endpoint::tcp(address)],
        fail_mode: FailMode::Secure,
        ports,
        ..Config::new("demo", DatapathId(1))
    };
    let controller =
        Some(tapswitch_controller::Config { listen: vec![address], ..Default::default() });
    let socket = directory.path().join("management.sock");
    Running::start(Parts { controller, switch: Some(switch), socket, file: None }).await
}

/// An address that is currently free.
fn free_address(wanted: std::net::SocketAddr) -> io::Result<std::net::SocketAddr> {
    std::net::TcpListener::bind(wanted)?.local_addr()
}

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
