//! The frames that a proof follows: from hosts that policies name, from those beside monitors, and
//! from others, to the same hosts, to nobody and to all.

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

/// Hosts that send, and hosts that are sent to.
pub(super) struct Stations {
    pub(super) senders: Vec<(HostKey, Place)>,
    receivers: BTreeSet<MacAddr>,
}

/// Hosts that may take part in proofs of any policy.
pub(super) struct Bystanders {
    /// Where monitors are.
    busy: BTreeSet<Place>,
    /// A host of each switch, of the first few, where none is.
    others: Vec<(HostKey, Place)>,
    /// The same where one is.
    monitors: Vec<(HostKey, Place)>,
}

impl Control {
    /// Hosts that may take part in proofs of any policy.
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

    /// Hosts for frames of this policy among others: so many send, and somewhat more are sent to.
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

    /// Frames that these policies are about, from each port where they may come in.
    pub(super) fn samples_of<'a>(
        &self,
        policies: impl Iterator<Item = &'a PolicyEntry>,
        stations: &Stations,
    ) -> Vec<(Place, Sample)> {
        let regions = policies.flat_map(|entry| entry.cells.regions());
        self.samples(regions, (&stations.senders, &stations.receivers), MAX_SAMPLES)
    }

    /// The same of policies that a change is about: where they have very many regions, from few
    /// hosts to few, but frames of all of those.
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

    /// The same of regions, of which there may be many: from few hosts to few.
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
                // One will do where it is said for whom they are.
                let count = if fields_have_dst(&fields) { 1 } else { receivers.len() };
                receivers.iter().take(count)
            };
            let pairs = self.senders_of(&fields, senders).into_iter();
            let pairs = pairs.flat_map(|(from, key)| receivers().map(move |mac| (from, key, *mac)));
            let plain: Vec<_> =
                pairs.map(|(from, key, mac)| (from, Sample::new(&fields, (key, mac)))).collect();
            // Of those, from one host: to one, and to all.
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

    /// Who sends such frames, and from where: the one that the fields name, or each.
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

    /// Where a host is, if that is known.
    pub(super) fn place_of(&self, key: HostKey) -> Option<Place> {
        let at = |id| self.place_at(key, id).filter(|_| self.is_settled(id));
        match self.fabric {
            Some(_) => at(self.located.find(key)?),
            None => self.switches.keys().copied().find_map(at),
        }
    }

    /// The hosts that a policy names, as senders and as receivers, and those that are monitors.
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

    /// A host of each switch, of the first few, where no monitor is; where none is known, one that
    /// could be. Those of the policy's monitors' switches come first; after all others, hosts that
    /// are monitors themselves.
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
            // With so many others, those that are monitors are not looked for.
            hosts.extend(of_own.chain(others.copied()).take(MAX_HOSTS - hosts.len()));
        }
        hosts
    }
}

fn fields_have_dst(fields: &Match) -> bool {
    fields.iter().any(|field| matches!(field, Oxm::EthDst(_)))
}

/// A host of a switch that is at one of these places, or at none; then it may be one that could be.
fn some_host(
    switch: &Switch,
    places: &[&BTreeSet<Place>],
    is_there: bool,
) -> Option<(HostKey, Place)> {
    let is_at_one = |place: &Place| places.iter().any(|places| places.contains(place));
    let host = known(switch, switch.hosts.iter()).find(|(_, place)| is_at_one(place) == is_there);
    host.or_else(|| if is_there { None } else { possible(switch, &is_at_one) })
}

/// Hosts of a switch, and where they are.
fn known<'a>(
    switch: &Switch,
    hosts: impl Iterator<Item = (HostKey, &'a Host)>,
) -> impl Iterator<Item = (HostKey, Place)> {
    let id = switch.id();
    hosts
        .filter(|_| switch.is_settled())
        .map(move |(key, host)| (key, Place { switch: id, port: host.port }))
}

/// A host that a switch could have, at a port that is no monitor's if there is one.
fn possible(switch: &Switch, is_busy: &impl Fn(&Place) -> bool) -> Option<(HostKey, Place)> {
    let [.., a, b] = switch.id().0.to_be_bytes();
    let mac = MacAddr([0x02, 0xff, 0xff, 0xff, a, b]);
    let edges = switch.ports.iter().filter(|(port, _)| switch.is_edge(*port));
    let places = edges.map(|(port, _)| Place { switch: switch.id(), port });
    let free = places.min_by_key(is_busy)?;
    Some((HostKey { mac, vlan: None }, free))
}

/// An address that nobody has: locally administered, and never given by us.
const NOBODY: MacAddr = MacAddr([0x02, 0xfe, 0xfe, 0xfe, 0xfe, 0xfe]);
/// Switches whose hosts take part; more are like them.
pub(super) const MAX_HOSTS: usize = 16;
/// Hosts that send, however many switches and regions there are.
pub(super) const FEWEST_SENDERS: usize = 2;
/// Hosts that are sent to, at least, however few send.
const FEW_HOSTS: usize = 4;
/// Policies whose monitors' ports are known to be such, when hosts are looked for.
const MAX_COMPARED: usize = 256;
/// Frames that are followed, unless a change is about more regions.
const MAX_SAMPLES: usize = 20_000;
