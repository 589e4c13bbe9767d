//! Conflicting claims to an IP address: has it moved, or is the claim forged?
//!
//! Addresses are reassigned, fail over to another machine, and are forged. So the holder is probed
//! several times ([`PACE`]); its answers reach the controller like all ARP and neighbour discovery.
//! If it claims the address, it keeps it. If it is silent, the latest claimant gets the address,
//! and copies for a monitor named by it go there. The silence of a holder whose switch is
//! disconnected proves nothing.
//!
//! Holders at other connected switches are probed, too. The number of concurrent probes is bounded,
//! with a smaller bound per port, so that forged claims at one port do not block others. Addresses
//! of monitors have reserved room. Claims beyond that count as conflicts, and are probed when they
//! are repeated.

use std::net::IpAddr;

use tapswitch_openflow::DatapathId;

use super::Control;
use super::inquiries::{Inquiries, Pace, Stage};
use crate::Millis;
use crate::hosts::{Evidence, HostKey, Sighting};
use crate::place::Place;

/// Addresses whose holders are being probed, with the latest claimant of each.
pub(super) type Claims = Inquiries<Held, Rival>;

/// The claimant of an address, and its switch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rival {
    at: Place,
    key: HostKey,
}

/// The holder of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Held {
    switch: DatapathId,
    key: HostKey,
    address: IpAddr,
}

impl Control {
    /// The holder of the address claimed by a frame, at the switch where it came in.
    pub(super) fn holder_here(&self, at: DatapathId, sighting: &Sighting) -> Option<HostKey> {
        let Some(Evidence::Claim(address)) = sighting.evidence else { return None };
        self.switches.get(&at)?.hosts.holder(address, sighting.key.vlan)
    }

    /// Records a claim to an address that `held` had before.
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
        // Checked first: searching all switches for holders is slow, and forged hosts without room
        // arrive without end.
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

    /// Another holder of the address, at another switch of the fabric.
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

    /// Ends inquiries that are over, and probes again.
    pub(super) fn settle_claims(&mut self) {
        for (held, rival, stage) in self.claims.take_over(self.now) {
            if stage != Stage::Answered {
                self.move_address(held, rival);
            }
        }
        self.claims.take_due(self.now).into_iter().for_each(|held| self.ask_holder(held));
    }

    /// The holder of an address was silent: the claimant gets the address if it is still there.
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

/// Six times in total, over much longer than a host takes to answer: a forger may keep its switch
/// busy.
pub(super) const PACE: Pace = Pace { silence: Millis(3000), again: Millis(500) };
/// Maximum addresses probed at once.
const MAX_ASKED: usize = 256;
/// Of those, reserved for addresses of monitors.
const KEPT: usize = 64;
/// Maximum addresses claimed behind one port, and additional ones for monitors.
const MAX_AT_PORT: usize = 32;
const KEPT_AT_PORT: usize = 8;
