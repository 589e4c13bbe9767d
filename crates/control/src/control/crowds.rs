//! Too many hosts: the rules for copies of frames to them do not fit.
//!
//! A host takes a rule for each region of a policy that its frames match, and forged hosts cost
//! nothing, so an attacker at one port could displace policies. Before a policy yields, the most
//! crowded ports are reduced to the level of the next ones, but not below [`FEW`]. The hosts seen
//! last are removed, and no others are accepted there for a while; frames to them are flooded, and
//! copied as flooded frames.

use std::collections::BTreeMap;

use tapswitch_openflow::DatapathId;

use super::Control;
use crate::place::Place;
use crate::{Event, Millis};

impl Control {
    /// Makes room at switches with changes.
    pub(super) fn thin_crowds(&mut self) {
        let switches = self.touched.iter().filter_map(|id| self.switches.get_key_value(id));
        let cramped = switches.filter_map(|(id, switch)| {
            let excess = switch.hosts_without_room(&self.limits);
            (excess > 0).then_some((*id, excess))
        });
        for (id, excess) in cramped.collect::<Vec<_>>() {
            self.thin_around(id, excess);
        }
    }

    /// Removes `excess` hosts for the sake of a switch.
    fn thin_around(&mut self, id: DatapathId, excess: usize) {
        let linked = self.switches.iter().filter(|(at, _)| self.routes.connects(**at, id));
        let crowds: BTreeMap<_, _> = linked
            .flat_map(|(at, switch)| {
                let at = *at;
                switch.hosts.by_port().map(move |(port, count)| (Place { switch: at, port }, count))
            })
            .collect();
        let level = level(&crowds, excess);
        for (place, count) in crowds.into_iter().filter(|(_, count)| *count > level) {
            let until = self.now.plus(FULL_FOR);
            let mut gone = Vec::new();
            self.with_switch(place.switch, |switch, _, _| {
                gone = switch.thin_out(place.port, level, until);
            });
            self.tell_thinned(place, (count, level));
            if self.fabric.is_some() {
                // At once: policies of other switches yield as long as these have routes to the
                // hosts.
                gone.into_iter().for_each(|key| self.route_host(key));
            }
        }
    }

    fn tell_thinned(&mut self, place: Place, (count, level): (usize, usize)) {
        let (port, max, seconds) =
            (self.named(place), self.limits.max_tap_rules, FULL_FOR.0 / 1000);
        let reason = format!(
            "there is no room for rules to copy frames to all of {count} hosts at {port} (room for \
             {max} rules): {level} of them are known, and frames to the others are flooded, for at \
             least {seconds} s; find out why there are so many source addresses there, or delete \
             policies"
        );
        self.events.push_back(Event::Crowded { switch: place.switch, reason });
    }
}

/// Limit of hosts per port that removes `excess` hosts from the ports above it.
fn level(crowds: &BTreeMap<Place, usize>, excess: usize) -> usize {
    let gone =
        |level: usize| crowds.values().map(|count| count.saturating_sub(level)).sum::<usize>();
    let (mut low, mut high) = (FEW, crowds.values().copied().max().unwrap_or(FEW).max(FEW));
    while low < high {
        let middle = (low + high).div_ceil(2);
        match gone(middle) >= excess {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    low
}

/// Number of hosts at a port that is no crowd.
const FEW: usize = 64;
/// Time for which a crowded port accepts no more hosts.
const FULL_FOR: Millis = Millis(60_000);

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_openflow::PortNo;

    #[test]
    fn ports_with_the_most_hosts_lose_them_first() {
        let level = |counts: &[usize], excess| {
            let places = (1..).map(|port| Place { switch: DatapathId(1), port: PortNo(port) });
            level(&places.zip(counts.iter().copied()).collect(), excess)
        };
        assert_eq!(level(&[1000, 10], 300), 700);
        assert_eq!(level(&[1000, 800, 10], 300), 750);
        assert_eq!(level(&[1000, 800], 1), 999);
        assert_eq!(level(&[1000, 10], 5000), FEW);
        assert_eq!((level(&[10, 20], 5), level(&[], 5)), (FEW, FEW));
    }
}
