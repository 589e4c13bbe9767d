//! `tapswitch device set` and `delete`.
//!
//! Some settings need a file of the device. If a program holds the device, its file is duplicated;
//! otherwise the device is opened with its current flags, and closed again. Visible errors are
//! reported before anything is changed.

use std::net::IpAddr;

use tapswitch_netlink::{Namespace, Netlink};
use tapswitch_tap::inspect::{Certainty, Handle, Inspected};
use tapswitch_tap::{Flags, HeaderLen, Kind, MacAddr, Offloads};

use super::args::{AddressArg, DeviceDeleteArgs, DeviceSetArgs, FlagArgs, HeaderArg, OffloadsArg};
use super::change::{Done, apply};
use super::doctor::names;
use super::machine::Machine;
use super::view::TUNNEL_HEADER_LEN;
use super::{Failure, features, find, namespace};
use crate::on_off::OnOff;

pub(super) fn main(args: &DeviceSetArgs) -> Result<(), Failure> {
    let mut done = Done::default();
    match set(args, &mut done) {
        Err(error) => Err(done.explain(error)),
        Ok(()) if done.is_empty() && args.persistent.is_none() => {
            Err(SetError::Nothing { name: args.name.clone() }.into())
        }
        Ok(()) => Ok(()),
    }
}

fn set(args: &DeviceSetArgs, done: &mut Done) -> Result<(), Failure> {
    let name = args.name.as_str();
    let namespace = namespace(args.place.netns.as_deref())?;
    let (mut device, _) = find(name, &args.place)?;
    check(args, &mut device, &namespace)?;
    let handle = handle(&device, &namespace, args)?;
    if let Some(handle) = &handle {
        set_by_file(handle, &device, args, done)?;
    }
    // Our own file would give the device a carrier meanwhile.
    let borrowed = handle.filter(|_| device.is_held());
    apply(&namespace, name, &args.settings, done)?;
    let mut netlink = Netlink::open(&namespace)?;
    for address in &args.delete_address {
        netlink.delete_address(name, address.ip, address.prefix_len)?;
        done.push(format!("address {} deleted", address.ip));
    }
    if let Some(carrier) = args.carrier {
        netlink.set_carrier(name, carrier.is_on())?;
        done.push("carrier");
    }
    // Last: from then on the device may disappear with its program.
    if let (Some(handle), Some(persistent)) = (borrowed, args.persistent) {
        let refused = SetError::refused(name, "persistence");
        handle.set_persistent(persistent.is_on()).map_err(refused)?;
    }
    Ok(())
}

/// Reports visible errors before anything is changed.
fn check(
    args: &DeviceSetArgs,
    device: &mut Inspected,
    namespace: &Namespace,
) -> Result<(), Failure> {
    let name = args.name.as_str();
    SetError::check_mac(name, device.kind(), args.settings.mac)?;
    args.flags.check(name)?;
    check_holders(args, device)?;
    check_offloads(args, device, namespace)?;
    let mut netlink = Netlink::open(namespace)?;
    features::check(&netlink, name, &args.settings.feature)?;
    let there = netlink.addresses(name)?;
    let is_there = |it: &AddressArg| {
        there.iter().any(|known| (known.ip, known.prefix_len) == (it.ip, it.prefix_len))
    };
    match args.delete_address.iter().find(|address| !is_there(address)) {
        Some(&AddressArg { ip, prefix_len }) => {
            Err(SetError::NoAddress { name: name.to_owned(), ip, prefix_len }.into())
        }
        None => Ok(()),
    }
}

/// Checks that depend on whether programs hold the device.
fn check_holders(args: &DeviceSetArgs, device: &Inspected) -> Result<(), SetError> {
    if args.flags.is_any() && device.is_held() {
        let remedy = "the program that opens it decides its flags; stop it first";
        return Err(SetError::held(device, remedy));
    }
    if args.persistent == Some(OnOff::Off) && !device.is_held() {
        return Err(SetError::Unkept { name: args.name.clone() });
    }
    if args.carrier == Some(OnOff::On) && device.queue_count() == 0 {
        return Err(SetError::unread(device));
    }
    Ok(())
}

