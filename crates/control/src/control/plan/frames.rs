//! Frames to be traced in a proof: from hosts named by policies, hosts beside monitors, and others,
//! to the same hosts, to an unknown address and to broadcast.

use std::collections::BTreeSet;
use std::net::IpAddr;

use tapswitch_openflow::{Match, Oxm};
use tapswitch_wire::MacAddr;

use crate::IpPrefix;
use crate::control::Control;
use crate::control::roster::PolicyEntry;
use crate::hosts::{Host, HostKey};
use crate::place::Place;
use crate::proof::Sample;
use crate::region::{MacMask, Region};
use crate::switch::Switch;

/// Senders and receivers.
pub(super) struct Stations {
    pub(super) senders: Vec<(HostKey, Place)>,
    receivers: BTreeSet<MacAddr>,
}

/// Hosts for proofs of any policy.
pub(super) struct Bystanders {
    /// Ports of monitors.
    busy: BTreeSet<Place>,
    /// One host at no monitor port, for each of the first few switches.
    others: Vec<(HostKey, Place)>,
    /// The same at a monitor port.
    monitors: Vec<(HostKey, Place)>,
}

impl Control {
    /// Collects hosts for proofs of any policy.
    pub(super) fn bystanders(&self) -> Bystanders {
        let monitors = self.policies.iter().take(MAX_COMPARED).flat_map(PolicyEntry::monitor_ports);
        let busy = monitors.collect();
        let of_first = |wants_monitors| {
            let switches = self.switches.values().filter(|switch| switch.is_settled());
            let hosts = switches.filter_map(|at| some_host(at, &[&busy], wants_monitors));
            hosts.take(MAX_HOSTS).collect()
        };
        let [others, monitors] = [false, true].map(of_first);
        Bystanders { busy, others, monitors }
    }

    /// Hosts for frames of this policy, named and others: `sender_count` senders, and somewhat more
    /// receivers.
    pub(super) fn stations(
        &self,
        about: &PolicyEntry,
        (bystanders, sender_count): (&Bystanders, usize),
    ) -> Stations {
        let mut seen = BTreeSet::new();
        let named = self.hosts_named_by(about).into_iter();
        let hosts = named.chain(self.some_hosts(about, bystanders));
        let hosts = hosts.filter(|(key, _)| seen.insert(*key)).take(sender_count.max(FEW_HOSTS));
        let mut senders: Vec<_> = hosts.collect();
        let macs = senders.iter().map(|(key, _)| key.mac);
        let receivers = macs.chain([NOBODY, MacAddr::BROADCAST]).collect();
        senders.truncate(sender_count);
        Stations { senders, receivers }
    }

