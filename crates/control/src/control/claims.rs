//! IP addresses that a host claims and another one has: whether they moved, or are forged.
//!
//! Addresses are handed out anew, move to the machine that stands in for another, and are forged.
//! So the host that has one is asked for it, several times within [`SILENCE`], and what it answers
//! comes to the controller as all ARP and neighbour discovery does. When it claims the address, it
//! keeps it. When it is silent, the address is that of whoever claimed it last, and copies for a
//! monitor that is named by it go there. A switch that is not connected by then proves nothing.
//!
//! Those of other switches that are linked with this one are asked, too. Addresses that are asked
//! for at once are bounded; what more is claimed is a conflict, as before, and asked for when it is
//! claimed again.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tapswitch_openflow::DatapathId;

use super::Control;
use crate::Millis;
use crate::hosts::{Evidence, HostKey, Sighting};

/// Addresses whose holders are asked.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims(BTreeMap<Held, Contest>);

/// A host of a switch, and the address that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    switch: DatapathId,
    key: HostKey,
    address: IpAddr,
}

#[derive(Clone, Copy, Debug)]
struct Contest {
    /// The switch where it was claimed last, and by whom.
    rival: (DatapathId, HostKey),
    until: Millis,
    /// When the holder is asked once more.
    again_at: Option<Millis>,
    /// The holder has claimed it since.
    is_kept: bool,
}

impl Claims {
    /// When something is due.
    pub(super) fn due(&self) -> Option<Millis> {
        let due = self.0.values().flat_map(|contest| [Some(contest.until), contest.again_at]);
        due.flatten().min()
    }
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
        if let Some(contest) = self.claims.0.get_mut(&held) {
            (contest.is_kept, contest.again_at) = (true, None);
        }
        let holder = match before {
            Some(holder) if holder == key => return,
            Some(holder) => Some(Held { key: holder, ..held }),
            None => self.holder_elsewhere(held),
        };
        let is_known = self.switches.get(&at).is_some_and(|it| it.hosts.find(key).is_some());
        if let Some(holder) = holder.filter(|_| is_known) {
            self.contest_claim(holder, (at, key));
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

    fn contest_claim(&mut self, holder: Held, rival: (DatapathId, HostKey)) {
        let is_new = !self.claims.0.contains_key(&holder);
        if is_new && self.claims.0.len() >= MAX_CONTESTS {
            return;
        }
        let (until, again_at) = (self.now.plus(SILENCE), Some(self.now.plus(AGAIN)));
        let contest = Contest { rival, until, again_at, is_kept: false };
        self.claims.0.entry(holder).or_insert(contest).rival = rival;
        if is_new {
            self.ask_holder(holder);
        }
    }

    fn ask_holder(&mut self, Held { switch, key, address }: Held) {
        self.with_switch(switch, |switch, _, _| switch.send_question(key, address));
    }

    /// Asks again, and ends what has lasted long enough.
    pub(super) fn settle_claims(&mut self) {
        let now = self.now;
        if self.claims.due().is_none_or(|due| due > now) {
            return;
        }
        let all = std::mem::take(&mut self.claims.0).into_iter();
        let (over, mut others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            all.partition(|(_, contest)| contest.until <= now);
        let mut asked = Vec::new();
        for (held, contest) in &mut others {
            if contest.again_at.take_if(|at| *at <= now).is_some() {
                contest.again_at = Some(now.plus(AGAIN)).filter(|at| *at < contest.until);
                asked.push(*held);
            }
        }
        self.claims.0 = others;
        asked.into_iter().for_each(|held| self.ask_holder(held));
        let lost = over.into_iter().filter(|(_, contest)| !contest.is_kept);
        lost.for_each(|(held, contest)| self.move_address(held, contest.rival));
    }

    /// A host was silent when it was asked for its address: it is the other's, if that is there.
    fn move_address(&mut self, held: Held, (at, rival): (DatapathId, HostKey)) {
        let Held { switch, key, address } = held;
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

/// For how long a host that is asked is waited for: much longer than one takes to answer, for
/// whoever forges its address may keep its switch busy.
const SILENCE: Millis = Millis(3000);
/// When it is asked again within that time: six times in all.
const AGAIN: Millis = Millis(500);
/// Addresses whose holders are asked at once.
const MAX_CONTESTS: usize = 256;
