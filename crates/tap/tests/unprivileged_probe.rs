//! A program that may create devices but no namespaces still determines what it may send. A
//! separate test file, because the probe's result is kept for the whole process.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use rustix::thread::{CapabilitySet, CapabilitySets};
use tapswitch_netlink::Feature;
use tapswitch_tap::{Device, Offloads};

mod common;
use common::{Host, LINUX_7_3, can_tap, config, knows_udp_trains};

#[test]
fn without_the_probe_the_kernels_own_offer_is_believed() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let host = Host::new();
    let tap = host
        .namespace
        .enter(|| {
            let kept = CapabilitySet::NET_ADMIN;
            let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
            rustix::thread::set_capabilities(None, sets).unwrap();
            Device::create(&config("tap0").offloads(Offloads::CSUM)).unwrap()
        })
        .unwrap();
    assert_eq!(tap.capabilities().receive, Offloads::CSUM);
    assert!(host.netlink.feature("tap0", Feature::TxChecksum).unwrap());
    assert!(!host.netlink.feature("tap0", Feature::Tso).unwrap(), "set as asked for");
    assert_eq!(tap.capabilities().send, Offloads::PLAIN);
}

#[test]
fn all_this_holds_on_linux_7_3() {
    LINUX_7_3.test_all();
}
