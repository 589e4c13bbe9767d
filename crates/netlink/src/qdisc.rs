//! Queueing disciplines: where packets wait before a driver takes them (tc(8)).
//!
//! A tap device drops packets that do not fit its ring. A discipline before it decides which
//! packets wait and which are dropped, but only with a driver that stops its queue when the ring is
//! full: a tun device with `IFF_BACKPRESSURE` (Linux 7.3). With `noqueue` no packet can wait,
//! whatever the driver does.
//!
//! A device with several transmit queues has `mq` as its root and one discipline per queue below it
//! (`parent` is the root's handle and the number of the queue).

use std::collections::HashMap;

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use rustix::io::Errno;

use crate::error::Failure;
use crate::{LinkError, Netlink};

/// A queueing discipline of an interface when the kernel was queried. Counters start when the
/// discipline was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Qdisc {
    /// Index of the interface.
    pub index: u32,
    /// Kind, such as `pfifo_fast`, `fq_codel`, `mq`, `noqueue`.
    pub kind: String,
    /// Handle, major and minor; 0:0 for one that the kernel created by default.
    pub handle: (u16, u16),
    /// Parent class; `None` for the root.
    pub parent: Option<(u16, u16)>,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Packets queued.
    pub qlen: u32,
    /// Bytes queued.
    pub backlog: u32,
    /// Number of packets that the driver refused and that were requeued.
    pub requeues: u32,
    /// Number of packets that were delayed or exceeded a limit.
    pub overlimits: u32,
}

impl Qdisc {
    /// True for a root discipline, through which all sent packets pass (unlike `clsact` and
    /// `ingress`).
    pub fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    fn from_message(message: TcMessage) -> Self {
        let TcHandle { major, minor } = message.header.handle;
        let parent = message.header.parent;
        let mut qdisc = Self {
            index: u32::try_from(message.header.index).unwrap_or(0),
            handle: (major, minor),
            parent: (parent != TcHandle::ROOT).then_some((parent.major, parent.minor)),
            ..Self::default()
        };
        for attribute in message.attributes {
            match attribute {
                TcAttribute::Kind(kind) => qdisc.kind = kind,
                TcAttribute::Stats2(stats) => stats.iter().for_each(|item| qdisc.count(item)),
                _ => {}
            }
        }
        qdisc
    }

    fn count(&mut self, stats: &TcStats2) {
        match stats {
            TcStats2::Basic(basic) => {
                (self.bytes, self.packets) = (basic.bytes, basic.packets.into());
            }
            TcStats2::Queue(queue) => {
                (self.qlen, self.backlog) = (queue.qlen, queue.backlog);
                self.drops = queue.drops.into();
                (self.requeues, self.overlimits) = (queue.requeues, queue.overlimits);
            }
            _ => {}
        }
    }
}

/// A root queueing discipline to set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QdiscSpec {
    kind: String,
    limit: Option<u32>,
}

impl QdiscSpec {
    /// The discipline `kind` with default settings: `pfifo`, `pfifo_fast`, `fq_codel`, `noqueue` or
    /// any other that this kernel has and that requires no settings.
    #[must_use]
    pub fn new(kind: &str) -> Self {
        Self { kind: kind.to_owned(), limit: None }
    }

    /// Sets the maximum queue length: in packets, for `bfifo` in bytes. Supported by `pfifo`,
    /// `bfifo`, `codel`, `fq_codel` and `fq`.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// The kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// `TCA_OPTIONS`: a struct for the simple ones, attributes for the others
    /// (`include/uapi/linux/pkt_sched.h`). `None` if the kind has no limit.
    fn options(&self) -> Option<Vec<TcAttribute>> {
        let Some(limit) = self.limit else { return Some(Vec::new()) };
        let bytes = match self.kind.as_str() {
            "pfifo" | "bfifo" => limit.to_ne_bytes().to_vec(),
            "fq_codel" | "codel" => attribute(2, limit),
            "fq" => attribute(1, limit),
            _ => return None,
        };
        Some(vec![TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, bytes))])
    }
}

impl Netlink {
    /// The queueing disciplines of `name`, the root first.
    ///
    /// # Errors
    /// [`LinkError::NotFound`].
    pub fn qdiscs(&mut self, name: &str) -> Result<Vec<Qdisc>, LinkError> {
        let index = self.link(name)?.index;
        Ok(self.dump_qdiscs(name)?.remove(&index).unwrap_or_default())
    }

