//! IP addresses that a host claims and another one has: whether they moved, or are forged.
//!
//! Addresses are handed out anew, move to the machine that stands in for another, and are forged.
//! So the host that has one is asked for it, several times ([`PACE`]), and what it answers
//! comes to the controller as all ARP and neighbour discovery does. When it claims the address, it
//! keeps it. When it is silent, the address is that of whoever claimed it last, and copies for a
//! monitor that is named by it go there. A switch that is not connected by then proves nothing.
//!
//! Those of other switches that are linked with this one are asked, too. Addresses that are asked
//! for at once are bounded, and those that are claimed behind one port are few of them, so that who
//! forges claims there keeps no others from moving. Addresses that copies go to have room of their
//! own. What more is claimed is a conflict, as before, and asked for when it is claimed again.

use std::net::IpAddr;

use tapswitch_openflow::DatapathId;

use super::Control;
use super::inquiries::{Inquiries, Pace, Stage};
use crate::Millis;
use crate::hosts::{Evidence, HostKey, Sighting};
use crate::place::Place;

/// Addresses whose holders are asked, and who claimed each last.
pub(super) type Claims = Inquiries<Held, Rival>;

/// Who claims an address: which host, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rival {
    at: Place,
    key: HostKey,
}

/// A host of a switch, and the address that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held {
    switch: DatapathId,
    key: HostKey,
    address: IpAddr,
}

impl Control {
    /// The host that has the address which a frame claims, at the switch where it came in.
    pub(super) fn holder_here(&self, at: DatapathId, sighting: &Sighting) -> Option<HostKey> {
        let Some(Evidence::Claim(address)) = sighting.evidence else { return None };
        self.switches.get(&at)?.hosts.holder(address, sighting.key.vlan)
    }

    /// A frame claimed an address, which this host had before at its switch.
    pub(super) fn note_claim(
        &mut self,
        at: DatapathId,
        sighting: &Sighting,
        before: Option<HostKey>,
    ) {
        let (Some(Evidence::Claim(address)), key) = (sighting.evidence, sighting.key) else {
            return;
        };
        let held = Held { switch: at, key, address };
        self.claims.note_answer(held, self.now);
        // Looked up first: to look for holders at all switches takes long, and hosts for which
        // there is no room are forged without end.
        if self.switches.get(&at).is_none_or(|it| it.hosts.find(key).is_none()) {
            return;
        }
        let holder = match before {
            Some(holder) if holder == key => return,
            Some(holder) => Some(Held { key: holder, ..held }),
            None => self.holder_elsewhere(held),
        };
        if let Some(holder) = holder {
            let at = Place { switch: at, port: sighting.port };
            self.contest_claim(holder, Rival { at, key });
        }
    }

    /// Another host that has the address, at another switch of the fabric.
    fn holder_elsewhere(&self, claimed: Held) -> Option<Held> {
        let Held { switch: at, key, address } = claimed;
        let mut others = self.switches.iter().filter(|(id, _)| **id != at);
        others.find_map(|(id, switch)| {
            let holder = switch.hosts.holder(address, key.vlan)?;
            let is_other = holder != key && self.routes.connects(*id, at);
            is_other.then_some(Held { switch: *id, key: holder, address })
        })
    }

    fn contest_claim(&mut self, holder: Held, rival: Rival) {
        if let Some(claim) = self.claims.claim_mut(holder) {
            *claim = rival;
        } else if self.has_room_for(holder, rival) {
            self.claims.begin(holder, rival, self.now);
            self.claims.note_asked(holder, self.now);
            self.ask_holder(holder);
        }
    }

    fn has_room_for(&self, holder: Held, rival: Rival) -> bool {
        let gets_copies = self.policies.copies_to(holder.key.mac, &[holder.address]);
        let max = if gets_copies { MAX_ASKED } else { MAX_ASKED - KEPT };
        let max_at_port = if gets_copies { MAX_AT_PORT + KEPT_AT_PORT } else { MAX_AT_PORT };
        let at_port = self.claims.claims().filter(|claim| claim.at == rival.at).count();
        self.claims.count() < max && at_port < max_at_port
    }

    fn ask_holder(&mut self, Held { switch, key, address }: Held) {
        self.with_switch(switch, |switch, _, _| switch.send_question(key, address));
    }

    /// Ends what has lasted long enough, and asks again.
    pub(super) fn settle_claims(&mut self) {
        for (held, rival, stage) in self.claims.take_over(self.now) {
            if stage != Stage::Answered {
                self.move_address(held, rival);
            }
        }
        self.claims.take_due(self.now).into_iter().for_each(|held| self.ask_holder(held));
    }

    /// A host was silent when it was asked for its address: it is the other's, if that is there.
    fn move_address(&mut self, held: Held, Rival { at, key: rival }: Rival) {
        let (Held { switch, key, address }, at) = (held, at.switch);
        let is_there = |id: DatapathId, key| {
            let switch = self.switches.get(&id);
            switch.is_some_and(|switch| switch.is_up() && switch.hosts.find(key).is_some())
        };
        if is_there(switch, key) && is_there(at, rival) {
            self.with_switch(switch, |switch, _, _| switch.lose_address(key, address));
            self.with_switch(at, |switch, limits, now| {
                switch.take_address(rival, address, limits, now);
            });
        }
    }
}

/// Six times in all, within much longer than a host takes to answer: whoever forges its address may
/// keep its switch busy.
pub(super) const PACE: Pace = Pace { silence: Millis(3000), again: Millis(500) };
/// Addresses whose holders are asked at once.
const MAX_ASKED: usize = 256;
/// Those of them that only addresses have to which copies go.
const KEPT: usize = 64;
/// Addresses that are claimed behind one port, and how many more if copies go to them.
const MAX_AT_PORT: usize = 32;
const KEPT_AT_PORT: usize = 8;
