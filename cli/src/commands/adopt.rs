//! `adopt --dry-run`: shows which objects of providers the konnector would create on this cluster.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
};

use bindery_api::{
    annotations, meta,
    placement::Placement,
    v1alpha2::{APIServiceBinding, APIServiceExportSpec, APIServiceNamespace, GroupResource},
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    ResourceExt,
    api::{ApiResource, GroupVersionKind},
};

use super::Context;
use crate::{
    adopt::{AdoptionItem, AdoptionScope, item, namespace_pairs},
    args::AdoptArgs,
    consumer::Consumer,
    errors::Failure,
    provider::contract::Contract,
    render::output::joined,
    why::ObjectFacts,
};

/// One binding, and what was read from its provider.
struct Seen<'a> {
    /// Name of the APIServiceBinding.
    binding: &'a str,
    /// The consumer namespace that the konnector runs in. Nothing is adopted into it.
    konnector_namespace: String,
    /// The contract of this cluster on the provider, which is read with the binding's credential.
    contract: Contract,
    export: APIServiceExportSpec,
    /// The APIServiceNamespaces of the contract. Each maps a consumer namespace to a provider namespace.
    mapped: Vec<APIServiceNamespace>,
}

/// `kubectl bind adopt --dry-run [BINDING]`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &AdoptArgs) -> Result<(), Failure> {
    if !args.dry_run {
        return Err(Failure::Usage(
            "this command adopts nothing: the konnector does, once adoption is on, with `kubectl bind deploy --adoption opt-in` \
             or `--adoption all`\n\nAdd --dry-run to see what would be adopted."
                .to_owned(),
        ));
    }
    let consumer = Consumer::connect(&context.settings).await?;
    let mut bindings = match &args.binding {
        Some(name) => vec![consumer.binding(name).await?],
        None => consumer.bindings().await?,
    };
    bindings.sort_by_key(ResourceExt::name_any);
    let namespaces = namespaces(&consumer).await?;
    let (mut items, mut unseen) = (Vec::new(), Vec::new());
    for binding in bindings
        .iter()
        .filter(|binding| binding.metadata.deletion_timestamp.is_none())
    {
        if meta::is_paused(&binding.metadata) {
            let name = binding.name_any();
            context.steps.note(&format!(
                "APIServiceBinding {name} is paused: nothing of it is adopted until its annotation {} is removed",
                annotations::PAUSED
            ));
        }
        match of_binding(&consumer, binding, &namespaces, &mut items).await {
            Ok(()) => {}
            Err(why) => {
                context
                    .steps
                    .note(&format!("APIServiceBinding {}: {why}", binding.name_any()));
                unseen.push(binding.name_any());
            }
        }
    }
    if items.is_empty() && unseen.is_empty() {
        context.steps.note("the providers hold no objects for this cluster");
    }
    let makes: BTreeSet<_> = items
        .iter()
        .filter(|item| item.makes_namespace)
        .map(|item| &item.namespace)
        .collect();
    if !makes.is_empty() {
        context
            .steps
            .note(&format!("namespaces that would be created: {}", joined(makes)));
    }
    context.printer.list(&items, Timestamp::now())?;
    if unseen.is_empty() {
        return Ok(());
    }
    Err(Failure::Incomplete(format!("the objects of {}", joined(unseen))))
}

/// Names of the namespaces of this cluster.
async fn namespaces(consumer: &Consumer) -> Result<BTreeSet<String>, Failure> {
    let all = consumer.everywhere(&ApiResource::erase::<Namespace>(&())).await?;
    Ok(all.iter().map(ResourceExt::name_any).collect())
}

/// Adds an item for each object that the provider of one binding holds. After a failure, `items` keeps those that were added
/// before it.
async fn of_binding(
    consumer: &Consumer,
    binding: &APIServiceBinding,
    namespaces: &BTreeSet<String>,
    items: &mut Vec<AdoptionItem>,
) -> Result<(), String> {
    let name = binding.name_any();
    let contract = consumer.contract(binding).await?;
    let export = contract.export(binding.export_name()).await?;
    let export = export.ok_or_else(|| format!("the provider has no export {} any more", binding.export_name()))?;
    let seen = Seen {
        binding: &name,
        konnector_namespace: binding.spec.kubeconfig_secret_ref.namespace.clone(),
        mapped: contract.places().await?,
        contract,
        export: export.spec,
    };
    for resource in &seen.export.resources {
        seen.resource(consumer, &resource.group_resource, namespaces, items)
            .await?;
    }
    Ok(())
}

impl Seen<'_> {
    /// Adds an item for each of the provider's objects of one exported resource. Each is compared with the consumer's
    /// object of the same name, if there is one.
    async fn resource(
        &self,
        consumer: &Consumer,
        resource: &GroupResource,
        namespaces: &BTreeSet<String>,
        items: &mut Vec<AdoptionItem>,
    ) -> Result<(), String> {
        let schema = self.contract.schema(resource).await?;
        let schema = schema
            .ok_or_else(|| format!("the provider has no schema of {resource} yet"))?
            .spec;
        let versions = || schema.versions.iter().filter(|version| version.served);
        let version = versions().find(|version| version.storage).or_else(|| versions().next());
        let version = version.ok_or_else(|| format!("the provider serves no version of {resource}"))?;
        let kind = GroupVersionKind::gvk(&resource.group, &version.name, &schema.names.kind);
        let api = ApiResource::from_gvk_with_plural(&kind, &resource.resource);
        let here = consumer.everywhere(&api).await.map_err(|failure| failure.to_string())?;
        let here: BTreeMap<_, _> = here
            .into_iter()
            .map(ObjectFacts::of)
            .map(|object| ((object.namespace.clone(), object.name.clone()), object))
            .collect();
        let placement = Placement::of(&self.export, schema.scope);
        let scope = AdoptionScope {
            binding: self.binding,
            contract: &self.contract.name,
            resource,
            konnector_namespace: &self.konnector_namespace,
            names_are_shared: placement.names_are_shared(),
        };
        for pair in namespace_pairs(&placement, &self.contract.name, &self.mapped) {
            for object in self.contract.objects(&api, &pair.provider).await? {
                let object = ObjectFacts::of(object);
                // The full name on the consumer, which the provider's copy notes if its own name is shortened.
                let noted = object.annotations.get(annotations::CONSUMER_NAME).map(String::as_str);
                let Some(name) = placement.source_name(&self.contract.name, &object.name, noted) else {
                    // It belongs to another contract.
                    continue;
                };
                let key = (pair.consumer.to_string(), name.to_owned());
                let has_namespace = pair.consumer.is_empty() || namespaces.contains(&*pair.consumer);
                items.push(item(&scope, key.clone(), &object, here.get(&key), has_namespace));
            }
        }
        Ok(())
    }
}
