//! Setting what a device has: over rtnetlink, `ethtool` and sysfs.

use tapswitch_netlink::{Namespace, Netlink, Sysfs};

use super::Failure;
use crate::cli::device::{FeatureArg, SettingArgs};

/// Sets all that needs no file of the device, in an order in which each finds what it builds on;
/// switching it on is last.
pub(super) fn apply(
    namespace: &Namespace,
    name: &str,
    settings: &SettingArgs,
) -> Result<(), Failure> {
    let mut netlink = Netlink::open(namespace)?;
    if settings.down {
        netlink.set_down(name)?;
    }
    if let Some(mac) = settings.mac {
        netlink.set_mac(name, mac.0)?;
    }
    if let Some(mtu) = settings.mtu {
        netlink.set_mtu(name, mtu)?;
    }
    if let Some(count) = settings.txqueuelen {
        netlink.set_txqueuelen(name, count)?;
    }
    if let Some(count) = settings.rx_frames {
        netlink.set_rx_frames(name, count)?;
    }
    for feature in &settings.feature {
        set_feature(&mut netlink, name, feature)?;
    }
    gro(namespace, name, settings)?;
    qdisc(&mut netlink, name, settings)?;
    for address in &settings.address {
        netlink.add_address(name, address.ip, address.prefix_len)?;
    }
    if settings.up {
        netlink.set_up(name)?;
    }
    Ok(())
}

fn qdisc(netlink: &mut Netlink, name: &str, settings: &SettingArgs) -> Result<(), Failure> {
    let Some(qdisc) = &settings.qdisc else { return Ok(()) };
    match &qdisc.0 {
        Some(spec) => Ok(netlink.set_qdisc(name, spec)?),
        // The kernel's own has no number: there is nothing to take away then.
        None if netlink.qdiscs(name)?.iter().any(|it| it.is_root() && it.handle != (0, 0)) => {
            Ok(netlink.delete_qdisc(name)?)
        }
        None => Ok(()),
    }
}

fn gro(namespace: &Namespace, name: &str, settings: &SettingArgs) -> Result<(), Failure> {
    let values = [
        ("gro_flush_timeout", settings.gro_flush_timeout),
        ("napi_defer_hard_irqs", settings.napi_defer_hard_irqs.map(Into::into)),
    ];
    if values.iter().all(|(_, value)| value.is_none()) {
        return Ok(());
    }
    let sysfs = Sysfs::open(namespace)?;
    for (file, value) in values {
        if let Some(value) = value {
            sysfs.write(name, file, &value.to_string())?;
        }
    }
    Ok(())
}

fn set_feature(netlink: &mut Netlink, name: &str, feature: &FeatureArg) -> Result<(), Failure> {
    let state = netlink.set_feature_by_name(name, &feature.name, feature.on)?;
    if state.active != feature.on {
        return Err(Box::new(Held { name: name.to_owned(), feature: feature.name.clone() }));
    }
    Ok(())
}

/// A feature that is wanted, and nevertheless off.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name}: {feature} is wanted now, but stays off: it needs another feature that is off, or its \
     program has not asked for it; `tapswitch device set {name} --offloads` can"
)]
struct Held {
    name: String,
    feature: String,
}
