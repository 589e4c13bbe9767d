//! Validation of actions (OpenFlow 1.3.5 §5.12, §7.2.5).
//!
//! Only the message itself is checked; the switch checks whether ports, groups, queues and meters
//! exist.

use tapswitch_wire::EtherType;

use super::{Action, CONTROLLER_MAX_LEN, CONTROLLER_MAX_LEN_NO_BUFFER};
use crate::oxm::{Context, MPLS, MPLS_MULTICAST, PBB, VID_PRESENT, check_bits};
use crate::{CheckError, Delivery, EXPERIMENTER, ErrorKind, GroupId, Oxm, OxmField, PortNo, Shape};

/// Where a list of actions is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a flow entry.
    Entry,
    /// In a bucket of a group, the only place for a delivery contract ([`Delivery`]) and for
    /// shaping ([`Shape`]).
    Bucket,
    /// In a packet-out, the only place for [`PortNo::TABLE`].
    PacketOut,
}

impl Action {
    /// Whether a switch could execute the action.
    pub fn check(&self) -> Result<(), CheckError> {
        let is_ok = match self {
            Self::Output { port, max_len } => return check_output(self, *port, *max_len),
            Self::Group(group_id) if *group_id > GroupId::MAX => {
                return Err(refuse(self, ErrorKind::OFPBAC_BAD_OUT_GROUP, "no such group"));
            }
            Self::SetField(oxm) => return check_set_field(self, oxm),
            Self::Experimenter { experimenter, .. } => {
                return check_experimenter(self, *experimenter);
            }
            Self::Unknown { .. } => {
                return Err(refuse(self, ErrorKind::OFPBAC_BAD_TYPE, "unknown action"));
            }
            Self::PushVlan(tpid) => matches!(*tpid, EtherType::VLAN | EtherType::SERVICE_VLAN),
            Self::PushMpls(eth_type) => matches!(*eth_type, MPLS | MPLS_MULTICAST),
            Self::PushPbb(eth_type) => *eth_type == PBB,
            _ => true,
        };
        match is_ok {
            true => Ok(()),
            false => Err(refuse(self, ErrorKind::OFPBAC_BAD_ARGUMENT, "no such header")),
        }
    }

    /// Whether a switch could execute the actions at this place.
    pub(crate) fn check_all(actions: &[Self], place: Place) -> Result<(), CheckError> {
        for action in actions {
            action.check()?;
            let to_table = matches!(action, Self::Output { port, .. } if *port == PortNo::TABLE);
            if to_table && place != Place::PacketOut {
                let text = "only a packet_out may send to the tables";
                return Err(refuse(action, ErrorKind::OFPBAC_BAD_OUT_PORT, text));
            }
            if place != Place::Bucket && is_of_copies(action) {
                let text = "only the copies of a bucket have a contract or a shape";
                return Err(refuse(action, ErrorKind::OFPBAC_BAD_EXP_TYPE, text));
            }
        }
        Ok(())
    }

    /// Whether the actions, in order, suit packets with this context: a field can be set only if
    /// its header is known to be present (`OFPBAC_MATCH_INCONSISTENT`).
    pub(crate) fn check_against(actions: &[Self], mut context: Context) -> Result<(), CheckError> {
        for action in actions {
            match action {
                Self::SetField(oxm) => {
                    check_settable(action, oxm, &context)?;
                    context.learn(oxm);
                }
                Self::PushVlan(_) => context.has_vlan = true,
                // What follows the tag is unknown; it may be another tag. The fields behind all
                // tags stay.
                Self::PopVlan => context.has_vlan = true,
                Self::PushMpls(eth_type) | Self::PopMpls(eth_type) | Self::PushPbb(eth_type) => {
                    context.forget_payload(Some(*eth_type));
                }
                Self::PopPbb => context.forget_payload(None),
                _ => {}
            }
        }
        Ok(())
    }
}