    /// The queueing disciplines of each interface by its index, the root first. Takes as long as
    /// [`Self::qdiscs`] for one interface, as the kernel lists only all of them.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn all_qdiscs(&mut self) -> Result<HashMap<u32, Vec<Qdisc>>, LinkError> {
        self.dump_qdiscs("")
    }

    /// `name` is for errors.
    fn dump_qdiscs(&mut self, name: &str) -> Result<HashMap<u32, Vec<Qdisc>>, LinkError> {
        let mut message = TcMessage::default();
        // By default the kernel omits those that it created below others.
        message.attributes.push(TcAttribute::DumpInvisible(true));
        let all = RouteNetlinkMessage::GetQueueDiscipline(message);
        let answer = match self.connection.dump(all) {
            Ok(answer) => answer,
            Err(failure) => return Err(self.error("list the qdiscs", name, failure)),
        };
        let mut lists: HashMap<u32, Vec<Qdisc>> = HashMap::new();
        for qdisc in answer.into_iter().filter_map(qdisc_in) {
            lists.entry(qdisc.index).or_default().push(qdisc);
        }
        lists.values_mut().for_each(|list| list.sort_by_key(|qdisc| qdisc.parent));
        Ok(lists)
    }

    /// Replaces the root discipline of `name` by `spec`. Packets queued there are dropped.
    ///
    /// # Errors
    /// [`LinkError::Refused`] if this kernel has no such discipline, or it has no limit.
    pub fn set_qdisc(&mut self, name: &str, spec: &QdiscSpec) -> Result<(), LinkError> {
        let action = format!("set the qdisc of {name} to {}", spec.kind);
        let Some(options) = spec.options() else {
            let message = Some(format!("{} takes no limit", spec.kind));
            let source = Errno::INVAL.into();
            return Err(self.error(action, name, Failure { source, message }));
        };
        let mut message = self.root_qdisc(name)?;
        message.attributes.push(TcAttribute::Kind(spec.kind.clone()));
        message.attributes.extend(options);
        let message = RouteNetlinkMessage::NewQueueDiscipline(message);
        self.ask(message, NLM_F_CREATE | NLM_F_REPLACE, name, format_args!("{action}"))
    }

    /// Removes a configured root discipline of `name`; the kernel's default
    /// (`net.core.default_qdisc`) replaces it.
    ///
    /// # Errors
    /// [`LinkError::Refused`] if it already is the default.
    pub fn delete_qdisc(&mut self, name: &str) -> Result<(), LinkError> {
        let message = RouteNetlinkMessage::DelQueueDiscipline(self.root_qdisc(name)?);
        self.ask(message, 0, name, format_args!("delete the qdisc of {name}"))
    }

    fn root_qdisc(&mut self, name: &str) -> Result<TcMessage, LinkError> {
        let mut message = TcMessage::with_index(self.link(name)?.index.cast_signed());
        message.header.parent = TcHandle::ROOT;
        Ok(message)
    }
}

fn qdisc_in(message: RouteNetlinkMessage) -> Option<Qdisc> {
    match message {
        RouteNetlinkMessage::NewQueueDiscipline(message) => Some(Qdisc::from_message(message)),
        _ => None,
    }
}

/// Encodes one attribute with a number.
fn attribute(kind: u16, value: u32) -> Vec<u8> {
    [&8_u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value.to_ne_bytes()].concat()
}

/// `include/uapi/linux/rtnetlink.h`.
const TCA_OPTIONS: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_said_as_each_kind_wants_it() {
        let options = |kind| QdiscSpec::new(kind).limit(7).options();
        let raw = |bytes: &[u8]| {
            Some(vec![TcAttribute::Other(DefaultNla::new(TCA_OPTIONS, bytes.to_vec()))])
        };
        assert_eq!(options("pfifo"), raw(&7_u32.to_ne_bytes()));
        assert_eq!(options("fq"), raw(&attribute(1, 7)));
        assert_eq!(options("fq_codel"), raw(&attribute(2, 7)));
        assert_eq!(options("noqueue"), None);
        assert_eq!(QdiscSpec::new("noqueue").options(), Some(Vec::new()));
    }
}
