//! Several controllers that share a store in etcd: one leads. When it or etcd fails, or comes back
//! late, traffic and copies are not affected.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::*;

const RING: [(u8, u8); 3] = [(1, 2), (2, 3), (3, 1)];

#[test]
fn leaders_are_killed_under_traffic_and_churn() {
    let Some(fabric) = Fabric::with_cluster(&[Kind::Ours; 3], &RING) else { return };
    leaders_are_killed(fabric, 2);
}

#[test]
fn a_leader_of_open_vswitch_is_killed_under_traffic_and_churn() {
    let kinds = [Kind::OpenVswitch, Kind::Ours, Kind::OpenVswitch];
    let Some(fabric) = Fabric::with_cluster(&kinds, &RING) else { return };
    leaders_are_killed(fabric, 1);
}

fn leaders_are_killed(mut fabric: Fabric, count: usize) {
    let watch = Watch::start(&fabric);
    followers_say_who_leads(fabric.cluster());
    let mut churn = Churn::default();
    for _ in 0..count {
        let leader = fabric.cluster().wait_for_leader(&[]).0;
        let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
        let churn_on = |count| {
            let goal = answered.load(Ordering::Relaxed) + count;
            until("policies come and go", || answered.load(Ordering::Relaxed) >= goal);
        };
        // Requests are in progress at that moment.
        std::thread::scope(|scope| {
            let churning = scope.spawn(|| churn.run(fabric.cluster(), &stop, &answered));
            // Otherwise a failed test would wait for that.
            let _end = OnDrop(|| stop.store(true, Ordering::Relaxed));
            churn_on(10);
            watch.flow.go_on(100);
            fabric.cluster().signal_controller(leader, Signal::KILL);
            let killed_at = Instant::now();
            let next = fabric.cluster().wait_for_leader(&[leader]).0;
            let elected = killed_at.elapsed();
            add_and_delete(&fabric, next);
            let changed = killed_at.elapsed();
            println!("elected after {elected:.1?}, a policy was added after {changed:.1?}");
            assert!(elected < Duration::from_secs(10), "{elected:?}");
            churn_on(10);
            watch.flow.go_on(100);
            stop.store(true, Ordering::Relaxed);
            churning.join().unwrap();
        });
        fabric.cluster_mut().kill_controller(leader);
        churn.check(&fabric);
    }
    watch.finish(&fabric);
    let verified = {
        let cluster = fabric.cluster();
        tapswitch(&["audit", "--verify", "--socket", &cluster.socket(cluster.leader(&[]).unwrap())])
    };
    assert!(verified.well().starts_with("intact up to record"), "one log over all leaders");
}

/// Checks that a policy can be added and deleted at this controller.
fn add_and_delete(fabric: &Fabric, leader: usize) {
    let policy = json!({"name": "next", "dst-port": 9, "monitor": "0x2/2"});
    until("the new leader adds a policy", || {
        let said = fabric.cluster().rest(leader, "POST", "/policies", Some(&policy));
        said.is_some_and(|(status, _)| status == 201 || status == 409)
    });
    until("it deletes it", || {
        let said = fabric.cluster().rest(leader, "DELETE", "/policies/next", None);
        said.is_some_and(|(status, _)| status == 200 || status == 404)
    });
}

fn followers_say_who_leads(cluster: &Cluster) {
    let leader = cluster.wait_for_leader(&[]).0;
    let rest = format!("http://127.0.0.1:{}", 8653 + leader);
    for follower in (0..3).filter(|number| *number != leader) {
        until("the follower knows who leads", || {
            let (_, told) = cluster.rest(follower, "GET", "/cluster", None).unwrap();
            told["role"] == "follower" && told["leader"]["rest"] == rest.as_str()
        });
        for (method, path) in [("GET", "/policies"), ("DELETE", "/policies/standing")] {
            let (status, refusal) = cluster.rest(follower, method, path, None).unwrap();
            let error = &refusal["error"];
            assert_eq!((status, &error["code"]), (421, &json!("not-leader")), "{refusal}");
            assert_eq!(error["leader"], rest.as_str(), "{refusal}");
        }
        cluster.ask(follower, &["policy", "list"]).refused(&["is not the leader", &rest]);
    }
}

