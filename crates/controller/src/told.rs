//! Publishes events about hosts, links and ports.
//!
//! Forged addresses can create host events at any rate: only a limited number is published, and
//! then the number of the others.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tapswitch_control::{Event, MonitorPort};

use crate::journal::{Journal, Kind};

/// Rate limit for host events.
#[derive(Debug)]
pub(crate) struct Chatter {
    /// Tokens left at time `at`.
    left: u32,
    at: Instant,
    untold: u64,
}

impl Chatter {
    pub(crate) const fn new(now: Instant) -> Self {
        Self { left: BURST, at: now, untold: 0 }
    }

    /// Publishes an event if it is about a host, a link or a port and within the limit.
    pub(crate) fn tell(&mut self, journal: &Journal, event: &Event, now: Instant) {
        let Some((kind, mut data)) = describe(event) else { return };
        if kind == Kind::Host {
            if !self.take(now) {
                self.untold += 1;
                return;
            }
            if let Some(members) = data.as_object_mut().filter(|_| self.untold > 0) {
                members.insert("untold".to_owned(), std::mem::take(&mut self.untold).into());
            }
        }
        if let Event::LinkUp { a, b } | Event::LinkDown { a, b } = event {
            let what = if matches!(event, Event::LinkUp { .. }) { "found" } else { "gone" };
            tracing::info!("link {a} – {b} is {what}");
        }
        journal.publish(kind, data);
    }

    fn take(&mut self, now: Instant) -> bool {
        let spans = now.duration_since(self.at).as_millis() / PAUSE.as_millis();
        let spans = u32::try_from(spans).unwrap_or(u32::MAX);
        if spans > 0 {
            self.left = self.left.saturating_add(spans).min(BURST);
            self.at = now;
        }
        let has_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        has_left
    }
}

fn describe(event: &Event) -> Option<(Kind, Value)> {
    let link = |what: &str, a: &MonitorPort, b: &MonitorPort| {
        (Kind::Link, json!({ "what": what, "a": a, "b": b }))
    };
    Some(match event {
        Event::LinkUp { a, b } => link("up", a, b),
        Event::LinkDown { a, b } => link("down", a, b),
        Event::PortChanged { at, is_up } => {
            (Kind::Port, json!({ "what": if *is_up { "up" } else { "down" }, "at_port": at }))
        }
        Event::HostSeen { mac, vlan, at } => {
            let data =
                json!({ "what": "seen", "mac": mac.to_string(), "vlan": vlan, "at_port": at });
            (Kind::Host, data)
        }
        Event::HostMoved { mac, vlan, from, at } => {
            let mac = mac.to_string();
            let data =
                json!({ "what": "moved", "mac": mac, "vlan": vlan, "from": from, "at_port": at });
            (Kind::Host, data)
        }
        Event::HostGone { mac, vlan, at } => {
            let data =
                json!({ "what": "gone", "mac": mac.to_string(), "vlan": vlan, "at_port": at });
            (Kind::Host, data)
        }
        _ => return None,
    })
}

/// Host events allowed at once, and the interval for each further one.
const BURST: u32 = 200;
const PAUSE: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_openflow::DatapathId;

    fn seen() -> Event {
        let at = MonitorPort { switch: DatapathId(1), port: 2, name: "p2".to_owned() };
        Event::HostSeen { mac: "02:00:00:00:00:01".parse().unwrap(), vlan: None, at }
    }

    #[test]
    fn so_many_are_told_and_the_others_counted() {
        let (journal, start) = (Journal::new(4096), Instant::now());
        let mut chatter = Chatter::new(start);
        for _ in 0..BURST + 7 {
            chatter.tell(&journal, &seen(), start);
        }
        assert_eq!(journal.last().len(), BURST as usize);
        chatter.tell(&journal, &seen(), start + PAUSE);
        let last = &journal.last()[0].data;
        assert_eq!((&last["what"], &last["untold"]), (&json!("seen"), &json!(7)));
        assert_eq!(
            (&last["at_port"]["switch"], &last["at_port"]["port"]),
            (&json!("0x1"), &json!(2))
        );
        chatter.tell(&journal, &seen(), start + PAUSE);
        assert_eq!(journal.last().len(), BURST as usize + 1);
    }

    #[test]
    fn links_and_ports_are_told() {
        let journal = Journal::new(8);
        let mut chatter = Chatter::new(Instant::now());
        let at = |port| MonitorPort { switch: DatapathId(1), port, name: String::new() };
        let events = [
            Event::LinkUp { a: at(1), b: at(2) },
            Event::PortChanged { at: at(1), is_up: false },
            Event::SwitchDown { switch: DatapathId(1) },
        ];
        events.iter().for_each(|event| chatter.tell(&journal, event, Instant::now()));
        let told = journal.last();
        let told: Vec<_> = told.iter().map(|entry| (entry.kind, &entry.data["what"])).collect();
        assert_eq!(told, [(Kind::Port, &json!("down")), (Kind::Link, &json!("up"))]);
    }
}
