//! Route lookup.

use std::io;
use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteMessage};

use crate::netlink::family;
use crate::{LinkError, Netlink};

impl Netlink {
    /// Index of the interface through which packets from `from`, an address of this namespace,
    /// currently leave for `to`.
    ///
    /// # Errors
    /// [`LinkError::Refused`] if there is no route.
    pub fn egress(&mut self, to: IpAddr, from: IpAddr) -> Result<u32, LinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(to);
        let len = if to.is_ipv4() { 32 } else { 128 };
        message.header.destination_prefix_length = len;
        message.header.source_prefix_length = len;
        message.attributes =
            vec![RouteAttribute::Destination(to.into()), RouteAttribute::Source(from.into())];
        let action = format_args!("look up the route to {to}");
        let answer = match self.connection.ask(RouteNetlinkMessage::GetRoute(message), 0) {
            Ok(answer) => answer,
            Err(failure) => return Err(self.error(action, "", failure)),
        };
        answer.into_iter().find_map(egress_in).ok_or_else(|| {
            let cause = io::Error::new(io::ErrorKind::InvalidData, "it names no interface");
            self.error(action, "", cause.into())
        })
    }
}

fn egress_in(message: RouteNetlinkMessage) -> Option<u32> {
    let RouteNetlinkMessage::NewRoute(route) = message else { return None };
    route.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(index) => Some(*index),
        _ => None,
    })
}
