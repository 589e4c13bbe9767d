//! Hosts around a switch that `tapswitch controller` controls: ours or Open vSwitch.

use std::path::Path;

use serde_json::Value;
use tapswitch_netlink::{Namespace, OwnedNamespace};
use tempfile::TempDir;

use super::ovs::Ovs;
use super::{
    Daemon, Flow, Host, Memory, Said, Stream, can_run, conservation, directory, join, room, skip,
    tapswitch, until,
};

/// The kind of switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    Tapswitch,
    OpenVswitch,
}

/// How hosts are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// Tap devices of the switch.
    Taps,
    /// Veth pairs; always with Open vSwitch.
    Veths,
}

/// Host *n* has 10.0.0.*n* and is behind port *n*. Fields are dropped in this order.
pub(crate) struct Lab {
    switch: Switch,
    pub(crate) controller: Daemon,
    pub(crate) peer: Peer,
    pub(crate) ends: Ends,
    pub(crate) hosts: Vec<Host>,
    pub(crate) room: OwnedNamespace,
    pub(crate) directory: TempDir,
}

enum Switch {
    Ours(Option<Daemon>),
    Theirs(Ovs),
}

impl Lab {
    /// Starts a flow from a host to another.
    pub(crate) fn flow(&self, stream: &Stream, from: u8, to: u8) -> Flow {
        let start = match self.peer {
            Peer::Tapswitch => Flow::start,
            Peer::OpenVswitch => Flow::start_singly,
        };
        start(stream, self.host(from), self.host(to))
    }

    /// `None` if the peer is not installed, or this is not root.
    pub(crate) fn new(peer: Peer, ends: Ends, count: u8) -> Option<Self> {
        if !can_run(&["ping"]) {
            return None;
        }
        if peer == Peer::OpenVswitch && !Ovs::is_there() {
            skip("Open vSwitch is not installed; install openvswitch-switch");
            return None;
        }
        let (room, directory) = (room(), directory());
        let hosts: Vec<_> = (1..=count).map(Host::new).collect();
        let controller = start_controller(&room, directory.path());
        let switch = match peer {
            Peer::Tapswitch => Switch::Ours(None),
            Peer::OpenVswitch => Switch::Theirs(Ovs::start(&room, directory.path(), &hosts)),
        };
        let mut lab = Self { switch, controller, peer, ends, hosts, room, directory };
        if peer == Peer::Tapswitch {
            lab.join_hosts();
            lab.start_switch();
        }
        lab.wait_for_switch();
        lab.hosts.iter().for_each(Host::configure);
        Some(lab)
    }

    pub(crate) fn host(&self, number: u8) -> &Host {
        &self.hosts[usize::from(number) - 1]
    }

    /// Name of the port on the switch.
    pub(crate) fn port_name(&self, number: u8) -> String {
        match self.ends {
            Ends::Taps => format!("t{number}"),
            Ends::Veths => format!("p{number}"),
        }
    }

    /// Lets hosts communicate, and waits until the controller knows where they are.
    pub(crate) fn introduce(&self, numbers: &[u8]) {
        for number in numbers {
            for other in numbers.iter().filter(|other| *other != number) {
                self.host(*number).ping(self.host(*other).ip());
            }
        }
        for number in numbers {
            let (mac, ip) = (self.host(*number).mac().to_string(), self.host(*number).ip());
            until("the controller knows the host", || self.knows(&mac, &ip.to_string()));
        }
        self.settle();
    }

    /// Makes the switch count what its cache has forwarded so far.
    pub(crate) fn settle(&self) {
        if let Switch::Theirs(ovs) = &self.switch {
            ovs.settle();
        }
    }

    /// Checks that Open vSwitch used the requested datapath, and that frames passed through it.
    pub(crate) fn assert_carried(&self) {
        if let Switch::Theirs(ovs) = &self.switch {
            ovs.assert_carried();
        }
    }

    /// Limits the number of rules in a table of Open vSwitch; more are refused.
    pub(crate) fn limit_rules(&self, table: u8, count: u16) {
        let Switch::Theirs(ovs) = &self.switch else { panic!("ours has no such limit") };
        ovs.limit_rules(table, count);
    }

    /// True if the controller knows a host by both of its addresses.
    pub(crate) fn knows(&self, mac: &str, ip: &str) -> bool {
        let hosts = self.ask_controller(&["show", "hosts"]).json();
        let has_ip = |host: &Value| host["addresses"].as_array().unwrap().iter().any(|a| a == ip);
        hosts.as_array().unwrap().iter().any(|host| host["mac"] == mac && has_ip(host))
    }

