//! Checks of frames that a policy matches and that never occur, or are never copied.

use tapswitch_openflow::PortNo;
use tapswitch_wire::EtherType;

use super::{Control, PolicyEntry};
use crate::family::Family;
use crate::hosts::HostKey;
use crate::place::Place;
use crate::region::{MacMask, Region, Sender};
use crate::{PolicyError, Vlan};

impl Control {
    /// Whether some frames of a policy may come in: not only frames that hosts may not send.
    pub(super) fn check_vlans(&self, entry: &PolicyEntry) -> Result<(), PolicyError> {
        let range = self.limits.copy_vids;
        let reserved = |region: Region| match region.vlan {
            Vlan::Id(id) => range.contains(id).then_some(id),
            _ => None,
        };
        let ids: Option<Vec<_>> = entry.cells.included().map(reserved).collect();
        match ids.as_deref() {
            Some([id, ..]) if self.switches.values().any(|switch| switch.reserves(*id)) => {
                Err(PolicyError::ReservedVlan { id: *id, range })
            }
            _ => Ok(()),
        }
    }

    /// Notes on matched frames that are not copied.
    pub(super) fn notes_on_frames(&self, entry: &PolicyEntry) -> impl Iterator<Item = String> {
        let is_kept = entry.cells.included().any(|region| stays_at_link(&region));
        let kept = is_kept.then(|| KEPT.to_owned());
        let ports = entry.monitor_ports().filter(|place| self.is_own_sender(entry, *place));
        let own: Vec<_> = ports.map(note_on_own_frames).collect();
        kept.into_iter().chain(own)
    }

    /// Whether all matched frames come in by this port, as far as is known.
    fn is_own_sender(&self, entry: &PolicyEntry, monitor: Place) -> bool {
        let Some(switch) = self.switches.get(&monitor.switch) else { return false };
        let is_there = |hosts: &mut dyn Iterator<Item = (HostKey, PortNo)>| {
            let mut hosts = hosts.peekable();
            hosts.peek().is_some() && hosts.all(|(_, port)| port == monitor.port)
        };
        let mut senders = entry.cells.included().map(|region| region.sender()).peekable();
        senders.peek().is_some()
            && senders.all(|sender| match sender {
                Some(Sender::Mac(mac)) => {
                    let hosts = switch.hosts.with_mac(mac);
                    is_there(&mut hosts.map(|(key, host)| (key, host.port)))
                }
                Some(Sender::Ip(ip)) => {
                    let hosts = switch.hosts.with_address(ip);
                    is_there(&mut hosts.map(|(key, host)| (key, host.port)))
                }
                None => false,
            })
    }
}

/// Whether a region has only frames that bridges do not forward.
fn stays_at_link(region: &Region) -> bool {
    let eth_type = region.family.map(Family::eth_type);
    let address = region.dst_mac.and_then(MacMask::exact);
    match address {
        Some(mac) => mac.is_bridge_reserved(),
        None => eth_type.is_some_and(|eth_type| LINK_TYPES.contains(&eth_type)),
    }
}

fn note_on_own_frames(monitor: Place) -> String {
    format!(
        "all its senders are at its monitor's port {monitor}: frames are not copied back to their \
         ingress port"
    )
}

/// LLDP and the slow protocols (including LACP), which are always sent to bridge group addresses.
const LINK_TYPES: [EtherType; 2] = [EtherType::LLDP, EtherType(0x8809)];
const KEPT: &str = "frames to 01:80:c2:00:00:0x (LLDP, STP, LACP, 802.1X) are link-local: switches \
                    do not forward them, and they are not copied";
