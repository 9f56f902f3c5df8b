//! Finds the version of a claimed resource that both clusters serve, and finds it again when what was found is no more.

use std::{sync::Arc, time::Duration};

use bindery_api::v1alpha2::GroupResource;
use bindery_runtime::{backoff::Backoff, errors};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    attempt::Attempt,
    claims::{Problem, discovery, registry::Site},
    model::BoundResource,
};

/// How often the clusters are asked whether they serve a resource.
const SEARCH: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
/// How long a watch may fail before it is asked whether the resource is still served.
const DOUBT: Duration = Duration::from_secs(30);

/// Goes on until both clusters serve the resource.
pub(super) struct Search {
    attempt: Attempt<BoundResource, Lack>,
    _link: AbortOnDropHandle<()>,
}

/// Why there is nothing to sync.
#[derive(Clone, Debug)]
pub(super) enum Lack {
    /// Neither cluster serves it, so that neither has a copy.
    Nowhere,
    /// One does not, or not as the other does.
    Missing(String),
    /// It cannot be asked.
    Unreachable(String),
}

/// A resource that was served, and of which the watches fail.
pub(super) struct Doubt {
    since: Instant,
    search: Option<Search>,
}

/// What became of a doubt.
pub(super) enum Verdict {
    /// It is not known yet.
    Open,
    /// It is served as before.
    Unfounded,
    /// It is served otherwise, or not at all.
    Founded(Search),
}

// === impl Search ===

impl Search {
    /// Starts to search; `news` is notified of every outcome.
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

    pub(super) fn outcome(&self) -> Option<Result<BoundResource, Lack>> {
        self.attempt.outcome()
    }
}

async fn search(
    consumer: kube::Client,
    provider: kube::Client,
    resource: GroupResource,
) -> Result<BoundResource, Lack> {
    let (here, there) = tokio::join!(
        discovery::served(&consumer, &resource),
        discovery::served(&provider, &resource)
    );
    let unreachable = |cluster: &str, error: &kube::Error| {
        Lack::Unreachable(format!(
            "cannot find out whether the {cluster} serves {resource}: {}",
            errors::explain(error)
        ))
    };
    let here = here.map_err(|error| unreachable("consumer", &error))?;
    let there = there.map_err(|error| unreachable("provider", &error))?;
    if here.is_empty() && there.is_empty() {
        return Err(Lack::Nowhere);
    }
    discovery::common(&resource, &here, &there).map_err(Lack::Missing)
}

/// Has all told that a value changed.
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

// === impl Lack ===

impl Lack {
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
            lacks_right: false,
        }
    }
}

// === impl Doubt ===

impl Doubt {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            search: None,
        }
    }

    /// When to look again although nothing may have changed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.search.is_none().then(|| self.since + DOUBT)
    }

    /// Searches again as soon as the doubt is old enough.
    pub(super) fn decide(
        &mut self,
        site: &Site,
        claimed: &GroupResource,
        known: &BoundResource,
        news: &Arc<Notify>,
    ) -> Verdict {
        if self.search.is_none() && self.since.elapsed() >= DOUBT {
            self.search = Some(Search::start(site, claimed, news));
        }
        match self.search.as_ref().and_then(Search::outcome) {
            None | Some(Err(Lack::Unreachable(_))) => Verdict::Open,
            Some(Ok(found)) if found == *known => Verdict::Unfounded,
            Some(Ok(_) | Err(Lack::Nowhere | Lack::Missing(_))) => {
                self.search.take().map_or(Verdict::Open, Verdict::Founded)
            }
        }
    }
}