#[test]
fn a_leader_that_was_stopped_comes_back_and_changes_nothing() {
    let Some(fabric) = Fabric::with_cluster(&[Kind::Ours; 3], &RING) else { return };
    let cluster = fabric.cluster();
    let watch = Watch::start(&fabric);
    let old = cluster.wait_for_leader(&[]).0;
    cluster.signal_controller(old, Signal::STOP);
    let late = json!({"name": "late", "dst-port": 7, "monitor": "0x2/2"});
    std::thread::scope(|scope| {
        // The request waits in the socket of the old leader, which does not know of the new one.
        let asked = scope.spawn(|| cluster.rest(old, "POST", "/policies", Some(&late)).unwrap());
        let (new, took) = cluster.wait_for_leader(&[old]);
        println!("elected after {took:.1?}");
        watch.flow.go_on(100);
        let policy = json!({"name": "after", "dst-port": 8, "monitor": "0x2/2"});
        let added = cluster.rest(new, "POST", "/policies", Some(&policy)).unwrap();
        assert_eq!(added.0, 201, "{}", added.1);
        let rules = all_rules(&fabric);
        cluster.signal_controller(old, Signal::CONT);
        let (status, answer) = asked.join().unwrap();
        assert!([421, 503].contains(&status), "{status} {answer}");
        until("the old leader follows", || {
            let report = cluster.ask(old, &["show", "controller"]).json();
            report["role"] == "follower" && !report["leader"].is_null()
        });
        watch.flow.go_on(100);
        assert_eq!(all_rules(&fabric), rules, "nothing was changed");
        assert_eq!(names(&cluster.ask(new, &["policy", "list"]).json()), ["after", "standing"]);
    });
    watch.finish(&fabric);
}

#[test]
fn a_leader_that_is_cut_off_from_etcd_changes_nothing() {
    let Some(fabric) = Fabric::with_cluster(&[Kind::Ours; 3], &RING) else { return };
    let cluster = fabric.cluster();
    let watch = Watch::start(&fabric);
    let old = cluster.wait_for_leader(&[]).0;
    cluster.cut_off(old, Side::Etcd);
    let late = json!({"name": "late", "dst-port": 7, "monitor": "0x2/2"});
    std::thread::scope(|scope| {
        // The old leader still believes that it leads, for a while.
        let asked = scope.spawn(|| cluster.rest(old, "POST", "/policies", Some(&late)).unwrap());
        let (new, took) = cluster.wait_for_leader(&[old]);
        println!("elected after {took:.1?}");
        add_and_delete(&fabric, new);
        let policy = json!({"name": "after", "dst-port": 8, "monitor": "0x2/2"});
        assert_eq!(cluster.rest(new, "POST", "/policies", Some(&policy)).unwrap().0, 201);
        let rules = all_rules(&fabric);
        let (status, answer) = asked.join().unwrap();
        assert_eq!(status, 503, "{answer}");
        until("the old leader steps down", || {
            cluster.ask(old, &["show", "controller"]).json()["role"] == "follower"
        });
        watch.flow.go_on(100);
        // Its delayed writes may arrive now.
        cluster.join_again(old, Side::Etcd);
        until("the old leader knows the new one", || {
            !cluster.ask(old, &["show", "controller"]).json()["leader"].is_null()
        });
        watch.flow.go_on(100);
        assert_eq!(all_rules(&fabric), rules, "nothing was changed");
        assert_eq!(names(&cluster.ask(new, &["policy", "list"]).json()), ["after", "standing"]);
    });
    watch.finish(&fabric);
}

#[test]
fn a_leader_that_is_cut_off_from_the_switches_makes_room() {
    let Some(fabric) = Fabric::with_cluster(&[Kind::Ours; 3], &RING) else { return };
    let cluster = fabric.cluster();
    let watch = Watch::start(&fabric);
    let old = cluster.wait_for_leader(&[]).0;
    cluster.cut_off(old, Side::Switches);
    let (new, took) = cluster.wait_for_leader(&[old]);
    println!("elected after {took:.1?}");
    add(&fabric, "after");
    until("the old leader follows", || {
        cluster.ask(old, &["show", "controller"]).json()["role"] == "follower"
    });
    watch.flow.go_on(100);
    cluster.join_again(old, Side::Switches);
    watch.flow.go_on(100);
    let leads = cluster.ask(new, &["show", "controller"]).json();
    assert_eq!(leads["role"], "leader", "it goes on when the old one is back");
    assert_eq!(names(&cluster.ask(new, &["policy", "list"]).json()), ["after", "standing"]);
    watch.finish(&fabric);
}

