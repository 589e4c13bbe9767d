//! Places for connections: a fixed number of them, of which unidentified connections yield theirs.
//!
//! A connection is a *stranger* until its client has identified itself: a switch by its features, a
//! REST client by an authorized request. If all places are taken, a new connection takes the place
//! of a stranger: the oldest one of the network that has the most. So a client that fills all
//! places without a word evicts only its own connections, and never an identified one. A connection
//! is refused only if all others are identified.
//!
//! Identified REST clients have limits, too: each token of a viewer or an operator holds at most a
//! quarter of the places, and all viewers together three quarters. Connections beyond that remain
//! strangers.
//!
//! One network may have TLS handshakes that take longer than a second in at most an eighth of the
//! places; one more evicts its oldest. So clients that connect and stay silent do not fill all
//! places. Faster handshakes are not counted: behind a proxy or a shared address, honest clients
//! begin many at once, possibly beside a client that begins handshakes only to evict others.
//!
//! Time limits are not here: a TLS handshake, the head of an HTTP request and the OpenFlow hello
//! may take ten seconds each. They alone would not keep a client from reconnecting at once.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::{Caller, Role};

/// Places for one kind of connections.
#[derive(Debug)]
pub(crate) struct Places {
    /// The kind, for the log.
    kind: &'static str,
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Network of each connection, by number; older ones have smaller numbers.
    networks: HashMap<u64, IpAddr>,
    strangers: BTreeMap<IpAddr, BTreeMap<u64, oneshot::Sender<()>>>,
    /// Those in a TLS handshake, with its start.
    shaking: BTreeMap<IpAddr, BTreeMap<u64, Instant>>,
    /// Authorized REST clients, by number.
    clients: HashMap<u64, Client>,
    last: u64,
    counts: PlaceCounts,
    told_at: Option<Instant>,
    /// When the log was last told that a connection cannot be accepted.
    failed_at: Option<Instant>,
}

/// Properties of a client that limit its places.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Client {
    name: String,
    role: Role,
}

/// Counters of places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlaceCounts {
    /// Open connections.
    pub(crate) open: usize,
    /// Strangers closed to make room.
    pub(crate) evicted: u64,
    /// Connections refused for lack of room.
    pub(crate) refused: u64,
}

/// The place of a connection, released on drop.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    network: IpAddr,
    number: u64,
}

/// A TLS handshake in progress, which ends on drop.
#[derive(Debug)]
pub(crate) struct Handshake<'a>(&'a Place);

/// Signals a connection to make room.
#[derive(Debug)]
pub(crate) struct Eviction(oneshot::Receiver<()>);

impl Places {
    pub(crate) fn new(kind: &'static str, max: usize) -> Arc<Self> {
        Arc::new(Self { kind, max, taken: Mutex::default() })
    }

    /// Takes a place for a stranger from this address, unless all are taken by identified
    /// connections.
    pub(crate) fn take(self: &Arc<Self>, from: IpAddr) -> Option<(Place, Eviction)> {
        let (mut taken, network) = (self.lock(), network(from));
        if taken.networks.len() >= self.max {
            let has_room = taken.evict(Some(network));
            taken.counts.refused += u64::from(!has_room);
            self.tell(&mut taken, from, Instant::now());
            if !has_room {
                return None;
            }
        }
        taken.last += 1;
        let (number, (evict, evicted)) = (taken.last, oneshot::channel());
        taken.networks.insert(number, network);
        taken.strangers.entry(network).or_default().insert(number, evict);
        let places = Arc::clone(self);
        Some((Place { places, network, number }, Eviction(evicted)))
    }

    /// The kernel cannot accept a connection, usually for lack of file descriptors: closes a
    /// stranger, if there is one. Returns whether to log it, at a limited rate.
    pub(crate) fn make_room(&self, now: Instant) -> bool {
        let mut taken = self.lock();
        taken.evict(None);
        is_due(&mut taken.failed_at, now)
    }

    pub(crate) fn counts(&self) -> PlaceCounts {
        let taken = self.lock();
        PlaceCounts { open: taken.networks.len(), ..taken.counts }
    }

