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
//! It is asked when its switch confirmed that the rule is away, and its time begins then: whoever
//! forges its address may keep that switch busy, too, and an answer that is not shown is none. A
//! switch that does not confirm within [`PATIENCE`] proves nothing: the host stays until somebody
//! says again that it is elsewhere.
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
    /// Its answers are shown since it was asked.
    is_asked: bool,
    /// When it is asked once more.
    again_at: Option<Millis>,
    /// It was heard at home.
    is_home: bool,
}

impl Contests {
    /// When the next one ends.
    fn end(&self) -> Option<Millis> {
        self.0.values().map(|contest| contest.until).min()
    }

    /// When something is due.
    pub(super) fn due(&self) -> Option<Millis> {
        let again = self.0.values().filter_map(|contest| contest.again_at);
        self.end().into_iter().chain(again).min()
    }

    /// A switch asked a host, and will show its answer.
    pub(super) fn handle_asked(&mut self, key: HostKey, at: DatapathId, now: Millis) {
        let contest = self.0.get_mut(&key).filter(|contest| contest.home.switch == at);
        if let Some(contest) = contest.filter(|contest| !contest.is_home) {
            contest.is_asked = true;
            (contest.until, contest.again_at) = (now.plus(SILENCE), Some(now.plus(AGAIN)));
        }
    }
}

impl Control {
    /// A switch sent up a frame that shows no link.
    pub(super) fn handle_packet_in(&mut self, at: DatapathId, packet_in: &PacketIn) {
        let mut seen = None;
        self.with_switch(at, |switch, _, _| seen = switch.handle_packet_in(packet_in));
        if let Some(sighting) = seen.filter(|sighting| !self.is_contested(at, sighting)) {
            let holder = self.holder_here(at, &sighting);
            self.with_switch(at, |switch, limits, now| {
                switch.handle_sighting(&sighting, limits, now);
            });
            self.note_claim(at, &sighting, holder);
        }
    }

    /// Ends what has lasted long enough: who was silent at home has moved.
    pub(super) fn end_contests(&mut self) {
        let now = self.now;
        if self.contests.end().is_none_or(|end| end > now) {
            return;
        }
        let all = std::mem::take(&mut self.contests.0).into_iter();
        let (over, others): (BTreeMap<_, _>, _) = all.partition(|(_, it)| it.until <= now);
        self.contests.0 = others;
        for (key, contest) in over {
            let Contest { home, rival: (at, sighting), is_home, is_asked, .. } = contest;
            let has_gone = self.home(key, at).is_none_or(|place| place == home);
            let is_heard = is_asked || !self.keeps(key, home);
            if !is_home && has_gone && is_heard {
                self.with_switch(at, |switch, limits, now| {
                    switch.handle_sighting(&sighting, limits, now);
                });
            }
            // It stays where there is no room, or no link any more, at its new place.
            self.with_switch(home.switch, |switch, _, _| switch.know_again(key, home.port));
        }
    }

    /// Asks those again that did not answer yet: a question may be lost, or its answer.
    pub(super) fn ask_once_more(&mut self) {
        let now = self.now;
        let mut due = Vec::new();
        for (key, contest) in &mut self.contests.0 {
            if contest.again_at.take_if(|at| *at <= now).is_some() {
                due.push((*key, contest.home.switch));
                contest.again_at = Some(now.plus(AGAIN)).filter(|at| *at < contest.until);
            }
        }
        for (key, home) in due {
            self.with_switch(home, |switch, _, _| switch.send_questions(key));
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
        let until = self.now.plus(PATIENCE);
        self.with_switch(home.switch, |switch, _, _| switch.ask_host(key));
        self.with_switch(rival.0, |switch, _, _| switch.hosts.note_conflict());
        let (is_asked, again_at, is_home) = (false, None, false);
        self.contests.0.insert(key, Contest { home, rival, until, is_asked, again_at, is_home });
    }

    /// The host was heard where it was.
    fn settle_contest(&mut self, key: HostKey, home: Place) {
        let contest = self.contests.0.get_mut(&key).filter(|contest| contest.home == home);
        let Some(contest) = contest.filter(|contest| !contest.is_home) else { return };
        (contest.is_home, contest.again_at) = (true, None);
        contest.until = contest.until.min(self.now.plus(SILENCE));
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
        let host = self.switches.get(&home.switch).and_then(|switch| switch.hosts.find(key));
        let is_named = host.is_some_and(|host| {
            let addresses: Vec<_> = host.all_addresses().collect();
            self.policies.copies_to(key.mac, &addresses)
        });
        is_named && self.keeps(key, home)
    }

    fn keeps(&self, key: HostKey, home: Place) -> bool {
        let switch = self.switches.get(&home.switch);
        switch.is_some_and(|switch| switch.keeps_host(key.mac, home.port))
    }
}

/// For how long a host that is asked is waited for: many times as long as one takes to answer.
const SILENCE: Millis = Millis(1000);
/// When it is asked again within that time: three times in all.
const AGAIN: Millis = Millis(400);
/// For how long its switch is waited for, before it is asked: what it does not do for longer is
/// found out otherwise.
const PATIENCE: Millis = Millis(5000);
