//! The caches, sessions and settings that both controllers work with.

use std::{sync::Arc, time::Duration};

use bindery_api::{
    adoption::Adoption,
    v1alpha2::{ClusterSecretKeyRef, SecretRef},
};
use bindery_runtime::{events::Recorder, guard::Limits};

use super::{object_counts::ObjectCounts, other_konnectors::OtherKonnectors};
use crate::{
    consumer::Consumer,
    engine,
    holder::Holders,
    metrics::Metrics,
    session::{
        Session, SessionSettings, Sessions,
        client_certificate::ClientCertificateFiles,
        connect::{Connector, ContractConnection},
        network::Network,
    },
};

/// Settings of the controllers, from the konnector's flags.
#[derive(Clone, Debug)]
pub struct ControllerOptions {
    /// The heartbeat interval that the konnector promises to providers.
    pub heartbeat_interval: Duration,
    /// The longest pause before a provider or backend that does not answer is asked again.
    pub polling_interval: Duration,
    /// Which objects of the providers are created on this cluster.
    pub adoption: Adoption,
    /// The client certificate for backends.
    pub client_certificate: ClientCertificateFiles,
    /// The network on which providers and backends are reached.
    pub network: Network,
    /// Whether bindings and bundles whose kubeconfig Secret is in another namespace belong to another konnector.
    pub only_own_bindings: bool,
    /// The ClusterRole with the rights on what bundles bind, for messages.
    pub bundles_role: String,
    /// How much of what each provider sends is held.
    pub limits: Limits,
}

/// What both controllers share. Clones share the same state.
#[derive(Clone, Debug)]
pub struct ControllerContext {
    /// Clients and caches of the consumer cluster.
    pub consumer: Consumer,
    /// The open sessions, one per contract.
    pub sessions: Arc<Sessions>,
    /// The attempts to reach providers with kubeconfigs.
    pub connector: Arc<Connector>,
    /// Which bindings and bundles other konnectors serve.
    pub other_konnectors: OtherKonnectors,
    /// How many objects each binding of a bundle has.
    pub object_counts: ObjectCounts,
    /// Publishes Kubernetes events.
    pub recorder: Recorder,
    /// The konnector's metrics.
    pub metrics: Arc<Metrics>,
    /// Settings of the controllers.
    pub options: ControllerOptions,
}

impl ControllerContext {
    /// A context without sessions.
    pub fn new(
        consumer: Consumer,
        recorder: Recorder,
        metrics: Arc<Metrics>,
        sync_metrics: Arc<engine::Metrics>,
        holders: Holders,
        options: ControllerOptions,
    ) -> Self {
        Self {
            sessions: Arc::new(Sessions::new(
                consumer.clone(),
                recorder.clone(),
                Arc::clone(&metrics),
                sync_metrics,
                holders,
            )),
            connector: Arc::new(Connector::new(
                options.polling_interval,
                options.network.clone(),
                Arc::clone(&metrics),
                options.client_certificate.clone(),
            )),
            other_konnectors: OtherKonnectors::new(consumer.clone(), options.only_own_bindings),
            object_counts: ObjectCounts::default(),
            consumer,
            recorder,
            metrics,
            options,
        }
    }

    /// Joins the session of the contract that was reached, or opens one. `secret` is the Secret that the provider is told
    /// the contract was bound with.
    pub fn enter(&self, reached: &ContractConnection, secret: &ClusterSecretKeyRef) -> Arc<Session> {
        let settings = SessionSettings {
            heartbeat_interval: self.options.heartbeat_interval,
            polling_interval: self.options.polling_interval,
            secret: SecretRef {
                name: secret.name.clone(),
                namespace: secret.namespace.clone(),
            },
            client_certificate: self.options.client_certificate.clone(),
            network: self.options.network.clone(),
            limits: self.options.limits,
        };
        self.sessions.enter(reached, settings)
    }
}
