//! Ledger of each policy, over all switches on the path of its frames and copies.
//!
//! A frame is matched where it comes in from a host. Its copy is made there, too. It goes to a
//! monitor at the same switch, or with a tag through other switches to the monitor's, which removes
//! the tag:
//!
//! ```text
//! matched ─▶ copied ─▶ taken by the link ─▶ ... ─▶ arrived ─▶ taken by the monitor's port
//!                  ╲ dropped, waits         ╲ dropped, waits  ╲ dropped, waits
//! ```
//!
//! What a link took and the next switch did not receive was lost. What arrived in excess of what
//! was sent is newer than the senders' counters, and not counted as delivered.
//!
//! Trains may be cut into packets, and packets joined into trains, on the way. So a tapswitch
//! counts packets as on a wire, the number of which is the same on both sides. Other switches count
//! a train as one packet. If such a switch sent or received the copies, missing ones have an
//! unknown outcome, as they may be part of trains that arrived; and if more arrived than was sent
//! although the traffic was at rest, some may have been lost: this is reported as it is, and does
//! not add up. Their counters may be older than their replies, so traffic is at rest only if they
//! have not matched anything for a while.
//!
//! The counters of several switches must be consistent. If those of one are older, because it is
//! disconnected or does not answer, missing copies have an unknown outcome. So have as many copies
//! as had been sent when a restarted controller had read all switches for the first time: they
//! connect one by one, and copies sent by one may have arrived at another before that was read.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tapswitch_openflow::{DatapathId, Delivery, PortNo};

use crate::ledger::{Copies, OUTCOME_UNKNOWN, Span, Tally, Way};
use crate::overlap::{PolicyId, Slot};
use crate::place::Place;
use crate::resolve::{Switches, named_port};
use crate::switch::Switch;
use crate::tags::{self, Tags};
use crate::text::{counted, switch_name};
use crate::{Copied, Counts, MonitorPort, PolicyReport, PolicyState, Tagging, TapPolicy};

/// Frames matched and copied by all policies on all switches.
pub(super) struct Accounts<'a> {
    switches: &'a Switches,
    tags: &'a Tags,
    by_policy: HashMap<PolicyId, Account>,
    /// Policies whose counts may be incomplete.
    lost: HashSet<PolicyId>,
    /// Switches with outdated counters.
    stale: Vec<&'a Switch>,
}

#[derive(Default)]
struct Account {
    matched: Counts,
    /// Whether a switch that counts a train as one packet has matched frames lately.
    is_moving: bool,
    monitors: BTreeMap<u8, Span>,
    copies: BTreeMap<(Slot, Place), Parts>,
}

/// Copies to one monitor by their kind of path.
#[derive(Default)]
struct Parts {
    /// To a port of the same switch, or as originals.
    here: Copies,
    /// Through other switches, with the policy's own identifier.
    sent: Copies,
    /// Switches that sent some of these and count a train as one packet.
    coarse: BTreeSet<DatapathId>,
    /// Through other switches, as copies shared with another policy.
    lent: Copies,
}

/// Final outcome of the copies to one monitor.
#[derive(Default)]
struct Ends {
    copies: Copies,
    /// Switches that count a train as one packet, if the outcome is unknown for that reason.
    coarse: BTreeSet<DatapathId>,
    /// Copies with an unknown outcome for that reason alone, with all counters known.
    unclear: u64,
}

/// Copies to one monitor in transit through other switches.
struct Journey {
    /// Their known outcome.
    copies: Copies,
    /// Copies dropped or queued at switches before the last one.
    on_the_way: u64,
    /// Copies that reached the last switch.
    arrived: u64,
    /// Copies queued there.
    waiting: u64,
    /// Whether all counters are current.
    is_sure: bool,
}

