//! The questions of one report to the kernel.
//!
//! The kernel lists the qdiscs of all interfaces of a namespace, or none. A list for each port
//! takes time by the square of the number of ports: seconds for some hundreds of them, in which the
//! server does nothing else.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tapswitch_netlink::{Link, Namespace, Netlink, Qdisc};

/// What the kernel has answered so far.
#[derive(Debug, Default)]
pub(crate) struct Inquiry {
    /// A connection to the namespace of the last question: one alone, as files are limited.
    open: Option<(Identity, Netlink)>,
    qdiscs: HashMap<Identity, HashMap<u32, Vec<Qdisc>>>,
}

/// Of a namespace.
type Identity = (u64, u64);

impl Inquiry {
    /// The interface with `index` in `namespace`, and its qdiscs, the root first. `None` if it is
    /// gone, or the kernel does not answer.
    pub(crate) fn interface(
        &mut self,
        namespace: &Namespace,
        index: u32,
    ) -> Option<(Link, &[Qdisc])> {
        let identity = namespace.identity().ok()?;
        if self.open.as_ref().is_none_or(|(open, _)| *open != identity) {
            self.open = Some((identity, Netlink::open(namespace).ok()?));
        }
        let (_, netlink) = self.open.as_mut()?;
        let link = netlink.link_by_index(index).ok()?;
        let lists = match self.qdiscs.entry(identity) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(netlink.all_qdiscs().ok()?),
        };
        Some((link, lists.get(&index).map_or(&[], Vec::as_slice)))
    }
}

#[cfg(test)]
mod tests {
    use tapswitch_helpers::{is_root, unique};
    use tapswitch_netlink::{OwnedNamespace, QdiscSpec};

    use super::*;

    #[test]
    fn qdiscs_of_a_namespace_are_listed_once() {
        if !is_root() {
            return;
        }
        let rooms = [(); 2].map(|()| OwnedNamespace::create(&unique("inquiry")).unwrap());
        let [mut one, mut two] = rooms.each_ref().map(|room| Netlink::open(room).unwrap());
        one.create_veth("left", "right", &rooms[0]).unwrap();
        two.create_veth("left", "right", &rooms[1]).unwrap();
        let fifo = QdiscSpec::new("pfifo");
        two.set_qdisc("left", &fifo).unwrap();
        let mut inquiry = Inquiry::default();
        let [left, right] = ["left", "right"].map(|name| one.link(name).unwrap().index);
        let (link, qdiscs) = inquiry.interface(&rooms[0], left).unwrap();
        assert_eq!((link.name.as_str(), qdiscs), ("left", &one.qdiscs("left").unwrap()[..]));

        let there = two.link("left").unwrap().index;
        let (_, qdiscs) = inquiry.interface(&rooms[1], there).unwrap();
        assert_eq!(qdiscs[0].kind, "pfifo", "another namespace has others");

        one.set_qdisc("right", &fifo).unwrap();
        let (link, qdiscs) = inquiry.interface(&rooms[0], right).unwrap();
        assert_eq!(link.name, "right");
        assert!(qdiscs.iter().all(|it| it.kind != "pfifo"), "they were listed again: {qdiscs:?}");
        let mut later = Inquiry::default();
        assert_eq!(later.interface(&rooms[0], right).unwrap().1[0].kind, "pfifo");

        one.delete("left").unwrap();
        assert_eq!(inquiry.interface(&rooms[0], left), None);
    }
}