/// The rules of all switches, without counters.
fn all_rules(fabric: &Fabric) -> Vec<Value> {
    let rules = |number: u8| {
        let mut rules = fabric.ask_switch(number, &["show", "flows"]).json();
        for rule in rules.as_array_mut().unwrap() {
            let rule = rule.as_object_mut().unwrap();
            let fixed = ["table", "priority", "match", "actions", "cookie"];
            rule.retain(|name, _| fixed.contains(&name.as_str()));
            assert_eq!(rule.len(), fixed.len(), "{rule:?}");
        }
        rules
    };
    (1..=3).map(rules).collect()
}

#[test]
fn etcd_may_go_and_come_back() {
    let Some(mut fabric) = Fabric::with_cluster(&[Kind::Ours; 2], &[(1, 2)]) else { return };
    let watch = Watch::start(&fabric);
    fabric.cluster_mut().kill_member(0);
    add(&fabric, "one-is-gone");
    watch.flow.go_on(100);
    fabric.cluster_mut().kill_member(1);
    let rules = |fabric: &Fabric| fabric.ask_switch(1, &["show", "groups"]).json();
    let cluster = fabric.cluster();
    let policy = json!({"name": "most-are-gone", "dst-port": 7, "monitor": "0x2/2"});
    let leader = cluster.leader(&[]).unwrap();
    let (status, refusal) = cluster.rest(leader, "POST", "/policies", Some(&policy)).unwrap();
    assert_eq!(status, 503, "{refusal}");
    let code = refusal["error"]["code"].as_str().unwrap();
    let said = refusal["error"]["message"].as_str().unwrap();
    // Either the leader cannot write, or it has already stepped down.
    assert!(["store-unavailable", "no-leader"].contains(&code), "{refusal}");
    for part in ["most of its members", "stay in effect"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(code == "no-leader" || said.contains("may have been written"), "{said}");
    until("nobody leads", || cluster.leader(&[]).is_none());
    watch.flow.go_on(100);
    // The last leader still answers read requests.
    let told = (0..3).filter_map(|number| {
        let (status, page) = cluster.rest(number, "GET", "/policies", None)?;
        (status == 200).then_some(page)
    });
    let told: Vec<_> = told.collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["total"], 2, "{told:?}");
    assert!(!rules(&fabric).as_array().unwrap().is_empty(), "what is in force stays");
    fabric.cluster_mut().start_member(0);
    add(&fabric, "all-is-well");
    let mut there = names(&fabric.ask(&["policy", "list"]).json());
    // etcd may have recorded the change, and applied it later: the refusal says so.
    there.retain(|name| name != "most-are-gone");
    assert_eq!(there, ["all-is-well", "one-is-gone", "standing"]);
    watch.finish(&fabric);
}

/// Adds a policy at the current leader, as soon as that is possible.
pub(crate) fn add(fabric: &Fabric, name: &str) {
    let policy = json!({"name": name, "dst-port": 7, "monitor": "0x2/2"});
    until("a policy is added", || {
        let leader = fabric.cluster().wait_for_leader(&[]).0;
        let said = fabric.cluster().rest(leader, "POST", "/policies", Some(&policy));
        said.is_some_and(|(status, _)| status == 201 || status == 409)
    });
}