impl<'a> Accounts<'a> {
    /// Adds up the counters of `switches` for all policies, or for one.
    pub(super) fn new(
        switches: &'a Switches,
        tags: &'a Tags,
        only: Option<(PolicyId, &BTreeSet<DatapathId>)>,
    ) -> Self {
        let (by_policy, lost) = (HashMap::new(), HashSet::new());
        let stale = switches.values().filter(|switch| switch.is_stale()).collect();
        let mut accounts = Self { switches, tags, by_policy, lost, stale };
        match only {
            None => switches.iter().for_each(|(id, switch)| accounts.add_all(*id, switch, None)),
            Some((only, known_at)) => {
                for id in known_at {
                    let switch = switches.get(id).filter(|switch| switch.ledger.knows(only));
                    switch.into_iter().for_each(|at| accounts.add_all(*id, at, Some(only)));
                }
            }
        }
        accounts
    }

    fn add_all(&mut self, id: DatapathId, switch: &Switch, only: Option<PolicyId>) {
        for (policy, tally) in switch.ledger.tallies(only) {
            self.add(id, policy, tally);
        }
        let lost = switch.ledger.incomplete(switch.is_stale());
        self.lost.extend(lost.filter(|lost| only.is_none_or(|only| only == *lost)));
    }

    fn add(&mut self, switch: DatapathId, policy: PolicyId, tally: Tally) {
        let is_coarse = self.is_coarse(switch);
        let account = self.by_policy.entry(policy).or_default();
        account.matched += tally.matched;
        account.is_moving |= is_coarse && tally.is_moving;
        for (monitor, matched) in tally.monitors {
            *account.monitors.entry(monitor).or_default() += matched;
        }
        for (Way { slot, exit, tag }, copies) in tally.copies {
            let parts = account.copies.entry((slot, exit.end(switch))).or_default();
            let own = self.tags.find((policy, slot));
            if is_coarse && tag.is_some() && tag == own && copies != Copies::default() {
                parts.coarse.insert(switch);
            }
            *match tag {
                None => &mut parts.here,
                Some(_) if tag == own => &mut parts.sent,
                Some(_) => &mut parts.lent,
            } += &copies;
        }
    }

    /// Report on a policy whose monitors are at these ports.
    pub(super) fn report(
        &self,
        (id, policy, known_at): (PolicyId, &TapPolicy, &BTreeSet<DatapathId>),
        state: PolicyState,
        places: &[Place],
    ) -> PolicyReport {
        let none = Account::default();
        let account = self.by_policy.get(&id).unwrap_or(&none);
        let mut accounted: BTreeMap<u8, u64> = BTreeMap::new();
        let mut by_port: BTreeMap<(Place, u8), Copies> = BTreeMap::new();
        let (mut coarse, mut unclear) = (BTreeSet::new(), 0_u64);
        for ((slot, place), parts) in &account.copies {
            let Slot { monitor, share } = *slot;
            let spec = policy.monitor.iter().nth(usize::from(monitor));
            let is_shared = share == 0 && spec.is_some_and(|spec| spec.members().len() > 1);
            let tag = self.tags.find((id, *slot)).filter(|tag| !self.tags.is_shared(*tag));
            // Of monitors that share flows, the first stands for copies from other switches.
            let tag = tag.filter(|_| !is_shared || parts.sent != Copies::default());
            let Ends { copies: mut rest, coarse: by, unclear: more } =
                self.follow(parts, tag, *place, self.is_at_rest(id, account, monitor));
            coarse.extend(by);
            unclear += more;
            for (port, copies) in self.shared(tag.filter(|_| is_shared), *place) {
                rest.take_out(&copies, &format!("{}:", switch_name(place.switch)));
                *by_port.entry((Place { port, ..*place }, monitor)).or_default() += &copies;
            }
            *by_port.entry((*place, monitor)).or_default() += &rest;
        }
        let mut copied = Vec::<Copied>::new();
        for ((place, monitor), copies) in &by_port {
            let copies = report_copies(self.port(*place), copies);
            let sum = accounted.entry(*monitor).or_default();
            *sum = sum.saturating_add(copies.accounted());
            match copied.last_mut().filter(|last| last.monitor == copies.monitor) {
                // Two monitors at one port get one copy of each frame.
                Some(last) if last.counts.packets < copies.counts.packets => *last = copies,
                Some(_) => {}
                None => copied.push(copies),
            }
        }
        let span = |monitor: &u8| account.monitors.get(monitor).copied().unwrap_or_default();
        account.monitors.keys().for_each(|monitor| _ = accounted.entry(*monitor).or_default());
        let adds_up = accounted.iter().all(|(monitor, count)| span(monitor).contains(*count));
        // Under traffic: as many as matched when the copies were counted.
        let is_whole = |monitor: &u8| adds_up && span(monitor).most == account.matched.packets;
        let whole = accounted.iter().find(|(monitor, _)| is_whole(monitor));
        let packets = whole.map_or(account.matched.packets, |(_, count)| *count);
        let monitors: Vec<_> = places.iter().map(|place| self.port(*place)).collect();
        let mut notes = self.notes((id, policy, known_at), &monitors, &copied);
        notes.extend(coarse.iter().copied().map(note_on_trains));
        PolicyReport {
            number: id.0,
            matched: Counts { packets, ..account.matched },
            adds_up,
            notes,
            is_complete: !self.lost.contains(&id)
                && !self.is_doubtful(id, &copied, unclear)
                && (adds_up || coarse.is_empty()),
            copied,
            policy: policy.clone(),
            state,
            monitor: monitors.first().cloned(),
            monitors,
        }
    }

