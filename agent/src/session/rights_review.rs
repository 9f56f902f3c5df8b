//! Finds out what the credential of a session may not do on the provider, and whether the contract can still be verified.
//!
//! Nothing is asked while everything works. After a request failed, the API server is asked for the rights in the contract namespace,
//! and then again until none is missing.

use std::sync::Arc;

use bindery_runtime::{cache::Cache, errors};
use k8s_openapi::api::authorization::v1::{
    SelfSubjectAccessReview, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec,
};
use kube::{Api, Resource, api::PostParams};
use tokio::time::sleep;

use super::{
    connect::{self, ConnectError},
    exports::Exports,
    heartbeat::Heartbeat,
    provider_rights::{LIST_NAMESPACES, ProviderRight, Verification, access_review, granting, missing},
    session_core::SessionCore,
};

/// Asks for the rights after a failure, until dropped, and publishes what is missing.
pub(super) async fn run(core: Arc<SessionCore>) {
    loop {
        core.doubt().await;
        core.review().await;
        sleep(core.settings.polling_interval).await;
    }
}

impl SessionCore {
    /// Waits until something fails that may be due to a missing right.
    async fn doubt(&self) {
        let mut verification = self.verification.subscribe();
        let mut heartbeat = self.heartbeat.subscribe();
        let mut refused = self.reports_refused.subscribe();
        let is_lacking = |known: &Verification| known.found.is_none() || !known.missing.is_empty();
        // The core owns all senders, so that waiting never fails.
        tokio::select! {
            _ = verification.wait_for(is_lacking) => {}
            _ = heartbeat.wait_for(|sent| matches!(sent, Heartbeat::Failing { .. })) => {}
            () = exports_fail(&self.exports) => {}
            _ = refused.wait_for(|refused| *refused) => {}
            () = fails(&self.schemas) => {}
            () = fails(&self.cluster_binding) => {}
            () = fails(&self.surroundings.namespaces) => {}
        }
        self.reports_refused.send_replace(false);
    }

    /// Reads the UID of the contract, and the rights. What cannot be found out stays as it was known.
    async fn review(&self) {
        let access = self.credential.held().access;
        let found = match connect::read_uid(&self.sides.provider, &access).await {
            Ok(uid) => Some(uid),
            Err(ConnectError::Denied { .. }) => None,
            Err(_) => return,
        };
        let missing = match self.missing().await {
            Ok(missing) => missing,
            Err(error) => {
                tracing::debug!(contract = %self.contract.namespace, error = %errors::explain(&error), "rights not reviewed");
                self.verification.borrow().missing.clone()
            }
        };
        self.verify(Verification::new(found, missing));
    }

    /// Asks the API server which of the needed rights are missing.
    async fn missing(&self) -> Result<Vec<ProviderRight>, kube::Error> {
        let namespace = &*self.contract.namespace;
        let client = self.sides.provider.lease.clone();
        let reviews: Api<SelfSubjectRulesReview> = Api::all(client.clone());
        let review = SelfSubjectRulesReview {
            spec: SelfSubjectRulesReviewSpec {
                namespace: Some(namespace.to_owned()),
            },
            ..SelfSubjectRulesReview::default()
        };
        let status = reviews.create(&PostParams::default(), &review).await?.status;
        let status = status.unwrap_or_default();
        let candidates = missing(&status.resource_rules, namespace);
        if !status.incomplete {
            return Ok(candidates);
        }
        // An authorizer that cannot list its rules can still answer for each.
        let reviews: Api<SelfSubjectAccessReview> = Api::all(client);
        let mut missing = Vec::new();
        for right in candidates {
            let review = access_review(right, namespace);
            let answer = reviews.create(&PostParams::default(), &review).await?;
            if !answer.status.is_some_and(|status| status.allowed) {
                missing.push(right);
            }
        }
        Ok(missing)
    }

    /// Notes the UID of the contract namespace as it was read; `None` if it may not be read. The rights are reviewed then.
    pub(super) fn note_found(&self, found: Option<Arc<str>>) {
        let missing = self.verification.borrow().missing.clone();
        self.verify(Verification::new(found, missing));
    }

    /// Publishes what is known of the contract's UID and of the rights, if it changed.
    pub(super) fn verify(&self, verification: Verification) {
        self.unreadable_namespaces.send_if_modified(|unreadable| {
            let before = std::mem::replace(unreadable, verification.lacks(LIST_NAMESPACES));
            before != *unreadable
        });
        self.verification.send_if_modified(|known| {
            let before = std::mem::replace(known, verification);
            if before != *known {
                tracing::info!(
                    contract = %self.contract.namespace,
                    verified = known.found.is_some(),
                    missing = granting(&known.missing),
                    "rights on the provider reviewed"
                );
            }
            before != *known
        });
    }
}

/// Waits until the exports cannot be read. They are asked between changes: their lock is held while a change is published.
async fn exports_fail(exports: &Exports) {
    let mut changes = exports.changes();
    // The caller owns the sender, so that waiting never fails.
    while !exports.is_failing() && changes.changed().await.is_ok() {}
}

/// Waits until the watch of a cache fails.
async fn fails<K>(cache: &Cache<K>)
where
    K: Resource + serde::de::DeserializeOwned + Send + Sync + 'static,
{
    let mut health = cache.health();
    // The cache owns the sender, so that waiting never fails.
    let _ = health.wait_for(|health| health.failure.is_some()).await;
}
