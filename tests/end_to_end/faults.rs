//! Faults under traffic: afterwards frames flow again, all frames are accounted for, and the memory
//! of the switch has not grown.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::memory::{AHEAD_LEN, QUEUE_LEN};
use crate::support::*;

mod monitor;
mod namespace;
mod restart;

/// Hosts 1 to 3, where the third gets copies of the traffic from the first to the second; and a
/// program behind port 4 that reads frames on demand.
struct Scene {
    lab: Lab,
    reader: Reader,
    stream: Stream,
    options: &'static str,
    /// The number of the next frame for the program.
    next: u32,
    /// How many of those before it were dropped by name.
    lost: u64,
}

/// Counters of the switch when a fault began.
struct Before {
    dropped: u64,
    ring_full: u64,
    injected: u64,
}

impl Scene {
    /// `options` are those of the program's port.
    fn new(options: &'static str) -> Option<Self> {
        Self::with(Ends::Taps, options)
    }

    fn with(ends: Ends, options: &'static str) -> Option<Self> {
        let lab = Lab::new(Peer::Tapswitch, ends, 3)?;
        lab.introduce(&[1, 2, 3]);
        let reader = Reader::join(&lab, 4, options);
        let stream = Stream::new(lab.host(1), lab.host(2));
        lab.add("tap", &["--src-ip", "10.0.0.1", "--dst-ip", "10.0.0.2", "--monitor", "3"]);
        Some(Self { lab, reader, stream, options, next: 0, lost: 0 })
    }

    /// Starts to send to the program.
    fn feed(&self) -> Feed {
        Feed::start(self.lab.host(1), self.reader.mac, self.next)
    }

    /// Starts traffic that does not concern the program, and that loses nothing.
    fn others(&self) -> Flow {
        Flow::start(&self.stream, self.lab.host(1), self.lab.host(2))
    }

    fn look(&self) -> Before {
        let (dropped, ring_full) = (self.lab.dropped(4), ring_full(&self.lab.port(1)));
        Before { dropped, ring_full, injected: injected(&self.lab) }
    }

    /// Reads until nothing waits. Each frame sent has arrived, in order, or was dropped by name.
    fn settle(&mut self, feed: Feed, before: &Before) {
        let first = std::mem::replace(&mut self.next, feed.finish());
        let mut numbers = Vec::new();
        until("nothing waits", || {
            numbers.extend(self.reader.numbers_for(AWHILE));
            let at_rest =
                conservation::are_closed(&self.lab.ask_switch(&["show", "switch"]).json());
            let after = self.look();
            let lost = after.dropped + after.ring_full - before.dropped - before.ring_full;
            at_rest && numbers.len() as u64 + lost >= u64::from(self.next - first)
        });
        numbers.extend(self.reader.numbers());
        assert!(numbers.is_sorted_by(|a, b| a < b), "in order, each once: {numbers:?}");
        let after = self.look();
        let named = after.dropped + after.ring_full - before.dropped - before.ring_full;
        let lost = u64::from(self.next - first) - numbers.len() as u64;
        // The controller's own packets to that port are dropped as well.
        let probes = after.injected - before.injected;
        assert!((lost..=lost + probes).contains(&named), "{lost} are lost, {named} are named");
        self.lost += lost;
    }

    /// Traffic flows as before the fault, and nothing of it is lost.
    fn assert_flows(&mut self) {
        let (source, from) = (Capture::open(self.lab.host(1)), self.lab.host(1).mac());
        for number in self.next..self.next + 100 {
            // One after the other: however late this test gets a processor, senders do not wait for
            // it.
            source.send(&numbered(self.reader.mac, from, number));
            let mut numbers = Vec::new();
            until("the frame arrives", || {
                numbers.extend(self.reader.numbers());
                !numbers.is_empty()
            });
            assert_eq!(numbers, [number]);
        }
        self.next += 100;
        self.others().finish_after(50);
        self.lab.assert_books_closed();
    }

