//! `tapswitch device set` and `delete`.
//!
//! Some things can be set only by a file of the device. When a program holds the device, that
//! program's file is borrowed; when none does, the device is opened, with the flags that it has,
//! and closed again.

use tapswitch_netlink::{Namespace, Netlink};
use tapswitch_tap::inspect::{Certainty, Handle, Inspected};
use tapswitch_tap::{Flags, Kind, MacAddr, Offloads};

use super::change::{Done, apply};
use super::doctor::names;
use super::machine::Machine;
use super::view::TUNNEL_HEADER_LEN;
use super::{Failure, find, namespace};
use crate::cli::device::{DeviceDeleteArgs, DeviceSetArgs, FlagArgs, OffloadsArg, Switch};

pub(super) fn main(args: &DeviceSetArgs) -> Result<(), Failure> {
    let mut done = Done::default();
    set(args, &mut done).map_err(|error| done.explain(error))
}

fn set(args: &DeviceSetArgs, done: &mut Done) -> Result<(), Failure> {
    let name = args.name.as_str();
    let namespace = namespace(args.place.netns.as_deref())?;
    let (device, _) = find(name, &args.place)?;
    SetError::check_mac(name, device.kind(), args.settings.mac)?;
    if let Some(handle) = handle(&device, &namespace, args)? {
        if args.flags.is_any() {
            done.push("flags");
        }
        set_by_file(&handle, &device, args, done)?;
    }
    apply(&namespace, name, &args.settings, done)?;
    let mut netlink = Netlink::open(&namespace)?;
    for address in &args.delete_address {
        netlink.delete_address(name, address.ip, address.prefix_len)?;
        done.push(format!("address {} deleted", address.ip));
    }
    match args.carrier {
        Some(Switch::On) if device.queue_count() == 0 => Err(SetError::unread(&device).into()),
        Some(carrier) => Ok(netlink.set_carrier(name, carrier.is_on())?),
        None => Ok(()),
    }
}

pub(super) fn delete(args: &DeviceDeleteArgs) -> Result<(), Failure> {
    let (device, _) = find(&args.name, &args.place)?;
    // Who may not see all holders may, as a rule, not delete it either, and is told so.
    let is_hidden = !device.is_free() && rustix::process::geteuid().is_root();
    if (device.is_held() || is_hidden) && !args.force {
        return Err(SetError::held(&device, "end that first, or delete it with --force").into());
    }
    let namespace = namespace(args.place.netns.as_deref())?;
    Ok(Netlink::open(&namespace)?.delete(&args.name)?)
}

/// A file of the device, if one is needed.
fn handle(
    device: &Inspected,
    namespace: &Namespace,
    args: &DeviceSetArgs,
) -> Result<Option<Handle>, Failure> {
    let wants_flags = args.flags.is_any();
    let settings = &args.settings;
    let wants_file = settings.owner.is_some()
        || settings.group.is_some()
        || settings.offloads.is_some()
        || args.persistent.is_some();
    if !wants_flags && !wants_file {
        return Ok(None);
    }
    if device.is_held() {
        if wants_flags {
            let remedy = "whoever opens it decides its flags; end that first";
            return Err(SetError::held(device, remedy).into());
        }
        return Ok(Some(borrow(device)?));
    }
    let flags = device.flags.ok_or_else(|| SetError::Flags { name: device.link.name.clone() })?;
    let flags = args.flags.applied(flags, &device.link.name)?;
    Ok(Some(open(device, namespace, flags)?))
}

/// The file of the first holder that is surely one of this device.
fn borrow(device: &Inspected) -> Result<Handle, SetError> {
    let mut sure = device.holders.iter().filter(|it| it.certainty == Certainty::Exact);
    let handle = sure.find_map(|holder| Handle::borrow(holder.pid, holder.fd).ok());
    let remedy = "its file cannot be borrowed; run as root, or end that first";
    handle.ok_or_else(|| SetError::held(device, remedy))
}

fn open(device: &Inspected, namespace: &Namespace, flags: Flags) -> Result<Handle, Failure> {
    let name = device.link.name.as_str();
    let opened = namespace.enter(|| Handle::open(name, flags))?;
    let source = match opened {
        Ok(handle) => return Ok(handle),
        Err(source) => source,
    };
    Err(SetError::Open { name: name.to_owned(), source }.into())
}

fn set_by_file(
    handle: &Handle,
    device: &Inspected,
    args: &DeviceSetArgs,
    done: &mut Done,
) -> Result<(), SetError> {
    let settings = &args.settings;
    let refused = |what: &'static str| {
        let name = device.link.name.clone();
        move |source| SetError::Refused { name, what, source }
    };
    if let Some(owner) = settings.owner {
        handle.set_owner(owner.0).map_err(refused("owner"))?;
        done.push("owner");
    }
    if let Some(group) = settings.group {
        handle.set_group(group.0).map_err(refused("group"))?;
        done.push("group");
    }
    if let Some(persistent) = args.persistent {
        handle.set_persistent(persistent.is_on()).map_err(refused("persistence"))?;
        done.push("persistence");
    }
    // Without a header nothing can be left undone, and what is set would stay.
    let has_lost_header = args.flags.vnet_hdr == Some(Switch::Off);
    let wanted = match settings.offloads {
        Some(OffloadsArg(wanted)) => wanted,
        None if has_lost_header => Offloads::empty(),
        None => return Ok(()),
    };
    check_offloads(device, wanted, args)?;
    if wanted.intersects(Offloads::TUNNEL) {
        let len = handle.state().map_err(refused("length of the header"))?.header_len;
        if len < TUNNEL_HEADER_LEN {
            return Err(SetError::ShortHeader { name: device.link.name.clone(), len });
        }
    }
    // This asks for the features anew that an administrator may have switched off.
    handle.set_offloads(wanted).map_err(refused("offloads"))?;
    done.push("offloads");
    Ok(())
}

