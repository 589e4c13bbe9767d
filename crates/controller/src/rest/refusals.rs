//! Rate limit for audit records of refusals.
//!
//! Anyone who can connect can cause refusals at any rate, and records are kept forever. So each
//! kind has at most [`MOST_OF_ONE`] records per network in [`WHILE`], and [`MOST_OF_ALL`] in total;
//! one record then reports the number of the others. A network is an IPv4 address, or an IPv6 /64,
//! within which one machine may have all addresses. At most [`MAX_NETWORKS`] are tracked; for
//! another one the oldest is dropped, which is then only bounded by the total.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::places::network;

/// Counts refusals.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    tokens: Networks,
    roles: Networks,
    all: Option<Count>,
    left_out: Option<Count>,
}

/// By network.
#[derive(Debug, Default)]
struct Networks(HashMap<IpAddr, Count>);

/// Number of refusals in the period that started then.
#[derive(Clone, Copy, Debug)]
struct Count {
    since: Instant,
    count: u64,
}

/// Handling of a wrong token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrongToken {
    /// Answered as a wrong token, and recorded.
    Recorded,
    /// Answered as a wrong token only.
    LeftOut,
    /// Answered by "wait": there were too many.
    TooMany,
}

impl Refusals {
    /// Counts a wrong token.
    pub(super) fn handle_token(&self, from: IpAddr, now: Instant) -> WrongToken {
        let mut counts = self.lock();
        let is_in_time = counts.tokens.add(network(from), now);
        match (is_in_time, counts.is_recorded(is_in_time, now)) {
            (false, _) => WrongToken::TooMany,
            (true, true) => WrongToken::Recorded,
            (true, false) => WrongToken::LeftOut,
        }
    }

    /// Counts an insufficient role. Returns whether to record it.
    pub(super) fn handle_role(&self, from: IpAddr, now: Instant) -> bool {
        let mut counts = self.lock();
        let is_in_time = counts.roles.add(network(from), now);
        counts.is_recorded(is_in_time, now)
    }

    /// Number of refusals that were not recorded, if it is time to report it.
    pub(super) fn take_left_out(&self, now: Instant) -> Option<u64> {
        let left_out = &mut self.lock().left_out;
        left_out.take_if(|count| !count.is_recent(now)).map(|count| count.count)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // The content is consistent whenever the lock is free.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Whether to record a refusal from a network that is within its limit.
    fn is_recorded(&mut self, is_in_time: bool, now: Instant) -> bool {
        let all = self.all.take_if(|all| all.is_recent(now)).unwrap_or(Count::none(now));
        let is_recorded = is_in_time && all.count < MOST_OF_ALL;
        self.all = Some(Count { count: all.count + u64::from(is_recorded), ..all });
        if !is_recorded {
            self.left_out.get_or_insert(Count::none(now)).count += 1;
        }
        is_recorded
    }
}

impl Networks {
    /// Counts a refusal. Returns whether it is within the limit.
    fn add(&mut self, network: IpAddr, now: Instant) -> bool {
        if !self.0.contains_key(&network) {
            self.make_room(now);
        }
        let count = self.0.entry(network).or_insert(Count::none(now));
        if !count.is_recent(now) {
            *count = Count::none(now);
        }
        let is_in_time = count.count < MOST_OF_ONE;
        count.count += u64::from(is_in_time);
        is_in_time
    }

    fn make_room(&mut self, now: Instant) {
        if self.0.len() < MAX_NETWORKS {
            return;
        }
        self.0.retain(|_, count| count.is_recent(now));
        if self.0.len() >= MAX_NETWORKS {
            let oldest = self.0.iter().min_by_key(|(_, count)| count.since);
            let oldest = oldest.map(|(network, _)| *network);
            oldest.and_then(|network| self.0.remove(&network));
        }
    }
}

impl Count {
    const fn none(since: Instant) -> Self {
        Self { since, count: 0 }
    }

    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) < WHILE
    }
}

/// Limit per network and period for reported wrong tokens, and for recorded refusals of a kind.
const MOST_OF_ONE: u64 = 10;
/// Limit per period for recorded refusals of all networks.
const MOST_OF_ALL: u64 = 100;
const WHILE: Duration = Duration::from_secs(60);
/// Maximum networks tracked for each kind.
const MAX_NETWORKS: usize = 4096;

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    fn tries(refusals: &Refusals, from: &str, (count, now): (usize, Instant)) -> Vec<WrongToken> {
        let from = from.parse().unwrap();
        (0..count).map(|_| refusals.handle_token(from, now)).collect()
    }

    #[test]
    fn one_machine_has_all_addresses_of_64_bits() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        for last in 0..10 {
            let from = format!("2001:db8::{last}:1");
            assert_eq!(tries(&refusals, &from, (1, now)), [WrongToken::Recorded]);
        }
        let one = |from| tries(&refusals, from, (1, now)).remove(0);
        assert_eq!(one("2001:db8::ffff"), WrongToken::TooMany);
        assert_eq!(one("2001:db8:0:1::1"), WrongToken::Recorded);
        assert_eq!(one("10.0.0.1"), WrongToken::Recorded);
        assert_eq!(tries(&refusals, "::ffff:10.0.0.1", (10, now))[9], WrongToken::TooMany);
        assert_eq!(tries(&refusals, "10.0.0.1", (1, now + WHILE)), [WrongToken::Recorded]);
    }

    #[test]
    fn however_many_there_are_so_many_are_recorded_and_the_others_are_told_of_once() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let recorded = |now| {
            let networks =
                (0..300_u32).map(|network| Ipv6Addr::from_bits(u128::from(network) << 64));
            networks.filter(|from| refusals.handle_role((*from).into(), now)).count() as u64
        };
        assert_eq!(recorded(start), MOST_OF_ALL);
        assert_eq!(tries(&refusals, "10.0.0.1", (1, start)), [WrongToken::LeftOut]);
        assert_eq!(refusals.take_left_out(start), None, "not for each");
        assert_eq!(refusals.take_left_out(start + WHILE), Some(201));
        assert_eq!(refusals.take_left_out(start + WHILE * 2), None);
        assert_eq!(recorded(start + WHILE), MOST_OF_ALL);
    }

    #[test]
    fn the_oldest_network_is_forgotten_for_another() {
        let (mut networks, start) = (Networks::default(), Instant::now());
        let network = |number: u32| IpAddr::from(number.to_be_bytes());
        for number in 0..=u32::try_from(MAX_NETWORKS).unwrap() {
            networks.add(network(number), start + Duration::from_millis(number.into()));
        }
        assert_eq!(networks.0.len(), MAX_NETWORKS);
        assert!(!networks.0.contains_key(&network(0)) && networks.0.contains_key(&network(1)));
    }
}
