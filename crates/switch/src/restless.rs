//! Stations that the learning switch sees at two ports in turn: a loop, or two with one address.
//!
//! Frames for such a station go to whichever port it sent from last, so half of them are lost
//! without any port being full.

use tapswitch_datapath::{Restless, VlanKey};
use tapswitch_openflow::PortNo;
use tapswitch_wire::MacAddr;

use crate::server::Server;

impl Server {
    /// Warns about a station that has become restless.
    pub(crate) fn tell_restless(&mut self) {
        let Some(restless) = self.agent.take_restless() else { return };
        let ports = restless.ports.map(|port| self.named(port));
        tracing::warn!("{}", told(restless, &ports));
    }

    /// A port by number and name.
    fn named(&mut self, number: PortNo) -> String {
        let device = self.ports.find_mut(number);
        device.map_or(number.to_string(), |device| format!("{number} ({})", device.spec.name()))
    }
}

fn told(Restless { station, .. }: Restless, [from, to]: &[String; 2]) -> String {
    let vlan = match station.vlan {
        VlanKey::UNTAGGED => String::new(),
        vlan => format!(" in VLAN {vlan}"),
    };
    let hint = match station.mac {
        QEMU_DEFAULT => ": QEMU gives this one to each guest whose -device has no mac=",
        _ => "",
    };
    let (mac, moves, seconds) = (station.mac, Restless::USUAL_MOVES, Restless::PERIOD.0 / 1000);
    format!(
        "{mac}{vlan} moved more than {moves} times within {seconds} s, last from port {from} to \
         port {to}: frames for it are lost; look for a loop behind these ports, or for two hosts \
         with this address{hint}"
    )
}

/// The address of a guest's first interface if QEMU is not given one.
const QEMU_DEFAULT: MacAddr = MacAddr([0x52, 0x54, 0, 0x12, 0x34, 0x56]);

#[cfg(test)]
mod tests {
    use tapswitch_datapath::Station;
    use tapswitch_wire::{EtherType, Tag};

    use super::*;

    fn told_of(mac: MacAddr, vlan: VlanKey) -> String {
        let station = Station { vlan, mac };
        let restless = Restless { station, ports: [PortNo(1), PortNo(2)] };
        told(restless, &["1 (vm0)".to_owned(), "2 (vm1)".to_owned()])
    }

    #[test]
    fn an_address_of_two_guests_is_named() {
        let text = told_of(QEMU_DEFAULT, VlanKey::UNTAGGED);
        assert!(
            text.starts_with("52:54:00:12:34:56 moved more than 5 times within 10 s"),
            "{text}"
        );
        assert!(text.contains("from port 1 (vm0) to port 2 (vm1)"), "{text}");
        assert!(text.ends_with("-device has no mac="), "{text}");
    }

    #[test]
    fn a_vlan_is_named() {
        let vlan = VlanKey::new(Tag::new(EtherType::VLAN, 10), None);
        let text = told_of(MacAddr([2, 0, 0, 0, 0, 1]), vlan);
        assert!(text.starts_with("02:00:00:00:00:01 in VLAN c10 moved"), "{text}");
        assert!(text.ends_with("with this address"), "{text}");
    }
}
