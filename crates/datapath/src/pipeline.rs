//! Owns tables, groups and ports: applies changes, publishes versions.
//!
//! Workers hold an immutable [`Snapshot`]. Each change makes a new one that shares everything
//! unchanged, under a new *epoch*: whatever a worker has cached in an older epoch is void, so a
//! rule applies to running flows from the next frame on.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use tapswitch_openflow::multipart::FlowStats;
use tapswitch_openflow::{
    Action, DEFAULT_MISS_SEND_LEN, ErrorKind, FlowMod, FlowModCommand, FlowModFlags,
    FlowRemovedReason, GroupId, GroupMod, Instruction, Match, MeterMod, PortNo, TableId,
};

use crate::counters::{Counters, Millis};
use crate::expiry::Expiry;
use crate::field::MatchKey;
use crate::group::GroupTable;
use crate::meter::MeterTable;
use crate::port::{Port, Ports};
use crate::table::{FlowEntry, FlowTable, TABLE_COUNT};
use crate::validate;

/// Rules that one table holds; each costs about a kilobyte.
pub const MAX_RULES: usize = 1_000_000;

/// Tables per group in a [`Snapshot`], whose versions share unchanged groups.
const GROUP_COUNT: usize = 16;

/// Tables, groups and ports at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Incremented by every change.
    pub epoch: u64,
    /// True while the switch ignores its rules and forwards by NORMAL: fail-mode standalone
    /// (OpenFlow 1.3.5 §6.3.5).
    pub standalone: bool,
    /// Bytes of a packet for the controller where no action says how many: with an invalid TTL
    /// (OpenFlow 1.3.5 §7.3.2).
    pub miss_send_len: u16,
    /// True while IP fragments are dropped instead of looked up (OpenFlow 1.3.5 §7.3.2,
    /// `OFPC_FRAG_DROP`).
    pub drops_fragments: bool,
    /// The ports.
    pub ports: Arc<Ports>,
    /// The groups.
    pub groups: Arc<GroupTable>,
    /// The meters.
    pub meters: Arc<MeterTable>,
    /// In groups of [`GROUP_COUNT`]: a change copies one group and the list of groups, not the list
    /// of all tables.
    tables: Vec<Arc<Vec<Arc<FlowTable>>>>,
}

impl Snapshot {
    /// The table with this number.
    #[inline]
    pub fn table(&self, id: TableId) -> Option<&Arc<FlowTable>> {
        let (group, place) = place_of(id);
        self.tables.get(group)?.get(place)
    }

    /// The tables that `id` denotes: one, or all.
    pub fn tables(&self, id: TableId) -> impl Iterator<Item = (TableId, &Arc<FlowTable>)> {
        let tables = self.tables.iter().flat_map(|group| group.iter());
        let numbered = (0..TABLE_COUNT).map(TableId).zip(tables);
        numbered.filter(move |&(number, _)| id == TableId::ALL || id == number)
    }
}

/// The owner of the tables. One thread changes it; others see [`Pipeline::snapshot`].
#[derive(Debug)]
pub struct Pipeline {
    current: Arc<Snapshot>,
    workers: usize,
    expiry: Expiry,
    /// Number of rules that name each group: most groups that are deleted have none, so no rule has
    /// to be searched for.
    uses: HashMap<GroupId, usize>,
    /// Number of rules that use each meter.
    metered: HashMap<u32, usize>,
}

/// A removed rule, and the reason.
#[derive(Clone, Debug)]
pub struct Removal {
    /// The rule with its counters.
    pub entry: Arc<FlowEntry>,
    /// Why it was removed.
    pub reason: FlowRemovedReason,
}

impl Pipeline {
    /// Empty tables, no groups, no ports; counters for `workers` writers.
    pub fn new(workers: usize) -> Self {
        let tables: Vec<_> = (0..TABLE_COUNT).map(|_| Arc::new(FlowTable::new(workers))).collect();
        let current = Arc::new(Snapshot {
            epoch: 1,
            standalone: false,
            miss_send_len: DEFAULT_MISS_SEND_LEN,
            drops_fragments: false,
            ports: Arc::default(),
            groups: Arc::default(),
            meters: Arc::default(),
            tables: tables.chunks(GROUP_COUNT).map(|group| Arc::new(group.to_vec())).collect(),
        });
        Self {
            current,
            workers,
            expiry: Expiry::default(),
            uses: HashMap::new(),
            metered: HashMap::new(),
        }
    }

