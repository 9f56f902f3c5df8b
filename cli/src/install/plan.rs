//! Which objects are missing between what a bind wants and what the consumer cluster has. Nothing here reads or writes.

use std::collections::{BTreeMap, BTreeSet};

use bindery_api::{
    Accepted, annotations,
    v1alpha2::{APIServiceBinding, GroupResource},
};
use bindery_proto::v1alpha2 as proto;
use bindery_sdk::{Address, audience};
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::Secret,
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;

use super::{
    manifests::{Manifests, NamespaceRights, is_ours},
    owner::{CredentialOwner, either},
    write::{Write, WriteKind},
};
use crate::{
    claims::news,
    errors::{Failure, conflict::Conflict},
    provider::kubeconfig::{Credential, KubeconfigError},
};

/// What the consumer cluster has already of the objects that a bind installs.
#[derive(Debug, Default)]
pub(crate) struct Installed {
    pub(crate) owner: Option<CredentialOwner>,
    pub(crate) has_namespace: bool,
    pub(crate) secret: Option<Secret>,
    /// The kubeconfig in the Secret, if it is safe to use.
    pub(crate) credential: Option<Credential>,
    /// The role of the binding; always absent for a bundle.
    pub(crate) cluster_role: Option<ClusterRole>,
    pub(crate) cluster_role_binding: Option<ClusterRoleBinding>,
    /// The Roles and RoleBindings of the binding, in all namespaces.
    pub(crate) roles: Vec<Role>,
    pub(crate) role_bindings: Vec<RoleBinding>,
}

/// A CustomResourceDefinition of this cluster for a resource that is to be bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstalledApi {
    pub(crate) resource: GroupResource,
    /// The binding that owns the definition; none if no binding does.
    pub(crate) binding: Option<String>,
    /// The binding that the user offers the definition and its objects to, by an annotation.
    pub(crate) offered: Option<String>,
}

impl Installed {
    pub(crate) fn binding(&self) -> Option<&APIServiceBinding> {
        self.owner.as_ref().and_then(CredentialOwner::binding)
    }

    /// All rules that the konnector has by the roles of the binding, each if one role gives it.
    pub(crate) fn rules(&self) -> Vec<PolicyRule> {
        let in_cluster = self.cluster_role.iter().filter_map(|role| role.rules.as_ref());
        let in_namespaces = self.roles.iter().filter_map(|role| role.rules.as_ref());
        in_cluster.chain(in_namespaces).flatten().cloned().collect()
    }

    /// The Roles of the binding that this command made in other namespaces than `wanted` has rights in.
    pub(crate) fn obsolete_roles<'a>(&'a self, wanted: &'a Manifests) -> impl Iterator<Item = &'a Role> {
        let rights = wanted.rights.iter().flat_map(|rights| &rights.in_namespaces);
        let kept: BTreeSet<_> = rights.map(|rights| rights.role.namespace()).collect();
        let of_binding = self.roles.iter().filter(|role| is_ours(&role.metadata));
        of_binding.filter(move |role| !kept.contains(&role.namespace()))
    }

