//! Two machines, a third one as the monitor of a TAP, and hosts behind a tap device and a veth
//! pair, on one switch with a controller.

use serde_json::Value;
use tapswitch_guest::Series;

use super::iperf::{self, End};
use super::lab::{Lab, Seen, Sink, send_data, vhost};
use super::machine::{Machine, Nic, boot, can_boot, kernel_of};
use crate::support::*;

#[test]
fn machines_talk_to_each_other_to_hosts_and_a_monitor_gets_all_of_it() {
    if !can_boot() {
        return;
    }
    let mut lab = Lab::new();
    let hosts = [Host::new(4), Host::new(5)];
    join(&hosts[1], &lab.room, "p5");
    let controller = Controller::start(&lab);
    let args = ["--controller", CONTROLLER, "--fail-mode", "secure"];
    lab.start_switch(&args, &ports(&lab, &hosts));
    hosts.iter().for_each(Host::configure);
    let Some(machines) = boot(starts(&lab)) else { return };
    let [mut old, mut new, mut monitor] = machines;
    assert!(kernel_of(&mut old).starts_with("6.1."));
    for (number, machine) in [(1, &mut old), (2, &mut new)] {
        lab.wait_for_state(number, "up");
        machine.configure("eth0", &format!("10.0.0.{number}"));
    }
    monitor.run("ip link set eth0 promisc on up");
    lab.wait_for_state(3, "up");
    old.ping("10.0.0.2");
    new.ping("10.0.0.1");
    introduce(&hosts, [&mut old, &mut new]);
    let (before, seen) = (lab.port(3), monitor.counter("eth0", "rx_packets"));
    controller.add_tap(&lab);

    // Few at a time: the monitor has room for all.
    let said = old.run("ping -c 50 -i 0.05 -s 1400 10.0.0.2");
    assert!(said.contains(" 0% packet loss"), "{said}");
    let ledger = Ledger::of(&lab);
    assert_eq!((ledger.matched, ledger.dropped), (ledger.delivered, 0), "{ledger:?}");
    assert!(ledger.matched >= 100, "{ledger:?}");

    exchange_trains(&lab, &mut old, &mut new);
    let client = End { number: 1, machine: &mut old };
    iperf::measure(&lab, client, End { number: 2, machine: &mut new });
    for host in &hosts {
        exchange_with_host(&lab, &mut new, host);
    }
    // A monitor under emulation may be slower than two machines; then the ledger reports drops.
    let ledger = Ledger::of(&lab);
    assert_eq!(ledger.matched, ledger.delivered + ledger.dropped, "{ledger:?}");
    let after = lab.port(3);
    let sent = number(&after["tx"]["frames"]) - number(&before["tx"]["frames"]);
    until("the monitor's kernel has seen all", || {
        monitor.counter("eth0", "rx_packets") - seen >= sent
    });
    assert!(sent >= ledger.delivered, "{sent} {ledger:?}");
    for machine in [&mut old, &mut new] {
        assert_eq!(machine.checksum_errors(), 0);
    }
    hosts.iter().for_each(|host| assert_eq!(checksum_errors(&host.namespace), 0));
}

/// Both kinds of rings, and a monitor with many buffers.
fn starts(lab: &Lab) -> [impl FnOnce() -> Result<Machine, tapswitch_guest::Error> + '_; 3] {
    let start = |series, number: u8, options: &'static str| {
        move || {
            let nic = Nic::new(&lab.socket(&format!("vm{number}"))).options(options);
            Machine::start(series, number, lab.directory.path(), &[nic])
        }
    };
    [
        start(Series::V6_1, 1, "rx_queue_size=1024"),
        start(Series::V7_3, 2, "packed=on,rx_queue_size=1024"),
        start(Series::V7_3, 3, "rx_queue_size=1024"),
    ]
}

