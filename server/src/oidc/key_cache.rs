//! The keys of an issuer as they were last fetched. A task of their own fetches them: at the start, every ten minutes, and when
//! a token is signed with a key that is not among them, but at a bounded rate. While the issuer does not answer, the former keys
//! stay in use.

use std::{fmt, sync::Arc, time::Duration};

use futures::FutureExt as _;
use http::Uri;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    config::KeySource,
    discovery::{self, Discovered, DiscoveryError, Endpoints},
    fetch::Fetch,
    keys::KeySet,
    metrics::OidcMetrics,
};

/// How long keys are used before they are fetched again, so that a key that the issuer took back is refused after this time.
const FETCH_EVERY: Duration = Duration::from_mins(10);
/// Shortest time between two fetches, however many tokens have unknown keys.
const FETCH_PAUSE: Duration = Duration::from_secs(10);
/// Delay of the next try after a failure. It doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_mins(1);
/// How long a token waits for a fetch.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// The keys of an issuer. The task that fetches them ends when this is dropped.
pub(super) struct KeyCache {
    source: KeySource,
    state: watch::Receiver<CacheState>,
    wanted: Arc<Notify>,
    _task: Option<AbortOnDropHandle<()>>,
}

#[derive(Clone, Debug, Default)]
struct CacheState {
    keys: Option<Arc<KeySet>>,
    endpoints: Option<Endpoints>,
    /// How many fetches have ended.
    fetches: u64,
    failed: bool,
    /// No fetch begins before this time.
    quiet_until: Option<Instant>,
}

/// The outcome of a look for newer keys.
#[derive(Clone, Debug)]
pub(super) enum Refreshed {
    /// The keys were fetched meanwhile.
    Changed(Arc<KeySet>),
    /// The keys were fetched so shortly before that they count as the current ones.
    Unchanged,
    /// The issuer does not answer.
    Failed,
}

/// Fetches the keys of one issuer.
struct Fetcher {
    source: KeySource,
    fetch: Arc<dyn Fetch>,
    metrics: OidcMetrics,
    wanted: Arc<Notify>,
    state: watch::Sender<CacheState>,
}

impl KeyCache {
    /// The keys of the configuration, or those that a task fetches from now on.
    pub(super) fn start(source: &KeySource, fetch: &Arc<dyn Fetch>, metrics: &OidcMetrics) -> Self {
        let wanted = Arc::new(Notify::new());
        let keys = source.inline.as_ref().map(|inline| Arc::clone(&inline.keys));
        let is_inline = keys.is_some();
        metrics.keys(&source.issuer, keys.as_ref().map_or(0, |keys| keys.len()));
        let (sender, state) = watch::channel(CacheState {
            keys,
            ..CacheState::default()
        });
        let fetcher = Fetcher {
            source: source.clone(),
            fetch: Arc::clone(fetch),
            metrics: metrics.clone(),
            wanted: Arc::clone(&wanted),
            state: sender,
        };
        Self {
            source: source.clone(),
            state,
            wanted,
            _task: (!is_inline).then(|| AbortOnDropHandle::new(tokio::spawn(fetcher.run()))),
        }
    }

    /// Where the keys come from.
    pub(super) fn source(&self) -> &KeySource {
        &self.source
    }

    /// The keys as they were last fetched.
    pub(super) fn current(&self) -> Option<Arc<KeySet>> {
        self.state.borrow().keys.clone()
    }

    /// What the issuer offers to logins.
    pub(super) fn endpoints(&self) -> Option<Endpoints> {
        self.state.borrow().endpoints
    }

    /// Has the keys fetched unless that was done shortly before, and waits for them for a while.
    pub(super) async fn refreshed(&self) -> Refreshed {
        if self.source.inline.is_some() {
            return Refreshed::Unchanged;
        }
        let before = self.state.borrow().clone();
        if before.quiet_until.is_some_and(|end| Instant::now() < end) {
            return if before.failed {
                Refreshed::Failed
            } else {
                Refreshed::Unchanged
            };
        }
        self.wanted.notify_one();
        let mut state = self.state.clone();
        let fetched = state.wait_for(|state| state.fetches > before.fetches);
        match timeout(WAIT_MAX, fetched).await {
            Ok(Ok(now)) if !now.failed => now.keys.clone().map_or(Refreshed::Failed, Refreshed::Changed),
            _ => Refreshed::Failed,
        }
    }
}

impl fmt::Debug for KeyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyCache")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

impl Fetcher {
    async fn run(self) {
        let url = self.source.discovery_url();
        let mut retry = RETRY_MIN;
        loop {
            let outcome = self.fetch(&url).await;
            let (pause, next) = if outcome.is_ok() {
                retry = RETRY_MIN;
                (FETCH_PAUSE, jittered(FETCH_EVERY))
            } else {
                let delay = jittered(retry);
                retry = (retry * 2).min(RETRY_MAX);
                (delay, delay)
            };
            let now = Instant::now();
            self.publish(outcome, now + pause);
            // This fetch answered what was asked while it went on.
            let _ = self.wanted.notified().now_or_never();
            sleep_until(now + pause).await;
            tokio::select! {
                () = self.wanted.notified() => {}
                () = sleep_until(now + next) => {}
            }
        }
    }

    async fn fetch(&self, url: &Result<Uri, String>) -> Result<Discovered, String> {
        let url = url.as_ref().map_err(Clone::clone)?;
        let discovered = discovery::discover(&*self.fetch, &self.source.issuer, url).await;
        discovered.map_err(|error: DiscoveryError| error.to_string())
    }

    fn publish(&self, outcome: Result<Discovered, String>, quiet_until: Instant) {
        let issuer = &self.source.issuer;
        self.metrics.fetched(issuer, outcome.is_ok());
        self.state.send_modify(|state| {
            state.fetches += 1;
            state.failed = outcome.is_err();
            state.quiet_until = Some(quiet_until);
            match outcome {
                Ok(found) => {
                    self.metrics.keys(issuer, found.keys.len());
                    if state.keys.is_none() {
                        tracing::info!(issuer, keys = found.keys.len(), "keys of an issuer read");
                    }
                    state.keys = Some(Arc::new(found.keys));
                    state.endpoints = Some(found.endpoints);
                }
                Err(error) if state.keys.is_some() => {
                    tracing::warn!(issuer, %error, "the keys of an issuer cannot be fetched; the former ones stay in use");
                }
                Err(error) => {
                    tracing::warn!(issuer, %error, "the keys of an issuer cannot be fetched; its tokens are refused until then");
                }
            }
        });
    }
}

/// Up to a tenth less, so that replicas do not ask at the same time.
fn jittered(delay: Duration) -> Duration {
    delay.mul_f64(1.0 - rand::random::<f64>() / 10.0)
}

#[cfg(test)]
mod tests;
