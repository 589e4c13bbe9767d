//! Several controllers that share a store: three members of etcd, three controllers. Each
//! controller connects to etcd, and accepts switches, at loopback addresses of its own, so that it
//! can be cut off from either.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tapswitch_netlink::Namespace;

use super::{Daemon, Said, eventually, tapswitch, until};

/// A running cluster, stopped on drop. Its parts have numbers from 0 on.
pub(crate) struct Cluster {
    controllers: Vec<Option<Daemon>>,
    members: Vec<Option<Daemon>>,
    room: Namespace,
    directory: PathBuf,
}

/// The side that a controller is cut off from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Etcd,
    Switches,
}

impl Side {
    /// The address that this side and a controller use for each other.
    fn address(self, number: usize) -> String {
        match self {
            Self::Etcd => format!("127.1.0.{}", 1 + number),
            Self::Switches => format!("127.2.0.{}", 1 + number),
        }
    }
}

/// An answer of REST: the status and the document.
pub(crate) type Answer = (u16, Value);

impl Cluster {
    /// Programs that it needs.
    pub(crate) const PROGRAMS: [&str; 3] = ["etcd", "curl", "ip"];

    /// Starts everything, and waits until one of the controllers leads.
    pub(crate) fn start(room: &Namespace, directory: &Path) -> Self {
        let (controllers, members) = ((0..COUNT).map(|_| None), (0..COUNT).map(|_| None));
        let (controllers, members) = (controllers.collect(), members.collect());
        let (room, directory) = (room.clone(), directory.to_owned());
        let mut cluster = Self { controllers, members, room, directory };
        (0..COUNT).for_each(|number| cluster.start_member(number));
        (0..COUNT).for_each(|number| cluster.start_controller(number));
        cluster.wait_for_leader(&[]);
        cluster
    }

    /// The controllers' addresses for switches.
    pub(crate) fn endpoints() -> Vec<String> {
        let endpoint = |number| format!("tcp:{}:{}", Side::Switches.address(number), 6653 + number);
        (0..COUNT).map(endpoint).collect()
    }

    /// Starts a member of etcd, empty or with its data on disk.
    pub(crate) fn start_member(&mut self, number: usize) {
        let data = self.directory.join(format!("etcd{number}")).display().to_string();
        let url = |port: usize| format!("http://127.0.0.1:{}", port + number);
        let peers = (0..COUNT).map(|peer| format!("e{peer}=http://127.0.0.1:{}", 2480 + peer));
        let peers = peers.collect::<Vec<_>>().join(",");
        let (name, client, peer) = (format!("e{number}"), url(2379), url(2480));
        let mut command = self.room.command("etcd");
        command.args(["--name", &name, "--data-dir", &data, "--initial-cluster", &peers]);
        let all = format!("http://0.0.0.0:{}", 2379 + number);
        command.args(["--listen-client-urls", &all, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        self.members[number] = Some(Daemon::start(command, &self.directory));
    }

    pub(crate) fn start_controller(&mut self, number: usize) {
        let etcd = Side::Etcd.address(number);
        let members = (0..COUNT).map(|member| format!("{etcd}:{}", 2379 + member));
        let store = format!("etcd://{}/lab", members.collect::<Vec<_>>().join(","));
        let (listen, rest) = (&Self::endpoints()[number], format!("127.0.0.1:{}", 8653 + number));
        let socket = self.socket(number);
        let args = ["controller", "--listen", listen, "--store", &store, "--rest", &rest];
        let args = [&args[..], &["--socket", &socket]].concat();
        self.controllers[number] = Some(Daemon::tapswitch(&self.room, &self.directory, &args));
        until("the controller answers", || {
            self.ask(number, &["show", "controller"]).code == Some(0)
        });
    }

    /// Kills a member of etcd, as a failure of its machine would.
    pub(crate) fn kill_member(&mut self, number: usize) {
        self.members[number].take().unwrap().kill();
    }

    /// The same with a controller.
    pub(crate) fn kill_controller(&mut self, number: usize) {
        self.controllers[number].take().unwrap().kill();
    }

    pub(crate) fn signal_controller(&self, number: usize, signal: Signal) {
        self.controllers[number].as_ref().unwrap().signal(signal);
    }

    /// From now on packets between a controller and this side are lost.
    pub(crate) fn cut_off(&self, number: usize, side: Side) {
        self.route("add", number, side);
    }

    /// Reverts that.
    pub(crate) fn join_again(&self, number: usize, side: Side) {
        self.route("del", number, side);
    }

    fn route(&self, what: &str, number: usize, side: Side) {
        let mut command = self.room.command("ip");
        command.args(["route", what, "blackhole", &side.address(number), "table", "local"]);
        Said::by(&mut command).well();
    }

    /// Runs a command with `--json` on a controller's management socket.
    pub(crate) fn ask(&self, number: usize, command: &[&str]) -> Said {
        tapswitch(&[command, &["--json", "--socket", &self.socket(number)]].concat())
    }

    /// The controller that leads, if it is not one of `others`.
    pub(crate) fn leader(&self, others: &[usize]) -> Option<usize> {
        let there = (0..COUNT).filter(|number| self.controllers[*number].is_some());
        there.filter(|number| !others.contains(number)).find(|number| {
            let said = self.ask(*number, &["show", "controller"]);
            said.code == Some(0) && said.json()["role"] == "leader"
        })
    }

    /// Waits until one leads; returns it and how long that took.
    pub(crate) fn wait_for_leader(&self, others: &[usize]) -> (usize, Duration) {
        let start = Instant::now();
        let leader = eventually("a controller leads", || self.leader(others));
        (leader, start.elapsed())
    }

    /// Sends a request to a controller's REST; `None` if it does not answer.
    pub(crate) fn rest(
        &self,
        number: usize,
        method: &str,
        path: &str,
        document: Option<&Value>,
    ) -> Option<Answer> {
        let url = format!("http://127.0.0.1:{}/api/v1{path}", 8653 + number);
        let mut command = self.room.command("curl");
        command.args(["-s", "-m", "60", "-w", "\n%{http_code}", "-X", method, &url]);
        if let Some(document) = document {
            command.args(["--json", &document.to_string()]);
        }
        let said = Said::by(&mut command);
        let (body, status) = said.out.rsplit_once('\n')?;
        let status = status.parse().ok().filter(|status| *status != 0)?;
        Some((status, serde_json::from_str(body).unwrap_or_default()))
    }

    /// A controller's management socket.
    pub(crate) fn socket(&self, number: usize) -> String {
        self.directory.join(format!("c{number}.sock")).display().to_string()
    }
}

/// Members of etcd, and controllers.
pub(crate) const COUNT: usize = 3;
