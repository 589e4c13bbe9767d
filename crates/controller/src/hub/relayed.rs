//! Switches that another controller relays to us, or we to another one (`crate::relay`).

use tapswitch_control::SwitchReport;
use tapswitch_openflow::DatapathId;

use super::{Hub, Name};
use crate::news::Order;
use crate::relay::Relay;

const NOT_LEADING: &str = "it was relayed to the leader, which this controller is not";

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

    /// Another controller says that it relays the current connection of a switch. It may not know
    /// yet that this one does not lead.
    pub(super) fn handle_relayed(&mut self, id: DatapathId, by: String) {
        if !self.seat.acts() {
            return self.disconnect(id, NOT_LEADING);
        }
        if let Some(switch) = self.switches.get_mut(&id) {
            tracing::info!("{} is relayed by controller {by}", Name(id));
            switch.through = Some(by.into());
        }
    }

    /// Disconnects the switches that others have relayed here, to whoever leads now.
    pub(super) fn give_back_relayed(&mut self) {
        let relayed = self.switches.iter().filter(|(_, switch)| switch.through.is_some());
        let relayed: Vec<_> = relayed.map(|(id, _)| *id).collect();
        relayed.into_iter().for_each(|id| self.disconnect(id, NOT_LEADING));
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cluster::Standing;
    use crate::hub::tests::{connected, hub};
    use crate::news::{ConnectionId, Input, News};

    const SWITCH: DatapathId = DatapathId(1);

    fn id_of(input: &Input) -> ConnectionId {
        let Input::News { connection, .. } = input else { panic!("{input:?}") };
        *connection
    }

    fn says_relayed(connection: ConnectionId) -> Input {
        let news = News::Relayed { by: "b".to_owned() };
        Input::News { connection, session: 0, switch: SWITCH, news }
    }

    #[tokio::test]
    async fn a_relayed_switch_is_reported_and_gives_way_to_itself() {
        let (mut hub, _keeper) = hub();
        hub.takeover_after = Duration::from_secs(3600);
        let [(relayed, _a), (direct, _b), (late, _c)] = [connected(), connected(), connected()];
        let (first, second, third) = (id_of(&relayed), id_of(&direct), id_of(&late));
        hub.handle(relayed);
        hub.handle(says_relayed(first));
        assert_eq!(hub.switches[&SWITCH].through.as_deref(), Some("b"));
        hub.handle(direct);
        assert_eq!(hub.switches[&SWITCH].connection, second, "at once");
        assert_eq!(hub.switches[&SWITCH].through, None);
        hub.handle(late);
        assert!(hub.contests.contains_key(&SWITCH));
        hub.handle(says_relayed(third));
        assert!(hub.contests.is_empty(), "it is not a second switch");
        assert_eq!(hub.switches[&SWITCH].connection, second);
    }

    #[tokio::test]
    async fn who_does_not_lead_or_leads_no_longer_takes_no_relayed_switches() {
        let (mut hub, _keeper) = hub();
        let [(before, _a), (after, _b)] = [connected(), connected()];
        let (first, second) = (id_of(&before), id_of(&after));
        hub.handle(before);
        hub.handle(says_relayed(first));
        let nobody = Standing::Follower { leader: None, remembers: false };
        hub.begin_session(nobody);
        assert!(hub.switches.is_empty());
        hub.handle(after);
        assert!(hub.switches.contains_key(&SWITCH));
        hub.handle(says_relayed(second));
        assert!(hub.switches.is_empty());
    }
}
