//! Places for the connections to the port, of which strangers can take a part only.
//!
//! A connection is a stranger's until a call on it has passed authentication. When places are short, a stranger's connection gives
//! way to the new one: the oldest of the network that has the most of them. So a client that opens few connections keeps its place
//! until its first call, however many connections other networks open.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::SetOnce;

use crate::settings::ConnectionLimits;

/// Why the server closed or refused a connection. A client that closes its connection itself is no such reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// It was refused: its network has as many connections as it may, and all have authenticated.
    PeerLimit,
    /// It was refused: there are as many connections as there may be, and all have authenticated.
    NoPlace,
    /// It was a stranger's, and gave way to another connection.
    Displaced,
    /// Its TLS handshake took too long.
    Handshake,
    /// Its first request took too long.
    FirstRequest,
    /// It had no call under way for too long.
    Idle,
    /// It was as old as a connection may be.
    Age,
    /// The client did not read the answer of an open method until the deadline of the call.
    OpenCall,
}

/// All places. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: ConnectionLimits,
    taken: Mutex<Taken>,
}

/// The place of one connection. It is given back on drop.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Shared>,
    network: IpAddr,
    number: u64,
    is_known: AtomicBool,
    end: Arc<SetOnce<ConnectionEnd>>,
}

/// The places that are taken.
#[derive(Debug, Default)]
struct Taken {
    all: usize,
    strangers: usize,
    networks: HashMap<IpAddr, Network>,
    /// The number of the next connection: the older of two has the smaller one.
    next: u64,
}

/// The connections of one network.
#[derive(Debug, Default)]
struct Network {
    all: usize,
    /// Those of strangers by their numbers, with what ends them.
    strangers: BTreeMap<u64, Arc<SetOnce<ConnectionEnd>>>,
}

impl ConnectionEnd {
    /// All reasons.
    pub(crate) const ALL: [Self; 8] = [
        Self::PeerLimit,
        Self::NoPlace,
        Self::Displaced,
        Self::Handshake,
        Self::FirstRequest,
        Self::Idle,
        Self::Age,
        Self::OpenCall,
    ];

    /// The reason as a label of metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::PeerLimit => "peer_limit",
            Self::NoPlace => "no_place",
            Self::Displaced => "displaced",
            Self::Handshake => "handshake",
            Self::FirstRequest => "first_request",
            Self::Idle => "idle",
            Self::Age => "age",
            Self::OpenCall => "open_call",
        }
    }
}

// === impl Places ===

impl Places {
    /// Places within these limits, all of them free.
    pub(crate) fn new(limits: ConnectionLimits) -> Self {
        Self(Arc::new(Shared {
            limits,
            taken: Mutex::default(),
        }))
    }

    /// A place for a new connection from `network`, or why there is none. A stranger's connection that gives way ends as
    /// [`ConnectionEnd::Displaced`]; its place is free at once.
    pub(crate) fn admit(&self, network: IpAddr) -> Result<Place, ConnectionEnd> {
        let end = Arc::new(SetOnce::new());
        let number = self.0.taken.lock().admit(network, &self.0.limits, &end)?;
        Ok(Place {
            places: Arc::clone(&self.0),
            network,
            number,
            is_known: AtomicBool::new(false),
            end,
        })
    }
}

// === impl Place ===

impl Place {
    /// Notes that a call on the connection has passed authentication, so that it never gives way to another one.
    pub(crate) fn authenticated(&self) {
        if self.is_known.load(Ordering::Relaxed) {
            return;
        }
        let mut taken = self.places.taken.lock();
        // A connection that gave way meanwhile has no place any more.
        if taken.remove_stranger(self.network, self.number) {
            self.is_known.store(true, Ordering::Relaxed);
        }
    }

    /// Has the connection closed.
    pub(crate) fn close(&self, end: ConnectionEnd) {
        // The first reason counts.
        let _ = self.end.set(end);
    }

    /// Waits until the connection is to be closed, and returns why.
    pub(crate) async fn closed(&self) -> ConnectionEnd {
        *self.end.wait().await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        if taken.remove_stranger(self.network, self.number) || *self.is_known.get_mut() {
            taken.release(self.network);
        }
    }
}

// === impl Taken ===

impl Taken {
    /// Takes a place, and returns its number.
    fn admit(
        &mut self,
        network: IpAddr,
        limits: &ConnectionLimits,
        end: &Arc<SetOnce<ConnectionEnd>>,
    ) -> Result<u64, ConnectionEnd> {
        if self
            .networks
            .get(&network)
            .is_some_and(|own| own.all >= limits.per_peer)
        {
            self.displace(network).ok_or(ConnectionEnd::PeerLimit)?;
        } else if self.all >= limits.all || self.strangers >= limits.strangers() {
            let crowded = self.most_crowded().ok_or(ConnectionEnd::NoPlace)?;
            self.displace(crowded).ok_or(ConnectionEnd::NoPlace)?;
        }
        let number = self.next;
        self.next += 1;
        self.all += 1;
        self.strangers += 1;
        let own = self.networks.entry(network).or_default();
        own.all += 1;
        own.strangers.insert(number, Arc::clone(end));
        Ok(number)
    }

