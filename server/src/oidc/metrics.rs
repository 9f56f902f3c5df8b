//! Metrics of the issuers. A label names only issuers of the configuration, so their number is bounded.

use std::{fmt, sync::Arc};

use bindery_runtime::telemetry::Registry;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

/// The metrics of all issuers. Clones share their values.
#[derive(Clone, Default)]
pub struct OidcMetrics(Arc<Families>);

#[derive(Default)]
struct Families {
    verifications: Family<OutcomeLabels, Counter>,
    fetches: Family<OutcomeLabels, Counter>,
    keys: Family<IssuerLabels, Gauge>,
    reloads: Family<ReloadLabels, Counter>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    issuer: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct IssuerLabels {
    issuer: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReloadLabels {
    outcome: &'static str,
}

impl OidcMetrics {
    /// Registers the metrics with `registry`.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("oidc");
        registry.register(
            "verifications",
            "ID tokens that were verified, by issuer and outcome; a verdict counts once while it is cached",
            self.0.verifications.clone(),
        );
        registry.register(
            "key_fetches",
            "Times that the keys of an issuer were fetched, by outcome",
            self.0.fetches.clone(),
        );
        registry.register(
            "keys",
            "Keys of an issuer in use; 0 until they were fetched for the first time",
            self.0.keys.clone(),
        );
        registry.register(
            "config_loads",
            "Times that the configuration of issuers was read, by outcome; after a failure the former one stays in use",
            self.0.reloads.clone(),
        );
    }

    pub(super) fn verified(&self, issuer: &str, outcome: &'static str) {
        let issuer = issuer.to_owned();
        self.0
            .verifications
            .get_or_create(&OutcomeLabels { issuer, outcome })
            .inc();
    }

    pub(super) fn fetched(&self, issuer: &str, is_ok: bool) {
        let labels = OutcomeLabels {
            issuer: issuer.to_owned(),
            outcome: outcome(is_ok),
        };
        self.0.fetches.get_or_create(&labels).inc();
    }

    pub(super) fn keys(&self, issuer: &str, count: usize) {
        let issuer = issuer.to_owned();
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.0.keys.get_or_create(&IssuerLabels { issuer }).set(count);
    }

    /// No longer shows the keys of an issuer that was removed from the configuration.
    pub(super) fn forget(&self, issuer: &str) {
        let issuer = issuer.to_owned();
        self.0.keys.remove(&IssuerLabels { issuer });
    }

    /// Counts that the configuration was read.
    pub fn loaded(&self, is_ok: bool) {
        let outcome = outcome(is_ok);
        self.0.reloads.get_or_create(&ReloadLabels { outcome }).inc();
    }
}

fn outcome(is_ok: bool) -> &'static str {
    if is_ok { "ok" } else { "failed" }
}

impl fmt::Debug for OidcMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OidcMetrics")
    }
}