pub(crate) fn names(policies: &Value) -> Vec<String> {
    let names = policies.as_array().unwrap().iter();
    let mut names: Vec<_> =
        names.map(|one| one["policy"]["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

/// A stream between hosts that is copied from start to end.
pub(crate) struct Watch {
    pub(crate) flow: Flow,
    stream: Stream,
    monitor: Capture,
}

impl Watch {
    pub(crate) fn start(fabric: &Fabric) -> Self {
        fabric.introduce();
        let stream = Stream::new(fabric.host(1), fabric.host(2));
        let last = u8::try_from(fabric.hosts.len()).unwrap();
        let monitor = Capture::open(fabric.monitor(last));
        let flow = fabric.flow(&stream);
        let place = format!("{last:#x}/2");
        fabric.add("standing", &["--src-ip", "10.0.0.1", "--ip-proto", "udp", "--monitor", &place]);
        flow.go_on(50);
        Self { flow, stream, monitor }
    }

    /// Checks that each frame has arrived (by the flow), and one copy of each since the first; how
    /// soon copies start is tested elsewhere.
    pub(crate) fn finish(mut self, fabric: &Fabric) {
        self.flow.go_on(100);
        let total = self.flow.finish();
        fabric.settle();
        let mut copies = Vec::new();
        until("the last copy arrives", || {
            copies.extend(self.monitor.numbers(&self.stream));
            copies.contains(&(total - 1))
        });
        let missing = |copies: &[u32]| {
            let first = copies.iter().min().copied().unwrap_or_default();
            (first..total).filter(|number| !copies.contains(number)).collect::<Vec<_>>()
        };
        if !fabric.keeps_order() {
            // It may have overtaken others.
            until("all copies arrive", || {
                copies.extend(self.monitor.numbers(&self.stream));
                missing(&copies).is_empty()
            });
        }
        let missing = missing(&copies);
        let copies = fabric.in_order(copies);
        let broken = copies.windows(2).find(|pair| pair[0] + 1 != pair[1]);
        assert_eq!(broken, None, "each copy once, in order, of {total}; missing: {missing:?}");
        println!("{total} frames, {} copies, each once", copies.len());
    }
}

/// Does something when it is dropped.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// Policies that come and go by REST, at the current leader.
#[derive(Default)]
struct Churn {
    count: usize,
    /// Policies whose addition was confirmed.
    added: BTreeSet<String>,
    /// Policies that may exist or not: their request was not answered.
    unsure: BTreeSet<String>,
}

impl Churn {
    /// `answered` counts confirmed additions.
    fn run(&mut self, cluster: &Cluster, stop: &AtomicBool, answered: &AtomicUsize) {
        let mut at = 0;
        while !stop.load(Ordering::Relaxed) {
            self.count += 1;
            let name = format!("churn-{}", self.count);
            let port = 1000 + self.count;
            let policy = json!({"name": name, "dst-port": port, "monitor": "0x2/2"});
            match cluster.rest(at, "POST", "/policies", Some(&policy)) {
                Some((201, _)) => _ = self.added.insert(name.clone()),
                // Refused: the leader does not know the monitor yet.
                Some((422, _)) => continue,
                // The policy may exist: a leader leaves what it has written to the next one.
                Some((421 | 503, _)) | None => {
                    self.unsure.insert(name);
                    at = (at + 1) % 3;
                    continue;
                }
                Some((status, answer)) => panic!("{status} {answer}"),
            }
            answered.fetch_add(1, Ordering::Relaxed);
            if self.count.is_multiple_of(2) {
                self.added.remove(&name);
                match cluster.rest(at, "DELETE", &format!("/policies/{name}"), None) {
                    Some((200, _)) => {}
                    _ => _ = self.unsure.insert(name),
                }
            }
        }
    }

    /// Checks that every confirmed change is in force.
    fn check(&self, fabric: &Fabric) {
        assert!(self.added.len() > 5, "{:?}", self.added);
        let policies = eventually("all policies are in force", || {
            let policies = fabric.ask(&["policy", "list"]).json();
            let policies = policies.as_array().unwrap().clone();
            policies.iter().all(|one| one["state"]["is"] == "active").then_some(policies)
        });
        let there: BTreeSet<_> = names(&policies.into()).into_iter().collect();
        let sure = |names: &BTreeSet<String>| {
            let names = names.iter().filter(|name| name.starts_with("churn"));
            names.filter(|name| !self.unsure.contains(*name)).cloned().collect::<Vec<_>>()
        };
        assert_eq!(sure(&there), sure(&self.added));
        assert!(there.contains("standing"));
        println!("{} policies asked for, {} there", self.count, there.len());
    }
}