    /// The network with the most connections of strangers; of several, the one with the oldest.
    fn most_crowded(&self) -> Option<IpAddr> {
        let crowds = self.networks.iter().filter_map(|(network, own)| {
            let (oldest, _) = own.strangers.first_key_value()?;
            Some(((own.strangers.len(), Reverse(*oldest)), *network))
        });
        crowds.max_by_key(|(crowd, _)| *crowd).map(|(_, network)| network)
    }

    /// Ends the oldest stranger's connection of a network; none if it has none.
    fn displace(&mut self, network: IpAddr) -> Option<()> {
        let own = self.networks.get_mut(&network)?;
        let (_, end) = own.strangers.pop_first()?;
        // If it is to be closed for another reason already, that one counts.
        let _ = end.set(ConnectionEnd::Displaced);
        self.strangers -= 1;
        self.release(network);
        Some(())
    }

    /// Removes a connection from those of strangers. Returns whether it was one of them.
    fn remove_stranger(&mut self, network: IpAddr, number: u64) -> bool {
        let own = self.networks.get_mut(&network);
        let was = own.is_some_and(|own| own.strangers.remove(&number).is_some());
        self.strangers -= usize::from(was);
        was
    }

    /// Gives a place of a network back.
    fn release(&mut self, network: IpAddr) {
        self.all -= 1;
        if let Some(own) = self.networks.get_mut(&network) {
            own.all -= 1;
            if own.all == 0 {
                self.networks.remove(&network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(all: usize, per_peer: usize) -> Places {
        Places::new(ConnectionLimits {
            all,
            per_peer,
            ..crate::settings::tests::settings().connections
        })
    }

    fn network(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn is_open(place: &Place) -> bool {
        place.end.get().is_none()
    }

    #[test]
    fn strangers_fill_half_of_the_places_and_known_clients_the_rest() {
        let places = places(8, 8);
        let admit = |last| places.admit(network(last));
        let known: Vec<_> = (0..6)
            .map(|last| admit(last).expect("a place"))
            .inspect(Place::authenticated)
            .collect();
        let strangers: Vec<_> = (10..13).map(|last| admit(last).expect("a place")).collect();
        assert!(known.iter().all(is_open), "a known client gives way to nobody");
        let open: Vec<_> = strangers.iter().map(is_open).collect();
        assert_eq!(
            open,
            [false, true, true],
            "all places are taken: the oldest stranger gave way"
        );
        strangers[1..].iter().for_each(Place::authenticated);
        assert_eq!(admit(20).err(), Some(ConnectionEnd::NoPlace));
        drop(known);
        let strangers: Vec<_> = (20..25).map(|last| admit(last).expect("a place")).collect();
        let open: Vec<_> = strangers.iter().map(is_open).collect();
        assert_eq!(open, [false, true, true, true, true], "four of eight are the most");
    }

    #[test]
    fn the_oldest_of_the_most_crowded_network_gives_way() {
        let places = places(8, 8);
        let admit = |last| places.admit(network(last)).expect("a place");
        let single = admit(1);
        let crowd = [admit(2), admit(2), admit(2)];
        let newcomers: Vec<_> = (3..5).map(admit).collect();
        assert!(is_open(&single) && newcomers.iter().all(is_open));
        assert_eq!(crowd.each_ref().map(is_open), [false, false, true]);
        let _last = admit(5);
        assert_eq!(
            single.end.get(),
            Some(&ConnectionEnd::Displaced),
            "of equal ones the oldest"
        );
    }

    #[test]
    fn a_network_has_so_many_places_and_its_own_strangers_give_way() {
        let places = places(100, 2);
        let admit = || places.admit(network(1));
        let first = admit().expect("a place");
        first.authenticated();
        let second = admit().expect("a place");
        let third = admit().expect("a place");
        assert!(is_open(&first) && !is_open(&second) && is_open(&third));
        // Too late: its place is another's.
        second.authenticated();
        third.authenticated();
        assert_eq!(admit().err(), Some(ConnectionEnd::PeerLimit));
        assert!(
            places.admit(network(2)).is_ok(),
            "another network has places of its own"
        );
        drop(first);
        assert!(admit().is_ok());
    }

    #[test]
    fn each_place_is_given_back_once() {
        let places = places(4, 4);
        for _ in 0..3 {
            let mut all: Vec<_> = (0..9)
                .map(|last| places.admit(network(last % 3)).expect("a place"))
                .collect();
            all.last().expect("a place").authenticated();
            all.pop();
            drop(all);
            let taken = places.0.taken.lock();
            assert_eq!((taken.all, taken.strangers, taken.networks.len()), (0, 0, 0));
        }
    }
}
