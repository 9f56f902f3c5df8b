//! `provider released`: the objects that the provider kept when bindings ended, and their end, on the provider's cluster.

use std::{collections::HashMap, io::Write};

use bindery_api::{annotations, labels, meta, v1alpha2::GroupResource};
use bindery_runtime::{
    client::{self, Clients},
    errors, preconditions,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, ObjectMeta, Patch, PatchParams},
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Context;
use crate::{
    args::{KubeContext, ReleasedArgs},
    commands::consent,
    consumer::kinds::served_resource,
    contracts::shown,
    errors::Failure,
    install::manifests::FIELD_MANAGER,
    provider::contract::PAGE,
    render::output::{Show, age},
};

/// The annotations that bind an object to a contract.
const MARKS: [&str; 7] = [
    annotations::CLUSTER_NAMESPACE,
    annotations::CONSUMER_NAMESPACE,
    annotations::CONSUMER_NAME,
    annotations::CONSUMER_UID,
    annotations::BOUND,
    annotations::PROJECTION_HASH,
    annotations::RELEASED,
];

/// An object that was released.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Released {
    /// The contract that released it.
    contract: String,
    /// Name of the consumer's cluster; empty if the contract is gone, or has none.
    cluster: String,
    owners: Vec<String>,
    resource: GroupResource,
    namespace: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<Timestamp>,
    consumer_namespace: String,
    #[serde(skip)]
    api: ApiResource,
    #[serde(skip)]
    meta: ObjectMeta,
}

/// `kubectl bind provider released`
pub(super) async fn run<W: Write>(context: &mut Context<W>, args: &ReleasedArgs) -> Result<(), Failure> {
    let cluster = args.provider.cluster(&context.settings.cluster).ok_or_else(|| {
        Failure::Usage(
            "released objects are on the provider's cluster: add --provider-context NAME or --provider-kubeconfig FILE"
                .to_owned(),
        )
    })?;
    if (args.delete || args.forget) && !args.selects() {
        return Err(Failure::Usage(
            "say which objects end: add --contract, --resource, --namespace or --name".to_owned(),
        ));
    }
    let cluster = Cluster::open(cluster).await?;
    let mut found = cluster.released().await?;
    found.retain(|object| is_selected(object, args));
    if found.is_empty() {
        context.steps.note("no object is released");
    } else if args.delete || args.forget {
        let what = match &found[..] {
            [_] => "1 released object".to_owned(),
            found => format!("{} released objects", found.len()),
        };
        let question = if args.delete {
            "Delete them, with what they stand for"
        } else {
            "Make them the provider's own"
        };
        consent::confirm(&what, question, args.yes)?;
        for object in &found {
            let done = if args.delete {
                cluster.delete(object).await?;
                "is deleted"
            } else {
                cluster.forget(object).await?;
                "is the provider's own now"
            };
            context.steps.done(&format!("{} {done}", object.reference()));
        }
    }
    context.printer.list(&found, Timestamp::now())
}

/// Whether the flags select an object.
fn is_selected(object: &Released, args: &ReleasedArgs) -> bool {
    let is = |wanted: Option<&str>, value: &str| wanted.is_none_or(|wanted| wanted == value);
    is(args.contract.as_deref(), &object.contract)
        && is(args.namespace.as_deref(), &object.namespace)
        && args.resource.as_ref().is_none_or(|wanted| *wanted == object.resource)
        && (args.name.is_empty() || args.name.contains(&object.name))
}

/// Reads an object of a resource; `None` if it was not released. Its contract's cluster and owners are left empty.
fn released(api: &ApiResource, meta: ObjectMeta) -> Option<Released> {
    let marks = meta.annotations.as_ref()?;
    let mark = |key: &str| marks.get(key).map(String::as_str);
    let contract = mark(annotations::CLUSTER_NAMESPACE)?;
    let value = mark(annotations::RELEASED).filter(|value| annotations::is_released(value, contract))?;
    Some(Released {
        contract: contract.to_owned(),
        cluster: String::new(),
        owners: Vec::new(),
        resource: GroupResource::new(api.group.as_str(), api.plural.as_str()),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        since: annotations::released_at(value).and_then(|at| at.parse().ok()),
        consumer_namespace: mark(annotations::CONSUMER_NAMESPACE).unwrap_or_default().to_owned(),
        api: api.clone(),
        meta,
    })
}

