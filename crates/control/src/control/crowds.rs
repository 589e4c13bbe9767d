//! Hosts of which there are so many that rules for copies of frames to them do not fit.
//!
//! A host costs a rule for each region of a policy that reaches it, and forged ones cost nothing:
//! so who has a port could push policies out. Before a policy gives way, the ports that have the
//! most hosts have fewer: as many as the next ones, and no less than [`FEW`]. Those that were seen
//! last go, and others are not taken there for a while; frames to them are flooded, and copied as
//! all that is.

use std::collections::BTreeMap;

use tapswitch_openflow::DatapathId;

use super::Control;
use crate::place::Place;
use crate::{Event, Millis};

impl Control {
    /// Makes room at switches for which something changed.
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

    /// So many hosts are too many at a switch.
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
                // At once: policies of other switches give way as long as these know them.
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

/// How many hosts a port may have, so that so many go from those that have more.
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

/// Hosts of a port that are no crowd.
const FEW: usize = 64;
/// For how long no more hosts are taken at a port that had too many.
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
