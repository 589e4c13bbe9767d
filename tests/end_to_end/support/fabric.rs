//! Several switches with cables between them, ours and Open vSwitch, and one controller, or several
//! that share a store.

use std::collections::BTreeMap;

use rustix::process::Signal;
use serde_json::Value;
use tapswitch_netlink::{Feature, Netlink, OwnedNamespace};
use tempfile::TempDir;

use super::cluster::Cluster;
use super::lab::CONTROLLER;
use super::ovs::{Build, Ovs, bridge};
use super::{
    Daemon, Flow, Host, Said, Stream, can_run, conservation, directory, join, room, tapswitch,
    until,
};

/// Kind of switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    OpenVswitch,
    /// Open vSwitch with DPDK's ports. Cannot be combined with the other build in one fabric.
    OpenVswitchDpdk,
}

impl Kind {
    /// The build of Open vSwitch that it needs.
    const fn build(self) -> Option<Build> {
        match self {
            Self::Ours => None,
            Self::OpenVswitch => Some(Build::Plain),
            Self::OpenVswitchDpdk => Some(Build::Dpdk),
        }
    }
}

/// Switch *n* has host *n* at its port 1, a monitor at its port 2, and cables from port 3 on.
/// Cables are veth pairs; `c1-2` is the end at switch 1 of the cable between switches 1 and 2.
/// Fields are dropped in this order.
pub(crate) struct Fabric {
    pub(crate) switches: Vec<Option<Daemon>>,
    ovs: Option<Ovs>,
    control: Controllers,
    pub(crate) hosts: Vec<Host>,
    pub(crate) monitors: Vec<Host>,
    kinds: Vec<Kind>,
    cables: Vec<(u8, u8)>,
    /// Further options of the ports at cables, by switch.
    options: Vec<&'static str>,
    /// Switches that connect to some of the controllers only.
    choices: BTreeMap<u8, Vec<usize>>,
    pub(crate) room: OwnedNamespace,
    directory: TempDir,
}

/// The controllers.
enum Controllers {
    One(Daemon),
    Several(Box<Cluster>),
}

impl Fabric {
    /// Starts a flow from host 1 to host 2.
    pub(crate) fn flow(&self, stream: &Stream) -> Flow {
        let start = if self.keeps_order() { Flow::start } else { Flow::start_singly };
        start(stream, self.host(1), self.host(2))
    }

    /// Whether frames cannot overtake each other: see [`Flow::start_singly`].
    pub(crate) fn keeps_order(&self) -> bool {
        self.ovs.is_none()
    }

    /// The received numbers, sorted if Open vSwitch may have reordered them: see
    /// [`Flow::start_singly`].
    pub(crate) fn in_order(&self, mut numbers: Vec<u32>) -> Vec<u32> {
        if !self.keeps_order() {
            numbers.sort_unstable();
        }
        numbers
    }

    /// `None` if a peer is not installed, or this is not root.
    pub(crate) fn new(kinds: &[Kind], cables: &[(u8, u8)]) -> Option<Self> {
        Self::with_controllers(2, kinds, cables, |room, directory| {
            Controllers::One(start_controller(room, directory))
        })
    }

    /// The same; Open vSwitch parses this many tags.
    fn looking_at(tags: u8, kinds: &[Kind], cables: &[(u8, u8)]) -> Option<Self> {
        Self::with_controllers(tags, kinds, cables, |room, directory| {
            Controllers::One(start_controller(room, directory))
        })
    }

    /// With three controllers that share a store.
    pub(crate) fn with_cluster(kinds: &[Kind], cables: &[(u8, u8)]) -> Option<Self> {
        if !can_run(&Cluster::PROGRAMS) {
            return None;
        }
        Self::with_controllers(2, kinds, cables, |room, directory| {
            Controllers::Several(Box::new(Cluster::start(room, directory.path())))
        })
    }

