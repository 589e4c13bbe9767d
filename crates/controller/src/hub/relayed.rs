//! Switches that another controller relays to us, or we to another one (`crate::relay`).

use tapswitch_control::SwitchReport;
use tapswitch_openflow::DatapathId;

use super::{Hub, Name};
use crate::news::Order;
use crate::relay::Relay;

impl Hub {
    /// Relays a switch to the leader. If this controller leads meanwhile, or the switch is gone,
    /// dropping the order says so.
    pub(super) fn relay(&mut self, id: DatapathId, relay: Relay) {
        let is_there = self.switches.contains_key(&id);
        if is_there && !self.seat.acts() {
            tracing::info!("{}: the leader does not have it; relaying it there", Name(id));
            self.order(id, Order::Relay(relay));
        }
    }

    /// Another controller says that it relays the current connection of a switch.
    pub(super) fn handle_relayed(&mut self, id: DatapathId, by: String) {
        if let Some(switch) = self.switches.get_mut(&id) {
            tracing::info!("{} is relayed by controller {by}", Name(id));
            switch.through = Some(by.into());
        }
    }

    /// Reports on switches, with what the control plane does not know.
    pub(super) fn report_switches(&self) -> Vec<SwitchReport> {
        let mut reports = self.control.switches();
        for report in &mut reports {
            let switch = self.switches.get(&report.switch).filter(|_| report.is_connected);
            let through = switch.and_then(|switch| switch.through.as_deref());
            report.through = through.map(str::to_owned);
        }
        reports
    }
}