fn check_output(action: &Action, port: PortNo, max_len: u16) -> Result<(), CheckError> {
    let is_reserved = port > PortNo::MAX && port < PortNo::IN_PORT;
    if is_reserved || port == PortNo::ANY || port.0 == 0 {
        return Err(refuse(action, ErrorKind::OFPBAC_BAD_OUT_PORT, "no such port"));
    }
    let is_odd = max_len > CONTROLLER_MAX_LEN && max_len != CONTROLLER_MAX_LEN_NO_BUFFER;
    if port == PortNo::CONTROLLER && is_odd {
        return Err(refuse(action, ErrorKind::OFPBAC_BAD_ARGUMENT, "max_len is reserved"));
    }
    Ok(())
}

/// True for our own actions, which shape and contract copies.
fn is_of_copies(action: &Action) -> bool {
    Delivery::of(action).is_some() || Shape::of(action).is_some()
}

/// Other experimenters' actions are not known.
fn check_experimenter(action: &Action, experimenter: u32) -> Result<(), CheckError> {
    match is_of_copies(action) {
        true => Ok(()),
        false if experimenter == EXPERIMENTER => {
            Err(refuse(action, ErrorKind::OFPBAC_BAD_EXP_TYPE, "no such action"))
        }
        false => Err(refuse(action, ErrorKind::OFPBAC_BAD_EXPERIMENTER, "unknown experimenter")),
    }
}

fn check_set_field(action: &Action, oxm: &Oxm) -> Result<(), CheckError> {
    let Some((field, value, mask)) = oxm.parts() else {
        return Err(refuse(action, ErrorKind::OFPBAC_BAD_SET_TYPE, "unknown field"));
    };
    let is_header = !matches!(
        field,
        OxmField::InPort | OxmField::InPhyPort | OxmField::Metadata | OxmField::Ipv6Exthdr
    );
    if !is_header {
        let text = "the field is not a header field";
        return Err(refuse(action, ErrorKind::OFPBAC_BAD_SET_TYPE, text));
    }
    if mask.is_some() {
        let text = "a mask is allowed only in matches";
        return Err(refuse(action, ErrorKind::OFPBAC_BAD_SET_ARGUMENT, text));
    }
    check_bits(&field.info(), value, None)
        .map_err(|(_, text)| refuse(action, ErrorKind::OFPBAC_BAD_SET_ARGUMENT, text))?;
    if field == OxmField::VlanVid && value & u128::from(VID_PRESENT) == 0 {
        let text = "OFPVID_PRESENT (0x1000) is missing";
        return Err(refuse(action, ErrorKind::OFPBAC_BAD_SET_ARGUMENT, text));
    }
    Ok(())
}

fn check_settable(action: &Action, oxm: &Oxm, context: &Context) -> Result<(), CheckError> {
    let Some(field) = oxm.field() else {
        return Ok(());
    };
    if !context.has(field) {
        let text = "neither the match nor an earlier action ensures that the header is present";
        let kind = ErrorKind::OFPBAC_MATCH_INCONSISTENT;
        return Err(refuse(action, kind, text));
    }
    Ok(())
}

