//! State of any tun and tap device of the machine: type, settings, and the programs that hold it.
//!
//! It combines four sources, because none is complete (Linux 6.18):
//!
//! - rtnetlink: type, owner, number of queues, MTU, counters, qdisc ([`Link`], [`TunInfo`]);
//! - sysfs of the device's namespace: all flags (`tun_flags`), GRO settings ([`Sysfs`]);
//! - `ethtool`: the active offloads. No ioctl reads back `TUNSETOFFLOAD`, but it determines the
//!   device's features;
//! - `/proc/PID/fdinfo`: the programs that hold a queue, by the *name* of the device ([`Holder`]).
//!   Devices in different namespaces may have the same name. A duplicate of the program's file
//!   descriptor (pidfd_getfd(2), Linux 5.6) identifies the device exactly, and provides the header
//!   length, the send buffer and the byte order.
//!
//! Inspection changes nothing. A duplicated descriptor shares the queue, but nothing is read from
//! it and it is closed at once; a device that its program closes at that moment exists slightly
//! longer.
//!
//! No privilege is required. [`Inspection::unseen`] and [`Inspection::unseen_namespaces`] list what
//! the user is not permitted to see.
//!
//! **Not available from the kernel:** attached eBPF programs, fill level of the ring, drops per
//! queue. Header length and byte order of a device without open queues can only be read by opening
//! it ([`Inspected::look_inside`]), which [`inspect`] does not do.

mod handle;
mod process;
mod unseen;

use tapswitch_netlink::{
    Address, FeatureState, Link, LinkError, Namespace, Netlink, Qdisc, Survey, Sysfs, TunInfo,
    survey,
};

use crate::{Flags, Kind, Offloads};

pub use handle::{Handle, QueueState};
pub use process::{Certainty, Holder};

pub(crate) use process::holders_of;

use process::Suspect;
use unseen::{counted, remedy};

/// Result of [`inspect`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Inspection {
    /// The devices, by namespace in the order of [`survey`], then by index.
    pub devices: Vec<Inspected>,
    /// Failures of inspection, one sentence each.
    pub unseen: Vec<String>,
    /// Namespaces that could not be inspected, one sentence each: they may contain more devices.
    pub unseen_namespaces: Vec<String>,
    /// Namespaces whose devices could not be listed completely, each with the reason, which is also
    /// in [`Self::unseen`].
    pub unread: Vec<Unread>,
}

/// A namespace that may contain more devices than were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Label of the [`Namespace`].
    pub namespace: String,
    /// Device and inode number of the namespace.
    pub namespace_id: (u64, u64),
    /// The reason.
    pub reason: String,
}

/// One tun or tap device.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Inspected {
    /// Label of its [`Namespace`].
    pub namespace: String,
    /// Device and inode number of that namespace, which identify it.
    pub namespace_id: (u64, u64),
    /// Properties of any interface.
    pub link: Link,
    /// Properties of a tun or tap device.
    pub tun: TunInfo,
    /// Its flags, if sysfs is accessible. [`Flags::NO_PI`] has its literal meaning here.
    pub flags: Option<Flags>,
    /// Its features; empty if they could not be read.
    pub features: Vec<FeatureState>,
    /// Its queueing disciplines, the root first.
    pub qdiscs: Vec<Qdisc>,
    /// Its IP addresses.
    pub addresses: Vec<Address>,
    /// Interfaces stacked on it, directly or indirectly, each with the number of VLAN tags that its
    /// frames have there.
    pub uppers: Vec<(Link, u32)>,
    /// Name of the bridge or bond that it is a port of.
    pub controller: Option<String>,
    /// How long GRO may hold packets, in nanoseconds; 0 disables it.
    pub gro_flush_timeout_ns: Option<u64>,
    /// Number of empty NAPI polls before interrupts are enabled again.
    pub napi_defer_hard_irqs: Option<u64>,
    /// Number of frames that vhost-net may batch.
    pub rx_frames: Option<u32>,
    /// The programs that hold it, the oldest process first, then by file descriptor.
    pub holders: Vec<Holder>,
    /// True if some processes could not be inspected: they may hold it as well.
    pub hides_holders: bool,
    /// State read from a file of the device while no program held it: see [`Self::look_inside`].
    pub unheld: Option<QueueState>,
}

impl Inspected {
    /// The feature with the kernel's name `name`.
    pub fn feature(&self, name: &str) -> Option<&FeatureState> {
        self.features.iter().find(|feature| feature.name == name)
    }

