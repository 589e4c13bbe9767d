//! Tests of link discovery with simulated ports, cables and time.

use super::*;

fn place(switch: u64, port: u32) -> Place {
    Place { switch: DatapathId(switch), port: PortNo(port) }
}

/// A fabric and its cables, each of which works in one direction.
struct Lab {
    fabric: Fabric,
    cables: Vec<(Place, Place)>,
    now: Millis,
    /// Period during which the controller processes no input.
    deaf: u64,
    /// Transit time of a probe in milliseconds, and the probes in transit.
    slow: u64,
    under_way: Vec<(Millis, Place, Vec<u8>)>,
    /// When the switches answer the sweep.
    swept_at: Option<Millis>,
    /// Switch 2 does not answer it.
    is_mute: bool,
}

impl Lab {
    /// Two switches with ports 1 and 2; ports 1 are linked, ports 2 are for hosts.
    fn new() -> Self {
        let cables = vec![(place(1, 1), place(2, 1)), (place(2, 1), place(1, 1))];
        let fabric = Fabric::new(Discovery::new([1; 32]));
        let mut lab = Self {
            fabric,
            cables,
            now: Millis(1000),
            deaf: 0,
            slow: 0,
            under_way: vec![],
            swept_at: None,
            is_mute: false,
        };
        for switch in [1, 2] {
            lab.set_ports(switch, &[1, 2]);
        }
        lab
    }

    fn set_ports(&mut self, switch: u64, ports: &[u32]) -> bool {
        let ports = ports.iter().map(|port| PortNo(*port)).collect();
        self.fabric.set_ports(DatapathId(switch), &ports, self.clock())
    }

    fn clock(&self) -> Clock {
        let listened = Millis(self.now.0 - self.deaf);
        Clock { now: self.now, listened, ns: self.now.0 * 1_000_000 }
    }

    /// Advances time by single milliseconds.
    fn wait(&mut self, millis: u64) {
        for _ in 0..millis {
            self.step();
            self.now = self.now.plus(Millis(1));
        }
    }

    fn step(&mut self) {
        let now = self.clock();
        let (probes, _) = self.fabric.handle_timeout(now);
        let arrival = self.now.plus(Millis(self.slow));
        for ProbeOut { from, frame } in probes {
            let ends = self.cables.iter().filter(|(sender, _)| *sender == from);
            self.under_way.extend(ends.map(|(_, end)| (arrival, *end, frame.clone())));
        }
        self.sweep(arrival);
        for (_, end, frame) in self.under_way.extract_if(.., |(at, ..)| *at <= self.now) {
            self.fabric.handle_lldp(end, &frame, Clock { ns: now.ns + 5000, ..now });
        }
    }

    fn sweep(&mut self, answered_at: Millis) {
        let both = [DatapathId(1), DatapathId(2)];
        if self.fabric.is_sweep_due(self.now) {
            self.fabric.start_sweep(&both.into(), self.now);
            self.swept_at = Some(answered_at);
        }
        if self.swept_at.take_if(|at| *at <= self.now).is_some() {
            let count = if self.is_mute { 1 } else { 2 };
            let answers = both.into_iter().take(count);
            answers.for_each(|switch| self.fabric.handle_swept(switch, self.now));
        }
    }

    fn role(&self, switch: u64, port: u32) -> Role {
        self.fabric.role(place(switch, port))
    }
}

#[test]
fn a_link_is_found_at_once_and_an_edge_after_the_wait() {
    let mut lab = Lab::new();
    lab.wait(1);
    assert_eq!(lab.role(1, 1), Role::Link(place(2, 1)));
    assert_eq!(lab.role(2, 1), Role::Link(place(1, 1)));
    assert_eq!(lab.role(1, 2), Role::Closed);
    lab.wait(301);
    assert_eq!(lab.role(1, 2), Role::Edge);
    let links: Vec<_> = lab.fabric.links().collect();
    assert_eq!(links, [(place(1, 1), place(2, 1), 5000)]);
}