    /// Reports scarcity at a limited rate, so that repeated connections do not fill the log.
    fn tell(&self, taken: &mut Taken, from: IpAddr, now: Instant) {
        let (kind, max) = (self.kind, self.max);
        let PlaceCounts { evicted, refused, .. } = taken.counts;
        if is_due(&mut taken.told_at, now) {
            tracing::warn!(
                "{kind}: the limit of {max} connections is reached, and {from} opens another: so \
                 far {evicted} unauthenticated ones were closed for newer ones, and {refused} were \
                 refused"
            );
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // The content is consistent whenever the lock is free.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Closes a stranger for one more connection from this network. Returns whether there is room
    /// now.
    fn evict(&mut self, for_one_of: Option<IpAddr>) -> bool {
        // Includes the new connection: of two networks with equal counts, its own loses one.
        let count = |(network, of): &(&IpAddr, &BTreeMap<_, _>)| {
            of.len() + usize::from(for_one_of == Some(**network))
        };
        let most = self.strangers.iter().max_by_key(count);
        let oldest = most.and_then(|(network, of)| Some((*network, *of.first_key_value()?.0)));
        let Some((network, number)) = oldest else { return false };
        self.evict_one(network, number);
        true
    }

    fn evict_one(&mut self, network: IpAddr, number: u64) {
        self.networks.remove(&number);
        self.counts.evicted += 1;
        self.end_handshake(network, number);
        if let Some(evict) = self.forget_stranger(network, number) {
            // It may have ended by itself.
            let _ = evict.send(());
        }
    }

    /// Begins a handshake. At most `max` of one network may take long at a time.
    fn begin_handshake(&mut self, (network, number): (IpAddr, u64), max: usize, now: Instant) {
        if !self.networks.contains_key(&number) {
            return;
        }
        let shaking = self.shaking.entry(network).or_default();
        shaking.insert(number, now);
        let is_slow = |since: Instant| now.saturating_duration_since(since) >= FAIR_HANDSHAKE;
        let slow = shaking.iter().filter(|(_, since)| is_slow(**since)).map(|(number, _)| *number);
        let slow: Vec<_> = slow.take(shaking.len().saturating_sub(max)).collect();
        slow.into_iter().for_each(|number| self.evict_one(network, number));
    }

    fn end_handshake(&mut self, network: IpAddr, number: u64) {
        if let Some(shaking) = self.shaking.get_mut(&network) {
            shaking.remove(&number);
            if shaking.is_empty() {
                self.shaking.remove(&network);
            }
        }
    }

    /// Whether a client may keep one more of `max` places.
    fn has_share(&self, client: &Client, max: usize) -> bool {
        let of_token = self.clients.values().filter(|it| it.name == client.name).count();
        let of_viewers = self.clients.values().filter(|it| it.role == Role::Viewer).count();
        match client.role {
            Role::Admin => true,
            Role::Operator => of_token < max / 4,
            Role::Viewer => of_token < max / 4 && of_viewers < max * 3 / 4,
        }
    }

    fn forget_stranger(&mut self, network: IpAddr, number: u64) -> Option<oneshot::Sender<()>> {
        let strangers = self.strangers.get_mut(&network)?;
        let evict = strangers.remove(&number);
        if strangers.is_empty() {
            self.strangers.remove(&network);
        }
        evict
    }
}

impl Place {
    /// Starts a TLS handshake, which lasts until the result is dropped.
    pub(crate) fn shake_hands(&self) -> Handshake<'_> {
        let max = (self.places.max / 8).max(1);
        let who = (self.network, self.number);
        self.places.lock().begin_handshake(who, max, Instant::now());
        Handshake(self)
    }

    /// The connection is identified. Returns whether it still has its place.
    pub(crate) fn keep(&self) -> bool {
        let mut taken = self.places.lock();
        taken.forget_stranger(self.network, self.number);
        taken.networks.contains_key(&self.number)
    }

    /// The same for a REST client, unless its token has its share of places.
    pub(crate) fn keep_for(&self, caller: &Caller) {
        let mut taken = self.places.lock();
        let Taken { networks, clients, .. } = &*taken;
        if clients.contains_key(&self.number) || !networks.contains_key(&self.number) {
            return;
        }
        let client = Client { name: caller.name.clone(), role: caller.role };
        if taken.has_share(&client, self.places.max) {
            taken.clients.insert(self.number, client);
            taken.forget_stranger(self.network, self.number);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        taken.networks.remove(&self.number);
        taken.clients.remove(&self.number);
        taken.forget_stranger(self.network, self.number);
    }
}

impl Drop for Handshake<'_> {
    fn drop(&mut self) {
        let Place { places, network, number } = self.0;
        places.lock().end_handshake(*network, *number);
    }
}

impl Eviction {
    /// Waits for the signal, possibly forever.
    pub(crate) async fn happens(self) {
        if self.0.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The network that one machine may own: an IPv4 address, or an IPv6 /64.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

/// Whether to log something that was last logged at this time; if so, it is now.
fn is_due(told_at: &mut Option<Instant>, now: Instant) -> bool {
    let is_due = told_at.is_none_or(|at| now.saturating_duration_since(at) >= TELL_AGAIN);
    if is_due {
        *told_at = Some(now);
    }
    is_due
}

/// The remedy when the kernel cannot accept a connection.
pub(crate) const MORE_FILES: &str =
    "raise the limit of open files (`ulimit -n`, LimitNOFILE= of systemd)";
/// Maximum duration of an honest client's handshake: some round trips, also around the world.
const FAIR_HANDSHAKE: Duration = Duration::from_secs(1);
const TELL_AGAIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// Whether it was signalled.
    fn is_evicted(eviction: &mut Eviction) -> bool {
        eviction.0.try_recv().is_ok()
    }

    #[test]
    fn who_takes_all_places_makes_room_for_others() {
        let places = Places::new("test", 3);
        let greedy = address("192.0.2.1");
        let (known, mut kept) = places.take(greedy).unwrap();
        assert!(known.keep());
        let mut honest = places.take(address("192.0.2.2")).unwrap();
        let mut strangers: Vec<_> = (0..5).map(|_| places.take(greedy).unwrap()).collect();
        let evicted: Vec<_> = strangers.iter_mut().map(|(_, it)| is_evicted(it)).collect();
        assert_eq!(evicted, [true, true, true, true, false], "the oldest ones");
        assert!(!is_evicted(&mut honest.1) && !is_evicted(&mut kept));
        assert!(!strangers[0].0.keep(), "it is too late for that");
        assert_eq!(places.counts(), PlaceCounts { open: 3, evicted: 4, refused: 0 });
        drop((strangers, honest, known));
        assert_eq!(places.counts().open, 0);
    }

    #[test]
    fn a_lack_of_descriptors_ends_strangers_and_is_told_once_a_minute() {
        let places = Places::new("test", 8);
        let (known, mut kept) = places.take(address("192.0.2.1")).unwrap();
        assert!(known.keep());
        let mut stranger = places.take(address("192.0.2.2")).unwrap();
        let start = Instant::now();
        assert!(places.make_room(start), "it is told");
        assert!(is_evicted(&mut stranger.1) && !is_evicted(&mut kept));
        assert!(!places.make_room(start + Duration::from_secs(59)), "and not for a minute");
        assert!(places.make_room(start + Duration::from_secs(60)), "then it is");
    }

    #[test]
    fn of_one_network_so_many_handshakes_take_long_at_a_time() {
        let places = Places::new("test", 16);
        let (silent, honest) = (address("192.0.2.1"), address("192.0.2.2"));
        let mut taken: Vec<_> = (0..6).map(|_| places.take(silent).unwrap()).collect();
        let (other, mut kept) = places.take(honest).unwrap();
        let _other = other.shake_hands();
        // The first one has completed its handshake.
        drop(taken[0].0.shake_hands());
        let (start, max) = (Instant::now(), 2);
        let begin = |place: &Place, since: Duration| {
            let who = (place.network, place.number);
            places.lock().begin_handshake(who, max, start + since);
        };
        let evicted = |taken: &mut Vec<(Place, Eviction)>| {
            taken.iter_mut().map(|(_, it)| is_evicted(it)).collect::<Vec<_>>()
        };
        // Possibly honest clients that share an address.
        (1..5).for_each(|at| begin(&taken[at].0, FAIR_HANDSHAKE / 2));
        assert_eq!(evicted(&mut taken), [false; 6]);
        begin(&taken[5].0, FAIR_HANDSHAKE * 2);
        assert_eq!(evicted(&mut taken), [false, true, true, true, false, false], "the oldest ones");
        assert!(!is_evicted(&mut kept), "others are not concerned");
        assert_eq!(places.counts(), PlaceCounts { open: 4, evicted: 3, refused: 0 });
        taken.iter().for_each(|(place, _)| drop(Handshake(place)));
        assert_eq!(places.lock().shaking.len(), 1);
    }

    #[test]
    fn those_that_are_known_keep_their_places() {
        let places = Places::new("test", 2);
        let known = [1, 2].map(|_| places.take(address("192.0.2.1")).unwrap());
        assert!(known.iter().all(|(place, _)| place.keep()));
        assert!(places.take(address("192.0.2.2")).is_none());
        assert_eq!(places.counts(), PlaceCounts { open: 2, evicted: 0, refused: 1 });
        drop(known);
        assert!(places.take(address("192.0.2.2")).is_some());
    }

    fn caller(name: &str, role: Role) -> Caller {
        Caller { name: name.to_owned(), role, from: "192.0.2.1".to_owned() }
    }

    #[test]
    fn viewers_do_not_keep_all_places() {
        let places = Places::new("test", 8);
        let viewers = ["a", "b", "c"].map(|name| caller(name, Role::Viewer));
        let mut watching = Vec::new();
        for viewer in viewers.iter().flat_map(|it| [it, it, it]).take(8) {
            let watcher = places.take(address("192.0.2.1")).unwrap();
            watcher.0.keep_for(viewer);
            watching.push(watcher);
        }
        // Two for each token: the third ones of a and b are strangers.
        let admin = caller("admin", Role::Admin);
        let mut admins = Vec::new();
        for _ in 0..2 {
            let one = places.take(address("192.0.2.1")).unwrap();
            one.0.keep_for(&admin);
            admins.push(one);
        }
        let evicted: Vec<_> = watching.iter_mut().map(|(_, it)| is_evicted(it)).collect();
        assert_eq!(evicted, [false, false, true, false, false, true, false, false]);
        assert!(places.take(address("192.0.2.1")).is_none(), "all are known");
        drop(watching);
        assert_eq!(places.counts().open, 2);
    }

    #[test]
    fn one_machine_has_many_addresses_of_ipv6() {
        let places = Places::new("test", 3);
        let mut honest = places.take(address("2001:db8:1::1")).unwrap();
        let greedy = |host: u16| address(&format!("2001:db8:2::{host:x}"));
        let _strangers: Vec<_> = (0..9).map(|host| places.take(greedy(host)).unwrap()).collect();
        assert!(!is_evicted(&mut honest.1));
    }
}
