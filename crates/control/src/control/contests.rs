//! Hosts that receive copies and are seen elsewhere: have they moved, or is their address forged?
//!
//! Other hosts are where they were seen last. For a host that receives copies, a single forged
//! frame would divert these, so it is not accepted at once: the host is probed at its old port, and
//! its source rule is deleted so that its frames are sent to the controller. If it is heard there
//! in time ([`PACE`]), it stays, and [`Event::Contested`] reports the other location, which is not
//! accepted until that time is over. If it is silent, it has moved: a live-migrated guest announces
//! itself at its new location, and sends nothing from the old one.
//!
//! The probe is sent after the switch has confirmed the deletion of the rule, and the time starts
//! then: a forger may keep that switch busy, and an answer that is not sent to the controller does
//! not count. A switch that does not confirm within [`PATIENCE`] proves nothing: the host stays
//! until it is seen elsewhere again.
//!
//! Hosts that receive no copies but move repeatedly are handled in the same way (`moves.rs`).
//!
//! If the old port is down or its switch is disconnected, there is no wait. A host without a known
//! address cannot be probed, so its silence proves nothing: it stays while its port is up, and
//! [`Event::Contested`] reports the other location. A host with addresses that never sends and
//! never answers cannot be distinguished from one that has gone: such a monitor should be named by
//! its port.

use tapswitch_openflow::{DatapathId, PacketIn};

use super::Control;
use super::inquiries::{Inquiries, Pace, Stage};
use super::moves::{self, CALM, MAX_MOVES};
use crate::hosts::{HostKey, Sighting};
use crate::place::Place;
use crate::{Event, Millis};

/// Hosts being probed at their old port; the switch where each was seen last, and the sighting.
pub(super) type Contests = Inquiries<(HostKey, Place), (DatapathId, Sighting)>;

impl Control {
    /// Processes a packet-in that is no discovery probe.
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

    /// Ends contests that are over: hosts that were silent have moved. Probes others again.
    pub(super) fn settle_contests(&mut self) {
        for ((key, home), (at, sighting), stage) in self.contests.take_over(self.now) {
            let has_gone = self.home(key, at).is_none_or(|place| place == home);
            let is_unasked = stage == Stage::Waiting && self.keeps(key, home);
            if is_unasked {
                let rival = Place { switch: at, port: sighting.port };
                self.tell_contested(key, (home, rival), UNASKED);
            }
            if has_gone && !is_unasked && stage != Stage::Answered {
                self.with_switch(at, |switch, limits, now| {
                    switch.handle_sighting(&sighting, limits, now);
                });
            }
            // It stays if its new location has no room, or no connection any more.
            self.with_switch(home.switch, |switch, _, _| switch.know_again(key, home.port));
        }
        for (key, home) in self.contests.take_due(self.now) {
            self.with_switch(home.switch, |switch, _, _| _ = switch.send_questions(key));
        }
    }

    /// Whether a sighting is not accepted for now.
    fn is_contested(&mut self, at: DatapathId, sighting: &Sighting) -> bool {
        let key = sighting.key;
        let Some(home) = self.home(key, at) else { return false };
        if home == (Place { switch: at, port: sighting.port }) {
            self.settle_contest(key, home);
            return false;
        }
        let rival = (at, sighting.clone());
        if let Some(claim) = self.contests.claim_mut((key, home)) {
            *claim = rival;
            return true;
        }
        if self.gets_copies(key, home) {
            self.begin_contest(key, home, rival);
            return true;
        }
        match self.moves.note(key, self.now) {
            moves::Pace::Usual => false,
            moves::Pace::Restless { is_news } => {
                let seen_at = Place { switch: at, port: sighting.port };
                self.hold_restless(key, (home, seen_at), rival, is_news);
                true
            }
        }
    }

    /// Handles a host that moves too often to be accepted at once.
    fn hold_restless(
        &mut self,
        key: HostKey,
        (home, seen_at): (Place, Place),
        rival: (DatapathId, Sighting),
        is_news: bool,
    ) {
        if self.contests.count() < MAX_CONTESTS {
            self.begin_contest(key, home, rival);
        }
        if is_news {
            let (mac, at, other) = (key.mac, self.named(home), self.named(seen_at));
            let seconds = CALM.0 / 1000;
            let reason = format!(
                "{mac} moved {MAX_MOVES} times within {seconds} s, last to {at}, and is now seen \
                 at {other}: until it stays in one place for {seconds} s, it moves only if it no \
                 longer answers at the old one; look for a loop behind these ports, or a duplicate \
                 address"
            );
            self.events.push_back(Event::Contested { switch: seen_at.switch, reason });
        }
    }

    fn begin_contest(&mut self, key: HostKey, home: Place, rival: (DatapathId, Sighting)) {
        self.with_switch(home.switch, |switch, _, _| switch.ask_host(key));
        self.with_switch(rival.0, |switch, _, _| switch.hosts.note_conflict());
        self.contests.begin((key, home), rival, self.now.plus(PATIENCE));
    }

    /// The host was heard at its old port.
    fn settle_contest(&mut self, key: HostKey, home: Place) {
        let refuted = self.contests.note_answer((key, home), self.now);
        let Some((at, Sighting { port, .. })) = refuted.cloned() else { return };
        self.with_switch(home.switch, |switch, _, _| switch.know_again(key, home.port));
        if self.gets_copies(key, home) {
            let rival = Place { switch: at, port };
            self.tell_contested(key, (home, rival), "look for a host with the same address there");
        }
    }

    fn tell_contested(&mut self, key: HostKey, (home, rival): (Place, Place), remedy: &str) {
        let (mac, at, other) = (key.mac, self.named(home), self.named(rival));
        let reason = format!(
            "{mac}, which receives copies, is at {at}, and a host at {other} claims the same \
             address; copies still go to {at}: {remedy}"
        );
        self.events.push_back(Event::Contested { switch: rival.switch, reason });
    }

    /// The location of a host, at this switch or at one connected to it.
    fn home(&self, key: HostKey, seen_at: DatapathId) -> Option<Place> {
        self.place_at(key, seen_at).or_else(|| {
            let other = self.located.find(key)?;
            self.place_at(key, other).filter(|_| self.routes.connects(other, seen_at))
        })
    }

    /// Whether a host that may still be at its port receives copies.
    pub(super) fn gets_copies(&self, key: HostKey, home: Place) -> bool {
        let host = self.switches.get(&home.switch).and_then(|switch| switch.hosts.find(key));
        let is_named = host.is_some_and(|host| {
            let addresses: Vec<_> = host.all_addresses().collect();
            self.policies.copies_to(key.mac, &addresses)
        });
        is_named && self.keeps(key, home)
    }

    fn keeps(&self, key: HostKey, home: Place) -> bool {
        let switch = self.switches.get(&home.switch);
        switch.is_some_and(|switch| switch.keeps_host(key, home.port))
    }
}

/// Three times in total, over many times as long as a host takes to answer.
pub(super) const PACE: Pace = Pace { silence: Millis(1000), again: Millis(400) };
/// Remedy for a host that could not be probed.
const UNASKED: &str = "it could not be probed, because none of its addresses is known or its \
                       switch is busy; if it moved, take its old port down, or name the monitor by \
                       its port; if not, look for a host with the same address there";
/// Maximum contests including hosts without copies; beyond it, these stay.
const MAX_CONTESTS: usize = 256;
/// Maximum wait for its switch before the host is probed; a switch that is slower is detected
/// otherwise.
const PATIENCE: Millis = Millis(5000);
