//! Finds out what the credential of a session may not do on the provider, and whether the contract can still be verified.
//!
//! Nothing is asked while everything works. After a request failed, the API server is asked for the rights in the contract namespace,
//! and then again until none is missing.

use std::{fmt::Debug, sync::Arc};

use bindery_api::{
    names::CLUSTER_BINDING,
    v1alpha2::{APIServiceExport, APIServiceNamespace, BoundSchema, ClusterBinding},
};
use bindery_runtime::{cache::Cache, errors};
use futures::FutureExt as _;
use k8s_openapi::{
    NamespaceResourceScope,
    api::authorization::v1::{SelfSubjectAccessReview, SelfSubjectRulesReview, SelfSubjectRulesReviewSpec},
};
use kube::{
    Api, Client, Resource,
    api::{ListParams, PostParams},
};
use serde::de::DeserializeOwned;
use tokio::time::sleep;

use super::{
    connect::{self, ConnectError},
    exports::Exports,
    heartbeat::Heartbeat,
    provider_rights::{
        LIST_CLUSTER_BINDINGS, LIST_EXPORTS, LIST_NAMESPACES, LIST_SCHEMAS, ProviderRight, Verification, access_review,
        granting, missing,
    },
    session_core::SessionCore,
};

/// Asks for the rights after a failure, until dropped, and publishes what is missing.
pub(super) async fn run(core: Arc<SessionCore>) {
    loop {
        core.doubt().await;
        loop {
            core.review().await;
            sleep(core.settings.polling_interval).await;
            if core.doubt().now_or_never().is_none() {
                break;
            }
        }
        // What failed works again, maybe because the namespace was made anew meanwhile.
        core.review().await;
    }
}

impl SessionCore {
    /// Waits until something fails that may be due to a missing right.
    async fn doubt(&self) {
        let mut verification = self.verification.subscribe();
        let mut heartbeat = self.heartbeat.subscribe();
        let mut refused = self.reports_refused.subscribe();
        let is_lacking =
            |known: &Verification| known.found.as_ref() != Some(&self.contract.uid) || !known.missing.is_empty();
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
        let read = connect::read_uid(&self.sides.provider, &access).await;
        let known = self.verification.borrow().missing.clone();
        let missing = match &read {
            Ok(_) | Err(ConnectError::Denied { .. }) => match self.missing().await {
                Ok(missing) => missing,
                Err(error) if errors::is_forbidden(&error) => self.unlistable().await,
                Err(error) => {
                    tracing::debug!(contract = %self.contract.namespace, error = %errors::explain(&error), "rights not reviewed");
                    known
                }
            },
            Err(_) => known,
        };
        if let Some(verification) = verification(read, missing) {
            self.verify(verification);
        }
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

    /// Finds out which of the needed lists are forbidden, by asking for them: where the rights may not be reviewed either.
    async fn unlistable(&self) -> Vec<ProviderRight> {
        let (client, namespace) = (&self.sides.provider.lease, &*self.contract.namespace);
        let asked = tokio::join!(
            is_forbidden::<APIServiceExport>(client, namespace),
            is_forbidden::<BoundSchema>(client, namespace),
            is_forbidden::<ClusterBinding>(client, namespace),
            is_forbidden::<APIServiceNamespace>(client, namespace),
        );
        let rights = [LIST_EXPORTS, LIST_SCHEMAS, LIST_CLUSTER_BINDINGS, LIST_NAMESPACES];
        let asked = rights.into_iter().zip(<[bool; 4]>::from(asked));
        asked
            .filter_map(|(right, is_forbidden)| is_forbidden.then_some(right))
            .collect()
    }

    /// Notes the UID of the contract namespace as it was read; `None` if it may not be read. The rights are reviewed then.
    pub(super) fn note_found(&self, found: Option<Arc<str>>) {
        let missing = self.verification.borrow().missing.clone();
        self.verify(Verification::new(found, missing));
    }

    /// Notes that the contract namespace does not exist, so that one that is made anew is not taken for it.
    pub(super) fn note_gone(&self) {
        let missing = self.verification.borrow().missing.clone();
        self.verify(Verification::gone(missing));
    }

    /// Publishes what is known of the contract's UID and of the rights, if it changed.
    pub(super) fn verify(&self, verification: Verification) {
        self.note_uid(verification.found.as_ref());
        self.holder.note_gone(verification.is_gone());
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

/// What reading the contract namespace tells of the contract, with these rights missing; `None` if nothing.
fn verification(read: Result<Arc<str>, ConnectError>, missing: Vec<ProviderRight>) -> Option<Verification> {
    match read {
        Ok(uid) => Some(Verification::new(Some(uid), missing)),
        Err(ConnectError::Denied { .. }) => Some(Verification::new(None, missing)),
        // A namespace that is made anew later is not taken for the one that was verified.
        Err(ConnectError::Gone { .. }) => Some(Verification::gone(missing)),
        Err(_) => None,
    }
}

/// Whether the objects of a kind in the contract namespace may not be listed.
async fn is_forbidden<K>(client: &Client, namespace: &str) -> bool
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let limit = ListParams {
        // As the caches ask, so that a rule for that object alone is enough.
        field_selector: (K::kind(&()) == ClusterBinding::kind(&())).then(|| format!("metadata.name={CLUSTER_BINDING}")),
        ..ListParams::default().limit(1)
    };
    let listed = api.list_metadata(&limit).await;
    listed.is_err_and(|error| errors::is_forbidden(&error))
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
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let mut health = cache.health();
    // The cache owns the sender, so that waiting never fails.
    let _ = health.wait_for(|health| health.failure.is_some()).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::provider_rights::{READ_NAMESPACE, WRITE_HEARTBEAT};

    #[test]
    fn a_namespace_that_is_gone_is_not_verified_and_no_right_lacks() {
        let (server, message) = (String::new, String::new);
        let read = |read: Result<&str, ConnectError>| verification(read.map(Arc::from), vec![WRITE_HEARTBEAT]);
        let check = |outcome, expect: Option<(Option<&str>, Vec<ProviderRight>)>| {
            let known = read(outcome);
            let known = known
                .as_ref()
                .map(|known| (known.found.as_deref(), known.missing.clone()));
            assert_eq!(known, expect);
        };
        check(Ok("a"), Some((Some("a"), vec![WRITE_HEARTBEAT])));
        let denied = ConnectError::Denied {
            server: server(),
            message: message(),
        };
        check(Err(denied), Some((None, vec![READ_NAMESPACE, WRITE_HEARTBEAT])));
        let gone = ConnectError::Gone {
            server: server(),
            namespace: "kube-bind-x".to_owned(),
        };
        check(Err(gone), Some((None, vec![WRITE_HEARTBEAT])));
        let unreachable = ConnectError::Unreachable {
            server: server(),
            message: message(),
        };
        check(Err(unreachable), None);
    }
}