    /// Refuses an owner that is being deleted.
    pub(crate) fn refuse_deleting(&self) -> Result<(), Conflict> {
        match &self.owner {
            Some(owner) if owner.is_deleting() => Err(Conflict::Deleting {
                owner: owner.to_string(),
                name: owner.name().to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses a binding that binds an export of another name than its own.
    pub(crate) fn refuse_other_export(&self) -> Result<(), Conflict> {
        match self.binding() {
            Some(binding) if binding.export_name() != binding.name_any() => Err(Conflict::OtherExport {
                binding: binding.name_any(),
                export: binding.export_name().to_owned(),
            }),
            _ => Ok(()),
        }
    }

    /// Refuses a binding that cannot be one with the backend at this address. Called before the provider is asked.
    pub(crate) fn refuse_other_backend(&self, asked: &Address) -> Result<(), Conflict> {
        self.refuse_deleting()?;
        self.refuse_other_export()?;
        let backend = self
            .credential
            .as_ref()
            .and_then(|credential| credential.access.backend.as_ref());
        let uses = backend.and_then(|backend| audience(&backend.address).ok());
        match (&self.owner, uses) {
            (Some(owner), Some(uses)) if uses != asked.to_string() => {
                Err(other_provider(owner, uses, asked.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses an answer with this credential, which a provider gave without being asked for a bind.
    pub(crate) fn refuse_answer(&self, credential: &Credential) -> Result<(), Conflict> {
        self.refuse_deleting()?;
        self.refuse_other_export()?;
        self.refuse_other_contract(credential, "")
    }

    /// The kubeconfig that the provider sent for the contract, if it is safe to install here.
    pub(crate) fn accept(&self, contract: &str, sent: Option<&proto::Kubeconfig>) -> Result<Vec<u8>, Failure> {
        let sent = sent.ok_or(KubeconfigError::Missing)?;
        let credential = Credential::parse(&sent.kubeconfig)?.for_contract(contract)?;
        self.refuse_other_contract(&credential, &sent.contract_uid)?;
        Ok(sent.kubeconfig.to_vec())
    }

    /// Refuses a credential for another contract than the one that the owner uses. `contract_uid` is empty where the
    /// provider did not tell it.
    pub(crate) fn refuse_other_contract(&self, got: &Credential, contract_uid: &str) -> Result<(), Conflict> {
        let Some(owner) = &self.owner else { return Ok(()) };
        if owner.contract_uid() == Some(contract_uid) {
            return Ok(());
        }
        // A contract made anew at the same place is the same provider: the konnector asks for consent before it goes on.
        match &self.credential {
            Some(used) if used.place() != got.place() => Err(other_provider(owner, used.place(), got.place())),
            _ => Ok(()),
        }
    }
}

fn other_provider(owner: &CredentialOwner, uses: String, asked: String) -> Conflict {
    Conflict::OtherProvider {
        owner: owner.to_string(),
        uses,
        asked,
        name_flag: owner.kind().name_flag,
        end: format!("{} {}", owner.kind().end_command, owner.name()),
    }
}

/// Refuses resources that this cluster has already, unless this binding brought them or the user offers them to it.
pub(crate) fn refuse_foreign_apis(seen: &[InstalledApi], binding: &str) -> Result<(), Conflict> {
    let is_free = |api: &InstalledApi| match &api.binding {
        Some(owner) => owner == binding,
        None => api.offered.as_deref() == Some(binding),
    };
    let foreign = seen.iter().find(|api| !is_free(api));
    foreign.map_or(Ok(()), |api| {
        Err(Conflict::ForeignApi {
            resource: api.resource.clone(),
            owner: match &api.binding {
                Some(other) => format!("APIServiceBinding {other}"),
                None => "somebody else".to_owned(),
            },
            mend: match &api.binding {
                Some(_) => "an API can be bound once, so end that binding first".to_owned(),
                None => format!(
                    "its objects would be copied to the provider: bind on another cluster, or, if you want that, let the binding \
                     have it with `kubectl annotate crd {} {}={binding}`",
                    api.resource,
                    annotations::ADOPT_BY
                ),
            },
        })
    })
}

/// The writes that are missing, in the order in which they are made. The owner comes last, because the konnector acts on it.
pub(crate) fn plan(wanted: &Manifests, seen: &Installed, now: Timestamp) -> Result<Vec<Write>, Failure> {
    let mut writes = Vec::new();
    if let Some(namespace) = wanted.namespace.as_ref().filter(|_| !seen.has_namespace) {
        writes.push(Write::new(WriteKind::Create, namespace)?);
    }
    if let Some(rights) = &wanted.rights {
        let (role, grant) = (&rights.cluster_role, &rights.cluster_role_binding);
        writes.extend(plan_object(role, seen.cluster_role.as_ref(), |seen| {
            same_rules(seen.rules.as_deref(), role.rules.as_deref())
        })?);
        writes.extend(plan_object(grant, seen.cluster_role_binding.as_ref(), |seen| {
            same_grant(
                (&seen.role_ref, seen.subjects.as_deref()),
                (&grant.role_ref, grant.subjects.as_deref()),
            )
        })?);
        for NamespaceRights {
            role,
            role_binding: grant,
        } in &rights.in_namespaces
        {
            let known = seen.roles.iter().find(|known| known.namespace() == role.namespace());
            writes.extend(plan_object(role, known, |seen| {
                same_rules(seen.rules.as_deref(), role.rules.as_deref())
            })?);
            let known = seen.role_bindings.iter();
            let known = known.into_iter().find(|known| known.namespace() == grant.namespace());
            writes.extend(plan_object(grant, known, |seen| {
                same_grant(
                    (&seen.role_ref, seen.subjects.as_deref()),
                    (&grant.role_ref, grant.subjects.as_deref()),
                )
            })?);
        }
    }
    writes.extend(plan_object(wanted.secret(), seen.secret.as_ref(), |_| {
        keeps_credential(wanted, seen, now)
    })?);
    writes.extend(plan_owner(&wanted.owner.clone().into(), seen.owner.as_ref())?);
    Ok(writes)
}

/// Whether two roles give the same rights; rules have no order.
fn same_rules(one: Option<&[PolicyRule]>, other: Option<&[PolicyRule]>) -> bool {
    let sorted = |rules: Option<&[PolicyRule]>| {
        let rules = rules.into_iter().flatten();
        let mut rules: Vec<_> = rules.map(|rule| format!("{rule:?}")).collect();
        rules.sort_unstable();
        rules
    };
    sorted(one) == sorted(other)
}

/// A write unless the object is as wanted. An object that this command did not make is never changed.
fn plan_object<K>(wanted: &K, seen: Option<&K>, is_same: impl FnOnce(&K) -> bool) -> Result<Option<Write>, Failure>
where
    K: Resource<DynamicType = ()> + Serialize,
{
    match seen {
        None => Write::new(WriteKind::Create, wanted).map(Some),
        Some(seen) if is_same(seen) => Ok(None),
        Some(seen) if is_ours(seen.meta()) => Write::new(WriteKind::Change, wanted).map(Some),
        Some(seen) => Err(Conflict::ForeignObject {
            kind: K::kind(&()).into_owned(),
            name: seen.name_any(),
        }
        .into()),
    }
}

/// Whether two grants give the same role to the same subjects.
fn same_grant(
    (seen, seen_subjects): (&RoleRef, Option<&[Subject]>),
    (wanted, wanted_subjects): (&RoleRef, Option<&[Subject]>),
) -> bool {
    let named = |subjects: Option<&[Subject]>| -> Vec<_> {
        let subjects = subjects.into_iter().flatten();
        subjects
            .map(|subject| (subject.kind.clone(), subject.namespace.clone(), subject.name.clone()))
            .collect()
    };
    seen.name == wanted.name && seen.kind == wanted.kind && named(seen_subjects) == named(wanted_subjects)
}

/// Whether the installed kubeconfig is as good as the new one: it leads to the same place, has not expired, and the konnector
/// does not report that it fails.
fn keeps_credential(wanted: &Manifests, seen: &Installed, now: Timestamp) -> bool {
    let Some(installed) = &seen.credential else {
        return false;
    };
    let documents = wanted.secret().data.iter().flatten();
    let offered = documents.map(|(_, document)| Credential::parse(&document.0)).next();
    // Before a bind there is no new kubeconfig yet, and the question is only whether the old one may stay.
    let same = offered.is_none_or(|offered| offered.is_ok_and(|offered| offered.differs_by_token_alone(installed)));
    same && installed.is_valid_at(now) && !seen.owner.as_ref().is_some_and(CredentialOwner::credential_fails)
}

/// Plans the write of the owner: the binding or bundle. A bundle of another manager is not changed.
fn plan_owner(wanted: &CredentialOwner, seen: Option<&CredentialOwner>) -> Result<Option<Write>, Failure> {
    let kind = match (wanted, seen) {
        (CredentialOwner::Binding(wanted), Some(CredentialOwner::Binding(seen))) => return plan_binding(wanted, seen),
        (CredentialOwner::Bundle(wanted), Some(CredentialOwner::Bundle(seen))) => {
            if !is_ours(&seen.metadata) || seen.spec.accepted_claims == wanted.spec.accepted_claims {
                return Ok(None);
            }
            WriteKind::Change
        }
        _ => WriteKind::Create,
    };
    either!(wanted, object => Write::new(kind, object.as_ref())).map(Some)
}

/// Plans the write of a binding. A binding of another manager must reject the claims that the user rejects; only its
/// record of accepted claims is extended, if the user accepts more.
fn plan_binding(wanted: &APIServiceBinding, seen: &APIServiceBinding) -> Result<Option<Write>, Failure> {
    let rejected = |binding: &APIServiceBinding| -> BTreeSet<GroupResource> {
        binding.spec.rejected_permission_claims.iter().cloned().collect()
    };
    let (seen_rejects, wanted_rejects) = (rejected(seen), rejected(wanted));
    let same = holds(seen.labels(), wanted.labels())
        && holds(seen.annotations(), wanted.annotations())
        && seen_rejects == wanted_rejects
        && seen.spec.claim_namespaces == wanted.spec.claim_namespaces;
    if is_ours(&seen.metadata) {
        return (!same).then(|| Write::new(WriteKind::Change, wanted)).transpose();
    }
    if let Some(claim) = wanted_rejects.difference(&seen_rejects).next() {
        return Err(Conflict::ForeignBinding {
            binding: seen.name_any(),
            claim: claim.clone(),
        }
        .into());
    }
    if !wanted.spec.claim_namespaces.is_empty() && seen.spec.claim_namespaces != wanted.spec.claim_namespaces {
        return Err(Failure::Usage(format!(
            "APIServiceBinding {} is managed by another program, so its spec.claimNamespaces is not changed; change it there",
            seen.name_any()
        )));
    }
    let (Accepted::Claims(claims), known) = (Accepted::of(wanted), Accepted::of(seen)) else {
        return Ok(None);
    };
    let is_more = claims.iter().any(|claim| news(&known, claim).is_some());
    let mut recorded = seen.clone();
    let record = wanted.annotations().get_key_value(annotations::ACCEPTED_CLAIMS);
    recorded
        .annotations_mut()
        .extend(record.map(|(key, value)| (key.clone(), value.clone())));
    is_more
        .then(|| Write::new(WriteKind::RecordClaims, &recorded))
        .transpose()
}

fn holds(seen: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| seen.get(key) == Some(value))
}

#[cfg(test)]
mod tests;
