//! Statistics, description and features of groups (OpenFlow 1.3.5 §7.3.5.9 to §7.3.5.11).

use std::fmt;

use bitflags::bitflags;

use crate::codec::{flags_codec, layout_codec};
use crate::group::write_group;
use crate::multipart::split::{MAX_BODY_LEN, encoded_len};
use crate::{Bucket, GroupId, GroupType};

/// Counters of a group (`ofp_group_stats`, §7.3.5.9).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// The group.
    pub group_id: GroupId,
    /// Flow entries and groups that forward to it.
    pub ref_count: u32,
    /// Packets that it handled.
    pub packet_count: u64,
    /// Bytes that it handled.
    pub byte_count: u64,
    /// Its age, whole seconds.
    pub duration_sec: u32,
    /// Its age, nanoseconds beyond the seconds.
    pub duration_nsec: u32,
    /// Counters of each bucket.
    pub bucket_stats: Vec<BucketCounter>,
}

layout_codec!(GroupStats sized {
    pad 2,
    group_id,
    ref_count,
    pad 4,
    packet_count,
    byte_count,
    duration_sec,
    duration_nsec,
    bucket_stats,
});

/// Counters of a bucket (`ofp_bucket_counter`, §7.3.5.9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketCounter {
    /// Packets that it handled.
    pub packet_count: u64,
    /// Bytes that it handled.
    pub byte_count: u64,
}

layout_codec!(BucketCounter { packet_count, byte_count });

/// Description of a group (`ofp_group_desc`, §7.3.5.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDesc {
    /// Its type.
    pub group_type: GroupType,
    /// The group.
    pub group_id: GroupId,
    /// Its buckets.
    pub buckets: Vec<Bucket>,
}

layout_codec!(GroupDesc sized {
    group_type,
    pad 1,
    group_id,
    buckets,
});

impl GroupDesc {
    /// Whether the description of a group with these buckets fits one message, as lists are cut
    /// only between items.
    pub fn fits(buckets: &[Bucket]) -> bool {
        DESC_FIXED_LEN + encoded_len(buckets) <= MAX_BODY_LEN
    }
}

impl fmt::Display for GroupDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_group(f, self.group_id, self.group_type, &self.buckets)
    }
}

/// Capabilities of groups (`ofp_group_features`, §7.3.5.11). Arrays are indexed by [`GroupType`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupFeatures {
    /// Bit *t* is set for each type *t* supported.
    pub types: u32,
    /// Capabilities of all of them.
    pub capabilities: GroupCapabilities,
    /// Maximum number of groups of each type.
    pub max_groups: [u32; 4],
    /// Bit *a* is set for each action *a* supported by each type.
    pub actions: [u32; 4],
}

layout_codec!(GroupFeatures { types, capabilities, max_groups, actions });

bitflags! {
    /// Capabilities of groups (`ofp_group_capabilities`, §7.3.5.11).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct GroupCapabilities: u32 {
        /// Weights of select groups.
        const SELECT_WEIGHT = 1 << 0;
        /// Select groups skip buckets that are not live.
        const SELECT_LIVENESS = 1 << 1;
        /// Groups that forward to groups.
        const CHAINING = 1 << 2;
        /// Loops of groups are refused.
        const CHAINING_CHECKS = 1 << 3;
    }
}

flags_codec!(GroupCapabilities);

/// Description of a group without its buckets.
const DESC_FIXED_LEN: usize = 8;
