//! Guests with DPDK's network device (`net_virtio_user`) at ports of the switch: all kinds of
//! rings, and restarts of either side.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Instant;

use serde_json::Value;
use tapswitch_netlink::OwnedNamespace;
use tempfile::TempDir;

use crate::support::*;

#[test]
fn split_rings_carry_frames_and_counters_add_up() {
    carry(false);
}

#[test]
fn packed_rings_carry_frames_and_counters_add_up() {
    carry(true);
}

/// All kinds of rings of one layout, one after the other, with one running switch.
fn carry(packed: bool) {
    let Some(lab) = Lab::new("client,queues=2") else { return };
    let _switch = lab.start_switch();
    for mergeable in [false, true] {
        for in_order in [false, true] {
            for queues in [1, 2] {
                let guests = Guests { packed, mergeable, in_order, queues, ..lab.guests(true) };
                let before = lab.ports();
                let mut testpmd = Testpmd::spawn(guests, lab.directory.path()).ready();
                testpmd.command("start");
                until("frames", || testpmd.received() > 10_000);
                testpmd.stop_sending();
                // The receiver has stopped as well; frames in its ring count as sent by the switch
                // and not as received. So it receives on its own.
                testpmd.command("set fwd rxonly");
                testpmd.command("start");
                let all = |ports: &Value| {
                    let came =
                        number(&ports[0]["rx"]["frames"]) - number(&before[0]["rx"]["frames"]);
                    let went =
                        number(&ports[1]["tx"]["frames"]) - number(&before[1]["tx"]["frames"]);
                    let dropped = drops(ports) - drops(&before);
                    (came, went, dropped)
                };
                until("every frame to be counted where it is", || {
                    let (came, went, dropped) = all(&lab.ports());
                    came == testpmd.sent() && went == testpmd.received() && came == went + dropped
                });
            }
        }
    }
}

#[test]
fn guests_that_are_restarted_find_the_switch_again() {
    let Some(lab) = Lab::new("server") else { return };
    let _switch = lab.start_switch();
    for packed in [false, true] {
        let guests = Guests { packed, ..lab.guests(false) };
        until("the sockets", || guests.sockets.iter().all(|socket| socket.exists()));
        for killed in [true, false] {
            let mut testpmd = Testpmd::spawn(guests, lab.directory.path()).ready();
            testpmd.command("start");
            until("frames", || testpmd.received() > 10_000);
            if killed {
                testpmd.kill();
            }
        }
    }
}

#[test]
fn a_switch_that_is_restarted_finds_guests_at_work() {
    let Some(lab) = Lab::new("client") else { return };
    for packed in [false, true] {
        let mut switch = lab.start_switch();
        let guests = Guests { packed, ..lab.guests(true) };
        let mut testpmd = Testpmd::spawn(guests, lab.directory.path()).ready();
        testpmd.command("start");
        until("frames", || testpmd.received() > 10_000);
        for killed in [false, true] {
            let changes = testpmd.link_changes();
            let stopped = Instant::now();
            if killed {
                switch.kill();
            } else {
                switch.stop();
            }
            // This front end is confused if a switch is back before it has noticed the loss.
            until("both links to be down", || testpmd.link_changes() >= changes + 2);
            let received = testpmd.received();
            switch = lab.start_switch();
            until("frames again", || testpmd.received() > received + RING_LEN);
            let (layout, how) = (
                if packed { "packed" } else { "split" },
                if killed { "killed" } else { "stopped" },
            );
            println!("{layout} rings, switch {how}: frames again after {:?}", stopped.elapsed());
        }
    }
}

struct Lab {
    options: &'static str,
    sockets: [PathBuf; 2],
    room: OwnedNamespace,
    directory: TempDir,
}

impl Lab {
    /// With these options of the switch's ports; `None` if it cannot run here.
    fn new(options: &'static str) -> Option<Self> {
        if !can_run(&[]) || !Testpmd::is_there() {
            return None;
        }
        let (room, directory) = (room(), directory());
        let sockets = ["a", "b"].map(|name| directory.path().join(name));
        Some(Self { options, sockets, room, directory })
    }

    /// A learning switch between both guests.
    fn start_switch(&self) -> Daemon {
        let [a, b] = self.sockets.each_ref().map(|socket| socket.display());
        let ports =
            [format!("1=vhost:{a},{}", self.options), format!("2=vhost:{b},{}", self.options)];
        let socket = self.management();
        let args = ["switch", "--socket", &socket, "--port", &ports[0], "--port", &ports[1]];
        let switch = Daemon::tapswitch(&self.room, self.directory.path(), &args);
        until("the switch", || UnixStream::connect(&socket).is_ok());
        switch
    }

    fn guests(&self, server: bool) -> Guests<'_> {
        let sockets = self.sockets.each_ref().map(PathBuf::as_path);
        Guests { sockets, server, packed: false, mergeable: true, in_order: true, queues: 1 }
    }

    fn ports(&self) -> Value {
        tapswitch(&["show", "ports", "--json", "--socket", &self.management()]).json()
    }

    fn management(&self) -> String {
        self.directory.path().join("switch.sock").display().to_string()
    }
}

fn drops(ports: &Value) -> u64 {
    let ports = ports.as_array().unwrap().iter();
    ports.flat_map(|port| port["drops"].as_object().unwrap().values()).map(number).sum()
}

/// Frames that a ring may hold from before.
const RING_LEN: u64 = 1024;
