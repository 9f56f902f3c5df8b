//! Removes all that a run has made, as far as it got.

use std::time::Duration;

use bindery_api::{
    labels, meta, names,
    v1alpha2::{APIServiceExportTemplate, BindableResourcesRequest},
};
use bindery_runtime::errors;
use k8s_openapi::{
    api::{
        core::v1::{Namespace, Secret},
        rbac::v1::{ClusterRole, ClusterRoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use serde::de::DeserializeOwned;

use super::Trial;
use crate::{
    args::{UnbindArgs, settings::Settings},
    commands::{Context, unbind},
    errors::Failure,
    render::{
        output::{Format, Printer},
        steps::Steps,
    },
};

/// How often this looks for requests and contracts at most.
const LOOKS_MAX: u32 = 30;
/// So many looks in a row must find nothing.
const EMPTY_LOOKS: u32 = 3;
/// The pause between two looks.
const PAUSE: Duration = Duration::from_secs(1);

impl Trial {
    /// Unbinds, which deletes the objects on both sides, and deletes what offered the API. Goes on after a failure, and returns
    /// the first one.
    pub(super) async fn remove(
        &self,
        settings: &Settings,
        konnector_namespace: &str,
        steps: &mut Steps,
    ) -> Result<(), Failure> {
        let unbound = self.unbind(settings).await;
        if unbound.is_ok() {
            steps.done("the binding is gone, with its objects");
        }
        let (id, provider) = (self.probe.id.as_str(), &self.provider);
        let removed = [
            self.unbound(konnector_namespace).await,
            delete::<Namespace>(&self.consumer, id).await,
            self.end_contract().await,
            delete::<APIServiceExportTemplate>(provider, id).await,
            delete::<CustomResourceDefinition>(provider, &self.probe.definition()).await,
            delete::<ClusterRole>(provider, &self.probe.server_role()).await,
            delete::<ClusterRoleBinding>(provider, id).await,
            delete::<ClusterRole>(provider, id).await,
            delete::<Namespace>(provider, id).await,
        ];
        let outcome = std::iter::once(unbound)
            .chain(removed)
            .find(Result::is_err)
            .unwrap_or(Ok(()));
        match &outcome {
            Ok(()) => steps.done("nothing is left of the probe API"),
            Err(failure) => steps.note(&format!("not all could be removed of what is named {id}: {failure}")),
        }
        outcome
    }

    async fn unbind(&self, settings: &Settings) -> Result<(), Failure> {
        let mut quiet = Context {
            settings: settings.silent_with(None),
            steps: Steps::new(true),
            printer: Printer::new(Format::Name, std::io::sink()),
        };
        let args = UnbindArgs {
            binding: self.probe.id.clone(),
            wait: true,
            force: false,
            delete_objects: true,
            keep_objects: false,
            yes: true,
            ignore_not_found: true,
        };
        Box::pin(unbind::run(&mut quiet, &args)).await
    }

    /// Deletes what a bind installs before its binding, for a run that was stopped in between.
    async fn unbound(&self, konnector_namespace: &str) -> Result<(), Failure> {
        let role = names::konnector_cluster_role(&self.probe.id);
        delete::<ClusterRoleBinding>(&self.consumer, &role).await?;
        delete::<ClusterRole>(&self.consumer, &role).await?;
        let secrets: Api<Secret> = Api::namespaced(self.consumer.clone(), konnector_namespace);
        let name = names::provider_kubeconfig_secret(&self.probe.id);
        gone(
            secrets.delete(&name, &DeleteParams::default()).await,
            &format!("Secret {name}"),
        )
    }

    /// Deletes the requests to bind that this run has made, and its contract, whose end the server completes. Looks again until
    /// nothing was found several times in a row: a server that is at work on a call may make the request late, and the contract
    /// after it. Fails if there is still something after the last look.
    async fn end_contract(&self) -> Result<(), Failure> {
        let mut empty_looks = 0;
        for _ in 0..LOOKS_MAX {
            let found = self.end_requests().await? + self.end_namespaces().await?;
            empty_looks = if found == 0 { empty_looks + 1 } else { 0 };
            if empty_looks == EMPTY_LOOKS {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Failure::TimedOut {
            what: format!(
                "requests to bind, or a contract, of cluster {} are still made",
                self.probe.id
            ),
            waited: PAUSE * LOOKS_MAX,
            last: "see the log of the server".to_owned(),
        })
    }

    async fn end_requests(&self) -> Result<usize, Failure> {
        let requests: Api<BindableResourcesRequest> = Api::all(self.provider.clone());
        let listed = requests.list(&ListParams::default()).await;
        let mut own = listed
            .map_err(Failure::cluster("list BindableResourcesRequests on the provider"))?
            .items;
        own.retain(|request| request.spec.cluster_identity.identity == self.probe.id);
        for request in &own {
            let (namespace, name) = (request.namespace().unwrap_or_default(), request.name_any());
            let api: Api<BindableResourcesRequest> = Api::namespaced(self.provider.clone(), &namespace);
            let deleted = api.delete(&name, &DeleteParams::default()).await;
            gone(deleted, &format!("BindableResourcesRequest {namespace}/{name}"))?;
        }
        Ok(own.len())
    }

    /// Deletes the contract namespace; returns how many there were that nobody deletes yet.
    async fn end_namespaces(&self) -> Result<usize, Failure> {
        let namespaces: Api<Namespace> = Api::all(self.provider.clone());
        let listed = namespaces.list(&ListParams::default().labels(labels::CONTRACT)).await;
        let mut own = listed
            .map_err(Failure::cluster("list Namespaces on the provider"))?
            .items;
        own.retain(|namespace| {
            let is_own = meta::identity(&namespace.metadata) == Some(self.probe.id.as_str());
            is_own && namespace.metadata.deletion_timestamp.is_none()
        });
        for namespace in &own {
            delete::<Namespace>(&self.provider, &namespace.name_any()).await?;
        }
        Ok(own.len())
    }
}

async fn delete<K>(client: &Client, name: &str) -> Result<(), Failure>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    gone(
        api.delete(name, &DeleteParams::background()).await,
        &format!("{} {name}", K::kind(&())),
    )
}

fn gone<T>(deleted: kube::Result<T>, object: &str) -> Result<(), Failure> {
    match deleted {
        Ok(_) => Ok(()),
        Err(error) if errors::is_not_found(&error) => Ok(()),
        Err(error) => Err(Failure::cluster(format!("delete {object}"))(error)),
    }
}
