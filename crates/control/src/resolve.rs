//! Resolves a policy's monitor to ports, from the known switches, ports and hosts.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::net::IpAddr;

use tapswitch_openflow::{DatapathId, PortNo};

use crate::exit::Spread;
use crate::hosts::{Host, HostKey};
use crate::place::Place;
use crate::shared::Forked;
use crate::switch::Switch;
use crate::text::switch_name;
use crate::{MonitorError, MonitorPort, MonitorSpec, Monitors};

pub(crate) type Switches = Forked<DatapathId, Switch>;

/// Location of a monitor at one switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its port, or the first one.
    pub(crate) place: Place,
    /// All ports, if there are several.
    pub(crate) spread: Option<Spread>,
}

impl Found {
    /// All its ports.
    pub(crate) fn places(&self) -> Vec<Place> {
        match &self.spread {
            Some(spread) => {
                spread.ports().iter().map(|port| Place { port: *port, ..self.place }).collect()
            }
            None => vec![self.place],
        }
    }
}

/// Location of a monitor, or of several that share flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Places {
    /// At one switch, which spreads flows if there are several ports.
    One(Found),
    /// At several switches, numbered from 1: the switch that copies spreads flows among these.
    Several(Vec<(u8, Found)>),
}

impl Places {
    /// Each location with its number; 0 for a single one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u8, Found)> {
        let (one, several) = match self {
            Self::One(found) => (Some((0, *found)), &[][..]),
            Self::Several(found) => (None, found.as_slice()),
        };
        one.into_iter().chain(several.iter().copied())
    }

    /// All ports, including those that share flows at one switch.
    pub(crate) fn ports(&self) -> impl Iterator<Item = Place> {
        self.iter().flat_map(|(_, found)| found.places())
    }
}

/// Resolves `monitor`. A location in `before` is kept while it is possible: another host that
/// claims to be the monitor, in another VLAN, does not divert its copies. So is one at a switch
/// that disconnected, unless another member takes its share: the switch continues to forward.
pub(crate) fn resolve(
    monitor: &MonitorSpec,
    before: &[Place],
    switches: &Switches,
) -> Result<Places, MonitorError> {
    match monitor {
        MonitorSpec::OneOf(members) => resolve_several(members, before, (switches, resolve_one))
            .or_else(|error| {
                let left = resolve_several(members, before, (switches, left_behind));
                left.map_err(|_| error)
            }),
        one => {
            let place = resolve_one(one, before, switches)
                .or_else(|error| left_behind(one, before, switches).map_err(|_| error))?;
            Ok(Places::One(Found { place, spread: None }))
        }
    }
}

/// The first location of a monitor at a disconnected switch, as what is wrong with it.
pub(crate) fn unwatched(
    monitor: &MonitorSpec,
    places: &Places,
    switches: &Switches,
) -> Option<MonitorError> {
    let is_away = |place: &Place| switches.get(&place.switch).is_some_and(|it| !it.is_up());
    let Place { switch, .. } = places.ports().find(is_away)?;
    Some(MonitorError::Unwatched { monitor: monitor.clone(), switch })
}

/// Qualifies port names and numbers with a switch: that of `before` if it was known there, else the
/// only switch with such a port now. Ports without a switch yet are unchanged.
///
/// So copies never go to a port that merely has the same number or name, which may exist with a
/// host behind it while the monitor's switch is away.
pub(crate) fn settled(
    monitors: &Monitors,
    before: Option<&Monitors>,
    switches: &Switches,
) -> Monitors {
    let found = |member: &MonitorSpec| match resolve_one(member, &[], switches) {
        Ok(Place { switch, .. }) | Err(MonitorError::Down { switch, .. }) => member.at(switch),
        Err(_) => member.clone(),
    };
    let settle = |member: &MonitorSpec| match member.roams() {
        true => found(member),
        false => member.clone(),
    };
    let taken = before.map_or_else(|| monitors.clone(), |before| monitors.with_switches_of(before));
    taken.map(|monitor| monitor.map(settle))
}

/// A port with its name, if known.
pub(crate) fn named_port(place: Place, switches: &Switches) -> MonitorPort {
    let at = switches.get(&place.switch).filter(|_| place != Place::CONTROLLER);
    at.map_or_else(|| MonitorPort::unnamed(place), |at| at.monitor_port(place.port))
}

/// Whether all members of a monitor exist; a link is not required.
pub(crate) fn check(monitor: &MonitorSpec, switches: &Switches) -> Result<(), MonitorError> {
    let found = monitor.members().iter().map(|member| resolve_one(member, &[], switches));
    let wrong = found.filter_map(Result::err);
    let is_missing = |error: &MonitorError| !matches!(error, MonitorError::Down { .. });
    match wrong.into_iter().find(is_missing) {
        Some(error) => Err(error),
        None => resolve(monitor, &[], switches).map(|_| ()),
    }
}

/// How one member is resolved.
type Resolve = fn(&MonitorSpec, &[Place], &Switches) -> Result<Place, MonitorError>;

