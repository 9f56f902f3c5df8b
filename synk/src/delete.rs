//! Deletes sets, and versions of them, with everything they own.

mod gone;

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::gone::until_gone;
use crate::{
    errors::Failure,
    history,
    lock::{Held, Lock},
    object::ObjectRef,
    report::Listener,
    rest::{Propagation, Rest},
    sets,
    target::Target,
    versions::{Known, Versions},
    wire::{SetName, Version},
};

/// Options for deleting a set.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// Namespace of the Lease and history of the set, if the set does not record one. A set that records another
    /// namespace is not deleted.
    pub namespace: Option<String>,
    /// Whether to wait until everything that the set owns is gone.
    pub wait: bool,
    /// Greatest time to wait.
    pub timeout: Duration,
    /// Stops the work. Deletions that were requested go on by themselves.
    pub stop: CancellationToken,
}

/// The outcome of a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// The deleted versions.
    pub versions: Vec<Version>,
    /// Objects that the versions list and do not own, so that they stay: CRDs.
    pub kept: Vec<ObjectRef>,
}

/// One deletion, with its clients.
pub(crate) struct Job<'a> {
    pub rest: &'a Rest,
    pub deletion: &'a Deletion,
    pub on: &'a Listener<'a>,
}

/// What to delete: a set, or one version of it.
struct Removal<'a> {
    job: &'a Job<'a>,
    set: &'a SetName,
    number: Option<u64>,
}

/// The result of requesting the deletions under the Lease.
enum Requested {
    /// The deletion of these versions was requested.
    Done(Vec<Known>),
    /// The set is applied with another namespace now, so another Lease must be taken.
    Moved(Versions),
}

impl Default for Deletion {
    fn default() -> Self {
        Self {
            namespace: None,
            wait: true,
            timeout: Duration::from_mins(5),
            stop: CancellationToken::new(),
        }
    }
}

// === impl Job ===

impl Job<'_> {
    async fn unless_stopped<T>(
        &self,
        set: &SetName,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            biased;
            () = self.deletion.stop.cancelled() => Err(Failure::Stopped(set.clone())),
            done = work => done,
        }
    }
}

/// Deletes a set: all its versions, what they own, and the Secrets and Lease of the set.
pub(crate) async fn set(job: &Job<'_>, set: &SetName) -> Result<Deleted, Failure> {
    let number = None;
    Removal { job, set, number }.run().await
}

/// Deletes one version and what only it owns. Deletes the set if this was its last version.
pub(crate) async fn version(job: &Job<'_>, version: &Version) -> Result<Deleted, Failure> {
    let (set, number) = (&version.set, Some(version.number));
    Removal { job, set, number }.run().await
}

// === impl Removal ===