    /// The current tables, groups and ports.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.current
    }

    /// Number of workers that have counters here.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Adds, changes or deletes rules (OpenFlow 1.3.5 §6.4). Returns the removed rules.
    ///
    /// # Errors
    /// The OpenFlow error to send back; nothing has changed then.
    pub fn handle_flow_mod(
        &mut self,
        change: &FlowMod,
        now: Millis,
    ) -> Result<Vec<Removal>, ErrorKind> {
        let key = MatchKey::new(&change.match_fields).map_err(|_| ErrorKind::OFPBMC_BAD_FIELD)?;
        match change.command {
            FlowModCommand::Add => self.add_rule(change, key, now).map(|()| Vec::new()),
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => {
                self.modify_rules(change, &key).map(|()| Vec::new())
            }
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => {
                self.check_table(change.table_id, true)?;
                Ok(self.remove_rules(change, &key))
            }
        }
    }

    /// Adds, changes or deletes groups (OpenFlow 1.3.5 §6.5). Returns the rules that were deleted
    /// with a group.
    ///
    /// # Errors
    /// The OpenFlow error to send back; nothing has changed then.
    pub fn handle_group_mod(
        &mut self,
        change: &GroupMod,
        now: Millis,
    ) -> Result<Vec<Removal>, ErrorKind> {
        self.current.groups.check_mod(change)?;
        let workers = self.workers;
        let mut gone = Arc::make_mut(&mut self.change().groups).handle_mod(change, now, workers);
        gone.retain(|id| self.uses.contains_key(id));
        Ok(self.remove_users(&gone, FlowRemovedReason::GROUP_DELETE, FlowEntry::groups))
    }

    /// Adds, changes or deletes meters (OpenFlow 1.3.5 §6.6). Returns the rules that were
    /// deleted with a meter.
    ///
    /// # Errors
    /// The OpenFlow error to send back; nothing has changed then.
    pub fn handle_meter_mod(
        &mut self,
        change: &MeterMod,
        now: Millis,
    ) -> Result<Vec<Removal>, ErrorKind> {
        self.current.meters.check_mod(change)?;
        let workers = self.workers;
        let mut gone = Arc::make_mut(&mut self.change().meters).handle_mod(change, now, workers);
        gone.retain(|id| self.metered.contains_key(id));
        // OpenFlow 1.3 has no reason for a deleted meter.
        Ok(self.remove_users(&gone, FlowRemovedReason::DELETE, FlowEntry::meter))
    }

    /// Checks the actions of a packet-out before a worker gets them.
    ///
    /// # Errors
    /// The OpenFlow error to send back.
    pub fn check_packet_out(&self, actions: &[Action]) -> Result<(), ErrorKind> {
        validate::packet_out_actions(actions, &self.current.groups)
    }

    /// Adds or replaces a port. Returns `false` if its number is not that of a port.
    pub fn set_port(&mut self, port: Port) -> bool {
        Arc::make_mut(&mut self.change().ports).insert(port)
    }

    /// Removes a port. Rules that name it stay and drop (OpenFlow 1.3.5 §4.6).
    pub fn remove_port(&mut self, number: PortNo) -> Option<Arc<Port>> {
        Arc::make_mut(&mut self.change().ports).remove(number)
    }

    /// Enters or leaves fail-mode standalone.
    pub fn set_standalone(&mut self, standalone: bool) {
        if self.current.standalone != standalone {
            self.change().standalone = standalone;
        }
    }

    /// Sets how many bytes of a packet with an invalid TTL the controller gets.
    pub fn set_miss_send_len(&mut self, len: u16) {
        if self.current.miss_send_len != len {
            self.change().miss_send_len = len;
        }
    }

    /// Sets whether IP fragments are dropped.
    pub fn set_drops_fragments(&mut self, drops_fragments: bool) {
        if self.current.drops_fragments != drops_fragments {
            self.change().drops_fragments = drops_fragments;
        }
    }

    /// Removes expired rules.
    pub fn handle_timeout(&mut self, now: Millis) -> Vec<Removal> {
        if self.expiry.next().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let (mut hard, mut idle) = (Vec::new(), Vec::new());
        let mut due = self.expiry.take_due(now);
        due.retain(|rule| self.is_current(rule));
        for rule in due {
            let lived = now.since(rule.created).0;
            if rule.expires().is_none_or(|at| at > now) {
                self.expiry.insert(&rule);
            } else if rule.hard_timeout > 0 && lived >= u64::from(rule.hard_timeout) * 1000 {
                hard.push(rule);
            } else {
                idle.push(rule);
            }
        }
        let mut removals = self.remove_all(hard, FlowRemovedReason::HARD_TIMEOUT);
        removals.extend(self.remove_all(idle, FlowRemovedReason::IDLE_TIMEOUT));
        removals
    }

    /// False if the rule was removed or replaced.
    fn is_current(&self, rule: &Arc<FlowEntry>) -> bool {
        let table = self.current.table(rule.table_id);
        let current = table.and_then(|table| table.find(&rule.key, rule.priority));
        current.is_some_and(|current| Arc::ptr_eq(current, rule))
    }

    /// When [`Self::handle_timeout`] may have something to do.
    pub fn poll_timeout(&self) -> Option<Millis> {
        self.expiry.next()
    }

    fn add_rule(&mut self, change: &FlowMod, key: MatchKey, now: Millis) -> Result<(), ErrorKind> {
        self.check_table(change.table_id, false)?;
        self.check_instructions(change, change.table_id)?;
        check_len(&change.match_fields, &change.instructions)?;
        let table = self.table(change.table_id)?;
        let old = table.find(&key, change.priority);
        if old.is_none() && table.count() >= MAX_RULES {
            return Err(ErrorKind::OFPFMFC_TABLE_FULL);
        }
        let checks_overlap = change.flags.contains(FlowModFlags::CHECK_OVERLAP);
        if checks_overlap && overlaps(table, &key, change.priority) {
            return Err(ErrorKind::OFPFMFC_OVERLAP);
        }
        let keeps_counters = !change.flags.contains(FlowModFlags::RESET_COUNTS);
        let counters = match old {
            Some(old) if keeps_counters => old.counters.clone(),
            _ => Arc::new(Counters::new(self.workers)),
        };
        let entry = FlowEntry {
            table_id: change.table_id,
            priority: change.priority,
            matching: change.match_fields.clone(),
            key,
            cookie: change.cookie,
            flags: change.flags,
            idle_timeout: change.idle_timeout,
            hard_timeout: change.hard_timeout,
            created: now,
            instructions: change.instructions.clone().into(),
            counters,
            table_counters: table.counters().clone(),
        };
        self.put(entry);
        Ok(())
    }

    /// Modifies matching rules; none is added (OpenFlow 1.3.5 §6.4). Timeouts continue, the idle
    /// one too, even if counters are reset.
    fn modify_rules(&mut self, change: &FlowMod, key: &MatchKey) -> Result<(), ErrorKind> {
        self.check_table(change.table_id, false)?;
        let mut rules = self.matching(change, key);
        rules.retain(|rule| has_cookie(rule, change));
        self.check_instructions(change, change.table_id)?;
        rules.iter().try_for_each(|rule| check_len(&rule.matching, &change.instructions))?;
        for rule in rules {
            let mut entry = FlowEntry::clone(&rule);
            entry.instructions = change.instructions.clone().into();
            if change.flags.contains(FlowModFlags::RESET_COUNTS) {
                let last_used = rule.counters.totals().last_used;
                entry.counters = Arc::new(Counters::used(self.workers, last_used));
            }
            self.put(entry);
        }
        Ok(())
    }

    fn remove_rules(&mut self, change: &FlowMod, key: &MatchKey) -> Vec<Removal> {
        let mut rules = self.matching(change, key);
        rules.retain(|rule| {
            has_cookie(rule, change)
                && rule.outputs_to(change.out_port)
                && rule.uses_group(change.out_group)
        });
        self.remove_all(rules, FlowRemovedReason::DELETE)
    }

    fn check_table(&self, id: TableId, all_allowed: bool) -> Result<(), ErrorKind> {
        let known = id.0 < TABLE_COUNT || all_allowed && id == TableId::ALL;
        known.then_some(()).ok_or(ErrorKind::OFPFMFC_BAD_TABLE_ID)
    }

    fn check_instructions(&self, change: &FlowMod, table: TableId) -> Result<(), ErrorKind> {
        let Snapshot { groups, meters, .. } = &*self.current;
        let matching = &change.match_fields;
        validate::instructions(&change.instructions, table, matching, groups, meters)
    }

    fn table(&self, id: TableId) -> Result<&Arc<FlowTable>, ErrorKind> {
        self.current.table(id).ok_or(ErrorKind::OFPFMFC_BAD_TABLE_ID)
    }

    /// Number of rules that name a group.
    pub fn rules_to(&self, group: GroupId) -> usize {
        self.uses.get(&group).map_or(0, |count| *count)
    }

    /// Number of rules that use a meter.
    pub fn rules_through(&self, meter: u32) -> usize {
        self.metered.get(&meter).map_or(0, |count| *count)
    }

    /// The rules that a change concerns, whatever their cookies: if it is strict, at most one of
    /// each table, which is looked up; otherwise all within its match.
    fn matching(&self, change: &FlowMod, key: &MatchKey) -> Vec<Arc<FlowEntry>> {
        let strict = [FlowModCommand::ModifyStrict, FlowModCommand::DeleteStrict];
        if !strict.contains(&change.command) {
            return self.select(change.table_id, |rule| rule.key.is_within(key));
        }
        let tables = self.current.tables(change.table_id);
        tables.filter_map(|(_, table)| table.find(key, change.priority)).cloned().collect()
    }

    fn select(&self, table: TableId, wanted: impl Fn(&FlowEntry) -> bool) -> Vec<Arc<FlowEntry>> {
        let tables = self.current.tables(table);
        tables.flat_map(|(_, table)| table.iter()).filter(|rule| wanted(rule)).cloned().collect()
    }

    fn remove_all(
        &mut self,
        rules: Vec<Arc<FlowEntry>>,
        reason: FlowRemovedReason,
    ) -> Vec<Removal> {
        for rule in &rules {
            if self.change_table(rule.table_id).remove(rule) {
                self.count_uses(rule, -1);
            }
        }
        rules.into_iter().map(|entry| Removal { entry, reason }).collect()
    }

    /// Removes the rules that use a deleted group or meter.
    fn remove_users<K: Copy + Eq + Hash, U: IntoIterator<Item = K>>(
        &mut self,
        gone: &[K],
        reason: FlowRemovedReason,
        used: impl Fn(&FlowEntry) -> U,
    ) -> Vec<Removal> {
        if gone.is_empty() {
            return Vec::new();
        }
        let gone: HashSet<K> = gone.iter().copied().collect();
        let uses_one = |rule: &FlowEntry| used(rule).into_iter().any(|id| gone.contains(&id));
        let users = self.select(TableId::ALL, uses_one);
        self.remove_all(users, reason)
    }

    /// Adds a rule, replacing one with the same match and priority.
    fn put(&mut self, entry: FlowEntry) {
        let rule = Arc::new(entry);
        self.count_uses(&rule, 1);
        self.expiry.insert(&rule);
        if let Some(replaced) = self.change_table(rule.table_id).insert(rule) {
            self.count_uses(&replaced, -1);
        }
    }

    fn count_uses(&mut self, rule: &FlowEntry, by: isize) {
        for group in rule.groups() {
            count_use(&mut self.uses, group, by);
        }
        if let Some(meter) = rule.meter() {
            count_use(&mut self.metered, meter, by);
        }
    }

    fn change(&mut self) -> &mut Snapshot {
        let snapshot = Arc::make_mut(&mut self.current);
        snapshot.epoch += 1;
        snapshot
    }

    fn change_table(&mut self, id: TableId) -> &mut FlowTable {
        let (group, place) = place_of(id);
        Arc::make_mut(&mut Arc::make_mut(&mut self.change().tables[group])[place])
    }
}