pub(super) fn delete(args: &DeviceDeleteArgs) -> Result<(), Failure> {
    let (device, _) = find(&args.name, &args.place)?;
    // A user who cannot see all holders usually may not delete the device either, and gets that
    // error.
    let is_hidden = !device.is_free() && rustix::process::geteuid().is_root();
    if (device.is_held() || is_hidden) && !args.force {
        return Err(SetError::held(
            &device,
            "stop that program first, or delete the device with --force",
        )
        .into());
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
    let settings = &args.settings;
    let wants_file = args.flags.is_any()
        || settings.owner.is_some()
        || settings.group.is_some()
        || settings.offloads.is_some()
        // A device without holders exists because it is persistent.
        || args.persistent.is_some() && !device.is_free();
    if !wants_file {
        return Ok(None);
    }
    if device.is_held() {
        return Ok(Some(borrow(device)?));
    }
    let flags = device.flags.ok_or_else(|| SetError::Flags { name: device.link.name.clone() })?;
    Ok(Some(open(device, namespace, args.flags.applied(flags))?))
}

/// The file of the first holder that certainly holds this device.
fn borrow(device: &Inspected) -> Result<Handle, SetError> {
    let mut sure = device.holders.iter().filter(|it| it.certainty == Certainty::Exact);
    let handle = sure.find_map(|holder| Handle::borrow(holder.pid, holder.fd).ok());
    let remedy = "its file cannot be borrowed; run as root, or stop that program first";
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
    let refused = |what| SetError::refused(&device.link.name, what);
    // Opening the device has set them.
    if args.flags.is_any() {
        done.push("flags");
    }
    if let Some(owner) = settings.owner {
        handle.set_owner(owner.0).map_err(refused("owner"))?;
        done.push("owner");
    }
    if let Some(group) = settings.group {
        handle.set_group(group.0).map_err(refused("group"))?;
        done.push("group");
    }
    if let Some(len) = args.flags.vnet_hdr.and_then(HeaderArg::len) {
        handle.set_header_len(len).map_err(refused("length of the header"))?;
        done.push("header length");
    }
    if let Some(offloads) = offloads(args, device) {
        // This re-enables features that an administrator may have disabled.
        handle.set_offloads(offloads).map_err(refused("offloads"))?;
        done.push("offloads");
    }
    Ok(())
}

/// The offloads to set, if they change. Offloads would stay set even if a shorter header can no
/// longer describe them.
fn offloads(args: &DeviceSetArgs, device: &Inspected) -> Option<Offloads> {
    if let Some(OffloadsArg(wanted)) = args.settings.offloads {
        return Some(wanted);
    }
    match args.flags.vnet_hdr? {
        HeaderArg::Off => Some(Offloads::empty()),
        header => {
            let before = device.offloads()?;
            Some(before.within(header.len()?)).filter(|possible| *possible != before)
        }
    }
}

/// Refuses changes after which a program would get frames that it cannot parse.
fn check_offloads(
    args: &DeviceSetArgs,
    device: &mut Inspected,
    namespace: &Namespace,
) -> Result<(), SetError> {
    let name = args.name.as_str();
    let wanted = args.settings.offloads.map_or(Offloads::empty(), |it| it.0);
    if wanted.is_empty() {
        return Ok(());
    }
    // If the device may not be opened, the change itself reports that.
    let _ = device.look_inside(namespace);
    let remedy = if device.is_held() { BY_PROGRAM } else { BY_OPTION };
    SetError::check_offloads(name, wanted, header_len(args, device), remedy)?;
    let more = wanted.difference(device.offloads().unwrap_or_default());
    if device.is_held() && !more.is_empty() && !args.force {
        let remedy = "it may not expect what it has not requested; --force sets it anyway";
        return Err(SetError::held(device, remedy));
    }
    Ok(())
}

/// Future length of the network header in bytes, 0 for none, if known.
fn header_len(args: &DeviceSetArgs, device: &Inspected) -> Option<usize> {
    match args.flags.vnet_hdr {
        Some(HeaderArg::Off) => Some(0),
        None if !device.tun.net_header => Some(0),
        asked => match asked.and_then(HeaderArg::len) {
            Some(len) => Some(len.bytes()),
            None => device.header_len(),
        },
    }
}

/// Remedies for the header length.
const BY_PROGRAM: &str = "its program can set that";
pub(super) const BY_OPTION: &str = "set that with --vnet-hdr";

impl FlagArgs {
    fn is_any(&self) -> bool {
        let others = [self.pi, self.napi, self.backpressure];
        self.vnet_hdr.is_some() || others.iter().any(Option::is_some)
    }

    /// Refuses flags that this kernel does not have.
    pub(super) fn check(&self, name: &str) -> Result<(), SetError> {
        let is_wanted = self.backpressure.is_some_and(OnOff::is_on);
        if is_wanted && Machine::here().backpressure == Some(false) {
            return Err(SetError::NoBackpressure { name: name.to_owned() });
        }
        Ok(())
    }

    /// `flags` with the requested changes.
    fn applied(&self, mut flags: Flags) -> Flags {
        for (wanted, bit) in [
            (self.vnet_hdr.map(HeaderArg::is_on), Flags::VNET_HDR),
            (self.pi.map(|pi| !pi.is_on()), Flags::NO_PI),
            (self.napi.map(OnOff::is_on), Flags::NAPI),
            (self.backpressure.map(OnOff::is_on), Flags::BACKPRESSURE),
        ] {
            if let Some(on) = wanted {
                flags.set(bit, on);
            }
        }
        flags
    }
}

/// Error of changing a device.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetError {
    #[error("{name}: no setting was given; `tapswitch device set --help` lists them")]
    Nothing { name: String },
    #[error("{name}: held by {holders}: {remedy}")]
    Held { name: String, holders: String, remedy: &'static str },
    #[error(
        "{name}: has no network header, which offloads need to say what is left to do; none can be \
         on"
    )]
    NoHeader { name: String },
    #[error(
        "{name}: tunnel offloads need a network header of 24 bytes, and it has {len}: every read \
         would lose a frame; {remedy}"
    )]
    ShortHeader { name: String, len: usize, remedy: &'static str },
    #[error(
        "{name}: the network header is set to {len} bytes, which is no valid length: expected 10, \
         12, 20 or 24; {remedy}"
    )]
    OddHeader { name: String, len: usize, remedy: &'static str },
    #[error(
        "{name}: no program holds it, so it would be deleted at once; use `tapswitch device \
         delete` for that"
    )]
    Unkept { name: String },
    #[error("{name}: has no address {ip}/{prefix_len}; `tapswitch device show` lists those it has")]
    NoAddress { name: String, ip: IpAddr, prefix_len: u8 },
    #[error("{name}: this kernel has no IFF_BACKPRESSURE, which needs Linux 7.3")]
    NoBackpressure { name: String },
    #[error("{name}: a device that no program holds cannot have a carrier; start a program first")]
    Unheld { name: String },
    #[error(
        "{name}: all its queues are detached (TUNSETQUEUE), and Linux switches the carrier on only \
         while one is attached; {holders} must attach one"
    )]
    Detached { name: String, holders: String },
    #[error("{name}: its flags cannot be read; run as root (in a user namespace, by `unshare -m`)")]
    Flags { name: String },
    #[error(
        "{name}: cannot be opened: {source}; it must be persistent, and you must be root, or its \
         owner and in its group where those are set (`tapswitch device show`)"
    )]
    Open { name: String, source: std::io::Error },
    #[error("{name}: is a tun device, which has no MAC address; leave --mac out")]
    NoMac { name: String },
    #[error(
        "{name}: {mac} is not a unicast address; use one other than zero whose first byte is even"
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

    /// Error of the kernel for the setting `what`.
    fn refused(name: &str, what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let name = name.to_owned();
        move |source| Self::Refused { name, what, source }
    }

    /// Refuses offloads that a header of `len` bytes, 0 for none, cannot describe.
    pub(super) fn check_offloads(
        name: &str,
        wanted: Offloads,
        len: Option<usize>,
        remedy: &'static str,
    ) -> Result<(), Self> {
        let name = name.to_owned();
        match len {
            _ if wanted.is_empty() => Ok(()),
            Some(0) => Err(Self::NoHeader { name }),
            Some(len) if HeaderLen::from_bytes(len).is_none() => {
                Err(Self::OddHeader { name, len, remedy })
            }
            Some(len) if wanted.intersects(Offloads::TUNNEL) && len < TUNNEL_HEADER_LEN => {
                Err(Self::ShortHeader { name, len, remedy })
            }
            _ => Ok(()),
        }
    }

    /// Refuses addresses that are not unicast, and any address for a device that has none.
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

    /// The carrier of a device without an attached queue cannot be set.
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
            vnet_hdr: Some(HeaderArg::V1),
            pi: Some(OnOff::On),
            napi: Some(OnOff::Off),
            backpressure: None,
        };
        assert!(args.is_any() && !FlagArgs::default().is_any());
        let before = Flags::NO_PI | Flags::NAPI | Flags::TAP;
        assert_eq!(args.applied(before), Flags::VNET_HDR | Flags::TAP);
        assert_eq!(FlagArgs::default().applied(before), before);
    }
}
