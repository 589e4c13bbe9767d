//! Checks of group changes (OpenFlow 1.3.5 §6.5, §7.3.4.2): no loops, no chains longer than the
//! switch follows.

use hashbrown::{HashMap, HashSet};
use tapswitch_openflow::multipart::GroupDesc;
use tapswitch_openflow::{
    Bucket, ErrorKind, GroupId, GroupMod, GroupModCommand, GroupType, PortNo,
};

use super::{GroupTable, MAX_DEPTH, MAX_GROUPS, groups_of};
use crate::port::Ports;
use crate::validate;

impl GroupTable {
    /// Checks a change.
    ///
    /// # Errors
    /// The OpenFlow error to send back.
    pub(crate) fn check_mod(&self, spec: &GroupMod) -> Result<(), ErrorKind> {
        let is_known = self.find(spec.group_id).is_some();
        match spec.command {
            GroupModCommand::Add if is_known => Err(ErrorKind::OFPGMFC_GROUP_EXISTS),
            GroupModCommand::Add if self.count() >= MAX_GROUPS => {
                Err(ErrorKind::OFPGMFC_OUT_OF_GROUPS)
            }
            GroupModCommand::Modify if !is_known => Err(ErrorKind::OFPGMFC_UNKNOWN_GROUP),
            GroupModCommand::Add | GroupModCommand::Modify => self.check(spec),
            GroupModCommand::Delete => {
                let is_number = spec.group_id.0 <= GroupId::MAX.0 || spec.group_id == GroupId::ALL;
                is_number.then_some(()).ok_or(ErrorKind::OFPGMFC_INVALID_GROUP)
            }
        }
    }

    fn check(&self, spec: &GroupMod) -> Result<(), ErrorKind> {
        if spec.group_id.0 > GroupId::MAX.0 {
            return Err(ErrorKind::OFPGMFC_INVALID_GROUP);
        }
        if spec.group_type == GroupType::Indirect && spec.buckets.len() != 1 {
            return Err(ErrorKind::OFPGMFC_INVALID_GROUP);
        }
        // A group whose description fits no message could not be reported.
        if spec.buckets.len() > MAX_BUCKETS || !GroupDesc::fits(&spec.buckets) {
            return Err(ErrorKind::OFPGMFC_OUT_OF_BUCKETS);
        }
        spec.buckets.iter().try_for_each(|bucket| self.check_bucket(spec, bucket))?;
        self.check_loops(spec)?;
        self.check_depth(spec)
    }

    fn check_bucket(&self, spec: &GroupMod, bucket: &Bucket) -> Result<(), ErrorKind> {
        let watches = bucket.watch_port != PortNo::ANY || bucket.watch_group != GroupId::ANY;
        if spec.group_type == GroupType::FastFailover && !watches {
            return Err(ErrorKind::OFPGMFC_BAD_WATCH);
        }
        if bucket.watch_port != PortNo::ANY && !Ports::can_be(bucket.watch_port) {
            return Err(ErrorKind::OFPGMFC_BAD_WATCH);
        }
        let watched = bucket.watch_group;
        if watched != GroupId::ANY && watched != spec.group_id && self.find(watched).is_none() {
            return Err(ErrorKind::OFPGMFC_BAD_WATCH);
        }
        let names_itself = groups_of(&bucket.actions).any(|id| id == spec.group_id);
        if names_itself || watched == spec.group_id {
            return Err(ErrorKind::OFPGMFC_LOOP);
        }
        validate::bucket_actions(&bucket.actions, spec.group_type, self)
    }

    /// Refuses a group whose chains lead back to it.
    fn check_loops(&self, spec: &GroupMod) -> Result<(), ErrorKind> {
        let mut open: Vec<_> = spec.buckets.iter().flat_map(named).collect();
        let mut seen = HashSet::new();
        while let Some(id) = open.pop() {
            if id == spec.group_id {
                return Err(ErrorKind::OFPGMFC_LOOP);
            }
            if seen.insert(id) {
                open.extend(self.find(id).iter().flat_map(|group| group.chained()));
            }
        }
        Ok(())
    }

    /// Refuses a group that makes a chain too long. If the chain below the group does not get
    /// longer, the groups above are not searched for, which would take a search of all groups.
    fn check_depth(&self, spec: &GroupMod) -> Result<(), ErrorKind> {
        let next = |id: &GroupId| self.chained_of(*id);
        let below = depth(spec.buckets.iter().flat_map(named).collect(), next);
        let below_before = depth(next(&spec.group_id).into_iter().collect(), next);
        let is_known = self.find(spec.group_id).is_some();
        let above = if is_known && below > below_before { self.above(spec.group_id) } else { 0 };
        match above + 1 + below > MAX_DEPTH {
            true => Err(ErrorKind::OFPGMFC_CHAINING_UNSUPPORTED),
            false => Ok(()),
        }
    }

    fn chained_of(&self, id: GroupId) -> Vec<GroupId> {
        self.find(id).map(|group| group.chained().collect()).unwrap_or_default()
    }

    /// Length of the longest chain that leads to this group.
    fn above(&self, id: GroupId) -> usize {
        let mut parents: HashMap<GroupId, Vec<GroupId>> = HashMap::new();
        for group in self.all() {
            group.chained().for_each(|next| parents.entry(next).or_default().push(group.id));
        }
        let up = |id: &GroupId| parents.get(id).cloned().unwrap_or_default();
        depth(up(&id).into_iter().collect(), up)
    }
}

/// Length of the longest chain that starts with one of these; one that is too long is not followed
/// to its end. Each level is a set, so a group that many lead to is examined once per level.
fn depth(mut level: HashSet<GroupId>, next: impl Fn(&GroupId) -> Vec<GroupId>) -> usize {
    let mut depth = 0;
    while !level.is_empty() && depth < MAX_DEPTH {
        level = level.iter().flat_map(&next).collect();
        depth += 1;
    }
    depth
}

/// The groups that a bucket leads to.
fn named(bucket: &Bucket) -> impl Iterator<Item = GroupId> + '_ {
    groups_of(&bucket.actions)
}

/// Buckets of one group; a message of 64 KiB holds more, but there is no known use for them.
const MAX_BUCKETS: usize = 1024;
