//! Flags of `floor`, `relay` and `list`: two clusters, and the resources that are bound between them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use bindery_api::v1alpha2::APIServiceNamespace;
use bindery_runtime::client::{self, Clients, ClusterTraffic};
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use crate::resource::Resource;

/// Idle connections kept per cluster and kind of traffic, as the konnector has it.
pub(crate) const IDLE_MAX: usize = 128;

/// Flags of a program that stands in for a konnector.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The konnector's kubeconfig.
    #[arg(long)]
    consumer: PathBuf,
    /// The kubeconfig of the contract.
    #[arg(long)]
    provider: PathBuf,
    /// The contract namespace on the provider.
    #[arg(long)]
    contract: String,
    /// What is bound, as `group/version/plural/Kind`.
    #[arg(long, required = true)]
    resource: Vec<Resource>,
    /// The provider is read as a whole, not by namespace.
    #[arg(long)]
    cluster: bool,
}

/// Two clusters, and what is bound between them.
#[derive(Clone, Debug)]
pub(crate) struct Sides {
    pub consumer: Clients,
    pub provider: Clients,
    pub contract: String,
    pub resources: Vec<Resource>,
    /// The provider's namespaces, by the consumer's.
    pub places: BTreeMap<String, String>,
    cluster: bool,
    /// What goes over the wire, to the consumer and to the provider.
    pub meters: [ClusterTraffic; 2],
}

/// The clients of a cluster.
pub(crate) async fn connect(kubeconfig: &Path, meter: &ClusterTraffic) -> Result<Clients> {
    let config = client::config(Some(kubeconfig), None).await?;
    Ok(Clients::counted(&config, None, IDLE_MAX, meter)?)
}

// === impl Args ===

impl Args {
    /// Asks the contract which namespaces it has.
    pub(crate) async fn connect(self) -> Result<Sides> {
        let meters = [ClusterTraffic::default(), ClusterTraffic::default()];
        let consumer = connect(&self.consumer, &meters[0]).await?;
        let provider = connect(&self.provider, &meters[1]).await?;
        let namespaces: Api<APIServiceNamespace> = Api::namespaced(provider.write.clone(), &self.contract);
        let namespaces = namespaces.list(&ListParams::default()).await;
        let namespaces = namespaces.context("cannot list the APIServiceNamespaces of the contract")?;
        let places = namespaces.into_iter().filter_map(|namespace| {
            let place = namespace.status.as_ref()?.namespace.clone()?;
            Some((namespace.name_any(), place))
        });
        let places: BTreeMap<_, _> = places.collect();
        ensure!(!places.is_empty(), "contract {} maps no namespace yet", self.contract);
        Ok(Sides {
            consumer,
            provider,
            contract: self.contract,
            resources: self.resource,
            places,
            cluster: self.cluster,
            meters,
        })
    }
}

// === impl Sides ===

impl Sides {
    /// The provider namespace that holds the copies of a consumer's.
    pub(crate) fn place(&self, namespace: &str) -> Result<&str> {
        let place = self.places.get(namespace);
        place
            .map(String::as_str)
            .with_context(|| format!("namespace {namespace} was not mapped when this program started"))
    }

    /// The resource of this number.
    pub(crate) fn resource(&self, number: usize) -> Result<&Resource> {
        let resource = self.resources.get(number);
        resource.with_context(|| format!("there is no --resource {number}"))
    }

    /// What a konnector watches on its consumer: numbers of resources, and paths.
    pub(crate) fn consumer_paths(&self) -> Vec<(usize, String)> {
        let resources = self.resources.iter().enumerate();
        resources
            .map(|(number, resource)| (number, resource.collection("")))
            .collect()
    }

    /// What a konnector watches on the provider.
    pub(crate) fn provider_paths(&self) -> Vec<(usize, String)> {
        let mut paths = Vec::new();
        for (number, resource) in self.resources.iter().enumerate() {
            if self.cluster {
                paths.push((number, resource.collection("")));
            } else {
                let places = self.places.values();
                paths.extend(places.map(|place| (number, resource.collection(place))));
            }
        }
        paths
    }

    /// The client that reads the provider, or the consumer.
    pub(crate) fn reader(&self, is_consumer: bool) -> &Client {
        if is_consumer {
            &self.consumer.watch
        } else {
            &self.provider.watch
        }
    }
}