    /// True if the feature is active.
    pub fn has(&self, feature: &str) -> bool {
        self.feature(feature).is_some_and(|feature| feature.active)
    }

    /// The offloads that the program that reads it has enabled, as far as they are active: an
    /// administrator may have disabled some with `ethtool`. `None` if the features could not be
    /// read.
    pub fn offloads(&self) -> Option<Offloads> {
        if self.features.is_empty() {
            return None;
        }
        Some(offloads_among(&self.features))
    }

    /// True if a queueing discipline with a queue is attached, so that packets can wait before the
    /// ring. `None` for a device that gets its discipline when it is set up.
    pub fn has_queueing(&self) -> Option<bool> {
        let kind = self.link.qdisc.as_deref().filter(|kind| *kind != "noop")?;
        Some(kind != "noqueue" && self.qdiscs.iter().all(|below| below.kind != "noqueue"))
    }

    /// Number of attached queues that programs hold. For a single-queue device, rtnetlink only
    /// indicates by the carrier whether it is held.
    pub fn queue_count(&self) -> u32 {
        let single = !self.holders.is_empty() || self.link.carrier == Some(true);
        self.tun.queues.unwrap_or(single.into())
    }

    /// True while a program holds it, visible or not.
    pub fn is_held(&self) -> bool {
        self.queue_count() > 0 || self.tun.disabled_queues.unwrap_or(0) > 0
    }

    /// True if certainly no program holds it. Hidden processes count as holders, unless the kernel
    /// reports the number of queues, which it does not for a single-queue device.
    pub fn is_free(&self) -> bool {
        !self.is_held() && (self.tun.queues.is_some() || !self.hides_holders)
    }

    /// Opens a device that certainly no program holds, stores in [`Self::unheld`] what only a file
    /// reports, and closes it again; does nothing with any other device. This has side effects: for
    /// some ten microseconds the device has a carrier, and a program that opens a single-queue
    /// device meanwhile gets `EBUSY`.
    ///
    /// # Errors
    /// As [`Handle::open`], and if the namespace cannot be entered.
    pub fn look_inside(&mut self, namespace: &Namespace) -> std::io::Result<()> {
        let Some(flags) = self.flags.filter(|_| self.is_free()) else { return Ok(()) };
        let look = || Handle::open(&self.link.name, flags)?.state();
        self.unheld = Some(namespace.enter(look).map_err(std::io::Error::other)??);
        Ok(())
    }

    /// Length of the network header in bytes, if a file reported it; meaningful if the device has
    /// one.
    pub fn header_len(&self) -> Option<usize> {
        let mut states = self.holders.iter().filter_map(|holder| holder.queue).chain(self.unheld);
        states.next().map(|state| state.header_len)
    }

    /// Whether it carries Ethernet frames or IP packets.
    pub fn kind(&self) -> Kind {
        Kind::of(&self.tun)
    }

    /// True if `flag` is known to be set.
    pub fn has_flag(&self, flag: Flags) -> bool {
        self.flags.is_some_and(|flags| flags.contains(flag))
    }

    /// The holders that opened the device themselves, without those that only share a file with an
    /// earlier one; each process once, by its first file.
    pub fn owners(&self) -> Vec<&Holder> {
        let mut owners: Vec<&Holder> = Vec::new();
        for (index, holder) in self.holders.iter().enumerate() {
            let earlier = self.holders.get(..index).unwrap_or_default();
            let is_shared =
                holder.file.is_some() && earlier.iter().any(|it| it.file == holder.file);
            if !is_shared && owners.iter().all(|owner| owner.pid != holder.pid) {
                owners.push(holder);
            }
        }
        owners
    }
}