/// Resolves several members to those that exist. At one switch, the switch skips ports without a
/// link until they are back; at several switches, the controller does.
fn resolve_several(
    members: &[MonitorSpec],
    before: &[Place],
    (switches, resolve_one): (&Switches, Resolve),
) -> Result<Places, MonitorError> {
    let (mut places, mut wrong) = (Vec::new(), None);
    for (share, member) in (1..).zip(members) {
        let (place, is_up) = match resolve_one(member, before, switches) {
            Ok(place) => (Some(place), true),
            Err(error) => {
                let place = match error {
                    MonitorError::Down { switch, port, .. } => Some(Place { switch, port }),
                    _ => None,
                };
                wrong.get_or_insert(error);
                (place, false)
            }
        };
        let is_new = |place: &Place| places.iter().all(|(_, other, _)| other != place);
        places.extend(place.filter(is_new).map(|place| (share, place, is_up)));
    }
    if let Some(wrong) = wrong.filter(|_| !places.iter().any(|(.., is_up)| *is_up)) {
        return Err(wrong);
    }
    // If there were none, an error would have been returned.
    let first = places.first().map_or(Place::CONTROLLER, |(_, first, _)| *first);
    if places.iter().all(|(_, place, _)| place.switch == first.switch) {
        let ports: Vec<_> = places.iter().map(|(_, place, _)| place.port).collect();
        return Ok(Places::One(Found { place: first, spread: Spread::new(&ports) }));
    }
    let up = places.into_iter().filter(|(.., is_up)| *is_up);
    let found = up.map(|(share, place, _)| (share, Found { place, spread: None }));
    Ok(Places::Several(found.collect()))
}

fn resolve_one(
    monitor: &MonitorSpec,
    before: &[Place],
    switches: &Switches,
) -> Result<Place, MonitorError> {
    if *monitor == MonitorSpec::Controller {
        return Ok(Place::CONTROLLER);
    }
    let places = candidates(monitor, switches, Switch::is_up);
    let kept: Vec<_> = places.iter().filter(|place| before.contains(place)).copied().collect();
    let places = if kept.len() == 1 { kept } else { places };
    let place = match places.as_slice() {
        [] => return Err(explain(monitor, switches)),
        [place] => *place,
        _ => {
            let places = places.iter().map(|p| format!("{}/{}", switch_name(p.switch), p.port));
            let (monitor, places) = (monitor.clone(), list(places));
            return Err(MonitorError::Ambiguous { monitor, places });
        }
    };
    let Place { switch, port } = place;
    let at = switches.get(&switch);
    let is_up = at.is_some_and(|switch| switch.ports.is_up(port));
    if port == PortNo::LOCAL {
        Err(MonitorError::Local { monitor: monitor.clone() })
    } else if at.is_some_and(|switch| switch.is_link(port)) {
        // The next switch would treat copies sent there as ordinary frames.
        Err(MonitorError::Link { monitor: monitor.clone(), switch, port })
    } else if !is_up {
        Err(MonitorError::Down { monitor: monitor.clone(), switch, port })
    } else {
        Ok(place)
    }
}

/// The former location of a monitor that is only at disconnected switches.
fn left_behind(
    monitor: &MonitorSpec,
    before: &[Place],
    switches: &Switches,
) -> Result<Place, MonitorError> {
    let is_gone = candidates(monitor, switches, Switch::is_up).is_empty();
    let places = candidates(monitor, switches, |switch| !switch.is_up()).into_iter();
    let kept: Vec<_> = places.filter(|place| is_gone && before.contains(place)).collect();
    match kept.as_slice() {
        [place] => Ok(*place),
        _ => Err(explain(monitor, switches)),
    }
}

/// The hosts that `monitor` names by address, as found at this switch. One for each address
/// suffices to keep the location, as a host may have any number of VLANs.
pub(crate) fn hosts_of(monitor: &MonitorSpec, found: Found, switch: &Switch) -> BTreeSet<HostKey> {
    let is_there =
        |(_, host): &(HostKey, &Host)| found.places().iter().any(|place| place.port == host.port);
    let hosts = monitor.members().iter().filter_map(|member| match member {
        MonitorSpec::Mac(mac) => switch.hosts.with_mac(*mac).find(is_there),
        MonitorSpec::Ip(address) => {
            hosts_with(*address, switch, claims(*address, switch)).find(is_there)
        }
        _ => None,
    });
    hosts.map(|(key, _)| key).collect()
}

/// Ports of these switches that `monitor` may denote, each once.
fn candidates(
    monitor: &MonitorSpec,
    switches: &Switches,
    is_meant: impl Fn(&Switch) -> bool,
) -> Vec<Place> {
    // On any switch, whether or not that one is meant.
    let is_claimed = match monitor {
        MonitorSpec::Ip(address) => switches.iter().any(|(_, switch)| claims(*address, switch)),
        _ => false,
    };
    let ports = |(id, switch): (&DatapathId, &Switch)| {
        let id = *id;
        let ports = ports_of(monitor, id, switch, is_claimed).into_iter();
        ports.map(move |port| Place { switch: id, port })
    };
    let meant = |(_, switch): &(&DatapathId, &Switch)| is_meant(switch);
    match monitor.switch() {
        Some(id) => switches.get_key_value(&id).filter(meant).into_iter().flat_map(ports).collect(),
        None => switches.iter().filter(meant).flat_map(ports).collect(),
    }
}