/// The patch that takes every mark of a contract off an object, as it was read.
fn forgotten(meta: &ObjectMeta) -> Value {
    let marks: Map<_, _> = MARKS.iter().map(|key| ((*key).to_owned(), Value::Null)).collect();
    json!({"metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version, "annotations": marks}})
}

/// The provider's cluster, as its admin looks after it.
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

    /// Lists the released objects of all resources that are or were offered, by contract.
    async fn released(&self) -> Result<Vec<Released>, Failure> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let offered = ListParams::default().labels(labels::EXPORTED);
        let listed = definitions.list(&offered).await;
        let listed = listed.map_err(Failure::cluster("list the CustomResourceDefinitions of the provider"))?;
        let mut found = Vec::new();
        for api in listed.items.iter().filter_map(served_resource) {
            found.extend(
                self.objects(&api)
                    .await?
                    .into_iter()
                    .filter_map(|meta| released(&api, meta)),
            );
        }
        if !found.is_empty() {
            self.name_consumers(&mut found).await?;
        }
        let key = |one: &Released| {
            (
                one.contract.clone(),
                one.resource.clone(),
                one.namespace.clone(),
                one.name.clone(),
            )
        };
        found.sort_by_cached_key(key);
        Ok(found)
    }

    /// Adds the cluster and the owners of the contract to each object.
    async fn name_consumers(&self, found: &mut [Released]) -> Result<(), Failure> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let listed = namespaces.list(&ListParams::default().labels(labels::CONTRACT)).await;
        let listed = listed.map_err(Failure::cluster("list the Namespaces of contracts"))?;
        let contracts = listed
            .items
            .iter()
            .filter(|namespace| meta::is_contract(&namespace.metadata));
        let contracts: HashMap<_, _> = contracts
            .map(|namespace| (namespace.name_any(), shown::of_objects(namespace, None, &[])))
            .collect();
        for object in found {
            if let Some(contract) = contracts.get(&object.contract) {
                object.cluster.clone_from(&contract.cluster_name);
                object.owners.clone_from(&contract.owners);
            }
        }
        Ok(())
    }

    /// The metadata of all objects of a resource, page by page.
    async fn objects(&self, resource: &ApiResource) -> Result<Vec<ObjectMeta>, Failure> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), resource);
        let mut params = ListParams::default().limit(PAGE);
        let mut all = Vec::new();
        loop {
            let page = match api.list_metadata(&params).await {
                Ok(page) => page,
                Err(error) if errors::is_not_found(&error) => return Ok(all),
                Err(error) => {
                    return Err(Failure::cluster(format!("list {} of the provider", resource.plural))(
                        error,
                    ));
                }
            };
            all.extend(page.items.into_iter().map(|object| object.metadata));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    fn api(&self, object: &Released) -> Api<DynamicObject> {
        match object.namespace.as_str() {
            "" => Api::all_with(self.client.clone(), &object.api),
            namespace => Api::namespaced_with(self.client.clone(), namespace, &object.api),
        }
    }

    /// Deletes an object as it was listed: one that a new binding took into use since stays.
    async fn delete(&self, object: &Released) -> Result<(), Failure> {
        let params = DeleteParams {
            preconditions: Some(preconditions::unchanged(&object.meta)),
            ..DeleteParams::background()
        };
        match self.api(object).delete(&object.name, &params).await {
            Ok(_) => Ok(()),
            Err(error) if errors::is_not_found(&error) => Ok(()),
            Err(error) => Err(Failure::cluster(format!("delete {}", object.reference()))(error)),
        }
    }

    /// Takes the marks of the contract off an object as it was listed.
    async fn forget(&self, object: &Released) -> Result<(), Failure> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(forgotten(&object.meta));
        match self.api(object).patch_metadata(&object.name, &params, &patch).await {
            Ok(_) => Ok(()),
            Err(error) if errors::is_not_found(&error) => Ok(()),
            Err(error) => Err(Failure::cluster(format!("change {}", object.reference()))(error)),
        }
    }
}

impl Show for Released {
    const HEADINGS: &'static [&'static str] = &[
        "CONTRACT",
        "RESOURCE",
        "NAMESPACE",
        "NAME",
        "SINCE",
        "CLUSTER",
        "OWNERS",
        "CONSUMER-NAMESPACE",
    ];
    const PLAIN: usize = 6;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        vec![
            self.contract.clone(),
            self.resource.to_string(),
            self.namespace.clone(),
            self.name.clone(),
            age(self.since, now),
            self.cluster.clone(),
            self.owners.join(","),
            self.consumer_namespace.clone(),
        ]
    }

    fn reference(&self) -> String {
        format!("{}/{}", self.resource, self.name)
    }
}

#[cfg(test)]
mod tests {
    use kube::api::GroupVersionKind;

    use super::*;

    fn cowboy(value: &str) -> Option<Released> {
        let api = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("wildwest.dev", "v1", "Cowboy"), "cowboys");
        let meta = json!({
            "name": "billy", "namespace": "kube-bind-a-west", "uid": "u", "resourceVersion": "7",
            "annotations": {
                annotations::CLUSTER_NAMESPACE: "kube-bind-a", annotations::CONSUMER_NAMESPACE: "west",
                annotations::RELEASED: value,
            },
        });
        released(&api, serde_json::from_value(meta).unwrap())
    }

    #[test]
    fn what_a_contract_released_is_listed_with_its_time() {
        let at = "2026-01-01T00:00:00Z";
        assert_eq!(cowboy(""), None, "in use again");
        assert_eq!(
            cowboy(&annotations::released(at, "kube-bind-b")),
            None,
            "another contract's release"
        );
        let billy = cowboy(&annotations::released(at, "kube-bind-a")).unwrap();
        assert_eq!(
            (&*billy.contract, billy.since),
            ("kube-bind-a", Some(at.parse().unwrap()))
        );
        assert_eq!(billy.reference(), "cowboys.wildwest.dev/billy");
        let patch = forgotten(&billy.meta);
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        assert!(patch["metadata"]["annotations"][annotations::RELEASED].is_null());
    }

    #[test]
    fn flags_select_by_contract_resource_namespace_and_name() {
        let billy = cowboy("2026-01-01T00:00:00Z").unwrap();
        let check = |change: fn(&mut ReleasedArgs), expect: bool| {
            let mut args = ReleasedArgs::default();
            change(&mut args);
            assert_eq!(is_selected(&billy, &args), expect, "{args:?}");
        };
        check(|_| {}, true);
        check(|args| args.contract = Some("kube-bind-a".to_owned()), true);
        check(|args| args.contract = Some("kube-bind-b".to_owned()), false);
        check(|args| args.namespace = Some("west".to_owned()), false);
        check(
            |args| args.resource = Some(GroupResource::new("wildwest.dev", "cowboys")),
            true,
        );
        check(|args| args.resource = Some(GroupResource::new("", "cowboys")), false);
        check(|args| args.name = vec!["jane".to_owned(), "billy".to_owned()], true);
        check(|args| args.name = vec!["jane".to_owned()], false);
    }
}