/// Refuses what would hand a program frames that it cannot know how to read.
fn check_offloads(
    device: &Inspected,
    wanted: Offloads,
    args: &DeviceSetArgs,
) -> Result<(), SetError> {
    let name = || device.link.name.clone();
    let net_header = args.flags.vnet_hdr.map_or(device.tun.net_header, Switch::is_on);
    let more = wanted.difference(device.offloads().unwrap_or_default());
    if !net_header && !wanted.is_empty() {
        return Err(SetError::NoHeader { name: name() });
    }
    if device.is_held() && !more.is_empty() && !args.force {
        let remedy = "it may not expect what it has not asked for; --force sets it nevertheless";
        return Err(SetError::held(device, remedy));
    }
    Ok(())
}

impl FlagArgs {
    fn is_any(&self) -> bool {
        [self.vnet_hdr, self.pi, self.napi, self.backpressure].iter().any(Option::is_some)
    }

    /// Refuses what this kernel does not have.
    pub(super) fn check(&self, name: &str) -> Result<(), SetError> {
        let is_wanted = self.backpressure.is_some_and(Switch::is_on);
        if is_wanted && Machine::here().backpressure == Some(false) {
            return Err(SetError::NoBackpressure { name: name.to_owned() });
        }
        Ok(())
    }

    /// `flags` with those changed that were given.
    fn applied(&self, flags: Flags, name: &str) -> Result<Flags, SetError> {
        self.check(name)?;
        let mut flags = flags;
        for (switch, bit, is_inverse) in [
            (self.vnet_hdr, Flags::VNET_HDR, false),
            (self.pi, Flags::NO_PI, true),
            (self.napi, Flags::NAPI, false),
            (self.backpressure, Flags::BACKPRESSURE, false),
        ] {
            if let Some(switch) = switch {
                flags.set(bit, switch.is_on() != is_inverse);
            }
        }
        Ok(flags)
    }
}

/// Why something was not set.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetError {
    #[error("{name}: held by {holders}: {remedy}")]
    Held { name: String, holders: String, remedy: &'static str },
    #[error("{name}: has no network header, which would say what was left undone; nothing can be")]
    NoHeader { name: String },
    #[error(
        "{name}: trains in tunnels need a network header of 24 bytes, and it has {len}: every read \
         would lose a frame; its program can set that"
    )]
    ShortHeader { name: String, len: usize },
    #[error("{name}: this kernel has no IFF_BACKPRESSURE, which came with Linux 7.3")]
    NoBackpressure { name: String },
    #[error("{name}: no program holds it, and it has no carrier while that is so; start one first")]
    Unheld { name: String },
    #[error(
        "{name}: all its queues are detached (TUNSETQUEUE), and it has no carrier while that is \
         so; {holders} must attach one"
    )]
    Detached { name: String, holders: String },
    #[error("{name}: its flags cannot be read; run as root (in a user namespace, by `unshare -m`)")]
    Flags { name: String },
    #[error(
        "{name}: cannot be opened: {source}; it must be persistent, and you its owner and in its \
         group, as far as it has those (`tapswitch device show`), or root"
    )]
    Open { name: String, source: std::io::Error },
    #[error("{name}: is a tun device, which has no MAC address; leave --mac out")]
    NoMac { name: String },
    #[error(
        "{name}: {mac} is no address of one station; take one that is neither zero nor a \
         group's (the first byte even)"
    )]
    Mac { name: String, mac: MacAddr },
    #[error("{name}: the kernel refuses the {what}: {source}")]
    Refused { name: String, what: &'static str, source: std::io::Error },
}

impl SetError {
    fn held(device: &Inspected, remedy: &'static str) -> Self {
        let (name, mut holders) = (device.link.name.clone(), names(&device.owners()));
        if !device.is_held() {
            holders.insert_str(0, "nobody, or ");
        }
        Self::Held { name, holders, remedy }
    }

    /// Refuses what is no address of one station, and any for a device that has none.
    pub(super) fn check_mac(name: &str, kind: Kind, mac: Option<MacAddr>) -> Result<(), Self> {
        let name = name.to_owned();
        match (kind, mac) {
            (_, None) => Ok(()),
            (Kind::Tun, Some(_)) => Err(Self::NoMac { name }),
            (Kind::Tap, Some(mac)) if mac.0[0] & 1 == 1 || mac.0 == [0; 6] => {
                Err(Self::Mac { name, mac })
            }
            (Kind::Tap, Some(_)) => Ok(()),
        }
    }

    /// Of a device that has no carrier, since no queue of it is read.
    fn unread(device: &Inspected) -> Self {
        let name = device.link.name.clone();
        match device.is_held() {
            true => Self::Detached { name, holders: names(&device.owners()) },
            false => Self::Unheld { name },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_change_by_name_and_packet_information_is_the_other_way_round() {
        let args = FlagArgs {
            vnet_hdr: Some(Switch::On),
            pi: Some(Switch::On),
            napi: Some(Switch::Off),
            backpressure: None,
        };
        assert!(args.is_any() && !FlagArgs::default().is_any());
        let before = Flags::NO_PI | Flags::NAPI | Flags::TAP;
        assert_eq!(args.applied(before, "tap0").unwrap(), Flags::VNET_HDR | Flags::TAP);
        assert_eq!(FlagArgs::default().applied(before, "tap0").unwrap(), before);
    }
}