    /// And the ledger adds up, without losses.
    fn assert_whole(&mut self) {
        self.assert_flows();
        self.lab.assert_conserved();
    }

    fn stalls(&self) -> u64 {
        number(&self.lab.port(4)["pressure"]["stalls"])
    }

    /// True if the first host waits for the program.
    fn is_waited_for(&self) -> bool {
        waits(&self.lab, 1, 4)
    }
}

/// True if a port waits for another one.
fn waits(lab: &Lab, port: u8, other: u8) -> bool {
    let (report, other) = (lab.port(port), other.to_string());
    let pauses = report["pressure"]["waits_for"].as_array().unwrap();
    let is_other = |pause: &&Value| pause["port"] == *other;
    pauses.iter().filter(is_other).any(|pause| number(&pause["now"]) > 0)
}

fn ring_full(port: &Value) -> u64 {
    port["drops"].get("ring_full").map_or(0, number)
}

fn drops(port: &Value, reason: &str) -> u64 {
    port["drops"].get(reason).map_or(0, number)
}

/// Packets that the controller sent on its own.
fn injected(lab: &Lab) -> u64 {
    number(&lab.ask_switch(&["show", "switch"]).json()["books"]["injected"])
}

#[test]
fn a_receiver_that_stops_for_ten_seconds_is_the_only_one_to_lose() {
    let Some(mut scene) = Scene::new("") else { return };
    // Once without measuring, so that all memory that the fault needs is allocated.
    stop_reading(&mut scene, Duration::ZERO);
    let memory = scene.lab.watch_memory();
    stop_reading(&mut scene, Duration::from_secs(10));
    memory.assert_same();
}

/// The program reads nothing until its port has stalled, and for `time` at least.
fn stop_reading(scene: &mut Scene, time: Duration) {
    let memory = scene.lab.watch_memory();
    let (before, stalls, start) = (scene.look(), scene.stalls(), Instant::now());
    let (others, feed) = (scene.others(), scene.feed());
    until("the port has stalled, and nobody waits for it", || {
        scene.stalls() > stalls && drops(&scene.lab.port(4), "egress_stalled") > 0
    });
    while start.elapsed() < time {
        others.go_on(20);
        memory.assert_within(QUEUE_LEN + AHEAD_LEN);
    }
    others.finish_after(200);
    let lost = scene.lost;
    scene.settle(feed, &before);
    assert!(scene.lost > lost, "it was not slow");
    scene.assert_whole();
}

/// The host behind the first port sends more than the switch keeps for the program.
#[test]
fn a_budget_that_is_used_up_is_told_and_given_back() {
    let Some(mut scene) = Scene::new(",stall=10000") else { return };
    use_up(&mut scene);
    let memory = scene.lab.watch_memory();
    (0..3).for_each(|_| use_up(&mut scene));
    memory.assert_same();
}

fn use_up(scene: &mut Scene) {
    let memory = scene.lab.watch_memory();
    let before = scene.look();
    let full = ring_full(&scene.lab.port(1));
    let feed = scene.feed().in_haste();
    until("a full ring", || ring_full(&scene.lab.port(1)) > full);
    assert!(scene.is_waited_for(), "it is not full for another reason");
    memory.assert_within(QUEUE_LEN + AHEAD_LEN);
    scene.settle(feed, &before);
    scene.assert_whole();
}

#[test]
fn a_port_is_removed_with_frames_that_wait_for_it() {
    let Some(mut scene) = Scene::new(",stall=10000") else { return };
    remove_port(&mut scene);
    let memory = scene.lab.watch_memory();
    (0..5).for_each(|_| remove_port(&mut scene));
    memory.assert_same();
}