    /// Copies sent so far with an identifier; `None` if a switch's counters are missing.
    pub(super) fn count_sent(&self, tag: u16) -> Option<u64> {
        let mut sum: u64 = 0;
        for (policy, slot) in self.tags.users(tag) {
            if self.stale.iter().any(|switch| switch.ledger.is_open(policy)) {
                return None;
            }
            let account = self.by_policy.get(&policy);
            let copies = account.into_iter().flat_map(|account| &account.copies);
            let sent = copies.filter(|((at, _), _)| *at == slot);
            let sent = sent.map(|(_, parts)| parts.sent.delivered.packets);
            sum = sent.fold(sum, u64::saturating_add);
        }
        Some(sum)
    }

    /// Copies that arrived at other ports than `end`, which share flows with it.
    fn shared(&self, tag: Option<u16>, end: Place) -> Vec<(PortNo, Copies)> {
        let Some((tag, switch)) = tag.zip(self.switches.get(&end.switch)) else {
            return Vec::new();
        };
        let ports = switch.ledger.carried_by_port(tag).into_iter();
        ports.filter(|(port, _)| *port != end.port && !switch.is_link(*port)).collect()
    }

    /// Final outcome of the copies to one monitor. `is_at_rest`: nothing was matched at the senders
    /// while counters were read.
    fn follow(&self, parts: &Parts, tag: Option<u16>, end: Place, is_at_rest: bool) -> Ends {
        let mut ends = match tag {
            // The identifier is shared, so the outcome in transit of this policy's copies is
            // unknown.
            None => Ends { copies: parts.sent.clone(), ..Ends::default() },
            Some(tag) => self.follow_tag(parts, tag, end, is_at_rest),
        };
        ends.copies += &parts.here;
        ends.copies += &parts.lent;
        ends
    }