    /// Frames of these policies, from each port where they may come in.
    pub(super) fn samples_of<'a>(
        &self,
        policies: impl Iterator<Item = &'a PolicyEntry>,
        stations: &Stations,
    ) -> Vec<(Place, Sample)> {
        let regions = policies.flat_map(|entry| entry.cells.regions());
        self.samples(regions, (&stations.senders, &stations.receivers), MAX_SAMPLES)
    }

    /// The same for policies that a change affects: with very many regions, between few hosts, but
    /// for all regions.
    pub(super) fn samples_about(
        &self,
        abouts: &[&PolicyEntry],
        stations: &Stations,
    ) -> Vec<(Place, Sample)> {
        let regions: Vec<_> = abouts.iter().flat_map(|about| about.cells.regions()).collect();
        let pairs = stations.senders.len() * stations.receivers.len();
        if regions.len() * pairs > MAX_SAMPLES {
            return self.samples_in(&regions, stations);
        }
        let stations = (&stations.senders[..], &stations.receivers);
        self.samples(regions.into_iter(), stations, usize::MAX)
    }

    /// The same for regions, of which there may be many: between few hosts.
    pub(super) fn samples_in(
        &self,
        regions: &[Region],
        stations: &Stations,
    ) -> Vec<(Place, Sample)> {
        let few = stations.senders.iter().take(FEWEST_SENDERS).copied().collect::<Vec<_>>();
        let known = few.iter().map(|(key, _)| key.mac);
        let receivers = known.chain([NOBODY, MacAddr::BROADCAST]);
        let receivers = receivers.filter(|mac| stations.receivers.contains(mac)).collect();
        self.samples(regions.iter().copied(), (&few, &receivers), usize::MAX)
    }

    fn samples(
        &self,
        regions: impl Iterator<Item = Region>,
        (senders, receivers): (&[(HostKey, Place)], &BTreeSet<MacAddr>),
        most: usize,
    ) -> Vec<(Place, Sample)> {
        let (mut samples, mut seen) = (Vec::new(), BTreeSet::new());
        for region in regions {
            let fields = region.matching();
            let receivers = || {
                // One receiver suffices if the region names it.
                let count = if fields_have_dst(&fields) { 1 } else { receivers.len() };
                receivers.iter().take(count)
            };
            let pairs = self.senders_of(&fields, senders).into_iter();
            let pairs = pairs.flat_map(|(from, key)| receivers().map(move |mac| (from, key, *mac)));
            let plain: Vec<_> =
                pairs.map(|(from, key, mac)| (from, Sample::new(&fields, (key, mac)))).collect();
            // From one host: to one receiver and to broadcast.
            let first = plain.iter().take(receivers().count());
            let some = first.clone().take(1).chain(first.clone().next_back());
            let others =
                some.flat_map(|(from, plain)| plain.others_in(&region).map(|other| (*from, other)));
            let all = plain.iter().cloned().chain(others);
            samples.extend(all.filter(|frame| seen.insert(frame.clone())));
            if samples.len() >= most {
                break;
            }
        }
        samples
    }

    /// Senders of such frames with their ports: the one that the fields name, or all.
    fn senders_of(
        &self,
        fields: &Match,
        senders: &[(HostKey, Place)],
    ) -> BTreeSet<(Place, HostKey)> {
        let senders = senders.iter().map(|(key, place)| {
            let Sample { src: mac, vlan, .. } = Sample::new(fields, (*key, NOBODY));
            let key = HostKey::new(mac, vlan);
            (self.place_of(key).unwrap_or(*place), key)
        });
        senders.collect()
    }

    /// Port of a host, if known.
    pub(super) fn place_of(&self, key: HostKey) -> Option<Place> {
        let at = |id| self.place_at(key, id).filter(|_| self.is_settled(id));
        match self.fabric {
            Some(_) => at(self.located.find(key)?),
            None => self.switches.keys().copied().find_map(at),
        }
    }

    /// Hosts that a policy names as senders, receivers or monitors.
    fn hosts_named_by(&self, about: &PolicyEntry) -> Vec<(HostKey, Place)> {
        let regions: Vec<_> = about.cells.included().take(MAX_HOSTS).collect();
        let senders = regions.iter().map(|region| (region.src_mac, region.src_ip));
        let receivers = regions.iter().map(|region| (region.dst_mac, region.dst_ip));
        let ends: BTreeSet<_> = receivers.collect();
        let named = senders.collect::<BTreeSet<_>>().into_iter().chain(ends);
        let hosts = named.flat_map(|(mac, ip)| {
            match (mac.and_then(MacMask::exact), ip.and_then(IpPrefix::only)) {
                (Some(mac), _) => self.hosts_with_mac(mac),
                (None, Some(ip)) => self.hosts_with_address(ip),
                (None, None) => Vec::new(),
            }
        });
        let monitors = about.monitor_ports().filter_map(|place| {
            let switch = self.switches.get(&place.switch)?;
            known(switch, switch.hosts.iter()).find(|(_, at)| *at == place)
        });
        hosts.take(MAX_HOSTS / 2).chain(monitors.take(MAX_HOSTS / 4)).collect()
    }

    fn hosts_with_mac(&self, mac: MacAddr) -> Vec<(HostKey, Place)> {
        let at = |switch: &Switch| known(switch, switch.hosts.with_mac(mac)).collect::<Vec<_>>();
        match self.fabric {
            Some(_) => {
                let located = self.located.with_mac(mac).collect::<BTreeSet<_>>();
                let switches = located.iter().filter_map(|id| self.switches.get(id));
                switches.flat_map(at).collect()
            }
            None => self.switches.values().flat_map(at).collect(),
        }
    }

    fn hosts_with_address(&self, ip: IpAddr) -> Vec<(HostKey, Place)> {
        let switches = self.switches.values();
        switches.flat_map(|switch| known(switch, switch.hosts.with_address(ip))).collect()
    }

    /// One host at no monitor port for each of the first few switches, or a possible host if none
    /// is known. Those of the policy's monitors' switches come first; hosts that are monitors come
    /// last.
    fn some_hosts(&self, about: &PolicyEntry, bystanders: &Bystanders) -> Vec<(HostKey, Place)> {
        let Bystanders { busy, others, monitors } = bystanders;
        let own_places: BTreeSet<_> = about.monitor_ports().collect();
        let own: BTreeSet<_> = own_places.iter().map(|place| place.switch).collect();
        let up = own.iter().filter_map(|id| self.switches.get(id)).filter(|at| at.is_settled());
        let up: Vec<_> = up.collect();
        let mut hosts = Vec::new();
        for (wants_monitors, others) in [(false, others), (true, monitors)] {
            let of_own =
                up.iter().filter_map(|at| some_host(at, &[busy, &own_places], wants_monitors));
            let others = others.iter().filter(|(_, place)| !own.contains(&place.switch));
            // With that many others, hosts that are monitors are not needed.
            hosts.extend(of_own.chain(others.copied()).take(MAX_HOSTS - hosts.len()));
        }
        hosts
    }
}