fn remove_port(scene: &mut Scene) {
    let feed = scene.feed();
    until("the sender waits", || scene.is_waited_for());
    scene.lab.switch_says(&["port", "remove", "4"]);
    // Frames for it are now dropped or flooded.
    scene.others().finish_after(50);
    scene.next = feed.finish();
    scene.lab.assert_books_closed();
    scene.reader.numbers();
    scene.reader.attach(&scene.lab, scene.options);
    scene.assert_whole();
}

#[test]
fn ports_that_are_full_of_each_other_go_on() {
    let Some(mut scene) = Scene::new(",stall=10000") else { return };
    let mut other = Reader::join(&scene.lab, 5, ",stall=10000");
    cross(&mut scene, &mut other);
    let memory = scene.lab.watch_memory();
    (0..3).for_each(|_| cross(&mut scene, &mut other));
    memory.assert_same();
}

/// Both send to each other, and read nothing, until both wait.
fn cross(scene: &mut Scene, other: &mut Reader) {
    let memory = scene.lab.watch_memory();
    for number in 0..CROSSING {
        other.send(&numbered(scene.reader.mac, other.mac, number));
        scene.reader.send(&numbered(other.mac, scene.reader.mac, number));
    }
    until("both wait", || waits(&scene.lab, 4, 5) && waits(&scene.lab, 5, 4));
    scene.others().finish_after(100);
    memory.assert_within(2 * (QUEUE_LEN + AHEAD_LEN));
    let mut numbers = [Vec::new(), Vec::new()];
    until("all that they sent", || {
        numbers[0].extend(scene.reader.numbers());
        numbers[1].extend(other.numbers());
        numbers.iter().all(|numbers| numbers.len() == CROSSING as usize)
    });
    assert!(numbers.into_iter().all(|numbers| numbers.into_iter().eq(0..CROSSING)));
    scene.assert_whole();
}

#[test]
fn an_interface_goes_down_and_up_under_load() {
    for ends in [Ends::Taps, Ends::Veths] {
        let Some(lab) = Lab::new(Peer::Tapswitch, ends, 3) else { return };
        lab.introduce(&[1, 2, 3]);
        lab.add("tap", &["--src-ip", "10.0.0.1", "--dst-ip", "10.0.0.3", "--monitor", "2"]);
        go_down(&lab);
        let memory = lab.watch_memory();
        (0..4).for_each(|_| go_down(&lab));
        memory.assert_same();
    }
}

/// Sets the interface of host 2 down, while the first host sends there, and to others.
fn go_down(lab: &Lab) {
    let (two, mut capture) = (lab.host(2), Capture::open(lab.host(2)));
    let stream = Stream::new(lab.host(1), lab.host(3));
    let others = lab.flow(&stream, 1, 3);
    let feed = Feed::start(lab.host(1), two.mac(), 0);
    let arrived = |capture: &mut Capture| {
        let frames = capture.drain();
        frames.iter().filter_map(|(_, frame)| number_in(frame, two.mac())).max()
    };
    until("frames arrive", || arrived(&mut capture).is_some());
    two.netlink().set_down(&two.interface).unwrap();
    until("the port is down", || lab.port(2)["state"] == "no-link");
    // Frames for it are flooded as soon as the controller has noticed.
    let mark = feed.next();
    until("more is sent", || feed.next() > mark + 200);
    others.go_on(100);
    two.netlink().set_up(&two.interface).unwrap();
    until("the port is up", || lab.port(2)["state"] == "up");
    let (mark, mut capture) = (feed.next(), Capture::open(two));
    until("frames arrive again", || arrived(&mut capture) >= Some(mark));
    feed.finish();
    others.finish_after(50);
    until("the policy is in force", || lab.policy("tap")["state"]["is"] == "active");
    lab.assert_books_closed();
    lab.assert_conserved();
}

/// Time between two readings of the switch's counters.
const AWHILE: Duration = Duration::from_millis(100);
/// Frames that two send to each other: more than their rings hold, less than is read ahead.
const CROSSING: u32 = 1000;