/// Adds to or subtracts from the number of uses.
fn count_use<K: Eq + Hash>(uses: &mut HashMap<K, usize>, used: K, by: isize) {
    let count = uses.get(&used).map_or(0, |count| *count).saturating_add_signed(by);
    match count {
        0 => uses.remove(&used),
        _ => uses.insert(used, count),
    };
}

/// The group of a table, and its index there.
fn place_of(id: TableId) -> (usize, usize) {
    (usize::from(id.0) / GROUP_COUNT, usize::from(id.0) % GROUP_COUNT)
}

fn has_cookie(rule: &FlowEntry, change: &FlowMod) -> bool {
    (rule.cookie ^ change.cookie) & change.cookie_mask == 0
}

/// Refuses a rule whose statistics fit no message. OpenFlow has no error code for that (1.3.5 §6.4,
/// last paragraph on flow-mods).
fn check_len(matching: &Match, instructions: &[Instruction]) -> Result<(), ErrorKind> {
    FlowStats::fits(matching, instructions).then_some(()).ok_or(ErrorKind::OFPFMFC_UNKNOWN)
}

fn overlaps(table: &FlowTable, key: &MatchKey, priority: u16) -> bool {
    table.iter().any(|rule| {
        rule.priority == priority && rule.key.overlaps(key) && !rule.is_same_rule(key, priority)
    })
}