#[test]
fn a_link_goes_with_its_port_and_when_nothing_is_heard() {
    let mut lab = Lab::new();
    lab.wait(400);
    assert!(lab.set_ports(2, &[2]));
    assert_eq!(lab.role(1, 1), Role::Closed, "until it is known what is there now");
    lab.wait(400);
    assert_eq!(lab.role(1, 1), Role::Edge);

    let mut lab = Lab::new();
    lab.wait(400);
    lab.cables.clear();
    lab.wait(500);
    assert_eq!(lab.role(1, 1), Role::Link(place(2, 1)));
    lab.wait(500);
    assert_eq!(lab.fabric.links().count(), 0);
    lab.wait(400);
    assert_eq!(lab.role(1, 1), Role::Edge);
}

#[test]
fn a_link_of_one_direction_is_closed() {
    let mut lab = Lab::new();
    lab.cables.pop();
    lab.wait(1000);
    assert_eq!((lab.role(1, 1), lab.role(2, 1)), (Role::Closed, Role::Closed));
    let is_settled = |switch| lab.fabric.is_settled(DatapathId(switch), lab.now);
    assert!(is_settled(1) && is_settled(2), "more will not be known");
}

#[test]
fn a_controller_that_was_late_gives_up_no_link() {
    let mut lab = Lab::new();
    lab.wait(400);
    lab.now = lab.now.plus(Millis(10_000));
    lab.wait(400);
    assert_eq!(lab.fabric.links().count(), 1);
}

#[test]
fn no_link_is_given_up_by_a_controller_that_does_not_listen() {
    let mut lab = Lab::new();
    lab.wait(400);
    let cables = std::mem::take(&mut lab.cables);
    for _ in 0..2000 {
        lab.wait(1);
        lab.deaf += 1;
    }
    assert_eq!(lab.fabric.links().count(), 1);
    lab.cables = cables;
    lab.wait(400);
    assert_eq!(lab.fabric.links().count(), 1);
    lab.cables.clear();
    // It takes longer with one direction.
    for _ in 0..600 {
        lab.wait(2);
        lab.deaf += 1;
    }
    assert_eq!(lab.fabric.links().count(), 1);
    lab.wait(1000);
    assert_eq!(lab.fabric.links().count(), 0);
}

#[test]
fn where_frames_take_long_silence_means_less() {
    let mut lab = Lab::new();
    lab.wait(400);
    for slow in [100, 300, 600, 1200] {
        lab.slow = slow;
        lab.wait(1000);
        assert_eq!(lab.fabric.links().count(), 1, "{slow} ms");
    }
    lab.slow = 0;
    lab.wait(5000);
    lab.cables.clear();
    lab.wait(1000);
    assert_eq!(lab.fabric.links().count(), 0);
}

#[test]
fn a_link_between_slow_switches_is_never_an_edge() {
    for slow in [250, 400, 1000, 3000] {
        let mut lab = Lab::new();
        lab.slow = slow;
        while lab.role(1, 1) != Role::Link(place(2, 1)) {
            assert_eq!(lab.role(1, 1), Role::Closed, "{slow} ms");
            lab.wait(1);
        }
        lab.wait(10 * slow);
        assert_eq!(lab.role(1, 2), Role::Edge);
    }
}

#[test]
fn frames_that_prove_nothing_are_counted() {
    let mut lab = Lab::new();
    lab.wait(400);
    let at = place(1, 2);
    let now = lab.clock();
    let forger = Signer::new(&[9; 32]);
    let forged = forger.frame(Probe { from: place(2, 2), number: 1 });
    assert!(!lab.fabric.handle_lldp(at, &forged, now));
    let own = Signer::new(&[1; 32]);
    let old = own.frame(Probe { from: place(2, 2), number: 1 });
    assert!(!lab.fabric.handle_lldp(at, &old, now), "a frame of long ago");
    assert!(!lab.fabric.handle_lldp(at, &forged[..20], now));
    let counts = lab.fabric.unproven(DatapathId(1));
    assert_eq!(counts, Unproven { forged: 1, late: 1, foreign: 1 });
    assert_eq!(lab.role(1, 2), Role::Edge);
}