/// Inspects all devices of all namespaces that can be found.
pub fn inspect() -> Inspection {
    let mut found = Inspection::default();
    let suspects = process::suspects(&mut found.unseen);
    let hides_holders = !found.unseen.is_empty();
    let mut places = places(survey(), &mut found.unseen_namespaces);
    places.extend(hidden_places(&places, &suspects));
    for place in &places {
        let reason = match devices_in(place, &mut found.unseen) {
            Ok((devices, unread)) => {
                found.devices.extend(devices);
                unread_interfaces(place, unread)
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(reason) = reason {
            found.unseen.push(reason.clone());
            let (namespace, namespace_id) = (place.namespace.label().to_owned(), place.identity);
            found.unread.push(Unread { namespace, namespace_id, reason });
        }
    }
    found.devices.iter_mut().for_each(|device| device.hides_holders = hides_holders);
    let candidates: Vec<_> = (found.devices.iter())
        .map(|device| (device.link.name.clone(), device.namespace_id))
        .collect();
    for suspect in suspects {
        for (index, holder) in suspect.holders(&candidates) {
            if let Some(device) = found.devices.get_mut(index) {
                device.holders.push(holder);
            }
        }
    }
    found
}

/// The flags that this kernel knows (`TUNGETFEATURES`). It ignores all others.
///
/// # Errors
/// If `/dev/net/tun` cannot be opened.
pub fn known_flags() -> std::io::Result<Flags> {
    Ok(crate::ioctl::features(crate::ioctl::open_tun()?)?)
}

/// A namespace and its identity.
#[derive(Debug)]
struct Place {
    namespace: Namespace,
    identity: (u64, u64),
}

fn places(survey: Survey, unseen: &mut Vec<String>) -> Vec<Place> {
    if survey.hidden_processes > 0 {
        let processes = counted(survey.hidden_processes);
        unseen.push(format!("the namespaces of {processes}: not permitted; {}", remedy()));
    }
    for name in survey.broken_names {
        unseen.push(format!("namespace {name}: cannot be opened; `ip netns del {name}` if stale"));
    }
    survey.namespaces.into_iter().filter_map(place).collect()
}

fn place(namespace: Namespace) -> Option<Place> {
    let identity = namespace.identity().ok()?;
    Some(Place { namespace, identity })
}

/// Namespaces that neither a name nor a process refers to, only a device.
fn hidden_places(known: &[Place], suspects: &[Suspect]) -> Vec<Place> {
    let mut hidden: Vec<Place> = Vec::new();
    for namespace in suspects.iter().filter_map(Suspect::namespace) {
        let Some(place) = place(namespace.clone()) else { continue };
        let is_same = |other: &Place| other.identity == place.identity;
        if !known.iter().chain(&hidden).any(is_same) {
            hidden.push(place);
        }
    }
    hidden
}

/// Message about interfaces that could not be parsed.
fn unread_interfaces(place: &Place, count: usize) -> Option<String> {
    let what = match count {
        0 => return None,
        1 => "1 interface".to_owned(),
        count => format!("{count} interfaces"),
    };
    let label = place.namespace.label();
    Some(format!("{what} of namespace {label}: its name is not UTF-8; `ip link` there lists it"))
}

/// The devices, and the number of interfaces that could not be parsed.
fn devices_in(
    place: &Place,
    unseen: &mut Vec<String>,
) -> Result<(Vec<Inspected>, usize), LinkError> {
    let Place { namespace, identity } = place;
    let mut netlink = Netlink::open(namespace)?;
    let links = netlink.links()?;
    let unread = netlink.unread_count();
    if links.iter().all(|link| link.tun.is_none()) {
        return Ok((Vec::new(), unread));
    }
    let sysfs = Sysfs::open(namespace).map_err(|error| unseen.push(error.to_string())).ok();
    let tuns = links.iter().filter(|link| link.tun.is_some());
    let devices = tuns
        .map(|link| Inspected {
            namespace_id: *identity,
            ..device(&mut netlink, sysfs.as_ref(), &links, link)
        })
        .collect();
    Ok((devices, unread))
}

/// Collects the state of one device. It may be deleted meanwhile; the result is then incomplete.
fn device(netlink: &mut Netlink, sysfs: Option<&Sysfs>, links: &[Link], link: &Link) -> Inspected {
    let name = link.name.as_str();
    let controller = links.iter().find(|other| Some(other.index) == link.controller);
    Inspected {
        namespace: netlink.namespace().label().to_owned(),
        tun: link.tun.unwrap_or_default(),
        flags: sysfs.and_then(|sysfs| flags(sysfs, name)),
        features: netlink.features(name).unwrap_or_default(),
        qdiscs: netlink.qdiscs(name).unwrap_or_default(),
        addresses: netlink.addresses(name).unwrap_or_default(),
        uppers: uppers(links, link),
        controller: controller.map(|link| link.name.clone()),
        gro_flush_timeout_ns: sysfs.and_then(|sysfs| sysfs.gro_flush_timeout_ns(name).ok()),
        napi_defer_hard_irqs: sysfs.and_then(|sysfs| sysfs.napi_defer_hard_irqs(name).ok()),
        rx_frames: netlink.rx_frames(name).ok(),
        link: link.clone(),
        ..Inspected::default()
    }
}

/// Flags that this list does not contain belong to a newer kernel.
fn flags(sysfs: &Sysfs, name: &str) -> Option<Flags> {
    let bits = sysfs.tun_flags(name).ok()? & u32::from(u16::MAX);
    u16::try_from(bits).ok().map(Flags::from_bits_truncate)
}

/// The interfaces stacked on `link` or on the bridge that it is a port of, with the number of VLAN
/// tags of their frames.
fn uppers(links: &[Link], link: &Link) -> Vec<(Link, u32)> {
    let mut found: Vec<(Link, u32)> = Vec::new();
    let mut below = vec![(link.index, 0)];
    below.extend(link.controller.map(|index| (index, 0)));
    while let Some((lower, tags)) = below.pop() {
        for upper in links.iter().filter(|upper| upper.lower == Some(lower)) {
            // Each has one lower interface, so this terminates unless the list is inconsistent.
            if upper.index == lower || found.iter().any(|(link, _)| link.index == upper.index) {
                continue;
            }
            let tags = tags + u32::from(upper.vlan.is_some());
            below.push((upper.index, tags));
            found.push((upper.clone(), tags));
        }
    }
    found
}

/// The offloads that these features show as active.
pub(crate) fn offloads_among(features: &[FeatureState]) -> Offloads {
    let is_on = |name: &str| features.iter().any(|it| it.active && it.name == name);
    let on = OFFLOADS.iter().filter(|(_, feature)| is_on(feature));
    on.fold(Offloads::empty(), |all, (offload, _)| all | *offload)
}

/// The feature that shows each offload. The two USO types share one, which needs both.
const OFFLOADS: [(Offloads, &str); 7] = [
    (Offloads::CSUM, "tx-checksum-ip-generic"),
    (Offloads::TSO4, "tx-tcp-segmentation"),
    (Offloads::TSO6, "tx-tcp6-segmentation"),
    (Offloads::TSO_ECN, "tx-tcp-ecn-segmentation"),
    (Offloads::USO, "tx-udp-segmentation"),
    (Offloads::UDP_TUNNEL, "tx-udp_tnl-segmentation"),
    (Offloads::UDP_TUNNEL_CSUM, "tx-udp_tnl-csum-segmentation"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn link(index: u32, lower: Option<u32>, vlan: Option<u16>) -> Link {
        let mut link = Link::default();
        (link.index, link.lower, link.vlan) = (index, lower, vlan);
        link
    }

    #[test]
    fn tags_are_counted_from_the_device_up() {
        let links = [
            link(1, None, None),
            link(2, Some(1), Some(5)),
            link(3, Some(2), Some(6)),
            link(4, Some(9), None),
        ];
        let tags: Vec<_> =
            uppers(&links, &links[0]).iter().map(|(link, tags)| (link.index, *tags)).collect();
        assert_eq!(tags, [(2, 1), (3, 2)]);
    }

    #[test]
    fn tags_on_the_bridge_are_tags_of_its_ports() {
        let mut tap = link(1, None, None);
        tap.controller = Some(7);
        let links = [tap.clone(), link(7, None, None), link(8, Some(7), Some(5))];
        assert_eq!(uppers(&links, &tap).len(), 1);
    }

    #[test]
    fn a_list_that_contradicts_itself_ends() {
        let links = [link(1, Some(2), None), link(2, Some(1), None), link(3, Some(3), None)];
        assert_eq!(uppers(&links, &links[0]).len(), 2);
    }

    #[test]
    fn offloads_are_what_the_features_tell() {
        let mut device = Inspected::default();
        assert_eq!(device.offloads(), None);
        for (name, active) in [("tx-checksum-ip-generic", true), ("tx-tcp-segmentation", false)] {
            let mut feature = FeatureState::default();
            (feature.name, feature.active) = (name.to_owned(), active);
            device.features.push(feature);
        }
        assert_eq!(device.offloads(), Some(Offloads::CSUM));
    }

    #[test]
    fn a_file_that_was_handed_on_makes_no_second_owner() {
        let mut device = Inspected::default();
        for (pid, file) in [(7, Some(1)), (7, Some(2)), (8, Some(2)), (9, Some(3)), (10, None)] {
            device.holders.push(Holder { pid, file, ..Holder::default() });
        }
        let pids: Vec<_> = device.owners().iter().map(|holder| holder.pid).collect();
        assert_eq!(pids, [7, 9, 10]);
    }
}
