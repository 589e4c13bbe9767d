//! Features by the names of `ethtool -k`: the kernel's own, and those for groups of features, which
//! only `ethtool` knows.

use tapswitch_netlink::{FeatureState, Netlink};

use super::Failure;
use super::args::FeatureArg;

/// Changes a feature, or all features of a group.
pub(super) fn set(netlink: &mut Netlink, name: &str, wanted: &FeatureArg) -> Result<(), Failure> {
    let mut is_in_force = false;
    for feature in kernel_names(name, &wanted.name, &netlink.features(name)?)? {
        let state = netlink.set_feature_by_name(name, &feature, wanted.on)?;
        is_in_force |= state.active == wanted.on;
    }
    // Of a group, some features may only be enabled by programs.
    if is_in_force {
        return Ok(());
    }
    Err(Box::new(Held { name: name.to_owned(), feature: wanted.name.clone() }))
}

/// Refuses unknown features.
pub(super) fn check(netlink: &Netlink, name: &str, wanted: &[FeatureArg]) -> Result<(), Failure> {
    if wanted.is_empty() {
        return Ok(());
    }
    let there = netlink.features(name)?;
    let known = |feature: &FeatureArg| kernel_names(name, &feature.name, &there).map(drop);
    Ok(wanted.iter().try_for_each(known)?)
}

/// The kernel's names for `wanted`; of a group, only features that can be changed.
fn kernel_names(
    device: &str,
    wanted: &str,
    there: &[FeatureState],
) -> Result<Vec<String>, NoFeature> {
    let is_it = |state: &&FeatureState| state.name == wanted;
    let group = GROUPS.iter().find(|(long, short, _)| [*long, *short].contains(&wanted));
    let found: Vec<_> = match group {
        Some((.., pattern)) => there.iter().filter(|it| matches(pattern, &it.name)).collect(),
        None => there.iter().filter(is_it).collect(),
    };
    let no_feature = || NoFeature { name: device.to_owned(), feature: wanted.to_owned() };
    let first = found.first().ok_or_else(no_feature)?;
    let changeable: Vec<_> =
        found.iter().filter(|it| !it.is_fixed()).map(|it| it.name.clone()).collect();
    Ok(if changeable.is_empty() { vec![first.name.clone()] } else { changeable })
}

/// True if `name` matches `pattern`, in which one `*` matches anything.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((start, end)) => name.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
    }
}

/// Names of `ethtool -k`, the short forms of `ethtool -K`, and the kernel's features that they
/// stand for (`off_flag_def` in its `common.c`).
const GROUPS: [(&str, &str, &str); 12] = [
    ("rx-checksumming", "rx", "rx-checksum"),
    ("tx-checksumming", "tx", "tx-checksum-*"),
    ("scatter-gather", "sg", "tx-scatter-gather*"),
    ("tcp-segmentation-offload", "tso", "tx-tcp*-segmentation"),
    ("udp-fragmentation-offload", "ufo", "tx-udp-fragmentation"),
    ("generic-segmentation-offload", "gso", "tx-generic-segmentation"),
    ("generic-receive-offload", "gro", "rx-gro"),
    ("large-receive-offload", "lro", "rx-lro"),
    ("rx-vlan-offload", "rxvlan", "rx-vlan-hw-parse"),
    ("tx-vlan-offload", "txvlan", "tx-vlan-hw-insert"),
    ("ntuple-filters", "ntuple", "rx-ntuple-filter"),
    ("receive-hashing", "rxhash", "rx-hashing"),
];

/// Neither the kernel nor `ethtool` knows the feature.
#[derive(Debug, thiserror::Error)]
#[error("{name}: there is no feature {feature}; `ethtool -k {name}` lists them")]
struct NoFeature {
    name: String,
    feature: String,
}

/// A feature that was enabled, and stays off nevertheless.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name}: {feature} is now requested, but stays off: it needs another feature that is off, or \
     its program has not requested it (TUNSETOFFLOAD), which only the program can do"
)]
struct Held {
    name: String,
    feature: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ethtool_stand_for_those_of_the_kernel() {
        let there = [
            feature("tx-checksum-ipv4", false),
            feature("tx-checksum-ip-generic", true),
            feature("tx-tcp-segmentation", true),
            feature("tx-tcp6-segmentation", true),
            feature("tx-udp-segmentation", true),
            feature("rx-gro", true),
            feature("rx-gro-list", true),
            feature("rx-hashing", false),
        ];
        let names = |wanted: &str| kernel_names("t0", wanted, &there).map_err(|it| it.to_string());
        let is = |wanted: &str, expected: &[&str]| {
            assert_eq!(names(wanted).unwrap(), expected, "{wanted}");
        };
        is("tx-checksumming", &["tx-checksum-ip-generic"]);
        is("tso", &["tx-tcp-segmentation", "tx-tcp6-segmentation"]);
        is("tcp-segmentation-offload", &["tx-tcp-segmentation", "tx-tcp6-segmentation"]);
        is("generic-receive-offload", &["rx-gro"]);
        is("gro", &["rx-gro"]);
        is("rx-gro-list", &["rx-gro-list"]);
        is("receive-hashing", &["rx-hashing"]);
        for unknown in ["lro", "tx-checksum-*", "nosuch"] {
            let error = names(unknown).unwrap_err();
            assert!(error.contains(unknown) && error.contains("`ethtool -k t0`"), "{error}");
        }
    }

    fn feature(name: &str, available: bool) -> FeatureState {
        let mut feature = FeatureState::default();
        (feature.name, feature.available) = (name.to_owned(), available);
        feature
    }
}
