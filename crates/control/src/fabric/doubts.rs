//! Links that fell silent because the connection to one of their switches has failed, which takes
//! longer to be noticed than the silence.
//!
//! Neither end reports any probe then, as if the link were gone, while the switch goes on
//! forwarding. So it is given up like any link that is silent, but its ports are no edges while
//! that switch does not answer, or is disconnected: as edges, two of its neighbours would close a
//! loop through it. When it is disconnected in the end, its links are as uncertain as those of
//! every disconnected switch, and count again as the last resort.

use tapswitch_openflow::DatapathId;

use super::{Fabric, Heard, Port};
use crate::Millis;
use crate::place::Place;

impl Fabric {
    /// Whether a port that had a link may be silent because one of the two switches is.
    pub(super) fn is_doubtful(&self, place: Place, port: &Port) -> bool {
        let is_mute = |at: Place| self.is_frozen(at.switch) || self.sweeps.is_silent(at.switch);
        port.lost.is_some_and(|lost| is_mute(place) || is_mute(lost.from))
    }

    /// A switch was disconnected: its links that had fallen silent at both ends are as they were.
    /// Returns whether there are any.
    pub(super) fn restore_lost(&mut self, switch: DatapathId, now: Millis) -> bool {
        let lost = |place: &Place| Some((*place, self.ports.get(place)?.lost?));
        let own = self.of_switch(switch).filter_map(|(place, _)| lost(&place));
        let ends = own.filter_map(|(place, heard)| {
            let (peer, back) = lost(&heard.from)?;
            (back.from == place && peer != place).then_some([(place, heard), (peer, back)])
        });
        let ends: Vec<_> = ends.flatten().collect();
        for (place, heard) in &ends {
            self.hear(*place, Some(*heard));
        }
        let places: Vec<_> = ends.into_iter().map(|(place, _)| place).collect();
        self.update_roles(&places, now)
    }

    /// A port is probed again after a while: who heard it before has not missed anything yet.
    pub(super) fn hear_anew(&mut self, from: Place, listened: Millis) {
        for hearer in self.hearers.get(&from).into_iter().flatten() {
            let port = self.ports.get_mut(hearer);
            for heard in port.into_iter().flat_map(|port| [&mut port.heard, &mut port.other]) {
                let heard = heard.as_mut().filter(|heard| heard.from == from);
                heard.into_iter().for_each(|heard: &mut Heard| heard.at = listened);
            }
        }
    }
}
