//! Changes settings over rtnetlink, `ethtool` and sysfs.

use tapswitch_netlink::{Namespace, Netlink, Sysfs};

use super::args::SettingArgs;
use super::{Failure, features};

/// Settings made so far, in words.
#[derive(Debug, Default)]
pub(super) struct Done(Vec<String>);

impl Done {
    pub(super) fn push(&mut self, what: impl Into<String>) {
        self.0.push(what.into());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the settings made so far, which stay, to `error`.
    pub(super) fn explain(self, error: Failure) -> Failure {
        if self.0.is_empty() {
            return error;
        }
        Box::new(Partly { error: error.to_string(), done: self.0.join(", ") })
    }
}

/// Only some of the settings were made.
#[derive(Debug, thiserror::Error)]
#[error("{error}; already set: {done}")]
struct Partly {
    error: String,
    done: String,
}

/// Makes all settings that need no file of the device, in the order of their dependencies; setting
/// it up is last. Records the settings in `done`, also if a later one fails.
pub(super) fn apply(
    namespace: &Namespace,
    name: &str,
    settings: &SettingArgs,
    done: &mut Done,
) -> Result<(), Failure> {
    let mut netlink = Netlink::open(namespace)?;
    if settings.down {
        netlink.set_down(name)?;
        done.push("down");
    }
    if let Some(mac) = settings.mac {
        netlink.set_mac(name, mac.0)?;
        done.push("mac");
    }
    if let Some(mtu) = settings.mtu {
        netlink.set_mtu(name, mtu)?;
        done.push("mtu");
    }
    if let Some(count) = settings.txqueuelen {
        netlink.set_txqueuelen(name, count)?;
        done.push("txqueuelen");
    }
    if let Some(count) = settings.rx_frames {
        netlink.set_rx_frames(name, count)?;
        done.push("rx-frames");
    }
    for feature in &settings.feature {
        features::set(&mut netlink, name, feature)?;
        done.push(format!("feature {}", feature.name));
    }
    gro(namespace, name, settings, done)?;
    qdisc(&mut netlink, name, settings)?;
    if settings.qdisc.is_some() {
        done.push("qdisc");
    }
    for address in &settings.address {
        netlink.add_address(name, address.ip, address.prefix_len)?;
        done.push(format!("address {}", address.ip));
    }
    if settings.up {
        netlink.set_up(name)?;
        done.push("up");
    }
    Ok(())
}

fn qdisc(netlink: &mut Netlink, name: &str, settings: &SettingArgs) -> Result<(), Failure> {
    let Some(qdisc) = &settings.qdisc else { return Ok(()) };
    match &qdisc.0 {
        Some(spec) => Ok(netlink.set_qdisc(name, spec)?),
        // The kernel's own qdisc has no handle: then there is nothing to delete.
        None if netlink.qdiscs(name)?.iter().any(|it| it.is_root() && it.handle != (0, 0)) => {
            Ok(netlink.delete_qdisc(name)?)
        }
        None => Ok(()),
    }
}

fn gro(
    namespace: &Namespace,
    name: &str,
    settings: &SettingArgs,
    done: &mut Done,
) -> Result<(), Failure> {
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
            done.push(file);
        }
    }
    Ok(())
}
