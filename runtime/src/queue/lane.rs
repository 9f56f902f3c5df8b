//! The queued keys of one priority: a ring of tenants, each with its keys, oldest first. The tenants take turns.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

/// Whom a key belongs to. A queue that knows no tenants has one, whose name is empty.
pub(super) type Tenant = Arc<str>;

/// The queued keys of one priority.
#[derive(Debug)]
pub(super) struct Lane<K> {
    /// The keys of each tenant in the ring; those of a tenant may be none.
    pub(super) tenants: HashMap<Tenant, Fifo<K>>,
    /// Every tenant of `tenants` once; the first one is next.
    ring: VecDeque<Tenant>,
    /// Number of queued keys of all tenants.
    len: usize,
}

/// The queued keys of one tenant, oldest first.
#[derive(Debug)]
pub(super) struct Fifo<K> {
    /// The keys, among them stale entries of keys that moved to the other priority.
    pub(super) entries: VecDeque<K>,
    /// Number of keys that are not stale.
    len: usize,
}

// === impl Lane ===

impl<K> Default for Lane<K> {
    fn default() -> Self {
        Self {
            tenants: HashMap::new(),
            ring: VecDeque::new(),
            len: 0,
        }
    }
}

impl<K> Lane<K> {
    /// Returns the number of queued keys.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of queued keys of a tenant.
    pub(super) fn len_of(&self, tenant: &Tenant) -> usize {
        self.tenants.get(tenant).map_or(0, |fifo| fifo.len)
    }

    /// Queues a key behind those of its tenant. A tenant without keys joins the end of the ring.
    pub(super) fn push(&mut self, tenant: &Tenant, key: K) {
        let fifo = self.tenants.entry(Arc::clone(tenant)).or_insert_with(|| {
            self.ring.push_back(Arc::clone(tenant));
            Fifo::default()
        });
        fifo.entries.push_back(key);
        fifo.len += 1;
        self.len += 1;
    }

    /// Counts out a key that moved to the other priority. Its entry stays behind as a stale one, which is skipped.
    pub(super) fn remove(&mut self, tenant: &Tenant) {
        if let Some(fifo) = self.tenants.get_mut(tenant) {
            fifo.remove();
            self.len -= 1;
        }
        self.clear_if_empty();
    }

    /// Takes the oldest key of the next tenant in the ring that has one and is not the excepted one. That tenant goes to the end of the
    /// ring, and the excepted one keeps its turn. `claim` says whether an entry is still queued here, and takes it if so.
    pub(super) fn take(&mut self, except: Option<&Tenant>, mut claim: impl FnMut(&K) -> bool) -> Option<K> {
        let mut excepted = None;
        let mut taken = None;
        while let Some(tenant) = self.ring.pop_front() {
            if except == Some(&tenant) {
                excepted = Some(tenant);
                continue;
            }
            let Some(fifo) = self.tenants.get_mut(&tenant) else {
                continue;
            };
            taken = fifo.take(&mut claim);
            if taken.is_some() {
                self.len -= 1;
                self.ring.push_back(tenant);
                break;
            }
            self.tenants.remove(&tenant);
        }
        if let Some(tenant) = excepted {
            self.ring.push_front(tenant);
        }
        self.clear_if_empty();
        taken
    }

    /// Frees the memory that many keys took, but for the capacity to be kept.
    pub(super) fn shrink(&mut self, kept: usize) {
        self.tenants.shrink_to(kept);
        self.ring.shrink_to(kept);
        for fifo in self.tenants.values_mut() {
            fifo.entries.shrink_to(kept);
        }
    }

    /// Forgets tenants that have no keys. Where there is one tenant only, it stays, and so does the capacity for its keys.
    fn clear_if_empty(&mut self) {
        if self.len == 0 && self.tenants.len() > 1 {
            self.tenants.clear();
            self.ring.clear();
        }
    }
}

// === impl Fifo ===

impl<K> Default for Fifo<K> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            len: 0,
        }
    }
}

impl<K> Fifo<K> {
    fn take(&mut self, claim: &mut impl FnMut(&K) -> bool) -> Option<K> {
        while self.len > 0 {
            let key = self.entries.pop_front()?;
            if claim(&key) {
                self.remove();
                return Some(key);
            }
        }
        None
    }

    fn remove(&mut self) {
        self.len -= 1;
        if self.len == 0 {
            self.entries.clear();
        }
    }
}