    fn with_controllers(
        tags: u8,
        kinds: &[Kind],
        cables: &[(u8, u8)],
        start: impl FnOnce(&OwnedNamespace, &TempDir) -> Controllers,
    ) -> Option<Self> {
        if !can_run(&["ping"]) {
            return None;
        }
        let build = kinds.iter().find_map(|kind| kind.build());
        if build.is_some_and(|build| !Ovs::can_run(build)) {
            return None;
        }
        let (room, directory) = (room(), directory());
        let count = u8::try_from(kinds.len()).unwrap();
        let hosts: Vec<_> = (1..=count).map(Host::new).collect();
        let monitors: Vec<_> = (1..=count).map(|number| Host::new(100 + number)).collect();
        lay_cables(&room, cables);
        for host in hosts.iter().chain(&monitors) {
            join(host, &room, &format!("p{}", host.number));
        }
        let control = start(&room, &directory);
        let ovs = build.map(|build| Ovs::start_empty(&room, directory.path(), build, tags));
        let switches = kinds.iter().map(|_| None).collect();
        let (kinds, cables, options) = (kinds.to_vec(), cables.to_vec(), vec![""; kinds.len()]);
        let mut fabric = Self {
            switches,
            ovs,
            control,
            hosts,
            monitors,
            kinds,
            cables,
            options,
            choices: BTreeMap::new(),
            room,
            directory,
        };
        (1..=count).for_each(|number| fabric.spare_dpdk(number));
        (1..=count).for_each(|number| fabric.start_switch(number));
        fabric.wait_for_links(fabric.cables.len());
        fabric.hosts.iter().chain(&fabric.monitors).for_each(Host::configure);
        Some(fabric)
    }

    /// A ring of switches of these kinds.
    pub(crate) fn ring(kinds: &[Kind]) -> Option<Self> {
        let count = u8::try_from(kinds.len()).unwrap();
        Self::new(kinds, &(1..=count).map(|at| (at, at % count + 1)).collect::<Vec<_>>())
    }

    /// A line of switches of these kinds.
    pub(crate) fn line(kinds: &[Kind]) -> Option<Self> {
        Self::line_looking_at(2, kinds)
    }

    /// The same; Open vSwitch parses this many tags.
    pub(crate) fn line_looking_at(tags: u8, kinds: &[Kind]) -> Option<Self> {
        let count = u8::try_from(kinds.len()).unwrap();
        Self::looking_at(tags, kinds, &(1..count).map(|at| (at, at + 1)).collect::<Vec<_>>())
    }

    /// Four leaves, 1 to 4, each with a cable to both spines, 5 and 6; of these kinds.
    pub(crate) fn leaves_and_spines(leaves: [Kind; 4], spines: [Kind; 2]) -> Option<Self> {
        let cables: Vec<_> = (1..=4).flat_map(|leaf| [(leaf, 5), (leaf, 6)]).collect();
        Self::new(&[&leaves[..], &spines].concat(), &cables)
    }

    /// True if all switches are ours.
    pub(crate) fn is_ours(&self) -> bool {
        self.ovs.is_none()
    }

    /// True if there are two paths to each switch.
    pub(crate) fn is_ring(&self) -> bool {
        self.cables.len() == self.kinds.len()
    }

    /// True if a switch has DPDK's ports.
    pub(crate) fn has_dpdk(&self) -> bool {
        self.kinds.contains(&Kind::OpenVswitchDpdk)
    }

    /// The kind of a switch.
    pub(crate) fn kind(&self, number: u8) -> Kind {
        self.kinds[usize::from(number) - 1]
    }

    pub(crate) fn host(&self, number: u8) -> &Host {
        &self.hosts[usize::from(number) - 1]
    }

    pub(crate) fn monitor(&self, number: u8) -> &Host {
        &self.monitors[usize::from(number) - 1]
    }

    /// Starts a switch, with all of its ports.
    pub(crate) fn start_switch(&mut self, number: u8) {
        let interfaces = self.interfaces(number);
        match (self.kind(number), &self.ovs) {
            (Kind::OpenVswitch | Kind::OpenVswitchDpdk, Some(ovs)) => {
                ovs.add_switch(number.into(), &interfaces, &self.endpoints(number));
            }
            _ => {
                self.switches[usize::from(number) - 1] = Some(self.start_ours(number, &interfaces));
            }
        }
    }

