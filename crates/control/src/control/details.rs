//! Asking one switch, or all ports, for more than is known all the time.

use tapswitch_openflow::DatapathId;

use super::Control;
use crate::StatsToken;
use crate::detail::{PortLoad, SwitchDetails};

impl Control {
    /// Asks a switch for all that it holds. After [`StatsReady`], [`Self::take_details`]
    /// tells it. `None` for a switch that is not known.
    ///
    /// [`StatsReady`]: crate::Event::StatsReady
    pub fn request_details(&mut self, switch: DatapathId) -> Option<StatsToken> {
        let token = self.rounds.next_token();
        let count = self.switches.get_mut(&switch)?.ask_details(token);
        self.turns.add(switch);
        self.await_stats(token, [(switch, count)].into_iter().filter(|(_, n)| *n > 0).collect());
        Some(token)
    }

    /// Asks all switches for the counters of their ports. [`StatsReady`] says when they
    /// came; then [`Self::loads`] tells what passes between the last two times.
    ///
    /// [`StatsReady`]: crate::Event::StatsReady
    pub fn request_ports(&mut self) -> StatsToken {
        let token = self.rounds.next_token();
        let awaited = self.ask_each(|_| true, |switch| switch.ask_ports(token));
        self.await_stats(token, awaited);
        token
    }

    /// A switch in detail, by what it told last. What it holds is told once.
    pub fn take_details(&mut self, switch: DatapathId) -> Option<SwitchDetails> {
        self.switches.get_mut(&switch).map(crate::switch::Switch::take_details)
    }

    /// What passes the ports of all switches, as far as that is known: switch, port, bytes per
    /// second.
    pub fn loads(&self) -> impl Iterator<Item = (DatapathId, u32, PortLoad)> {
        self.switches
            .iter()
            .flat_map(|(id, switch)| switch.loads().map(move |(port, load)| (*id, port.0, load)))
    }
}
