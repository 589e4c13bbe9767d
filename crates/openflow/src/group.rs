//! Groups: modification (OpenFlow 1.3.5 §7.3.4.2).

use std::fmt;

use crate::action::{Place, write_list};
use crate::codec::{Codec, Reader, Writer, closed_codec, layout_codec};
use crate::fault::Fault;
use crate::{Action, CheckError, ErrorKind, GroupId, PortNo};

/// `OFPT_GROUP_MOD` (`ofp_group_mod`, §7.3.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMod {
    /// The command.
    pub command: GroupModCommand,
    /// Type of the group.
    pub group_type: GroupType,
    /// The group; [`GroupId::ALL`] to delete all.
    pub group_id: GroupId,
    /// The buckets.
    pub buckets: Vec<Bucket>,
}

impl GroupMod {
    /// Validates the message; what depends on the switch's groups is not checked.
    pub fn check(&self) -> Result<(), CheckError> {
        let deletes = self.command == GroupModCommand::Delete;
        let is_all = deletes && self.group_id == GroupId::ALL;
        if self.group_id > GroupId::MAX && !is_all {
            let text = format!("{} is not a valid group ID", self.group_id);
            return Err(refuse(ErrorKind::OFPGMFC_INVALID_GROUP, &text));
        }
        if deletes {
            return match self.buckets.is_empty() {
                true => Ok(()),
                false => Err(refuse(ErrorKind::OFPGMFC_INVALID_GROUP, "a deletion has no buckets")),
            };
        }
        if self.group_type == GroupType::Indirect && self.buckets.len() != 1 {
            let text = format!("{} buckets; an indirect group has exactly one", self.buckets.len());
            return Err(refuse(ErrorKind::OFPGMFC_INVALID_GROUP, &text));
        }
        let has_weights = self.buckets.iter().any(|bucket| bucket.weight != 0);
        if has_weights && self.group_type != GroupType::Select {
            let text = format!("weights in a group of type {}", self.group_type);
            return Err(refuse(ErrorKind::OFPGMFC_INVALID_GROUP, &text));
        }
        let watches = self.group_type == GroupType::FastFailover;
        if watches && !self.buckets.iter().all(Bucket::watches) {
            let text = "a bucket of a fast_failover group watches nothing";
            return Err(refuse(ErrorKind::OFPGMFC_BAD_WATCH, text));
        }
        self.buckets.iter().try_for_each(|bucket| Action::check_all(&bucket.actions, Place::Bucket))
    }
}

#[cold]
fn refuse(kind: ErrorKind, text: &str) -> CheckError {
    CheckError::new(kind, format!("group_mod: {text}"))
}

layout_codec!(GroupMod {
    command,
    group_type,
    pad 1,
    group_id,
    buckets,
});

impl fmt::Display for GroupMod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let command = match self.command {
            GroupModCommand::Add => "add",
            GroupModCommand::Modify => "modify",
            GroupModCommand::Delete => {
                return write!(f, "delete group_id={}", self.group_id);
            }
        };
        write!(f, "{command} ")?;
        write_group(f, self.group_id, self.group_type, &self.buckets)
    }
}

/// Command of a group-mod (`ofp_group_mod_command`). Unknown ones are rejected when decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum GroupModCommand {
    /// Add a group.
    Add = 0,
    /// Replace the buckets of a group.
    Modify = 1,
    /// Delete a group and the flow entries that use it.
    Delete = 2,
}

closed_codec!(
    GroupModCommand: u16,
    OFPGMFC_BAD_COMMAND,
    "command",
    [Add, Modify, Delete]
);

/// Type of a group (`ofp_group_type`). Unknown ones are rejected when decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum GroupType {
    /// Every bucket gets its own copy.
    All = 0,
    /// One bucket, picked by weight.
    Select = 1,
    /// The only bucket.
    Indirect = 2,
    /// The first live bucket.
    FastFailover = 3,
}

closed_codec!(
    GroupType: u8,
    OFPGMFC_BAD_TYPE,
    "type of group",
    [All, Select, Indirect, FastFailover]
);

impl fmt::Display for GroupType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all",
            Self::Select => "select",
            Self::Indirect => "indirect",
            Self::FastFailover => "fast_failover",
        })
    }
}

/// Bucket of a group (`ofp_bucket`, §7.3.4.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Share of the load; for select groups only, else 0.
    pub weight: u16,
    /// Port whose liveness is that of the bucket; [`PortNo::ANY`] for none.
    pub watch_port: PortNo,
    /// Group whose liveness is that of the bucket; [`GroupId::ANY`] for none.
    pub watch_group: GroupId,
    /// Actions on the copy.
    pub actions: Vec<Action>,
}

impl Bucket {
    /// A bucket without weight and without a watched port or group.
    pub fn new(actions: Vec<Action>) -> Self {
        Self { weight: 0, watch_port: PortNo::ANY, watch_group: GroupId::ANY, actions }
    }

    /// Whether the bucket's liveness depends on a port or a group.
    pub fn watches(&self) -> bool {
        self.watch_port != PortNo::ANY || self.watch_group != GroupId::ANY
    }
}

impl Codec for Bucket {
    fn encode(&self, w: &mut Writer<'_>) {
        w.sized(|w| {
            w.put(&self.weight);
            w.put(&self.watch_port);
            w.put(&self.watch_group);
            w.pad(4);
            w.put(&self.actions);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        r.within("bucket", ErrorKind::OFPGMFC_BAD_BUCKET, |r| {
            let start = r.clone();
            let mut body = r.sized()?;
            if body.len() % 8 != 6 {
                return Err(start.bad_len("the length is not a multiple of eight"));
            }
            let (weight, watch_port, watch_group) = (body.take()?, body.take()?, body.take()?);
            body.skip(4)?;
            Ok(Self { weight, watch_port, watch_group, actions: body.take()? })
        })
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.weight != 0 {
            write!(f, "weight:{},", self.weight)?;
        }
        if self.watch_port != PortNo::ANY {
            write!(f, "watch_port:{},", self.watch_port)?;
        }
        if self.watch_group != GroupId::ANY {
            write!(f, "watch_group:{},", self.watch_group)?;
        }
        f.write_str("actions=")?;
        write_list(f, &self.actions)
    }
}

/// Prints a group in the syntax of `ovs-ofctl`.
pub(crate) fn write_group(
    f: &mut fmt::Formatter<'_>,
    group_id: GroupId,
    group_type: GroupType,
    buckets: &[Bucket],
) -> fmt::Result {
    write!(f, "group_id={group_id},type={group_type}")?;
    buckets.iter().try_for_each(|bucket| write!(f, ",bucket={bucket}"))
}
