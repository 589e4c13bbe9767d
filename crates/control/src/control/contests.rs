//! Hosts that get copies and are seen elsewhere: whether they moved, or somebody forges their
//! address.
//!
//! Other hosts are where they were seen last. One frame with the address of a host that gets copies
//! would take those along, so it is not believed at once: the host is asked at home, where it was,
//! and what it sends from there is shown to the controller, for its rule is taken away. When it is
//! heard there within [`SILENCE`], it stays, and [`Event::Contested`] tells of the other place,
//! which is not believed until that time has passed. When it is silent, it has moved: a guest that
//! was moved while it runs says so from its new place, and nothing from the old one.
//!
//! When the port at home is down, or its switch is not connected, nothing is waited for. A host
//! that never sends and answers no question cannot be told from one that has gone: name a monitor
//! of that kind by its port.

use std::collections::BTreeMap;

use tapswitch_openflow::{DatapathId, PacketIn};

use super::Control;
use crate::hosts::{HostKey, Sighting};
use crate::resolve::Place;
use crate::{Event, Millis};

/// The hosts that are asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Contests(BTreeMap<HostKey, Contest>);

#[derive(Clone, Debug)]
struct Contest {
    home: Place,
    /// The switch where it was seen last, and how.
    rival: (DatapathId, Sighting),
    until: Millis,
    /// It was heard at home.
    is_home: bool,
}

impl Contests {
    /// When the next one ends.
    pub(super) fn due(&self) -> Option<Millis> {
        self.0.values().map(|contest| contest.until).min()
    }
}

impl Control {
    /// A switch sent up a frame that shows no link.
    pub(super) fn handle_packet_in(&mut self, at: DatapathId, packet_in: &PacketIn) {
        let mut seen = None;
        self.with_switch(at, |switch, _, _| seen = switch.handle_packet_in(packet_in));
        if let Some(sighting) = seen.filter(|sighting| !self.is_contested(at, sighting)) {
            self.with_switch(at, |switch, limits, now| {
                switch.handle_sighting(&sighting, limits, now);
            });
        }
    }

    /// Ends what has lasted long enough: who was silent at home has moved.
    pub(super) fn end_contests(&mut self) {
        let now = self.now;
        if self.contests.due().is_none_or(|due| due > now) {
            return;
        }
        let all = std::mem::take(&mut self.contests.0).into_iter();
        let (over, others): (BTreeMap<_, _>, _) = all.partition(|(_, it)| it.until <= now);
        self.contests.0 = others;
        for (key, Contest { home, rival: (at, sighting), is_home, .. }) in over {
            let has_gone = self.home(key, at).is_none_or(|place| place == home);
            if !is_home && has_gone {
                self.with_switch(at, |switch, limits, now| {
                    switch.handle_sighting(&sighting, limits, now);
                });
            }
            // It stays where there is no room, or no link any more, at its new place.
            self.with_switch(home.switch, |switch, _, _| switch.know_again(key, home.port));
        }
    }

    /// Whether it is not believed for now that a host is there.
    fn is_contested(&mut self, at: DatapathId, sighting: &Sighting) -> bool {
        let key = sighting.key;
        let Some(home) = self.home(key, at) else { return false };
        if home == (Place { switch: at, port: sighting.port }) {
            self.settle_contest(key, home);
            return false;
        }
        let rival = (at, sighting.clone());
        if let Some(contest) = self.contests.0.get_mut(&key).filter(|contest| contest.home == home)
        {
            contest.rival = rival;
            return true;
        }
        let gets_copies = self.gets_copies(key, home);
        if gets_copies {
            self.begin_contest(key, home, rival);
        }
        gets_copies
    }

    fn begin_contest(&mut self, key: HostKey, home: Place, rival: (DatapathId, Sighting)) {
        let until = self.now.plus(SILENCE);
        self.with_switch(home.switch, |switch, _, _| switch.ask_host(key));
        self.with_switch(rival.0, |switch, _, _| switch.hosts.note_conflict());
        self.contests.0.insert(key, Contest { home, rival, until, is_home: false });
    }

    /// The host was heard where it was.
    fn settle_contest(&mut self, key: HostKey, home: Place) {
        let contest = self.contests.0.get_mut(&key).filter(|contest| contest.home == home);
        let Some(contest) = contest.filter(|contest| !contest.is_home) else { return };
        contest.is_home = true;
        let (at, port) = (contest.rival.0, contest.rival.1.port);
        self.with_switch(home.switch, |switch, _, _| switch.know_again(key, home.port));
        let name = |place: Place| {
            let switch = self.switches.get(&place.switch);
            switch.map_or_else(String::new, |switch| switch.monitor_port(place.port).to_string())
        };
        let reason = format!(
            "{}, to which copies go, is at {}, and somebody at {} says to be it; copies stay: look \
             who has its address there",
            key.mac,
            name(home),
            name(Place { switch: at, port })
        );
        self.events.push_back(Event::Contested { switch: at, reason });
    }

    /// Where a host is that is seen at a switch: there, or at one that is linked with it.
    fn home(&self, key: HostKey, seen_at: DatapathId) -> Option<Place> {
        let at = |switch: DatapathId| {
            let port = self.switches.get(&switch)?.hosts.find(key)?.port;
            Some(Place { switch, port })
        };
        at(seen_at).or_else(|| {
            let other = self.located.find(key)?;
            at(other).filter(|_| self.routes.connects(other, seen_at))
        })
    }

    /// Whether copies go to a host at its place, which it may still be at.
    fn gets_copies(&self, key: HostKey, home: Place) -> bool {
        let switch = self.switches.get(&home.switch);
        let switch = switch.filter(|switch| switch.keeps_host(key.mac, home.port));
        let host = switch.and_then(|switch| switch.hosts.find(key));
        host.is_some_and(|host| self.policies.copies_to(key.mac, &host.addresses))
    }
}

/// For how long a host that is asked is waited for: many times as long as one takes to answer.
const SILENCE: Millis = Millis(1000);
