//! Bounded number of connections; unidentified ones make room for new ones.
//!
//! A connection is a *stranger* until it has identified itself: a switch by its features, a REST
//! client by an authorized request. If all places are taken, a new connection replaces a stranger:
//! the oldest one of the network with the most strangers. So a client that occupies all places
//! without identifying itself only displaces itself. If all are identified, a new connection is
//! refused.
//!
//! Authorized REST clients may occupy many places as well: each token of a viewer or an operator
//! keeps at most a quarter of them, and all viewers together three quarters. Further ones remain
//! strangers.
//!
//! The time for identification is not limited here: TLS handshake, HTTP head and OpenFlow hello
//! have ten seconds each. These timeouts alone would not help, as a client can reconnect at once.

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
    /// Authorized REST clients, by number.
    clients: HashMap<u64, Client>,
    last: u64,
    counts: PlaceCounts,
    told_at: Option<Instant>,
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

    /// Another resource is exhausted: closes a stranger, if there is one.
    pub(crate) fn make_room(&self) {
        self.lock().evict(None);
    }

    pub(crate) fn counts(&self) -> PlaceCounts {
        let taken = self.lock();
        PlaceCounts { open: taken.networks.len(), ..taken.counts }
    }

    /// Reports scarcity at a limited rate, so that repeated connections do not fill the log.
    fn tell(&self, taken: &mut Taken, from: IpAddr, now: Instant) {
        let (kind, max) = (self.kind, self.max);
        let PlaceCounts { evicted, refused, .. } = taken.counts;
        if taken.told_at.is_none_or(|at| now.saturating_duration_since(at) >= TELL_AGAIN) {
            taken.told_at = Some(now);
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
        self.networks.remove(&number);
        self.counts.evicted += 1;
        if let Some(evict) = self.forget_stranger(network, number) {
            // It may have ended by itself.
            let _ = evict.send(());
        }
        true
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
