//! IP addresses of interfaces.

use std::fmt;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage};
use rustix::io::Errno;

use crate::error::Failure;
use crate::netlink::family;
use crate::{LinkError, Netlink};

/// An address of an interface, with the prefix length of its subnet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Address {
    /// Index of the interface.
    pub index: u32,
    /// The address.
    pub ip: IpAddr,
    /// Length of the prefix in bits.
    pub prefix_len: u8,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix_len)
    }
}

impl Netlink {
    /// Adds the address `ip` with a prefix of `prefix_len` bits to `name`. An IPv6 address is
    /// usable at once: duplicate address detection is disabled (`IFA_F_NODAD`).
    ///
    /// # Errors
    /// [`LinkError::Exists`] if it already has that address; [`LinkError::Refused`] for the
    /// unspecified address.
    pub fn add_address(&mut self, name: &str, ip: IpAddr, prefix_len: u8) -> Result<(), LinkError> {
        let mut message = self.address_message(name, ip, prefix_len)?;
        let action = format_args!("add the address {ip}/{prefix_len} to {name}");
        // Linux reports success for 0.0.0.0 and adds nothing.
        if ip.is_unspecified() {
            let message = Some("it is the unspecified address; give another one".to_owned());
            let source = Errno::ADDRNOTAVAIL.into();
            return Err(self.error(action, name, Failure { source, message }));
        }
        if ip.is_ipv6() {
            message.header.flags = AddressHeaderFlags::Nodad;
        }
        let message = RouteNetlinkMessage::NewAddress(message);
        self.ask(message, NLM_F_CREATE | NLM_F_EXCL, name, action)
    }

    /// Removes the address `ip` from `name`.
    ///
    /// # Errors
    /// [`LinkError::Refused`] if it does not have that address with that prefix length.
    pub fn delete_address(
        &mut self,
        name: &str,
        ip: IpAddr,
        prefix_len: u8,
    ) -> Result<(), LinkError> {
        let message = self.address_message(name, ip, prefix_len)?;
        let action = format_args!("delete the address {ip}/{prefix_len} of {name}");
        self.ask(RouteNetlinkMessage::DelAddress(message), 0, name, action)
    }

    /// The addresses of `name`, in the order of the kernel.
    ///
    /// # Errors
    /// [`LinkError::NotFound`].
    pub fn addresses(&mut self, name: &str) -> Result<Vec<Address>, LinkError> {
        let index = self.link(name)?.index;
        let all = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let answer = match self.connection.dump(all) {
            Ok(answer) => answer,
            Err(failure) => return Err(self.error("list the addresses", name, failure)),
        };
        let mut addresses: Vec<_> = answer.into_iter().filter_map(address_in).collect();
        addresses.retain(|address| address.index == index);
        Ok(addresses)
    }

    fn address_message(
        &mut self,
        name: &str,
        ip: IpAddr,
        prefix_len: u8,
    ) -> Result<AddressMessage, LinkError> {
        let mut message = AddressMessage::default();
        message.header.index = self.link(name)?.index;
        message.header.family = family(ip);
        message.header.prefix_len = prefix_len;
        message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(ip)];
        Ok(message)
    }
}

/// The address is `IFA_LOCAL`; for IPv6 it is only in `IFA_ADDRESS`, which on an IPv4
/// point-to-point link is the peer.
fn address_in(message: RouteNetlinkMessage) -> Option<Address> {
    let RouteNetlinkMessage::NewAddress(message) = message else { return None };
    let local = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Local(ip) => Some(*ip),
        _ => None,
    });
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(ip) => Some(*ip),
        _ => None,
    });
    Some(Address {
        index: message.header.index,
        ip: local.or(address)?,
        prefix_len: message.header.prefix_len,
    })
}