    /// The same for copies with an identifier of their own.
    fn follow_tag(&self, parts: &Parts, tag: u16, end: Place, is_at_rest: bool) -> Ends {
        let (mut coarse, mut unclear) = (parts.coarse.clone(), 0);
        if self.is_coarse(end.switch) {
            coarse.insert(end.switch);
        }
        let journey = self.journey(&parts.sent, tag, end);
        let Journey { copies: mut sum, on_the_way, arrived, waiting, is_sure } = journey;
        let expected = parts.sent.delivered.packets.saturating_sub(on_the_way);
        match expected.checked_sub(arrived) {
            Some(missing) => {
                let unknown = if is_sure { missing.min(self.tags.early(tag)) } else { missing };
                unclear = if coarse.is_empty() { 0 } else { missing - unknown };
                sum.drop_more(OUTCOME_UNKNOWN, unknown + unclear);
                sum.drop_more(LOST, missing - unknown - unclear);
                if unclear == 0 {
                    coarse.clear();
                }
            }
            None if coarse.is_empty() || !is_at_rest => {
                let younger = arrived - expected;
                // Queued copies are the latest ones.
                let waiting = younger.min(waiting);
                sum.in_flight = sum.in_flight.saturating_sub(waiting);
                let delivered = &mut sum.delivered.packets;
                *delivered = delivered.saturating_sub(younger - waiting);
                coarse.clear();
            }
            // Trains arrived as packets, possibly not all of them.
            None => {}
        }
        Ends { copies: sum, coarse, unclear }
    }

    /// Known outcome of the copies `sent` with an identifier.
    fn journey(&self, sent: &Copies, tag: u16, end: Place) -> Journey {
        let mut copies = Copies { delivered: Counts::ZERO, ..sent.clone() };
        copies.dropped = named(sent.dropped.clone(), "");
        let (on_the_way, arrived, waiting, is_sure) = (0, 0, 0, true);
        let mut journey = Journey { copies, on_the_way, arrived, waiting, is_sure };
        let carrying = self.switches.iter().filter(|(_, switch)| switch.ledger.has_carried(tag));
        for (id, switch) in carrying {
            journey.is_sure &= !switch.is_stale();
            let carried = switch.ledger.carried(tag);
            let dropped: u64 = carried.dropped.values().sum();
            if *id == end.switch {
                (journey.arrived, journey.waiting) = (carried.copied.packets, carried.in_flight);
                journey.copies.delivered = carried.delivered;
            } else {
                journey.on_the_way += dropped.saturating_add(carried.in_flight);
            }
            journey.copies.in_flight += carried.in_flight;
            let place = format!("{}:", switch_name(*id));
            journey.copies.dropped.extend(named(carried.dropped, &place));
        }
        journey
    }

    /// Whether a switch counts a train as one packet.
    fn is_coarse(&self, id: DatapathId) -> bool {
        self.switches.get(&id).is_some_and(Switch::is_other)
    }

    /// Whether nothing was matched for a monitor while counters were read, nor lately at switches
    /// whose counters may be older than their replies, and all counters are known since copying
    /// began.
    fn is_at_rest(&self, id: PolicyId, account: &Account, monitor: u8) -> bool {
        let span = account.monitors.get(&monitor).copied().unwrap_or_default();
        let is_concerned = |at: &&&Switch| at.ledger.is_open(id) || self.carries(at, id);
        let mut stale = self.stale.iter().filter(is_concerned);
        let has_rested = span.least == span.most && !account.is_moving;
        has_rested && !self.lost.contains(&id) && stale.next().is_none()
    }

    /// Whether counts may be incomplete, or an outcome unknown, for another reason than the
    /// counting of trains.
    fn is_doubtful(&self, id: PolicyId, copied: &[Copied], unclear: u64) -> bool {
        let unknown = copied.iter().filter_map(|copied| copied.dropped.get(OUTCOME_UNKNOWN));
        unknown.sum::<u64>() > unclear || self.stale.iter().any(|at| self.carries(at, id))
    }

    /// Whether a switch carries copies of a policy.
    fn carries(&self, switch: &Switch, id: PolicyId) -> bool {
        self.tags.of(id).any(|(_, tag)| switch.ledger.has_carried(tag))
    }

    fn port(&self, place: Place) -> MonitorPort {
        named_port(place, self.switches)
    }

