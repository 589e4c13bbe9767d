//! The order in which rules are sent.

use std::sync::Arc;

use tapswitch_openflow::{Match, Oxm};

use crate::rule::FlowId;

/// The first fields of a match as numbers that compare as matches do. Matches with equal starts may
/// differ in later fields, or in values that do not fit.
type Start = [u64; 8];

/// Sorts rules by rank, then by match. A policy adds thousands of rules of a few ranks at once, and
/// most fields of two matches are equal, so the matches are compared as numbers first.
pub(super) fn sorted_by<R: Ord>(
    ids: Vec<Arc<FlowId>>,
    rank: impl Fn(&FlowId) -> R,
) -> Vec<Arc<FlowId>> {
    let keyed = ids.into_iter().map(|id| ((rank(&id), start(id.matching())), id));
    let mut keyed: Vec<_> = keyed.collect();
    keyed.sort_unstable_by(|(a, a_id), (b, b_id)| {
        a.cmp(b).then_with(|| a_id.matching().cmp(b_id.matching()))
    });
    keyed.into_iter().map(|(_, id)| id).collect()
}

/// Encodes each field as one number, followed by its mask if it has one. Zeros follow the last
/// field.
fn start(fields: &Match) -> Start {
    let mut start = Start::default();
    let mut rest = start.iter_mut();
    for field in fields {
        let (word, mask) = word(field);
        let words = [Some(word), mask];
        for (word, place) in words.into_iter().flatten().zip(rest.by_ref()) {
            *place = word;
        }
        if word & OPEN == OPEN {
            break;
        }
    }
    start
}

/// A field and its mask. Wide values and masks are not encoded: the result is then marked [`OPEN`].
fn word(field: &Oxm) -> (u64, Option<u64>) {
    let Some((field, value, mask)) = field.parts() else { return (u64::MAX, None) };
    let head = (field as u64 + 1) << FIELD_SHIFT;
    match (u64::try_from(value), mask.map(u64::try_from)) {
        (Ok(value), None) if value < MAX_VALUE => (head | value << VALUE_SHIFT, None),
        (Ok(value), Some(Ok(mask))) if value < MAX_VALUE => {
            (head | value << VALUE_SHIFT | HAS_MASK, Some(mask))
        }
        // Masks that do not fit are greater than those that do.
        (Ok(value), Some(Err(_))) if value < MAX_VALUE => {
            (head | value << VALUE_SHIFT | OPEN, None)
        }
        _ => (head | MAX_VALUE << VALUE_SHIFT | OPEN, None),
    }
}

/// Layout of a number: 8 bits for the field, 48 for its value, and 8 that tell whether a mask
/// follows.
const FIELD_SHIFT: u32 = 56;
const VALUE_SHIFT: u32 = 8;
/// Values from this one on are not encoded.
const MAX_VALUE: u64 = (1 << 48) - 1;
const HAS_MASK: u64 = 1;
const OPEN: u64 = 0xff;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tapswitch_openflow::{Masked, PortNo};
    use tapswitch_wire::{EtherType, MacAddr};

    use super::*;
    use crate::rule::TAPS;

    fn masked<T: Copy + std::fmt::Debug + 'static>(
        values: impl Strategy<Value = T> + Clone,
    ) -> impl Strategy<Value = Masked<T>> {
        (values.clone(), proptest::option::of(values))
            .prop_map(|(value, mask)| Masked { value, mask })
    }

    fn macs() -> impl Strategy<Value = MacAddr> + Clone {
        let high = prop_oneof![Just(0), Just(2), Just(0xff)];
        let low = prop_oneof![Just(0), Just(1), Just(0xfe), Just(0xff)];
        (high, low).prop_map(|(high, low)| MacAddr([high, high, high, high, high, low]))
    }

    fn fields() -> impl Strategy<Value = Match> {
        // With a mask of all bits, there is none.
        let addresses = prop_oneof![Just(0_u128), Just(1), Just(!1), Just(u128::MAX)];
        let metadata = prop_oneof![Just(0_u64), Just(1 << 48), Just(u64::MAX)];
        let field = prop_oneof![
            (0..2_u32).prop_map(|port| Oxm::InPort(PortNo(port))),
            masked(metadata).prop_map(Oxm::Metadata),
            masked(macs()).prop_map(Oxm::EthDst),
            masked(macs()).prop_map(Oxm::EthSrc),
            (0..2_u16).prop_map(|kind| Oxm::EthType(EtherType(kind))),
            masked(0..2_u16).prop_map(Oxm::VlanVid),
            (0..2_u8).prop_map(Oxm::IpProto),
            (0..3_u16).prop_map(Oxm::TcpSrc),
            (0..3_u16).prop_map(Oxm::TcpDst),
            masked(addresses.prop_map(std::net::Ipv6Addr::from)).prop_map(Oxm::Ipv6Src),
        ];
        vec(field, 0..9).prop_map(|fields| Match { fields })
    }

    proptest! {
        /// The order is that of comparing the matches field by field.
        #[test]
        fn rules_are_in_the_order_of_their_matches(
            rules in vec((0..2_u16, fields()), 0..40),
        ) {
            let ids = rules.into_iter().map(|(rank, fields)| FlowId::new(TAPS, rank, fields));
            let ids: Vec<_> = ids.map(Arc::new).collect();
            let mut expected = ids.clone();
            expected.sort_by(|a, b| {
                (a.priority, a.matching()).cmp(&(b.priority, b.matching()))
            });
            prop_assert_eq!(sorted_by(ids, |id| id.priority), expected);
        }
    }
}
