//! The addresses of a tun device itself, as known to the kernel.
//!
//! A separate thread queries them, as the kernel's answer may have to wait for others that change
//! interfaces (rtnetlink has one lock), and no packet may wait for that.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use tapswitch_datapath::Millis;
use tapswitch_netlink::{Namespace, Netlink};

/// A device's addresses at the time of the last query.
#[derive(Debug)]
pub(super) struct DeviceAddresses {
    name: String,
    namespace: Namespace,
    known: ArcSwap<Vec<Subnet>>,
    /// When the last query began, in milliseconds.
    looked: AtomicU64,
}

/// An address of the device and its prefix length in bits.
type Subnet = (IpAddr, u8);

impl DeviceAddresses {
    pub(super) fn of(name: &str, namespace: &Namespace) -> Self {
        let (name, namespace) = (name.to_owned(), namespace.clone());
        Self { name, namespace, known: ArcSwap::default(), looked: 0.into() }
    }

    /// Queries the kernel. Returns the addresses.
    pub(super) fn look(&self) -> impl Iterator<Item = IpAddr> {
        let addresses =
            Netlink::open(&self.namespace).and_then(|mut netlink| netlink.addresses(&self.name));
        // A device that is gone has none.
        let addresses = addresses.unwrap_or_default();
        let known = addresses.iter().map(|address| (address.ip, address.prefix_len)).collect();
        self.known.store(Arc::new(known));
        addresses.into_iter().map(|address| address.ip)
    }

    /// True for one caller per second, which then queries.
    pub(super) fn is_due(&self, now: Millis) -> bool {
        let looked = self.looked.load(Ordering::Relaxed);
        now.since(Millis(looked)) >= BETWEEN_LOOKS
            && self
                .looked
                .compare_exchange(looked, now.0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// The device's address in the subnet of `ip`.
    pub(super) fn near(&self, ip: IpAddr) -> Option<IpAddr> {
        let known = self.known.load();
        known.iter().find(|subnet| is_within(ip, **subnet)).map(|(own, _)| *own)
    }
}

fn is_within(ip: IpAddr, (own, prefix_len): Subnet) -> bool {
    // Differences behind the prefix do not count.
    let differ = match (own, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => u128::from(a.to_bits() ^ b.to_bits()) << 96,
        (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() ^ b.to_bits(),
        _ => return false,
    };
    differ.leading_zeros() >= u32::from(prefix_len)
}

const BETWEEN_LOOKS: Millis = Millis(1000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_same_network_is_near() {
        let device = DeviceAddresses::of("t0", &Namespace::current().unwrap());
        let all = [("fe80::1", 64), ("10.1.0.1", 16), ("10.2.0.1", 32)];
        let all = all.map(|(ip, prefix_len)| (ip.parse().unwrap(), prefix_len));
        device.known.store(Arc::new(all.to_vec()));
        let near = |ip: &str| device.near(ip.parse().unwrap()).map(|ip| ip.to_string());
        assert_eq!(near("10.1.255.9").as_deref(), Some("10.1.0.1"));
        assert_eq!(near("fe80::9").as_deref(), Some("fe80::1"));
        assert_eq!((near("10.2.0.2"), near("fd00::1")), (None, None));
        assert_eq!(near("10.2.0.1").as_deref(), Some("10.2.0.1"));
    }

    #[test]
    fn one_looks_in_a_second() {
        let device = DeviceAddresses::of("t0", &Namespace::current().unwrap());
        let due = [5000, 5001, 5999, 6000, 6001].map(|now| device.is_due(Millis(now)));
        assert_eq!(due, [true, false, false, true, false]);
    }
}