    /// Restarts all switches, which must be ours, with these options of the ports at cables; runs
    /// `meanwhile` while they are stopped.
    pub(crate) fn restart_with(&mut self, options: &[&'static str], meanwhile: impl FnOnce(&Self)) {
        self.switches.iter_mut().for_each(|switch| _ = switch.take().unwrap().stop());
        meanwhile(self);
        self.options = options.to_vec();
        (1..).zip(options).for_each(|(number, _)| self.start_switch(number));
        self.wait_for_links(self.cables.len());
    }

    /// Inserts a bridge into a cable, which forwards LLDP and limits the rate towards the second
    /// switch.
    pub(crate) fn narrow(&self, a: u8, b: u8, rate: &str) {
        let ends = [format!("c{a}-{b}"), format!("c{b}-{a}")];
        let mut netlink = Netlink::open(&self.room).unwrap();
        netlink.delete(&ends[0]).unwrap();
        netlink.create_bridge("narrow").unwrap();
        netlink.set_up("narrow").unwrap();
        for (end, inner) in ends.iter().zip(["nin", "nout"]) {
            netlink.create_veth(end, inner, &self.room).unwrap();
            netlink.set_bridge(inner, "narrow").unwrap();
            [end, inner].into_iter().for_each(|name| netlink.set_up(name).unwrap());
        }
        let run = |program: &str, args: &[&str]| {
            Said::by(self.room.command(program).args(args)).well();
        };
        // Without this, LLDP would not pass the bridge.
        run("ip", &["link", "set", "narrow", "type", "bridge", "group_fwd_mask", "0x4000"]);
        let limits = ["rate", rate, "burst", "20k", "limit", "40k"];
        run("tc", &[&["qdisc", "add", "dev", "nout", "root", "tbf"], &limits[..]].concat());
    }

    /// Gives a switch a rule that is not the controller's, in the syntax of ovs-ofctl(8).
    pub(crate) fn add_foreign_rule(&self, number: u8, rule: &str) {
        let at = match (self.kind(number), &self.ovs) {
            (Kind::OpenVswitch | Kind::OpenVswitchDpdk, Some(ovs)) => {
                ovs.management(&bridge(number.into()))
            }
            _ => listen(number),
        };
        let mut command = self.room.command("ovs-ofctl");
        let output = command.args(["-O", "OpenFlow13", "add-flow", &at, rule]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Lets all hosts communicate, and waits until the controller knows them.
    pub(crate) fn introduce(&self) {
        for host in &self.hosts {
            for other in self.hosts.iter().filter(|other| other.number != host.number) {
                host.ping(other.ip());
            }
        }
        let count = self.hosts.len();
        until("the controller knows all hosts", || {
            let hosts = self.ask(&["show", "hosts"]).json();
            let has_ip = |host: &&Value| !host["addresses"].as_array().unwrap().is_empty();
            hosts.as_array().unwrap().iter().filter(has_ip).count() >= count
        });
        self.settle();
    }

    /// Sets a cable down or up, at the end of the first switch.
    pub(crate) fn set_cable(&self, a: u8, b: u8, is_up: bool) {
        let mut netlink = Netlink::open(&self.room).unwrap();
        let end = format!("c{a}-{b}");
        match is_up {
            true => netlink.set_up(&end).unwrap(),
            false => netlink.set_down(&end).unwrap(),
        }
        self.wait_for_links(self.cables.len() - usize::from(!is_up));
    }

    /// Frames that a switch sent over a cable.
    pub(crate) fn sent_over(&self, from: u8, to: u8) -> u64 {
        let mut netlink = Netlink::open(&self.room).unwrap();
        netlink.link(&format!("c{from}-{to}")).unwrap().stats.tx_packets
    }

    /// Sets a cable down while the controller does not receive anything.
    pub(crate) fn cut_unheard(&self, a: u8, b: u8) {
        self.controller().signal(Signal::STOP);
        Netlink::open(&self.room).unwrap().set_down(&format!("c{a}-{b}")).unwrap();
    }

    /// The controller resumes, and learns what happened meanwhile.
    pub(crate) fn hear(&self) {
        self.controller().signal(Signal::CONT);
        self.wait_for_links(self.cables.len() - 1);
    }

    /// Waits until the controller has found `count` links, and all switches are taken over.
    pub(crate) fn wait_for_links(&self, count: usize) {
        until("the controller finds the links", || {
            let links = self.ask(&["show", "links"]).json();
            let sure = links.as_array().unwrap().iter().filter(|link| link["is_sure"] == true);
            sure.count() == count
        });
        until("all switches have their rules", || {
            let switches = self.ask(&["show", "switches"]).json();
            let is_ready = |switch: &Value| {
                switch["is_connected"] == true
                    && number_of(&switch["rules"]) > 0
                    && switch["ports"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .all(|port| port["is_up"] == false || port["role"] != "closed")
            };
            let switches = switches.as_array().unwrap();
            switches.len() == self.kinds.len() && switches.iter().all(is_ready)
        });
    }

    /// Adds a policy, which must become active.
    pub(crate) fn add(&self, name: &str, fields: &[&str]) -> Value {
        let added = self.ask(&[&["policy", "add", name], fields].concat()).json();
        assert_eq!(added["state"]["is"], "active", "{added}");
        added
    }

    /// Every policy's ledger adds up.
    pub(crate) fn assert_conserved(&self) {
        self.settle();
        conservation::policies(|command| self.ask(command));
    }

    /// Makes Open vSwitch count what has passed so far.
    pub(crate) fn settle(&self) {
        self.ovs.iter().for_each(Ovs::settle);
    }

    /// Checks that Open vSwitch used the requested datapath, and that frames passed through it.
    pub(crate) fn assert_carried(&self) {
        if !self.has_dpdk() {
            self.ovs.iter().for_each(Ovs::assert_carried);
        }
    }

    /// The only controller.
    fn controller(&self) -> &Daemon {
        match &self.control {
            Controllers::One(controller) => controller,
            Controllers::Several(_) => panic!("there are several controllers"),
        }
    }

    /// The controllers that share a store.
    pub(crate) fn cluster(&self) -> &Cluster {
        match &self.control {
            Controllers::Several(cluster) => cluster,
            Controllers::One(_) => panic!("there is one controller"),
        }
    }

    pub(crate) fn cluster_mut(&mut self) -> &mut Cluster {
        match &mut self.control {
            Controllers::Several(cluster) => cluster,
            Controllers::One(_) => panic!("there is one controller"),
        }
    }

    /// Addresses of the controllers for a switch.
    fn endpoints(&self, number: u8) -> Vec<String> {
        if matches!(self.control, Controllers::One(_)) {
            return vec![CONTROLLER.to_owned()];
        }
        let all = Cluster::endpoints();
        match self.choices.get(&number) {
            None => all,
            Some(some) => some.iter().map(|controller| all[*controller].clone()).collect(),
        }
    }

    /// From now on this switch connects to these controllers only. One of ours is restarted.
    pub(crate) fn connect_to(&mut self, number: u8, controllers: &[usize]) {
        self.choices.insert(number, controllers.to_vec());
        match self.switches[usize::from(number) - 1].take() {
            Some(mut switch) => {
                switch.stop();
                self.start_switch(number);
            }
            None => {
                let ovs = self.ovs.as_ref().unwrap();
                ovs.connect_to(number.into(), &self.endpoints(number));
            }
        }
    }

    /// Runs a command with `--json` on the management socket of the controller, or of the one that
    /// leads.
    pub(crate) fn ask(&self, command: &[&str]) -> Said {
        if let Controllers::Several(cluster) = &self.control {
            return cluster.ask(cluster.wait_for_leader(&[]).0, command);
        }
        let socket = self.directory.path().join("controller.sock").display().to_string();
        tapswitch(&[command, &["--json", "--socket", &socket]].concat())
    }

    /// The same on the management socket of one of our switches.
    pub(crate) fn ask_switch(&self, number: u8, command: &[&str]) -> Said {
        let socket = self.directory.path().join(format!("s{number}.sock")).display().to_string();
        tapswitch(&[command, &["--json", "--socket", &socket]].concat())
    }

    /// The same for text output; it must succeed.
    pub(crate) fn says(&self, command: &[&str]) -> String {
        let socket = self.directory.path().join("controller.sock").display().to_string();
        tapswitch(&[command, &["--socket", &socket]].concat()).well()
    }

    /// The interfaces at a switch's ports from 1 on.
    fn interfaces(&self, number: u8) -> Vec<String> {
        let hosts = [format!("p{number}"), format!("p{}", 100 + number)];
        let cables = self.cables.iter().filter_map(|&(a, b)| match number {
            _ if a == number => Some(format!("c{a}-{b}")),
            _ if b == number => Some(format!("c{b}-{a}")),
            _ => None,
        });
        hosts.into_iter().chain(cables).collect()
    }

    /// Makes the kernel cut trains and complete checksums before DPDK's ports of a switch.
    fn spare_dpdk(&self, number: u8) {
        if self.kind(number) != Kind::OpenVswitchDpdk {
            return;
        }
        for host in [self.host(number), self.monitor(number)] {
            host.netlink().set_feature(&host.interface, Feature::TxChecksum, false).unwrap();
        }
        let mut netlink = Netlink::open(&self.room).unwrap();
        for cable in self.interfaces(number).iter().filter_map(|name| name.strip_prefix('c')) {
            let (here, there) = cable.split_once('-').unwrap();
            let other_end = format!("c{there}-{here}");
            netlink.set_feature(&other_end, Feature::TxChecksum, false).unwrap();
        }
    }

    fn start_ours(&self, number: u8, interfaces: &[String]) -> Daemon {
        let socket = self.directory.path().join(format!("s{number}.sock")).display().to_string();
        let (name, id, own) = (format!("s{number}"), format!("{number:#x}"), listen(number));
        let ports = (1..).zip(interfaces);
        // Two tags of a host, and that of the copies.
        let more = self.options[usize::from(number) - 1];
        let port = |(number, name): (u8, &String)| match name.starts_with('c') {
            true => format!("{number}=netdev:{name},envelope=12{more}"),
            false => format!("{number}=netdev:{name}"),
        };
        let ports: Vec<_> = ports.map(port).collect();
        let fixed = ["switch", "--name", &name, "--datapath-id", &id];
        let endpoints = self.endpoints(number);
        let controllers = endpoints.iter().flat_map(|endpoint| ["--controller", endpoint]);
        let more = ["--fail-mode", "secure", "--socket", &socket, "--listen", &own];
        let ports = ports.iter().flat_map(|port| ["--port", port]);
        let args: Vec<_> = fixed.into_iter().chain(controllers).chain(more).chain(ports).collect();
        Daemon::tapswitch(&self.room, self.directory.path(), &args)
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        // The last counters of a killed switch are unknown, and with several controllers there may
        // be no leader. A test that has failed is not checked.
        if !matches!(self.control, Controllers::One(_)) || std::thread::panicking() {
            return;
        }
        let are_there =
            |(kind, switch): (&Kind, &Option<Daemon>)| *kind != Kind::Ours || switch.is_some();
        let mut switches = self.kinds.iter().zip(&self.switches);
        if switches.all(are_there) {
            self.settle();
            conservation::at_the_end(|command| self.ask(command));
        }
    }
}

/// Where one of our switches listens for `ovs-ofctl`.
fn listen(number: u8) -> String {
    format!("tcp:127.0.0.1:{}", 6660 + u16::from(number))
}

fn lay_cables(room: &OwnedNamespace, cables: &[(u8, u8)]) {
    let mut netlink = Netlink::open(room).unwrap();
    for (a, b) in cables {
        let ends = [format!("c{a}-{b}"), format!("c{b}-{a}")];
        netlink.create_veth(&ends[0], &ends[1], room).unwrap();
        ends.iter().for_each(|end| netlink.set_up(end).unwrap());
    }
}

fn start_controller(room: &OwnedNamespace, directory: &TempDir) -> Daemon {
    let socket = directory.path().join("controller.sock").display().to_string();
    let args = ["controller", "--listen", CONTROLLER, "--store", "none", "--socket", &socket];
    let daemon = Daemon::tapswitch(room, directory.path(), &args);
    until("the controller answers", || {
        tapswitch(&["show", "switches", "--socket", &socket]).code == Some(0)
    });
    daemon
}

fn number_of(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no count"))
}
