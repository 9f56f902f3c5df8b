//! `provider contracts` and `provider get`: who has bound what, over the backend or on the provider's cluster.

use std::{collections::HashMap, fmt::Write as _, io::Write};

use bindery_api::{
    labels, meta, names,
    v1alpha2::{APIServiceExport, ClusterBinding},
};
use bindery_proto::v1alpha2::ListContractsRequest;
use bindery_runtime::client::{self, Clients};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Resource, ResourceExt as _, api::ListParams};
use serde::de::DeserializeOwned;

use super::Context;
use crate::{
    args::{ContractArgs, ContractsArgs, KubeContext},
    contracts::shown::{self, ShownContract},
    errors::Failure,
    provider::contract::PAGE,
    render::output::{Format, printable},
};

/// `kubectl bind provider contracts`
pub(super) async fn list<W: Write>(context: &mut Context<W>, args: &ContractsArgs) -> Result<(), Failure> {
    let contracts = if let Some(cluster) = args.provider.cluster(&context.settings.cluster) {
        Cluster::open(cluster).await?.contracts().await?
    } else {
        let request = ListContractsRequest {
            owned: args.owned,
            ..ListContractsRequest::default()
        };
        let contracts = context.settings.provider()?.contracts(request).await?;
        contracts.into_iter().map(ShownContract::from).collect()
    };
    if contracts.is_empty() {
        context.steps.note(
            "there are no contracts that you may see: yours and those of your groups, or all of them with the right to list \
             clusterbindings.kube-bind.io",
        );
    }
    context.printer.list(&contracts, Timestamp::now())
}

/// `kubectl bind provider get CONTRACT`
pub(super) async fn get<W: Write>(context: &mut Context<W>, args: &ContractArgs) -> Result<(), Failure> {
    let contract = match args.provider.cluster(&context.settings.cluster) {
        Some(cluster) => Cluster::open(cluster).await?.contract(&args.contract).await?,
        None => context.settings.provider()?.contract(&args.contract).await?.into(),
    };
    let now = Timestamp::now();
    match context.printer.format() {
        Format::Table | Format::Wide => context.printer.text(&text(&contract, now)),
        _ => context.printer.one(&contract, now),
    }
}

/// A contract for people.
pub(in crate::commands) fn text(contract: &ShownContract, now: Timestamp) -> String {
    let mut text = String::new();
    for (head, value) in contract.described(now) {
        let head = if head.is_empty() {
            String::new()
        } else {
            format!("{head}:")
        };
        let _ = writeln!(text, "{head:<14}{}", printable(&value));
    }
    text
}

/// The provider's cluster, as its admin reads it.
struct Cluster {
    client: Client,
}

impl Cluster {
    async fn open(cluster: KubeContext<'_>) -> Result<Self, Failure> {
        let config = client::config(cluster.kubeconfig, cluster.context).await?;
        Ok(Self {
            client: Clients::new(&config, 2)?.write,
        })
    }

    async fn contracts(&self) -> Result<Vec<ShownContract>, Failure> {
        let namespaces = self.list::<Namespace>(labels::CONTRACT).await?;
        let bindings = self.list::<ClusterBinding>("").await?;
        let exports = self.list::<APIServiceExport>("").await?;
        let bindings: HashMap<_, _> = bindings
            .iter()
            .filter(|binding| binding.name_any() == names::CLUSTER_BINDING)
            .map(|binding| (binding.namespace().unwrap_or_default(), binding))
            .collect();
        let mut by_contract: HashMap<_, Vec<_>> = HashMap::new();
        for export in &exports {
            by_contract
                .entry(export.namespace().unwrap_or_default())
                .or_default()
                .push(export);
        }
        let contracts = namespaces
            .iter()
            .filter(|namespace| meta::is_contract(&namespace.metadata));
        Ok(contracts
            .map(|namespace| {
                let name = namespace.name_any();
                let exports = by_contract.get(&name).map(Vec::as_slice).unwrap_or_default();
                shown::of_objects(namespace, bindings.get(&name).copied(), exports)
            })
            .collect())
    }

    async fn contract(&self, name: &str) -> Result<ShownContract, Failure> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let found = namespaces.get_opt(name).await;
        let found = found.map_err(Failure::cluster(format!("read Namespace {name} of the provider")))?;
        let namespace = found
            .filter(|namespace| meta::is_contract(&namespace.metadata))
            .ok_or_else(|| Failure::NoContract(name.to_owned()))?;
        let bindings: Api<ClusterBinding> = Api::namespaced(self.client.clone(), name);
        let binding = bindings.get_opt(names::CLUSTER_BINDING).await;
        let binding = binding.map_err(Failure::cluster(format!(
            "read ClusterBinding {name}/cluster of the provider"
        )))?;
        let exports: Api<APIServiceExport> = Api::namespaced(self.client.clone(), name);
        let exports = exports.list(&ListParams::default()).await;
        let exports = exports.map_err(Failure::cluster(format!("list the exports of contract {name}")))?;
        let exports: Vec<_> = exports.items.iter().collect();
        Ok(shown::of_objects(&namespace, binding.as_ref(), &exports))
    }

    /// Lists objects of all namespaces, page by page.
    async fn list<K>(&self, selector: &str) -> Result<Vec<K>, Failure>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let mut params = ListParams::default().labels(selector).limit(PAGE);
        let mut items = Vec::new();
        loop {
            let listed = api.list(&params).await;
            let page = listed.map_err(Failure::cluster(format!("list {} of the provider", K::plural(&()))))?;
            items.extend(page.items);
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(items),
            }
        }
    }
}
