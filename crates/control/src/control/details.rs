//! Details of one switch, or of all ports, on request.

use tapswitch_openflow::DatapathId;

use super::Control;
use crate::StatsToken;
use crate::detail::{PortLoad, SwitchDetails};

impl Control {
    /// Requests all tables of a switch. After [`StatsReady`], [`Self::take_details`] returns them.
    /// `None` for an unknown switch.
    ///
    /// [`StatsReady`]: crate::Event::StatsReady
    pub fn request_details(&mut self, switch: DatapathId) -> Option<StatsToken> {
        let token = self.rounds.next_token();
        let count = self.switches.get_mut(&switch)?.ask_details(token);
        self.turns.add(switch);
        self.await_stats(token, [(switch, count)].into_iter().filter(|(_, n)| *n > 0).collect());
        Some(token)
    }

    /// Requests the port counters of all switches. After [`StatsReady`], [`Self::loads`] returns
    /// the rates between the last two readings.
    ///
    /// [`StatsReady`]: crate::Event::StatsReady
    pub fn request_ports(&mut self) -> StatsToken {
        let token = self.rounds.next_token();
        let awaited = self.ask_each(|_| true, |switch| switch.ask_ports(token));
        self.await_stats(token, awaited);
        token
    }

    /// Details of a switch, with the tables read last, which are returned once.
    pub fn take_details(&mut self, switch: DatapathId) -> Option<SwitchDetails> {
        self.switches.get_mut(&switch).map(crate::switch::Switch::take_details)
    }

    /// Known rates of all ports: switch, port, bytes per second.
    pub fn loads(&self) -> impl Iterator<Item = (DatapathId, u32, PortLoad)> {
        self.switches
            .iter()
            .flat_map(|(id, switch)| switch.loads().map(move |(port, load)| (*id, port.0, load)))
    }
}