fn ports(lab: &Lab, hosts: &[Host; 2]) -> Vec<String> {
    let machines = (1..=3).map(|number| vhost(number, &lab.socket(&format!("vm{number}")), ""));
    let tap = format!("4=tap:t4,netns={}", hosts[0].name());
    machines.chain([tap, "5=netdev:p5".to_owned()]).collect()
}

/// Everyone sends something to everyone, so that the controller knows them.
fn introduce(hosts: &[Host; 2], machines: [&mut Machine; 2]) {
    for machine in machines {
        machine.ping("10.0.0.4");
        machine.ping("10.0.0.5");
    }
    hosts[0].ping(hosts[1].ip());
}

/// Data in both directions between the machines, as trains.
fn exchange_trains(lab: &Lab, old: &mut Machine, new: &mut Machine) {
    for (number, from, to) in [(1, &mut *old, "10.0.0.2"), (2, new, "10.0.0.1")] {
        let before = Seen::of(&lab.port(number), "rx");
        from.send_data(to);
        let mean = Seen::of(&lab.port(number), "rx").mean_len_since(before);
        assert!(mean > TRAIN_LEN, "frames of port {number} have {mean} bytes");
    }
}

/// The same between a machine and a host.
fn exchange_with_host(lab: &Lab, machine: &mut Machine, host: &Host) {
    let (ip, sink) = (host.ip().to_string(), Sink::start(&host.namespace));
    let port = || (Seen::of(&lab.port(host.number), "tx"), Seen::of(&lab.port(host.number), "rx"));
    let start = port();
    machine.send_data(&ip);
    assert_eq!(sink.whole(), 1);
    let there = port();
    send_data(&host.namespace, "10.0.0.2");
    let back = port();
    let means = (there.0.mean_len_since(start.0), back.1.mean_len_since(there.1));
    assert!(means.0 > TRAIN_LEN && means.1 > TRAIN_LEN, "{ip}: {means:?}");
}

/// A controller with its TAP.
struct Controller {
    _daemon: Daemon,
    socket: String,
}

impl Controller {
    fn start(lab: &Lab) -> Self {
        let socket = lab.directory.path().join("controller.socket").display().to_string();
        let args = ["controller", "--listen", CONTROLLER, "--store", "none", "--socket", &socket];
        let daemon = Daemon::tapswitch(&lab.room, lab.directory.path(), &args);
        until("the controller answers", || {
            tapswitch(&["show", "switches", "--socket", &socket]).code == Some(0)
        });
        Self { _daemon: daemon, socket }
    }

    /// Copies the traffic of the machines, to each other and to others, to port 3.
    fn add_tap(&self, lab: &Lab) {
        let add = ["policy", "add", "vms", "--src-ip", "10.0.0.2"];
        let more = ["--monitor", "0x1/3", "--socket", &self.socket];
        tapswitch(&[&add[..], &more].concat()).well();
        until("the rules are there", || !lab.show("taps").as_array().unwrap().is_empty());
    }
}

/// The sums of all TAPs' ledgers at rest.
#[derive(Debug, Default)]
struct Ledger {
    matched: u64,
    delivered: u64,
    dropped: u64,
}

impl Ledger {
    fn of(lab: &Lab) -> Self {
        let mut sum = Self::default();
        for tap in lab.show("taps").as_array().unwrap() {
            assert_eq!(tap["adds_up"], true, "{tap}");
            for copy in tap["copies"].as_array().unwrap() {
                let drops = copy["drops"].as_object().unwrap();
                let is_named = |(name, _): (&String, &Value)| name == "egress_full";
                assert!(drops.iter().all(is_named), "{copy}");
                sum.matched += number(&tap["matched"]["frames"]);
                sum.delivered += number(&copy["delivered"]["frames"]);
                sum.dropped += drops.values().map(number).sum::<u64>();
            }
        }
        sum
    }
}

/// A frame that is a single packet has at most 1514 bytes.
pub(super) const TRAIN_LEN: u64 = 1514;