fn fields_have_dst(fields: &Match) -> bool {
    fields.iter().any(|field| matches!(field, Oxm::EthDst(_)))
}

/// A host of a switch at one of these ports, or at none of them; in the latter case possibly a
/// fictitious one.
fn some_host(
    switch: &Switch,
    places: &[&BTreeSet<Place>],
    is_there: bool,
) -> Option<(HostKey, Place)> {
    let is_at_one = |place: &Place| places.iter().any(|places| places.contains(place));
    let host = known(switch, switch.hosts.iter()).find(|(_, place)| is_at_one(place) == is_there);
    host.or_else(|| if is_there { None } else { possible(switch, &is_at_one) })
}

/// Hosts of a switch with their ports.
fn known<'a>(
    switch: &Switch,
    hosts: impl Iterator<Item = (HostKey, &'a Host)>,
) -> impl Iterator<Item = (HostKey, Place)> {
    let id = switch.id();
    hosts
        .filter(|_| switch.is_settled())
        .map(move |(key, host)| (key, Place { switch: id, port: host.port }))
}

/// A fictitious host of a switch, preferably at a port that is no monitor's.
fn possible(switch: &Switch, is_busy: &impl Fn(&Place) -> bool) -> Option<(HostKey, Place)> {
    let [.., a, b] = switch.id().0.to_be_bytes();
    let mac = MacAddr([0x02, 0xff, 0xff, 0xff, a, b]);
    let edges = switch.ports.iter().filter(|(port, _)| switch.is_edge(*port));
    let places = edges.map(|(port, _)| Place { switch: switch.id(), port });
    let free = places.min_by_key(is_busy)?;
    Some((HostKey { mac, vlan: None }, free))
}

/// An unknown address: locally administered, and never assigned by us.
const NOBODY: MacAddr = MacAddr([0x02, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe]);
/// Maximum switches whose hosts take part; others are equivalent.
pub(super) const MAX_HOSTS: usize = 16;
/// Minimum senders, however many switches and regions there are.
pub(super) const FEWEST_SENDERS: usize = 2;
/// Minimum receivers, however few senders.
const FEW_HOSTS: usize = 4;
/// Maximum policies whose monitor ports are considered when hosts are selected.
const MAX_COMPARED: usize = 256;
/// Maximum frames to trace, unless a change affects more regions.
const MAX_SAMPLES: usize = 20_000;
