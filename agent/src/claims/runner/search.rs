//! Finds the version of a claimed resource that both clusters serve, and another one when that is served no more.

use std::{sync::Arc, time::Duration};

use bindery_api::v1alpha2::GroupResource;
use bindery_runtime::{backoff::Backoff, errors};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

use super::Site;
use crate::{
    attempt::Attempt,
    discovery,
    engine::{Cause, Problem},
    model::BoundResource,
};

/// The pauses between two searches.
const SEARCH: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
/// The time that a watch may fail until the version counts as stale, and is searched again.
const STALE_AFTER: Duration = Duration::from_secs(30);

/// Searches until both clusters serve the resource.
pub(super) struct VersionSearch {
    attempt: Attempt<BoundResource, SearchFailure>,
    _link: AbortOnDropHandle<()>,
}

/// Why no version was found.
#[derive(Clone, Debug)]
pub(super) enum SearchFailure {
    /// Neither cluster serves the resource, so that neither has a copy.
    Nowhere,
    /// One cluster does not serve the resource, or the two serve no version in common.
    Missing(String),
    /// A cluster could not be asked.
    Unreachable(String),
}

/// Checks whether a version is still served, once its watches have failed for long.
pub(super) struct StalenessCheck {
    since: Instant,
    search: Option<VersionSearch>,
}

/// The outcome of a staleness check.
pub(super) enum Verdict {
    /// Not known yet.
    Open,
    /// The version is served as before.
    Current,
    /// Another version has to be synced, or none: this search says which.
    Stale(VersionSearch),
}

// === impl VersionSearch ===

impl VersionSearch {
    /// Starts to search. `news` is notified of every outcome.
    pub(super) fn start(site: &Site, resource: &GroupResource, news: &Arc<Notify>) -> Self {
        let (consumer, provider) = (site.sides.consumer.write.clone(), site.sides.provider.write.clone());
        let resource = resource.clone();
        let attempt = Attempt::start(SEARCH, move || {
            search(consumer.clone(), provider.clone(), resource.clone())
        });
        Self {
            _link: forward(attempt.changes(), news),
            attempt,
        }
    }

    pub(super) fn outcome(&self) -> Option<Result<BoundResource, SearchFailure>> {
        self.attempt.outcome()
    }
}

async fn search(
    consumer: kube::Client,
    provider: kube::Client,
    resource: GroupResource,
) -> Result<BoundResource, SearchFailure> {
    let (here, there) = tokio::join!(
        discovery::served(&consumer, &resource),
        discovery::served(&provider, &resource)
    );
    let unreachable = |cluster: &str, error: &kube::Error| {
        SearchFailure::Unreachable(format!(
            "cannot find out whether the {cluster} serves {resource}: {}",
            errors::explain(error)
        ))
    };
    let here = here.map_err(|error| unreachable("consumer", &error))?;
    let there = there.map_err(|error| unreachable("provider", &error))?;
    if here.is_empty() && there.is_empty() {
        return Err(SearchFailure::Nowhere);
    }
    discovery::common(&resource, &here, &there).map_err(SearchFailure::Missing)
}

/// Notifies `news` whenever a value changes, until the handle is dropped.
pub(super) fn forward<T: Send + Sync + 'static>(
    mut changes: watch::Receiver<T>,
    news: &Arc<Notify>,
) -> AbortOnDropHandle<()> {
    let news = Arc::clone(news);
    AbortOnDropHandle::new(tokio::spawn(async move {
        news.notify_one();
        while changes.changed().await.is_ok() {
            news.notify_one();
        }
    }))
}

// === impl SearchFailure ===

impl SearchFailure {
    pub(super) fn problem(self, resource: &GroupResource) -> Problem {
        let (reason, message) = match self {
            Self::Nowhere => (
                "ClaimedApiMissing",
                format!("neither consumer nor provider serves {resource}; it is synced as soon as both do"),
            ),
            Self::Missing(message) => ("ClaimedApiMissing", message),
            Self::Unreachable(message) => ("Unreachable", message),
        };
        Problem {
            reason,
            message,
            cause: Cause::Other,
            namespace: None,
        }
    }
}

// === impl StalenessCheck ===

impl StalenessCheck {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            search: None,
        }
    }

    /// When to look at it again even if nothing changes.
    pub(super) fn due(&self) -> Option<Instant> {
        self.search.is_none().then(|| self.since + STALE_AFTER)
    }

    /// Searches again as soon as the watches have failed for long enough.
    pub(super) fn decide(
        &mut self,
        site: &Site,
        claimed: &GroupResource,
        known: &BoundResource,
        news: &Arc<Notify>,
    ) -> Verdict {
        if self.search.is_none() && self.since.elapsed() >= STALE_AFTER {
            self.search = Some(VersionSearch::start(site, claimed, news));
        }
        match self.search.as_ref().and_then(VersionSearch::outcome) {
            None | Some(Err(SearchFailure::Unreachable(_))) => Verdict::Open,
            Some(Ok(found)) if found == *known => Verdict::Current,
            Some(Ok(_) | Err(SearchFailure::Nowhere | SearchFailure::Missing(_))) => {
                self.search.take().map_or(Verdict::Open, Verdict::Stale)
            }
        }
    }
}