    /// Notes on deviations from the policy, and on unknowns.
    fn notes(
        &self,
        (id, policy, known_at): (PolicyId, &TapPolicy, &BTreeSet<DatapathId>),
        monitors: &[MonitorPort],
        copied: &[Copied],
    ) -> Vec<String> {
        let is_other =
            |port: &&MonitorPort| self.switches.get(&port.switch).is_some_and(Switch::is_other);
        let mut notes = Vec::new();
        if policy.delivery != Delivery::BestEffort {
            let other: BTreeSet<_> =
                monitors.iter().filter(is_other).map(|port| port.switch).collect();
            notes.extend(other.into_iter().map(|switch| note_on_contract(switch, policy.delivery)));
        }
        let copying: Vec<_> = self.others_copying(id, known_at).collect();
        notes.extend(notes_on_parts(&copying, policy));
        if policy.tags == Tagging::Strip {
            notes.extend(copying.iter().copied().map(note_on_tags));
        }
        let ports: BTreeSet<_> =
            monitors.iter().chain(copied.iter().map(|to| &to.monitor)).collect();
        notes.extend(ports.into_iter().filter(is_other).map(|port| self.note_on_drops(port)));
        notes.extend(self.notes_on_ways(id, policy));
        notes.extend(self.notes_on_silence(id));
        notes.extend(note_on_modes(copied));
        let shares = policy.monitor.iter().any(|monitor| monitor.members().len() > 1);
        let others: BTreeSet<_> =
            monitors.iter().filter(|_| shares).filter(is_other).map(|port| port.switch).collect();
        let is_scattered = self.tags.of(id).any(|(slot, _)| slot.share > 0);
        let choosing: BTreeSet<_> = copying.into_iter().filter(|_| is_scattered).collect();
        notes.extend(others.union(&choosing).map(|switch| {
            note_on_sharing(*switch, if choosing.contains(switch) { OTHER_CHOICE } else { "" })
        }));
        notes
    }

    /// Switches that copy for a policy and are not tapswitches.
    fn others_copying(
        &self,
        id: PolicyId,
        known_at: &BTreeSet<DatapathId>,
    ) -> impl Iterator<Item = DatapathId> {
        let copies =
            move |switch: &Switch| switch.is_other() && switch.tap_state(id) == PolicyState::Active;
        known_at.iter().copied().filter(move |at| self.switches.get(at).is_some_and(copies))
    }

    fn note_on_drops(&self, port: &MonitorPort) -> String {
        let switch = self.switches.get(&port.switch);
        let dropped = switch.and_then(|switch| switch.tx_dropped(PortNo(port.port)));
        let (name, number) = (switch_name(port.switch), port.port);
        if PortNo(number) == PortNo::CONTROLLER {
            return format!(
                "switch {name} reports only how many copies were meant for the controller, not how \
                 many it sent"
            );
        }
        let known = format!(
            "switch {name} reports only how many copies were output to port {number}, not what the \
             port did with them"
        );
        match dropped {
            Some(count) => {
                let frames = counted(count, "frame");
                format!("{known}; that port dropped {frames} in total, copies or not")
            }
            None => known,
        }
    }

    /// Switches that count for a policy or carry its copies, and do not answer.
    fn notes_on_silence(&self, id: PolicyId) -> impl Iterator<Item = String> {
        let silent = self.stale.iter().filter(|switch| switch.is_silent());
        let concerned = silent.filter(move |at| at.ledger.is_open(id) || self.carries(at, id));
        concerned.map(|switch| {
            let name = switch_name(switch.id());
            format!("switch {name} does not report its counters: the last reported values are used")
        })
    }