    /// Runs a command with `--json` on the controller's management socket.
    pub(crate) fn ask_controller(&self, command: &[&str]) -> Said {
        self.ask(command, CONTROLLER_SOCKET)
    }

    /// The same for text output; it must succeed.
    pub(crate) fn controller_says(&self, command: &[&str]) -> String {
        self.says(command, CONTROLLER_SOCKET)
    }

    /// Runs a command on our switch's management socket; returns its text output.
    pub(crate) fn switch_says(&self, command: &[&str]) -> String {
        self.says(command, SWITCH_SOCKET)
    }

    /// Every policy's ledger adds up.
    pub(crate) fn assert_conserved(&self) {
        self.settle();
        conservation::policies(|command| self.ask_controller(command));
    }

    /// Every frame that came into our switch is accounted for, and none waits.
    pub(crate) fn assert_books_closed(&self) {
        conservation::books(|command| self.ask_switch(command));
    }

    /// One port of our switch.
    pub(crate) fn port(&self, number: u8) -> Value {
        let (number, ports) = (number.to_string(), self.ask_switch(&["show", "ports"]).json());
        let is_it = |port: &&Value| port["port"] == *number;
        ports.as_array().unwrap().iter().find(is_it).unwrap().clone()
    }

    /// Frames that a port of our switch dropped, for all reasons.
    pub(crate) fn dropped(&self, number: u8) -> u64 {
        self.port(number)["drops"].as_object().unwrap().values().map(self::number).sum()
    }

    /// Watches the memory of our switch from now on.
    pub(crate) fn watch_memory(&self) -> Memory {
        let Switch::Ours(Some(switch)) = &self.switch else { panic!("that is not ours") };
        let workers = self.ask_switch(&["show", "workers"]).json();
        Memory::of(switch.id(), workers.as_array().unwrap().len() as u64)
    }

    /// Number of open files of our switch.
    pub(crate) fn open_count(&self) -> usize {
        let Switch::Ours(Some(switch)) = &self.switch else { panic!("that is not ours") };
        std::fs::read_dir(format!("/proc/{}/fd", switch.id())).unwrap().count()
    }

    /// The same on the switch's management socket; the switch must be ours.
    pub(crate) fn ask_switch(&self, command: &[&str]) -> Said {
        self.ask(command, SWITCH_SOCKET)
    }

    /// Adds a policy; returns its report.
    pub(crate) fn add(&self, name: &str, fields: &[&str]) -> Value {
        self.ask_controller(&[&["policy", "add", name], fields].concat()).json()
    }

    pub(crate) fn policy(&self, name: &str) -> Value {
        self.ask_controller(&["policy", "show", name]).json()
    }

    /// Deletes a policy; returns its last report.
    pub(crate) fn delete(&self, name: &str) -> Value {
        self.ask_controller(&["policy", "delete", name]).json()
    }

    /// The switch's rules, without counters.
    pub(crate) fn flows(&self) -> Vec<String> {
        match &self.switch {
            Switch::Ours(_) => {
                let flows = self.ask_switch(&["show", "flows"]).json();
                let parts = ["table", "priority", "match", "actions", "cookie"];
                lines(&flows, &parts)
            }
            Switch::Theirs(ovs) => ovs.flows(),
        }
    }

    /// The switch's groups.
    pub(crate) fn groups(&self) -> Vec<String> {
        match &self.switch {
            Switch::Ours(_) => lines(&self.ask_switch(&["show", "groups"]).json(), &["group"]),
            Switch::Theirs(ovs) => ovs.groups(),
        }
    }

    /// The ledgers of our switch, one for each bucket that copies: matched, delivered and dropped.
    /// Empty for Open vSwitch, which has no such ledgers.
    pub(crate) fn ledgers(&self) -> Vec<[u64; 3]> {
        if self.peer == Peer::OpenVswitch {
            return Vec::new();
        }
        let taps = self.ask_switch(&["show", "taps"]).json();
        taps.as_array().unwrap().iter().flat_map(ledgers).collect()
    }

    /// The log of our switch so far.
    pub(crate) fn switch_log(&self) -> String {
        let Switch::Ours(Some(switch)) = &self.switch else { panic!("that is not ours") };
        switch.log()
    }

    /// Starts the switch again.
    pub(crate) fn start_switch(&mut self) {
        let daemon = matches!(self.switch, Switch::Ours(_)).then(|| self.start_ours());
        match &mut self.switch {
            Switch::Ours(switch) => *switch = daemon,
            Switch::Theirs(ovs) => ovs.start_switch(),
        }
    }