impl Removal<'_> {
    async fn run(&self) -> Result<Deleted, Failure> {
        let mut versions = self.read().await?;
        if versions.is_empty() {
            self.tidy().await?;
        }
        let asked = self.chosen(&versions);
        if asked.is_empty() {
            return Err(self.absent());
        }
        let deleted = loop {
            let namespace = self.namespace(&versions)?;
            match self.request(namespace.as_deref()).await? {
                Requested::Done(deleted) => break deleted,
                Requested::Moved(now) => versions = now,
            }
        };
        // If the set does not exist any more, somebody else has deleted it.
        let deleted = if deleted.is_empty() { asked } else { deleted };
        if self.job.deletion.wait {
            let wait = until_gone(self.job, self.set, &deleted);
            self.job.unless_stopped(self.set, wait).await?;
        }
        Ok(Deleted::of(&deleted))
    }

    /// Requests all deletions under the Lease. The API server does the rest, and the Lease may go with its namespace.
    async fn request(&self, namespace: Option<&str>) -> Result<Requested, Failure> {
        let held = match namespace {
            Some(namespace) => self.lease(namespace).await?,
            None => None,
        };
        let work = async {
            match &held {
                Some(held) => held.guard(self.under(namespace)).await,
                None => self.under(namespace).await,
            }
        };
        let requested = self.job.unless_stopped(self.set, work).await;
        if let Some(held) = held {
            held.release().await;
        }
        requested
    }

    /// Reads the versions again under the Lease, because an apply may have worked until then, and requests their
    /// deletion.
    async fn under(&self, namespace: Option<&str>) -> Result<Requested, Failure> {
        let versions = self.read().await?;
        if !versions.is_empty() && self.namespace(&versions)?.as_deref() != namespace {
            return Ok(Requested::Moved(versions));
        }
        let deleted = self.chosen(&versions);
        // The Secrets and the Lease of a set are deleted before the set: while the set exists, its deletion can be
        // repeated.
        if let Some(namespace) = namespace.filter(|_| deleted.len() == versions.len()) {
            history::remove_all(self.job.rest.clients(), self.set, namespace).await?;
        }
        // Oldest first: if this is interrupted, the version in effect is the one that remains.
        for known in &deleted {
            sets::delete(self.job.rest, &known.version, &known.uid, Propagation::Foreground).await?;
        }
        Ok(Requested::Done(deleted))
    }

    /// Deletes Secrets and Lease of a set that is gone, in the given namespace: the process that deleted the set may
    /// have been killed.
    async fn tidy(&self) -> Result<(), Failure> {
        let Some(namespace) = &self.job.deletion.namespace else {
            return Ok(());
        };
        let (clients, target) = (self.job.rest.clients(), self.target(namespace));
        let is_left = Lock::exists(clients, &target).await? || history::is_kept(clients, &target).await?;
        if !is_left {
            return Ok(());
        }
        let Some(held) = self.lease(namespace).await? else {
            return Ok(());
        };
        let work = held.guard(async {
            if self.read().await?.is_empty() {
                history::remove_all(clients, self.set, namespace).await?;
            }
            Ok(())
        });
        let done = self.job.unless_stopped(self.set, work).await;
        held.release().await;
        done
    }

    async fn read(&self) -> Result<Versions, Failure> {
        let sets = sets::list(self.job.rest, Some(self.set)).await?;
        Ok(Versions::of(self.set, sets))
    }

    /// Returns the versions to delete.
    fn chosen(&self, versions: &Versions) -> Vec<Known> {
        let is_chosen = |known: &&Known| self.number.is_none_or(|number| known.version.number == number);
        versions.iter().filter(is_chosen).cloned().collect()
    }

    fn absent(&self) -> Failure {
        match self.number {
            None => Failure::NoSet(self.set.clone()),
            Some(number) => Failure::NoVersion {
                version: self.set.version(number),
            },
        }
    }

    /// Returns the namespace of Lease and history: the one that the set records, else the given one, because some synks
    /// record none.
    fn namespace(&self, versions: &Versions) -> Result<Option<String>, Failure> {
        let given = self.job.deletion.namespace.as_deref();
        Ok(versions.namespace_or(self.set, given)?.map(str::to_owned))
    }

    fn target(&self, namespace: &str) -> Target {
        Target {
            set: self.set.clone(),
            namespace: namespace.to_owned(),
        }
    }

    /// Takes the Lease. Returns `None` if its namespace is gone or terminating, so that nobody can apply the set.
    async fn lease(&self, namespace: &str) -> Result<Option<Held>, Failure> {
        let target = self.target(namespace);
        let taken = Lock::take(self.job.rest.clients(), &target, self.job.on);
        match self.job.unless_stopped(self.set, taken).await {
            Err(Failure::NoNamespace(_) | Failure::Terminating(_)) => Ok(None),
            taken => taken.map(Some),
        }
    }
}

// === impl Deleted ===

impl Deleted {
    fn of(deleted: &[Known]) -> Self {
        let mut kept: Vec<_> = deleted.iter().flat_map(|known| &known.objects).collect();
        kept.retain(|object| object.gvk.is_crd());
        kept.sort();
        kept.dedup();
        Self {
            versions: deleted.iter().map(|known| known.version.clone()).collect(),
            kept: kept.into_iter().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