    /// Paths between switches that the ledger does not cover completely.
    fn notes_on_ways(&self, id: PolicyId, policy: &TapPolicy) -> impl Iterator<Item = String> {
        let account = self.by_policy.get(&id);
        self.tags.of(id).filter_map(move |(slot, tag)| {
            let monitor = policy.monitor.iter().nth(usize::from(slot.monitor))?;
            let monitor = monitor.sharing(slot.share);
            let lent = account.map_or(0, |account| {
                let parts = account.copies.iter().filter(|((at, _), _)| *at == slot);
                parts.map(|(_, parts)| parts.lent.copied.packets).sum()
            });
            if self.tags.is_shared(tag) {
                let shared = tags::address(tag)
                    .map_or_else(|| format!("VLAN {tag}"), |mac| format!("address {mac}"));
                Some(format!(
                    "copies for {monitor} share {shared} between switches with copies of other \
                     policies: losses between switches cannot be attributed to one policy"
                ))
            } else {
                (lent > 0).then(|| {
                    format!(
                        "copies for {monitor} that also belong to another policy: {lent}; losses \
                         between switches are counted in its ledger"
                    )
                })
            }
        })
    }
}

/// Switches that cannot sample or truncate.
fn notes_on_parts(copying: &[DatapathId], policy: &TapPolicy) -> Vec<String> {
    let parts = [
        policy.snaplen.map(|len| format!("snaplen {len}")),
        policy.sample.map(|sample| format!("sample {sample}")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    let switches = copying.iter().filter(|_| !parts.is_empty());
    let note = |switch: &DatapathId| {
        let (name, parts) = (switch_name(*switch), parts.join(", "));
        format!("switch {name} is not a tapswitch and copies every frame whole, without {parts}")
    };
    switches.map(note).collect()
}

/// Copies that reached a port with a VLAN mode and are in none of its VLANs.
fn note_on_modes(copied: &[Copied]) -> Option<String> {
    let dropped = copied.iter().flat_map(|to| &to.dropped);
    let of_modes = dropped.filter(|(reason, _)| reason.ends_with("vlan_not_member"));
    let count: u64 = of_modes.map(|(_, count)| *count).sum();
    (count > 0).then(|| {
        format!(
            "copies that reached a port whose VLAN mode does not accept them: {count}; a monitor's \
             port should have no mode, and a mode=provider port between switches must include the \
             VLANs of copies"
        )
    })
}

fn note_on_contract(switch: DatapathId, delivery: Delivery) -> String {
    let name = switch_name(switch);
    format!(
        "switch {name} is not a tapswitch and does not support delivery contracts: copies are \
         best-effort, not {delivery}"
    )
}

fn note_on_tags(switch: DatapathId) -> String {
    let name = switch_name(switch);
    format!(
        "switch {name} is not a tapswitch and strips only the outermost VLAN tag: an inner one \
         stays"
    )
}

fn note_on_trains(switch: DatapathId) -> String {
    let name = switch_name(switch);
    format!(
        "switch {name} is not a tapswitch and counts a train of packets as one: copies lost \
         between switches cannot be distinguished from packets that were joined or split there"
    )
}

fn note_on_sharing(switch: DatapathId, more: &str) -> String {
    let name = switch_name(switch);
    format!(
        "switch {name} is not a tapswitch and distributes flows among monitors by its own hash: \
         the two directions of a flow may go to different monitors, and all UDP flows between two \
         hosts to the same one{more}"
    )
}

fn named(dropped: BTreeMap<String, u64>, place: &str) -> BTreeMap<String, u64> {
    dropped.into_iter().map(|(reason, count)| (format!("{place}{reason}"), count)).collect()
}

fn report_copies(monitor: MonitorPort, copies: &Copies) -> Copied {
    let Copies { copied, delivered, flooded, in_flight, dropped } = copies.clone();
    Copied { monitor, counts: copied, delivered, flooded, in_flight, dropped }
}

/// If monitors at several switches share flows, the copying switches choose.
const OTHER_CHOICE: &str = "; different switches may choose different monitors for the same flow";
/// Reason of copies that one switch sent and the next one did not receive.
const LOST: &str = "lost_between_switches";
