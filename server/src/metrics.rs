//! What a replica counts beside its gRPC calls.

mod inventory;

use bindery_runtime::telemetry::Registry;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
};

use crate::{controllers::ControllerMetrics, credentials::IssueError};

pub use inventory::Inventory;

/// Counters and gauges of a replica.
#[derive(Debug, Default)]
pub struct ServerMetrics {
    /// What the controllers do.
    pub controllers: ControllerMetrics,
    /// How many objects this process has released to the provider.
    pub released: Counter,
    /// How many times this process has locked the renewal of a contract's credentials.
    pub renewal_locks: Counter,
    credentials: Family<CredentialLabels, Counter>,
    leading: Gauge,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CredentialLabels {
    asked_by: &'static str,
    outcome: &'static str,
}

/// Who asks for a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AskedBy {
    /// An owner, who binds.
    Owner,
    /// A konnector, which renews.
    Konnector,
}

// === impl ServerMetrics ===

impl ServerMetrics {
    /// Registers the metrics with `registry`.
    pub fn register(&self, registry: &mut Registry) {
        self.controllers.register(registry);
        registry.register(
            "released_objects",
            "Objects of consumers that this server released to the provider when their export ended",
            self.released.clone(),
        );
        registry.register(
            "renewal_locks",
            "Locks of the renewal of a contract's credentials, since a token was used again after a newer one",
            self.renewal_locks.clone(),
        );
        for asked_by in [AskedBy::Owner, AskedBy::Konnector] {
            for outcome in ["granted", "refused", "failed"] {
                // From the start on, so that the first one is an increase.
                let _ = self.credential_counter(asked_by, outcome);
            }
        }
        registry.register(
            "credentials",
            "Credentials of contracts that were asked for, by who asked (owner, konnector) and outcome (granted, refused, failed)",
            self.credentials.clone(),
        );
        registry.register("leading", "Whether this replica leads", self.leading.clone());
    }

    /// Notes whether this replica leads.
    pub(crate) fn leads(&self, leads: bool) {
        self.leading.set(i64::from(leads));
    }

    /// Counts a credential that was asked for.
    pub(crate) fn credential<T>(&self, asked_by: AskedBy, outcome: &Result<T, IssueError>) {
        let outcome = match outcome {
            Ok(_) => "granted",
            Err(error) if error.is_refusal() => "refused",
            Err(_) => "failed",
        };
        self.credential_counter(asked_by, outcome).inc();
    }

    fn credential_counter(&self, asked_by: AskedBy, outcome: &'static str) -> Counter {
        let asked_by = match asked_by {
            AskedBy::Owner => "owner",
            AskedBy::Konnector => "konnector",
        };
        self.credentials
            .get_or_create_owned(&CredentialLabels { asked_by, outcome })
    }
}

#[cfg(test)]
mod tests {
    use bindery_runtime::telemetry;
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn credentials_are_counted_by_who_asked_and_what_came_of_it() {
        let mut registry = telemetry::registry();
        let metrics = ServerMetrics::default();
        metrics.register(&mut registry);
        let contract = || "kube-bind-a".to_owned();
        metrics.credential(AskedBy::Owner, &Ok(()));
        metrics.credential::<()>(AskedBy::Konnector, &Err(IssueError::Revoked { contract: contract() }));
        metrics.credential::<()>(AskedBy::Konnector, &Err(IssueError::TokenUnreadable));
        metrics.leads(true);
        let mut text = String::new();
        encode(&mut text, &registry).expect("text");
        for line in [
            r#"bindery_credentials_total{asked_by="owner",outcome="granted"} 1"#,
            r#"bindery_credentials_total{asked_by="owner",outcome="refused"} 0"#,
            r#"bindery_credentials_total{asked_by="konnector",outcome="refused"} 1"#,
            r#"bindery_credentials_total{asked_by="konnector",outcome="failed"} 1"#,
            "bindery_leading 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