#[cold]
fn refuse(action: &Action, kind: ErrorKind, text: &str) -> CheckError {
    CheckError::new(kind, format!("{action}: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Masked, Match};

    fn kind(action: &Action) -> Option<ErrorKind> {
        action.check().err().map(|error| error.kind)
    }

    #[test]
    fn ports_and_lengths() {
        for port in [1, PortNo::MAX.0, PortNo::IN_PORT.0, PortNo::LOCAL.0] {
            assert_eq!(kind(&Action::output(PortNo(port))), None, "{port:#x}");
        }
        for port in [0, PortNo::MAX.0 + 1, PortNo::ANY.0] {
            let bad = Some(ErrorKind::OFPBAC_BAD_OUT_PORT);
            assert_eq!(kind(&Action::output(PortNo(port))), bad, "{port:#x}");
        }
        let to_controller = |max_len| Action::Output { port: PortNo::CONTROLLER, max_len };
        assert_eq!(kind(&to_controller(0xffe5)), None);
        let bad = Some(ErrorKind::OFPBAC_BAD_ARGUMENT);
        assert_eq!(kind(&to_controller(0xffe6)), bad);
    }

    #[test]
    fn contracts_stand_in_buckets_and_are_whole() {
        let ours =
            |data: &[u8]| Action::Experimenter { experimenter: EXPERIMENTER, data: data.into() };
        let deliver = Delivery::BestEffort.action();
        assert_eq!(Action::check_all(std::slice::from_ref(&deliver), Place::Bucket), Ok(()));
        for place in [Place::Entry, Place::PacketOut] {
            let error = Action::check_all(std::slice::from_ref(&deliver), place).unwrap_err();
            assert_eq!(error.kind, ErrorKind::OFPBAC_BAD_EXP_TYPE);
            assert_eq!(
                error.text,
                "deliver:best-effort: only the copies of a bucket have a contract or a shape"
            );
        }
        let sample = Shape::Sample { every: 10 }.action();
        assert_eq!(Action::check_all(std::slice::from_ref(&sample), Place::Bucket), Ok(()));
        assert!(Action::check_all(std::slice::from_ref(&sample), Place::Entry).is_err());
        assert_eq!(kind(&ours(&[0, 1, 0, 9, 0, 0, 0, 0])), Some(ErrorKind::OFPBAC_BAD_EXP_TYPE));
        let theirs = Action::Experimenter { experimenter: 1, data: vec![0, 1, 0, 1, 0, 0, 0, 0] };
        assert_eq!(kind(&theirs), Some(ErrorKind::OFPBAC_BAD_EXPERIMENTER));
    }

    #[test]
    fn tags_that_can_be_pushed() {
        assert_eq!(kind(&Action::PushVlan(EtherType::SERVICE_VLAN)), None);
        let bad = Some(ErrorKind::OFPBAC_BAD_ARGUMENT);
        assert_eq!(kind(&Action::PushVlan(EtherType(0x9100))), bad);
        assert_eq!(kind(&Action::PushMpls(EtherType::IPV4)), bad);
    }

    #[test]
    fn fields_that_can_be_set() {
        let set = |oxm| kind(&Action::SetField(oxm));
        assert_eq!(set(Oxm::VlanVid(Masked::exact(0x1005))), None);
        assert_eq!(set(Oxm::TunnelId(Masked::exact(5))), None);
        for oxm in [
            Oxm::VlanVid(Masked::exact(5)),
            Oxm::VlanPcp(8),
            Oxm::Ipv6Flabel(Masked::exact(0x10_0000)),
            Oxm::EthSrc(Masked::with_mask(Default::default(), Default::default())),
        ] {
            assert_eq!(set(oxm), Some(ErrorKind::OFPBAC_BAD_SET_ARGUMENT));
        }
        for oxm in [
            Oxm::InPort(PortNo(1)),
            Oxm::Metadata(Masked::exact(1)),
            Oxm::Unknown { class: 1, field: 1, has_mask: false, payload: vec![] },
        ] {
            assert_eq!(set(oxm), Some(ErrorKind::OFPBAC_BAD_SET_TYPE));
        }
    }

    #[test]
    fn a_field_is_set_only_where_its_header_is() {
        let check = |of: Match, actions: &[Action]| {
            let context = of.context().unwrap();
            let result = Action::check_against(actions, context);
            result.err().map(|error| error.kind)
        };
        let vid = Action::SetField(Oxm::VlanVid(Masked::exact(0x1005)));
        let source = Action::SetField(Oxm::Ipv4Src(Masked::exact([10, 0, 0, 1].into())));
        let inconsistent = Some(ErrorKind::OFPBAC_MATCH_INCONSISTENT);
        let any = Match::new();
        let tagged = Match::new().with(Oxm::VlanVid(Masked::exact(0x1001)));
        let ip = Match::new().with(Oxm::EthType(EtherType::IPV4));
        let push = Action::PushVlan(EtherType::VLAN);
        assert_eq!(check(any.clone(), std::slice::from_ref(&vid)), inconsistent);
        assert_eq!(check(any.clone(), &[push, vid.clone()]), None);
        assert_eq!(check(tagged.clone(), std::slice::from_ref(&vid)), None);
        assert_eq!(check(tagged.clone(), &[Action::PopVlan, vid]), None);
        assert_eq!(check(tagged, &[Action::PopVlan, source.clone()]), inconsistent);
        assert_eq!(check(any, std::slice::from_ref(&source)), inconsistent);
        assert_eq!(check(ip.clone(), std::slice::from_ref(&source)), None);
        let mpls = Action::PushMpls(MPLS);
        assert_eq!(check(ip, &[mpls, source]), inconsistent);
    }
}
