//! `tapswitch device create`.
//!
//! The device becomes persistent in the last step. Until then it exists by this program's file, so
//! that a failure or a kill leaves nothing behind.

use tapswitch_netlink::Namespace;
use tapswitch_tap::{Config, CreateError, Device, HeaderLen, Offloads, Taken, Wish};

use super::args::{DeviceCreateArgs, HeaderArg};
use super::change::{Done, apply};
use super::set::{BY_OPTION, SetError};
use super::{Failure, namespace};
use crate::on_off::OnOff;

pub(super) fn main(args: &DeviceCreateArgs) -> Result<(), Failure> {
    let namespace = namespace(args.place.netns.as_deref())?;
    args.flags.check(args.name.as_str())?;
    check_offloads(args)?;
    SetError::check_mac(args.name.as_str(), args.kind.into(), args.settings.mac)?;
    let config = config(args);
    let device = namespace.enter(|| Device::create(&config))?.map_err(in_our_words)?;
    finish(&device, &namespace, args)
}

/// Refuses offloads that the header cannot describe: they would be omitted silently.
fn check_offloads(args: &DeviceCreateArgs) -> Result<(), SetError> {
    let wanted = args.settings.offloads.map_or(Offloads::empty(), |it| it.0);
    SetError::check_offloads(args.name.as_str(), wanted, Some(header_len(args).bytes()), BY_OPTION)
}

/// The requested length, or the default for programs that do not set it.
fn header_len(args: &DeviceCreateArgs) -> HeaderLen {
    match args.flags.vnet_hdr {
        Some(HeaderArg::Off) => HeaderLen::None,
        asked => asked.and_then(HeaderArg::len).unwrap_or(HeaderLen::Legacy),
    }
}

/// Replaces the library's remedies, which name its own options, by those of this command.
fn in_our_words(error: CreateError) -> Failure {
    match error {
        CreateError::NameTaken { name, by: by @ (Taken::Unheld | Taken::Held { .. }) } => {
            Box::new(Exists { name, by })
        }
        CreateError::NotPermitted { name, .. } => Box::new(NotPermitted { name }),
        other => Box::new(other),
    }
}

/// Only root may create devices.
#[derive(Debug, thiserror::Error)]
#[error("{name}: not permitted; creating a device needs CAP_NET_ADMIN: run as root")]
struct NotPermitted {
    name: String,
}

/// A device of that name exists.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name}: {by}; choose another name, change the existing device with `tapswitch device set`, or \
     delete it with `tapswitch device delete`"
)]
struct Exists {
    name: String,
    by: Taken,
}

fn finish(device: &Device, namespace: &Namespace, args: &DeviceCreateArgs) -> Result<(), Failure> {
    // If this fails, the device is deleted with its settings.
    apply(namespace, device.name().as_str(), &args.settings, &mut Done::default())?;
    Ok(device.set_persistent(true)?)
}

fn config(args: &DeviceCreateArgs) -> Config {
    let (flags, settings) = (&args.flags, &args.settings);
    let is_on = |switch: Option<OnOff>| switch.is_some_and(OnOff::is_on);
    let wish = if is_on(flags.backpressure) { Wish::Required } else { Wish::Off };
    let mut config = Config::new(args.name.clone())
        .kind(args.kind.into())
        .multi_queue(args.multi_queue)
        .net_header(header_len(args))
        .packet_info(is_on(flags.pi))
        .napi(is_on(flags.napi))
        .backpressure(wish)
        // A program enables the offloads that it supports; what is set here would stay.
        .offloads(settings.offloads.map_or(Offloads::empty(), |it| it.0));
    if let Some(owner) = settings.owner {
        config = config.owner(owner.0);
    }
    if let Some(group) = settings.group {
        config = config.group(group.0);
    }
    config
}
