//! Observes what an export's plan depends on: the caches, and, before cluster-wide rights are granted, the admission policy.

use std::sync::Arc;

use bindery_api::{
    Condition, annotations, names,
    v1alpha2::{APIServiceExport, ExportResource, GroupResource, SchemaUpdatePolicy},
};
use bindery_runtime::cache::Cache;
use jiff::Timestamp;
use kube::{Resource, ResourceExt as _, api::ObjectMeta};
use serde::de::DeserializeOwned;

use super::{
    Exports, is_for, mapped,
    observed::{ClaimsSeen, Observed},
    plan::{self, ExportStep},
    rights, sources,
};
use crate::{
    policy::{self, WatchedPolicy},
    rbac::{self, claims::Right},
    template::{self, Refusal},
    writes::{Write, WriteError},
};

/// What to write for an export, and why.
pub(super) struct Decision {
    pub(super) writes: Vec<Write>,
    /// What is known of the admission policy, if the plan depends on it.
    pub(super) policy: Option<Result<(), Refusal>>,
    /// What the export is about to say of the admission policy, if that is new.
    pub(super) turned: Option<Condition>,
}

impl Exports {
    /// Plans what to write.
    pub(super) async fn decide(
        &self,
        export: &APIServiceExport,
        lacking: Option<Refusal>,
        has_rights: bool,
    ) -> Result<Decision, WriteError> {
        let mut policy = None;
        loop {
            let (step, turned) = self.plan(export, lacking.clone(), has_rights, policy.as_ref());
            match step {
                ExportStep::Apply(writes) => {
                    return Ok(Decision { writes, policy, turned });
                }
                ExportStep::Prove => policy = Some(self.prove(export).await?),
            }
        }
    }

    /// Proves the admission policy for an export. One that is known to be missing is not tried again: the monitor does that.
    async fn prove(&self, export: &APIServiceExport) -> Result<Result<(), Refusal>, WriteError> {
        let state = &self.context.state;
        if state.policies.standing(WatchedPolicy::Binder).withholds() {
            return Ok(Err(Refusal::AdmissionPolicyMissing { policy: policy::NAME }));
        }
        let contract = export.namespace().unwrap_or_default();
        state.prober.prove(&contract).await
    }

    fn plan(
        &self,
        export: &APIServiceExport,
        lacking: Option<Refusal>,
        has_rights: bool,
        policy: Option<&Result<(), Refusal>>,
    ) -> (ExportStep, Option<Condition>) {
        let state = &self.context.state;
        let made = &self.context.made;
        let (contract, name) = (export.namespace().unwrap_or_default(), export.name_any());
        let cluster_role = names::resources_cluster_role(&contract, &name);
        let claims_role = names::claims_cluster_role(&contract, &name);
        let role = names::resources_role(&name);
        let schemas: Vec<_> = export
            .spec
            .resources
            .iter()
            .map(|resource| {
                let name = names::bound_schema(&resource.group_resource);
                state.caches.bound_schemas.get(&contract, &name)
            })
            .collect();
        let template = export
            .annotations()
            .get(annotations::TEMPLATE)
            .and_then(|name| state.caches.templates.get("", name));
        let offered = template.as_ref().map(|template| template.spec.scope);
        let sources: Vec<_> = std::iter::zip(&export.spec.resources, &schemas)
            .map(|(resource, bound)| {
                let bound = bound.as_ref().map(|schema| schema.spec.scope);
                sources::source(export, resource, &state.caches.definitions, bound, offered)
            })
            .collect();
        let own = (contract.as_str(), name.as_str());
        let seen = Observed {
            export,
            contract: state.contract(&contract),
            schemas: &schemas,
            sources: &sources,
            keepers: &self.keepers(export),
            request: state.caches.export_requests.get(&contract, &name),
            cluster_role: made_for(&made.cluster_roles, "", &cluster_role, own),
            cluster_role_binding: made_for(&made.cluster_role_bindings, "", &cluster_role, own),
            role: made_for(&made.roles, &contract, &role, own),
            role_binding: made_for(&made.role_bindings, &contract, &role, own),
            claims: ClaimsSeen {
                role: made_for(&made.cluster_roles, "", &claims_role, own),
                binding: made_for(&made.cluster_role_bindings, "", &claims_role, own),
                secrets: state.settings.cluster_wide_secret_claims,
            },
            policy,
            standing: state.policies.standing(WatchedPolicy::Binder),
            has_rights,
            lacking,
            template: template.map(|template| template::assess(&template, &state.caches, &state.settings)),
            now: Timestamp::now(),
        };
        (plan::plan(&seen), rights::policy_turned(&seen))
    }

    /// The export whose policy `Never` keeps a schema as it was bound, for each resource of an export: the export itself, or
    /// another one that shares the schema.
    fn keepers(&self, export: &APIServiceExport) -> Vec<Option<String>> {
        let caches = &self.context.state.caches;
        let contract = export.namespace().unwrap_or_default();
        let keeps = |export: &APIServiceExport| {
            let request = caches.export_requests.get(&contract, &export.name_any());
            let policy = request.map(|request| request.spec.schema_update_policy);
            policy.unwrap_or_default() == SchemaUpdatePolicy::Never
        };
        if keeps(export) {
            return vec![Some(export.name_any()); export.spec.resources.len()];
        }
        let mut others = caches.exports.list_in(&contract);
        others.retain(|other| other.metadata.deletion_timestamp.is_none() && keeps(other));
        others.sort_by_key(|other| other.name_any());
        let keeper = |resource: &ExportResource| {
            let GroupResource { group, resource } = &resource.group_resource;
            let keeper = others.iter().find(|other| plan::offers(other, group, resource));
            keeper.map(|keeper| keeper.name_any())
        };
        export.spec.resources.iter().map(keeper).collect()
    }

    /// Whether the consumer has the export's rights in every namespace that is mapped already. The export does not become
    /// ready before, since its consumer relies on them.
    pub(super) fn has_rights(&self, export: &APIServiceExport) -> bool {
        let (made, caches) = (&self.context.made, &self.context.state.caches);
        let contract = export.namespace().unwrap_or_default();
        let schemas = caches.bound_schemas.list_in(&contract);
        let scopes = schemas.iter().map(AsRef::as_ref).collect();
        let all = mapped::MappedRights::of(&contract, export, &scopes);
        let is_there = |namespace: &str, right: &Right| {
            let name = |meta: &ObjectMeta| meta.name.clone().unwrap_or_default();
            let has_role = right.role.as_ref().is_none_or(|role| {
                let there = made.roles.get(namespace, &name(&role.metadata));
                there.is_some_and(|there| rbac::are_within(role.rules.as_deref(), there.rules.as_deref()))
            });
            has_role
                && made
                    .role_bindings
                    .get(namespace, &name(&right.binding.metadata))
                    .is_some()
        };
        let mapped = caches.service_namespaces.list_in(&contract);
        mapped.iter().all(|mapped| {
            let status = mapped
                .status
                .as_ref()
                .filter(|_| mapped.metadata.deletion_timestamp.is_none());
            let Some(namespace) = status.and_then(|status| status.namespace.as_deref()) else {
                return true;
            };
            let name = mapped.metadata.name.as_deref().unwrap_or_default();
            all.within(name).iter().all(|right| is_there(namespace, right))
        })
    }
}

/// The object of that namespace and name, if it was made for an export, which is given by contract and name.
fn made_for<K>(cache: &Cache<K>, namespace: &str, name: &str, (contract, export): (&str, &str)) -> Option<Arc<K>>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let object = cache.get(namespace, name);
    object.filter(|object| is_for(&**object, contract, export))
}