/// Whether a host of the switch claims the address.
fn claims(address: IpAddr, switch: &Switch) -> bool {
    switch.hosts.with_address(address).next().is_some()
}

/// Hosts of a switch with an address; those that only send from it count if nobody claims it.
fn hosts_with(
    address: IpAddr,
    switch: &Switch,
    is_claimed: bool,
) -> impl Iterator<Item = (HostKey, &Host)> {
    let sending = switch.hosts.with_source(address).filter(move |_| !is_claimed);
    switch.hosts.with_address(address).chain(sending)
}

fn ports_of(
    monitor: &MonitorSpec,
    id: DatapathId,
    switch: &Switch,
    is_claimed: bool,
) -> BTreeSet<PortNo> {
    let is_here = |named: &Option<DatapathId>| named.is_none_or(|named| named == id);
    match monitor {
        MonitorSpec::Port { switch: named, port } if is_here(named) => {
            switch.ports.find(*port).map(|_| *port).into_iter().collect()
        }
        MonitorSpec::Name { switch: named, name } if is_here(named) => {
            switch.ports.named(name).collect()
        }
        MonitorSpec::Port { .. }
        | MonitorSpec::Name { .. }
        | MonitorSpec::Controller
        | MonitorSpec::OneOf(_) => BTreeSet::new(),
        MonitorSpec::Mac(mac) => switch.hosts.with_mac(*mac).map(|(_, host)| host.port).collect(),
        MonitorSpec::Ip(address) => {
            hosts_with(*address, switch, is_claimed).map(|(_, host)| host.port).collect()
        }
    }
}

/// Why a monitor cannot be resolved.
fn explain(monitor: &MonitorSpec, switches: &Switches) -> MonitorError {
    let up: Vec<_> = switches.iter().filter(|(_, switch)| switch.is_up()).collect();
    let offline = candidates(monitor, switches, |switch| !switch.is_up());
    let monitor = monitor.clone();
    if let [Place { switch, .. }, ..] = offline.as_slice() {
        return MonitorError::Offline { monitor, switch: *switch };
    }
    if up.is_empty() {
        return MonitorError::NoSwitch { monitor };
    }
    match &monitor {
        MonitorSpec::Port { switch: Some(switch), .. }
        | MonitorSpec::Name { switch: Some(switch), .. }
            if !up.iter().any(|(id, _)| *id == switch) =>
        {
            let known = list(up.iter().map(|(id, _)| switch_name(**id)));
            MonitorError::UnknownSwitch { monitor, known }
        }
        MonitorSpec::Mac(_) => {
            let why = "no frame from it has been seen";
            MonitorError::UnknownHost { monitor, why, known: known_hosts(&up) }
        }
        MonitorSpec::Ip(address) => {
            let why = match address.is_ipv4() {
                true => "it has not sent ARP",
                false => "it has not sent neighbour discovery",
            };
            MonitorError::UnknownHost { monitor, why, known: known_hosts(&up) }
        }
        _ => MonitorError::UnknownPort { known: known_ports(&up), monitor },
    }
}

fn known_ports(switches: &[(&DatapathId, &Switch)]) -> String {
    let ports = switches.iter().flat_map(|(id, switch)| {
        let ports = switch.ports.iter().filter(|(number, _)| number.is_real());
        let several = switches.len() > 1;
        ports.map(move |(number, port)| match several {
            true => format!("{}/{number} ({})", switch_name(**id), port.name),
            false => format!("{number} ({})", port.name),
        })
    });
    format!("known ports: {}", list(ports))
}

fn known_hosts(switches: &[(&DatapathId, &Switch)]) -> String {
    let several = switches.len() > 1;
    let hosts =
        switches.iter().flat_map(|(id, switch)| switch.hosts.iter().map(move |it| (id, it)));
    let hosts = hosts.map(|(id, (key, host))| {
        let addresses: String = host.all_addresses().map(|address| format!(" {address}")).collect();
        match several {
            true => format!("{}{addresses} at {}/{}", key.mac, switch_name(**id), host.port),
            false => format!("{}{addresses} at port {}", key.mac, host.port),
        }
    });
    format!("{}; known hosts: {}", known_ports(switches), list(hosts))
}

/// Lists the first few items and the number of the others.
pub(crate) fn list(items: impl Iterator<Item: Display>) -> String {
    let items: Vec<_> = items.collect();
    list_some(items.len(), items.into_iter())
}

/// The same for a known number of items.
pub(crate) fn list_some(count: usize, items: impl Iterator<Item: Display>) -> String {
    let texts: Vec<_> = items.take(MAX_LISTED).map(|item| item.to_string()).collect();
    let shown = texts.join(", ");
    match (texts.len(), count.saturating_sub(texts.len())) {
        (0, _) => "none".to_owned(),
        (_, 0) => shown,
        (_, more) => format!("{shown} and {more} more"),
    }
}

/// Maximum ports or hosts listed in an error.
const MAX_LISTED: usize = 12;
