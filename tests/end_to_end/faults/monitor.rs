//! A program that receives copies is stopped, and killed.

use crate::support::*;
use crate::taps::matched;

/// The effect of a stopped program under each contract.
const CONTRACTS: [(&str, &str); 3] = [
    ("best-effort", "egress_full"),
    ("lossless", "egress_stalled"),
    ("sample-on-pressure", "sampled_out"),
];

#[test]
fn a_monitor_is_killed_under_each_contract() {
    let Some(lab) = Lab::new(Peer::Tapswitch, Ends::Taps, 2) else { return };
    lab.introduce(&[1, 2]);
    let made = ["device", "create", "m3", "--txqueuelen", "20", "--qdisc", "noqueue", "--up"];
    tapswitch_in(&lab.room, &made).well();
    lab.switch_says(&["port", "add", "3=netdev:m3"]);
    CONTRACTS.iter().for_each(|contract| kill_monitor(&lab, *contract));
    let memory = lab.watch_memory();
    CONTRACTS.iter().for_each(|contract| kill_monitor(&lab, *contract));
    memory.assert_same();
    tapswitch_in(&lab.room, &["device", "delete", "m3"]).well();
}

/// The traffic that is copied goes on all the time without losses.
fn kill_monitor(lab: &Lab, (contract, reason): (&str, &str)) {
    let mut monitor = Monitor::start(lab);
    let stream = Stream::new(lab.host(1), lab.host(2));
    let flow = Flow::start(&stream, lab.host(1), lab.host(2));
    let fields = ["--src-ip", "10.0.0.1", "--dst-ip", "10.0.0.2", "--monitor", "3"];
    lab.add("owed", &[&fields[..], &["--delivery", contract]].concat());
    until("copies", || monitor.received() > 100);
    monitor.daemon.signal(rustix::process::Signal::STOP);
    until("copies are dropped", || {
        flow.go_on(50);
        lab.policy("owed")["copied"][0]["dropped"].get(reason).is_some()
    });
    monitor.daemon.kill();
    until("the port is down", || lab.port(3)["state"] == "no-link");
    flow.go_on(200);
    let monitor = Monitor::start(lab);
    until("copies come again", || monitor.received() > 100);
    let sent = u64::from(flow.finish_after(50));
    let report = conservation::policies(|args| lab.ask_controller(args)).remove(0);
    assert!(0 < matched(&report) && matched(&report) <= sent, "{sent} were sent: {report}");
    lab.assert_books_closed();
    assert!(conservation::is_settled(&lab.delete("owed")));
}

/// A program that reads the device: another switch.
struct Monitor {
    daemon: Daemon,
    socket: String,
}

impl Monitor {
    fn start(lab: &Lab) -> Self {
        let socket = lab.directory.path().join("monitor.sock").display().to_string();
        let args = ["switch", "--port", "1=tap:m3", "--socket", &socket];
        let daemon = Daemon::tapswitch(&lab.room, lab.directory.path(), &args);
        until("the monitor reads", || lab.port(3)["state"] == "up");
        let monitor = Self { daemon, socket };
        until("the monitor answers", || monitor.ask().code == Some(0));
        monitor
    }

    fn ask(&self) -> Said {
        tapswitch(&["show", "ports", "--json", "--socket", &self.socket])
    }

    /// Copies that it has received.
    fn received(&self) -> u64 {
        number(&self.ask().json()[0]["rx"]["packets"])
    }
}