#[test]
fn a_port_in_a_loop_of_its_own_switch_is_no_edge() {
    let mut lab = Lab::new();
    lab.cables = vec![(place(1, 1), place(1, 2)), (place(1, 2), place(1, 1))];
    lab.wait(500);
    assert_eq!(lab.role(1, 1), Role::Link(place(1, 2)));
    assert!(lab.fabric.graph(&BTreeSet::new()).tree().is_empty());
}

#[test]
fn a_port_that_gets_its_own_frames_back_is_closed_and_counted() {
    let mut lab = Lab::new();
    lab.wait(400);
    lab.cables.push((place(1, 2), place(1, 2)));
    lab.wait(10_000);
    assert_eq!(lab.role(1, 2), Role::Closed);
    assert!(lab.fabric.unproven(DatapathId(1)).forged > 10);
    assert_eq!(lab.fabric.links().count(), 1);
    lab.cables.pop();
    lab.wait(2000);
    assert_eq!(lab.role(1, 2), Role::Edge, "it is a host like others again");
}

/// Ports 1 of three switches on a hub, each of which hears the other two.
fn hub() -> Lab {
    let mut lab = Lab::new();
    lab.set_ports(3, &[1, 2]);
    let ends = || (1..=3).map(|switch| place(switch, 1));
    let pairs = ends().flat_map(|from| ends().map(move |to| (from, to)));
    lab.cables = pairs.filter(|(from, to)| from != to).collect();
    lab
}

#[test]
fn ports_of_several_switches_on_one_cable_are_closed_for_as_long() {
    let mut lab = hub();
    lab.wait(400);
    let roles = |lab: &Lab| [1, 2, 3].map(|switch| lab.role(switch, 1));
    for _ in 0..3000 {
        assert_eq!(roles(&lab), [Role::Closed; 3], "at {:?}", lab.now);
        lab.wait(1);
    }
    assert!(lab.fabric.sharing(place(1, 1)).is_some());
    lab.cables.retain(|(from, to)| from.switch.0 < 3 && to.switch.0 < 3);
    lab.wait(1500);
    assert_eq!(roles(&lab)[..2], [Role::Link(place(2, 1)), Role::Link(place(1, 1))]);
    assert_eq!(lab.fabric.sharing(place(1, 1)), None);
}

/// One end of a link that hears a third port is enough.
#[test]
fn a_link_whose_other_end_hears_somebody_else_is_closed() {
    let mut lab = Lab::new();
    lab.set_ports(3, &[1, 2]);
    lab.wait(400);
    lab.cables.push((place(3, 1), place(2, 1)));
    // An edge is probed rarely.
    lab.wait(6000);
    for _ in 0..2000 {
        assert_eq!((lab.role(1, 1), lab.role(2, 1)), (Role::Closed, Role::Closed));
        lab.wait(1);
    }
}

#[test]
fn a_cable_that_leads_elsewhere_is_a_link_again() {
    let mut lab = Lab::new();
    lab.set_ports(3, &[1, 2]);
    lab.wait(400);
    lab.cables = vec![(place(1, 1), place(3, 1)), (place(3, 1), place(1, 1))];
    lab.wait(2000);
    assert_eq!(lab.role(1, 1), Role::Link(place(3, 1)));
}

#[test]
fn a_link_on_which_somebody_sends_frames_back_stays() {
    let mut lab = Lab::new();
    lab.cables.insert(0, (place(1, 1), place(1, 1)));
    lab.wait(1);
    for _ in 0..2000 {
        assert_eq!(lab.role(1, 1), Role::Link(place(2, 1)));
        lab.wait(1);
    }
    assert!(lab.fabric.unproven(DatapathId(1)).forged > 0);
}

