//! Random filters for flow statistics.

use tapswitch_openflow::multipart::{AggregateStats, FlowStatsRequest};
use tapswitch_openflow::{
    GroupId, Match, MultipartReplyBody, MultipartRequestBody, PortNo, TableId,
};

use crate::fields::Matched;
use crate::peer::Peer;
use crate::random::Random;
use crate::text;

#[derive(Clone, Debug)]
pub(crate) struct Filter(FlowStatsRequest);

impl Filter {
    pub(crate) fn random(random: &mut Random) -> Self {
        let Matched { matching, .. } = Matched::random(random);
        let count = random.below(matching.fields.len() + 1);
        let match_fields = match random.chance(50) {
            true => Match::new(),
            false => matching.fields[..count].iter().cloned().collect(),
        };
        let cookie = random.pick(&[0, 1, 2]);
        // Asked for exactly cookie 0, Open vSwitch also reports its own internal rules.
        let whole = if cookie == 0 { 3 } else { u64::MAX };
        Self(FlowStatsRequest {
            table_id: TableId(random.pick(&[0, 0, 1, 2, 255, 255])),
            out_port: random.pick(&[PortNo::ANY, PortNo::ANY, PortNo(1), PortNo::CONTROLLER]),
            out_group: random.pick(&[GroupId::ANY, GroupId::ANY, GroupId(1), GroupId(2)]),
            cookie,
            cookie_mask: random.pick(&[0, 0, 1, 3, whole]),
            match_fields,
        })
    }

    /// The selected rules, and the sum of their counters. Rules with `cookie` do not belong to the
    /// case.
    pub(crate) fn ask(&self, peer: &mut Peer, cookie: u64) -> Vec<String> {
        let flow = MultipartRequestBody::Flow(self.0.clone());
        let aggregate = MultipartRequestBody::Aggregate(self.0.clone());
        let (flow, aggregate) = (peer.try_statistics(flow), peer.try_statistics(aggregate));
        let (rules, sum) = match (flow, aggregate) {
            (Ok(MultipartReplyBody::Flow(rules)), Ok(MultipartReplyBody::Aggregate(sum))) => {
                (rules, sum)
            }
            refused => return vec![format!("{refused:?}")],
        };
        let AggregateStats { flow_count, packet_count, byte_count } = sum;
        let of_case: Vec<_> = rules.into_iter().filter(|rule| rule.cookie != cookie).collect();
        let mut lines = text::rules(of_case).counters;
        lines.push(format!("{packet_count} packets {byte_count} bytes, {flow_count} rules"));
        lines
    }
}
