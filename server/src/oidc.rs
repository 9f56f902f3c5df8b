//! OpenID Connect: the issuers whose ID tokens are accepted, beside the provider's own cluster.
//!
//! Module `config` reads which issuers there are and how their users are named, in the words of Kubernetes' own configuration, so that a
//! person is the same user to this server and to the API server. [`Issuers`] holds them as they run: each has keys, which a task
//! fetches, so that a call costs its issuer no request. The configuration can be replaced at any time.

use std::{collections::HashMap, fmt, sync::Arc};

use arc_swap::ArcSwap;
use tokio::sync::watch;

mod config;
mod discovery;
mod expression;
mod fetch;
mod issuer;
mod key_cache;
mod keys;
mod mapping;
mod metrics;
pub mod source;
mod verify;

pub use config::{ConfigError, Configuration, InlineKeys, Surroundings};
pub use fetch::{Fetch, FetchError, HttpsFetch, MakeFetch};
pub use issuer::{Issuer, IssuerUnreachable, VerifiedUser};
pub use mapping::User;
pub use metrics::OidcMetrics;
pub use verify::TokenRefusal;

use key_cache::KeyCache;

/// A way to log in, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The URL of the issuer.
    pub issuer: String,
    /// The public client to log in as.
    pub client_id: String,
    /// Whether the issuer serves logins through a browser.
    pub authorization_code: bool,
    /// Whether the issuer serves logins by a code that is typed on another device.
    pub device_code: bool,
}

/// The issuers that are trusted. Clones share them.
#[derive(Clone)]
pub struct Issuers(Arc<Shared>);

struct Shared {
    current: ArcSwap<Generation>,
    /// The number of the current generation.
    number: watch::Sender<u64>,
    make_fetch: MakeFetch,
    metrics: OidcMetrics,
    own_issuer: Option<String>,
}

/// The issuers of one configuration.
#[derive(Debug, Default)]
struct Generation {
    number: u64,
    /// In the order of the configuration.
    urls: Vec<String>,
    by_url: HashMap<String, Arc<Issuer>>,
}

impl Issuers {
    /// No issuer yet. `own_issuer` is that of the provider's own ServiceAccounts, if it is known.
    pub fn new(make_fetch: MakeFetch, metrics: OidcMetrics, own_issuer: Option<String>) -> Self {
        Self(Arc::new(Shared {
            current: ArcSwap::default(),
            number: watch::Sender::default(),
            make_fetch,
            metrics,
            own_issuer,
        }))
    }

    /// The issuer of the provider's own ServiceAccounts, if it is known.
    pub fn own_issuer(&self) -> Option<&str> {
        self.0.own_issuer.as_deref()
    }

    /// Trusts these issuers from now on, and no others. Keys that are known stay known, also while their issuer is down. Must be
    /// called on a runtime, which fetches the keys, and by one task at a time.
    pub fn replace(&self, configuration: Configuration) {
        let before = self.0.current.load();
        let urls: Vec<_> = configuration.urls().map(ToOwned::to_owned).collect();
        let issuers = configuration.issuers.into_iter().map(|config| {
            let known = before
                .by_url
                .get(&config.url)
                .filter(|known| *known.keys.source() == config.keys);
            let keys = known.map_or_else(
                || {
                    let fetch = (self.0.make_fetch)(&config.keys.authorities);
                    Arc::new(KeyCache::start(&config.keys, &fetch, &self.0.metrics))
                },
                |known| Arc::clone(&known.keys),
            );
            let metrics = self.0.metrics.clone();
            (config.url.clone(), Arc::new(Issuer { config, keys, metrics }))
        });
        let by_url: HashMap<_, _> = issuers.collect();
        for url in before.urls.iter().filter(|url| !by_url.contains_key(*url)) {
            self.0.metrics.forget(url);
        }
        let number = before.number + 1;
        self.0.current.store(Arc::new(Generation { number, urls, by_url }));
        self.0.number.send_replace(number);
    }

    /// A number that changes with each configuration.
    pub fn generation(&self) -> u64 {
        self.0.current.load().number
    }

    /// That number, as it changes.
    pub fn generations(&self) -> watch::Receiver<u64> {
        self.0.number.subscribe()
    }

    /// Whether there is no issuer.
    pub fn is_empty(&self) -> bool {
        self.0.current.load().urls.is_empty()
    }

    /// The issuer of that URL.
    pub fn get(&self, url: &str) -> Option<Arc<Issuer>> {
        self.0.current.load().by_url.get(url).cloned()
    }

    /// How people log in: with each issuer that has an audience other than `own`, the audiences of this server. The first of them
    /// is the client id.
    pub fn logins(&self, own: &[String]) -> Vec<Login> {
        let current = self.0.current.load();
        let issuers = current.urls.iter().filter_map(|url| current.by_url.get(url));
        let logins = issuers.filter_map(|issuer| {
            let mut audiences = issuer.config.audiences.iter();
            let endpoints = issuer.endpoints();
            Some(Login {
                issuer: issuer.config.url.clone(),
                client_id: audiences.find(|audience| !own.contains(audience))?.clone(),
                // Until the issuer said what it has, the client finds out.
                authorization_code: endpoints.is_none_or(|endpoints| endpoints.authorization),
                device_code: endpoints.is_none_or(|endpoints| endpoints.device),
            })
        });
        logins.collect()
    }

    /// The issuers of ServiceAccounts of other clusters: those that sign tokens for one of `own`, the audiences of this server.
    pub fn of_service_accounts(&self, own: &[String]) -> Vec<String> {
        let current = self.0.current.load();
        let is_for_us = |url: &&String| {
            let issuer = current.by_url.get(*url);
            issuer.is_some_and(|issuer| issuer.config.audiences.iter().any(|audience| own.contains(audience)))
        };
        current.urls.iter().filter(is_for_us).cloned().collect()
    }
}

impl fmt::Debug for Issuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Issuers").field(&self.0.current.load()).finish()
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) mod tests_support;