/// Whether a link that a switch with a failed connection seems to have lost becomes an edge.
#[test]
fn the_links_of_a_switch_that_does_not_answer_are_in_doubt() {
    let mut lab = Lab::new();
    lab.wait(400);
    let cables = std::mem::take(&mut lab.cables);
    lab.is_mute = true;
    lab.wait(1000);
    for _ in 0..30_000 {
        assert_eq!((lab.role(1, 1), lab.role(1, 2)), (Role::Closed, Role::Edge), "{:?}", lab.now);
        lab.wait(1);
    }
    assert!(lab.fabric.freeze(DatapathId(2), lab.now));
    let link = (Role::Link(place(2, 1)), Role::Link(place(1, 1)));
    assert_eq!((lab.role(1, 1), lab.role(2, 1)), link);
    lab.wait(30_000);
    assert_eq!((lab.role(1, 1), lab.role(2, 1)), link);
    // It is back, and the link is still there.
    (lab.cables, lab.is_mute, lab.slow) = (cables, false, 100);
    lab.set_ports(2, &[1, 2]);
    for _ in 0..1000 {
        assert_eq!((lab.role(1, 1), lab.role(2, 1)), link);
        lab.wait(1);
    }
    // It answers, and the link is gone.
    lab.cables.clear();
    lab.wait(10_000);
    assert_eq!((lab.role(1, 1), lab.role(2, 1)), (Role::Edge, Role::Edge));
}

/// It sends no probes, and does not report any.
#[test]
fn what_a_switch_that_is_away_does_not_hear_says_nothing() {
    let mut lab = Lab::new();
    lab.wait(400);
    lab.fabric.freeze(DatapathId(2), lab.now);
    lab.set_ports(1, &[2]);
    lab.wait(2000);
    assert_eq!((lab.role(2, 1), lab.role(2, 2)), (Role::Closed, Role::Edge));
    assert!(lab.fabric.due.iter().all(|(_, place)| place.switch == DatapathId(1)));
    lab.slow = 50;
    lab.set_ports(1, &[1, 2]);
    lab.set_ports(2, &[1, 2]);
    while lab.role(2, 1) != Role::Link(place(1, 1)) {
        assert_eq!((lab.role(2, 1), lab.role(2, 2)), (Role::Closed, Role::Edge));
        lab.wait(1);
    }
    lab.fabric.freeze(DatapathId(2), lab.now);
    lab.set_ports(1, &[2]);
    lab.set_ports(2, &[1, 2]);
    lab.wait(1000);
    assert_eq!(lab.role(2, 1), Role::Edge, "nothing is there now");
}

#[test]
fn a_port_that_was_new_when_its_switch_went_is_new_when_it_is_back() {
    let mut lab = Lab::new();
    let cables = std::mem::take(&mut lab.cables);
    lab.wait(50);
    lab.fabric.freeze(DatapathId(2), lab.now);
    lab.wait(2000);
    (lab.cables, lab.slow) = (cables, 50);
    lab.set_ports(2, &[1, 2]);
    while lab.role(2, 1) != Role::Link(place(1, 1)) {
        assert_eq!(lab.role(2, 1), Role::Closed);
        lab.wait(1);
    }
}

#[test]
fn of_a_switch_that_is_forgotten_nothing_stays_but_what_others_hear() {
    for has_link in [true, false] {
        let mut lab = Lab::new();
        lab.wait(400);
        lab.fabric.handle_lldp(place(2, 2), &[0; 64], lab.clock());
        lab.fabric.freeze(DatapathId(2), lab.now);
        if !has_link {
            lab.set_ports(1, &[2]);
        }
        lab.fabric.forget(DatapathId(2), lab.now);
        let left: Vec<_> = lab.fabric.of_switch(DatapathId(2)).map(|(place, _)| place).collect();
        let is_frozen = lab.fabric.is_frozen(DatapathId(2));
        let of_link = if has_link { vec![place(2, 1)] } else { vec![] };
        assert_eq!((left, is_frozen), (of_link, has_link));
        assert_eq!(lab.fabric.unproven(DatapathId(2)), Unproven::default());
        assert!(lab.fabric.due.iter().all(|(_, place)| place.switch == DatapathId(1)));
        let peer = if has_link { Role::Link(place(2, 1)) } else { Role::Closed };
        assert_eq!(lab.role(1, 1), peer);
    }
}