    /// Stops the switch cleanly; returns the log of ours.
    pub(crate) fn stop_switch(&mut self) -> String {
        match &mut self.switch {
            Switch::Ours(switch) => {
                let mut switch = switch.take().unwrap();
                assert_eq!(switch.stop().code(), Some(0), "{}", switch.log());
                switch.log()
            }
            Switch::Theirs(ovs) => {
                ovs.stop_switch();
                String::new()
            }
        }
    }

    /// Kills our switch.
    pub(crate) fn kill_switch(&mut self) {
        let Switch::Ours(switch) = &mut self.switch else { panic!("that is not ours") };
        switch.take().unwrap().kill();
    }

    /// Starts another controller in place of the one that has ended.
    pub(crate) fn start_controller(&mut self) {
        self.controller = start_controller(&self.room, self.directory.path());
    }

    /// Waits until the switch is connected with all of its ports.
    pub(crate) fn wait_for_switch(&self) {
        let count = self.hosts.len();
        until("the switch connects", || {
            let switches = self.ask_controller(&["show", "switches"]).json();
            let is_whole = |switch: &Value| {
                let ports = switch["ports"].as_array().unwrap();
                let has = |port: &&Value| port["port"] != "LOCAL";
                switch["is_connected"] == true && ports.iter().filter(has).count() == count
            };
            switches.as_array().unwrap().iter().any(is_whole)
        });
    }

    fn says(&self, command: &[&str], socket: &str) -> String {
        let socket = self.directory.path().join(socket).display().to_string();
        tapswitch(&[command, &["--socket", &socket]].concat()).well()
    }

    fn ask(&self, command: &[&str], socket: &str) -> Said {
        let socket = self.directory.path().join(socket).display().to_string();
        tapswitch(&[command, &["--json", "--socket", &socket]].concat())
    }

    fn join_hosts(&self) {
        if self.ends == Ends::Veths {
            let names = self.hosts.iter().map(|host| (host, self.port_name(host.number)));
            names.for_each(|(host, name)| join(host, &self.room, &name));
        }
    }

    fn start_ours(&self) -> Daemon {
        let socket = self.directory.path().join(SWITCH_SOCKET).display().to_string();
        let args = ["switch", "--controller", CONTROLLER, "--fail-mode", "secure"];
        let specs: Vec<_> = self.hosts.iter().map(|host| self.port_spec(host)).collect();
        let ports = specs.iter().flat_map(|spec| ["--port", spec]);
        let args: Vec<_> = args.into_iter().chain(["--socket", &socket]).chain(ports).collect();
        Daemon::tapswitch(&self.room, self.directory.path(), &args)
    }

    fn port_spec(&self, host: &Host) -> String {
        let (number, interface) = (host.number, &host.interface);
        match self.ends {
            Ends::Taps => format!("{number}=tap:{interface},netns={}", host.name()),
            Ends::Veths => format!("{number}=netdev:p{number}"),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // The last counters of a killed switch are unknown. A test that has failed is not checked.
        if !std::thread::panicking() && !matches!(self.switch, Switch::Ours(None)) {
            self.settle();
            conservation::at_the_end(|command| self.ask_controller(command));
        }
    }
}

fn start_controller(room: &Namespace, directory: &Path) -> Daemon {
    let socket = directory.join(CONTROLLER_SOCKET).display().to_string();
    let args = ["controller", "--listen", CONTROLLER, "--store", "none", "--socket", &socket];
    let daemon = Daemon::tapswitch(room, directory, &args);
    until("the controller answers", || {
        tapswitch(&["show", "switches", "--socket", &socket]).code == Some(0)
    });
    daemon
}

fn ledgers(tap: &Value) -> Vec<[u64; 3]> {
    assert_eq!(tap["adds_up"], true, "{tap}");
    let matched = number(&tap["matched"]["frames"]);
    let ledger = |copy: &Value| {
        let drops = copy["drops"].as_object().unwrap().values().map(number).sum();
        [matched, number(&copy["delivered"]["frames"]), drops]
    };
    tap["copies"].as_array().unwrap().iter().map(ledger).collect()
}

/// These fields of each entry, as a line of text.
fn lines(entries: &Value, fields: &[&str]) -> Vec<String> {
    let line = |entry: &Value| fields.iter().map(|field| format!("{} ", entry[*field])).collect();
    let mut lines: Vec<String> = entries.as_array().unwrap().iter().map(line).collect();
    lines.sort();
    lines
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}

/// Address of the controller, in the room.
pub(crate) const CONTROLLER: &str = "tcp:127.0.0.1:6653";
const CONTROLLER_SOCKET: &str = "controller.sock";
const SWITCH_SOCKET: &str = "switch.sock";
